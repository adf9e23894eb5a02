"""Which offsets the segments of a log leave free, and the base offset of a segment for misplaced batches."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from klog.base.errors import UnreadableError
from klog.base.read_only import ReadOnlyFile
from klog.change.partition_plan.spliced import PatchedLog
from klog.formats.batch import Attributes, BatchFacts
from klog.formats.java_integers import LONG_MAX, LONG_MIN
from klog.log.bit_flips import Patch
from klog.log.segment import MAX_RELATIVE_OFFSET
from klog.log.windows import window_of
from klog.partition.start.segment_recovery import first_offset
from klog.partition.start.start_files import FailsError

_MOST_ASKED = 1000


class SegmentPart(NamedTuple):
    """A segment that what is kept of a log goes into from byte *position* on: its base offset.

    *epoch*: the leader epoch of what is kept before it; -1: none, or not known.
    """

    position: int
    base: int
    epoch: int = -1


class FreeOffsets:
    """The offsets that are not taken; what is taken does not overlap."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._epochs: list[int] = []

    def take(self, first: int, last: int, epoch: int) -> None:
        """Let a segment have the offsets from *first* to *last*, which are free, of which the last has *epoch*."""
        at = bisect_right(self._firsts, first)
        for numbers, value in ((self._firsts, first), (self._lasts, last), (self._epochs, epoch)):
            numbers.insert(at, value)

    def take_parts(self, parts: list[SegmentPart], lasts: list[int], epoch: int) -> None:
        """Let all segments that a log becomes have theirs; *lasts*: what each ends with, *epoch*: of the very last."""
        epochs = [*(after.epoch for _, after in pairwise(parts)), epoch]
        for part, last, one in zip(parts, lasts, epochs, strict=True):
            if last >= part.base:
                self.take(part.base, last, one)

    def limit(self, offset: int) -> int:
        """Return the first offset above *offset*, which is free, that is taken; LONG_MAX if there is none."""
        return self._first_above(offset)

    def _first_above(self, offset: int) -> int:
        at = bisect_right(self._firsts, offset)
        return self._firsts[at] if at < len(self._firsts) else LONG_MAX

    def holds(self, facts: BatchFacts) -> bool:
        """Whether a batch's offsets are free, and no later leader wrote what is before them."""
        at = bisect_right(self._firsts, facts.base_offset) - 1
        if facts.last_offset >= self._first_above(facts.base_offset):
            return False
        if at < 0:
            return True
        return self._lasts[at] < facts.base_offset and not 0 <= facts.leader_epoch < self._epochs[at]


class AssumedOffsets(FreeOffsets):
    """The offsets that later segments probably leave, before anybody has looked at these: none from *next_base* to
    *last_offset*; LONG_MAX as *next_base*: there are no later segments.

    Notes what it is asked beyond *next_base*, so that the answers can be compared with the right ones.
    """

    def __init__(self, next_base: int, last_offset: int) -> None:
        super().__init__()
        self._next_base = next_base
        if next_base < LONG_MAX:
            self.take(next_base, last_offset, -1)
        self._limits: dict[int, int] = {}
        self._held: list[tuple[BatchFacts, bool]] = []
        self._is_full = False

    def limit(self, offset: int) -> int:
        """Return what the base class does, as far as one knows."""
        found = super().limit(offset)
        if offset >= self._next_base and not self._is_full:
            self._limits[offset] = found
            self._is_full = len(self._limits) >= _MOST_ASKED
        return found

    def holds(self, facts: BatchFacts) -> bool:
        """Return what the base class does, as far as one knows."""
        found = super().holds(facts)
        if max(facts.base_offset, facts.last_offset) >= self._next_base and not self._is_full:
            self._held.append((facts, found))
            self._is_full = len(self._held) >= _MOST_ASKED
        return found

    def agrees(self, free: FreeOffsets) -> bool:
        """Whether *free* gives all the answers that this has given."""
        if self._is_full or free.limit(LONG_MIN) != self._next_base:
            return False
        return all(free.limit(offset) == found for offset, found in self._limits.items()) and all(
            free.holds(facts) == found for facts, found in self._held
        )


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
