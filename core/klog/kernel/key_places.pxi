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
    READ_ROWS = 1024             # rows whose lines are asked for before the first of them is looked up

cdef struct Unplaced:            # a row that has not been looked up
    uint64_t digest
    const uint8_t *key
    Py_ssize_t length
    uint32_t primary


cdef inline uint64_t further_digest(uint64_t digest, uint32_t partition) noexcept nogil:
    """What stands for a place that is not the first of its key; the same again gives the key's digest back."""
    cdef uint64_t spread = 0x9E3779B97F4A7C15
    return digest ^ spread * (partition + 1)


cdef class PlaceTable:
    """The places of a topic's keys: which key lies in which partition.

    A key is its digest: one of the clients' hashes (*hashed_by*: 0 murmur2, 1 CRC-32, 2 FNV-1a), which tells its partition by
    the rules of that hash, and CRC-32C, the cheapest to tell apart what it does not.  They are mixed by a secret, so that
    nobody can make keys that fall into one line.  Two keys of one digest count as one.
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

    cdef inline uint64_t digest(self, uint32_t primary, uint32_t check) noexcept nogil:
        cdef uint64_t x = (<uint64_t>primary << 32 | check) * self.factors[0]
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
    cdef readonly long long records, null_keys, empty_keys
    cdef readonly long long first_empty, last_empty          # offsets; -1: none
    cdef long long keys, several
    cdef long long places_by[RULE_SETS]
    cdef long long records_by[RULE_SETS]

    def __cinit__(self, PlaceTable table not None, bint shared=False):
        self.table, self.shared = table, shared
        self.rows = <Unplaced *>malloc(READ_ROWS * sizeof(Unplaced))
        self.order = <uint32_t *>malloc(READ_ROWS * sizeof(uint32_t))
        if self.rows == NULL or self.order == NULL:
            raise MemoryError("no memory for rows")
        self.first_empty = self.last_empty = -1

    def __dealloc__(self):
        free(self.rows)
        free(self.order)

    def add(self, Window window not None, int partition):
        """Take the record rows of *window*, which are of *partition*: one below 65536."""
        cdef Py_ssize_t i = 0
        cdef bint whole = True
        if not 0 <= partition <= 0xFFFF:
            raise ValueError(f"partition {partition} of more than 65536")
        with nogil:
            while i < window.view.records_count and whole:
                i = self._some(&window.view, i, partition, &whole)
        if not whole:
            raise MemoryError("no memory for more keys")

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
        self.keys = self.several = self.records = self.null_keys = self.empty_keys = 0
        self.first_empty = self.last_empty = -1

    cdef Py_ssize_t _some(self, const View *v, Py_ssize_t i, int partition, bint *whole) noexcept nogil:
        """Take rows from *i* on, as many as are looked up at a time; return the next one."""
        cdef const RecordRow *row
        cdef Unplaced *one
        cdef const PlaceShard *shard
        cdef uint32_t count = 0, k
        while i < v.records_count and count < READ_ROWS:
            row = v.records + i
            i += 1
            if is_control(v, row):
                continue
            self.records += 1
            if row.key_length <= 0:
                self._without(row)
                continue
            one = self.rows + count
            one.key, one.length = v.bases[row.batch] + row.key_at, row.key_length
            one.primary = self.table.primary(one.key, one.length)
            one.digest = self.table.digest(one.primary, klog_crc32c(0, one.key, one.length))
            # Another thread may be about to replace the lines: then this is for nothing.
            shard = &self.table.shards[one.digest >> 64 - SHARD_BITS]
            prefetch(line_of(shard, one.digest))
            count += 1
        if self.shared:
            self._place_by_locks(count, partition, whole)
        else:
            for k in range(count):
                whole[0] = self._place(self.rows + k, partition) and whole[0]
        return i

    cdef void _without(self, const RecordRow *row) noexcept nogil:
        if row.key_length < 0:
            self.null_keys += 1
            return
        self.empty_keys += 1
        self.first_empty = row.offset if self.first_empty < 0 else min(self.first_empty, row.offset)
        self.last_empty = max(self.last_empty, row.offset)

    cdef void _place_by_locks(self, uint32_t count, int partition, bint *whole) noexcept nogil:
        """Place rows sorted by their locks, so that each lock is taken once."""
        cdef uint32_t ends[LOCKS + 1]
        cdef uint32_t lock, k, start = 0
        memset(ends, 0, sizeof(ends))
        for k in range(count):
            ends[(self.rows[k].digest >> 64 - LOCK_BITS) + 1] += 1
        for k in range(LOCKS):
            ends[k + 1] += ends[k]
        for k in range(count):
            lock = <uint32_t>(self.rows[k].digest >> 64 - LOCK_BITS)
            self.order[ends[lock]] = k
            ends[lock] += 1
        for lock in range(LOCKS):
            if ends[lock] > start:
                PyThread_acquire_lock(self.table.locks[lock], 1)
                for k in range(start, ends[lock]):
                    whole[0] = self._place(self.rows + self.order[k], partition) and whole[0]
                PyThread_release_lock(self.table.locks[lock])
                start = ends[lock]

    cdef bint _place(self, const Unplaced *row, int partition) noexcept nogil:
        """Count a record by its place, and the place if it is new; False when there is no memory for it."""
        cdef PlaceShard *shard = &self.table.shards[row.digest >> 64 - SHARD_BITS]
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

    cdef KeyPlace _add(self, PlaceShard *shard, uint64_t digest, const Unplaced *row, int partition, int further) noexcept nogil:
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
