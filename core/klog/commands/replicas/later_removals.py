"""The records and committed offsets that brokers remove from the copies of a plan after their start."""

from __future__ import annotations

import os
from collections.abc import Iterator

from klog.cluster.coordinator.consumer_groups import group_images
from klog.cluster.coordinator.due_offsets import DueOffsets, due_offset_notes, due_offsets
from klog.cluster.metadata.metadata_loader import ClusterMetadata
from klog.cluster.metadata.topic_config import TopicConfig
from klog.commands.replicas.catch_up import CatchUp, CatchUpSource, CatchUpTarget
from klog.commands.replicas.diff import PartitionDiff
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.formats.index import TIME_ENTRY
from klog.formats.internal_topics import CONSUMER_OFFSETS
from klog.formats.names import FileKind
from klog.partition.retention.due_records import (
    COPIED,
    DueRecords,
    RetainedPartition,
    count_in,
    due_notes,
    due_records,
    stored_segments,
)
from klog.partition.retention.first_pass import AgedSegment, SegmentAge
from klog.partition.start.record_tally import OffsetSpan


class LaterRemovals:
    """The removals after a plan, while it is made.

    *records*: those that copies receive, and the first retention pass removes.  *offsets*: those in copies that stay or
    are copied, and coordinators remove at their first check.
    """

    def __init__(self, config: TopicConfig, now_ms: int) -> None:
        self._config, self._now_ms = config, now_ms
        self.records: list[DueRecords] = []
        self.offsets: list[DueOffsets] = []

    def add_offsets(self, diff: PartitionDiff, kept: Partition | None) -> None:
        """Take the committed offsets of a partition, *kept*: the directory whose content all copies will have."""
        if diff.topic != CONSUMER_OFFSETS or kept is None:
            return
        for one in due_offsets(group_images([kept], lambda _: None), self._config, self._now_ms):
            self.offsets.append(one._replace(has_replicas=diff.registration is None))

    def notes(self) -> list[str]:
        """Return a sentence for each topic with such records, and those about offsets."""
        return [*due_notes(self.records, COPIED), *due_offset_notes(self.offsets, self._config)]

    def json(self) -> dict[str, object]:
        """Return both as JSON has them."""
        return {
            "retention": [one.json() for one in self.records],
            "offsets": [one._asdict() for one in self.offsets],
        }


def copied_due(
    source: CatchUpSource, target: CatchUpTarget, change: CatchUp, cluster: ClusterMetadata | None, now_ms: int
) -> DueRecords | None:
    """Return the records that *change* adds to a copy, otherwise unchanged, and that the first pass removes.

    *cluster*: the metadata that apply; None without any.  Raises UnreadableError.
    """
    if source.partition is None or not change.segments:
        return None
    original, log_dir = source.partition, LogDir(target.partition.log_dir)
    start = change.final.get(FileKind.LOG_STARTS) or target.partition.log_start_offset or 0
    offsets = OffsetSpan(source.log_start if change.is_replaced else start, source.log_end)
    segments = list(_segments(source, target, change))
    found = RetainedPartition(source.topic, source.number, target.partition.path, segments, offsets)

    def count(due: OffsetSpan) -> int:
        if due.end >= source.log_end:
            return change.records_added
        return count_in(original)(OffsetSpan(max(due.start, change.cut_to), due.end))

    return due_records(found, TopicConfig(log_dir, cluster=cluster), now_ms, count)


def _segments(source: CatchUpSource, target: CatchUpTarget, change: CatchUp) -> Iterator[AgedSegment]:
    """Yield the segments of the copy when all is done: those that stay, and those that are added."""
    assert source.partition is not None
    first = change.segments[0].base_offset
    is_clean = target.state is not None and target.state.is_clean
    for one in () if change.is_replaced else stored_segments(target.partition, is_clean):
        if one.base_offset < min(first, change.cut_to):
            yield one
    for added in change.segments:
        entry = added.time_index[-TIME_ENTRY.size :]
        largest = TIME_ENTRY.read(entry)[0] if entry else -1
        if largest < 0:
            largest = os.stat(source.partition.file(added.file)).st_mtime_ns // 1_000_000
        yield SegmentAge(added.base_offset, added.end - added.start, largest)
