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

    def __cinit__(self, until=None, bint commits=False):
        self.kept, self.waiting, self.later, self.deleted = {}, {}, {}, set()
        self.missing, self.end, self.last_batch = -1, 0, -1
        self.left_out, self.keys, self.room = 0, 0, FEWEST_KEYS * BYTES_PER_KEY
        self.limited = until is not None
        self.until = until if until is not None else 0x7FFFFFFFFFFFFFFF
        self.commits = commits

    def records(self):
        """Yield key and value of the latest records."""
        for key, packed in self.kept.items():
            yield key, packed[PACKED:]

    def pending(self):
        """Yield producer id, key and value of the records of transactions without a marker."""
        for producer, kept in self.waiting.items():
            for key, packed in kept.items():
                yield producer, key, packed[PACKED:]

    def lost(self):
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
                    self._marker(batch.producer_id, be16(base + row.key_at + 2) == 1)
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

