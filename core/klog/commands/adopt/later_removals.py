"""The adopted records, and the committed offsets among them, that the broker removes after its start."""

from __future__ import annotations

from collections.abc import Iterator

from klog.base.errors import counted
from klog.change.partition_plan.contents import tail
from klog.change.partition_plan.strict_reader import count_null_keys
from klog.cluster.coordinator.consumer_groups import group_images
from klog.cluster.coordinator.due_offsets import DueOffsets, due_offsets
from klog.cluster.metadata.topic_config import TopicConfig
from klog.commands.adopt.adopted_content import AdoptedLog
from klog.commands.adopt.adopted_sources import AdoptSource
from klog.commands.adopt.target_log_dirs import AdoptTarget
from klog.formats.index import TIME_ENTRY
from klog.formats.internal_topics import CONSUMER_OFFSETS
from klog.formats.names import FileKind, file_name, parse_file
from klog.log.index import modified_ms
from klog.partition.retention.due_records import DueRecords, RetainedPartition, due_records
from klog.partition.retention.first_pass import SegmentAge
from klog.partition.start.record_tally import EVERYTHING, OffsetSpan, tally_records


def adopted_due(
    source: AdoptSource, target: AdoptTarget, log: AdoptedLog, config: TopicConfig, now_ms: int
) -> DueRecords | None:
    """Return the removals of the first pass at *now_ms*; *config*: the settings in the target's log dir.

    Raises UnreadableError.
    """
    pieces = {name: content.pieces for name, content in log.logs.items()}

    def count(due: OffsetSpan) -> int:
        if due.end >= log.log_end:
            return log.records
        return tally_records(source.partition, due, EVERYTHING, pieces).records

    offsets = OffsetSpan(log.log_start, log.log_end)
    found = RetainedPartition(*target.key, target.partition.path, list(_segments(source, log)), offsets)
    return due_records(found, config, now_ms, count)


def null_key_notes(source: AdoptSource, target: AdoptTarget, log: AdoptedLog, config: TopicConfig) -> list[str]:
    """Return a sentence about records without a key for a compacted topic.  Raises UnreadableError."""
    if "compact" not in config.value(target.key[0], "cleanup.policy").words:
        return []
    count = count_null_keys(source.partition, log.log_start, log.log_end)
    if not count:
        return []
    return [
        f"{target.name}: {counted(count, 'record')} without a key, which the cleaner of the compacted topic removes"
    ]


def _segments(source: AdoptSource, log: AdoptedLog) -> Iterator[SegmentAge]:
    """Yield the future segments: timestamps are those of the time indexes, else of the files, which keep theirs."""
    for name in sorted(log.logs):
        base, pieces = parse_file(name).offset or 0, log.logs[name].pieces
        entry = tail(source.partition.path, log.files.get(file_name(base, FileKind.TIME_INDEX)), TIME_ENTRY.size)
        largest = TIME_ENTRY.read(entry)[0] if entry else -1
        if largest < 0:
            path = source.partition.file(pieces[0].name) if pieces else None
            largest = log.now_ns // 1_000_000 if path is None else modified_ms(path)
        yield SegmentAge(base, log.size(name), largest)


def adopted_offsets(source: AdoptSource, config: TopicConfig, now_ms: int) -> list[DueOffsets]:
    """Return the committed offsets in *source* that coordinators remove from *now_ms* on; none of another topic."""
    if source.topic != CONSUMER_OFFSETS:
        return []
    return due_offsets(group_images([source.partition], lambda _: None), config, now_ms)
