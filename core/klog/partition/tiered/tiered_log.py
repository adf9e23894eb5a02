"""The log of a partition over two tiers: which offsets are read from which segment, as a broker finds them.

log = TieredLog(cache, epochs, log_start=0, local_start=149)
for part in log.ranges(log_end=157):
    print(part.first, part.last, part.segment.segment_id if part.segment else "local")
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from klog.cluster.remote_log.cache import RemoteLogCache
from klog.cluster.remote_log.events import RemoteSegment
from klog.cluster.remote_log.lineage import ChainLink, chain, epochs_with_data, holes, is_within_lineage
from klog.formats.checkpoint import EpochEntry
from klog.formats.java_integers import LONG_MAX
from klog.formats.remote_log import SegmentState
from klog.partition.tiered.lost_entries import lost_entries_text


class TierRange(NamedTuple):
    """The offsets *first* to *last*, both inclusive.  *segment*: the remote one with them; None for the local log."""

    first: int
    last: int
    segment: RemoteSegment | None = None


class RemoteSegmentPart(NamedTuple):
    """A remote segment, of which the offsets below *end* are read."""

    segment: RemoteSegment
    end: int

    @property
    def is_whole(self) -> bool:
        """Whether all of it is read."""
        return self.end > self.segment.end_offset


class TieredLog:
    """A partition with remote segments.  *epochs*: of its own history, ascending.

    *log_start*: the first offset of both tiers.  *local_start*: the base offset of the first local segment; None
    without a local log.  *lost*: the start offsets of segments with objects, whose entries may be lost.
    """

    def __init__(
        self,
        cache: RemoteLogCache,
        epochs: tuple[EpochEntry, ...],
        log_start: int,
        local_start: int | None,
        lost: Iterable[int] = (),
    ) -> None:
        self.cache, self.epochs, self.log_start, self.local_start = cache, epochs, log_start, local_start
        self._lost = tuple(lost)

    @cached_property
    def links(self) -> tuple[ChainLink, ...]:
        """The segments in which a broker finds the offsets from the log start on; offsets of the local log included."""
        return tuple(chain(self.cache, self.epochs, self.log_start)) if self.epochs else ()

    @property
    def remote_end_offset(self) -> int:
        """The highest offset in remote storage, -1 for none.  Kafka: ListOffsets with -5, RemoteLogManager."""
        known = epochs_with_data(self.epochs)
        ends = [*(one.start_offset - 1 for one in known[1:]), LONG_MAX]
        for one, last in zip(reversed(known), reversed(ends), strict=True):
            found = self.cache.epochs.get(one.epoch)
            if found is not None and found.highest is not None:
                return min(found.highest, last)
        return -1

    def ranges(self, log_end: int) -> Iterator[TierRange]:
        """Yield the ranges of offsets up to *log_end*, exclusive; where both tiers have one, the local log counts."""
        local_start = log_end if self.local_start is None else max(self.local_start, self.log_start)
        for one in self.links:
            if one.first < local_start:
                yield TierRange(one.first, min(one.last, local_start - 1), one.segment)
        if local_start < log_end:
            yield TierRange(local_start, log_end - 1)

    def holes(self) -> list[tuple[int, int]]:
        """Return the ranges below the local log, or below the remote end, that no segment has; both ends inclusive."""
        end = self.links[-1].last + 1 if self.links and self.local_start is None else self.local_start
        return holes(self.links, self.log_start, end or 0)

    def lost_entries_text(self, first: int, last: int) -> str | None:
        """Return a sentence about a hole whose segments are there without entries; None for any other."""
        known = [(one.start_offset, False) for one in self.cache.segments.values()]
        return lost_entries_text(first, last, sorted([*known, *((start, True) for start in self._lost)]))

    def parts(self, *, without_local: bool = False) -> list[RemoteSegmentPart]:
        """Return the remote segments to read, from their first offsets on, the next one beginning where one ends.

        Offsets that two of them have are the same in both.  *without_local*: offsets of the local log, too.
        """
        end = LONG_MAX if without_local or self.local_start is None else self.local_start
        found: list[RemoteSegmentPart] = []
        for one in self.links:
            start = one.segment.start_offset
            if one.first >= end:
                break
            while found and found[-1].segment.start_offset >= start:
                found.pop()
            if found:
                found[-1] = found[-1]._replace(end=min(found[-1].end, start))
            found.append(RemoteSegmentPart(one.segment, min(one.last + 1, end)))
        return found

    def segments_by_time(self, log_end: int) -> Iterator[RemoteSegment]:
        """Yield the segments in which a broker looks for a time, in its order.

        Kafka: RemoteLogManager.findOffsetByTimestamp.
        """
        known = epochs_with_data(self.epochs)
        own = [one for one in known if one.start_offset <= self.log_start][-1:]
        for one in [*own, *(one for one in known if one.start_offset > self.log_start)]:
            found = self.cache.epochs.get(one.epoch)
            ids = set() if found is None else {segment_id for _, segment_id in found} | found.unreferenced
            listed = (self.cache.segments[segment_id] for segment_id in ids if segment_id in self.cache.segments)
            for segment in sorted(listed, key=lambda segment: segment.start_offset):
                is_read = segment.state is SegmentState.COPY_SEGMENT_FINISHED and segment.end_offset >= self.log_start
                if is_read and is_within_lineage(segment, known, log_end):
                    yield segment
