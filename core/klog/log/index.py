"""Offset, time and transaction indexes: their entries, a broker's search in them, and positions to read the log from.

An index is believed only as far as the log confirms it: a wrong one makes reading start earlier, never later.
Kafka: AbstractIndex, OffsetIndex, TimeIndex, TransactionIndex.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from klog.base.closing import Closing
from klog.base.errors import KlogError, UnreadableError
from klog.base.overlays import overlay_file
from klog.base.read_only import ReadableLog, ReadOnlyFile
from klog.formats.damage import Damage
from klog.formats.index import ABORTED_TXN, OFFSET_ENTRY, TIME_ENTRY
from klog.formats.layout import Layout
from klog.log.header_walk import header_at, walk_headers, walk_windows

WARM_BYTES: Final = 8192
"""A broker keeps so many bytes at the end of an index warm in memory: searches begin there."""

_STEP_BYTES = 1 << 16
_LOAD_AFTER = 64
_PAGE_BYTES = 4096
"""A file of at most a page is read at once: a single entry would cost the same."""
_MOST_STEPS = 2000

InUse = Callable[[tuple[int, ...]], bool]


class IndexSlot(NamedTuple):
    """The result of a search: *slot* is -1 when every key is above the target.

    *probes*: the number of entries that were read.  *warm_from*: the first slot of the warm section, None when the
    search left that section.
    """

    slot: int
    probes: int
    warm_from: int | None


class IndexEntries(Closing):
    """The entries of an index file that are in use: those before the zeros of a preallocated file, or before leftovers.

    *slots*: the number of entries that fit into the file; *count* of them are in use, according to *in_use* (None:
    all).  No method raises: *unreadable* is the reason why the file cannot be read, and its entries are then zeros.
    *problem* is that reason, or an odd size; None without a problem.  A small file is read whole at once, a larger one
    after many searches.
    """

    def __init__(self, file: str | ReadableLog, layout: Layout, in_use: InUse | None = any) -> None:
        self._layout = layout
        self._columns: tuple[tuple[int, ...], ...] | None = None
        self._gap: int | None = None
        self._file: ReadableLog | None = None
        self._searches = 0
        self.size = self.slots = self.count = 0
        self.unreadable: KlogError | None = None
        self.problem: str | None = None
        try:
            self._file = ReadOnlyFile(file) if isinstance(file, str) else file
        except KlogError as error:
            self._failed(error)
            return
        self.size = self._file.size
        self.slots = self.count = self.size // layout.size
        if self.size <= _PAGE_BYTES:
            self.load()
        if self.size % layout.size:
            self.problem = f"its size of {self.size} bytes is not a multiple of {layout.size}"
        if in_use is not None and self.slots and not in_use(self[self.slots - 1]):
            self.count = self._before_rest(in_use)

    def _before_rest(self, in_use: InUse) -> int:
        low, high = 0, self.slots - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if in_use(self[middle]) else (low, middle)
        return low

    def _failed(self, error: KlogError) -> None:
        self.unreadable, self.problem = error, str(error)

    def __getitem__(self, slot: int) -> tuple[int, ...]:
        """Return the values of an entry; zeros when it cannot be read."""
        columns, layout = self._columns, self._layout
        if columns is not None:
            return (columns[0][slot], columns[1][slot]) if slot < len(columns[0]) else (0, 0)
        try:
            assert self._file is not None
            data = self._file.read(slot * layout.size, layout.size)
            if len(data) == layout.size:
                return layout.read(data)
        except KlogError as error:
            self._failed(error)
        return (0,) * len(layout.names)

    def load(self) -> None:
        """Read all entries into memory, up to the zeros at the file's end."""
        if self._columns is not None or self._file is None:
            return
        try:
            content, _ = content_before_zeros(self._file, self._layout.size)
        except KlogError as error:
            self._failed(error)
            return
        self._columns = tuple(zip(*self._layout.read_all(content), strict=True)) or ((), ())

    def search(self, target: int, column: int = 0) -> IndexSlot:
        """Return the slot of the greatest key not above *target* by a broker's own search: the warm end first.

        On an index out of order the answer depends on the path of the search.  Kafka: AbstractIndex.indexSlotRangeFor.
        """
        self._searches += 1
        if self._searches == _LOAD_AFTER:
            self.load()
        if not self.count:
            return IndexSlot(-1, 0, None)
        columns = self._columns
        is_loaded = columns is not None and self.count <= len(columns[column])
        keys = columns[column] if columns is not None and is_loaded else _Keys(self, column)
        low, high, probes = 0, self.count - 1, 1
        warm = max(0, high - WARM_BYTES // self._layout.size)
        is_warm = keys[warm] < target
        if is_warm:
            low = warm
        else:
            probes += 1
            if keys[0] > target:
                return IndexSlot(-1, probes, None if warm else 0)
            high = warm
        while low < high:
            middle = (low + high + 1) // 2
            probes += 1
            found = keys[middle]
            if found == target:
                low = middle
                break
            low, high = (low, middle - 1) if found > target else (middle, high)
        return IndexSlot(low, probes, warm if is_warm or not warm else None)

    def upper_bound(self, target: int, column: int = 0) -> int:
        """Return the slot that a broker finds for the first key behind *target*; the count without one.

        A key that equals *target* counts if the search happens to meet it, and it never meets that of slot 0.  Kafka:
        AbstractIndex.smallestUpperBoundSlotFor.
        """
        slot = self.search(target, column).slot
        return slot if slot > 0 and self[slot][column] == target else slot + 1

    def largest_gap(self) -> int:
        """Return the largest difference between the values of neighbouring entries, from 0 on."""
        if self._gap is None:
            self.load()
            self._gap = before = 0
            for slot in range(self.count):
                here = self[slot][1]
                self._gap, before = max(self._gap, here - before), here
        return self._gap

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


class _Keys:
    """A column of entries that are read one by one."""

    def __init__(self, entries: IndexEntries, column: int) -> None:
        self._entries, self._column = entries, column

    def __getitem__(self, slot: int) -> int:
        return self._entries[slot][self._column]


def offset_entries(file: str | ReadableLog, log_bytes: int) -> IndexEntries:
    """Return the entries of an `.index` that can be about a log of so many bytes: neither zeros nor truncated."""
    return IndexEntries(file, OFFSET_ENTRY, lambda entry: entry[0] > 0 and 0 < entry[1] < log_bytes)


def time_entries(file: str | ReadableLog) -> IndexEntries:
    """Return the entries of a `.timeindex`.  One of zeros ends them, unless there is no other."""
    entries = IndexEntries(file, TIME_ENTRY)
    if entries.slots == 1:
        entries.count = 1
    return entries


def content_before_zeros(file: ReadableLog, entry_bytes: int) -> tuple[bytes, bool]:
    """Return the whole entries of an index before its trailing zeros, with less than 64 KiB of these.

    The second value shows whether zeros follow; otherwise the file is read to its end.  Raises UnreadableError.
    """
    content = bytearray()
    whole = file.size - file.size % entry_bytes
    step = _STEP_BYTES - _STEP_BYTES % entry_bytes
    while len(content) < whole:
        part = file.read(len(content), min(step, whole - len(content)))
        if not part.strip(b"\0"):
            from klog.log.resync import is_zero  # needed for few files

            if is_zero(file, len(content), file.size):
                return bytes(content), True
        content += part
        if not part:
            break  # it has become shorter
    return bytes(content), False


# where to read a log from


def position_of_offset(log: ReadableLog, index: str, base_offset: int, offset: int) -> int:
    """Return the position of a batch at or before the one with *offset*; 0 if the index does not help."""
    with IndexEntries(index, OFFSET_ENTRY) as entries:
        slot = entries.search(offset - base_offset).slot
        relative, position = entries[slot] if slot >= 0 else (0, 0)
        before = entries[slot - 1][1] if slot > 0 else 0
    header = header_at(log, position) if relative > 0 else None
    # a batch that begins after the entry's offset would start the search behind its target
    fits = header is not None and base_offset <= header.base_offset <= base_offset + relative
    return position if fits and leads_to(log, before, position) else 0


def leads_to(log: ReadableLog, start: int, position: int) -> bool:
    """Whether a walk over headers from *start* on reaches *position*, or has not passed it after many steps.

    The values of a log may contain another log, with headers of its own.
    """
    for steps, found in enumerate(walk_headers(log, start)):
        if start >= position or steps == _MOST_STEPS:
            break
        if isinstance(found, Damage):
            return False
        start = found.position + found.size
    return start <= position


def position_by_time(log: ReadableLog, index: str, time_index: str, base_offset: int, timestamp: int) -> int:
    """Return a position before which no record is as young as *timestamp* (ms); 0 when the indexes do not help."""
    with IndexEntries(time_index, TIME_ENTRY) as entries:
        slot = entries.search(timestamp - 1).slot
        if slot < 0:
            return 0
        largest, relative = entries[slot]
    position = position_of_offset(log, index, base_offset, base_offset + relative)
    for found in walk_headers(log, position):
        if isinstance(found, Damage):
            return 0
        if found.last_offset >= base_offset + relative:
            confirmed = found.max_timestamp == largest and found.base_offset <= base_offset + relative
            return found.position if confirmed else 0
    return 0


def last_timestamp(time_index: str) -> int | None:
    """Return the timestamp (ms) of the last entry of a time index, None when it has none.

    It is not compared with the log.  Raises UnreadableError.  Kafka: TimeIndex.lastEntry.
    """
    with ReadOnlyFile(time_index) as file:
        whole = file.size - file.size % TIME_ENTRY.size
        last = file.read(whole - TIME_ENTRY.size, TIME_ENTRY.size) if whole else b""
    if len(last) == TIME_ENTRY.size and last.strip(b"\0"):
        return TIME_ENTRY.read(last)[0]
    return _last_entry(time_index, TIME_ENTRY)[0] if whole else None


def _last_entry(index: str, layout: Layout) -> tuple[int | None, ...]:
    """Return the last entry that is not zeros, as a preallocated index ends with; None for each value if there is none.

    Raises UnreadableError.
    """
    with IndexEntries(index, layout) as entries:
        found = entries[entries.count - 1] if entries.count else (None,) * len(layout.names)
        if entries.unreadable is not None:
            raise entries.unreadable
    return found


def largest_timestamp(log: str, time_index: str | None) -> int:
    """Return a broker's value for a segment's largest timestamp (ms): the last of its time index, else its age.

    Without a time index the log is read.  Raises UnreadableError.  Kafka: LogSegment.largestTimestamp.
    """
    largest = last_timestamp(time_index) if time_index is not None else _latest_from(log, 0)
    return largest if largest is not None and largest >= 0 else modified_ms(log)


def largest_timestamp_ahead(log: str, time_index: str | None, offset_index: str | None) -> int:
    """Return the same for a log that may be ahead of its indexes, as the active one of a broker that was not stopped.

    The batches behind the last entry of the offset index count as well.  Raises UnreadableError.
    """
    indexed = last_timestamp(time_index) if time_index is not None else None
    position = None
    if offset_index is not None and indexed is not None and indexed >= 0:
        position = _last_entry(offset_index, OFFSET_ENTRY)[1]
    behind = _latest_from(log, max(position or 0, 0))
    if behind is None and position:  # the index leads to no batch
        indexed, behind = None, _latest_from(log, 0)
    largest = max((one for one in (indexed, behind) if one is not None), default=-1)
    return largest if largest >= 0 else modified_ms(log)


def _latest_from(log: str, position: int) -> int | None:
    """Return the largest timestamp of the batches from *position* on; None if no batch begins there."""
    with ReadOnlyFile(log) as source:
        windows = walk_windows(source, position)
        return max((window.latest() for window in windows if not isinstance(window, Damage)), default=None)


def modified_ms(log: str) -> int:
    """Return when a log was last written, ms since the epoch.  Raises UnreadableError."""
    if (found := overlay_file(log)) is not None:
        return found.modified_ms
    try:
        return os.stat(log).st_mtime_ns // 1_000_000
    except OSError as error:
        raise UnreadableError(f"{log}: {error.strerror}") from error


_TXN_STEP_BYTES = 2048 * ABORTED_TXN.size
_MOST_TXN_BYTES = 64 << 20


class AbortedTxn(NamedTuple):
    """An entry; fields as in `ABORTED_TXN`."""

    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def aborted_txns(file: ReadableLog, size: int | None = None) -> Iterator[AbortedTxn]:
    """Yield the whole entries in the first *size* bytes of an open index (None: all), with 68 KiB of it in memory.

    A hole, which no broker leaves, yields at most the entries of 68 KiB, all zeros.  Raises UnreadableError.
    """
    end = file.size if size is None else size
    position = 0
    while position < end - end % ABORTED_TXN.size:
        content = file.read(position, min(_TXN_STEP_BYTES, end - position))
        if not content:
            return
        yield from map(AbortedTxn._make, ABORTED_TXN.read_all(content))
        position += _TXN_STEP_BYTES
        position += max(file.next_data(position) - position, 0) // _TXN_STEP_BYTES * _STEP_BYTES


def read_txn_index(folder: str, name: str) -> tuple[list[AbortedTxn], int]:
    """Return the whole entries in the first 64 MiB of an index, and the size of the file in bytes: a broker's is small.

    Raises UnreadableError.
    """
    with ReadOnlyFile(os.path.join(folder, name)) as source:
        return list(islice(aborted_txns(source), _MOST_TXN_BYTES // ABORTED_TXN.size)), source.size


def txn_index_content(entries: Iterable[AbortedTxn]) -> bytes:
    """Return the content of an index with these entries."""
    return b"".join(ABORTED_TXN.write(*entry) for entry in entries)


def newer_version(version: int) -> int:
    """Return the version that a broker assigns to an entry of an unknown version, else 0.

    A broker reads only the first of the two bytes.  Kafka: AbortedTxn.version.
    """
    return max(version >> 8, 0)
