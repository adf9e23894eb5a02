# The batches that compaction makes of the records that stay.

cpdef enum:                      # why `run` stopped, besides DONE and the ways in which a batch is broken
    OUTPUT_FULL = 16             # take the output, then go on
    TO_CONVERT = 18              # the batch at hand is of an old format, and cannot be taken or left as it is

cdef enum:
    HEADER_ROOM = 14             # bytes that a record can grow by when its timestamp counts from somewhere else


cdef class Rewriter:
    """Writes what stays of the batches of one window after another into the buffer of a second one, *target*.

    *offsets*: the last offset of each key.  *latest*: offsets above it are not covered by that.  *now*: ms since the
    epoch.  *retention*: delete.retention.ms.  *convert*: batches of old formats become record batches (v2), as 4.x does.
    *by_age*: tombstones of all formats go by the age of their segment and get no delete horizon, as before 3.1.
    `begin` says which batches; `run` until it returns DONE; in between `flushed`, `compressed` or what TO_CONVERT asks for.
    Kafka: Cleaner.cleanInto, MemoryRecords.filterTo.
    """

    cdef OffsetMap offsets
    cdef long long latest, now               # offsets above *latest* are not covered by the map; ms since the epoch
    cdef bint by_age                         # tombstones of all formats go by the age of their segment
    cdef readonly bint retain_legacy         # tombstones that go by age stay
    cdef uint8_t *keep
    cdef Py_ssize_t keep_room
    cdef readonly long long records_in, superseded, keyless, tombstones, expired
    cdef Window window
    cdef readonly Window target
    cdef bytearray decisions
    cdef long long horizon
    cdef bint convert
    cdef Py_ssize_t end, row
    cdef readonly Py_ssize_t at              # the batch at hand
    cdef readonly Py_ssize_t used            # bytes of output that wait in the target's buffer
    cdef readonly Py_ssize_t wanted          # room that the batch at hand needs, when there is not even that in all
    cdef uint8_t *out                        # the target's buffer
    cdef Py_ssize_t out_room
    # the batch at hand
    cdef uint8_t *plain                      # its records that stay, once one does not
    cdef Py_ssize_t plain_room, plain_used
    cdef bint is_open, is_whole, has_tombstone, is_waiting
    cdef Py_ssize_t kept
    cdef long long first_timestamp, max_timestamp, last_offset
    cdef Py_ssize_t compressed_at            # where its records begin in the output
    # totals
    cdef readonly long long batches_in, batches_out, records_out, markers_in, markers_out, discarded, untouched

    def __cinit__(self, OffsetMap offsets not None, Window target not None, long long latest, long long now,
                  long long retention, bint convert=False, bint by_age=False):
        self.offsets, self.target, self.latest, self.now, self.convert, self.by_age = offsets, target, latest, now, convert, by_age
        self.horizon = add(now, min(retention, 0x7FFFFFFFFFFFFFFF - max(now, 0)))

    def __dealloc__(self):
        free(self.plain)
        free(self.keep)

    def skip_superseded(self, Window window not None):
        """Skip the batches none of whose records stays, as is known without a look at them: they need not be decompressed."""
        cdef Py_ssize_t i
        cdef BatchRow *row
        for i in range(window.view.batches_count):
            row = window.view.batches + i
            if row.magic < 2 or row.attributes & ATTRIBUTE_CONTROL or row.state & SKIPPED or row.records_count <= 0:
                continue
            if all_superseded(&self.offsets.notes, row.base_offset, row.last_offset, row.records_count):
                row.state |= SKIPPED | SUPERSEDED

    def begin(self, Window window not None, Py_ssize_t first, Py_ssize_t end, bytearray decisions not None, bint retain_legacy=False):
        """Take batches *first* to *end* of *window*, whose checksums hold and that are decompressed.

        *decisions*: for each of the window's batches RETAIN_EMPTY and WITHOUT_DATA, added up; of skipped ones no record stays.
        """
        window._range(first, end)
        if len(decisions) < window.view.batches_count:
            raise ValueError("a decision for each batch is wanted")
        self._reserve_decisions(window.view.records_room)
        self.window, self.decisions, self.retain_legacy = window, decisions, retain_legacy
        self.at, self.end, self.row = first, end, 0
        self.is_open = self.is_waiting = False
        window.begin(first, end)

    def run(self) -> int:
        """Go on; return DONE, or what has to be done first, or how batch `at` is broken."""
        cdef int status
        cdef const uint8_t *decisions = <const uint8_t *>PyByteArray_AsString(self.decisions)
        if self.is_waiting:
            raise ValueError("records wait to be compressed")
        self._look_at_target()
        if self.window.view.size < SMALL:
            return self._run(&self.window.view, decisions)
        with nogil:
            status = self._run(&self.window.view, decisions)
        return status

    def flushed(self):
        """Mark the output as taken."""
        self.used = 0
        if self.wanted > len(self.target.data):
            self.target.buffer(self.wanted)
        self._look_at_target()

    cdef _look_at_target(self):
        self.out = <uint8_t *>PyByteArray_AsString(self.target.data)
        self.out_room = len(self.target.data)

    def plain_records(self) -> memoryview:
        """Return the bytes that TO_COMPRESS is about."""
        return memoryview(self.target.data)[self.compressed_at : self.compressed_at + self.plain_used]

    def compressed(self, const unsigned char[::1] data not None):
        """Take what `plain_records` has become, and end the batch."""
        self._look_at_target()
        if not self.is_waiting or data.shape[0] > self.out_room - self.compressed_at:
            raise ValueError("nothing waits to be compressed, or it has become too large")
        if data.shape[0]:
            memcpy(self.out + self.compressed_at, &data[0], data.shape[0])
        self.is_waiting = False
        self._end_batch(&self.window.view, data.shape[0])
        self.at += 1

    def judged(self) -> bytes:
        """Judge the record rows of the batch at hand, which the window holds alone; return a byte for each: whether it stays."""
        if self.window.view.records_count:
            self._judge(&self.window.view)
        return (<const char *>self.keep)[:self.window.view.records_count]

    def append(self, const unsigned char[::1] data not None, Py_ssize_t records) -> bool:
        """Write a batch that was made elsewhere; False where there is no room until the output is taken."""
        self._look_at_target()
        if not self._has_room(data.shape[0]):
            return False
        memcpy(self._out(), &data[0], data.shape[0])
        self.used += data.shape[0]
        self.batches_out += 1
        self.records_out += records
        return True

    # ---- which records stay

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

    # ---- batch by batch

    cdef int _run(self, View *v, const uint8_t *decisions) noexcept nogil:
        cdef const BatchRow *batch
        cdef int status
        while self.at < self.end:
            batch = v.batches + self.at
            if batch.magic < 2 and (self.convert or batch.attributes & ATTRIBUTE_CODEC):
                return TO_CONVERT
            if not self.is_open:
                status = self._open_batch(v)
                if status != DONE:
                    return status
            while True:
                if not self._take_rows(v):
                    return BAD_RECORD
                if self.row < v.records_count or v.batch > self.at or batch.state & SKIPPED:
                    break
                v.records_count = self.row = 0
                status = decode_some(v)
                self._judge(v)
                if status != DONE and status != MORE and v.batch == self.at and not self._has_rows(v):
                    return status
            status = self._close_batch(v, decisions[self.at])
            if status != DONE:
                return status
            self.at += 1
        return DONE

    cdef inline bint _has_rows(self, const View *v) noexcept nogil:
        """Whether a row of the batch at hand waits."""
        return self.row < v.records_count and v.records[self.row].batch == self.at

    # ---- the batch that they make

    cdef int _open_batch(self, View *v) noexcept nogil:
        cdef const BatchRow *batch = v.batches + self.at
        cdef uint8_t *larger
        if self.plain_room < v.lengths[self.at]:
            larger = <uint8_t *>realloc(self.plain, v.lengths[self.at])
            if larger == NULL:
                return BAD_LENGTH
            self.plain, self.plain_room = larger, v.lengths[self.at]
        self.is_open, self.is_whole, self.has_tombstone = True, True, False
        self.kept = self.plain_used = 0
        self.first_timestamp = self.max_timestamp = -1
        self.last_offset = subtract(batch.base_offset, 1)
        return DONE

    cdef bint _take_rows(self, const View *v) noexcept nogil:
        """Take the rows of the batch at hand: copy what stays, once it is clear that not all does.

        False when a record's offset is outside of its batch, or not above the one before.
        """
        cdef const BatchRow *batch = v.batches + self.at
        cdef const uint8_t *base = v.bases[self.at]
        cdef const RecordRow *row
        cdef const uint8_t *p
        cdef int length = 0
        while self._has_rows(v):
            row = v.records + self.row
            if batch.magic >= 2:
                if row.offset <= self.last_offset or row.offset > batch.last_offset:
                    return False
                self.last_offset = row.offset
            if self.keep[self.row]:
                if self.kept == 0:
                    self.first_timestamp = row.timestamp
                self.max_timestamp = max(self.max_timestamp, row.timestamp)
                self.kept += 1
                self.has_tombstone = self.has_tombstone or row.value_length < 0
                if not self.is_whole:
                    p = varint(base + row.start, base + v.lengths[self.at], &length)
                    length += <int>(p - base) - row.start
                    memcpy(self.plain + self.plain_used, base + row.start, length)
                    self.plain_used += length
            elif self.is_whole:
                self.is_whole = False
                if self.kept:
                    self.plain_used = row.start - self._records_start(v)
                    memcpy(self.plain, base + self._records_start(v), self.plain_used)
            self.row += 1
        return True

    cdef inline Py_ssize_t _records_start(self, const View *v) noexcept nogil:
        return 0 if v.batches[self.at].attributes & ATTRIBUTE_CODEC else BATCH_BYTES

    cdef int _close_batch(self, View *v, int decision) noexcept nogil:
        """Write the batch at hand, or what is left of it, or nothing.  Kafka: MemoryRecords.filterTo."""
        cdef const BatchRow *batch = v.batches + self.at
        cdef bint is_cleaned = False
        if batch.magic >= 2 and self.kept and not self.by_age and not batch.attributes & ATTRIBUTE_DELETE_HORIZON:
            is_cleaned = self.has_tombstone or decision & WITHOUT_DATA
        if self.kept and self.is_whole and not is_cleaned:
            if not self._has_room(batch.size):
                return OUTPUT_FULL
            memcpy(self._out(), v.data + batch.at, batch.size)
            self.used += batch.size
            self.untouched += 1
            self._count(batch, True)
        elif self.kept:
            return self._rewrite(v, self.horizon if is_cleaned else batch.base_timestamp, is_cleaned or batch.attributes & ATTRIBUTE_DELETE_HORIZON)
        elif decision & RETAIN_EMPTY and batch.magic >= 2:
            if not self._has_room(BATCH_BYTES):
                return OUTPUT_FULL
            self._write_empty(v.data + batch.at, batch)
            self._count(batch, True)
        else:
            self._count(batch, False)
        return DONE

    cdef void _count(self, const BatchRow *batch, bint stays) noexcept nogil:
        self.is_open = False
        self.batches_in += 1
        self.batches_out += stays
        self.records_out += self.kept
        if batch.magic >= 2 and batch.attributes & ATTRIBUTE_CONTROL:
            self.markers_in += 1
            self.markers_out += stays and self.kept > 0
        if batch.state & SKIPPED and batch.records_count > 0:
            self.records_in += batch.records_count
            if batch.state & SUPERSEDED:
                self.superseded += batch.records_count
            else:
                self.discarded += batch.records_count

    cdef inline uint8_t *_out(self) noexcept nogil:
        return self.out + self.used

    cdef inline bint _has_room(self, Py_ssize_t size) noexcept nogil:
        self.wanted = size
        return size <= self.out_room - self.used

    cdef int _rewrite(self, View *v, long long horizon, bint has_horizon) noexcept nogil:
        """Rewrite the current batch with the records that stay.  Kafka: MemoryRecords.buildRetainedRecordsInto."""
        cdef const BatchRow *batch = v.batches + self.at
        cdef const uint8_t *records = self.plain
        cdef Py_ssize_t size = self.plain_used, most
        cdef bint by_append_time = (batch.attributes & ATTRIBUTE_LOG_APPEND_TIME) != 0
        cdef long long base
        cdef uint8_t *w
        if self.is_whole:
            records = v.bases[self.at] + self._records_start(v)
            size = v.lengths[self.at] - self._records_start(v)
        most = BATCH_BYTES + size + HEADER_ROOM * self.kept
        if batch.attributes & ATTRIBUTE_CODEC:
            most += most // 4 + 4096  # what cannot be compressed grows
        if not self._has_room(most):
            return OUTPUT_FULL
        if has_horizon:
            base = horizon
        else:
            base = batch.max_timestamp if by_append_time else self.first_timestamp
        w = self._out()
        memcpy(w, v.data + batch.at, BATCH_BYTES)
        put16(w + BATCH_ATTRIBUTES, <uint32_t>((batch.attributes & (ATTRIBUTE_CODEC | ATTRIBUTE_LOG_APPEND_TIME | ATTRIBUTE_TRANSACTIONAL | ATTRIBUTE_CONTROL)) | (ATTRIBUTE_DELETE_HORIZON if has_horizon else 0)))
        put64(w + BATCH_BASE_TIMESTAMP, <uint64_t>base)
        if not by_append_time:
            put64(w + BATCH_MAX_TIMESTAMP, <uint64_t>self.max_timestamp)
        put32(w + BATCH_RECORDS_COUNT, <uint32_t>self.kept)
        w += BATCH_BYTES
        if by_append_time:
            size = moved_records(w, records, size, 0, subtract(batch.max_timestamp, base))
        elif base == batch.base_timestamp:
            memcpy(w, records, size)
        else:
            size = moved_records(w, records, size, 1, subtract(batch.base_timestamp, base))
        self.compressed_at = self.used + BATCH_BYTES
        self.plain_used = size
        if batch.attributes & ATTRIBUTE_CODEC:
            self.is_waiting = True
            return TO_COMPRESS
        self._end_batch(v, size)
        return DONE

    cdef void _end_batch(self, View *v, Py_ssize_t size) noexcept nogil:
        """Write the length and the checksum of the batch whose records, *size* bytes, are in place."""
        cdef uint8_t *p = self._out()
        put32(p + BATCH_SIZE, <uint32_t>(BATCH_BYTES + size - OVERHEAD))
        put32(p + BATCH_CRC, klog_crc32c(0, p + BATCH_CRC_START, BATCH_BYTES + size - BATCH_CRC_START))
        self.used += BATCH_BYTES + size
        self._count(v.batches + self.at, True)

    cdef void _write_empty(self, const uint8_t *p, const BatchRow *batch) noexcept nogil:
        """Write the header of a batch without records.  Kafka: DefaultRecordBatch.writeEmptyHeader."""
        cdef uint8_t *w = self._out()
        memcpy(w, p, BATCH_BYTES)
        put32(w + BATCH_SIZE, BATCH_BYTES - OVERHEAD)
        w[BATCH_MAGIC] = 2
        put16(w + BATCH_ATTRIBUTES, <uint32_t>(batch.attributes & (ATTRIBUTE_LOG_APPEND_TIME | ATTRIBUTE_TRANSACTIONAL | ATTRIBUTE_CONTROL)))
        put64(w + BATCH_BASE_TIMESTAMP, <uint64_t>-1)
        put32(w + BATCH_RECORDS_COUNT, 0)
        put32(w + BATCH_CRC, klog_crc32c(0, w + BATCH_CRC_START, BATCH_BYTES - BATCH_CRC_START))
        self.used += BATCH_BYTES


cdef Py_ssize_t moved_records(uint8_t *w, const uint8_t *p, Py_ssize_t size, long long times, long long shift) noexcept nogil:
    """Write whole records, *size* bytes, with other timestamp deltas: *times* what they were, and *shift*; return the bytes."""
    cdef const uint8_t *end = p + size
    cdef const uint8_t *record_end
    cdef const uint8_t *rest
    cdef uint8_t *start = w
    cdef int length = 0
    cdef long long delta = 0
    while p < end:
        p = varint(p, end, &length)
        record_end = p + length
        rest = varlong(p + 1, record_end, &delta)
        delta = add(times * delta, shift)
        w = put_varint(w, <uint32_t>(1 + varlong_bytes(delta) + (record_end - rest)))
        w[0] = 0
        w = put_varlong(w + 1, delta)
        memcpy(w, rest, record_end - rest)
        w += record_end - rest
        p = record_end
    return w - start
