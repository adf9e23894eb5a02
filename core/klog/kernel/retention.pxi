# Which records a compaction keeps.


cdef class RecordRetention:
    """Decides about records: by the last offset of their key, and for tombstones by their age.

    *keep* has a byte for each record row of the window at hand, set by `_judge`.  Kafka: Cleaner.shouldRetainRecord.
    """

    cdef OffsetMap offsets
    cdef long long latest, now               # offsets above *latest* are not covered by the map; ms since the epoch
    cdef bint by_age                         # tombstones of all formats go by the age of their segment
    cdef readonly bint retain_legacy         # tombstones that go by age stay
    cdef uint8_t *keep
    cdef Py_ssize_t keep_room
    cdef readonly long long records_in, superseded, keyless, tombstones, expired

    def __dealloc__(self):
        free(self.keep)

    cdef int _reserve_decisions(self, Py_ssize_t rows) except -1:
        """Make room for a decision about each of so many rows."""
        cdef uint8_t *larger
        if self.keep_room < rows:
            larger = <uint8_t *>realloc(self.keep, rows)
            if larger == NULL:
                raise MemoryError()
            self.keep, self.keep_room = larger, rows
        return 0

    cdef void _judge(self, const View *v) noexcept nogil:
        """Decide about all rows."""
        cdef Pending pending[AHEAD]
        cdef long long last[AHEAD]
        cdef Py_ssize_t start = 0, i, k, end, count
        cdef int note
        cdef const RecordRow *row
        while start < v.records_count:
            end = min(start + AHEAD, v.records_count)
            count = 0
            for i in range(start, end):
                row = v.records + i
                last[i - start] = -1
                if not self._is_looked_up(v, row):
                    continue
                note = note_of(&self.offsets.notes, row.offset)
                if note:
                    last[i - start] = row.offset + (note != WAS_PUT)
                else:
                    pending[count].key, pending[count].key_length = v.bases[row.batch] + row.key_at, row.key_length
                    pending[count].row = i
                    count += 1
            count = self.offsets.ask(pending, count)
            for k in range(count):
                last[pending[k].row - start] = self.offsets.find(&pending[k].digest)
            for i in range(start, end):
                self.keep[i] = self._stays(v, v.records + i, last[i - start])
            start = end

    cdef inline bint _is_looked_up(self, const View *v, const RecordRow *row) noexcept nogil:
        return row.key_length >= 0 and row.offset <= self.latest and not is_control(v, row)

    cdef bint _stays(self, const View *v, const RecordRow *row, long long last) noexcept nogil:
        """Whether a record stays; *last*: the last offset of its key, if that was looked up.  Kafka: Cleaner.shouldRetainRecord."""
        cdef const BatchRow *batch = v.batches + row.batch
        self.records_in += 1
        if is_control(v, row) or row.offset > self.latest:
            return True
        if row.key_length < 0:
            self.keyless += 1
            return False
        if row.offset < last:
            self.superseded += 1
            return False
        if row.value_length >= 0:
            return True
        self.tombstones += 1
        if batch.magic < 2 or self.by_age:
            if self.retain_legacy:
                return True
        elif not batch.attributes & ATTRIBUTE_DELETE_HORIZON or self.now < batch.base_timestamp:
            return True
        self.expired += 1
        return False
