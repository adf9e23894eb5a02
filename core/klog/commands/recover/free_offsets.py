"""The offsets that the segments of a log leave free, and the base offset of a segment for misplaced batches."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from klog.base.errors import UnreadableError
from klog.base.read_only import ReadOnlyFile
from klog.change.partition_plan.spliced import PatchedLog
from klog.formats.batch import Attributes, BatchFacts
from klog.formats.java_integers import LONG_MAX
from klog.log.bit_flips import Patch
from klog.log.segment import MAX_RELATIVE_OFFSET
from klog.log.windows import window_of
from klog.partition.start.segment_recovery import first_offset
from klog.partition.start.start_files import FailsError


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
