"""Committed offsets that expired while the broker stood still."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Final

from klog.base.errors import counted
from klog.cluster.coordinator.consumer_groups import group_images
from klog.cluster.coordinator.due_offsets import DueOffsets, due_offset_notes, due_offsets
from klog.cluster.metadata.metadata_loader import ClusterMetadata
from klog.cluster.metadata.topic_config import TopicConfig
from klog.commands.doctor.diagnosis import Diagnosis, Fate
from klog.commands.doctor.partition_loader import LoadedPartition
from klog.commands.doctor.start_request import StartRequest
from klog.formats.internal_topics import CONSUMER_OFFSETS
from klog.formats.java_integers import LONG_MAX
from klog.partition.start.start_reasons import OFFSETS, StartNote

_MOST_BYTES: Final = 1 << 30
"""The most bytes of logs of coordinators that are read for it, over all log dirs."""


def with_expired_offsets(
    diagnosis: Diagnosis,
    loaded: Mapping[str, LoadedPartition],
    cluster: ClusterMetadata | None,
    node_id: int,
    request: StartRequest,
) -> Diagnosis:
    """Return *diagnosis* with the committed offsets that coordinators on this broker remove, and notes about them.

    *loaded*: by path.
    """
    topics, now_ms = TopicConfig(file=request.file), int(time.time() * 1000)
    left_bytes = LONG_MAX if request.count_all else _MOST_BYTES
    due: list[DueOffsets] = []
    unread = 0
    for row in diagnosis.partitions:
        if row.topic == CONSUMER_OFFSETS and row.fate in (Fate.SERVES, Fate.PROMOTES):
            one = loaded[f"{row.log_dir}/{row.directory}"]
            left_bytes -= one.size
            if left_bytes < 0:
                unread += 1
            else:
                due += _due(one, cluster, node_id, topics, now_ms)
    notes = [StartNote(OFFSETS, note) for note in due_offset_notes(due, topics)]
    if unread:
        what = f"the committed offsets of {counted(unread, 'partition')} of {CONSUMER_OFFSETS} were not read"
        notes.append(StartNote("offsets-not-read", f"{what}: --records reads all, and so does klog groups"))
    return diagnosis._replace(offsets=tuple(due), notes=(*diagnosis.notes, *notes))


def _due(
    loaded: LoadedPartition, cluster: ClusterMetadata | None, node_id: int, topics: TopicConfig, now_ms: int
) -> Iterator[DueOffsets]:
    known = None if cluster is None else cluster.partition(loaded.name.topic, loaded.name.partition)
    has_replicas = known is None or known.replicas != (node_id,)
    groups = group_images([loaded.read_again()], lambda _: None)
    for one in due_offsets(groups, topics, now_ms):
        yield one._replace(has_replicas=has_replicas)
