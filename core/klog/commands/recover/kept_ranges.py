"""The kept ranges of a log, a walk over their batches, and the offsets that its segments leave free."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

from klog.base.errors import UnreadableError
from klog.base.read_only import ReadableLog, ReadOnlyFile
from klog.change.partition_plan.contents import PatchedLog
from klog.formats.batch import Attributes, BatchFacts
from klog.formats.java_integers import LONG_MAX
from klog.kernel import Window
from klog.log.bit_flips import Patch
from klog.log.header_walk import window_of
from klog.log.reader import LogReader
from klog.log.segment import MAX_RELATIVE_OFFSET
from klog.partition.start.segment_recovery import first_offset
from klog.partition.start.start_files import FailsError


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


class SegmentPart(NamedTuple):
    """A segment for the kept part of a log from byte *position* on: its base offset.

    *epoch*: the leader epoch of the kept part before it; -1: none, or unknown.
    """

    position: int
    base: int
    epoch: int = -1


class FreeOffsets:
    """The free offsets; taken ranges do not overlap."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._epochs: list[int] = []

    def take(self, first: int, last: int, epoch: int) -> None:
        """Assign the offsets from *first* to *last*, which are free, to a segment; the last one has *epoch*."""
        at = bisect_right(self._firsts, first)
        for numbers, value in ((self._firsts, first), (self._lasts, last), (self._epochs, epoch)):
            numbers.insert(at, value)

    def take_parts(self, parts: list[SegmentPart], lasts: list[int], epoch: int) -> None:
        """Assign the offsets of a log's new segments; *lasts*: the last offset of each, *epoch*: of the very last."""
        epochs = [*(after.epoch for _, after in pairwise(parts)), epoch]
        for part, last, one in zip(parts, lasts, epochs, strict=True):
            if last >= part.base:
                self.take(part.base, last, one)

    def limit(self, offset: int) -> int:
        """Return the first offset above *offset*, which is free, that is taken; LONG_MAX if there is none."""
        at = bisect_right(self._firsts, offset)
        return self._firsts[at] if at < len(self._firsts) else LONG_MAX

    def holds(self, facts: BatchFacts) -> bool:
        """Whether a batch's offsets are free, and no later leader wrote the batches before them."""
        at = bisect_right(self._firsts, facts.base_offset) - 1
        if facts.last_offset >= self.limit(facts.base_offset):
            return False
        if at < 0:
            return True
        return self._lasts[at] < facts.base_offset and not 0 <= facts.leader_epoch < self._epochs[at]


def base_of(source: ReadOnlyFile, patches: Iterable[Patch], facts: BatchFacts, last_offset: int) -> int:
    """Return the base offset of a segment that begins with a batch, behind *last_offset*: that of its first record.

    *source*: the batch's log; *patches*: the repairs of it.

    Wrappers of old have only their last offset in the header; where they cannot be decompressed, that is it.
    Kafka: RecordBatch.baseOffset, LocalLog.splitOverflowedSegment.
    """
    if facts.magic >= 2 or not facts.attributes & Attributes.CODEC:
        return facts.base_offset
    try:
        window = window_of(PatchedLog(source, patches).read(facts.position, facts.size), facts.position)
        window.scan(0)
        first = first_offset(window, 0, source.path)
    except (FailsError, UnreadableError):
        return facts.base_offset
    return min(max(first, last_offset + 1, facts.last_offset - MAX_RELATIVE_OFFSET), facts.base_offset)
