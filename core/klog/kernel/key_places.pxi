# Which keys lie in which partitions of a topic: a table of digests, filled by several threads, and judged by rule.

cdef extern from "pythread.h" nogil:
    ctypedef void *ThreadLock "PyThread_type_lock"
    ThreadLock PyThread_allocate_lock()
    void PyThread_free_lock(ThreadLock lock)
    int PyThread_acquire_lock(ThreadLock lock, int wait)
    void PyThread_release_lock(ThreadLock lock)

cdef extern from "key_places.h" nogil:
    ctypedef struct PlaceLine "klog_place_line":
        uint64_t *digests
        uint16_t *partitions
        uint16_t *bits
        uint32_t count
    ctypedef struct PlaceShard "klog_place_shard":
        PlaceLine *lines
        uint32_t lines_count
        uint32_t used
    ctypedef struct KeyPlace "klog_place":
        PlaceLine *line
        int at
    PlaceLine *line_of "klog_line_of"(const PlaceShard *shard, uint64_t digest)
    KeyPlace find_place "klog_find_place"(const PlaceShard *shard, uint64_t digest, unsigned flag, bint set)
    KeyPlace add_place "klog_add_place"(PlaceShard *shard, uint64_t digest, uint32_t first)
    void free_shard "klog_free_shard"(const PlaceShard *shard)

cdef enum:
    SHARD_BITS = 10              # many small tables: one that grows takes memory that another has left
    SHARDS = 1 << SHARD_BITS
    LOCK_BITS = 6
    LOCKS = 1 << LOCK_BITS
    RULE_SETS = 128              # a bit for each of the seven rules
    RULE_BITS = RULE_SETS - 1
    UNFRAMED_SHIFT = 7           # bits of a place: the rules that put the key there, then those that do without its frame …
    FURTHER = 1 << 14            # … the key has another place, by which it is counted
    SEVERAL = 1 << 15            # … the key has further places
    FRAME_BYTES = 5              # a zero and the id of a schema
    FEWEST_LINES = 32            # of a shard, and up to as many more: a page
    READ_ROWS = 1 << 14          # rows that are looked up shard by shard, so that each page is visited once for all of them
    LINES_AHEAD = 12              # a row's line is asked for so many rows before it is looked up

cdef struct Unplaced:            # a row that has not been looked up
    uint64_t digest
    const uint8_t *key
    int length
    uint32_t primary

cdef struct KeyCounts:
    long long records, null_keys, empty_keys
    long long first_empty, last_empty            # offsets; -1: none


cdef inline uint64_t further_digest(uint64_t digest, uint32_t partition) noexcept nogil:
    """What stands for a place that is not the first of its key; the same again gives the key's digest back."""
    cdef uint64_t spread = 0x9E3779B97F4A7C15
    return digest ^ spread * (partition + 1)


cdef class PlaceTable:
    """The places of a topic's keys: which key lies in which partition.

    A key is its digest: one of the clients' hashes (*hashed_by*: 0 murmur2, 1 CRC-32, 2 FNV-1a), which tells its partition by
    the rules of that hash, and another, keyed by a secret, that tells apart what it does not.  They are mixed by a secret,
    so that nobody can make keys that fall into one line.  Two keys of one digest count as one.
    """

    cdef PlaceShard shards[SHARDS]
    cdef ThreadLock locks[LOCKS]
    cdef uint64_t factors[2]
    cdef uint64_t inverses[2]
    cdef uint64_t reciprocal
    cdef readonly uint32_t partitions
    cdef readonly int hashed_by
    cdef readonly long long keys, several    # different keys, those in several partitions
    cdef long long places_by[RULE_SETS]
    cdef long long records_by[RULE_SETS]

    def __cinit__(self, unsigned int partitions, int hashed_by=0):
        cdef int i
        if not 0 < partitions <= 0x7FFFFFFF or not 0 <= hashed_by <= 2:
            raise ValueError(f"{partitions} partitions, hash {hashed_by}")
        self.partitions, self.reciprocal, self.hashed_by = partitions, reciprocal_of(partitions), hashed_by
        for i in range(2):
            self.factors[i] = int.from_bytes(urandom(8), "little") | 1
            self.inverses[i] = pow(int(self.factors[i]), -1, 1 << 64)
        for i in range(LOCKS):
            self.locks[i] = PyThread_allocate_lock()
            if self.locks[i] == NULL:
                raise MemoryError("no memory for locks")

    def __dealloc__(self):
        cdef int i
        for i in range(SHARDS):
            free_shard(&self.shards[i])
        for i in range(LOCKS):
            if self.locks[i] != NULL:
                PyThread_free_lock(self.locks[i])

    @property
    def places_by_rules(self):
        """How many places there are by the rules that put their keys there: the index has a bit for each rule."""
        return [self.places_by[i] for i in range(RULE_SETS)]

    @property
    def records_by_rules(self):
        """The same, of records."""
        return [self.records_by[i] for i in range(RULE_SETS)]

    cdef inline uint32_t primary(self, const uint8_t *key, Py_ssize_t length) noexcept nogil:
        """The client's hash that digests have."""
        if self.hashed_by == 0:
            return murmur2_of(key, length)
        return klog_crc32(0, key, length) if self.hashed_by == 1 else fnv1a_of(key, length)

    cdef inline uint64_t digest(self, uint32_t primary, const uint8_t *key, Py_ssize_t length) noexcept nogil:
        cdef uint64_t x = (<uint64_t>primary << 32 | key_check(key, length, self.factors[1])) * self.factors[0]
        return (x ^ x >> 32) * self.factors[1]

    cdef inline uint64_t plain(self, uint64_t digest) noexcept nogil:
        """The hashes that a digest was made of."""
        cdef uint64_t x = digest * self.inverses[1]
        return (x ^ x >> 32) * self.inverses[0]

    cdef void hashes_of(self, uint64_t digest, KeyHashes *out) noexcept nogil:
        """The client's hash that a digest has; the others are 0."""
        cdef uint32_t primary = <uint32_t>(self.plain(digest) >> 32)
        out.murmur2 = primary if self.hashed_by == 0 else 0
        out.crc32 = primary if self.hashed_by == 1 else 0
        out.fnv1a = primary if self.hashed_by == 2 else 0


@cython.final
cdef class KeyReader:
    """Takes the keys of records into a table; each thread has its own.  `close` hands over what was counted.

    *shared*: other threads fill the table at the same time.
    """

    cdef PlaceTable table
    cdef bint shared
    cdef Unplaced *rows
    cdef uint32_t *order
    cdef uint32_t count, partition               # rows that wait, and where they lie
    cdef KeyCounts counts
    cdef long long keys, several
    cdef long long places_by[RULE_SETS]
    cdef long long records_by[RULE_SETS]

    def __cinit__(self, PlaceTable table not None, bint shared=False):
        self.table, self.shared = table, shared
        self.rows = <Unplaced *>malloc(READ_ROWS * sizeof(Unplaced))
        self.order = <uint32_t *>malloc(READ_ROWS * sizeof(uint32_t))
        if self.rows == NULL or self.order == NULL:
            raise MemoryError("no memory for rows")
        self._forget()

    def __dealloc__(self):
        free(self.rows)
        free(self.order)

    def add(self, Window window not None, int partition):
        """Take the record rows of *window*, which are of *partition*: one below 65536."""
        cdef Py_ssize_t i
        cdef const View *v = &window.view
        cdef const RecordRow *row
        cdef bint whole = True
        self._set_partition(partition)
        with nogil:
            for i in range(v.records_count):
                row = v.records + i
                if self.count == READ_ROWS:
                    whole = self._place_all() and whole
                if not is_control(v, row):
                    self._take(v.bases[row.batch], row)
            whole = self._place_all() and whole
        if not whole:
            raise MemoryError("no memory for more keys")

    def take(self, Window window not None, Py_ssize_t first, Py_ssize_t end, int partition, long long from_offset,
             long long to_offset):
        """Take the records from *from_offset* up to *to_offset* of batches from *first* on; return the first not taken.

        That is *end*, or a batch of which nothing is taken: a broken one, a very large one, messages (v0, v1).
        The batches have been checked and decompressed.
        """
        cdef Py_ssize_t i = first
        cdef bint whole = True
        self._set_partition(partition)
        window._range(first, end)
        with nogil:
            while i < end and self._take_batch(&window.view, i, from_offset, to_offset, &whole):
                i += 1
            whole = self._place_all() and whole
        if not whole:
            raise MemoryError("no memory for more keys")
        return i

    cdef int _set_partition(self, int partition) except -1:
        if not 0 <= partition <= 0xFFFF:
            raise ValueError(f"partition {partition} of more than 65536")
        self.partition = partition
        return 0

    cdef bint _take_batch(self, const View *v, Py_ssize_t at, long long from_offset, long long to_offset, bint *whole) noexcept nogil:
        """Take the records of batch *at*; False when nothing of it is taken."""
        cdef const BatchRow *batch = v.batches + at
        cdef const uint8_t *base = v.bases[at]
        cdef const uint8_t *end = base + v.lengths[at]
        cdef const uint8_t *p = base + (0 if batch.attributes & ATTRIBUTE_CODEC else BATCH_BYTES)
        cdef RecordRow row
        cdef KeyCounts before = self.counts
        cdef uint32_t count
        cdef int i
        if batch.state & SKIPPED:
            return True
        if batch.magic < 2 or batch.size < BATCH_BYTES or not 0 <= batch.records_count <= READ_ROWS:
            return False
        if self.count + batch.records_count > READ_ROWS:
            whole[0] = self._place_all() and whole[0]
        count = self.count
        for i in range(batch.records_count):
            p = decode_record(p, end, base, batch, &row)
            if p == NULL:
                break
            if from_offset <= row.offset < to_offset and not batch.attributes & ATTRIBUTE_CONTROL:
                self._take(base, &row)
        if p == end or not batch.records_count:
            return True
        self.count, self.counts = count, before
        return False

    def close(self):
        """Hand over to the table what was counted of keys; records, null and empty keys are for the caller."""
        cdef int i
        cdef PlaceTable table = self.table
        table.keys += self.keys
        table.several += self.several
        for i in range(RULE_SETS):
            table.places_by[i] += self.places_by[i]
            table.records_by[i] += self.records_by[i]
            self.places_by[i] = self.records_by[i] = 0
        self.keys = self.several = 0
        self._forget()

    cdef void _forget(self) noexcept nogil:
        memset(&self.counts, 0, sizeof(KeyCounts))
        self.counts.first_empty = self.counts.last_empty = -1

    @property
    def counted(self):
        """How many data records there were, with null keys, with empty ones, and the first and last offset of those (-1)."""
        cdef KeyCounts *c = &self.counts
        return c.records, c.null_keys, c.empty_keys, c.first_empty, c.last_empty

    cdef inline void _take(self, const uint8_t *base, const RecordRow *row) noexcept nogil:
        """Count a data record; there is room for its key."""
        cdef Unplaced *one
        self.counts.records += 1
        if row.key_length <= 0:
            self._without(row)
            return
        one = self.rows + self.count
        one.key, one.length = base + row.key_at, row.key_length
        one.primary = self.table.primary(one.key, one.length)
        one.digest = self.table.digest(one.primary, one.key, one.length)
        self.count += 1

    cdef void _without(self, const RecordRow *row) noexcept nogil:
        cdef KeyCounts *counts = &self.counts
        if row.key_length < 0:
            counts.null_keys += 1
            return
        counts.empty_keys += 1
        counts.first_empty = row.offset if counts.first_empty < 0 else min(counts.first_empty, row.offset)
        counts.last_empty = max(counts.last_empty, row.offset)

    cdef bint _place_all(self) noexcept nogil:
        """Place the rows that wait, shard by shard; False when there is no memory for all."""
        cdef uint32_t ends[SHARDS + 1]
        cdef int shard
        cdef uint32_t k, start = 0
        cdef bint whole = True
        memset(ends, 0, sizeof(ends))
        for k in range(self.count):
            ends[(self.rows[k].digest >> 64 - SHARD_BITS) + 1] += 1
        for k in range(SHARDS):
            ends[k + 1] += ends[k]
        for k in range(self.count):
            shard = <uint32_t>(self.rows[k].digest >> 64 - SHARD_BITS)
            self.order[ends[shard]] = k
            ends[shard] += 1
        for shard in range(SHARDS):
            if self.shared and shard % (SHARDS // LOCKS) == 0:
                PyThread_acquire_lock(self.table.locks[shard >> SHARD_BITS - LOCK_BITS], 1)
            for k in range(start, ends[shard]):
                if k + LINES_AHEAD < self.count:
                    self._ask_for(self.rows[self.order[k + LINES_AHEAD]].digest)
                whole = self._place(self.rows + self.order[k], &self.table.shards[shard]) and whole
            start = ends[shard]
            if self.shared and (shard + 1) % (SHARDS // LOCKS) == 0:
                PyThread_release_lock(self.table.locks[shard >> SHARD_BITS - LOCK_BITS])
        self.count = 0
        return whole

    cdef inline void _ask_for(self, uint64_t digest) noexcept nogil:
        """Ask for the line where a digest is looked up; another thread may be about to replace it: then this is for nothing."""
        cdef const PlaceShard *shard = &self.table.shards[digest >> 64 - SHARD_BITS]
        prefetch(line_of(shard, digest))

    cdef inline bint _place(self, const Unplaced *row, PlaceShard *shard) noexcept nogil:
        """Count a record by its place, and the place if it is new; False when there is no memory for it."""
        cdef uint32_t partition = self.partition
        cdef KeyPlace home = find_place(shard, row.digest, FURTHER, False)
        cdef KeyPlace place = home
        if home.line == NULL:
            place = self._add(shard, row.digest, row, partition, 0)
            self.keys += 1
        elif home.line.partitions[home.at] != partition:
            place.line = NULL
            if home.line.bits[home.at] & SEVERAL:
                place = find_place(shard, further_digest(row.digest, partition), FURTHER, True)
            else:
                home.line.bits[home.at] |= SEVERAL
                self.several += 1
            if place.line == NULL:
                place = self._add(shard, further_digest(row.digest, partition), row, partition, FURTHER)
        if place.line == NULL:
            return False
        self.records_by[place.line.bits[place.at] & RULE_BITS] += 1
        return True

    cdef KeyPlace _add(self, PlaceShard *shard, uint64_t digest, const Unplaced *row, uint32_t partition, int further) noexcept nogil:
        """Note a new place with the rules that put the key there, whole or without the frame of a schema's id."""
        cdef KeyHashes hashes
        cdef KeyPlace place = add_place(shard, digest, FEWEST_LINES + (shard - self.table.shards) % FEWEST_LINES)
        cdef uint32_t bits
        if place.line == NULL:
            return place
        hashes.murmur2 = row.primary if self.table.hashed_by == 0 else murmur2_of(row.key, row.length)
        hashes.crc32 = row.primary if self.table.hashed_by == 1 else klog_crc32(0, row.key, row.length)
        hashes.fnv1a = row.primary if self.table.hashed_by == 2 else fnv1a_of(row.key, row.length)
        bits = rules_for(&hashes, partition, self.table.reciprocal, self.table.partitions)
        self.places_by[bits] += 1
        if row.key[0] == 0 and row.length > FRAME_BYTES:
            hash_key(row.key + FRAME_BYTES, row.length - FRAME_BYTES, &hashes)
            bits |= rules_for(&hashes, partition, self.table.reciprocal, self.table.partitions) << UNFRAMED_SHIFT
        place.line.partitions[place.at], place.line.bits[place.at] = partition, bits | further
        return place
