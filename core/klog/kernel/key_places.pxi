# Which keys lie in which partitions of a topic: a table of digests, filled by several threads, and judged by rule.

cdef extern from "pythread.h" nogil:
    ctypedef void *ThreadLock "PyThread_type_lock"
    ThreadLock PyThread_allocate_lock()
    void PyThread_free_lock(ThreadLock lock)
    int PyThread_acquire_lock(ThreadLock lock, int wait)
    void PyThread_release_lock(ThreadLock lock)

cdef enum:
    SLICE_BITS = 6
    SLICES = 1 << SLICE_BITS     # of the table, each with a lock: threads seldom meet, and few places move at a time
    FEWEST_PLACES = 64           # of a slice; a power of two, as all its sizes
    RULE_SETS = 128              # a bit for each of the seven rules
    RULE_BITS = RULE_SETS - 1
    UNFRAMED_SHIFT = 7           # bits of a place: the rules that put the key there, then those that do without its frame …
    FURTHER = 1 << 14            # … the key has another place, by which it is counted
    SEVERAL = 1 << 15            # … the key has further places
    FRAME_BYTES = 5              # a zero and the id of a schema

cdef struct KeyPlace:            # of a key: its digest, or `further_digest`
    uint64_t digest
    uint32_t partition
    uint16_t bits
    uint16_t used                # 0: a free place

cdef struct PlaceSlice:          # open addressing: a place is at its slot, or behind it up to a free place
    KeyPlace *places
    uint64_t room, used

cdef struct PlaceWalk:           # over all places
    uint32_t slice
    uint64_t at


cdef inline uint64_t further_digest(uint64_t digest, uint32_t partition) noexcept nogil:
    """The digest of a place that is not the first of its key; applied again, it gives the digest of the key."""
    cdef uint64_t spread = 0x9E3779B97F4A7C15
    return digest ^ spread * (partition + 1)


cdef inline uint64_t place_slot(const PlaceSlice *slice, uint64_t digest) noexcept nogil:
    """The slot of a digest: the bits below those that tell its slice."""
    return (digest << SLICE_BITS >> 32) * slice.room >> 32


cdef inline KeyPlace *find_place(const PlaceSlice *slice, uint64_t digest, int further) noexcept nogil:
    """The place with this digest whose bit FURTHER is as given; NULL if there is none."""
    cdef uint64_t at
    if slice.room == 0:
        return NULL
    at = place_slot(slice, digest)
    while slice.places[at].used:
        if slice.places[at].digest == digest and slice.places[at].bits & FURTHER == further:
            return slice.places + at
        at = at + 1 & slice.room - 1
    return NULL


cdef inline KeyPlace *free_place(const PlaceSlice *slice, uint64_t digest) noexcept nogil:
    cdef uint64_t at = place_slot(slice, digest)
    while slice.places[at].used:
        at = at + 1 & slice.room - 1
    return slice.places + at


cdef KeyPlace *add_place(PlaceSlice *slice, uint64_t digest) noexcept nogil:
    """Take a free place for this digest; NULL when there is no memory.  Three places in four are used at most."""
    cdef PlaceSlice larger
    cdef KeyPlace *place
    cdef uint64_t i
    if 4 * (slice.used + 1) > 3 * slice.room:
        larger.room, larger.used = max(2 * slice.room, FEWEST_PLACES), slice.used
        larger.places = <KeyPlace *>calloc(larger.room, sizeof(KeyPlace))
        if larger.places == NULL:
            return NULL
        for i in range(slice.room):
            if slice.places[i].used:
                free_place(&larger, slice.places[i].digest)[0] = slice.places[i]
        free(slice.places)
        slice[0] = larger
    place = free_place(slice, digest)
    place.digest, place.used = digest, 1
    slice.used += 1
    return place


cdef class PlaceTable:
    """The places of a topic's keys: which key lies in which partition.

    A key is its digest: one of the clients' hashes (*hashed_by*: 0 murmur2, 1 CRC-32, 2 FNV-1a), which tells its partition by
    the rules of that hash, and another, keyed by a secret, that tells apart what it does not.  They are mixed by a secret,
    so that nobody can make keys that fall into one slot.  Two keys of one digest count as one.
    """

    cdef PlaceSlice slices[SLICES]
    cdef ThreadLock locks[SLICES]
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
        for i in range(SLICES):
            self.locks[i] = PyThread_allocate_lock()
            if self.locks[i] == NULL:
                raise MemoryError("no memory for locks")

    def __dealloc__(self):
        cdef int i
        for i in range(SLICES):
            free(self.slices[i].places)
            if self.locks[i] != NULL:
                PyThread_free_lock(self.locks[i])

    @property
    def places_by_rules(self) -> list[int]:
        """How many places there are by the rules that put their keys there: the index has a bit for each rule."""
        return [self.places_by[i] for i in range(RULE_SETS)]

    @property
    def records_by_rules(self) -> list[int]:
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

    cdef inline uint64_t key_digest(self, const KeyPlace *place) noexcept nogil:
        """The digest of the key at a place."""
        return further_digest(place.digest, place.partition) if place.bits & FURTHER else place.digest

    cdef KeyPlace *next(self, PlaceWalk *walk) noexcept nogil:
        """The next place of a walk that began at 0, 0; NULL behind the last."""
        while walk.slice < SLICES:
            while walk.at < self.slices[walk.slice].room:
                walk.at += 1
                if self.slices[walk.slice].places[walk.at - 1].used:
                    return self.slices[walk.slice].places + walk.at - 1
            walk.slice, walk.at = walk.slice + 1, 0
        return NULL
