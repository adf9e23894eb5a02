# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False, binding=False, annotation_typing=False
"""Keys, the partitions that clients put them into, and the partitions that they are in."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from os import urandom

from klog.kernel._window cimport (
    BatchRow, RecordRow, SKIPPED, VALUES_TEXT, View, Window, is_control, put_named, read_record,
)
from klog.kernel.chars cimport base64, decimal, json_size, put, put_bytes
from klog.kernel.crc cimport klog_crc32
from klog.kernel.layouts cimport ATTRIBUTE_CODEC, ATTRIBUTE_CONTROL, BATCH_BYTES
from klog.kernel.numbers cimport add
from klog.kernel.python cimport PyByteArray_AsString, PyBytes_AsString, PyBytes_Size

include "partitions.pxi"

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


cpdef enum:                      # causes, in the bits of a place that had its rules without a frame; the last counts for a key
    GROWN = 1                    # one for each number of partitions that the topic had before
    ANOTHER_RULE = 4             # one for each rule
    UNFRAMED = 11
    NO_CAUSE = 12

cdef enum:
    IN_PLACE = 0
    MOST_GROWN = 3
    CAUSES = 13
    MOST_LISTED = 1000

HASH_OF_RULE = (0, 1, 2, 2, 2, 0, 0)
"""The hash that each rule divides: 0 murmur2, 1 CRC-32, 2 FNV-1a."""

cdef struct ListedPlace:
    int cause
    uint32_t partition, expected
    uint64_t plain, digest


@cython.final
cdef class KeyPlaces:
    """The places of a topic's keys: which key lies in which partition.

    A key is its digest: one of the clients' hashes (*hashed_by*: 0 murmur2, 1 CRC-32, 2 FNV-1a), which tells its partition by
    the rules of that hash, and another, keyed by a secret, that tells apart what it does not.  They are mixed by a
    secret, so that no input can have keys for one slot only.  Two keys of one digest count as one.

    Once the table is filled, `judge` finds the places that a rule does not give, and the reasons; before it `earlier_counts` tells
    how many partitions the topic may have had.
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
    cdef int rule
    cdef uint32_t earlier[MOST_GROWN]
    cdef int earlier_count
    cdef int order[RULES]              # the other rules, as they are tried

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

    # ---- the judgement

    cdef int _set_rule(self, int rule, tuple earlier) except -1:
        cdef int i
        if not 0 <= rule < RULES or len(earlier) > MOST_GROWN:
            raise ValueError("no such rule, or too many numbers of partitions")
        if self.hashed_by != HASH_OF_RULE[rule]:
            raise ValueError("the digests of this table do not have that rule's hash")
        self.rule, self.earlier_count = rule, len(earlier)
        for i in range(self.earlier_count):
            self.earlier[i] = earlier[i]
            if not 0 < self.earlier[i] < self.partitions:
                raise ValueError(f"{earlier[i]} partitions before {self.partitions}")
        return 0

    def earlier_counts(self, int rule, tuple earlier not None: tuple[int, ...], long long most) -> list[int]:
        """Count the places that *rule* gives for each smaller number of partitions, of those that it does not give now.

        Places that it gives for a number in *earlier* are left out, and after *most* places it ends.
        """
        cdef long long *counts
        self._set_rule(rule, earlier)
        counts = <long long *>calloc(self.partitions, sizeof(long long))
        if counts == NULL:
            raise MemoryError("no memory for counts")
        try:
            with nogil:
                self._count_earlier(counts, most)
            return [counts[i] for i in range(self.partitions)]
        finally:
            free(counts)

    cdef void _count_earlier(self, long long *counts, long long most) noexcept nogil:
        cdef long long looked_at = 0
        cdef uint32_t value, earlier
        cdef PlaceWalk walk = PlaceWalk(0, 0)
        cdef KeyPlace *place = self.next(&walk)
        while place != NULL and looked_at < most:
            if not place.bits >> self.rule & 1:
                looked_at += 1
                value = self._dividend(place)
                if self._grown(value, place.partition) == IN_PLACE:
                    for earlier in range(place.partition + 1, self.partitions):
                        counts[earlier] += value % earlier == place.partition
            place = self.next(&walk)

    cdef inline uint32_t _dividend(self, const KeyPlace *place) noexcept nogil:
        """The number that the rule divides to find the partition of the key at a place."""
        cdef KeyHashes hashes
        self.hashes_of(self.key_digest(place), &hashes)
        return dividend(self.rule, &hashes)

    cdef inline int _grown(self, uint32_t value, uint32_t partition) noexcept nogil:
        """Return the cause of a place that the rule gave when there were fewer partitions; IN_PLACE when it did not."""
        cdef int i
        for i in range(self.earlier_count):
            if value % self.earlier[i] == partition:
                return GROWN + i
        return IN_PLACE

    def explained(self, int rule, tuple earlier not None: tuple[int, ...]) -> int:
        """Return how many of the places that *rule* does not give now it gave for a number of partitions in *earlier*."""
        cdef long long count = 0
        cdef PlaceWalk walk = PlaceWalk(0, 0)
        cdef KeyPlace *place
        self._set_rule(rule, earlier)
        with nogil:
            place = self.next(&walk)
            while place != NULL:
                if not place.bits >> self.rule & 1:
                    count += self._grown(self._dividend(place), place.partition) != IN_PLACE
                place = self.next(&walk)
        return count

    def judge(self, int rule, tuple earlier not None: tuple[int, ...], tuple others not None: tuple[int, ...]) -> list[int]:
        """Find out why keys lie where *rule* does not put them; return how many keys there are of each cause.

        *earlier*: numbers of partitions before the topic grew.  *others*: the numbers of the other rules, as they are tried.
        The causes: in place, earlier numbers (three), another rule (seven), without a frame, none.  If a key has
        several such places, the last of their causes counts.
        """
        cdef long long counts[CAUSES]
        cdef int i
        self._set_rule(rule, earlier)
        if sorted(others) != sorted(set(range(RULES)) - {rule}):
            raise ValueError("the others are all rules but one")
        for i in range(RULES - 1):
            self.order[i] = others[i]
        memset(counts, 0, sizeof(counts))
        with nogil:
            self._note_causes()
            self._join_causes()
            self._count_causes(counts)
        return [counts[i] for i in range(CAUSES)]

    cdef int _cause(self, const KeyPlace *place) noexcept nogil:
        cdef int i, cause
        if place.bits >> self.rule & 1:
            return IN_PLACE
        cause = self._grown(self._dividend(place), place.partition) if self.earlier_count else IN_PLACE
        if cause != IN_PLACE:
            return cause
        for i in range(RULES - 1):
            if place.bits >> self.order[i] & 1:
                return ANOTHER_RULE + self.order[i]
        return UNFRAMED if place.bits >> UNFRAMED_SHIFT >> self.rule & 1 else NO_CAUSE

    cdef void _note_causes(self) noexcept nogil:
        """Write at each place its cause, where the rules without a frame were."""
        cdef PlaceWalk walk = PlaceWalk(0, 0)
        cdef KeyPlace *place = self.next(&walk)
        while place != NULL:
            set_cause(place, self._cause(place))
            place = self.next(&walk)

    cdef void _join_causes(self) noexcept nogil:
        """Raise the cause at the first place of a key to the last of the causes at its others."""
        cdef PlaceWalk walk = PlaceWalk(0, 0)
        cdef KeyPlace *place = self.next(&walk)
        cdef KeyPlace *home
        while place != NULL:
            if place.bits & FURTHER:
                home = find_place(&self.slices[walk.slice], self.key_digest(place), 0)
                if cause_of(home) < cause_of(place):
                    set_cause(home, cause_of(place))
            place = self.next(&walk)

    cdef void _count_causes(self, long long *counts) noexcept nogil:
        cdef PlaceWalk walk = PlaceWalk(0, 0)
        cdef KeyPlace *place = self.next(&walk)
        while place != NULL:
            if not place.bits & FURTHER:
                counts[cause_of(place)] += 1
            place = self.next(&walk)

    def listed(self, int most) -> list[tuple[int, int, int, int]]:
        """Return *most* of the places that the rule does not give, after `judge`: those of the last causes first.

        Each is its cause, its partition, the one that the rule gives, and the digest for `KeyExamples`.  Whatever the
        order in which the table was filled, they are the same.
        """
        cdef ListedPlace found[MOST_LISTED]
        cdef int i, count
        if not 0 <= most <= MOST_LISTED:
            raise ValueError(f"{most} places; {MOST_LISTED} at most")
        with nogil:
            count = self._list(found, most)
        return [(found[i].cause, found[i].partition, found[i].expected, found[i].digest) for i in range(count)]

    cdef int _list(self, ListedPlace *found, int most) noexcept nogil:
        cdef int count = 0
        cdef ListedPlace one
        cdef PlaceWalk walk = PlaceWalk(0, 0)
        cdef KeyPlace *place = self.next(&walk)
        while place != NULL:
            if not place.bits >> self.rule & 1:
                one.digest, one.partition = self.key_digest(place), place.partition
                one.plain, one.cause = self.plain(one.digest), cause_of(place)
                one.expected = self._dividend(place) % self.partitions
                count = put_listed(found, count, most, &one)
            place = self.next(&walk)
        return count


cdef inline int cause_of(const KeyPlace *place) noexcept nogil:
    return place.bits >> UNFRAMED_SHIFT & RULE_BITS


cdef inline void set_cause(KeyPlace *place, int cause) noexcept nogil:
    place.bits = (place.bits & (RULE_BITS | FURTHER | SEVERAL)) | cause << UNFRAMED_SHIFT


cdef inline bint comes_before(const ListedPlace *one, const ListedPlace *other) noexcept nogil:
    if one.cause != other.cause:
        return one.cause > other.cause
    return one.partition < other.partition if one.partition != other.partition else one.plain < other.plain


cdef int put_listed(ListedPlace *found, int count, int most, const ListedPlace *one) noexcept nogil:
    """Put a place where it belongs among those found so far, the last of which may have to go; return how many there are."""
    cdef int at = count
    if count == most:
        if most == 0 or not comes_before(one, &found[most - 1]):
            return count
        at -= 1
    else:
        count += 1
    while at > 0 and comes_before(one, &found[at - 1]):
        found[at] = found[at - 1]
        at -= 1
    found[at] = one[0]
    return count


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

    cdef KeyPlaces table
    cdef bint shared
    cdef bint whole                              # there was memory for all keys
    cdef KeyRow *rows                            # of a batch
    cdef int count
    cdef uint32_t partition                      # where they lie
    cdef KeyCounts counts
    cdef long long keys, several
    cdef long long places_by[RULE_SETS]
    cdef long long records_by[RULE_SETS]

    def __cinit__(self, KeyPlaces table not None, bint shared=False):
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
        cdef KeyPlaces table = self.table
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

    cdef KeyPlaces table
    cdef KeyExample *slots
    cdef list keys

    def __cinit__(self, KeyPlaces table not None, list places not None: list[tuple[int, int]]):
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
        """The facts of each place: its number, its records, the first and the last offset, the key's length and its first bytes."""
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
