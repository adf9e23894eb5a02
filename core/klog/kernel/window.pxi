# The window, which Python holds: bytes, batch rows, record rows, and the lines and columns that are made of them.

cdef enum:
    SMALLEST_OUTPUT = 4096       # holds any line but those with large keys, values or headers
    JSON_LINES = 0
    CSV_LINES = 1
    TEXT_LINES = 2

cdef long long HIGHEST_FILE = 1 << 62  # bytes beyond a window, so that sums with them cannot overflow

cdef object new_tuple = tuple.__new__
cdef bint heap_is_kept = False


cdef class Window:
    """A stretch of a log in memory, and what was made of it.

    Load bytes into `buffer(n)` and say so with `load`; `scan` appends batch rows; `check` compares checksums; `decompress`
    prepares compressed batches; `begin` and `decode` fill record rows, as many as there is room for, again and again
    until DONE; `lines` and the column methods turn those rows into output.  One thread at a time.
    """

    def __cinit__(self, Py_ssize_t capacity=1 << 20, Py_ssize_t records=8192, Py_ssize_t output=1 << 18):
        import_classes()
        self.data = bytearray(capacity)
        self.payloads = []
        self._reserve_output(max(output, SMALLEST_OUTPUT))
        self._reserve_records(records)
        self._reserve_batches(256)

    def __dealloc__(self):
        free(self.view.batches)
        free(self.view.bases)
        free(self.view.lengths)
        free(self.view.records)

    # ---- the bytes

    def buffer(self, Py_ssize_t size) -> memoryview:
        """Return at least *size* writable bytes for the content of the window.  Earlier rows are gone."""
        self._forget()
        if size > len(self.data):
            self.data = bytearray(size)
        return memoryview(self.data)

    def load(self, long long position, Py_ssize_t size):
        """Mark the first *size* bytes of the buffer as those of the file from *position* on."""
        if not 0 <= size <= len(self.data) or size > 2147483647:
            raise ValueError(f"a window of {size} bytes in a buffer of {len(self.data)}")
        self._forget()
        self.view.data = <const uint8_t *>PyByteArray_AsString(self.data)
        self.view.position = position
        self.view.size = size

    def lend(self, const unsigned char[::1] content not None):
        """Have *content*, which stays where it is, as that of a file from position 0 on: until the next `buffer` or `load`."""
        if content.shape[0] > 2147483647:
            raise ValueError(f"a window of {content.shape[0]} bytes")
        self._forget()
        if content.shape[0]:
            self.lent = content
            self.view.data = &content[0]
        self.view.position = 0
        self.view.size = content.shape[0]

    cdef _forget(self):
        self.view.batches_count = self.view.records_count = self.view.good_count = 0
        self.view.has_producers = False
        self.view.batch = self.view.batch_end = 0
        self.view.size = 0
        self.lent = None
        self.next_at = 0
        self.line_batch = 0
        self.payloads.clear()

    @property
    def position(self) -> int:
        """Bytes from the start of the file to the start of the window."""
        return self.view.position

    @property
    def size(self) -> int:
        """Bytes in the window."""
        return self.view.size

    def copy(self, Py_ssize_t start, Py_ssize_t end) -> bytes:
        """Return a copy of the window's bytes from *start* to *end*."""
        if not 0 <= start <= end <= self.view.size:
            raise IndexError(f"bytes {start} to {end} of a window of {self.view.size}")
        return bytes(self.content()[start:end])

    def content(self) -> memoryview:
        """Return the window's bytes; they count until the next `buffer`."""
        return memoryview(self.data if self.lent is None else self.lent)[:self.view.size]

    def find(self, Py_ssize_t start, Py_ssize_t readable, long long floor, long long ceiling) -> tuple[int, int]:
        """Search from *start* on for an intact entry with an offset from *floor* to *ceiling*.

        *readable*: bytes from the start of the window to the end of the log.  Returns (status, where): DONE, there is
        one; MORE, there may be one but it goes on beyond the window; BAD_LENGTH, there is none before that.
        """
        cdef Py_ssize_t at = start
        cdef int status
        cdef Py_ssize_t stop = min(self.view.size, readable)
        if not 0 <= start <= stop:
            raise IndexError(f"search from {start} in a window of {self.view.size}")
        with nogil:
            status = find_entry(self.view.data, &at, stop, readable, floor, ceiling)
        return status, at

    def entry_holds(self, Py_ssize_t at) -> bool:
        """Whether a whole entry begins at byte *at* of the window, and its checksum holds."""
        cdef const uint8_t *p = self.view.data + at
        cdef uint32_t stored
        if not 0 <= at <= self.view.size or self.view.size - at <= ENTRY_BYTES or unfit(p, self.view.size - at, False) != DONE:
            return False
        stored = <uint32_t>be32(p + (BATCH_CRC if p[ENTRY_MAGIC] == 2 else MESSAGE_V0_CRC))
        return entry_crc(p, p[ENTRY_MAGIC], be32(p + ENTRY_SIZE) + OVERHEAD) == stored

    def zeros(self, Py_ssize_t start) -> bool:
        """Whether all bytes from *start* to the end of the window are zero."""
        cdef Py_ssize_t at = start
        with nogil:
            while at < self.view.size and self.view.data[at] == 0:
                at += 1
        return at >= self.view.size

    # ---- batch rows

    cdef int _reserve_batches(self, Py_ssize_t count) except -1:
        cdef void *batches = realloc(self.view.batches, count * sizeof(BatchRow))
        if batches != NULL:
            self.view.batches = <BatchRow *>batches
        cdef void *bases = realloc(self.view.bases, count * sizeof(uint8_t *))
        if bases != NULL:
            self.view.bases = <const uint8_t **>bases
        cdef void *lengths = realloc(self.view.lengths, count * sizeof(int))
        if lengths != NULL:
            self.view.lengths = <int *>lengths
        if batches == NULL or bases == NULL or lengths == NULL:
            raise MemoryError()
        self.batches_room = count
        return 0

    @property
    def count(self) -> int:
        """Batches found so far."""
        return self.view.batches_count

    def scan(self, Py_ssize_t start, bint lenient=False, Py_ssize_t beyond=0, bint check=False) -> int:
        """Append the batches from *start* on; return why that ended.  `next_at` is where.

        *lenient*: take what Kafka's own tools take (see `unfit`).  *beyond*: so many bytes of the file follow the window;
        a last batch of which they hold a part has a row as well, already skipped: no checksum, no records.
        *check*: compute checksums too, as `check` does, which costs less than doing it afterwards.
        """
        cdef Py_ssize_t at = start
        cdef int status = MORE
        if not 0 <= start <= self.view.size or not 0 <= beyond <= HIGHEST_FILE:
            raise IndexError(f"scan from {start} in a window of {self.view.size} and {beyond} more")
        if not check:
            status = scan_entries(&self.view, &at, self.view.size, min(FEW, self.batches_room), lenient, beyond, check)
        while self.view.batches_count >= FEW or check:
            if self.view.batches_count == self.batches_room:
                self._reserve_batches(2 * self.batches_room)
            if self.view.size - at < SMALL:
                status = scan_entries(&self.view, &at, self.view.size, self.batches_room, lenient, beyond, check)
            else:
                with nogil:
                    status = scan_entries(&self.view, &at, self.view.size, self.batches_room, lenient, beyond, check)
            if self.view.batches_count < self.batches_room:
                break
        self.next_at = at
        return status

    def first_reaching(self, long long offset, Py_ssize_t first=0) -> int:
        """Return the first batch from *first* on whose last offset is *offset* or more, `count` if there is none."""
        cdef Py_ssize_t i
        self._range(first, self.view.batches_count)
        if self.view.batches_count - first < FEW:
            return first_reaching(&self.view, first, offset)
        with nogil:
            i = first_reaching(&self.view, first, offset)
        return i

    def first_as_late(self, long long timestamp, Py_ssize_t first=0) -> int:
        """Return the first batch from *first* on with a largest timestamp of *timestamp* (ms) or more, or `count`."""
        cdef Py_ssize_t i
        self._range(first, self.view.batches_count)
        with nogil:
            i = first_as_late(&self.view, first, timestamp)
        return i

    def latest(self, Py_ssize_t first=0) -> int:
        """Return the largest timestamp that the headers of the batches from *first* on tell (ms), -1 at least."""
        cdef Py_ssize_t i
        cdef long long largest = -1
        self._range(first, self.view.batches_count)
        for i in range(first, self.view.batches_count):
            largest = max(largest, self.view.batches[i].max_timestamp)
        return largest

    def row_at(self, Py_ssize_t at) -> int:
        """Return the batch that begins at byte *at* of the window, -1 if none does."""
        return row_at(&self.view, at)

    def drop(self, Py_ssize_t count):
        """Forget all batches but the first *count*."""
        if not 0 <= count <= self.view.batches_count:
            raise IndexError(f"{count} of {self.view.batches_count} batches")
        self.view.batches_count = count
        self.view.good_count = min(self.view.good_count, count)

    def check(self, Py_ssize_t first, Py_ssize_t end) -> int:
        """Compute the checksums of batches *first* to *end*; return how many do not hold."""
        cdef Py_ssize_t bad
        self._range(first, end)
        if end <= self.view.good_count or first == end:
            return 0
        if end - first == 1 and self.view.batches[first].size < SMALL:
            bad = check_entries(&self.view, first, end)
        else:
            with nogil:
                bad = check_entries(&self.view, first, end)
        if first <= self.view.good_count and not bad:
            self.view.good_count = end
        return bad

    @property
    def all_hold(self) -> bool:
        """Whether there are batches, and the checksum of each is known to hold."""
        return 0 < self.view.batches_count == self.view.good_count

    cdef int _range(self, Py_ssize_t first, Py_ssize_t end) except -1:
        if not 0 <= first <= end <= self.view.batches_count:
            raise IndexError(f"batches {first} to {end} of {self.view.batches_count}")
        return 0

    def first_bad(self, Py_ssize_t first, Py_ssize_t end) -> int:
        """Return the first batch from *first* to *end* whose checksum was computed and does not hold, else *end*."""
        cdef Py_ssize_t i
        self._range(first, end)
        for i in range(max(first, min(self.view.good_count, end)), end):
            if self.view.batches[i].state & (CHECKED | HOLDS | SKIPPED) == CHECKED:
                return i
        return end

    def first_unknown_codec(self, Py_ssize_t first, Py_ssize_t end) -> int:
        """Return the first batch from *first* to *end* with a codec that does not exist, else *end*."""
        cdef Py_ssize_t i
        self._range(first, end)
        for i in range(first, end):
            if self.view.batches[i].attributes & ATTRIBUTE_CODEC > 4:
                return i
        return end

    def batch(self, Py_ssize_t i) -> BatchFacts:
        """Return the facts of batch *i*."""
        cdef BatchRow *b
        self._range(i, i + 1)
        b = self.view.batches + i
        # not through the class: its __new__ is Python, and takes twice as long
        return new_tuple(BatchFacts, (
                b.position, b.base_offset, b.last_offset, b.base_timestamp, b.max_timestamp, b.producer_id, b.size, b.leader_epoch,
                b.crc, b.computed_crc, b.base_sequence, b.last_offset_delta, b.records_count, b.attributes, b.producer_epoch,
                b.magic, (b.state & CHECKED) != 0, (b.state & HOLDS) != 0))

    def at(self, Py_ssize_t i) -> int:
        """Return where batch *i* begins, in bytes from the start of the window."""
        self._range(i, i + 1)
        return self.view.batches[i].at

    def edges(self) -> tuple[int, bytes, bytes]:
        """Return how many batches there are until the format changes, the bytes where they end, their last offsets.

        Both as int64 in the order of this machine; bytes count from the start of the file.
        """
        cdef Py_ssize_t i = 0
        cdef const BatchRow *row
        cdef Py_ssize_t count = self.view.batches_count
        cdef bytes ends = PyBytes_FromStringAndSize(NULL, count * sizeof(long long))
        cdef bytes lasts = PyBytes_FromStringAndSize(NULL, count * sizeof(long long))
        cdef long long *end_at = <long long *>PyBytes_AsString(ends)
        cdef long long *last_at = <long long *>PyBytes_AsString(lasts)
        while i < count and self.view.batches[i].magic == self.view.batches[0].magic:
            row = self.view.batches + i
            end_at[i] = row.position + row.size
            last_at[i] = row.last_offset
            i += 1
        memset(end_at + i, 0, (count - i) * sizeof(long long))
        memset(last_at + i, 0, (count - i) * sizeof(long long))
        return i, ends, lasts

    def skip(self, Py_ssize_t i):
        """Leave batch *i* out of decoding and formatting."""
        self._range(i, i + 1)
        self.view.batches[i].state |= SKIPPED

    def skip_outside(self, long long from_offset, long long to_offset, long long from_time) -> bool:
        """Leave out every batch whose header shows that no record of it lies in the range, but those known to be broken.

        Returns True when a batch at or after *to_offset* was met: nothing later in an ordered log can be wanted.
        """
        return skip_outside(&self.view, from_offset, to_offset, from_time)

    def transactional(self, Py_ssize_t first, Py_ssize_t end) -> list[int]:
        """Return the batches from *first* to *end* that belong to a transaction, markers included."""
        cdef Py_ssize_t i
        self._range(first, end)
        return [i for i in range(first, end) if self.view.batches[i].magic >= 2 and self.view.batches[i].attributes & ATTRIBUTE_TRANSACTIONAL]

    # ---- record rows

    cdef int _reserve_records(self, Py_ssize_t count) except -1:
        self.view.records = <RecordRow *>calloc(count, sizeof(RecordRow))
        if self.view.records == NULL:
            raise MemoryError()
        self.view.records_room = count
        return 0

    def produced(self, Py_ssize_t first, Py_ssize_t end, bint checked=True, Py_ssize_t most=0) -> list[int]:
        """Return the batches from *first* to *end* that have a producer id, and whose checksum was found to hold.

        Without *checked*, whatever their checksums say.  *most*: of data batches that follow each other and are alike in
        producer, epoch and attributes, only the first and the last so many; 0: all.
        """
        self._range(first, end)
        return batches_with_producer(&self.view, first, end, checked, most)

    def decompress(self, Py_ssize_t first, Py_ssize_t end, tuple codecs: tuple[Callable[[memoryview, int], bytes | bytearray], ...], Py_ssize_t budget=2 << 20) -> int:
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
                p = compressed_part(&self.view, b, &length)
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

    def decode(self) -> int:
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

    def first_unsound(self, Py_ssize_t first, Py_ssize_t end) -> int:
        """Return the first batch from *first* to *end* whose records have to be decoded to say what is wrong, else *end*.

        Every record of a batch before it is whole, and its offset is the batch's and above the one before.  Skipped batches
        are passed over, those of messages (v0, v1) never.  Compressed ones have been decompressed.  Fills no rows.
        """
        cdef Py_ssize_t i
        self._range(first, end)
        with nogil:
            i = first_unsound(&self.view, first, end)
        return i

    @property
    def decoding(self) -> int:
        """The batch at which decoding is."""
        return self.view.batch

    @property
    def decoding_record(self) -> int:
        """The record of that batch at which decoding is: its number in the batch, from 0."""
        return self.view.record

    @property
    def records(self) -> int:
        """How many record rows are filled."""
        return self.view.records_count

    def record(self, Py_ssize_t i, bint headers=True) -> tuple[int, int, bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...] | None, int, int]:
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
                record_headers(&self.view, row) if headers else (), record_sequence(batch, row), row.batch)

    cdef object _slice(self, int batch, int at, int length):
        return None if length < 0 else (<const char *>self.view.bases[batch])[at : at + length]

    def raw_headers(self, Py_ssize_t i) -> bytes:
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

    def bad_inner_crcs(self) -> list[int]:
        """Return the rows of messages (v0, v1) inside wrappers whose own checksum does not match."""
        cdef Py_ssize_t i
        if not self.view.has_bad_messages:
            return []
        return [i for i in range(self.view.records_count) if self.view.records[i].headers_at == MESSAGE_BAD]

    def stray_records(self) -> list[int]:
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

    def drop_crowded(self) -> list[tuple[int, int, int]]:
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

    def overlong_values(self) -> list[tuple[int, int, int]]:
        """Return (row, bytes claimed, bytes there) of each message (v0, v1) whose value claims too many bytes.

        Only after `begin(whole)` are there any.
        """
        cdef Py_ssize_t i
        cdef const RecordRow *r
        cdef list found = []
        for i in range(self.view.records_count):
            r = self.view.records + i
            if r.headers_count == VALUE_TOO_LONG:
                found.append((i, r.value_length, message_end(&self.view, r) - r.value_at))
        return found

    def unknown_controls(self) -> list[int]:
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

    def times(self) -> int:
        """Return the largest timestamp of the rows (ms), -1 at least."""
        cdef Py_ssize_t i
        cdef long long largest = -1
        for i in range(self.view.records_count):
            largest = max(largest, self.view.records[i].timestamp)
        return largest

    def keep(self, long long from_offset, long long to_offset, long long from_time, long long to_time, bint controls, KeySet keys: KeySet | None) -> int:
        """Drop the rows that a filter does not want; return how many stay."""
        cdef Py_ssize_t n
        with nogil:
            n = keep_rows(&self.view, from_offset, to_offset, from_time, to_time, controls, keys)
        return n

    def keep_with_header(self, bytes name not None, bytes value=None) -> int:
        """Drop the rows without a header *name*, or without one of that *value*; return how many stay."""
        cdef Py_ssize_t n, name_length = len(name), length = -1
        cdef const uint8_t *wanted = <const uint8_t *>PyBytes_AsString(name)
        cdef const uint8_t *p = wanted
        if value is not None:
            p, length = <const uint8_t *>PyBytes_AsString(value), PyBytes_Size(value)
        with nogil:
            n = keep_with_header(&self.view, wanted, name_length, p, length)
        return n

    def keep_values(self, matches not None: Callable[[memoryview], object]) -> int:
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

    def keep_where(self, matches not None: Callable[[int], object]) -> int:
        """Drop the rows for whose number, as `record` takes it, *matches* returns nothing; return how many stay."""
        cdef Py_ssize_t i, n = 0
        for i in range(self.view.records_count):
            if matches(i):
                if n != i:
                    self.view.records[n] = self.view.records[i]
                n += 1
        self.view.records_count = n
        return n

    def gaps(self) -> bytes:
        """Return where the rows' offsets do not follow one another, as native pairs of int64 (an offset, the next one)."""
        return row_gaps(&self.view)

    def ends(self) -> tuple[int, int]:
        """Return the offsets of the first and the last row."""
        if not self.view.records_count:
            raise IndexError("no rows")
        return self.view.records[0].offset, self.view.records[self.view.records_count - 1].offset

    # ---- lines, in a buffer that is used again once it is `flushed`

    cdef int _reserve_output(self, Py_ssize_t size) except -1:
        self.out = bytearray(size)
        self.out_start = <uint8_t *>PyByteArray_AsString(self.out)
        self.out_room = size
        return 0

    def output(self) -> memoryview:
        """Return the lines that wait; `flushed` makes room again."""
        return memoryview(self.out)[: self.out_used]

    def flushed(self):
        """Mark the output as taken."""
        self.out_used = 0

    def json_lines(self, Py_ssize_t first, bytes origin, int values, Py_ssize_t end=-1, list contents: list[bytes | None] | None=None,
                   list facts: list[bytes] | None=None) -> int:
        """Write rows from *first* (to *end*) as JSON lines; return the first row that found no room any more.

        *values*: how values are shown, a place in VALUES, with BATCH_OFFSETS added for their batches' base offsets.
        *origin*: members for each line; those behind a zero byte end the line.  *contents*: for each of these rows None,
        or JSON in place of its value, and *facts* the members behind that.
        """
        return self._lines(first, self._row_end(end), JSON_LINES, origin, values, contents, facts)

    def csv_lines(self, Py_ssize_t first, bytes origin, int values, Py_ssize_t end=-1) -> int:
        """Write rows from *first* (to *end*) as CSV lines; return the first row that found no room any more."""
        return self._lines(first, self._row_end(end), CSV_LINES, origin, values, None, None)

    cdef Py_ssize_t _row_end(self, Py_ssize_t end):
        return self.view.records_count if end < 0 else min(end, self.view.records_count)

    def text_lines(self, Py_ssize_t first, Py_ssize_t end, int flags, list contents: list[bytes | None] | None=None) -> int:
        """Write rows from *first* to *end* as Kafka's dump tool does, each batch's line before its first row's.

        *contents*: for each row None, or the bytes that follow its metadata.  Returns the first row that found no room.
        """
        if end > self.view.records_count:
            raise IndexError(f"rows to {end} of {self.view.records_count}")
        return self._lines(first, end, TEXT_LINES, b"", flags, contents and contents[first:end], None)

    cdef Py_ssize_t _lines(self, Py_ssize_t first, Py_ssize_t end, int kind, bytes origin, int option, list contents, list facts) except -1:
        cdef LineStyle style
        cdef Py_ssize_t row = first
        cdef long long wanted = 0
        cdef LineContent *found = NULL
        if first < 0:
            raise IndexError(f"row {first}")
        if kind != TEXT_LINES:
            self._all_there()
        set_origin(&style, origin)
        set_values(&style, option if kind == TEXT_LINES else option & ~BATCH_OFFSETS, kind != TEXT_LINES and option & BATCH_OFFSETS)
        try:
            if contents is not None:
                found = line_contents(contents, facts, max(end - first, 0))
            while row < end:
                with nogil:
                    row = self._write(row, end, kind, &style, found, &wanted)
                if row >= end or self.out_used or (kind != TEXT_LINES and self.is_huge(row, origin, option)):
                    break
                self._reserve_output(<Py_ssize_t>wanted)
        finally:
            free(found)
        return row

    cdef int _all_there(self) except -1:
        if self.view.whole and self.overlong_values():
            raise ValueError("a message's value claims more bytes than there are")
        return 0

    cdef Py_ssize_t _write(self, Py_ssize_t row, Py_ssize_t stop, int kind, LineStyle *style, const LineContent *contents,
                           long long *wanted) noexcept nogil:
        cdef Py_ssize_t first = row
        cdef uint8_t *out = self.out_start
        cdef uint8_t *w = out + self.out_used
        cdef uint8_t *end = out + self.out_room
        cdef const RecordRow *r
        cdef const uint8_t *base
        cdef const LineContent *content = NULL
        cdef View *v = &self.view
        while row < stop:
            r = v.records + row
            base = v.bases[r.batch]
            if contents != NULL:
                content = contents + (row - first) if contents[row - first].text != NULL else NULL
            if kind == TEXT_LINES:
                w = self._batch_lines(w, end, r.batch + 1, style.values & TEXT_LAZY)
                if self.line_batch <= r.batch:
                    break
                wanted[0] = text_room(r, base, style.values if content == NULL else 0)
            else:
                wanted[0] = line_room(r, base, style)
            if content != NULL:
                wanted[0] += content.length + content.facts_length
            if wanted[0] > end - w or (kind != TEXT_LINES and wanted[0] > HUGE and huge_parts(r, base, style)):
                break
            if kind == JSON_LINES:
                w = put_json_record(w, v, r, style, content)
            elif kind == CSV_LINES:
                w = put_csv_record(w, v, r, style)
            else:
                w = put_text_record(w, v, r, style.values, content)
                w = put(w, b"\n")
            row += 1
        self.out_used = w - out
        return row

    cdef uint8_t *_batch_lines(self, uint8_t *w, uint8_t *end, Py_ssize_t stop, bint lazy) noexcept nogil:
        """Write the lines of batches up to *stop* that have not been written, as long as there is room before *end*."""
        while self.line_batch < stop and w <= end - BATCH_LINE_ROOM:
            if not self.view.batches[self.line_batch].state & SKIPPED and (not lazy or self.line_batch == stop - 1):
                w = put_batch_line(w, self.view.batches + self.line_batch)
            self.line_batch += 1
        return w

    def is_huge(self, Py_ssize_t i, bytes origin, int values) -> bool:
        """Whether the JSON or CSV line of row *i* is too large to be made in one piece; then `split_line` makes it."""
        cdef LineStyle style
        cdef const RecordRow *r = self.view.records + i
        if not 0 <= i < self.view.records_count or is_control(&self.view, r):
            return False
        style.origin_length = len(origin)
        set_values(&style, values & ~BATCH_OFFSETS, values & BATCH_OFFSETS)
        return line_room(r, self.view.bases[r.batch], &style) > HUGE and huge_parts(r, self.view.bases[r.batch], &style) != 0

    def split_line(self, Py_ssize_t i, bint csv, bytes origin, int values) -> tuple[list[tuple[bytes, str, memoryview | int]], bytes]:
        """Return row *i*'s line in parts: tuples (text, name, content), and the text that ends it.

        The text comes before what is huge: `key` or `value`, its bytes as they stand, or `headers`, how many there are.
        """
        cdef RecordRow *r = self.view.records + i
        cdef RecordRow whole
        cdef LineStyle style
        cdef uint8_t *w
        cdef uint8_t *at
        cdef int huge
        if not 0 <= i < self.view.records_count or self.out_used:
            raise ValueError(f"row {i}, with output of {self.out_used} bytes waiting")
        set_origin(&style, origin)
        set_values(&style, values & ~BATCH_OFFSETS, values & BATCH_OFFSETS)
        whole, huge = r[0], huge_parts(r, self.view.bases[r.batch], &style)
        if huge & HUGE_KEY:
            r.key_length = -1
        if huge & HUGE_VALUE:
            r.value_length = -1
        if huge & HUGE_HEADERS:
            r.headers_count = 0
        try:
            self._reserve_output(max(self.out_room, <Py_ssize_t>line_room(r, self.view.bases[r.batch], &style)))
            w = put_csv_record(self.out_start, &self.view, r, &style) if csv else put_json_record(self.out_start, &self.view, r, &style, NULL)
        finally:
            r[0] = whole
        parts, at = [], self.out_start
        if huge & HUGE_KEY:
            parts.append(((<char *>at)[: style.key_at - at], "key", self._bytes(r, r.key_at, r.key_length)))
            at = style.key_at + (2 if csv else len(b',"key":null'))
        if huge & HUGE_VALUE:
            parts.append(((<char *>at)[: style.value_at - at], "value", self._bytes(r, r.value_at, r.value_length)))
            at = style.value_at + (2 if csv else len(b',"value":null'))
        if huge & HUGE_HEADERS:
            parts.append(((<char *>at)[: style.headers_at - at], "headers", r.headers_count))
            at = style.headers_at + (0 if csv else len(b"[]"))
        return parts, (<char *>at)[: w - at]

    cdef object _bytes(self, const RecordRow *r, int at, int length):
        return None if length < 0 else PyMemoryView_FromMemory(<char *>self.view.bases[r.batch] + at, length, 0x100)

    def headers_from(self, Py_ssize_t i, int number, int at, int values) -> tuple[int, int]:
        """Write row *i*'s headers from *number* on, which begins at byte *at* of them, as they stand in a line's JSON.

        Returns the number and the byte of the first one that finds no room any more.
        """
        cdef const RecordRow *r = self.view.records + i
        cdef RecordRow one
        cdef const uint8_t *base
        cdef const uint8_t *p
        cdef uint8_t *w = self.out_start + self.out_used
        cdef uint8_t *end = self.out_start + self.out_room
        if not 0 <= i < self.view.records_count or not 0 <= number <= r.headers_count:
            raise IndexError(f"header {number} of row {i}")
        with nogil:
            base, one = self.view.bases[r.batch], r[0]
            p = base + r.headers_at + at
            one.headers_count = 1
            while number < r.headers_count:
                one.headers_at = <int>(p - base)
                if headers_room(&one, base) > end - w:
                    break
                w = put(w, b",[") if number else put(w, b"[")
                w = put_header(w, &p, values)
                number += 1
            self.out_used = w - self.out_start
        return number, p - base - r.headers_at

    def header_at(self, Py_ssize_t i, int at) -> tuple[memoryview, memoryview | None, int]:
        """Return key and value of the header that begins at byte *at* of row *i*'s, and where the next one begins."""
        cdef const RecordRow *r = self.view.records + i
        cdef const uint8_t *base
        cdef const uint8_t *p
        cdef int key_length = 0, value_length = 0
        cdef int key_at
        if not 0 <= i < self.view.records_count or at < 0:
            raise IndexError(f"row {i}")
        base = self.view.bases[r.batch]
        p = base + r.headers_at + at
        p = varint(p, p + 5, &key_length)
        key_at = <int>(p - base)
        p = varint(p + key_length, p + key_length + 5, &value_length)
        key = self._bytes(r, key_at, key_length)
        value = self._bytes(r, <int>(p - base), value_length)
        return key, value, p - base - r.headers_at + max(value_length, 0)

    def batch_lines(self, Py_ssize_t stop, int flags=0) -> bool:
        """Write the text lines of the batches before *stop* that have none yet; True when all are written."""
        cdef uint8_t *w
        if stop > self.view.batches_count:
            raise IndexError(f"batch {stop} of {self.view.batches_count}")
        if flags & TEXT_LAZY:
            self.line_batch = max(self.line_batch, stop)
            return True
        with nogil:
            w = self._batch_lines(self.out_start + self.out_used, self.out_start + self.out_room, stop, False)
            self.out_used = w - self.out_start
        return self.line_batch >= stop

    def batch_head(self, Py_ssize_t i) -> bytes:
        """Return the part of batch *i*'s text line that Kafka's tool writes first (bytes)."""
        cdef uint8_t line[BATCH_LINE_ROOM]
        self._range(i, i + 1)
        self.line_batch = i + 1
        return (<char *>line)[: put_batch_head(line, self.view.batches + i) - line]

    def batch_rows(self, Py_ssize_t first, Py_ssize_t end, bint csv, bytes origin) -> int:
        """Write batches *first* to *end* as JSON (or CSV) lines; return the first that found no room any more."""
        cdef LineStyle style
        cdef uint8_t *w
        cdef uint8_t *stop
        self._range(first, end)
        set_origin(&style, origin)
        with nogil:
            w = self.out_start + self.out_used
            stop = self.out_start + self.out_room
            while first < end and stop - w >= LINE_ROOM + style.origin_length:
                if not self.view.batches[first].state & SKIPPED:
                    w = put_csv_batch(w, self.view.batches + first, &style) if csv else put_json_batch(w, self.view.batches + first, &style)
                first += 1
            self.out_used = w - self.out_start
        return first

    # ---- columns: buffers of Arrow arrays in which *first* rows stand already.  The first offset of all is the caller's: 0.

    def numbers(self, int column, int width, unsigned char[::1] out: Buffer | None, unsigned char[::1] validity: Buffer | None, Py_ssize_t first=0) -> int:
        """Write a number of each row (which, the order of COLUMNS tells); return how many are none.

        *width*: bytes of a number; 0: only *validity* is wanted.  *validity*: a bit a row, or None.
        """
        cdef Py_ssize_t rows = first + self.view.records_count, nulls
        if not 0 <= column <= COLUMN_BATCH or width not in (0, 1, 2, 4, 8) or first < 0:
            raise ValueError(f"column {column} in {width} bytes a number behind {first} rows")
        if (width and (out is None or out.shape[0] < width * rows)) or (validity is not None and validity.shape[0] * 8 < rows):
            raise ValueError("a buffer is too small")
        if not self.view.records_count:
            return 0
        with nogil:
            nulls = fill_numbers(&self.view, column, width, &out[0] if width else NULL, &validity[0] if validity is not None else NULL, first)
        return nulls

    def content_sizes(self) -> tuple[int, int, int, int, int]:
        """Return the bytes of all keys and of all values, how many headers there are, the bytes of their keys and values."""
        cdef Sizes sizes
        measure(&self.view, &sizes)
        return sizes.keys, sizes.values, sizes.headers, sizes.header_keys, sizes.header_values

    def binary(self, bint values, unsigned char[::1] data not None, int[::1] offsets not None, unsigned char[::1] validity not None,
               Py_ssize_t first=0) -> int:
        """Copy all keys (or all values) into the buffers of an Arrow binary array; return how many are null."""
        cdef Py_ssize_t nulls = -1, rows = first + self.view.records_count, room = min(data.shape[0], 0x7FFFFFFF)
        self._all_there()
        if first >= 0 and room and offsets.shape[0] > rows and validity.shape[0] * 8 > rows and 0 <= offsets[first] <= room:
            with nogil:
                nulls = fill_binary(&self.view, values, &data[0], room, &offsets[0], &validity[0], first)
        if nulls < 0:
            raise ValueError("a buffer is too small")
        return nulls

    def headers(self, int[::1] lists not None, unsigned char[::1] keys not None, int[::1] key_offsets not None,
                unsigned char[::1] values not None, int[::1] value_offsets not None, unsigned char[::1] validity not None,
                Py_ssize_t first=0, unsigned char[::1] present=None) -> int:
        """Copy all headers into the buffers of Arrow arrays; return how many values are null.

        *present*: a bit a row, whether it has headers, or None.
        """
        cdef Py_ssize_t nulls
        cdef Sizes sizes
        measure(&self.view, &sizes)
        if first < 0 or lists.shape[0] <= first + self.view.records_count or lists[first] < 0:
            raise ValueError("a buffer is too small")
        cdef long long count = sizes.headers + lists[first]
        if key_offsets.shape[0] <= count or value_offsets.shape[0] <= count or validity.shape[0] * 8 <= count:
            raise ValueError("a buffer is too small")
        if present is not None and present.shape[0] * 8 <= first + self.view.records_count:
            raise ValueError("a buffer is too small")
        fits(keys.shape[0], key_offsets[lists[first]], sizes.header_keys)
        fits(values.shape[0], value_offsets[lists[first]], sizes.header_values)
        with nogil:
            nulls = fill_headers(&self.view, &lists[0], &keys[0], &key_offsets[0], &values[0], &value_offsets[0], &validity[0],
                                 &present[0] if present is not None else NULL, first)
        return nulls
