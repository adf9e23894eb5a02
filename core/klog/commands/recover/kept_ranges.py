"""The kept ranges of a log, and a walk over their batches."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from klog.base.read_only import ReadableLog
from klog.kernel import Window
from klog.log.reader import LogReader


class KeptGap(NamedTuple):
    """Bytes of a log that are not kept, with the last offset before and the first offset behind them; None: none is."""

    start: int
    end: int
    before: int | None
    after: int | None


class KeptRanges:
    """Stretches of a log, ascending, each of whole batches one after another; offsets ascend throughout.

    Four numbers for each, and nothing for a batch: a log has millions of those, but few places that are damaged.
    """

    def __init__(self) -> None:
        self.starts, self.ends = array("q"), array("q")
        self.firsts, self.lasts = array("q"), array("q")

    def __len__(self) -> int:
        return len(self.starts)

    def continues(self, start: int) -> bool:
        """Whether byte *start* is where the last range ends."""
        return bool(self.ends) and self.ends[-1] == start

    def add(self, start: int, end: int, first_offset: int, last_offset: int, *, apart: bool = False) -> None:
        """Take the bytes from *start* to *end*, with their first and last offset, behind all that is kept.

        *apart*: as a stretch of their own, even if they go on where the last one ends.
        """
        if self.continues(start) and not apart:
            self.ends[-1], self.lasts[-1] = end, last_offset
            return
        for numbers, value in zip(self._all, (start, end, first_offset, last_offset), strict=True):
            numbers.append(value)

    def cut_back(self, position: int, last_offset: int) -> None:
        """Forget everything from byte *position* on, where a batch begins; *last_offset*: the last one before it."""
        while self.starts and self.starts[-1] >= position:
            for numbers in self._all:
                numbers.pop()
        if self.ends and self.ends[-1] > position:
            self.ends[-1], self.lasts[-1] = position, last_offset

    @property
    def _all(self) -> tuple[array[int], ...]:
        return self.starts, self.ends, self.firsts, self.lasts

    def between(self, start: int, end: int) -> KeptRanges:
        """Return the stretches that begin from byte *start* on and before byte *end*."""
        found, at, behind = KeptRanges(), bisect_left(self.starts, start), bisect_left(self.starts, end)
        for numbers, mine in zip(found._all, self._all, strict=True):
            numbers.extend(mine[at:behind])
        return found

    @property
    def bytes(self) -> int:
        """How many bytes are kept."""
        return sum(self.ends) - sum(self.starts)

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yield start and end of each stretch."""
        return zip(self.starts, self.ends, strict=True)

    def gaps(self, size: int) -> Iterator[KeptGap]:
        """Yield the dropped ranges of a log of *size* bytes."""
        position, before = 0, None
        for start, end, first, last in zip(*self._all, strict=True):
            if start > position:
                yield KeptGap(position, start, before, first)
            position, before = end, last
        if position < size:
            yield KeptGap(position, size, before, None)

    def stretch_of(self, offset: int) -> int:
        """Return the number of the last stretch that begins at *offset* or before; -1 if there is none."""
        return bisect_right(self.firsts, offset) - 1


def batches(source: ReadableLog, start: int, end: int) -> Iterator[Window]:
    """Yield windows of the batches from byte *start* to byte *end*, all of which are kept.

    It is always the same window.  An unreadable part ends the walk.
    """
    reader, window = LogReader(source, start, end, like_kafka=True), Window(1, 1, 1)
    with suppress(OSError):
        while reader.next(window) is not None:
            if window.count:
                yield window
