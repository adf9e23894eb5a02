"""The batches of a segment that are kept or dropped so far, and how to take back the last decision."""

from __future__ import annotations

from collections import deque

from klog.base.read_only import ReadOnlyFile
from klog.change.partition_plan.contents import PatchedLog
from klog.commands.recover.kept_ranges import FreeOffsets, KeptRanges, SegmentPart, base_of, batches
from klog.formats.batch import BatchFacts
from klog.kernel import Window
from klog.log.bit_flips import Patch
from klog.log.segment import MAX_RELATIVE_OFFSET
from klog.partition.repair.partition_survey import OrderedLog
from klog.partition.repair.recover_outcome import (
    MOST_LEFT,
    MOST_STRETCHES,
    NEIGHBOURS,
    DroppedBatches,
    DroppedRange,
    records_in,
)

MOST_PARTS = 10_000
"""A log that would have to become more segments than this is kept up to there: no broker wrote that."""
_WALKS = 64
"""How often a stretch is searched from its start; a log that needs more is a hostile one."""


class KeptBatches:
    """Batches that are kept, each with offsets above those of the one before, all of them free.

    *parts*: the segments for them, the log's own first, which may be empty; each later one begins with a batch whose
    offsets the one before cannot hold, or that belongs behind another log.  *patches*: by position, which ascends.
    *unsure*: those that are not made, because chance would produce them too often.
    """

    def __init__(self, base_offset: int, free: FreeOffsets, source: ReadOnlyFile | None) -> None:
        self.kept, self.dropped = KeptRanges(), DroppedBatches()
        self.batches = self.records = 0
        self.patches: dict[int, Patch] = {}
        self.unsure: list[Patch] = []
        self.left: list[DroppedRange] = []
        self.tail: deque[BatchFacts] = deque(maxlen=NEIGHBOURS)
        self.parts = [SegmentPart(0, base_offset)]
        self._base, self._free, self._source = base_offset, free, source
        self._end = source.size if source is not None else 0
        self._walks, self._epoch = _WALKS, -1

    @classmethod
    def whole(cls, base_offset: int, log: OrderedLog) -> KeptBatches:
        """Return all batches of an ordered log, which is complete: nothing can be kept behind them."""
        found = cls(base_offset, FreeOffsets(), None)
        if log.batches:
            found.kept.add(0, log.size, log.first_offset, log.last_offset)
        found.batches, found.records, found._epoch = log.batches, log.records, log.epoch
        return found

    @property
    def last_offset(self) -> int:
        """The last offset that is kept; one less than the segment's base if there is none."""
        return self.kept.lasts[-1] if self.kept else self._base - 1

    @property
    def epoch(self) -> int:
        """The leader epoch of the last batch that is kept; -1: none, or not known."""
        return self.tail[-1].leader_epoch if self.tail else self._epoch

    @property
    def ceiling(self) -> int:
        """The last offset that can follow in the same segment."""
        return min(self._free.limit(self.last_offset) - 1, self.parts[-1].base + MAX_RELATIVE_OFFSET)

    def comes_behind(self, facts: BatchFacts) -> bool:
        """Whether a batch has its place behind all that is kept, if need be in a segment of its own."""
        return self.last_offset < facts.base_offset <= facts.last_offset and self._free.holds(facts)

    def agrees(self, facts: BatchFacts) -> bool:
        """Whether a batch has a leader epoch that can follow."""
        return facts.leader_epoch >= self.epoch or facts.leader_epoch == -1

    def fits(self, facts: BatchFacts) -> bool:
        """Whether a batch can follow all that is kept, in the same segment."""
        follows = self.last_offset < facts.base_offset <= facts.last_offset <= self.ceiling
        return follows and self.agrees(facts)

    def keep_rows(self, window: Window, first: int, end: int, records: int) -> None:
        """Keep batches *first* to *end* of a window, which fit and have so many *records*."""
        start, last = window.batch(first), window.batch(end - 1)
        if self._is_full(start.position):
            return
        self.kept.add(start.position, last.position + last.size, start.base_offset, last.last_offset)
        self.batches += end - first
        self.records += records
        self.tail.extend(window.batch(i) for i in range(max(first, end - NEIGHBOURS), end))

    def keep(self, facts: BatchFacts, patch: Patch | None = None) -> None:
        """Keep a batch that has its place behind all that is kept, once *patch* is made."""
        is_apart = facts.last_offset > self.ceiling
        if self._is_full(facts.position, is_apart):
            return
        if patch is not None:
            self.patches[patch.position] = patch
        if is_apart:
            assert self._source is not None
            base = base_of(self._source, self.patches.values(), facts, self.last_offset)
            self.parts.append(SegmentPart(facts.position, base, self.epoch))
        self.kept.add(
            facts.position, facts.position + facts.size, facts.base_offset, facts.last_offset, apart=is_apart
        )  # fmt: skip
        self.batches += 1
        self.records += records_in(facts)
        self.tail.append(facts)

    def _is_full(self, start: int, is_apart: bool = False) -> bool:
        if len(self.parts) >= MOST_PARTS and is_apart:
            self.leave(start, self._end, "more-damage", f"behind offsets for {MOST_PARTS} segments")
            return True
        if len(self.kept) < MOST_STRETCHES or (self.kept.continues(start) and not is_apart):
            return False
        self.leave(start, self._end, "more-damage", f"behind {MOST_STRETCHES} damaged places")
        return True

    def unkeep(self) -> BatchFacts:
        """Take back the last batch."""
        last = self.tail.pop()
        self.kept.cut_back(last.position, self.tail[-1].last_offset if self.tail else self._base - 1)
        self.batches -= 1
        self.records -= records_in(last)
        self._forget(last.position)
        return last

    def _forget(self, position: int) -> None:
        """Take back the repairs from byte *position* on, and the segments that began there."""
        while self.is_patched_from(position):
            self.patches.popitem()
        while len(self.parts) > 1 and self.parts[-1].position >= position:
            self.parts.pop()

    def is_patched_from(self, position: int) -> bool:
        """Whether there are patches from byte *position* on; they are sorted by position."""
        return bool(self.patches) and next(reversed(self.patches)) >= position

    # the dropped part

    def leave(self, start: int, end: int, reason: str, detail: str, batch: BatchFacts | None = None) -> None:
        """Drop bytes; *batch*: the batch that they are, if its checksum matches."""
        joins = bool(self.left) and (
            (batch is not None and self.left[-1].end == start and self.left[-1].reason == reason)
            or len(self.left) > MOST_LEFT
        )
        if joins:
            self.left[-1].end = max(end, self.left[-1].end)
        elif len(self.left) == MOST_LEFT:
            self.left.append(DroppedRange(start, end, "more-damage", "more damaged places from here on"))
        else:
            self.left.append(DroppedRange(start, end, reason, detail))
        if batch is not None:
            self.left[-1].batches += 1
            self.left[-1].records += records_in(batch)
            self.dropped.add(batch, len(self.left) - 1)

    def drop(self, facts: BatchFacts, reason: str, detail: str) -> None:
        """Drop a batch whose checksum matches."""
        self.leave(facts.position, facts.position + facts.size, reason, detail, facts)

    # the same offsets twice

    def displace(self, source: ReadOnlyFile, newer: BatchFacts) -> bool:
        """Take back all that is kept from the first offset of *newer* on; False when that was done too often."""
        if self._walks <= 0:
            return False
        self._walks -= 1
        stretch = max(self.kept.stretch_of(newer.base_offset), 0)
        detail = f"replaced from offset {newer.base_offset} on by leader epoch {newer.leader_epoch}"
        found, tail = -1, list[BatchFacts]()
        log = PatchedLog(source, self.patches.values())
        for start, end in list(self.kept.pairs())[stretch:]:
            for window in batches(log, start, end):
                first = window.first_reaching(newer.base_offset)
                if found < 0 and first:
                    tail = [window.batch(first - 1)]
                for i in range(first, window.count):
                    facts = window.batch(i)
                    found = facts.position if found < 0 else found
                    self.batches -= 1
                    self.records -= records_in(facts)
                    self.drop(facts, "offsets-backwards", detail)
        if found < 0:
            return False
        self.kept.cut_back(found, tail[-1].last_offset if tail else newer.base_offset - 1)
        self._forget(found)
        self.tail.clear()
        self.tail.extend(tail)
        return True

    def beginning_at(self, source: ReadOnlyFile, offset: int) -> BatchFacts | None:
        """Return the kept batch with base offset *offset*; None: there is none, or the limit of searches is reached."""
        self._walks -= 1
        stretch = self.kept.stretch_of(offset)
        if stretch < 0 or self._walks < 0:
            return None
        log = PatchedLog(source, self.patches.values())
        for window in batches(log, self.kept.starts[stretch], self.kept.ends[stretch]):
            i = window.first_reaching(offset)
            if i < window.count:
                found = window.batch(i)
                return found if found.base_offset == offset else None
        return None

    @property
    def is_searched_out(self) -> bool:
        """Whether `beginning_at` has reached its limit of searches."""
        return self._walks <= 0
