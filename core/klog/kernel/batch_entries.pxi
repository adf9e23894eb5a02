# The table of digests: entries of batches in buckets, and those whose digest another one has.

cdef enum:
    BUCKET_BITS = 8
    BUCKETS = 1 << BUCKET_BITS
    LEAST_SEEN_BITS = 12
    SEEN_FACTOR = 16             # slots for each entry, of two bits: few entries share one by chance


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


cdef Py_ssize_t keep_repeated(BatchEntry *entries, Py_ssize_t count, uint8_t *seen, int bits) noexcept nogil:
    """Move the entries whose digest another one has to the front, in order; return how many.  *seen*: zeros, 2^bits."""
    cdef Py_ssize_t i, kept = 0, start, end, all_kept
    cdef uint64_t mask = (<uint64_t>1 << bits) - 1
    cdef uint64_t slot
    cdef BatchEntry entry
    for i in range(count):
        slot = entries[i].digest & mask
        seen[slot >> 2] |= 2 << 2 * (slot & 3) if seen[slot >> 2] >> 2 * (slot & 3) & 1 else 1 << 2 * (slot & 3)
    for i in range(count):
        slot = entries[i].digest & mask
        if seen[slot >> 2] >> 2 * (slot & 3) & 2:
            entry = entries[kept]
            entries[kept] = entries[i]
            entries[i] = entry
            kept += 1
    qsort(entries, kept, sizeof(BatchEntry), compare_entries)
    all_kept, kept, start = kept, 0, 0
    while start < all_kept:
        end = start + 1
        while end < all_kept and entries[end].digest == entries[start].digest:
            end += 1
        if end - start > 1:
            for i in range(start, end):
                entry = entries[kept]  # what goes stays among the others: the bucket may be asked again
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

    def repeated(self, Py_ssize_t first, Py_ssize_t end):
        """Return those of entries *first* to *end* whose digest another has, by digest, log, position; the order changes."""
        cdef Py_ssize_t kept, size
        cdef int bits = LEAST_SEEN_BITS
        cdef uint8_t *seen
        if not 0 <= first <= end <= self.count:
            raise IndexError(f"entries {first} to {end} of {self.count}")
        while (<Py_ssize_t>1 << bits) < SEEN_FACTOR * (end - first):
            bits += 1
        size = <Py_ssize_t>1 << (bits - 2)
        seen = <uint8_t *>calloc(size, 1)
        if seen == NULL:
            raise MemoryError("no memory for digests")
        with nogil:
            kept = keep_repeated(self.rows + first, end - first, seen, bits)
        free(seen)
        return PyBytes_FromStringAndSize(<const char *>(self.rows + first), kept * sizeof(BatchEntry))

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
