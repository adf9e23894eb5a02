# The segment that is appended to, and when the next one begins.


cdef class ActiveSegment(IndexBuilder):
    """Makes the indexes of a segment while it is appended to; `walk` stops before the batch that begins the next one.

    Then `stop` is "roll".  *segment_bytes*: segment.bytes.  *segment_ms*: segment.ms, by the records' times.  Its other
    arguments are those of IndexBuilder.  A log that is there already is walked through first, with `resume`.
    Kafka: LogSegment.append, LogSegment.shouldRoll.
    """

    cdef readonly long long segment_bytes, segment_ms
    cdef readonly long long rolling_timestamp       # largest timestamp of the first batch, ms
    cdef bint is_resuming

    def __init__(self, long long base, int interval=4096, long long most_bytes=10 << 20, int latest_epoch=-1,
                 long long segment_bytes=1 << 30, long long segment_ms=604800000):
        self.segment_bytes, self.segment_ms = segment_bytes, segment_ms
        self.rolling_timestamp = -1

    def resume(self, Window window not None, Py_ssize_t first, Py_ssize_t end):
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

    def take_entries(self):
        """Return the new entries of the offset index and of the time index, and keep them no longer."""
        entries, times = self.offset_entries, self.time_entries
        self.most_entries -= self.entries_count
        self.most_time_entries -= self.times_count
        self.entries_count = self.times_count = 0
        return entries, times

    cdef Py_ssize_t _take(self, const BatchRow *rows, Py_ssize_t i, Py_ssize_t end) noexcept nogil:
        cdef Py_ssize_t taken
        while i < end:
            if self.size == 0:
                self.rolling_timestamp = rows[i].max_timestamp
            elif not self.is_resuming and self._rolls(rows + i):
                self.stopped = ROLL
                return i
            taken = IndexBuilder._take(self, rows, i, i + 1)
            if taken == i:
                return i
            i = taken
            if self.entries_count == self.entries_room or self.epochs_count == self.epochs_room:
                return i
        return i

    cdef bint _rolls(self, const BatchRow *row) noexcept nogil:
        """Whether the next segment begins with this batch."""
        if self.size > self.segment_bytes - row.size or subtract(row.last_offset, self.base) > 0x7FFFFFFF:
            return True
        if self.rolling_timestamp >= 0 and row.max_timestamp - self.rolling_timestamp > self.segment_ms:
            return True
        return self.entries_count >= self.most_entries or self.times_count >= self.most_time_entries - 1
