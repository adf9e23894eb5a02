# One pass over the headers of a log: what tells each batch from others, and what headers say for nothing.

cdef extern from "unistd.h" nogil:
    Py_ssize_t pread(int descriptor, void *to, size_t size, long long position)

cdef extern from "errno.h" nogil:
    int errno

cdef packed struct BatchEntry:   # a batch in the table of digests
    uint64_t digest
    uint32_t log                 # number of its log
    uint32_t position            # bytes from the start of the log
    uint32_t crc                 # of a CreateTime batch without its largest timestamp
    uint32_t tag                 # its number among the data batches of the log, and its codec

cpdef enum:                      # why a pass stops, besides what `unfit` says
    ENTRY_FULL = 7
    ENTRY_ODD = 8                # a header that makes no sense, or not there
    ENTRY_ERROR = 9              # the system cannot read

cdef enum:
    CODEC_BITS = 3
    ENTRIES = 1 << 12            # 96 KiB: they stay in the nearest caches until they are in the table
    PASS_BYTES = 128 << 10
    SPARSE_BYTES = 4 << 10       # of batches as large as this reading the headers alone costs less than reading all
    MOST_POSITION = 0x7FFFFFFF   # no broker writes a larger log
    KEY_WORDS = 4
    ANONYMOUS_WORDS = 2

cdef struct Sighting:            # of something that headers show: how often, and where first
    long long count, position, offset, value

cdef struct HeaderFacts:
    long long data_batches, control_batches, records, bytes, single, earliest, first_offset, last_offset
    long long legacy, legacy_bytes, legacy_latest
    long long codecs[8]
    Sighting future, past, oversized
    bint has_append_time

cdef inline int positive_bit(int attributes) noexcept nogil:
    return attributes & ATTRIBUTE_LOG_APPEND_TIME


@cython.final
cdef class HeaderPass(ProducerRuns):
    """Passes over the headers of logs; fills entries of the table of digests and counts what headers tell.

    *secret*: 16 bytes for the digests; entries that are compared have the same.  `begin` a log, then `read` its file or
    `take` rows of windows, in the order of the log, and `finish`; where they stop with ENTRY_FULL, `entries` have to be
    fetched before it goes on.  One thread at a time.
    """

    cdef WideFactor factors[KEY_WORDS + 1]
    cdef uint8_t *buffer
    cdef BatchEntry *batches
    cdef Py_ssize_t batches_count
    cdef uint32_t log
    cdef long long from_offset, to_offset, floor, latest, retention, largest
    cdef long long next_offset, before       # largest timestamp of the batch before the one that waits, -1: none
    cdef bint waits                          # `waiting` is to be taken once the header behind it is known to be one
    cdef BatchRow *waiting
    cdef BatchRow rows[2]                    # one waits, the next is read
    cdef HeaderFacts facts
    cdef readonly int error                  # errno of a read that failed

    def __cinit__(self, bytes secret not None):
        if len(secret) != 16:
            raise ValueError(f"a key of {len(secret)} bytes for digests, which take 16")
        sum_factors(<const uint8_t *>PyBytes_AsString(secret), self.factors, KEY_WORDS)
        self.spread = int.from_bytes(secret[:8], "little") | 1
        self.buffer = <uint8_t *>malloc(PASS_BYTES)
        self.batches = <BatchEntry *>malloc((ENTRIES + 2) * sizeof(BatchEntry))  # the last batches of a log come without asking
        if self.buffer == NULL or self.batches == NULL:
            raise MemoryError("no memory for a pass")
        klog_moves_init()  # before several threads ask for it at once
        self._forget_runs()

    def __dealloc__(self):
        free(self.buffer)
        free(self.batches)

    def begin(self, unsigned int log, long long from_offset, long long to_offset, long long floor, long long latest,
              long long retention, long long largest):
        """Begin a log, by its number.  Batches with a base offset of *from_offset* up to *to_offset* are passed over.

        *floor*: nothing is sighted in batches that end below that offset.  *latest*: greater timestamps (ms) are in the future.  *retention*: ms, -1 for ever.  *largest*: bytes of a batch.
        """
        self._forget_runs()
        memset(&self.facts, 0, sizeof(HeaderFacts))
        self.facts.earliest = self.facts.first_offset = self.facts.last_offset = self.facts.legacy_latest = -1
        self.log, self.from_offset, self.to_offset, self.floor = log, from_offset, to_offset, floor
        self.latest, self.retention, self.largest = latest, retention, largest
        self.next_offset, self.before, self.waits, self.waiting = 0, -1, False, self.rows

    def read(self, int descriptor, long long position, long long end) -> tuple[int, int]:
        """Pass over the headers of an open file from byte *position* up to *end*, where the log ends.

        Returns why it stopped, and where to go on: DONE, at the end; ENTRY_FULL; ENTRY_ERROR; else what is there is no
        batch, or none that makes sense, and the batch before it has not been taken, because its size may be wrong.
        """
        cdef int status
        cdef long long at = position
        with nogil:
            status = self._read(descriptor, &at, min(end, MOST_POSITION))
        if status == DONE and end > MOST_POSITION:
            status = ENTRY_ODD
        return status, at

    cdef int _read(self, int descriptor, long long *at, long long end) noexcept nogil:
        cdef long long loaded = 0, loaded_end = 0, position = at[0]
        cdef const uint8_t *p
        cdef int status = DONE
        cdef Py_ssize_t want, got
        cdef BatchRow *row
        cdef int size = 0
        while position < end:
            if self.batches_count >= ENTRIES:
                status = ENTRY_FULL
                break
            want = min(BATCH_BYTES, end - position)
            if position < loaded or position + want > loaded_end:
                size = BATCH_BYTES if self.waits and self.waiting.size >= SPARSE_BYTES else PASS_BYTES
                got = pread(descriptor, self.buffer, min(size, end - position), position)
                if got < 0:
                    self.error = errno
                    status = ENTRY_ERROR
                    break
                loaded, loaded_end = position, position + got
                if got < want:
                    status = ENTRY_ODD  # it has shrunk
                    break
            p = self.buffer + (position - loaded)
            status = unfit(p, end - position, False) if end - position > ENTRY_BYTES else MORE
            if status != DONE:
                break
            row = self._other_row()
            if not self._is_sound(p, position, row):
                status = ENTRY_ODD
                break
            self._settle(row.max_timestamp)
            self.waiting, self.waits = row, True
            self.next_offset = add(row.last_offset, 1)
            position += row.size
        at[0] = position
        if status == DONE and position == end:
            self._settle(-1)
        elif status != ENTRY_FULL and self.waits:
            at[0], self.waits = self.waiting.position, False
        return status

    cdef inline BatchRow *_other_row(self) noexcept nogil:
        """Return the row that does not wait."""
        return self.rows + (self.waiting == self.rows)

    cdef inline bint _is_sound(self, const uint8_t *p, long long position, BatchRow *row) noexcept nogil:
        """Fill the row of the header at *p*; False if no broker has written it behind the batch before it."""
        row.position, row.size, row.magic = position, be32(p + ENTRY_SIZE) + OVERHEAD, p[ENTRY_MAGIC]
        if row.magic < 2:
            read_message(p, row)
            return row.base_offset >= self.next_offset
        read_batch(p, row)
        return (row.base_offset >= self.next_offset and row.last_offset_delta >= 0
                and row.last_offset >= row.base_offset
                and not row.attributes & ~0x7F and row.attributes & ATTRIBUTE_CODEC <= 4
                and 0 <= row.records_count <= <long long>row.last_offset_delta + 1
                and row.producer_id >= -1 and row.producer_epoch >= -1 and row.base_sequence >= -1)

    def take(self, Window window not None, Py_ssize_t first, Py_ssize_t end) -> int:
        """Take rows of a window, batches that are intact; return the first that is not taken, *end* for none."""
        cdef Py_ssize_t i = first
        window._range(first, end)
        with nogil:
            while i < end and self.batches_count < ENTRIES:
                self._settle(window.view.batches[i].max_timestamp)
                self.waiting, self.waits = self._other_row(), True
                self.waiting[0] = window.view.batches[i]
                i += 1
        return i

    def finish(self):
        """Take the last batch of `take`."""
        self._settle(-1)

    cdef inline void _settle(self, long long following) noexcept nogil:
        """Take the batch that waits; *following*: the largest timestamp of the one behind it, -1 for none."""
        cdef const BatchRow *row = self.waiting
        if not self.waits:
            return
        self.waits = False
        if not self.from_offset <= row.base_offset < self.to_offset:
            self._take(row, following)
        self.before = row.max_timestamp

    cdef void _take(self, const BatchRow *row, long long following) noexcept nogil:
        cdef HeaderFacts *facts = &self.facts
        cdef BatchEntry *entry
        cdef long long around
        if row.magic >= 2 and row.attributes & ATTRIBUTE_CONTROL:
            facts.control_batches += 1
            return
        entry = self.batches + self.batches_count
        self.batches_count += 1
        entry.digest, entry.crc = self._digest(row)
        entry.log, entry.position = self.log, <uint32_t>row.position
        entry.tag = <uint32_t>(facts.data_batches << CODEC_BITS | row.attributes & ATTRIBUTE_CODEC)
        if not facts.data_batches:
            facts.first_offset = row.base_offset
        facts.last_offset = row.last_offset
        facts.data_batches += 1
        facts.bytes += row.size
        facts.codecs[row.attributes & ATTRIBUTE_CODEC] += 1
        facts.records += max(row.records_count, 0)
        facts.has_append_time |= row.magic > 0 and positive_bit(row.attributes) != 0
        if row.base_timestamp >= 0 and (facts.earliest < 0 or row.base_timestamp < facts.earliest):
            facts.earliest = row.base_timestamp
        if row.magic < 2:
            facts.legacy += 1
            facts.legacy_bytes += row.size
            facts.legacy_latest = max(facts.legacy_latest, row.max_timestamp)
        elif row.producer_id >= 0 and row.base_sequence >= 0:
            self._sequence(row)
        facts.single += row.records_count == 1 and row.last_offset_delta == 0
        if row.last_offset < self.floor:
            return
        if row.max_timestamp > self.latest:
            sight(&facts.future, row, row.max_timestamp)
        if row.size > self.largest:
            sight(&facts.oversized, row, row.size)
        around = min(self.before, following) if self.before >= 0 and following >= 0 else max(self.before, following)
        if self.retention >= 0 and 0 <= row.base_timestamp < around - self.retention:
            sight(&facts.past, row, -row.base_timestamp)

    cdef (uint64_t, uint32_t) _digest(self, const BatchRow *row) noexcept nogil:
        """Return the digest of what a broker never rewrites, and the CRC as it would be without what it may.

        A broker that sets the time of the append changes the largest timestamp, a bit of the attributes and the CRC; one
        that recompresses changes size and CRC.  Without a producer id the latter's batches are not comparable.
        """
        cdef uint64_t key[KEY_WORDS]
        cdef uint32_t crc = row.crc if row.magic < 2 else self._stable_crc(row)
        key[1] = <uint64_t>row.base_timestamp
        if row.producer_id < 0:  # the CRC stands for the rest
            key[0] = <uint64_t>1 << 63 | <uint64_t>row.size << 32 | crc
            return sum_words(self.factors, key, ANONYMOUS_WORDS), crc
        key[0] = <uint64_t>row.producer_id
        key[2] = <uint64_t><uint32_t>row.base_sequence << 32 | <uint32_t>row.records_count
        key[3] = <uint64_t><uint32_t>row.last_offset_delta << 32 | <uint32_t>(row.producer_epoch & 0xFFFF)
        return sum_words(self.factors, key, KEY_WORDS), crc

    cdef inline uint32_t _stable_crc(self, const BatchRow *row) noexcept nogil:
        """The CRC of a batch if its largest timestamp were 0 and its time that of the producer: CRCs are linear."""
        cdef uint32_t crc = row.crc ^ klog_crc32c_share(<uint64_t>row.max_timestamp, row.size - BATCH_MAX_TIMESTAMP - 8)
        if positive_bit(row.attributes):
            crc ^= klog_crc32c_share(<uint64_t>positive_bit(row.attributes), row.size - BATCH_ATTRIBUTES - 2)
        return crc

    def entries(self) -> bytes:
        """Return the entries since the last call, 24 bytes each (see BatchEntry), in the machine's byte order."""
        cdef Py_ssize_t count = self.batches_count
        self.batches_count = 0
        return PyBytes_FromStringAndSize(<const char *>self.batches, count * sizeof(BatchEntry))

    def facts_found(self) -> tuple[object, ...]:
        """Return what was counted of the log: the numbers of HeaderFacts, codecs and sightings as tuples."""
        cdef const HeaderFacts *f = &self.facts
        return (
            f.data_batches, f.control_batches, f.records, f.bytes, f.single, f.earliest, f.first_offset, f.last_offset,
            f.legacy, f.legacy_bytes, f.legacy_latest, bool(f.has_append_time), tuple([f.codecs[i] for i in range(8)]),
            sighted(&f.future), sighted(&f.past), sighted(&f.oversized),
        )


cdef inline void sight(Sighting *seen, const BatchRow *row, long long value) noexcept nogil:
    """Count a batch; of the first its place is kept, of all the greatest *value*."""
    if not seen.count or value > seen.value:
        seen.value = value
    if not seen.count:
        seen.position, seen.offset = row.position, row.base_offset
    seen.count += 1


cdef tuple sighted(const Sighting *seen):
    return seen.count, seen.position, seen.offset, seen.value
