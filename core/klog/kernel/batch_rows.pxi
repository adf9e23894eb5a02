# The batches of a window: found, checked, and chosen by their headers.

cdef long long HIGHEST_FILE = 1 << 62  # bytes beyond a window, so that sums with them cannot overflow

cdef object new_tuple = tuple.__new__


cdef class BatchRows(WindowBuffer):
    """The batches in the bytes of a window, a row each."""

    cdef Py_ssize_t batches_room

    def __dealloc__(self):
        free(self.view.batches)
        free(self.view.bases)
        free(self.view.lengths)

    cdef int _reserve_batches(self, Py_ssize_t count) except -1:
        cdef void *batches = realloc(self.view.batches, count * sizeof(BatchRow))
        if batches != NULL:
            self.view.batches = <BatchRow *>batches
        cdef void *bases = realloc(self.view.bases, count * sizeof(uint8_t *))
        if bases != NULL:
            self.view.bases = <const uint8_t **>bases
        cdef void *lengths = realloc(self.view.lengths, count * sizeof(int))
        if lengths != NULL:
            self.view.lengths = <int *>lengths
        if batches == NULL or bases == NULL or lengths == NULL:
            raise MemoryError()
        self.batches_room = count
        return 0

    @property
    def count(self):
        """Batches found so far."""
        return self.view.batches_count

    def scan(self, Py_ssize_t start, bint lenient=False, Py_ssize_t beyond=0, bint check=False):
        """Append the batches from *start* on; return why that ended.  `next_at` is where.

        *lenient*: take what Kafka's own tools take (see `unfit`).  *beyond*: so many bytes of the file follow the window;
        a last batch of which they hold a part has a row as well, already skipped: no checksum, no records.
        *check*: compute checksums too, as `check` does, which costs less than doing it afterwards.
        """
        cdef Py_ssize_t at = start
        cdef int status = MORE
        if not 0 <= start <= self.view.size or not 0 <= beyond <= HIGHEST_FILE:
            raise IndexError(f"scan from {start} in a window of {self.view.size} and {beyond} more")
        if not check:
            status = scan_entries(&self.view, &at, self.view.size, min(FEW, self.batches_room), lenient, beyond, check)
        while self.view.batches_count >= FEW or check:
            if self.view.batches_count == self.batches_room:
                self._reserve_batches(2 * self.batches_room)
            if self.view.size - at < SMALL:
                status = scan_entries(&self.view, &at, self.view.size, self.batches_room, lenient, beyond, check)
            else:
                with nogil:
                    status = scan_entries(&self.view, &at, self.view.size, self.batches_room, lenient, beyond, check)
            if self.view.batches_count < self.batches_room:
                break
        self.next_at = at
        return status

    def first_reaching(self, long long offset, Py_ssize_t first=0):
        """Return the first batch from *first* on whose last offset is *offset* or more, `count` if there is none."""
        cdef Py_ssize_t i
        self._range(first, self.view.batches_count)
        if self.view.batches_count - first < FEW:
            return first_reaching(&self.view, first, offset)
        with nogil:
            i = first_reaching(&self.view, first, offset)
        return i

    def first_as_late(self, long long timestamp, Py_ssize_t first=0):
        """Return the first batch from *first* on with a largest timestamp of *timestamp* (ms) or more, or `count`."""
        cdef Py_ssize_t i
        self._range(first, self.view.batches_count)
        with nogil:
            i = first_as_late(&self.view, first, timestamp)
        return i

    def latest(self, Py_ssize_t first=0):
        """Return the largest timestamp that the headers of the batches from *first* on tell (ms), -1 at least."""
        cdef Py_ssize_t i
        cdef long long largest = -1
        self._range(first, self.view.batches_count)
        for i in range(first, self.view.batches_count):
            largest = max(largest, self.view.batches[i].max_timestamp)
        return largest

    def row_at(self, Py_ssize_t at):
        """Return the batch that begins at byte *at* of the window, -1 if none does."""
        return row_at(&self.view, at)

    def drop(self, Py_ssize_t count):
        """Forget all batches but the first *count*."""
        if not 0 <= count <= self.view.batches_count:
            raise IndexError(f"{count} of {self.view.batches_count} batches")
        self.view.batches_count = count
        self.view.good_count = min(self.view.good_count, count)

    def check(self, Py_ssize_t first, Py_ssize_t end):
        """Compute the checksums of batches *first* to *end*; return how many do not hold."""
        cdef Py_ssize_t bad
        self._range(first, end)
        if end <= self.view.good_count or first == end:
            return 0
        if end - first == 1 and self.view.batches[first].size < SMALL:
            bad = check_entries(&self.view, first, end)
        else:
            with nogil:
                bad = check_entries(&self.view, first, end)
        if first <= self.view.good_count and not bad:
            self.view.good_count = end
        return bad

    @property
    def all_hold(self):
        """Whether there are batches, and the checksum of each is known to hold."""
        return 0 < self.view.batches_count == self.view.good_count

    cdef int _range(self, Py_ssize_t first, Py_ssize_t end) except -1:
        if not 0 <= first <= end <= self.view.batches_count:
            raise IndexError(f"batches {first} to {end} of {self.view.batches_count}")
        return 0

    def first_bad(self, Py_ssize_t first, Py_ssize_t end):
        """Return the first batch from *first* to *end* whose checksum was computed and does not hold, else *end*."""
        cdef Py_ssize_t i
        self._range(first, end)
        for i in range(max(first, min(self.view.good_count, end)), end):
            if self.view.batches[i].state & (CHECKED | HOLDS | SKIPPED) == CHECKED:
                return i
        return end

    def first_unknown_codec(self, Py_ssize_t first, Py_ssize_t end):
        """Return the first batch from *first* to *end* with a codec that does not exist, else *end*."""
        cdef Py_ssize_t i
        self._range(first, end)
        for i in range(first, end):
            if self.view.batches[i].attributes & ATTRIBUTE_CODEC > 4:
                return i
        return end

    def batch(self, Py_ssize_t i):
        """Return the facts of batch *i*."""
        cdef BatchRow *b
        self._range(i, i + 1)
        b = self.view.batches + i
        # not through the class: its __new__ is Python, and takes twice as long
        return new_tuple(BatchFacts, (
                b.position, b.base_offset, b.last_offset, b.base_timestamp, b.max_timestamp, b.producer_id, b.size, b.leader_epoch,
                b.crc, b.computed_crc, b.base_sequence, b.last_offset_delta, b.records_count, b.attributes, b.producer_epoch,
                b.magic, (b.state & CHECKED) != 0, (b.state & HOLDS) != 0))

    def at(self, Py_ssize_t i):
        """Return where batch *i* begins, in bytes from the start of the window."""
        self._range(i, i + 1)
        return self.view.batches[i].at

    def edges(self):
        """Return how many batches there are until the format changes, the bytes where they end, their last offsets.

        Both as int64 in the order of this machine; bytes count from the start of the file.
        """
        cdef Py_ssize_t i = 0
        cdef const BatchRow *row
        cdef Py_ssize_t count = self.view.batches_count
        cdef bytes ends = PyBytes_FromStringAndSize(NULL, count * sizeof(long long))
        cdef bytes lasts = PyBytes_FromStringAndSize(NULL, count * sizeof(long long))
        cdef long long *end_at = <long long *>PyBytes_AsString(ends)
        cdef long long *last_at = <long long *>PyBytes_AsString(lasts)
        while i < count and self.view.batches[i].magic == self.view.batches[0].magic:
            row = self.view.batches + i
            end_at[i] = row.position + row.size
            last_at[i] = row.last_offset
            i += 1
        memset(end_at + i, 0, (count - i) * sizeof(long long))
        memset(last_at + i, 0, (count - i) * sizeof(long long))
        return i, ends, lasts

    def skip(self, Py_ssize_t i):
        """Leave batch *i* out of decoding and formatting."""
        self._range(i, i + 1)
        self.view.batches[i].state |= SKIPPED

    def skip_outside(self, long long from_offset, long long to_offset, long long from_time):
        """Leave out every batch whose header shows that no record of it lies in the range, but those known to be broken.

        Returns True when a batch at or after *to_offset* was met: nothing later in an ordered log can be wanted.
        """
        cdef Py_ssize_t i
        cdef BatchRow *b
        cdef bint beyond = False
        for i in range(self.view.batches_count):
            b = self.view.batches + i
            if b.state & (CHECKED | HOLDS) == CHECKED:
                continue
            if b.last_offset < from_offset or b.max_timestamp < from_time:
                b.state |= SKIPPED
            # a wrapper's first offset is not in its header
            elif b.base_offset >= to_offset and to_offset != HIGHEST and (b.magic >= 2 or not b.attributes & ATTRIBUTE_CODEC):
                b.state |= SKIPPED
                beyond = True
        return beyond

    def transactional(self, Py_ssize_t first, Py_ssize_t end):
        """Return the batches from *first* to *end* that belong to a transaction, markers included."""
        cdef Py_ssize_t i
        self._range(first, end)
        return [i for i in range(first, end) if self.view.batches[i].magic >= 2 and self.view.batches[i].attributes & ATTRIBUTE_TRANSACTIONAL]

    def produced(self, Py_ssize_t first, Py_ssize_t end, bint checked=True, Py_ssize_t most=0):
        """Return the batches from *first* to *end* that have a producer id, and whose checksum was found to hold.

        Without *checked*, whatever their checksums say.  *most*: of data batches that follow each other and are alike in
        producer, epoch and attributes, only the first and the last so many; 0: all.
        """
        cdef Py_ssize_t i, run = 0
        cdef const BatchRow *b
        cdef const BatchRow *before = NULL
        cdef list found = []
        self._range(first, end)
        if not self.view.has_producers:
            return found
        for i in range(first, end):
            b = self.view.batches + i
            if b.producer_id >= 0 and (b.state & (HOLDS | SKIPPED) == HOLDS or not checked):
                found.append(i)
                run = run + 1 if before != NULL and alike(before, b) else 1
                if most and run > most + 1:
                    del found[len(found) - 1 - most]
                before = b
        return found


cdef inline bint alike(const BatchRow *one, const BatchRow *other) noexcept nogil:
    """Whether both are data batches of the same producer in the same epoch, with the same attributes."""
    return (one.producer_id == other.producer_id and one.producer_epoch == other.producer_epoch
            and one.attributes == other.attributes and not one.attributes & ATTRIBUTE_CONTROL)
