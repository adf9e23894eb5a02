# The records of a window: decompressed, decoded, and chosen.

cdef bint heap_is_kept = False


cdef class RecordRows(BatchRows):
    """The records of the batches of a window, a row each, as many at a time as there is room for."""

    cdef readonly object error               # why `decompress` stopped

    def __dealloc__(self):
        free(self.view.records)

    cdef int _reserve_records(self, Py_ssize_t count) except -1:
        self.view.records = <RecordRow *>calloc(count, sizeof(RecordRow))
        if self.view.records == NULL:
            raise MemoryError()
        self.view.records_room = count
        return 0

    def decompress(self, Py_ssize_t first, Py_ssize_t end, tuple codecs, Py_ssize_t budget=2 << 20):
        """Decompress batches from *first* on and return where that stopped: at *end*, or once *budget* bytes were made.

        *codecs*: a function (compressed bytes, magic) → bytes for each codec number.  When one of them raises
        CodecError, the error is kept in `error` and the batch at fault is where decompressing stopped.
        """
        cdef Py_ssize_t i, made = 0
        cdef BatchRow *b
        cdef const uint8_t *p
        cdef Py_ssize_t length
        cdef object content
        global heap_is_kept
        self._range(first, end)
        self.error = None
        self.payloads.clear()
        for i in range(first, end):
            b = self.view.batches + i
            if not b.attributes & ATTRIBUTE_CODEC or b.state & SKIPPED or (b.magic >= 2 and (b.records_count <= 0 or b.size < BATCH_BYTES)):
                continue
            if made >= budget:
                return i
            if not heap_is_kept:
                klog_keep_heap()
                heap_is_kept = True
            try:
                p = self._compressed(b, &length)
                content = codecs[b.attributes & ATTRIBUTE_CODEC](PyMemoryView_FromMemory(<char *>p, length, 0x100), b.magic)
            except CodecError as error:
                error.__traceback__ = error.__context__ = None  # its frames hold what had been decompressed
                self.error = error
                return i
            self.payloads.append(content)
            if type(content) is bytes:
                self.view.bases[i] = <const uint8_t *>PyBytes_AsString(content)
            else:
                self.view.bases[i] = <const uint8_t *>PyByteArray_AsString(<bytearray?>content)
            length = len(content)
            if length > 2147483647:
                raise OverflowError(f"a batch of {length} bytes when decompressed")
            self.view.lengths[i] = <int>length
            made += length
        return end

    cdef const uint8_t *_compressed(self, BatchRow *b, Py_ssize_t *length) except NULL:
        """Where the compressed bytes of a batch are: behind its header, or in a wrapper's value."""
        cdef const uint8_t *p = self.view.data + b.at
        cdef const uint8_t *end = p + b.size
        cdef int size
        if b.size < smallest_entry(b.magic):
            raise CodecError("too small for its header")
        if b.magic >= 2:
            length[0] = b.size - BATCH_BYTES
            return p + BATCH_BYTES
        if b.attributes & ATTRIBUTE_CODEC == 4:
            raise CodecError("zstd in a message set, where it is not allowed")
        p += MESSAGE_V1_KEY_LENGTH if b.magic else MESSAGE_V0_KEY_LENGTH
        size = be32(p)
        p += 4
        if size > end - p - 4:
            raise CodecError(f"the wrapper's key claims {size} bytes")
        p += max(size, 0)
        size = be32(p)
        p += 4
        if size < 0 or size > end - p:
            raise CodecError("the wrapper has no value" if size < 0 else f"the wrapper's value claims {size} bytes")
        length[0] = size
        return p

    def begin(self, Py_ssize_t first, Py_ssize_t end, bint whole=False):
        """Start decoding at batch *first*, to stop before *end*; compressed ones have been decompressed.

        *whole*: of a compressed batch with a broken record, give no record at all.
        """
        self._range(first, end)
        self.view.batch = first
        self.view.batch_end = end
        self.view.record = 0
        self.view.cursor = 0
        self.view.records_count = 0
        self.view.whole = whole

    def decode(self):
        """Refill the record rows; return DONE, MORE, or how batch `decoding` is broken."""
        cdef int status
        self.view.records_count = 0
        self.view.has_bad_messages = False
        if self.view.batch_end - self.view.batch > 1:
            with nogil:
                status = decode_some(&self.view)
        else:
            status = decode_some(&self.view)
        return status

    def first_unsound(self, Py_ssize_t first, Py_ssize_t end):
        """Return the first batch from *first* to *end* whose records have to be decoded to say what is wrong, else *end*.

        Of a batch before it every record is whole, and its offset is the batch's and above the one before.  Skipped batches
        are passed over, those of messages (v0, v1) never.  Compressed ones have been decompressed.  Fills no rows.
        """
        cdef Py_ssize_t i
        self._range(first, end)
        with nogil:
            i = first_unsound(&self.view, first, end)
        return i

    @property
    def decoding(self):
        """The batch at which decoding is."""
        return self.view.batch

    @property
    def decoding_record(self):
        """The record of that batch at which decoding is: its number in the batch, from 0."""
        return self.view.record

    @property
    def records(self):
        """How many record rows are filled."""
        return self.view.records_count

    def record(self, Py_ssize_t i, bint headers=True):
        """Return record row *i* as (offset, timestamp, key, value, headers, sequence, batch).

        The headers are None where there are more than MOST_HEADERS, and () without *headers*.
        """
        cdef const RecordRow *row
        cdef const BatchRow *batch
        if not 0 <= i < self.view.records_count:
            raise IndexError(f"record {i} of {self.view.records_count}")
        row = self.view.records + i
        batch = self.view.batches + row.batch
        return (row.offset, row.timestamp, self._slice(row.batch, row.key_at, row.key_length),
                self._slice(row.batch, row.value_at, row.value_length if row.headers_count != VALUE_TOO_LONG else -1),
                self._headers(row) if headers else (), record_sequence(batch, row), row.batch)

    cdef object _slice(self, int batch, int at, int length):
        return None if length < 0 else (<const char *>self.view.bases[batch])[at : at + length]

    cdef tuple _headers(self, const RecordRow *row):
        cdef const uint8_t *base = self.view.bases[row.batch]
        cdef const uint8_t *p = base + row.headers_at
        cdef int i, length = 0
        cdef list found = []
        if row.headers_count > MOST_HEADERS:
            return None
        for i in range(row.headers_count):
            p = varint(p, p + 5, &length)
            key = (<const char *>p)[:length]
            p = varint(p + length, p + length + 5, &length)
            found.append((key, None if length < 0 else (<const char *>p)[:length]))
            p += max(length, 0)
        return tuple(found)

    def raw_headers(self, Py_ssize_t i):
        """Return the headers of row *i* as the record has them: bytes that differ where they do."""
        cdef const RecordRow *row = self.view.records + i
        cdef const uint8_t *base
        cdef const uint8_t *p
        if not 0 <= i < self.view.records_count:
            raise IndexError(f"record {i} of {self.view.records_count}")
        if row.headers_count <= 0:
            return b""
        base = self.view.bases[row.batch]
        p = skip_headers(base + row.headers_at, base + self.view.lengths[row.batch], row.headers_count)
        return (<const char *>base)[row.headers_at : p - base]

    def bad_inner_crcs(self):
        """Return the rows of messages (v0, v1) inside wrappers whose own checksum does not match."""
        cdef Py_ssize_t i
        if not self.view.has_bad_messages:
            return []
        return [i for i in range(self.view.records_count) if self.view.records[i].headers_at == MESSAGE_BAD]

    def stray_records(self):
        """Return the first row of each batch (v2) whose offset is outside of it, or not above that of the row before."""
        cdef Py_ssize_t i
        cdef const RecordRow *row
        cdef const BatchRow *batch
        cdef int told = -1
        cdef list found = []
        for i in range(self.view.records_count):
            row = self.view.records + i
            batch = self.view.batches + row.batch
            if batch.magic < 2 or row.batch == told:
                continue
            if batch.base_offset <= row.offset <= batch.last_offset and (i == 0 or row[-1].batch != row.batch or row[-1].offset < row.offset):
                continue
            found.append(i)
            told = row.batch
        return found

    def drop_crowded(self):
        """Drop the rows with more than MOST_HEADERS headers; return (offset, headers, batch) of each."""
        cdef Py_ssize_t i, n = 0
        cdef const RecordRow *row
        cdef list found = []
        for i in range(self.view.records_count):
            row = self.view.records + i
            if row.headers_count > MOST_HEADERS:
                found.append((row.offset, row.headers_count, row.batch))
                continue
            if n != i:
                self.view.records[n] = row[0]
            n += 1
        self.view.records_count = n
        return found

    def overlong_values(self):
        """Return (row, bytes claimed, bytes there) of each message (v0, v1) whose value claims too many bytes.

        Only after `begin(whole)` are there any.
        """
        cdef Py_ssize_t i
        cdef const RecordRow *r
        cdef list found = []
        for i in range(self.view.records_count):
            r = self.view.records + i
            if r.headers_count == VALUE_TOO_LONG:
                found.append((i, r.value_length, self._message_end(r) - r.value_at))
        return found

    cdef Py_ssize_t _message_end(self, const RecordRow *r):
        """Where a message ends, counted from its batch's base."""
        cdef const uint8_t *base = self.view.bases[r.batch]
        cdef int start = r.key_at - 4 - MESSAGE_V1_KEY_LENGTH
        if not self.view.batches[r.batch].attributes & ATTRIBUTE_CODEC:
            return self.view.lengths[r.batch]
        if start < 0 or base[start + MESSAGE_V0_MAGIC] == 0 or be32(base + start + ENTRY_SIZE) < MIN_SIZE:
            start = r.key_at - 4 - MESSAGE_V0_KEY_LENGTH
        return start + OVERHEAD + be32(base + start + ENTRY_SIZE)

    def unknown_controls(self):
        """Return the rows of control records other than plain COMMIT and ABORT markers."""
        cdef Py_ssize_t i
        cdef list found = []
        for i in range(self.view.records_count):
            if is_control(&self.view, self.view.records + i):
                if not is_end_marker(self.view.records + i, self.view.bases[self.view.records[i].batch]):
                    found.append(i)
        return found

    def cut_records(self, Py_ssize_t count):
        """Keep only the first *count* record rows."""
        self.view.records_count = max(0, min(count, self.view.records_count))

    def times(self):
        """Return the largest timestamp of the rows (ms), -1 at least."""
        cdef Py_ssize_t i
        cdef long long largest = -1
        for i in range(self.view.records_count):
            largest = max(largest, self.view.records[i].timestamp)
        return largest

    def keep(self, long long from_offset, long long to_offset, long long from_time, long long to_time, bint controls, KeySet keys):
        """Drop the rows that a filter does not want; return how many stay."""
        cdef Py_ssize_t n
        with nogil:
            n = keep_rows(&self.view, from_offset, to_offset, from_time, to_time, controls, keys)
        return n

    def keep_with_header(self, bytes name not None, bytes value=None):
        """Drop the rows without a header *name*, or without one of that *value*; return how many stay."""
        cdef Py_ssize_t n, name_length = len(name), length = -1
        cdef const uint8_t *wanted = <const uint8_t *>PyBytes_AsString(name)
        cdef const uint8_t *p = wanted
        if value is not None:
            p, length = <const uint8_t *>PyBytes_AsString(value), PyBytes_Size(value)
        with nogil:
            n = keep_with_header(&self.view, wanted, name_length, p, length)
        return n

    def keep_values(self, matches not None):
        """Drop the rows for whose value, a memoryview, *matches* returns nothing, and those without one.

        Returns how many stay.  A view is good until its call returns.
        """
        cdef Py_ssize_t i, n = 0
        cdef const RecordRow *row
        for i in range(self.view.records_count):
            row = self.view.records + i
            if row.value_length < 0:
                continue
            if matches(PyMemoryView_FromMemory(<char *>self.view.bases[row.batch] + row.value_at, row.value_length, 0x100)):
                if n != i:
                    self.view.records[n] = row[0]
                n += 1
        self.view.records_count = n
        return n

    def gaps(self):
        """Return where the rows' offsets do not follow one another, as native pairs of int64 (an offset, the next one)."""
        cdef Py_ssize_t i
        cdef bytearray pairs = bytearray()
        cdef long long pair[2]
        for i in range(1, self.view.records_count):
            pair[0] = self.view.records[i - 1].offset
            pair[1] = self.view.records[i].offset
            if pair[1] != add(pair[0], 1):
                pairs += (<const char *>pair)[:16]
        return bytes(pairs)

    def ends(self):
        """Return the offsets of the first and the last row."""
        if not self.view.records_count:
            raise IndexError("no rows")
        return self.view.records[0].offset, self.view.records[self.view.records_count - 1].offset
