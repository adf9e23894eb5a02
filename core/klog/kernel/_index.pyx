# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False, binding=False, annotation_typing=False
"""Indexes of a segment, made of its batches: as a broker's recovery does, or while it is appended to."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc

from klog.kernel._window cimport BatchRow, Window
from klog.kernel.layouts cimport (
    OFFSET_ENTRY_BYTES, OFFSET_ENTRY_POSITION, OFFSET_ENTRY_RELATIVE_OFFSET, TIME_ENTRY_BYTES,
    TIME_ENTRY_RELATIVE_OFFSET, TIME_ENTRY_TIMESTAMP,
)
from klog.kernel.numbers cimport be32, be64, put32, put64, subtract

cdef enum:
    OFFSET_OVERFLOW = 1          # a batch's last offset is outside of what the segment can hold
    OFFSET_BACKWARDS = 2         # … is not above that of the index entry before it
    INDEX_FULL = 3               # an entry more than the index may have
    ROLL = 4                     # the next segment begins with this batch

cdef struct EpochStart:
    int epoch
    long long offset             # base offset of the batch that began it

_BUILD_STOPS = ("", "overflow", "backwards", "full", "roll")


cdef class IndexBuilder:
    """Makes the offset and time index of a segment from its batches, given to `walk` in their order, `finish` behind.

    *base*: the segment's base offset.  *interval*: bytes of log after which an entry is due, index.interval.bytes.
    *most_bytes*: no index becomes larger, segment.index.bytes.  *latest_epoch*: the latest leader epoch known before,
    -1 for none.  `size` counts the bytes of the batches taken, so positions are those in a log of just these.
    With *segment_bytes* (segment.bytes) and *segment_ms* (segment.ms, by the records' times) the segment is appended to:
    `walk` stops before the batch that begins the next one.  A log that is there already is walked through with `resume`.
    Kafka: LogSegment.recover; LogSegment.append, LogSegment.shouldRoll.
    """

    cdef readonly long long base, size
    cdef readonly long long max_timestamp, max_timestamp_offset
    cdef readonly long long last_offset                  # of the last batch taken; -1: none
    cdef readonly long long highest_offset               # the greatest last offset of a batch taken; -1: none
    cdef readonly long long batches, records
    cdef readonly int latest_epoch
    cdef int interval, stopped
    cdef long long last_entry                            # position of the batch of the last offset entry
    cdef long long last_entry_offset, last_time, last_time_offset
    cdef Py_ssize_t most_entries, most_time_entries
    cdef uint8_t *entries
    cdef uint8_t *times
    cdef Py_ssize_t entries_count, times_count, entries_room, times_room
    cdef EpochStart *epochs_start
    cdef Py_ssize_t epochs_count, epochs_room
    cdef readonly long long segment_bytes, segment_ms    # -1: no other segment begins
    cdef readonly long long rolling_timestamp            # largest timestamp of the first batch, ms
    cdef bint is_resuming

    def __cinit__(self, long long base, int interval=4096, long long most_bytes=10 << 20, int latest_epoch=-1,
                  long long segment_bytes=-1, long long segment_ms=-1):
        self.base, self.interval, self.latest_epoch = base, interval, latest_epoch
        self.most_entries, self.most_time_entries = most_bytes // OFFSET_ENTRY_BYTES, most_bytes // TIME_ENTRY_BYTES
        self.max_timestamp = self.last_time = self.last_offset = self.highest_offset = -1
        self.max_timestamp_offset = self.last_time_offset = base
        self.segment_bytes, self.segment_ms, self.rolling_timestamp = segment_bytes, segment_ms, -1

    def __dealloc__(self):
        free(self.entries)
        free(self.times)
        free(self.epochs_start)

    def walk(self, Window window not None, Py_ssize_t first, Py_ssize_t end) -> int:
        """Take batches *first* to *end* of a window, whose checksums hold; return the first that was not taken.

        That is *end*, or where it had to stop: `stop` says why.
        """
        cdef Py_ssize_t i = first
        window._range(first, end)
        while i < end and not self.stopped:
            self._reserve()
            with nogil:
                i = self._take(window.view.batches, i, end)
        return i

    def resume(self, Window window not None, Py_ssize_t first, Py_ssize_t end) -> int:
        """Take batches that the segment has already, however large it and its indexes are; as `walk` otherwise."""
        cdef Py_ssize_t most = self.most_entries, most_times = self.most_time_entries
        self.is_resuming, self.most_entries, self.most_time_entries = True, 1 << 40, 1 << 40
        try:
            return self.walk(window, first, end)
        finally:
            self.is_resuming, self.most_entries, self.most_time_entries = False, most, most_times

    def continue_at(self, long long position, long long rolling_timestamp, Py_ssize_t entries, Py_ssize_t times,
                    long long last_time=-1, long long last_time_offset=-1):
        """Be where it was before the batch at *position*, which the last entry of the offset index is about.

        The indexes have so many *entries* and *times* already, the last of these says *last_time* and
        *last_time_offset*; they stay where they are: `take_entries` gives those that come behind them.
        """
        if self.batches or position < 0 or entries < 0 or times < 0:
            raise ValueError(f"{self.batches} batches; {position} bytes, {entries} and {times} entries")
        self.size = self.last_entry = position
        self.rolling_timestamp = rolling_timestamp
        self.most_entries -= entries
        self.most_time_entries -= times
        if times:
            self.max_timestamp = self.last_time = last_time
            self.max_timestamp_offset = self.last_time_offset = last_time_offset

    def take_entries(self) -> tuple[bytes, bytes]:
        """Return the new entries of the offset index and of the time index, and keep them no longer."""
        entries, times = self.offset_entries, self.time_entries
        self.most_entries -= self.entries_count
        self.most_time_entries -= self.times_count
        self.entries_count = self.times_count = 0
        return entries, times

    def finish(self):
        """Add the final entry of the time index: the largest timestamp, if that is not its last entry already."""
        self._reserve()
        self._time_entry()

    @property
    def stop(self) -> str:
        """Why the last batch was not taken; empty when nothing was in the way.

        "overflow": its last offset is outside of what the segment can hold; "backwards": not above that of the index
        entry before it; "full": the index may have no more entries; "roll": the next segment begins with it.
        """
        return _BUILD_STOPS[self.stopped]

    @property
    def offset_entries(self) -> bytes:
        """The content of the offset index."""
        return (<const char *>self.entries)[:self.entries_count * OFFSET_ENTRY_BYTES] if self.entries_count else b""

    @property
    def time_entries(self) -> bytes:
        """The content of the time index."""
        return (<const char *>self.times)[:self.times_count * TIME_ENTRY_BYTES] if self.times_count else b""

    @property
    def epochs(self) -> list[tuple[int, int]]:
        """The leader epochs above *latest_epoch*, each with the base offset of the batch that began it."""
        cdef Py_ssize_t i
        return [(self.epochs_start[i].epoch, self.epochs_start[i].offset) for i in range(self.epochs_count)]

    cdef int _reserve(self) except -1:
        """See to it that one more fits of everything that is kept."""
        if self.entries_count == self.entries_room:
            self.entries = <uint8_t *>grown(self.entries, &self.entries_room, OFFSET_ENTRY_BYTES)
        if self.times_count == self.times_room:
            self.times = <uint8_t *>grown(self.times, &self.times_room, TIME_ENTRY_BYTES)
        if self.epochs_count == self.epochs_room:
            self.epochs_start = <EpochStart *>grown(self.epochs_start, &self.epochs_room, sizeof(EpochStart))
        return 0

    cdef Py_ssize_t _take(self, const BatchRow *rows, Py_ssize_t i, Py_ssize_t end) noexcept nogil:
        """Take rows until one has to be refused or there may be no room for what it brings; return which."""
        cdef const BatchRow *row
        while i < end:
            row = rows + i
            if self.size == 0:
                self.rolling_timestamp = row.max_timestamp
            elif self.segment_bytes >= 0 and not self.is_resuming and self._rolls(row):
                self.stopped = ROLL
                return i
            if row.last_offset < self.base or not 0 <= subtract(row.last_offset, self.base) <= 0x7FFFFFFF:
                self.stopped = OFFSET_OVERFLOW
                return i
            if row.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = row.max_timestamp, row.last_offset
            if self.size - self.last_entry > self.interval:
                if self.entries_count == self.entries_room or self.times_count == self.times_room:
                    return i
                if not self._entry(row.last_offset):
                    return i
            self.size += row.size
            self.batches += 1
            self.records += max(row.records_count, 0)
            self.last_offset = row.last_offset
            self.highest_offset = max(self.highest_offset, row.last_offset)
            i += 1
            if row.magic >= 2 and row.leader_epoch >= 0 and row.leader_epoch > self.latest_epoch:
                self.latest_epoch = row.leader_epoch
                self.epochs_start[self.epochs_count].epoch = row.leader_epoch
                self.epochs_start[self.epochs_count].offset = row.base_offset
                self.epochs_count += 1
                if self.epochs_count == self.epochs_room:
                    return i
        return i

    cdef bint _rolls(self, const BatchRow *row) noexcept nogil:
        """Whether the next segment begins with this batch."""
        if self.size > self.segment_bytes - row.size or subtract(row.last_offset, self.base) > 0x7FFFFFFF:
            return True
        if self.rolling_timestamp >= 0 and row.max_timestamp - self.rolling_timestamp > self.segment_ms:
            return True
        return self.entries_count >= self.most_entries or self.times_count >= self.most_time_entries - 1

    cdef bint _entry(self, long long offset) noexcept nogil:
        """Add an entry about the batch at hand to both indexes; False when that cannot be."""
        cdef uint8_t *p = self.entries + self.entries_count * OFFSET_ENTRY_BYTES
        if self.entries_count >= self.most_entries or self.times_count >= self.most_time_entries - 1:
            self.stopped = INDEX_FULL
            return False
        if self.entries_count and offset <= self.last_entry_offset:
            self.stopped = OFFSET_BACKWARDS
            return False
        put32(p + OFFSET_ENTRY_RELATIVE_OFFSET, <uint32_t>(offset - self.base))
        put32(p + OFFSET_ENTRY_POSITION, <uint32_t>self.size)
        self.entries_count += 1
        self.last_entry_offset, self.last_entry = offset, self.size
        return self._time_entry()

    cdef bint _time_entry(self) noexcept nogil:
        """Add the largest timestamp so far to the time index, if it is above its last; False when that cannot be."""
        cdef uint8_t *p = self.times + self.times_count * TIME_ENTRY_BYTES
        if self.times_count and self.max_timestamp_offset < self.last_time_offset:
            self.stopped = OFFSET_BACKWARDS
            return False
        if self.max_timestamp <= self.last_time:
            return True
        put64(p + TIME_ENTRY_TIMESTAMP, <uint64_t>self.max_timestamp)
        put32(p + TIME_ENTRY_RELATIVE_OFFSET, <uint32_t>(self.max_timestamp_offset - self.base))
        self.times_count += 1
        self.last_time, self.last_time_offset = self.max_timestamp, self.max_timestamp_offset
        return True


cdef void *grown(void *start, Py_ssize_t *room, Py_ssize_t size) except NULL:
    """Return a larger array with what *start* holds: *room* items of *size* bytes, and as many more."""
    # Little at first: of ten thousand small segments each may keep its indexes until it is known which are wanted.
    cdef void *larger = realloc(start, (2 * room[0] + 4) * size)
    if larger == NULL:
        raise MemoryError()
    room[0] = 2 * room[0] + 4
    return larger


# The used part of an index file.

def offset_index_used(const unsigned char[::1] entries not None, long long log_bytes) -> tuple[int, str]:
    """Return how many entries at the start of an offset index are in order, and why that is the end of them.

    "end": of the file; "zeros"; "order": a column does not ascend; "beyond": a position that is not in the log.
    """
    cdef Py_ssize_t i, count = entries.shape[0] // OFFSET_ENTRY_BYTES
    cdef const uint8_t *p
    cdef int relative, position, last_relative = 0, last_position = 0
    for i in range(count):
        p = &entries[i * OFFSET_ENTRY_BYTES]
        relative, position = be32(p + OFFSET_ENTRY_RELATIVE_OFFSET), be32(p + OFFSET_ENTRY_POSITION)
        if relative == 0 and position == 0:
            return i, "zeros"
        if relative <= last_relative and (i or relative < 0) or position <= last_position:
            return i, "order"
        if position >= log_bytes:
            return i, "beyond"
        last_relative, last_position = relative, position
    return count, "end"


def time_index_used(const unsigned char[::1] entries not None) -> tuple[int, str]:
    """Return how many entries at the start of a time index are in order, and why that is the end of them; as above."""
    cdef Py_ssize_t i, count = entries.shape[0] // TIME_ENTRY_BYTES
    cdef const uint8_t *p
    cdef long long timestamp, last_timestamp = -1
    cdef int relative, last_relative = 0
    for i in range(count):
        p = &entries[i * TIME_ENTRY_BYTES]
        timestamp, relative = be64(p + TIME_ENTRY_TIMESTAMP), be32(p + TIME_ENTRY_RELATIVE_OFFSET)
        if timestamp == 0 and relative == 0 and (i or count > 1):
            return i, "zeros"
        if timestamp <= last_timestamp or relative < last_relative:
            return i, "order"
        last_timestamp, last_relative = timestamp, relative
    return count, "end"
