# Why keys lie where their topic's rule does not put them.

cdef enum:                       # causes, in the bits of a place that had its rules without a frame; the last counts for a key
    IN_PLACE = 0
    GROWN = 1                    # … and one for each number of partitions that the topic had before
    MOST_GROWN = 3
    ANOTHER_RULE = 4             # … and one for each rule
    UNFRAMED = 11
    NO_CAUSE = 12
    CAUSES = 13
    MOST_LISTED = 1000

cdef struct ListedPlace:
    int cause
    uint32_t partition, expected
    uint64_t plain, digest


@cython.final
cdef class KeyPlaces(PlaceTable):
    """The table once it is filled: which places a rule does not give, and why.

    `judge` is asked once; before it, `earlier_counts` tells how many partitions the topic may have had.
    """

    cdef int rule
    cdef uint32_t earlier[MOST_GROWN]
    cdef int earlier_count
    cdef int order[RULES]              # the other rules, as they are tried

    cdef int _set_rule(self, int rule, tuple earlier) except -1:
        cdef int i
        if not 0 <= rule < RULES or len(earlier) > MOST_GROWN:
            raise ValueError("no such rule, or too many numbers of partitions")
        if self.hashed_by != (0, 1, 2, 2, 2, 0, 0)[rule]:
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
        The causes: in place, earlier numbers (three), another rule (seven), without a frame, none.  Of a key with several
        such places the last of their causes counts.
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
