# Entries of the table of digests one after the other, and those whose digest another one has.

cdef enum:
    BUCKET_BITS = 8
    BUCKETS = 1 << BUCKET_BITS
    TOP_SHIFT = 64 - BUCKET_BITS
    LEAST_SEEN_BITS = 12
    SEEN_FACTOR = 8              # slots for each entry, of two bits: one entry in eight shares one by chance


cdef inline int order_of(const BatchEntry *one, const BatchEntry *other) noexcept nogil:
    if one.digest != other.digest:
        return -1 if one.digest < other.digest else 1
    if one.log != other.log:
        return -1 if one.log < other.log else 1
    if one.position != other.position:
        return -1 if one.position < other.position else 1
    return 0


cdef int compare_entries(const void *one, const void *other) noexcept nogil:
    return order_of(<const BatchEntry *>one, <const BatchEntry *>other)


cdef extern from "stdlib.h" nogil:
    void qsort(void *base, size_t count, size_t size, int (*compare)(const void *, const void *) noexcept nogil)


cdef Py_ssize_t put_in_buckets(BatchEntry *entries, Py_ssize_t count, int shift, Py_ssize_t *ends) noexcept nogil:
    """Order entries by eight bits of their digests, from bit *shift* on, in place; *ends*: where each bucket ends."""
    cdef Py_ssize_t next_free[BUCKETS]
    cdef Py_ssize_t i, bucket, home
    cdef BatchEntry moved, other
    memset(ends, 0, BUCKETS * sizeof(Py_ssize_t))
    for i in range(count):
        ends[entries[i].digest >> shift & (BUCKETS - 1)] += 1
    home = 0
    for bucket in range(BUCKETS):
        next_free[bucket] = home
        home += ends[bucket]
        ends[bucket] = home
    for bucket in range(BUCKETS):
        while next_free[bucket] < ends[bucket]:
            moved = entries[next_free[bucket]]
            home = <Py_ssize_t>(moved.digest >> shift & (BUCKETS - 1))
            while home != bucket:
                other = entries[next_free[home]]
                entries[next_free[home]] = moved
                next_free[home] += 1
                moved = other
                home = <Py_ssize_t>(moved.digest >> shift & (BUCKETS - 1))
            entries[next_free[bucket]] = moved
            next_free[bucket] += 1
    return count


cdef inline int seen_bits(Py_ssize_t count) noexcept nogil:
    """Return by how many bits of their digests so many entries are told apart."""
    cdef int bits = LEAST_SEEN_BITS
    while (<Py_ssize_t>1 << bits) < SEEN_FACTOR * count:
        bits += 1
    return bits


cdef Py_ssize_t mark_seen(const BatchEntry *entries, Py_ssize_t count, uint8_t *seen, int bits, int shift) noexcept nogil:
    """Mark *bits* bits of digests, from *shift* on; return how many entries were not the first with theirs.

    *seen*: two bits for each value, none set before the first call.
    """
    cdef Py_ssize_t i, again = 0
    cdef uint64_t mask = (<uint64_t>1 << bits) - 1, slot
    cdef uint8_t once, found
    for i in range(count):
        slot = entries[i].digest >> shift & mask
        once = 1 << 2 * (slot & 3)
        found = seen[slot >> 2] & once
        seen[slot >> 2] |= once + found  # the second time the bit beside it
        again += found != 0
    return again


cdef Py_ssize_t take_marked(const BatchEntry *entries, Py_ssize_t count, const uint8_t *seen, int bits, int shift,
                            BatchEntry *to) noexcept nogil:
    """Copy the entries to *to* whose bits others have as well; return how many.  *to* may be where they are."""
    cdef Py_ssize_t i, kept = 0
    cdef uint64_t mask = (<uint64_t>1 << bits) - 1, slot
    for i in range(count):
        slot = entries[i].digest >> shift & mask
        if seen[slot >> 2] >> 2 * (slot & 3) & 2:
            to[kept] = entries[i]
            kept += 1
    return kept


cdef Py_ssize_t keep_repeated(BatchEntry *entries, Py_ssize_t count) noexcept nogil:
    """Order entries; move those whose digest another one has to the front, and return how many they are."""
    cdef Py_ssize_t kept = 0, start = 0, end
    qsort(entries, count, sizeof(BatchEntry), compare_entries)
    while start < count:
        end = start + 1
        while end < count and entries[end].digest == entries[start].digest:
            end += 1
        if end - start > 1:
            memmove(entries + kept, entries + start, (end - start) * sizeof(BatchEntry))
            kept += end - start
        start = end
    return kept


@cython.final
cdef class RepeatedEntries:
    """Memory for the search for entries whose digest another one has: marks that were seen, and what is kept."""

    cdef uint8_t *seen
    cdef BatchEntry *kept
    cdef Py_ssize_t seen_size, kept_count, kept_room
    cdef int bits

    def __dealloc__(self):
        free(self.seen)
        free(self.kept)

    cdef int begin(self, Py_ssize_t count) except -1:
        """Begin among so many entries: nothing was seen yet."""
        self.bits, self.kept_count = seen_bits(count), 0
        if self.seen_size < <Py_ssize_t>1 << (self.bits - 2):
            free(self.seen)
            self.seen_size = <Py_ssize_t>1 << (self.bits - 2)
            self.seen = <uint8_t *>malloc(self.seen_size)
            if self.seen == NULL:
                self.seen_size = 0
                raise MemoryError("no memory for digests")
        self.forget()
        return 0

    cdef void forget(self) noexcept nogil:
        memset(self.seen, 0, <size_t>1 << (self.bits - 2))

    cdef int room(self, Py_ssize_t count) except -1:
        """Make room for so many entries to be kept."""
        if count > self.kept_room:
            free(self.kept)
            self.kept_room = count
            self.kept = <BatchEntry *>malloc(count * sizeof(BatchEntry))
            if self.kept == NULL:
                self.kept_room = 0
                raise MemoryError("no memory for repeated digests")
        return 0

    cdef bytes found(self, int shift):
        """Return those of the kept entries whose digest another one has, by digest, log and position.

        *shift*: the lowest of the bits by which they are told apart, others than before.
        """
        with nogil:
            self.forget()
            mark_seen(self.kept, self.kept_count, self.seen, self.bits, shift)
            self.kept_count = take_marked(self.kept, self.kept_count, self.seen, self.bits, shift, self.kept)
            self.kept_count = keep_repeated(self.kept, self.kept_count)
        return PyBytes_FromStringAndSize(<const char *>self.kept, self.kept_count * sizeof(BatchEntry))

    cdef bytes search(self, const BatchEntry *entries, Py_ssize_t count):
        """Return the entries whose digest another one has, by digest, log and position."""
        cdef Py_ssize_t again
        self.begin(count)
        with nogil:
            again = mark_seen(entries, count, self.seen, self.bits, 0)
        self.room(min(2 * again, count))
        with nogil:
            self.kept_count = take_marked(entries, count, self.seen, self.bits, 0, self.kept)
        return self.found(self.bits)


def repeated_entries(const unsigned char[::1] entries not None):
    """Return the entries whose digest another of these has, by digest, log and position."""
    cdef Py_ssize_t count = entry_count(entries, 0)
    cdef RepeatedEntries search = RepeatedEntries()
    return search.search(<const BatchEntry *>&entries[0], count) if count else b""


cdef Py_ssize_t entry_count(const unsigned char[::1] entries, Py_ssize_t start) except -1:
    cdef Py_ssize_t size = entries.shape[0] - start
    if start < 0 or size < 0 or size % <Py_ssize_t>sizeof(BatchEntry):
        raise ValueError(f"entries of {entries.shape[0]} bytes from {start} on")
    return size // <Py_ssize_t>sizeof(BatchEntry)


@cython.final
cdef class EntryList:
    """Entries one after the other, up to *most* of them, which may have one digest: those that `thin` leaves."""

    cdef BatchEntry *rows
    cdef Py_ssize_t room
    cdef readonly Py_ssize_t count, most
    cdef Py_ssize_t ends[BUCKETS]

    def __cinit__(self, Py_ssize_t most):
        self.most = max(most, 1)

    def __dealloc__(self):
        free(self.rows)

    def __len__(self):
        return self.count

    def add(self, const unsigned char[::1] entries not None, Py_ssize_t start=0):
        """Append *entries* from byte *start* on, as many as there is room for; return the first byte not taken."""
        cdef Py_ssize_t wanted = entry_count(entries, start), taken
        taken = min(wanted, self.most - self.count)
        if not taken:
            return start
        self._reserve(self.count + taken)
        memcpy(self.rows + self.count, &entries[start], taken * sizeof(BatchEntry))
        self.count += taken
        return start + taken * <Py_ssize_t>sizeof(BatchEntry)

    cdef int _reserve(self, Py_ssize_t count) except -1:
        cdef Py_ssize_t room = min(max(count, 2 * self.room, 1024), self.most)
        cdef void *larger
        if count <= self.room:
            return 0
        larger = realloc(self.rows, room * sizeof(BatchEntry))
        if larger == NULL:
            raise MemoryError("no memory for more batches")
        self.rows, self.room = <BatchEntry *>larger, room
        return 0

    def arrange(self, int shift=56):
        """Order the entries by eight bits of their digests; return the number of the entry with which each bucket ends."""
        cdef Py_ssize_t i
        with nogil:
            put_in_buckets(self.rows, self.count, shift, self.ends)
        return [self.ends[i] for i in range(BUCKETS)]

    def content(self, Py_ssize_t first, Py_ssize_t end):
        """Return the bytes of entries *first* to *end*; they count until the next change."""
        if not 0 <= first <= end <= self.count:
            raise IndexError(f"entries {first} to {end} of {self.count}")
        return PyMemoryView_FromMemory(<char *>(self.rows + first), (end - first) * sizeof(BatchEntry), 0x100)

    def repeated(self):
        """Return the entries whose digest another one has, by digest, log and position."""
        return RepeatedEntries().search(self.rows, self.count)

    def thin(self, Py_ssize_t most):
        """Keep of each digest *most* entries a log; return (digest, log, how many went) of those that lost some."""
        cdef Py_ssize_t i, kept = 0, same = 0
        cdef BatchEntry entry
        lost = {}
        qsort(self.rows, self.count, sizeof(BatchEntry), compare_entries)
        for i in range(self.count):
            entry = self.rows[i]
            if kept and self.rows[kept - 1].digest == entry.digest and self.rows[kept - 1].log == entry.log:
                same += 1
            else:
                same = 1
            if same > most:
                key = entry.digest, entry.log
                lost[key] = lost.get(key, 0) + 1
                continue
            self.rows[kept] = entry
            kept += 1
        self.count = kept
        return [(digest, log, count) for (digest, log), count in lost.items()]

    def grow(self):
        """Allow twice as many entries."""
        self.most *= 2

    def clear(self):
        """Forget all entries; the memory stays."""
        self.count = 0
