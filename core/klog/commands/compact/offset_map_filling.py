"""The first pass of a round: maps each key of the dirty section to its last offset, until the map is full.

`OffsetMapping.fill`

1. empties the map, and adds the aborted transactions of the dirty section, from the transaction indexes;
2. reads the dirty segments window by window, with checksums, from the first one's start (a broker: from its index);
3. skips aborted data and markers, decodes the other batches from the first dirty offset on, and puts each key with its
   offset into the map;
4. ends a segment at the base offset of the next one, to cover a gap between them;
5. stops when the map is full: the round then covers the offsets up to the last batch that is completely in the map.

Kafka: Cleaner.buildOffsetMap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from klog.base.read_only import ReadOnlyFile
from klog.change.partition_plan.strict_reader import Advance, StrictReader, no_progress
from klog.commands.compact.cleaned_segments import REFUSED, CleanedTransactions, SourceSegment, aborted_between, between
from klog.formats.batch import CONTROL_BIT
from klog.kernel import OffsetMap, Window
from klog.log.index import position_of_offset
from klog.log.records import BatchRun, Codecs, decode_run
from klog.partition.transactions.markers import read_marker


class MappedRange(NamedTuple):
    """*next_dirty*: the first offset that the map does not cover.  *records*, *bytes*: that were looked at."""

    next_dirty: int
    is_full: bool
    records: int
    bytes: int


class OffsetMapping:
    """Fills *offsets* from the log's *segments*, *start* up to *end*, *log_start* being the first offset that counts.

    *by_index*: begin at the position in the offset index, as a broker does, and not with the segment: an aborted
    transaction that has ended before is then taken for one that continues, and its producer's records are missing in
    the map.
    """

    def __init__(
        self, offsets: OffsetMap, codecs: Codecs, advance: Advance = no_progress, *, by_index: bool = False
    ) -> None:
        self._offsets, self._codecs, self._by_index = offsets, codecs, by_index
        self._advance, self._transactions = advance, CleanedTransactions()
        self._window = Window(output=0)
        self._start = self._records = self._bytes = 0

    def fill(
        self, segments: Sequence[SourceSegment], log_start: int, start: int, end: int, part: int = 0, parts: int = 1
    ) -> MappedRange:
        """Return the mapped range.  Raises DamagedError, UnreadableError.

        Only *part* of *parts* of all keys, by their digests, are put into the map; it ignores the others.
        """
        self._offsets.clear(start, part, parts)
        self._start, self._transactions = start, CleanedTransactions()
        self._records = self._bytes = 0
        dirty = between(segments, start, end)
        self._transactions.add(aborted_between(segments, log_start, start, end))
        for segment, following in zip(dirty, [*(one.base for one in dirty[1:]), end], strict=True):
            if self._fill_from(segment):
                return MappedRange(self._offsets.latest + 1, True, self._records, self._bytes)
            self._offsets.latest = following - 1  # a gap at the end of a segment is behind the map as well
        return MappedRange(self._offsets.latest + 1, False, self._records, self._bytes)

    def _fill_from(self, segment: SourceSegment) -> bool:
        """Whether the map was full before the segment was at its end."""
        with ReadOnlyFile(segment.path) as log:
            position = 0
            if self._by_index and self._start > segment.base:
                index = f"{segment.path.removesuffix('.log')}.index"
                position = position_of_offset(log, index, segment.base, self._start)
            walk = StrictReader(log, segment.path, segment.base, REFUSED, position, self._advance)
            while walk.next(self._window):
                if self._take(walk):
                    return True
            self._bytes += log.size - position
        return False

    def _take(self, walk: StrictReader) -> bool:
        """Take a window's batches; True when the map was full before their end."""
        window, count = self._window, self._window.count
        first = window.first_reaching(self._start)
        self._leave_out()
        for damage in decode_run(BatchRun(window, first, count), self._codecs, walk.path):
            if damage is not None:
                walk.refuse(damage)
            row = self._offsets.fill(window, 0, self._start)
            self._records += row
            if row < window.records:
                batch = window.record(row, False)[6]
                if batch:
                    self._offsets.latest = max(self._offsets.latest, window.batch(batch - 1).last_offset)
                return True
        if count and window.batch(count - 1).last_offset >= self._start:
            self._offsets.latest = window.batch(count - 1).last_offset
        return False

    def _leave_out(self) -> None:
        """Skip aborted data and markers, which have no part in the map."""
        window, at = self._window, 0
        while (at := self._transactions.take(window, at)) < window.count:
            facts = window.batch(at)
            if facts.attributes & CONTROL_BIT:
                self._transactions.control(facts.producer_id, facts.last_offset, read_marker(window, at))
                window.skip(at)
            elif self._transactions.data(facts.producer_id, facts.last_offset).discardable:
                window.skip(at)
            at += 1
