# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False, binding=False, annotation_typing=False
"""Transactions: which batches count, when each began and ended, and the latest records that were committed."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from klog.kernel._window cimport BatchRow, RecordRow, SKIPPED, View, WITHOUT_DATA, Window, is_control, is_end_marker, read_record
from klog.kernel.layouts cimport (
    ATTRIBUTE_CODEC, ATTRIBUTE_CONTROL, ATTRIBUTE_DELETE_HORIZON, ATTRIBUTE_TRANSACTIONAL, BATCH_BYTES,
    CONTROL_COMMIT, CONTROL_KEY_TYPE, END_MARKER_COORDINATOR_EPOCH, STATE_STATUS,
)
from klog.kernel.numbers cimport add, be16, be32, be64, put64
from klog.kernel.python cimport PyBytes_AsString, PyBytes_FromStringAndSize

cdef class OpenTransactions:
    """The producers whose data has been seen of a transaction that has not ended, as far as batches have been taken.

    *committed*: with data that counts.  *aborted*: whose transaction will end in ABORT, kept by the caller.  *with_data*: those of
    *aborted* whose data has been seen.  *special*: producers whose markers `take` leaves alone.  *begins*: the first offset of
    the next transaction that has to be moved into *aborted*.
    """

    cdef readonly set committed, with_data, special  #: set[int]
    cdef readonly dict aborted  #: Mapping[int, tuple[int, int, int, int, int]]
    cdef public long long begins

    def __cinit__(self, dict aborted not None: Mapping[int, tuple[int, int, int, int, int]], special: Iterable[int]=()):
        self.committed, self.with_data, self.special, self.aborted = set(), set(), set(special), aborted
        self.begins = 0x7FFFFFFFFFFFFFFF

    def take(self, Window window not None, Py_ssize_t first, bytearray decisions=None, long long now=-1) -> int:
        """Take batches from *first* on; return the first that is for the caller, or `count`.

        Those are: where an aborted transaction begins; all markers but sound COMMITs.  Skipped are aborted data, and markers
        that nothing needs any more: their delete horizon is not above *now* (ms; below zero: they are for the caller).
        *decisions*: where it is noted that a marker's data is gone, as for a Rewriter; None: all markers are skipped.
        """
        cdef Py_ssize_t i
        cdef BatchRow *row
        cdef long long known = -1    # a producer that is in *committed* for certain
        cdef object producer
        window._range(first, window.view.batches_count)
        if decisions is not None and len(decisions) < window.view.batches_count:
            raise ValueError("room for a decision about each batch is wanted")
        for i in range(first, window.view.batches_count):
            row = window.view.batches + i
            if row.magic < 2 or not row.attributes & ATTRIBUTE_TRANSACTIONAL:
                continue
            if row.last_offset >= self.begins:
                return i
            if not row.attributes & ATTRIBUTE_CONTROL:
                if row.producer_id == known and known >= 0:
                    continue
                producer = row.producer_id
                if producer in self.aborted:
                    self.with_data.add(producer)
                    row.state |= SKIPPED
                else:
                    self.committed.add(producer)
                    known = row.producer_id
                continue
            producer = row.producer_id
            if producer in self.special or not commits(window.view.data + row.at, row):
                return i
            if decisions is None:
                self.committed.discard(producer)
                row.state |= SKIPPED
            elif producer in self.committed:
                self.committed.discard(producer)
            elif now < 0:
                return i
            else:
                decisions[i] |= WITHOUT_DATA
                if row.attributes & ATTRIBUTE_DELETE_HORIZON and row.base_timestamp <= now:
                    row.state |= SKIPPED
            known = -1
        return window.view.batches_count


cdef bint commits(const uint8_t *p, const BatchRow *batch) noexcept nogil:
    """Whether a control batch is a plain COMMIT in every respect."""
    cdef RecordRow record
    return is_plain_marker(p, batch, &record) and be16(p + record.key_at + CONTROL_KEY_TYPE) == CONTROL_COMMIT


cdef bint is_plain_marker(const uint8_t *p, const BatchRow *batch, RecordRow *record) noexcept nogil:
    """Whether a control batch, all of which is at *p*, is a plain marker in every respect; then *record* is its record."""
    if batch.attributes & ATTRIBUTE_CODEC or batch.records_count != 1:
        return False
    if read_record(p + BATCH_BYTES, p + batch.size, p, batch, record) != p + batch.size:
        return False
    return is_end_marker(record, p)


# Transactions in the headers of a log's batches, and their coordinator's records.

cdef struct Span:
    long long producer_id
    long long first_offset
    long long last_offset
    long long records
    long long began              # largest timestamp of the first batch, ms
    long long latest             # … of all batches
    int epoch


cdef class TransactionSpans:
    """The transactions of a partition, as far as its batches have been taken.

    *ended*: of those with a marker the facts as in `open` (first offset −1: no data is known), then the marker: 1 for COMMIT,
    its offset, timestamp, producer epoch and coordinator epoch.  The caller empties it.
    """

    cdef public list ended  #: list[tuple[int, ...]]
    cdef Span *spans
    cdef Py_ssize_t count, room
    cdef dict places             # producer id → where its span is

    def __cinit__(self):
        self.places, self.ended = {}, []

    def __dealloc__(self):
        free(self.spans)

    def take(self, Window window not None, Py_ssize_t first, Py_ssize_t end) -> int:
        """Take batches from *first* to *end*; return the first control batch that is no plain marker, or not all there."""
        cdef Py_ssize_t i
        cdef const BatchRow *row
        cdef const uint8_t *p
        cdef RecordRow marker
        cdef Span *span = NULL
        window._range(first, end)
        for i in range(first, end):
            row = window.view.batches + i
            if row.magic < 2 or row.producer_id < 0:
                continue
            if row.attributes & ATTRIBUTE_CONTROL:
                p = window.view.data + row.at
                if row.size > window.view.size - row.at or not is_plain_marker(p, row, &marker):
                    return i
                self.end(row.producer_id, be16(p + marker.key_at + CONTROL_KEY_TYPE), row.base_offset, marker.timestamp, row.producer_epoch,
                         be32(p + marker.value_at + END_MARKER_COORDINATOR_EPOCH))
                span = NULL
                continue
            if not row.attributes & ATTRIBUTE_TRANSACTIONAL:
                continue
            if span == NULL or span.producer_id != row.producer_id:
                span = self._span(row)
            span.last_offset = row.last_offset
            span.records += max(row.records_count, 0)
            span.latest = max(span.latest, row.max_timestamp)
            span.epoch = row.producer_epoch
        return end

    cdef Span *_span(self, const BatchRow *row) except NULL:
        cdef Span *larger
        cdef Py_ssize_t place = self.places.get(row.producer_id, -1)
        if place >= 0:
            return self.spans + place
        if self.count == self.room:
            larger = <Span *>realloc(self.spans, (2 * self.room + 4) * sizeof(Span))
            if larger == NULL:
                raise MemoryError("no memory for open transactions")
            self.spans, self.room = larger, 2 * self.room + 4
        place = self.count
        self.places[row.producer_id] = place
        self.count += 1
        larger = self.spans + place
        larger.producer_id, larger.first_offset, larger.records = row.producer_id, row.base_offset, 0
        larger.began = larger.latest = row.max_timestamp
        return larger

    def end(self, long long producer_id, *marker: int):
        """Put the transaction of a producer among those that have *ended*, with the facts of its marker."""
        cdef Py_ssize_t place = self.places.pop(producer_id, -1)
        if place < 0:
            self.ended.append((producer_id, -1, -1, -1, 0, -1, -1, *marker))
            return
        self.ended.append((*self._facts(place), *marker))
        self.count -= 1
        if place != self.count:
            self.spans[place] = self.spans[self.count]
            self.places[self.spans[place].producer_id] = place

    @property
    def open(self) -> list[tuple[int, ...]]:
        """The facts of each: producer id, epoch, first offset, last offset, records, time of its first and of its latest batch."""
        cdef Py_ssize_t i
        return [self._facts(i) for i in range(self.count)]

    cdef tuple _facts(self, Py_ssize_t i):
        cdef Span *span = self.spans + i
        return (span.producer_id, span.epoch, span.first_offset, span.last_offset, span.records, span.began, span.latest)


def transaction_states(Window window not None, int statuses) -> list[tuple[int, int, bytes, bytes]]:
    """Return offset, timestamp, key and value of the record rows that are in one of *statuses*: a bit a TransactionStatus.

    The rows are of `__transaction_state`.
    """
    cdef const View *v = &window.view
    cdef const RecordRow *row
    cdef const uint8_t *base
    cdef Py_ssize_t i
    cdef list found = []
    for i in range(v.records_count):
        row = v.records + i
        base = v.bases[row.batch]
        if (row.key_length < 0 or row.value_length < STATE_STATUS + 1 or not 0 <= base[row.value_at + STATE_STATUS] < 16
                or not statuses >> base[row.value_at + STATE_STATUS] & 1 or is_control(v, row)):
            continue
        found.append((row.offset, row.timestamp, (<const char *>base + row.key_at)[:row.key_length],
                      (<const char *>base + row.value_at)[:row.value_length]))
    return found


# The latest record of each key, as a coordinator has it in memory when it has loaded its log.


cdef enum:
    PACKED = 16                  # bytes of offset and timestamp in front of a value
    BYTES_PER_KEY = 16           # the fewest that a key has on a disk: compressed, a record of a coordinator takes more
    FEWEST_KEYS = 1 << 18        # that are kept of a log, however few bytes it has


cdef inline long long commit_time(const uint8_t *value, int length) noexcept nogil:
    """The commit timestamp (ms) in a value of an offset commit, -1 where it has none.  Kafka: OffsetCommitValue."""
    cdef int version, at, size
    if length < 2:
        return -1
    version, at = be16(value), 10
    if not 0 <= version <= 4:
        return -1
    if version >= 3:
        at += 4
    if version < 4:
        if at + 2 > length:
            return -1
        size = max(be16(value + at), 0)
        at += 2
    else:
        size, version = 0, 0
        while True:
            if at >= length or version > 28:
                return -1
            size |= <int>(<uint32_t>(value[at] & 0x7F) << version)
            version += 7
            at += 1
            if value[at - 1] < 0x80:
                break
        size = max(size - 1, 0)
    if size > length - at or length - at - size < 8:
        return -1
    return be64(value + at + size)


cdef class LatestRecords:
    """The latest value of each key among the records that `take` gets, in the order of their log.

    Records of a transaction count once its COMMIT comes, each unless the key has a later record by then; a tombstone
    also removes what waits for a marker.  Kafka: OffsetMetadataManager.replay, replayEndTransactionMarker.

    *until*: records written at this time (ms) or later do not count; *commits*: nor do commits that say so of
    themselves.  *left_out*: records of new keys that were not kept, for there are too many keys for so small a log.
    """

    cdef dict kept, waiting                     # values with offset and timestamp in front: an object less for each record
    cdef dict later                             # key → offset of the first record that did not count; only with *until*
    cdef set deleted                            # keys whose latest record is a tombstone; only with *until*
    cdef long long missing                      # the first offset from 0 on that has no record, -1: all are there
    cdef readonly long long left_out
    cdef long long keys                         # that are kept
    cdef long long room, last_batch             # bytes that may be taken for theirs, and the end of the last batch among them
    cdef readonly long long end                 # the offset after the last record
    cdef long long until
    cdef bint commits, limited

    def __cinit__(self, until: int | None=None, bint commits=False):
        self.kept, self.waiting, self.later, self.deleted = {}, {}, {}, set()
        self.missing, self.end, self.last_batch = -1, 0, -1
        self.left_out, self.keys, self.room = 0, 0, FEWEST_KEYS * BYTES_PER_KEY
        self.limited = until is not None
        self.until = until if until is not None else 0x7FFFFFFFFFFFFFFF
        self.commits = commits

    def records(self, order: Callable[[bytes], bytes] | None=None) -> Iterator[tuple[bytes, bytes]]:
        """Yield key and value of the latest records, sorted by *order* of the keys; None: not sorted."""
        for key in self.kept if order is None else sorted(self.kept, key=order):
            yield key, self.kept[key][PACKED:]

    def pending(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield producer id, key and value of the records of transactions without a marker."""
        for producer, kept in self.waiting.items():
            for key, packed in kept.items():
                yield producer, key, packed[PACKED:]

    def lost(self) -> Iterator[bytes]:
        """Yield the keys whose records until then may be gone: records are missing before the first later one."""
        for key, offset in self.later.items():
            if 0 <= self.missing < offset and key not in self.kept and key not in self.deleted:
                yield key

    def take(self, Window window not None):
        """Take the record rows of *window*."""
        cdef const View *v = &window.view
        cdef const RecordRow *row
        cdef const BatchRow *batch
        cdef const uint8_t *base
        cdef Py_ssize_t i
        for i in range(v.records_count):
            row, batch = v.records + i, v.batches + v.records[i].batch
            if batch.last_offset != self.last_batch:
                self.room += batch.size
                self.last_batch = batch.last_offset
            if row.offset > self.end and self.missing < 0:
                self.missing = self.end
            self.end = add(row.offset, 1)
            base = v.bases[row.batch]
            if is_control(v, row):
                if is_end_marker(row, base) and row.timestamp < self.until:
                    self._marker(batch.producer_id, be16(base + row.key_at + CONTROL_KEY_TYPE) == CONTROL_COMMIT)
            elif row.key_length >= 0:
                self._record(batch, row, base)

    cdef int _record(self, const BatchRow *batch, const RecordRow *row, const uint8_t *base) except -1:
        cdef bytes key = (<const char *>base + row.key_at)[:row.key_length]
        cdef dict kept
        cdef bytes value
        if self.limited and (row.timestamp >= self.until or self._comes_later(row, base)):
            if key not in self.later and self._has_room():
                self.later[key] = row.offset
        elif row.value_length < 0:
            self.keys -= self.kept.pop(key, None) is not None
            for kept in self.waiting.values():
                self.keys -= kept.pop(key, None) is not None
            if self.limited and key not in self.deleted and self._has_room():
                self.deleted.add(key)
        else:
            value = PyBytes_FromStringAndSize(NULL, PACKED + row.value_length)
            put64(<uint8_t *>PyBytes_AsString(value), <uint64_t>row.offset)
            put64(<uint8_t *>PyBytes_AsString(value) + 8, <uint64_t>row.timestamp)
            memcpy(PyBytes_AsString(value) + PACKED, base + row.value_at, row.value_length)
            kept = self.kept
            if batch.magic >= 2 and batch.attributes & ATTRIBUTE_TRANSACTIONAL:
                kept = self.waiting.setdefault(batch.producer_id, {})
            if key in kept or self._has_room():
                kept[key] = value
        return 0

    cdef bint _has_room(self) noexcept:
        """Take a new key; False: there are too many."""
        if self.keys * BYTES_PER_KEY >= self.room:
            self.left_out += 1
            return False
        self.keys += 1
        return True

    cdef bint _comes_later(self, const RecordRow *row, const uint8_t *base) noexcept:
        if not self.commits or row.value_length < 0 or row.key_length < 2 or not 0 <= be16(base + row.key_at) <= 1:
            return False
        return commit_time(base + row.value_at, row.value_length) >= self.until

    cdef int _marker(self, producer, bint commits) except -1:
        cdef dict kept = self.waiting.pop(producer, None)
        cdef object key, value, before  # without their types Cython never ends inferring them
        if kept is None or not commits:
            self.keys -= 0 if kept is None else len(kept)
            return 0
        for key, value in kept.items():
            before = self.kept.get(key)
            self.keys -= before is not None
            if before is None or offset_of(before) < offset_of(value):
                self.kept[key] = value
        return 0


cdef inline long long offset_of(bytes packed):
    return be64(<const uint8_t *>PyBytes_AsString(packed))
