# The sequence numbers of a log's producers: one entry for each producer and epoch.

cdef enum:
    MOST_RUNS = 1 << 20          # of a log: beyond so many, further producers are not followed
    FEWEST_RUN_SLOTS = 64

cdef struct ProducerRun:
    long long producer_id
    long long first_offset, first_position
    int first_sequence, last_sequence
    short epoch

cdef struct SequenceGap:
    long long position, offset, producer_id
    int expected, found
    short epoch


cdef class ProducerRuns:
    """The first and the last sequence of each producer and epoch of a log, in the order of their first batches.

    *gaps*: how many batches do not begin behind the last sequence of their producer and epoch; the first is kept.
    """

    cdef ProducerRun *runs
    cdef uint32_t *slots                     # number + 1 of a run; 0: free
    cdef Py_ssize_t runs_count, runs_room, slots_count
    cdef long long gaps
    cdef SequenceGap first_gap
    cdef bint runs_overflow                  # there were more than MOST_RUNS, or no memory for them
    cdef uint64_t spread                     # odd and secret: nobody can make producers that fall into one slot

    def __dealloc__(self):
        free(self.runs)
        free(self.slots)

    cdef void _forget_runs(self) noexcept nogil:
        self.runs_count = self.gaps = 0
        self.runs_overflow = False
        if self.slots_count > FEWEST_RUN_SLOTS:
            free(self.slots)
            self.slots, self.slots_count = NULL, 0
        elif self.slots != NULL:
            memset(self.slots, 0, self.slots_count * sizeof(uint32_t))

    cdef inline Py_ssize_t _run_slot(self, long long producer_id, int epoch) noexcept nogil:
        """Return the slot that has a producer's epoch, or the free one where it belongs."""
        cdef uint64_t hashed = (<uint64_t>producer_id << 16 ^ <uint64_t>epoch & 0xFFFF) * self.spread
        cdef Py_ssize_t at = <Py_ssize_t>((hashed ^ hashed >> 32) & <uint64_t>(self.slots_count - 1))
        cdef const ProducerRun *run
        while self.slots[at]:
            run = self.runs + self.slots[at] - 1
            if run.producer_id == producer_id and run.epoch == epoch:
                break
            at = (at + 1) & (self.slots_count - 1)
        return at

    cdef bint _more_runs(self) noexcept nogil:
        """Make room for another run: at most half of the slots are used; False when there is no memory."""
        cdef Py_ssize_t room = max(2 * self.runs_room, FEWEST_RUN_SLOTS // 2), count = 2 * room, i
        cdef void *larger
        cdef uint32_t *slots
        if self.runs_count == MOST_RUNS:
            return False
        if self.runs_count < self.runs_room and self.runs_count < self.slots_count // 2:
            return True
        if self.runs_count < self.runs_room:
            room, count = self.runs_room, max(FEWEST_RUN_SLOTS, 4 * self.runs_count)
            while count & (count - 1):
                count += count & -count
        larger = realloc(self.runs, room * sizeof(ProducerRun))
        if larger == NULL:
            return False
        self.runs, self.runs_room = <ProducerRun *>larger, room
        slots = <uint32_t *>calloc(count, sizeof(uint32_t))
        if slots == NULL:
            return False
        free(self.slots)
        self.slots, self.slots_count = slots, count
        for i in range(self.runs_count):
            self.slots[self._run_slot(self.runs[i].producer_id, self.runs[i].epoch)] = <uint32_t>(i + 1)
        return True

    cdef void _sequence(self, const BatchRow *row) noexcept nogil:
        """Take a data batch that has a producer id and a sequence."""
        cdef Py_ssize_t slot
        cdef ProducerRun *run
        cdef int expected
        if not self._more_runs():
            self.runs_overflow = True
            return
        slot = self._run_slot(row.producer_id, row.producer_epoch)
        if not self.slots[slot]:
            run = self.runs + self.runs_count
            self.runs_count += 1
            self.slots[slot] = <uint32_t>self.runs_count
            run.producer_id, run.epoch = row.producer_id, row.producer_epoch
            run.first_sequence, run.first_offset, run.first_position = row.base_sequence, row.base_offset, row.position
        else:
            run = self.runs + self.slots[slot] - 1
            expected = increment_sequence(run.last_sequence, 1)
            if row.base_sequence != expected:
                if not self.gaps:
                    self.first_gap.position, self.first_gap.offset = row.position, row.base_offset
                    self.first_gap.producer_id, self.first_gap.epoch = row.producer_id, row.producer_epoch
                    self.first_gap.expected, self.first_gap.found = expected, row.base_sequence
                self.gaps += 1
        run.last_sequence = increment_sequence(row.base_sequence, row.last_offset_delta)

    def runs_found(self) -> list[tuple[int, int, int, int, int, int]]:
        """Return (producer id, epoch, first sequence, its offset and position, last sequence) of each, by first batches."""
        cdef Py_ssize_t i
        cdef const ProducerRun *run
        found = []
        for i in range(self.runs_count):
            run = self.runs + i
            found.append((run.producer_id, run.epoch, run.first_sequence, run.first_offset, run.first_position, run.last_sequence))
        return found

    def gaps_found(self) -> tuple[int, tuple[int, int, int, int, int, int] | None]:
        """Return how many gaps there are, and of the first (position, offset, producer id, epoch, expected, found) or None."""
        cdef const SequenceGap *gap = &self.first_gap
        first = (gap.position, gap.offset, gap.producer_id, gap.epoch, gap.expected, gap.found) if self.gaps else None
        return self.gaps, first

    @property
    def has_more_runs(self) -> bool:
        """Whether there were producers that were not followed."""
        return self.runs_overflow
