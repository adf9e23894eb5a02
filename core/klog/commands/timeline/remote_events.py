"""The events of remote storage in `__remote_log_metadata`: copies of segments, failed ones, deletions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from klog.base.errors import offsets_text
from klog.cluster.coordinator.coordinator_records import CoordinatorEntry, Note, entries
from klog.cluster.remote_log.cache import EventOutcome, RemoteLogCache
from klog.cluster.remote_log.events import RemoteLogEvent, RemoteSegment, TopicIdPartition, read_event
from klog.commands.timeline.timeline_event import BROKER_CLOCK, TimelineEvent
from klog.data_dir.partition import Partition
from klog.formats.internal_topics import Undecodable
from klog.formats.remote_log import SegmentState

Emit = Callable[[TimelineEvent], None]
_STARTED, _FINISHED, _DELETING, _DELETED = SegmentState
_KINDS: Final = {_FINISHED: "segment-tiered", _DELETED: "segment-deleted-remotely"}


class RemoteEvents:
    """Takes the records of one partition of `__remote_log_metadata`; memory for the segments that are not deleted."""

    def __init__(self, partition: Partition, log_dir: str, emit: Emit) -> None:
        self._partition, self._emit = partition, emit
        self._where = TimelineEvent(0, BROKER_CLOCK, "", "", log_dir, file=partition.directory)
        self._caches: dict[TopicIdPartition, RemoteLogCache] = {}

    def read(self, note: Note) -> None:
        """Read the log; *note* receives its unreadable parts."""
        undecodable = 0
        for entry in entries(self._partition, note):
            if entry.commits is not None or entry.value is None:
                continue
            event = read_event(entry.value)
            if isinstance(event, Undecodable):
                undecodable += 1
            elif event.segment_id is not None:
                self._take(event, event.segment_id, entry)
        if undecodable:
            note(f"{self._partition.path}: {undecodable} records that cannot be decoded")

    def _take(self, event: RemoteLogEvent, segment_id: str, entry: CoordinatorEntry) -> None:
        cache = self._caches.setdefault(event.partition, RemoteLogCache())
        before = cache.segments.get(segment_id)
        if cache.apply(event) is not EventOutcome.TAKEN:
            return
        segment, state = before or event.segment, SegmentState(event.state)
        assert segment is not None
        if state in _KINDS and segment.state is not state:
            self._tell(_KINDS[state], event, segment, entry)
        elif state is _DELETING and before is not None and before.state is _STARTED:
            self._tell("copy-failed", event, segment, entry)
        elif state is _STARTED and before is None:
            self._repeated(cache, event, segment, entry)

    def _repeated(
        self, cache: RemoteLogCache, event: RemoteLogEvent, segment: RemoteSegment, entry: CoordinatorEntry
    ) -> None:
        """Tell of a copy of the same segment that did not end: the leader begins anew under another id."""
        for one in list(cache.segments.values()):
            if one.state is _STARTED and one.start_offset == segment.start_offset and one is not segment:
                self._tell("copy-failed", event, one, entry)
                del cache.segments[one.segment_id]

    def _tell(self, kind: str, event: RemoteLogEvent, segment: RemoteSegment, entry: CoordinatorEntry) -> None:
        verb = {"copy-failed": "is not copied", "segment-tiered": "is copied to remote storage"}.get(kind, "is deleted")
        offsets = offsets_text(segment.start_offset, segment.end_offset)
        whose = event.partition
        self._emit(
            self._where._replace(
                time=entry.timestamp,
                kind=kind,
                message=f"segment {segment.segment_id}, {offsets}, {verb}",
                topic=whose.topic,
                topic_id=whose.topic_id,
                partition=whose.number,
                offset=entry.offset,
                epoch=segment.epochs[-1].epoch if segment.epochs else None,
                node=event.broker,
            )
        )
