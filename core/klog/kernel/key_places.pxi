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
    void copy_key "klog_copy_key"(uint8_t *to, const uint8_t *key, size_t length)
    void free_shard "klog_free_shard"(const PlaceShard *shard)

cdef enum:
    SHARD_BITS = 9               # many small tables: one that grows takes memory that another has left
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

    cdef inline uint64_t digest(self, const uint8_t *key, Py_ssize_t length) noexcept nogil:
        cdef uint64_t primary = self.primary(key, length)
        cdef uint64_t x = (primary << 32 | key_check(key, length, self.factors[1])) * self.factors[0]
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
