"""The entries of an index file, and the search a broker makes among them.

Kafka: AbstractIndex.indexSlotRangeFor, OffsetIndex.lookup, TimeIndex.lookup.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from klog.errors import KlogError
from klog.files.read_only import ReadOnlyFile
from klog.formats.index import OFFSET_ENTRY, TIME_ENTRY
from klog.formats.layout import Layout

WARM_BYTES: Final = 8192
"""As much of an index's end as a broker keeps warm: searches begin there."""

_LOAD_AFTER = 64


class Slot(NamedTuple):
    """Where a search ended: *slot* is -1 when every key is above what was sought."""

    slot: int
    probes: int
    warm_from: int | None


class Entries:
    """An index file's entries in use: those in front of the zeros of a preallocated file, or of leftovers.

    *problem* says what is wrong with the file as a whole, None for nothing.  A file that is asked often is read whole.
    """

    def __init__(self, path: str, layout: Layout, in_use: Callable[[tuple[int, ...]], bool]) -> None:
        self._layout = layout
        self._columns: tuple[tuple[int, ...], ...] | None = None
        self._gap: int | None = None
        self._source: ReadOnlyFile | None = None
        self._searches = 0
        self.slots = self.count = 0
        self.problem: str | None = None
        try:
            self._source = ReadOnlyFile(path)
        except KlogError as error:
            self.problem = str(error)
            return
        self.slots = self.count = self._source.size // layout.size
        if self._source.size % layout.size:
            self.problem = f"its size of {self._source.size} bytes is no multiple of {layout.size}"
        if self.slots and not in_use(self[self.slots - 1]):
            self.count = self._before_rest(in_use)

    def _before_rest(self, in_use: Callable[[tuple[int, ...]], bool]) -> int:
        low, high = 0, self.slots - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if in_use(self[middle]) else (low, middle)
        return low

    def __getitem__(self, slot: int) -> tuple[int, ...]:
        """Return the values of an entry; zeros when it cannot be read."""
        if self._columns is not None:
            return self._columns[0][slot], self._columns[1][slot]
        try:
            assert self._source is not None
            data = self._source.read(slot * self._layout.size, self._layout.size)
            if len(data) == self._layout.size:
                return self._layout.read(data)
        except KlogError as error:
            self.problem = str(error)
        return (0,) * len(self._layout.names)

    def _load(self) -> None:
        try:
            assert self._source is not None
            data = self._source.read(0, self.slots * self._layout.size)
        except KlogError as error:
            self.problem = str(error)
            return
        if len(data) == self.slots * self._layout.size and data:
            self._columns = tuple(zip(*self._layout.read_all(data), strict=True))

    def floor(self, target: int) -> Slot:
        """Return the slot of the greatest key not above *target*, as a broker searches for it: the warm end first."""
        self._searches += 1
        if self._searches == _LOAD_AFTER:
            self._load()
        if not self.count:
            return Slot(-1, 0, None)
        keys = self._columns[0] if self._columns is not None else _Keys(self)
        low, high, probes = 0, self.count - 1, 1
        warm = max(0, high - WARM_BYTES // self._layout.size)
        is_warm = keys[warm] < target
        if is_warm:
            low = warm
        else:
            probes += 1
            if keys[0] > target:
                return Slot(-1, probes, None if warm else 0)
            high = warm
        while low < high:
            middle = (low + high + 1) // 2
            probes += 1
            found = keys[middle]
            if found == target:
                low = middle
                break
            low, high = (low, middle - 1) if found > target else (middle, high)
        return Slot(low, probes, warm if is_warm or not warm else None)

    def largest_gap(self) -> int:
        """Return the largest difference between the values of neighbouring entries, from 0 on."""
        if self._gap is None:
            self._load()
            self._gap = before = 0
            for slot in range(self.count):
                here = self[slot][1]
                self._gap, before = max(self._gap, here - before), here
        return self._gap

    def close(self) -> None:
        """Close the file."""
        if self._source is not None:
            self._source.close()


class _Keys:
    """The keys of entries that are read one by one."""

    def __init__(self, entries: Entries) -> None:
        self._entries = entries

    def __getitem__(self, slot: int) -> int:
        return self._entries[slot][0]


def offset_entries(path: str, log_bytes: int) -> Entries:
    """Return the entries of an `.index` that can be about a log of so many bytes."""
    return Entries(path, OFFSET_ENTRY, lambda entry: entry[0] > 0 and 0 < entry[1] < log_bytes)


def time_entries(path: str) -> Entries:
    """Return the entries of a `.timeindex`.  One of zeros ends them, unless there is no other."""
    entries = Entries(path, TIME_ENTRY, any)
    if entries.slots == 1:
        entries.count = 1
    return entries
