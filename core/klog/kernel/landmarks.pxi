# The batches of a log that tell of an event: the first, a leader's, a producer's, a transaction's, and those after a pause.

cdef enum:
    KNOWN_PRODUCERS = 4096       # remembered by their low bits, a power of two
    PAUSE_BITS = 64              # pauses are counted by how many bits their ms take

cdef struct KnownProducer:
    long long id                 # -1: free
    short epoch
    bint is_open                 # a batch of a transaction was seen, and no marker since


cdef inline long long begin_of(const BatchRow *row) noexcept nogil:
    """The time of a batch's first record (ms), as far as its header tells: -1, none."""
    if row.magic < 2 or row.attributes & (ATTRIBUTE_DELETE_HORIZON | ATTRIBUTE_LOG_APPEND_TIME) or row.base_timestamp < 0:
        return row.max_timestamp
    return min(row.base_timestamp, row.max_timestamp)


cdef class LogLandmarks:
    """Picks the batches of a partition that may tell of an event, given to `take` in their order.

    Each producer, leader epoch and transaction stands out where it begins, each marker, and a batch of data that comes
    *least* ms or more after the latest before it.  A producer may stand out again: only so many are remembered.
    *ahead*: timestamps above it (ms) do not count as the latest; the caller says from where on a clock must be wrong.
    """

    cdef readonly long long latest               # largest timestamp so far (ms); -1: none
    cdef public long long ahead
    cdef long long least
    cdef int epoch
    cdef bint has_begun
    cdef KnownProducer *known
    cdef long long counts[PAUSE_BITS]

    def __cinit__(self, long long least):
        self.latest, self.least, self.epoch, self.ahead = -1, least, -1, 0x7FFFFFFFFFFFFFFF
        memset(self.counts, 0, sizeof(self.counts))

    def __dealloc__(self):
        free(self.known)

    @property
    def pauses(self):
        """How many pauses between a batch and the latest before it take 0, 1, 2 … bits, in ms."""
        return [self.counts[i] for i in range(PAUSE_BITS)]

    def take(self, Window window not None, Py_ssize_t first, Py_ssize_t end):
        """Return the batches from *first* to *end* that stand out, each with the latest timestamp before it."""
        cdef list found = []
        cdef Py_ssize_t i = first
        cdef long long before
        window._range(first, end)
        if self.known == NULL and window.view.has_producers:
            self._remember_none()
        while True:
            with nogil:
                i = self._next(window.view.batches, i, end, &before)
            if i == end:
                return found
            found.append((i, before))
            i += 1

    cdef int _remember_none(self) except -1:
        cdef Py_ssize_t i
        self.known = <KnownProducer *>malloc(KNOWN_PRODUCERS * sizeof(KnownProducer))
        if self.known == NULL:
            raise MemoryError
        for i in range(KNOWN_PRODUCERS):
            self.known[i].id = -1
        return 0

    cdef Py_ssize_t _next(self, const BatchRow *rows, Py_ssize_t i, Py_ssize_t end, long long *before) noexcept nogil:
        cdef const BatchRow *row
        cdef bint stands_out
        while i < end:
            row = rows + i
            before[0] = self.latest
            stands_out = not self.has_begun
            self.has_begun = True
            if row.leader_epoch != self.epoch and row.magic >= 2:
                self.epoch, stands_out = row.leader_epoch, True
            # A marker has the broker's clock, and data mostly another: the time between them says nothing.
            if 0 <= row.max_timestamp <= self.ahead and not (row.magic >= 2 and row.attributes & ATTRIBUTE_CONTROL):
                stands_out |= self._pauses(row)
                self.latest = max(self.latest, row.max_timestamp)
            if row.producer_id >= 0 and self.known != NULL:
                stands_out |= self._produces(row)
            if stands_out:
                return i
            i += 1
        return end

    cdef bint _pauses(self, const BatchRow *row) noexcept nogil:
        """Count the pause before a batch; whether it is a long one."""
        cdef long long pause
        if self.latest < 0:
            return False
        pause = begin_of(row) - self.latest
        self.counts[64 - leading_zeros(<uint64_t>pause) if pause > 0 else 0] += 1
        return pause >= self.least

    cdef bint _produces(self, const BatchRow *row) noexcept nogil:
        """Whether a batch begins something, or ends it, for its producer."""
        cdef KnownProducer *known = self.known + (row.producer_id & KNOWN_PRODUCERS - 1)
        cdef bint is_marker = row.attributes & ATTRIBUTE_CONTROL
        cdef bint stands_out = is_marker or known.id != row.producer_id or known.epoch != row.producer_epoch
        if stands_out:
            if known.id != row.producer_id:
                known.is_open = False
            known.id, known.epoch = row.producer_id, row.producer_epoch
        if is_marker:
            known.is_open = False
        elif row.attributes & ATTRIBUTE_TRANSACTIONAL and not known.is_open:
            known.is_open = stands_out = True
        return stands_out
