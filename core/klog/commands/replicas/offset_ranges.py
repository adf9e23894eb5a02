"""Offsets as ranges: a loss may be thousands of records and few ranges."""

from __future__ import annotations


class OffsetRanges:
    """Ascending offsets; *ranges* are [first, last], inclusive, and *count* is how many records were added."""

    def __init__(self) -> None:
        self.count = 0
        self.ranges: list[tuple[int, int]] = []

    def add(self, first: int, last: int, records: int) -> None:
        """Add *records* from offset *first* to *last*; *first* is not below the range added last."""
        self.count += records
        if self.ranges and first <= self.ranges[-1][1] + 1:
            begins, ends = self.ranges[-1]
            self.ranges[-1] = begins, max(ends, last)
        else:
            self.ranges.append((first, last))
