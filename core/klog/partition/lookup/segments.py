"""The segments of a lookup, each opened when it is needed, and the problems found in them."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence

from klog.base.errors import UsageError
from klog.data_dir.partition import Partition, SegmentFiles
from klog.formats.codec import Decompressor
from klog.formats.damage import DamageKind
from klog.formats.names import FileKind
from klog.partition.lookup.search import SearchResult, SegmentSearch
from klog.partition.lookup.trail import SegmentTrail


class SegmentChoice:
    """A partition's segments, or some of them (base offsets ascending).

    *is_whole*: all of them.  *log_start_offset*: the first offset that can be read.
    Raises UsageError when there is no segment; searches raise UnreadableError when a log cannot be opened.
    """

    def __init__(self, partition: Partition, chosen: Sequence[SegmentFiles] | None = None) -> None:
        partition.check_listed()
        self.partition = partition
        self.files = tuple(partition.segments if chosen is None else chosen)
        if not self.files:
            raise UsageError(f"{partition.path}: there is no segment (a file such as 00000000000000000000.log) in it")
        self.is_whole = chosen is None
        whole = partition.log_start_offset if self.is_whole else None
        self.log_start_offset = self.files[0].base_offset if whole is None else whole
        self.codecs = Decompressor().functions
        self.bases = [files.base_offset for files in self.files]
        every = [files.base_offset for files in partition.segments]
        places = (bisect_right(every, base) for base in self.bases)
        self._following = [every[place] if place < len(every) else None for place in places]
        self._trails: dict[int, SegmentTrail] = {}
        self._open: tuple[int, SegmentSearch] | None = None
        self._stopped_cleanly: bool | None = None

    @property
    def stopped_cleanly(self) -> bool:
        """Whether the log dir around the partition has the clean-shutdown marker."""
        if self._stopped_cleanly is None:
            folder = self.partition.log_dir
            self._stopped_cleanly = os.path.exists(os.path.join(folder, FileKind.CLEAN_SHUTDOWN.value))
        return self._stopped_cleanly

    def floor(self, offset: int) -> int:
        """Return the number of the segment with the greatest base offset that is not above *offset*; -1 for none."""
        return bisect_right(self.bases, offset) - 1

    def is_last(self, number: int) -> bool:
        """Whether a segment is the partition's last."""
        return self._following[number] is None

    def search(self, number: int) -> SegmentSearch:
        """Return the search in a segment; that in another is closed."""
        if self._open is None or self._open[0] != number:
            self.close()
            unfinished = self.is_last(number) and not self.stopped_cleanly
            found = SegmentSearch(self.partition.path, self.files[number], self.codecs, unfinished)
            self._open = number, found
        return self._open[1]

    def trail(self, number: int) -> SegmentTrail:
        """Return what the trail says of a segment."""
        if number not in self._trails:
            files = self.files[number]
            trail = SegmentTrail(files.log, files.base_offset, self._following[number], len(self.files))
            self._trails[number] = trail
        return self._trails[number]

    def problems(self, number: int, found: SearchResult) -> list[str]:
        """Return what a search in a segment found wrong with its index and its log."""
        files = self.files[number]
        told = []
        if found.offset_index.problem:
            told.append(f"{files.offset_index or files.log}: {found.offset_index.problem}")
        for damage in found.damages:
            # what a broker was writing when it died, it will cut off itself; zeros there may be preallocated
            zeros = damage.kind is DamageKind.ZEROED_TAIL
            expected = damage.is_unfinished and (zeros or not self.stopped_cleanly)
            if not (expected and self.is_last(number)):
                told.append(f"{files.log} @ {damage.place.position}: {damage.kind.value}: {damage.detail}")
        return told

    def close(self) -> None:
        """Close what is open."""
        if self._open is not None:
            self._open[1].close()
            self._open = None
