# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False, binding=False, annotation_typing=False
"""Producers and headers of batches, for an audit of all replicas."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

from klog.kernel._window cimport (
    BatchRow, DONE, MORE, RecordRow, SKIPPED, View, Window, last_sequence, read_batch, read_message,
    read_record, unfit,
)
from klog.kernel.crc cimport klog_crc32c_share, klog_moves_init
from klog.kernel.digests cimport WideFactor, sum_factors, sum_words
from klog.kernel.layouts cimport (
    ATTRIBUTE_CODEC, ATTRIBUTE_CONTROL, ATTRIBUTE_LOG_APPEND_TIME, BATCH_ATTRIBUTES, BATCH_BYTES,
    BATCH_MAX_TIMESTAMP, ENTRY_BYTES, ENTRY_MAGIC, ENTRY_SIZE, OVERHEAD,
)
from klog.kernel.numbers cimport add, be32, increment_sequence
from klog.kernel.python cimport PyBytes_AsString, PyBytes_FromStringAndSize, PyBytes_Size, PyMemoryView_FromMemory

include "batch_digests.pxi"

cdef extern from "unistd.h" nogil:
    Py_ssize_t pread(int descriptor, void *to, size_t size, long long position)

cdef extern from "errno.h" nogil:
    int errno

cpdef enum:                      # why a pass stops, besides what `unfit` says
    ENTRY_FULL = 7
    ENTRY_ODD = 8                # a header that makes no sense, or not there
    ENTRY_ERROR = 9              # the system cannot read

cdef enum:
    CODEC_BITS = 3
    ENTRIES = 1 << 12            # 96 KiB: they stay in the nearest caches until they are in the table
    PASS_BYTES = 128 << 10
    PAGE_BYTES = 4 << 10         # the least that a disk reads
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

cdef enum:
    MOST_RUNS = 1 << 20          # of a log: beyond so many, further producers are not followed
    FEWEST_RUN_SLOTS = 64

cdef struct ProducerRun:
    long long producer_id
    long long first_offset, first_position
    int first_sequence, last_sequence
    short epoch

cdef struct SequenceGap:
    long long position, offset, producer_id
    int expected, found
    short epoch


@cython.final
cdef class HeaderPass:
    """Passes over the headers of logs; fills entries of the table of digests and counts the facts of headers.

    *secret*: 16 bytes for the digests; entries that are compared have the same.  `begin` a log, then `read` its file or
    `take` rows of windows, in the order of the log, and `finish`; where they stop with ENTRY_FULL, `entries` have to be
    fetched before it goes on.  One thread at a time.

    The first and the last sequence of each producer and epoch of a log are kept, in the order of their first batches; and
    how many batches do not begin behind the last sequence of theirs.
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
    cdef readonly long long bytes_read       # from files so far
    cdef ProducerRun *runs
    cdef uint32_t *slots                     # number + 1 of a run; 0: free
    cdef Py_ssize_t runs_count, runs_room, slots_count
    cdef long long gaps
    cdef SequenceGap first_gap
    cdef bint runs_overflow                  # there were more than MOST_RUNS, or no memory for them
    cdef uint64_t spread                     # odd and secret: no input can have producers for one slot only

    def __cinit__(self, bytes secret not None):
        if len(secret) != 16:
            raise ValueError(f"a key of {len(secret)} bytes for digests, which take 16")
        sum_factors(<const uint8_t *>PyBytes_AsString(secret), self.factors, KEY_WORDS)
        self.spread = int.from_bytes(secret[:8], "little") | 1
        self.buffer = <uint8_t *>malloc(PASS_BYTES)
        self.batches = <BatchEntry *>malloc((ENTRIES + 2) * sizeof(BatchEntry))  # the last batches of a log need no further call
        if self.buffer == NULL or self.batches == NULL:
            raise MemoryError("no memory for a pass")
        klog_moves_init()  # before several threads ask for it at once
        self._forget_runs()

    def __dealloc__(self):
        free(self.buffer)
        free(self.batches)
        free(self.runs)
        free(self.slots)

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

    def read(self, int descriptor, long long position, long long end, long long most) -> tuple[int, int]:
        """Pass over the headers of an open file from byte *position* up to *end*, where the log ends.

        Returns why it stopped, and where to go on: DONE, at the end; ENTRY_FULL, also when *most* bytes were read;
        ENTRY_ERROR; else what is there is no batch, or none that makes sense, and the batch before it has not been
        taken, because its size may be wrong.
        """
        cdef int status
        cdef long long at = position
        with nogil:
            status = self._read(descriptor, &at, min(end, MOST_POSITION), self.bytes_read + most)
        if status == DONE and end > MOST_POSITION:
            status = ENTRY_ODD
        return status, at

    cdef int _read(self, int descriptor, long long *at, long long end, long long most) noexcept nogil:
        cdef long long loaded = 0, loaded_end = 0, position = at[0]
        cdef const uint8_t *p
        cdef int status = DONE
        cdef Py_ssize_t want, got
        cdef BatchRow *row
        cdef int size = 0
        while position < end:
            if self.batches_count >= ENTRIES or self.bytes_read >= most:
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
                self.bytes_read += max(got, PAGE_BYTES)
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

    # ---- producers

    cdef void _forget_runs(self) noexcept nogil:
        self.runs_count = self.gaps = 0
        self.runs_overflow = False
        if self.slots_count > FEWEST_RUN_SLOTS:
            free(self.slots)
            self.slots, self.slots_count = NULL, 0
        elif self.slots != NULL:
            memset(self.slots, 0, self.slots_count * sizeof(uint32_t))

    cdef inline Py_ssize_t _run_slot(self, long long producer_id, int epoch) noexcept nogil:
        """Return the slot that has a producer's epoch, or the free one where it belongs."""
        cdef uint64_t hashed = (<uint64_t>producer_id << 16 ^ <uint64_t>epoch & 0xFFFF) * self.spread
        cdef Py_ssize_t at = <Py_ssize_t>((hashed ^ hashed >> 32) & <uint64_t>(self.slots_count - 1))
        cdef const ProducerRun *run
        while self.slots[at]:
            run = self.runs + self.slots[at] - 1
            if run.producer_id == producer_id and run.epoch == epoch:
                break
            at = (at + 1) & (self.slots_count - 1)
        return at

    cdef bint _more_runs(self) noexcept nogil:
        """Make room for another run: at most half of the slots are used; False when there is no memory."""
        cdef Py_ssize_t room = max(2 * self.runs_room, FEWEST_RUN_SLOTS // 2), count = 2 * room, i
        cdef void *larger
        cdef uint32_t *slots
        if self.runs_count == MOST_RUNS:
            return False
        if self.runs_count < self.runs_room and self.runs_count < self.slots_count // 2:
            return True
        if self.runs_count < self.runs_room:
            room, count = self.runs_room, max(FEWEST_RUN_SLOTS, 4 * self.runs_count)
            while count & (count - 1):
                count += count & -count
        larger = realloc(self.runs, room * sizeof(ProducerRun))
        if larger == NULL:
            return False
        self.runs, self.runs_room = <ProducerRun *>larger, room
        slots = <uint32_t *>calloc(count, sizeof(uint32_t))
        if slots == NULL:
            return False
        free(self.slots)
        self.slots, self.slots_count = slots, count
        for i in range(self.runs_count):
            self.slots[self._run_slot(self.runs[i].producer_id, self.runs[i].epoch)] = <uint32_t>(i + 1)
        return True

    cdef void _sequence(self, const BatchRow *row) noexcept nogil:
        """Take a data batch that has a producer id and a sequence."""
        cdef Py_ssize_t slot
        cdef ProducerRun *run
        cdef int expected
        if not self._more_runs():
            self.runs_overflow = True
            return
        slot = self._run_slot(row.producer_id, row.producer_epoch)
        if not self.slots[slot]:
            run = self.runs + self.runs_count
            self.runs_count += 1
            self.slots[slot] = <uint32_t>self.runs_count
            run.producer_id, run.epoch = row.producer_id, row.producer_epoch
            run.first_sequence, run.first_offset, run.first_position = row.base_sequence, row.base_offset, row.position
        else:
            run = self.runs + self.slots[slot] - 1
            expected = increment_sequence(run.last_sequence, 1)
            if row.base_sequence != expected:
                if not self.gaps:
                    self.first_gap.position, self.first_gap.offset = row.position, row.base_offset
                    self.first_gap.producer_id, self.first_gap.epoch = row.producer_id, row.producer_epoch
                    self.first_gap.expected, self.first_gap.found = expected, row.base_sequence
                self.gaps += 1
        run.last_sequence = increment_sequence(row.base_sequence, row.last_offset_delta)

    def runs_found(self) -> list[tuple[int, int, int, int, int, int]]:
        """Return (producer id, epoch, first sequence, its offset and position, last sequence) of each, by first batches."""
        cdef Py_ssize_t i
        cdef const ProducerRun *run
        found = []
        for i in range(self.runs_count):
            run = self.runs + i
            found.append((run.producer_id, run.epoch, run.first_sequence, run.first_offset, run.first_position, run.last_sequence))
        return found

    def gaps_found(self) -> tuple[int, tuple[int, int, int, int, int, int] | None]:
        """Return how many gaps there are, and of the first (position, offset, producer id, epoch, expected, found) or None."""
        cdef const SequenceGap *gap = &self.first_gap
        first = (gap.position, gap.offset, gap.producer_id, gap.epoch, gap.expected, gap.found) if self.gaps else None
        return self.gaps, first

    @property
    def has_more_runs(self) -> bool:
        """Whether there were producers that were not followed."""
        return self.runs_overflow


cdef inline void sight(Sighting *seen, const BatchRow *row, long long value) noexcept nogil:
    """Count a batch; of the first its place is kept, of all the greatest *value*."""
    if not seen.count or value > seen.value:
        seen.value = value
    if not seen.count:
        seen.position, seen.offset = row.position, row.base_offset
    seen.count += 1


cdef tuple sighted(const Sighting *seen):
    return seen.count, seen.position, seen.offset, seen.value


# The evidence of records about the topic and the partition for which a batch was meant.

cdef enum:
    SCHEMA_BYTES = 5             # a zero and the id of a schema


cdef extern from "partitions.h" nogil:
    uint32_t murmur2_of "klog_murmur2"(const uint8_t *p, size_t n)


def record_signs(Window window not None, Py_ssize_t first, Py_ssize_t end, int partition, unsigned int partitions,
                 bytes usual=None) -> list[tuple[int, int, int, int, int, int]]:
    """Return (batch, keys, keys of this partition, schema id, values with that id, values) of data batches *first* to *end*.

    The batches have been checked and decompressed; those of v0 and v1, and broken ones, are left out.  A key's partition
    is murmur2's of so many *partitions* (Kafka: BuiltInPartitioner.partitionForKey); 0: keys are not counted.  The schema
    id is that of the first value that begins with one, -1 if none does.  *usual*: int32s of the machine, ascending; left
    out is each batch with a key of this partition and a schema id among them, or none.
    """
    cdef Py_ssize_t i
    cdef int counts[5]
    cdef const int *ids = NULL
    cdef Py_ssize_t ids_count = 0
    cdef bint wanted
    window._range(first, end)
    if usual is not None:
        ids, ids_count = <const int *>PyBytes_AsString(usual), PyBytes_Size(usual) // <Py_ssize_t>sizeof(int)
    found = []
    for i in range(first, end):
        with nogil:
            wanted = signs_of(&window.view, i, partition, partitions, counts)
            if wanted and ids != NULL:
                wanted = (counts[0] and not counts[1]) or (counts[2] >= 0 and not is_among(counts[2], ids, ids_count))
        if wanted:
            found.append((i, counts[0], counts[1], counts[2], counts[3], counts[4]))
    return found


cdef bint is_among(int value, const int *ids, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(count):
        if ids[i] >= value:
            return ids[i] == value
    return False


cdef bint signs_of(const View *v, Py_ssize_t at, int partition, uint32_t partitions, int *counts) noexcept nogil:
    """Fill the five counts of a batch; False if it has none."""
    cdef const BatchRow *batch = v.batches + at
    cdef const uint8_t *base = v.bases[at]
    cdef const uint8_t *end = base + v.lengths[at]
    cdef const uint8_t *p = base + (0 if batch.attributes & ATTRIBUTE_CODEC else BATCH_BYTES)
    cdef RecordRow row
    cdef int i, schema
    counts[0] = counts[1] = counts[3] = counts[4] = 0
    counts[2] = -1
    if batch.state & SKIPPED or batch.magic < 2 or batch.size < BATCH_BYTES or batch.attributes & ATTRIBUTE_CONTROL:
        return False
    for i in range(batch.records_count):
        p = read_record(p, end, base, batch, &row)
        if p == NULL:
            return False
        if partitions and row.key_length >= 0:
            counts[0] += 1
            counts[1] += <int>((murmur2_of(base + row.key_at, row.key_length) & 0x7FFFFFFF) % partitions) == partition
        counts[4] += row.value_length >= 0
        if row.value_length >= SCHEMA_BYTES and not base[row.value_at]:
            schema = be32(base + row.value_at + 1)
            if counts[2] < 0:
                counts[2] = schema
            counts[3] += schema == counts[2]
    return True
