"""Lookups in a partition's log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from klog.data_dir.partition import Partition, SegmentFiles
from klog.partition.lookup.lookup_trail import Trail, TrailDetail
from klog.partition.lookup.offset_search import OffsetSearch
from klog.partition.lookup.segment_search import SegmentChoice

if TYPE_CHECKING:
    from klog.partition.lookup.time_search import TimeSearch


class Lookup:
    """Searches a partition's log as a broker does, and reports the steps of the search.

        with Lookup(Partition("data/orders-3")) as lookup:
            print(lookup.offset(368776).position)

    *segments* are those to search (base offsets ascending), all by default; *wanted*: the requested details of the
    record. Many searches are fastest in ascending order.  Use it from one thread at a time. Raises UsageError when
    there is no segment; searches raise UnreadableError when a log cannot be opened.
    """

    def __init__(
        self, partition: Partition, segments: Sequence[SegmentFiles] | None = None, wanted: TrailDetail | None = None
    ) -> None:
        self.segments = SegmentChoice(partition, segments)
        self._wanted = wanted or TrailDetail()
        self._by_offset = OffsetSearch(self.segments, self._wanted)
        self._by_time: TimeSearch | None = None

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self.segments.log_start_offset

    def offset(self, offset: int) -> Trail:
        """Search *offset*."""
        return self._by_offset.search(offset)

    def timestamp(self, timestamp: int) -> Trail:
        """Search the first record at or after *timestamp* (ms), as a broker answers ListOffsets."""
        if self._by_time is None:
            from klog.partition.lookup.time_search import TimeSearch

            self._by_time = TimeSearch(self.segments, self._wanted)
        return self._by_time.search(timestamp)

    def many(self, targets: Sequence[int], by_time: bool = False) -> Iterator[tuple[int, Trail]]:
        """Search all *targets*, offsets or (*by_time*) timestamps, and yield each answer with its place in *targets*.

        Answers are in ascending order, so that each part of an index and of a log is read once.
        """
        search = self.timestamp if by_time else self.offset
        trail: Trail | None = None
        for place in sorted(range(len(targets)), key=targets.__getitem__):
            if trail is None or trail.target != targets[place]:
                trail = search(targets[place])
            yield place, trail

    def close(self) -> None:
        """Close all open files."""
        if self._by_time is not None:
            self._by_time.close()
        self.segments.close()

    def __enter__(self) -> Lookup:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
