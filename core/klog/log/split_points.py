"""Positions that split a log so that both parts read as the whole does: between two intact batches.

A cut inside a batch would lose and repeat records at once, since the value of a record may contain the image of a
batch.  The index therefore only proposes a cut. A stretch before it, longer than any batch has to be, is walked,
checksums included; a log without a usable index entry is walked from the last cut on.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from klog.base.read_only import ReadableLog, ReadOnlyFile
from klog.formats.index import OFFSET_ENTRY
from klog.kernel import Window
from klog.log.header_walk import header_at
from klog.log.index import IndexEntries
from klog.log.reader import REACH_BYTES, LogReader
from klog.log.records import OffsetRange
from klog.log.windows import read_window

CONFIRM_BYTES = REACH_BYTES
"""The length of the walk before a cut: a reader follows the size of a broken batch that far, and the batch then ends
before the cut. It is four times the default size limit of a batch in a broker.

An index with only wrong entries could still mislead inside a larger batch; the reader that reaches it notices.
"""

_MOST_BYTES = 8 << 20
_INDEX_PAYS = 2  # parts of so many times CONFIRM_BYTES; smaller ones are found sooner by reading the log
_TRIES = 4
_POSITION = OFFSET_ENTRY.names.index("position")


class SplitPoint(NamedTuple):
    """A batch begins at *position* (bytes), with *offset*: the batch's base offset, or a wrapper's last one."""

    position: int
    offset: int


class SplitPoints:
    """The cuts of an open log.  *index*: its offset index, open too, None without one.  Offsets lie within *span*."""

    def __init__(self, log: ReadableLog, index: ReadOnlyFile | None, span: OffsetRange) -> None:
        self._log = log
        self._entries = IndexEntries(index, OFFSET_ENTRY) if index else None
        self._span = span

    @cached_property
    def _window(self) -> Window:
        return Window(CONFIRM_BYTES, 1, 1)

    def between(self, start: int, end: int, part_bytes: int) -> Iterator[SplitPoint]:
        """Yield cuts, positions ascending, that make about even parts of at most *part_bytes* of *start* to *end*.

        *start* must be the first byte of a batch.  A large batch, or damage, makes a part larger.  Raises
        UnreadableError where the log cannot be read.
        """
        parts = -(-(end - start) // part_bytes)
        step = -(-(end - start) // max(parts, 1))
        at = start
        while (target := at + step) < end - step // 4:
            by_index = self._by_index(target) if step >= _INDEX_PAYS * CONFIRM_BYTES else None
            cut = by_index or self._by_walk(at, target)
            if cut is None or cut.position >= end:
                return
            yield cut
            at = cut.position

    def is_boundary(self, position: int) -> bool:
        """Whether an intact batch begins at *position*, behind intact ones."""
        return self._confirmed(position) is not None

    def _by_index(self, target: int) -> SplitPoint | None:
        """Return the first cut at or after *target* that the index proposes and the log confirms."""
        entries = self._entries
        if entries is None:
            return None
        first = entries.search(target - 1, _POSITION).slot + 1
        for slot in range(first, min(first + _TRIES, entries.count)):
            position = entries[slot][1]
            if position >= target and (cut := self._confirmed(position)):
                return cut
        return None

    def _confirmed(self, position: int) -> SplitPoint | None:
        """Return the cut at *position*, None unless a walk over intact batches leads there."""
        log, window = self._log, self._window
        header = header_at(log, position)
        if header is None:
            return None
        start, size = self._before(position), header.size
        if position + size - start > _MOST_BYTES:
            return None
        try:
            read_window(log, window, start, position + size - start)
        except OSError:
            return None
        window.scan(0)
        row = window.row_at(position - start)
        holds = row >= 0 and not window.check(0, row + 1)
        return SplitPoint(position, window.batch(row).base_offset) if holds else None

    def _before(self, position: int) -> int:
        """Return the position from which to walk to *position*: that of a batch in the index, or the log's start."""
        slot = self._entries.search(position - CONFIRM_BYTES, _POSITION).slot if self._entries else -1
        return max(self._entries[slot][1], 0) if self._entries and slot >= 0 else 0

    def _by_walk(self, start: int, target: int) -> SplitPoint | None:
        """Return the first cut at or after *target*, by a walk from the batch at *start* on; None at the end."""
        window, log = self._window, self._log
        reader = LogReader(log, start, min_offset=self._span.min_offset, max_offset=self._span.max_offset)
        joined = False  # the window's first batch follows an intact one
        while piece := reader.next(window):
            first = max(0 if joined else 1, bisect_left(range(window.count), target - window.position, key=window.at))
            for row in range(first, window.count):
                if not window.check(max(row - 1, 0), row + 1):
                    return SplitPoint(window.position + window.at(row), window.batch(row).base_offset)
            joined = piece.damage is None
        return None
