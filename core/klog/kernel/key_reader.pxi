# Keys of records on their way into a table of places: many wait, shard by shard, so that memory is not visited at random.

cdef enum:
    BUCKET_KEYS = 244            # that wait for one shard; an odd number of lines, or all would want the same of the cache
    WAITING_BYTES = 2 << 20      # of keys
    MOST_WAITING = 1 << 10       # bytes of a key; longer ones do not wait
    MOST_ROWS = 1 << 14          # of a batch that is taken whole
    KEYS_AHEAD = 12              # a key's line is asked for so many keys before it is looked up

cdef struct KeyRow:
    const uint8_t *key
    int length

cdef struct WaitingKey:
    uint64_t digest
    uint32_t at                  # of its bytes
    int length

cdef struct WaitingKeys:         # in huge pages: each record writes at another place
    WaitingKey buckets[SHARDS][BUCKET_KEYS]
    uint32_t counts[SHARDS]
    uint8_t bytes[WAITING_BYTES]

cdef struct KeyCounts:
    long long records, null_keys, empty_keys
    long long first_empty, last_empty            # offsets; -1: none

cdef WaitingKeys *spare_waiting = NULL           # of the last reader: to allocate it for each topic would cost more than small ones


cdef WaitingKeys *get_waiting() except NULL:
    global spare_waiting
    cdef void *found = spare_waiting
    spare_waiting = NULL
    if found == NULL:
        if posix_memalign(&found, HUGE_PAGE, sizeof(WaitingKeys)) != 0:
            raise MemoryError("no memory for keys")
        huge_pages(found, sizeof(WaitingKeys))
    memset((<WaitingKeys *>found).counts, 0, sizeof((<WaitingKeys *>found).counts))
    return <WaitingKeys *>found


@cython.final
cdef class KeyReader:
    """Takes the keys of records into a table; each thread has its own.  `close` looks up what waits, and hands over what was counted.

    *shared*: other threads fill the table at the same time.
    """

    cdef PlaceTable table
    cdef bint shared
    cdef bint whole                              # there was memory for all keys
    cdef KeyRow *rows                            # of a batch
    cdef int count
    cdef WaitingKeys *waiting
    cdef uint32_t bytes_used
    cdef bint are_new                            # as far as the last bucket tells: their bytes will be needed
    cdef uint32_t partition                      # where they lie
    cdef KeyCounts counts
    cdef long long keys, several
    cdef long long places_by[RULE_SETS]
    cdef long long records_by[RULE_SETS]

    def __cinit__(self, PlaceTable table not None, bint shared=False):
        self.table, self.shared, self.whole, self.are_new = table, shared, True, True
        self.rows = <KeyRow *>malloc(MOST_ROWS * sizeof(KeyRow))
        if self.rows == NULL:
            raise MemoryError("no memory for rows")
        self.waiting = get_waiting()
        self._forget()

    def __dealloc__(self):
        global spare_waiting
        free(self.rows)
        if spare_waiting == NULL:
            spare_waiting = self.waiting
        else:
            free(self.waiting)

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
                        self._wait_all()
            self._wait_all()
        self._check_memory()

    def take(self, Window window not None, Py_ssize_t first, Py_ssize_t end, int partition, long long from_offset,
             long long to_offset):
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
        if <uint32_t>partition != self.partition:
            with nogil:
                self._place_all()
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
            p = decode_record(p, end, base, batch, &row)
            if p == NULL:
                break
            if from_offset <= row.offset < to_offset and not batch.attributes & ATTRIBUTE_CONTROL:
                self._take(base, &row)
        if p != end and batch.records_count:
            self.count, self.counts = 0, before
            return False
        self._wait_all()
        return True

    def close(self):
        """Look up what waits, and hand over to the table what was counted of keys."""
        cdef int i
        cdef PlaceTable table = self.table
        with nogil:
            self._place_all()
        self._check_memory()
        table.keys += self.keys
        table.several += self.several
        for i in range(RULE_SETS):
            table.places_by[i] += self.places_by[i]
            table.records_by[i] += self.records_by[i]
            self.places_by[i] = self.records_by[i] = 0
        self.keys = self.several = 0

    def take_counts(self):
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

    cdef void _wait_all(self) noexcept nogil:
        """Let the keys of the rows wait until many of their shards are looked up.  Their bytes are kept: the window changes."""
        cdef int i
        cdef uint32_t shard
        cdef uint64_t digest
        cdef WaitingKey *one
        cdef WaitingKeys *waiting = self.waiting
        cdef const KeyRow *row
        for i in range(self.count):
            row = self.rows + i
            digest = self.table.digest(row.key, row.length)
            if row.length > MOST_WAITING:
                self._place_large(digest, row)
                continue
            shard = <uint32_t>(digest >> 64 - SHARD_BITS)
            if self.bytes_used + row.length > WAITING_BYTES:
                self._place_all()
            elif waiting.counts[shard] == BUCKET_KEYS:
                self._place_bucket(shard)
            one = &waiting.buckets[shard][waiting.counts[shard]]
            one.digest, one.at, one.length = digest, self.bytes_used, row.length
            copy_key(waiting.bytes + self.bytes_used, row.key, row.length)
            self.bytes_used += row.length
            waiting.counts[shard] += 1
        self.count = 0

    cdef void _place_all(self) noexcept nogil:
        cdef uint32_t shard
        for shard in range(SHARDS):
            if self.waiting.counts[shard]:
                self._place_bucket(shard)
        self.bytes_used = 0

    cdef void _place_bucket(self, uint32_t number) noexcept nogil:
        """Look up the keys of a shard that wait: its lines come into the cache once for all of them."""
        cdef PlaceShard *shard = &self.table.shards[number]
        cdef const WaitingKey *first = self.waiting.buckets[number]
        cdef const uint8_t *bytes = self.waiting.bytes
        cdef long long keys = self.keys
        cdef uint32_t k, count = self.waiting.counts[number]
        self._lock(number)
        for k in range(count + KEYS_AHEAD):
            if k < count:
                prefetch(line_of(shard, first[k].digest))
                if self.are_new:
                    prefetch(bytes + first[k].at)
            if k >= KEYS_AHEAD:
                self._place(shard, first[k - KEYS_AHEAD].digest, bytes + first[k - KEYS_AHEAD].at, first[k - KEYS_AHEAD].length)
        self._unlock(number)
        self.are_new = 8 * (self.keys - keys) > count
        self.waiting.counts[number] = 0

    cdef void _place_large(self, uint64_t digest, const KeyRow *row) noexcept nogil:
        cdef uint32_t shard = <uint32_t>(digest >> 64 - SHARD_BITS)
        self._lock(shard)
        self._place(&self.table.shards[shard], digest, row.key, row.length)
        self._unlock(shard)

    cdef inline void _lock(self, uint32_t shard) noexcept nogil:
        if self.shared:
            PyThread_acquire_lock(self.table.locks[shard >> SHARD_BITS - LOCK_BITS], 1)

    cdef inline void _unlock(self, uint32_t shard) noexcept nogil:
        if self.shared:
            PyThread_release_lock(self.table.locks[shard >> SHARD_BITS - LOCK_BITS])

    cdef inline void _place(self, PlaceShard *shard, uint64_t digest, const uint8_t *key, int length) noexcept nogil:
        """Count a record by its place, and the place if it is new."""
        cdef uint32_t partition = self.partition
        cdef KeyPlace home = find_place(shard, digest, FURTHER, False)
        cdef KeyPlace place = home
        if home.line == NULL:
            place = self._add(shard, digest, 0, key, length)
            self.keys += 1
        elif home.line.partitions[home.at] != partition:
            place.line = NULL
            if home.line.bits[home.at] & SEVERAL:
                place = find_place(shard, further_digest(digest, partition), FURTHER, True)
            else:
                home.line.bits[home.at] |= SEVERAL
                self.several += 1
            if place.line == NULL:
                place = self._add(shard, further_digest(digest, partition), FURTHER, key, length)
        if place.line != NULL:
            self.records_by[place.line.bits[place.at] & RULE_BITS] += 1

    cdef KeyPlace _add(self, PlaceShard *shard, uint64_t digest, int further, const uint8_t *key, int length) noexcept nogil:
        """Note a new place with the rules that put the key there, whole or without the frame of a schema's id."""
        cdef KeyHashes hashes
        cdef KeyPlace place = add_place(shard, digest, FEWEST_LINES + (shard - self.table.shards) % FEWEST_LINES)
        cdef uint32_t bits
        if place.line == NULL:
            self.whole = False
            return place
        hash_key(key, length, &hashes)
        bits = rules_for(&hashes, self.partition, self.table.reciprocal, self.table.partitions)
        self.places_by[bits] += 1
        if key[0] == 0 and length > FRAME_BYTES:
            hash_key(key + FRAME_BYTES, length - FRAME_BYTES, &hashes)
            bits |= rules_for(&hashes, self.partition, self.table.reciprocal, self.table.partitions) << UNFRAMED_SHIFT
        place.line.partitions[place.at], place.line.bits[place.at] = self.partition, bits | further
        return place
