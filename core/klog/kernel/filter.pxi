# Which rows stay: by offset, by time, by key.

cdef class KeySet:
    """A set of keys that rows can be compared with: open addressing over FNV-1a hashes, the keys themselves compared."""

    cdef list keys
    cdef Py_ssize_t slots
    cdef const uint8_t **starts
    cdef Py_ssize_t *lengths

    def __cinit__(self, keys: Iterable[bytes]):
        cdef Py_ssize_t i, slot
        cdef bytes key
        self.keys = list(set(keys))
        self.slots = 2 * len(self.keys) + 1
        self.starts = <const uint8_t **>calloc(self.slots, sizeof(uint8_t *))
        self.lengths = <Py_ssize_t *>calloc(self.slots, sizeof(Py_ssize_t))
        if self.starts == NULL or self.lengths == NULL:
            raise MemoryError()
        for key in self.keys:
            slot = <Py_ssize_t>(fnv(<const uint8_t *>PyBytes_AsString(key), len(key)) % <uint64_t>self.slots)
            while self.starts[slot] != NULL:
                slot = slot + 1 if slot + 1 < self.slots else 0
            self.starts[slot] = <const uint8_t *>PyBytes_AsString(key)
            self.lengths[slot] = len(key)

    def __dealloc__(self):
        free(self.starts)
        free(self.lengths)

    def __reduce__(self):
        return KeySet, (self.keys,)

    cdef bint has(self, const uint8_t *p, Py_ssize_t n) noexcept nogil:
        cdef Py_ssize_t slot = <Py_ssize_t>(fnv(p, n) % <uint64_t>self.slots)
        while self.starts[slot] != NULL:
            if self.lengths[slot] == n and memcmp(self.starts[slot], p, n) == 0:
                return True
            slot = slot + 1 if slot + 1 < self.slots else 0
        return False


cdef long long HIGHEST = 0x7FFFFFFFFFFFFFFF
cdef long long LOWEST = -HIGHEST - 1


cdef inline uint64_t fnv(const uint8_t *p, Py_ssize_t n) noexcept nogil:
    cdef uint64_t h = 0xCBF29CE484222325
    cdef Py_ssize_t i
    for i in range(n):
        h = (h ^ p[i]) * <uint64_t>0x100000001B3
    return h


cdef Py_ssize_t keep_rows(View *v, long long from_offset, long long to_offset, long long from_time, long long to_time,
                          bint controls, KeySet keys) noexcept nogil:
    """Close the rows up over those that are not wanted; return how many stay.  The highest number is no end."""
    cdef Py_ssize_t i, n = 0
    cdef RecordRow *row
    cdef bint control
    # Up to, not including: an end that is reached is one less for what is compared below.
    cdef long long last_offset = to_offset if to_offset == HIGHEST else to_offset - 1
    cdef long long last_time = to_time if to_time == HIGHEST else to_time - 1
    if to_offset == LOWEST or to_time == LOWEST:
        v.records_count = 0
        return 0
    for i in range(v.records_count):
        row = v.records + i
        if row.offset < from_offset or row.offset > last_offset or row.timestamp < from_time or row.timestamp > last_time:
            continue
        control = is_control(v, row)
        if control and (not controls or keys is not None):
            continue
        if keys is not None and (row.key_length < 0 or not keys.has(v.bases[row.batch] + row.key_at, row.key_length)):
            continue
        if n != i:
            v.records[n] = row[0]
        n += 1
    v.records_count = n
    return n


cdef bint has_header(const View *v, const RecordRow *row, const uint8_t *name, Py_ssize_t name_length, const uint8_t *value,
                     Py_ssize_t value_length) noexcept nogil:
    """Whether a record has a header of that name; with *value_length* below zero, of any value, null too."""
    cdef const uint8_t *p = v.bases[row.batch] + row.headers_at
    cdef int j, length = 0
    cdef bint named
    for j in range(row.headers_count):
        p = varint(p, p + 5, &length)
        named = length == name_length and memcmp(p, name, length) == 0
        p = varint(p + length, p + length + 5, &length)
        if named and (value_length < 0 or (length == value_length and memcmp(p, value, length) == 0)):
            return True
        p += max(length, 0)
    return False


cdef Py_ssize_t keep_with_header(View *v, const uint8_t *name, Py_ssize_t name_length, const uint8_t *value,
                                 Py_ssize_t value_length) noexcept nogil:
    """Close the rows up over those without the header; return how many stay."""
    cdef Py_ssize_t i, n = 0
    for i in range(v.records_count):
        if has_header(v, v.records + i, name, name_length, value, value_length):
            if n != i:
                v.records[n] = v.records[i]
            n += 1
    v.records_count = n
    return n


cdef bint skip_outside(View *v, long long from_offset, long long to_offset, long long from_time) noexcept nogil:
    """See `Window.skip_outside`."""
    cdef Py_ssize_t i
    cdef BatchRow *b
    cdef bint beyond = False
    for i in range(v.batches_count):
        b = v.batches + i
        if b.state & (CHECKED | HOLDS) == CHECKED:
            continue
        if b.last_offset < from_offset or b.max_timestamp < from_time:
            b.state |= SKIPPED
        # a wrapper's first offset is not in its header
        elif b.base_offset >= to_offset and to_offset != HIGHEST and (b.magic >= 2 or not b.attributes & ATTRIBUTE_CODEC):
            b.state |= SKIPPED
            beyond = True
    return beyond


cdef list batches_with_producer(const View *v, Py_ssize_t first, Py_ssize_t end, bint checked, Py_ssize_t most):
    """See `Window.produced`."""
    cdef Py_ssize_t i, run = 0
    cdef const BatchRow *b
    cdef const BatchRow *before = NULL
    cdef list found = []
    if not v.has_producers:
        return found
    for i in range(first, end):
        b = v.batches + i
        if b.producer_id >= 0 and (b.state & (HOLDS | SKIPPED) == HOLDS or not checked):
            found.append(i)
            run = run + 1 if before != NULL and alike(before, b) else 1
            if most and run > most + 1:
                del found[len(found) - 1 - most]
            before = b
    return found


cdef inline bint alike(const BatchRow *one, const BatchRow *other) noexcept nogil:
    """Whether both are data batches of the same producer in the same epoch, with the same attributes."""
    return (one.producer_id == other.producer_id and one.producer_epoch == other.producer_epoch
            and one.attributes == other.attributes and not one.attributes & ATTRIBUTE_CONTROL)


cdef bytes row_gaps(const View *v):
    cdef Py_ssize_t i
    cdef bytearray pairs = bytearray()
    cdef long long pair[2]
    for i in range(1, v.records_count):
        pair[0] = v.records[i - 1].offset
        pair[1] = v.records[i].offset
        if pair[1] != add(pair[0], 1):
            pairs += (<const char *>pair)[:16]
    return bytes(pairs)
