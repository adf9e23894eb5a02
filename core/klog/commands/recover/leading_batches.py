"""The batches at the start of a segment, as long as each one follows the one before: a few numbers tell all of them."""

from __future__ import annotations

from collections import deque

from klog.commands.recover.dropped import NEIGHBOURS
from klog.kernel import Window, ascending_run
from klog.log.segment import MAX_RELATIVE_OFFSET


class LeadingBatches:
    """The batches at the start of a segment, as long as each one follows the one before.

    *end*: where they end, in bytes.  *epoch*: the leader epoch of the last one, -1 for none.  *recent*: start and end
    of runs with the last NEIGHBOURS of them, and how many batches these have.
    """

    def __init__(self, base: int, next_base: int) -> None:
        self.first_offset, self.last_offset, self.epoch = base, base - 1, -1
        self.batches = self.records = self.end = 0
        self.recent: deque[tuple[int, int, int]] = deque()
        self._ceiling = min(next_base - 1, base + MAX_RELATIVE_OFFSET)

    def take(self, window: Window, first: int, end: int) -> bool:
        """Take batches *first* to *end* of a window; False, and nothing is taken, if one of them does not follow."""
        if window.position + window.at(first) != self.end:
            return False
        good, records = ascending_run(window, first, end, self.last_offset, self.epoch, self._ceiling)
        if good < end:
            return False
        if not self.batches:
            self.first_offset = window.batch(first).base_offset
        last = window.batch(end - 1)
        self.last_offset, self.epoch, self.end = last.last_offset, last.leader_epoch, last.position + last.size
        self.batches += end - first
        self.records += records
        near = max(first, end - NEIGHBOURS)
        self.recent.append((window.position + window.at(near), self.end, end - near))
        while sum(count for _, _, count in self.recent) - self.recent[0][2] >= NEIGHBOURS:
            self.recent.popleft()
        return True
