# The digests of batches: entries of 24 bytes, one after the other; they are sorted to find digests that occur again.

cdef packed struct BatchEntry:   # a batch in the table of digests
    uint64_t digest
    uint32_t log                 # number of its log
    uint32_t position            # bytes from the start of the log
    uint32_t crc                 # of a CreateTime batch without its largest timestamp
    uint32_t tag                 # its number among the data batches of the log, and its codec

cdef enum:
    BUCKETS = 256                # by eight bits of a digest
    FEW_ENTRIES = 32             # are sorted by insertion


cdef inline int compare_entries(const void *one, const void *other) noexcept nogil:
    """Compare by digest, log and position."""
    cdef const BatchEntry *a = <const BatchEntry *>one
    cdef const BatchEntry *b = <const BatchEntry *>other
    if a.digest != b.digest:
        return -1 if a.digest < b.digest else 1
    if a.log != b.log:
        return -1 if a.log < b.log else 1
    return (a.position > b.position) - (a.position < b.position)


cdef extern from "stdlib.h" nogil:
    void qsort(void *base, size_t count, size_t size, int (*compare)(const void *, const void *) noexcept nogil)


cdef void put_in_buckets(BatchEntry *entries, Py_ssize_t count, int shift, Py_ssize_t *ends) noexcept nogil:
    """Order entries by eight bits of their digests, from bit *shift* on, in place; *ends*: the end of each bucket."""
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


cdef void sort_entries(BatchEntry *entries, Py_ssize_t count, int shift) noexcept nogil:
    """Sort entries by digest, log and position; the bits of their digests from *shift* + 8 on are equal."""
    cdef Py_ssize_t ends[BUCKETS]
    cdef Py_ssize_t i, at, start = 0
    cdef BatchEntry entry
    if count <= FEW_ENTRIES:
        for i in range(1, count):
            entry, at = entries[i], i
            while at and compare_entries(&entry, entries + at - 1) < 0:
                entries[at] = entries[at - 1]
                at -= 1
            entries[at] = entry
        return
    if shift < 0:
        qsort(entries, count, sizeof(BatchEntry), compare_entries)
        return
    put_in_buckets(entries, count, shift, ends)
    for i in range(BUCKETS):
        sort_entries(entries + start, ends[i] - start, shift - 8)
        start = ends[i]


cdef Py_ssize_t entry_count(const unsigned char[::1] entries, Py_ssize_t start) except -1:
    cdef Py_ssize_t size = entries.shape[0] - start
    if start < 0 or size < 0 or size % <Py_ssize_t>sizeof(BatchEntry):
        raise ValueError(f"entries of {entries.shape[0]} bytes from {start} on")
    return size // <Py_ssize_t>sizeof(BatchEntry)


@cython.final
cdef class EntryList:
    """Entries one after the other, up to *most* of them."""

    cdef BatchEntry *rows
    cdef Py_ssize_t room
    cdef readonly Py_ssize_t count, most

    def __cinit__(self, Py_ssize_t most):
        self.most = max(most, 1)

    def __dealloc__(self):
        free(self.rows)

    def __len__(self) -> int:
        return self.count

    def add(self, const unsigned char[::1] entries not None, Py_ssize_t start=0) -> int:
        """Append *entries* from byte *start* on, as many as there is room for; return the first byte not taken."""
        cdef Py_ssize_t taken = min(entry_count(entries, start), self.most - self.count)
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

    cdef int _check(self, Py_ssize_t first, Py_ssize_t end) except -1:
        if not 0 <= first <= end <= self.count:
            raise IndexError(f"entries {first} to {end} of {self.count}")
        return 0

    def arrange(self, int shift) -> list[int]:
        """Order the entries by eight bits of their digests, from bit *shift* on; return the end of each of 256 buckets."""
        cdef Py_ssize_t ends[BUCKETS]
        cdef Py_ssize_t i
        with nogil:
            put_in_buckets(self.rows, self.count, shift, ends)
        return [ends[i] for i in range(BUCKETS)]

    def content(self, Py_ssize_t first, Py_ssize_t end) -> memoryview:
        """Return the bytes of entries *first* to *end*; they are valid until the next change."""
        self._check(first, end)
        return PyMemoryView_FromMemory(<char *>(self.rows + first), (end - first) * sizeof(BatchEntry), 0x100)

    def repeated(self, Py_ssize_t first, Py_ssize_t end, int shift) -> bytes:
        """Sort entries *first* to *end* by digest, log and position; return those whose digest another of them has.

        *shift*: the bits of their digests from *shift* + 8 on are equal.
        """
        cdef Py_ssize_t size
        self._check(first, end)
        with nogil:
            sort_entries(self.rows + first, end - first, shift)
            size = self._copy_repeated(first, end, NULL)
        found = PyBytes_FromStringAndSize(NULL, size * <Py_ssize_t>sizeof(BatchEntry))
        self._copy_repeated(first, end, <BatchEntry *>PyBytes_AsString(found))
        return found

    cdef Py_ssize_t _copy_repeated(self, Py_ssize_t first, Py_ssize_t end, BatchEntry *to) noexcept nogil:
        """Copy sorted entries whose digest the one before or behind has; return how many.  *to*: NULL only counts."""
        cdef Py_ssize_t i, count = 0
        cdef uint64_t digest
        for i in range(first, end):
            digest = self.rows[i].digest
            if (i > first and self.rows[i - 1].digest == digest) or (i + 1 < end and self.rows[i + 1].digest == digest):
                if to != NULL:
                    to[count] = self.rows[i]
                count += 1
        return count

    def thin(self, Py_ssize_t most) -> list[tuple[int, int, int]]:
        """Keep *most* entries of each digest and log; return (digest, log, how many were removed) where there were more."""
        cdef Py_ssize_t i, kept = 0, same = 0
        cdef BatchEntry entry
        lost = {}
        sort_entries(self.rows, self.count, 56)
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
        """Forget all entries; the memory is kept."""
        self.count = 0
