"""The batches of a log as numbered rows, which are read when they are needed.

    rows = BatchRows("data/orders-3/00000000000000000000.log")
    rows.survey(lambda: False)
    rows[rows.row_of_offset(1844)]

A survey reads the log once and keeps the place of every 256th batch: 10 million batches take one MiB of memory.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator

from klog.base.read_only import ReadOnlyFile
from klog.formats.batch import BatchFacts
from klog.formats.damage import Damage
from klog.kernel import Window
from klog.log.records import BatchRun, intact_runs
from klog.log.segment import Segment

_STEP = 256
_MOST_PAGES = 8

Row = BatchFacts | Damage


class BatchRows:
    """The batches of the log at *path*, and the stretches that are no batches, as the survey has met them.

    A batch whose checksum does not match is a batch, as in `klog dump --batches`.

    One thread may survey while another one reads rows.  *passed*: bytes of the log that the survey has read.
    *damages*: the number of
    rows that are not intact batches.
    *is_complete*: whether it has reached the end.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.passed = self.damages = 0
        self.is_complete = False
        self._count = 0
        self._numbers, self._positions, self._offsets = array("q", [0]), array("q", [0]), array("q", [-1])
        self._pages: dict[int, list[Row]] = {}

    def __len__(self) -> int:
        return self._count

    def survey(self, is_cancelled: Callable[[], bool]) -> None:
        """Count the rows until the end of the log, or until *is_cancelled*.  Raises KlogError if it cannot be read."""
        number = 0
        for found in self._runs(0):
            if is_cancelled():
                return
            if isinstance(found, Damage):
                number += 1
                self.damages += 1
                self.passed = found.end
            else:
                count = found.end - found.first
                if found.damage is None:
                    for kept in range(max(self._numbers[-1] + _STEP, number), number + count, _STEP):
                        self._keep(kept, found.window.batch(found.first + kept - number))
                self.damages += found.damage is not None
                number += count
                last = found.window.batch(found.end - 1)
                self.passed = last.position + last.size
            self._count = number
        self.is_complete = True

    def _runs(self, position: int) -> Iterator[BatchRun | Damage]:
        """Yield runs of batches from a position on, and the stretches that are no batches; use one before the next."""
        segment, window = Segment(self.path), Window(output=0)
        with ReadOnlyFile(self.path) as source:
            reader = segment.reader(source, position)
            while piece := reader.next(window):
                yield from intact_runs(window, self.path, segment.span)
                if piece.damage:
                    yield piece.damage

    def _keep(self, number: int, batch: BatchFacts) -> None:
        self._offsets.append(batch.base_offset)
        self._positions.append(batch.position)
        self._numbers.append(number)

    def __getitem__(self, number: int) -> Row:
        """Return a row.  Raises IndexError if the log no longer has it, KlogError if it cannot be read."""
        if not 0 <= number < self._count:
            raise IndexError(number)
        page = bisect_right(self._numbers, number) - 1
        return self._page(page)[number - self._numbers[page]]

    def _page(self, page: int) -> list[Row]:
        is_last = page == len(self._numbers) - 1
        end = self._count if is_last else self._numbers[page + 1]
        wanted = end - self._numbers[page]
        found = self._pages.get(page)
        if found is None or len(found) < wanted:
            found = list(self._read(self._positions[page], wanted))
            if len(self._pages) >= _MOST_PAGES:
                self._pages.pop(next(iter(self._pages)))
            self._pages[page] = found
        return found

    def _read(self, position: int, count: int) -> Iterator[Row]:
        for found in self._runs(position):
            rows = [found] if isinstance(found, Damage) else map(found.window.batch, range(found.first, found.end))
            for row in rows:
                if count == 0:
                    return
                yield row
                count -= 1

    def row_of_offset(self, offset: int) -> int | None:
        """Return the number of the first batch that ends at *offset* or behind it; None if the survey has met none.

        Raises KlogError.
        """
        page = max(bisect_right(self._offsets, offset, hi=len(self._numbers)) - 1, 0)
        while page < len(self._numbers):
            for at, row in enumerate(self._page(page)):
                if isinstance(row, BatchFacts) and row.last_offset >= offset:
                    return self._numbers[page] + at
            page += 1
        return None
