# Puts the keys of records into a table of places.

cdef enum:
    MOST_ROWS = 1 << 14          # of a batch that is taken whole

cdef struct KeyRow:
    const uint8_t *key
    int length

cdef struct KeyCounts:
    long long records, null_keys, empty_keys
    long long first_empty, last_empty            # offsets; -1: none


@cython.final
cdef class KeyReader:
    """Puts the keys of records into a table; each thread has its own.  `close` hands over the counts.

    *shared*: other threads fill the table at the same time.
    """

    cdef PlaceTable table
    cdef bint shared
    cdef bint whole                              # there was memory for all keys
    cdef KeyRow *rows                            # of a batch
    cdef int count
    cdef uint32_t partition                      # where they lie
    cdef KeyCounts counts
    cdef long long keys, several
    cdef long long places_by[RULE_SETS]
    cdef long long records_by[RULE_SETS]

    def __cinit__(self, PlaceTable table not None: KeyPlaces, bint shared=False):
        self.table, self.shared, self.whole = table, shared, True
        self.rows = <KeyRow *>malloc(MOST_ROWS * sizeof(KeyRow))
        if self.rows == NULL:
            raise MemoryError("no memory for rows")
        self._forget()

    def __dealloc__(self):
        free(self.rows)

    def add(self, Window window not None, int partition):
        """Take the record rows of *window*, which are of *partition*: one below 65536."""
        cdef Py_ssize_t i
        cdef const View *v = &window.view
        cdef const RecordRow *row
        self._set_partition(partition)
        with nogil:
            for i in range(v.records_count):
                row = v.records + i
                if not is_control(v, row):
                    self._take(v.bases[row.batch], row)
                    if self.count == MOST_ROWS:
                        self._place_rows()
            self._place_rows()
        self._check_memory()

    def take(self, Window window not None, Py_ssize_t first, Py_ssize_t end, int partition, long long from_offset,
             long long to_offset) -> int:
        """Take the records from *from_offset* up to *to_offset* of batches from *first* on; return the first not taken.

        That is *end*, or a batch of which nothing is taken: a broken one, a very large one, messages (v0, v1).
        The batches have been checked and decompressed.
        """
        cdef Py_ssize_t i = first
        self._set_partition(partition)
        window._range(first, end)
        with nogil:
            while i < end and self._take_batch(&window.view, i, from_offset, to_offset):
                i += 1
        self._check_memory()
        return i

    cdef int _set_partition(self, int partition) except -1:
        if not 0 <= partition <= 0xFFFF:
            raise ValueError(f"partition {partition} of more than 65536")
        self.partition = partition
        return 0

    cdef int _check_memory(self) except -1:
        if not self.whole:
            raise MemoryError("no memory for more keys")
        return 0

    cdef bint _take_batch(self, const View *v, Py_ssize_t at, long long from_offset, long long to_offset) noexcept nogil:
        """Take the records of batch *at*; False when nothing of it is taken."""
        cdef const BatchRow *batch = v.batches + at
        cdef const uint8_t *base = v.bases[at]
        cdef const uint8_t *end = base + v.lengths[at]
        cdef const uint8_t *p = base + (0 if batch.attributes & ATTRIBUTE_CODEC else BATCH_BYTES)
        cdef RecordRow row
        cdef KeyCounts before = self.counts
        cdef int i
        if batch.state & SKIPPED:
            return True
        if batch.magic < 2 or batch.size < BATCH_BYTES or not 0 <= batch.records_count <= MOST_ROWS:
            return False
        for i in range(batch.records_count):
            p = read_record(p, end, base, batch, &row)
            if p == NULL:
                break
            if from_offset <= row.offset < to_offset and not batch.attributes & ATTRIBUTE_CONTROL:
                self._take(base, &row)
        if p != end and batch.records_count:
            self.count, self.counts = 0, before
            return False
        self._place_rows()
        return True

    def close(self):
        """Hand over to the table what was counted of keys."""
        cdef int i
        cdef PlaceTable table = self.table
        table.keys += self.keys
        table.several += self.several
        for i in range(RULE_SETS):
            table.places_by[i] += self.places_by[i]
            table.records_by[i] += self.records_by[i]
            self.places_by[i] = self.records_by[i] = 0
        self.keys = self.several = 0

    def take_counts(self) -> tuple[int, int, int, int, int]:
        """Return how many data records there were since the last call, how many of them with null keys and with empty
        ones, and the first and last offset of those (-1)."""
        cdef KeyCounts c = self.counts
        self._forget()
        return c.records, c.null_keys, c.empty_keys, c.first_empty, c.last_empty

    cdef void _forget(self) noexcept nogil:
        memset(&self.counts, 0, sizeof(KeyCounts))
        self.counts.first_empty = self.counts.last_empty = -1

    cdef inline void _take(self, const uint8_t *base, const RecordRow *row) noexcept nogil:
        """Count a data record; there is room for its key."""
        cdef KeyCounts *counts = &self.counts
        counts.records += 1
        if row.key_length > 0:
            self.rows[self.count].key, self.rows[self.count].length = base + row.key_at, row.key_length
            self.count += 1
        elif row.key_length < 0:
            counts.null_keys += 1
        else:
            counts.empty_keys += 1
            counts.first_empty = row.offset if counts.first_empty < 0 else min(counts.first_empty, row.offset)
            counts.last_empty = max(counts.last_empty, row.offset)

    # looking up

    cdef void _place_rows(self) noexcept nogil:
        """Count the keys of the rows."""
        cdef int i
        cdef uint32_t number
        cdef uint64_t digest
        cdef const KeyRow *row
        for i in range(self.count):
            row = self.rows + i
            digest = self.table.digest(row.key, row.length)
            number = <uint32_t>(digest >> 64 - SLICE_BITS)
            if self.shared:
                PyThread_acquire_lock(self.table.locks[number], 1)
            self._place(&self.table.slices[number], digest, row)
            if self.shared:
                PyThread_release_lock(self.table.locks[number])
        self.count = 0

    cdef inline void _place(self, PlaceSlice *slice, uint64_t digest, const KeyRow *row) noexcept nogil:
        """Count a record by its place, and the place if it is new."""
        cdef KeyPlace *home = find_place(slice, digest, 0)
        cdef KeyPlace *place = home
        if home == NULL:
            place = self._add(slice, digest, 0, row)
            self.keys += 1
        elif home.partition != self.partition:
            place = NULL
            if home.bits & SEVERAL:
                place = find_place(slice, further_digest(digest, self.partition), FURTHER)
            else:
                home.bits |= SEVERAL
                self.several += 1
            if place == NULL:
                place = self._add(slice, further_digest(digest, self.partition), FURTHER, row)
        if place != NULL:
            self.records_by[place.bits & RULE_BITS] += 1

    cdef KeyPlace *_add(self, PlaceSlice *slice, uint64_t digest, int further, const KeyRow *row) noexcept nogil:
        """Note a new place with the rules that put the key there, whole or without the frame of a schema's id."""
        cdef KeyHashes hashes
        cdef KeyPlace *place = add_place(slice, digest)
        cdef uint32_t bits
        if place == NULL:
            self.whole = False
            return NULL
        hash_key(row.key, row.length, &hashes)
        bits = rules_for(&hashes, self.partition, self.table.reciprocal, self.table.partitions)
        self.places_by[bits] += 1
        if row.key[0] == 0 and row.length > FRAME_BYTES:
            hash_key(row.key + FRAME_BYTES, row.length - FRAME_BYTES, &hashes)
            bits |= rules_for(&hashes, self.partition, self.table.reciprocal, self.table.partitions) << UNFRAMED_SHIFT
        place.partition, place.bits = self.partition, bits | further
        return place
