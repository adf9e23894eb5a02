"""Index files, for finding where to start reading.

An index is believed only as far as the log confirms it: a wrong one makes reading start earlier, never later.
"""

from __future__ import annotations

from klog.errors import KlogError
from klog.files.read_only import ReadableLog, ReadOnlyFile
from klog.formats.batch import BATCH
from klog.formats.header import Header, read_header
from klog.formats.index import OFFSET_ENTRY, TIME_ENTRY
from klog.formats.layout import Layout

_MOST_STEPS = 2000


class Entries:
    """The entries of an index file that are in use, read one at a time."""

    def __init__(self, source: ReadOnlyFile, layout: Layout, key: int) -> None:
        self._source = source
        self._layout = layout
        self._key = key
        self.count = self._without_zeros(source.size // layout.size)

    def _without_zeros(self, slots: int) -> int:
        """Return how many slots come before a tail of zeros: a preallocated index ends in them."""
        if slots == 0 or any(self[slots - 1]):
            return slots
        low, high = 0, slots - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if any(self[middle]) else (low, middle)
        return low

    def __getitem__(self, slot: int) -> tuple[int, ...]:
        data = self._source.read(slot * self._layout.size, self._layout.size)
        return self._layout.read(data) if len(data) == self._layout.size else (0,) * len(self._layout.names)

    def last_at_most(self, wanted: int) -> int:
        """Return the slot of the greatest key not above *wanted*, -1 if there is none."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self[middle][self._key] <= wanted else (low, middle)
        return low - 1


def position_of_offset(log: ReadableLog, index: str, base_offset: int, offset: int) -> int:
    """Return the position of a batch at or before the one that holds *offset*; 0 when the index does not help."""
    try:
        with ReadOnlyFile(index) as source:
            entries = Entries(source, OFFSET_ENTRY, 0)
            slot = entries.last_at_most(offset - base_offset)
            if slot < 0:
                return 0
            relative, position = entries[slot]
            before = entries[slot - 1][1] if slot else 0
    except KlogError:
        return 0
    header = header_at(log, position)
    # a batch that begins after the entry's offset would have the search start behind what is sought
    fits = header is not None and base_offset <= header.base_offset <= base_offset + relative and relative > 0
    return position if fits and _leads_to(log, before, position) else 0


def _leads_to(log: ReadableLog, start: int, position: int) -> bool:
    """Whether a walk from header to header from *start* on comes by *position*, or has not passed it after many steps.

    A log that is stored in another log's messages has headers too.
    """
    for _ in range(_MOST_STEPS):
        if start >= position:
            break
        header = header_at(log, start)
        if header is None:
            return False
        start += header.size
    return start <= position


def position_by_time(log: ReadableLog, index: str, time_index: str, base_offset: int, timestamp: int) -> int:
    """Return a position before which no record is as young as *timestamp* (ms); 0 when the indexes do not help."""
    try:
        with ReadOnlyFile(time_index) as source:
            entries = Entries(source, TIME_ENTRY, 0)
            slot = entries.last_at_most(timestamp - 1)
            if slot < 0:
                return 0
            entry = entries[slot]
    except KlogError:
        return 0
    position = position_of_offset(log, index, base_offset, base_offset + entry[1])
    header = header_at(log, position)
    while header is not None and header.last_offset < base_offset + entry[1]:
        position += header.size
        header = header_at(log, position)
    confirmed = header is not None and header.max_timestamp == entry[0] and header.base_offset <= base_offset + entry[1]
    return position if confirmed else 0


def last_timestamp(time_index: str) -> int | None:
    """Return the timestamp (ms) of the last entry of a time index, None when it has none.

    Nothing is held against the log.  Raises UnreadableError.  Kafka: TimeIndex.lastEntry.
    """
    with ReadOnlyFile(time_index) as source:
        entries = Entries(source, TIME_ENTRY, 0)
        return entries[entries.count - 1][0] if entries.count else None


def header_at(log: ReadableLog, position: int) -> Header | None:
    """Return the header of the entry at *position*, None where none can be."""
    if not 0 <= position < log.size:
        return None
    data = log.read(position, BATCH.size)
    left = log.size - position if len(data) == BATCH.size else len(data)
    header = read_header(data, 0, position, left)
    return header if isinstance(header, Header) else None
