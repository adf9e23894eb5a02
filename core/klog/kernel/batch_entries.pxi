# The table of digests: entries of batches in buckets, and those whose digest another one has.

cdef enum:
    BUCKET_BITS = 8
    BUCKETS = 1 << BUCKET_BITS
    LEAST_SEEN_BITS = 12
    SEEN_FACTOR = 8              # slots for each entry, of two bits: one entry in eight shares one by chance
    SLOTS_AHEAD = 16                   # entries whose slots are on their way from memory


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


cdef Py_ssize_t keep_candidates(BatchEntry *entries, Py_ssize_t count, uint8_t *seen, int bits, int shift) noexcept nogil:
    """Move the entries to the front that share *bits* bits of their digests, from *shift* on, with others; return how many.

    *seen*: zeros, two bits for each value.
    """
    cdef Py_ssize_t i, kept = 0
    cdef uint64_t mask = (<uint64_t>1 << bits) - 1
    cdef uint64_t slot
    cdef uint8_t once
    cdef BatchEntry entry
    for i in range(count):
        if i + SLOTS_AHEAD < count:
            prefetch(seen + ((entries[i + SLOTS_AHEAD].digest >> shift & mask) >> 2))
        slot = entries[i].digest >> shift & mask
        once = 1 << 2 * (slot & 3)
        seen[slot >> 2] |= once + (seen[slot >> 2] & once)  # the second time the bit beside it
    for i in range(count):
        if i + SLOTS_AHEAD < count:
            prefetch(seen + ((entries[i + SLOTS_AHEAD].digest >> shift & mask) >> 2))
        slot = entries[i].digest >> shift & mask
        if seen[slot >> 2] >> 2 * (slot & 3) & 2:
            entry = entries[kept]
            entries[kept] = entries[i]
            entries[i] = entry
            kept += 1
    return kept


cdef Py_ssize_t keep_repeated(BatchEntry *entries, Py_ssize_t count) noexcept nogil:
    """Move the entries whose digest another one has, which are in order, to the front; return how many."""
    cdef Py_ssize_t i, kept = 0, start = 0, end
    cdef BatchEntry entry
    while start < count:
        end = start + 1
        while end < count and entries[end].digest == entries[start].digest:
            end += 1
        if end - start > 1:
            for i in range(start, end):
                entry = entries[kept]  # what goes stays among the others: they may be asked again
                entries[kept] = entries[i]
                entries[i] = entry
                kept += 1
        start = end
    return kept


@cython.final
cdef class BatchEntries:
    """Entries in memory, up to *most* of them: `add` until it is full, `arrange`, and look at one bucket after the other."""

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
        cdef Py_ssize_t wanted = (entries.shape[0] - start) // <Py_ssize_t>sizeof(BatchEntry), taken
        if start < 0 or wanted < 0 or (entries.shape[0] - start) % sizeof(BatchEntry):
            raise ValueError(f"entries of {entries.shape[0]} bytes from {start} on")
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

    def repeated(self, int shift=56):
        """Return the entries whose digest another one has, by digest, log and position; the order of all changes.

        *shift*: the lowest of eight bits that put them in order before they are sorted: the bits above are the same in
        all.  Negative: all bits are.
        """
        cdef Py_ssize_t kept = self.count, bucket, start = 0
        cdef uint8_t *seen
        cdef int bits = LEAST_SEEN_BITS, part
        while (<Py_ssize_t>1 << bits) < SEEN_FACTOR * self.count:
            bits += 1
        seen = <uint8_t *>malloc(<size_t>1 << (bits - 2))
        if seen == NULL:
            raise MemoryError("no memory for digests")
        with nogil:
            for part in range(2):
                memset(seen, 0, <size_t>1 << (bits - 2))
                kept = keep_candidates(self.rows, kept, seen, bits, part * bits)
            free(seen)
            if shift >= 0:
                put_in_buckets(self.rows, kept, shift, self.ends)
                for bucket in range(BUCKETS):
                    qsort(self.rows + start, self.ends[bucket] - start, sizeof(BatchEntry), compare_entries)
                    start = self.ends[bucket]
            else:
                qsort(self.rows, kept, sizeof(BatchEntry), compare_entries)
            kept = keep_repeated(self.rows, kept)
        return PyBytes_FromStringAndSize(<const char *>self.rows, kept * sizeof(BatchEntry))

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
