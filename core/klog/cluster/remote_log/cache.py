"""The segments of one partition that a broker knows, and those that it finds for an offset.

Kafka: RemoteLogMetadataCache, RemoteLogLeaderEpochState.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from klog.cluster.remote_log.events import RemoteLogEvent, RemoteSegment
from klog.formats.remote_log import SegmentState

_STARTED, _FINISHED, _DELETING, _DELETED = SegmentState
_LEGAL: Final = frozenset(
    {(None, _STARTED), (_STARTED, _FINISHED), (_STARTED, _DELETING), (_FINISHED, _DELETING), (_DELETING, _DELETED)}
    | {(state, state) for state in SegmentState}
)
"""The transitions that a broker accepts.  Kafka: RemoteLogSegmentState.isValidTransition."""


class EventOutcome(StrEnum):
    """The effect of an event on a broker: it takes or ignores it, or its consumer of the topic ends with an error."""

    TAKEN = "taken"
    DROPPED = "dropped"
    REFUSED = "refused"


class EpochSegments:
    """The segments of one leader epoch: those that are found, by their first offset of the epoch, ascending.

    *highest*: the last offset of the epoch that was ever copied; None before the first copy has ended.  *unreferenced*:
    the ids of segments that are known, but not found: unfinished, superseded, in deletion.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ids: list[str] = []
        self.highest: int | None = None
        self.unreferenced: set[str] = set()

    def __iter__(self) -> Iterator[tuple[int, str]]:
        return zip(self._starts, self._ids, strict=True)

    def finish(self, start: int, end: int, segment_id: str) -> None:
        """Add a segment that was copied, with the offsets *start* to *end* of the epoch.

        The segments that begin at *start* or behind it are superseded, if nothing was copied behind *end*.
        """
        while self._starts and self._starts[-1] >= start and (self.highest or 0) <= end:
            self._starts.pop()
            self.unreferenced.add(self._ids.pop())
        at = bisect_left(self._starts, start)
        if at < len(self._starts) and self._starts[at] == start:
            self._ids[at] = segment_id
        else:
            self._starts.insert(at, start)
            self._ids.insert(at, segment_id)
        self.unreferenced.discard(segment_id)
        self.highest = end if self.highest is None else max(end, self.highest)

    def remove(self, start: int, segment_id: str) -> None:
        """Stop finding a segment, whose deletion has begun; another one with this start stays."""
        at = bisect_left(self._starts, start)
        if at < len(self._starts) and (self._starts[at], self._ids[at]) == (start, segment_id):
            del self._starts[at], self._ids[at]
        self.unreferenced.add(segment_id)

    def floor(self, offset: int) -> str | None:
        """Return the id of the segment that starts at *offset* or next below it."""
        at = bisect_right(self._starts, offset)
        return self._ids[at - 1] if at else None

    def next_start(self, offset: int) -> int | None:
        """Return the first start above *offset*."""
        at = bisect_right(self._starts, offset)
        return self._starts[at] if at < len(self._starts) else None


class RemoteLogCache:
    """The segments of one partition by id, and by leader epoch.  *deleted*: how many are no longer known."""

    def __init__(self) -> None:
        self.segments: dict[str, RemoteSegment] = {}
        self.epochs: dict[int, EpochSegments] = {}
        self.deleted = 0

    def apply(self, event: RemoteLogEvent) -> EventOutcome:
        """Take an event of a segment, unless its transition is illegal, or the segment of an update is unknown."""
        assert event.segment_id is not None
        known, state = self.segments.get(event.segment_id), SegmentState(event.state)
        if (known is None and event.segment is None) or (known and known.state, state) not in _LEGAL:
            return EventOutcome.DROPPED
        if event.segment is not None:
            for one in event.segment.epochs:
                self._epoch(one.epoch).unreferenced.add(event.segment_id)
            self.segments[event.segment_id] = event.segment
            return EventOutcome.TAKEN
        if state is _STARTED:
            return EventOutcome.REFUSED
        assert known is not None
        # An update without custom metadata removes them, too.  Kafka: RemoteLogSegmentMetadata.createWithUpdates.
        updated = known._replace(broker=event.broker, custom_metadata=event.custom_metadata)
        self._update(updated._replace(state=state, event_timestamp=event.event_timestamp))
        return EventOutcome.TAKEN

    def add(self, segment: RemoteSegment) -> None:
        """Add a segment in its state, for a cache that no events have filled."""
        for one in segment.epochs:
            self._epoch(one.epoch)
        self._update(segment)

    def _epoch(self, epoch: int) -> EpochSegments:
        return self.epochs.setdefault(epoch, EpochSegments())

    def _update(self, segment: RemoteSegment) -> None:
        segment_id = segment.segment_id
        for one, end in zip(segment.epochs, segment.epoch_ends(), strict=True):
            found = self._epoch(one.epoch)
            if segment.state is _FINISHED:
                found.finish(one.start_offset, end, segment_id)
            elif segment.state is _DELETING:
                found.remove(one.start_offset, segment_id)
            else:
                found.unreferenced.discard(segment_id)
        if segment.state is _DELETED:
            del self.segments[segment_id]
            self.deleted += 1
        else:
            self.segments[segment_id] = segment

    def find(self, epoch: int, offset: int) -> RemoteSegment | None:
        """Return the segment that a broker reads for *offset* of *epoch*.  Kafka: remoteLogSegmentMetadata."""
        of_epoch = self.epochs.get(epoch)
        segment_id = None if of_epoch is None else of_epoch.floor(offset)
        if segment_id is None:
            return None
        segment = self.segments[segment_id]
        return segment if offset <= segment.end_of(epoch) else None

    def ordered(self) -> list[RemoteSegment]:
        """Return the known segments by start offset, then id."""
        return sorted(self.segments.values(), key=lambda one: (one.start_offset, one.segment_id))
