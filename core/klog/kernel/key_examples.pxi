# A second look at the records, for the few keys that are listed.

cdef enum:
    EXAMPLE_SLOTS = 4096         # more than three for each key that may be listed
    EXAMPLE_BYTES = 65536        # so much of a key is kept


cdef struct KeyExample:
    uint64_t digest
    int partition                # -1: a free slot
    int number
    long long records, first_offset, last_offset
    long long length


@cython.final
cdef class KeyExamples:
    """Finds the keys at some places again: how many records each has there, the first and the last of them.

    *places*: pairs of digest and partition, as `KeyPlaces.listed` has them.
    """

    cdef PlaceTable table
    cdef KeyExample *slots
    cdef list keys

    def __cinit__(self, PlaceTable table not None: KeyPlaces, list places not None: list[tuple[int, int]]):
        cdef int i, number
        cdef KeyExample *slot
        if len(places) > MOST_LISTED:
            raise ValueError(f"{len(places)} places; {MOST_LISTED} at most")
        self.table, self.keys = table, [None] * len(places)
        self.slots = <KeyExample *>calloc(EXAMPLE_SLOTS, sizeof(KeyExample))
        if self.slots == NULL:
            raise MemoryError("no memory for examples")
        for i in range(EXAMPLE_SLOTS):
            self.slots[i].partition = -1
        for number, (digest, partition) in enumerate(places):
            slot = self._slot(digest, partition)
            slot.digest, slot.partition, slot.number = digest, partition, number
            slot.first_offset = slot.last_offset = -1

    def __dealloc__(self):
        free(self.slots)

    cdef KeyExample *_slot(self, uint64_t digest, int partition) noexcept nogil:
        """Return where a place is, or the free slot where it belongs; there always is one."""
        cdef uint32_t at = <uint32_t>digest % EXAMPLE_SLOTS
        while self.slots[at].partition >= 0 and (self.slots[at].digest != digest or self.slots[at].partition != partition):
            at = (at + 1) % EXAMPLE_SLOTS
        return self.slots + at

    def add(self, Window window not None, int partition):
        """Look at the record rows of *window*, which are of *partition*."""
        cdef Py_ssize_t i = 0
        cdef const RecordRow *row
        cdef KeyExample *example
        cdef const View *v = &window.view
        while True:
            with nogil:
                i = self._next(v, i, partition)
            if i >= v.records_count:
                return
            row = v.records + i
            example = self._slot(self._digest(v, row), partition)
            example.length = row.key_length
            self.keys[example.number] = (<const char *>v.bases[row.batch])[row.key_at : row.key_at + min(row.key_length, EXAMPLE_BYTES)]
            self._count(example, row)
            i += 1

    @property
    def found(self) -> list[tuple[int, int, int, int, int, bytes]]:
        """Of each place its number, its records, the first and the last offset, the key's length and its first bytes."""
        cdef int i
        cdef KeyExample *one
        result = []
        for i in range(EXAMPLE_SLOTS):
            one = self.slots + i
            if one.partition >= 0 and one.records:
                result.append((one.number, one.records, one.first_offset, one.last_offset, one.length, self.keys[one.number]))
        return sorted(result)

    cdef uint64_t _digest(self, const View *v, const RecordRow *row) noexcept nogil:
        cdef const uint8_t *key = v.bases[row.batch] + row.key_at
        return self.table.digest(key, row.key_length)

    cdef Py_ssize_t _next(self, const View *v, Py_ssize_t i, int partition) noexcept nogil:
        """Count rows from *i* on; return the first one of a key that has not been met before, or how many rows there are."""
        cdef const RecordRow *row
        cdef KeyExample *example
        while i < v.records_count:
            row = v.records + i
            if row.key_length > 0 and not is_control(v, row):
                example = self._slot(self._digest(v, row), partition)
                if example.partition >= 0:
                    if not example.records:
                        return i
                    self._count(example, row)
            i += 1
        return i

    cdef void _count(self, KeyExample *example, const RecordRow *row) noexcept nogil:
        example.first_offset = row.offset if not example.records else min(example.first_offset, row.offset)
        example.last_offset = max(example.last_offset, row.offset)
        example.records += 1
