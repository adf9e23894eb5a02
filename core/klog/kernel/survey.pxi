# The survey of a segment: what its batches say of each other, and its indexes of them.  One pass, batch by batch.

cdef enum:
    MOST_EPOCHS = 4096           # more leaders than a segment ever had

cdef struct Neighbour:
    long long position           # -1: there is none
    long long base_offset
    long long last_offset
    int epoch

cdef struct Epoch:
    int epoch
    long long offset             # base offset of the batch that began it
    long long position           # … and where that is


cdef inline Neighbour neighbour(const BatchRow *row) noexcept nogil:
    cdef Neighbour this
    this.position, this.base_offset, this.last_offset, this.epoch = row.position, row.base_offset, row.last_offset, row.leader_epoch
    return this


cdef class SegmentSurvey(IndexComparison):
    """What all intact batches of a segment say, given to `walk` in their order, with `damaged` between and `finish` behind.

    *base*: the segment's base offset.  *next_base*: that of the next segment, 2^63 - 1 if there is none.
    *offset_entries*, *time_entries*: the used part of the indexes, keys ascending.  An entry that leads into a damaged
    stretch is not judged.
    """

    cdef readonly long long next_base
    cdef readonly long long records                      # of intact v2 batches
    cdef readonly long long legacy                       # batches of v0 and v1
    cdef readonly long long first_offset                 # -1: no batch
    cdef readonly long long min_timestamp                # smallest of the batches' largest; -1: none
    cdef readonly long long producer_batches             # those with a producer id
    cdef readonly int codecs                             # a bit for each codec of theirs: bit 0 for none
    cdef readonly long long end                          # where the last one ends: bytes from the start of the file
    cdef Epoch *epochs_start
    cdef Py_ssize_t epochs_count, epochs_room
    cdef Neighbour before, previous
    cdef int fallen                                      # the leader epoch of the batch before, where that fell; else -1

    def __cinit__(self, long long base, long long next_base, bytes offset_entries not None, bytes time_entries not None):
        self.base, self.next_base = base, next_base
        self.first_offset = self.last_offset = self.min_timestamp = -1
        self.max_timestamp = self.max_timestamp_offset = self.max_timestamp_position = -1
        self.previous.position = self.before.position = self.previous.epoch = self.before.epoch = self.fallen = -1
        self.offset_entries, self.time_entries = offset_entries, time_entries
        self.slots = <const uint8_t *>PyBytes_AsString(offset_entries)
        self.time_slots = <const uint8_t *>PyBytes_AsString(time_entries)
        self.slots_count = PyBytes_Size(offset_entries) // OFFSET_ENTRY_BYTES
        self.time_slots_count = PyBytes_Size(time_entries) // TIME_ENTRY_BYTES

    def __dealloc__(self):
        free(self.epochs_start)

    def walk(self, Window window not None, Py_ssize_t first, Py_ssize_t end):
        """Take batches *first* to *end* of a window, which are intact."""
        window._range(first, end)
        if end - first < FEW:
            self._walk(window.view.batches, first, end)
        else:
            with nogil:
                self._walk(window.view.batches, first, end)

    cdef void _walk(self, const BatchRow *rows, Py_ssize_t i, Py_ssize_t end) noexcept nogil:
        while i < end:
            i = self._continuing(rows, i, end)
            if i < end:
                self._batch(rows + i)
                i += 1

    def damaged(self, long long start, long long end):
        """Take a stretch of the file, bytes, in which there are no intact batches."""
        self._pass_slots(start)
        while self.slot < self.slots_count and be32(self.slots + self.slot * OFFSET_ENTRY_BYTES + OFFSET_ENTRY_POSITION) < end:
            self.slot += 1
        self.is_after_damage = self.is_lossy = True
        self.end = end

    def finish(self):
        """Judge the index entries beyond the last batch: none begins where they lead."""
        self._pass_slots(0x7FFFFFFFFFFFFFFF)
        self._pass_time_slots(0x7FFFFFFFFFFFFFFF)
        self.slots = self.time_slots = NULL
        self.slots_count = self.time_slots_count = 0
        self.offset_entries = self.time_entries = b""

    @property
    def epochs(self):
        """Leader epochs, ascending, each with the base offset of the batch that began it and its position."""
        cdef Py_ssize_t i
        return [(self.epochs_start[i].epoch, self.epochs_start[i].offset, self.epochs_start[i].position) for i in range(self.epochs_count)]

    cdef bint _more_epochs(self) noexcept nogil:
        """Make room for epochs; False when there is no memory."""
        cdef Py_ssize_t room = min(4 * self.epochs_room + 1, MOST_EPOCHS)
        cdef Epoch *larger = <Epoch *>realloc(self.epochs_start, room * sizeof(Epoch))
        if larger == NULL:
            return False
        self.epochs_start, self.epochs_room = larger, room
        return True

    cdef Py_ssize_t _continuing(self, const BatchRow *rows, Py_ssize_t first, Py_ssize_t end) noexcept nogil:
        """Take batches that merely continue the log, as `_batch` would; return the first that may need a closer look.

        Of such a batch nothing is said: its offsets follow at once, its epoch is that of the one before, its header makes
        sense, and no index entry leads to it.  In most logs these are all but one in thirty, so nothing is written for each.
        """
        cdef const BatchRow *row = rows + first
        cdef const BatchRow *stop = rows + end
        cdef const BatchRow *latest = NULL
        cdef long long last = self.previous.last_offset
        cdef long long limit = min(add(self.base, 0x7FFFFFFF), self.next_base - 1)  # of last offsets
        cdef long long position = 0, passed = 0, reached = 0
        cdef long long largest = self.max_timestamp, smallest = self.min_timestamp, records = 0, producers = 0
        cdef int epoch = self.previous.epoch, codecs = 0
        if self.previous.position < 0 or self.is_after_damage or limit < self.base:
            return first
        self._next_entries(&position, &passed, &reached)
        limit = min(limit, passed, subtract(reached, 1))
        if last >= limit or last + 1 < self.base:
            return first
        while row < stop:
            if (row.magic < 2 or row.attributes & ATTRIBUTE_CODEC > 4 or row.leader_epoch != epoch
                    or row.base_offset != last + 1 or not 0 <= row.last_offset_delta <= limit - row.base_offset
                    or <uint32_t>row.records_count > <uint32_t>row.last_offset_delta + 1 or row.position >= position):
                break
            if row.max_timestamp > largest:
                largest, latest = row.max_timestamp, row
            if row.max_timestamp >= 0 and (smallest < 0 or row.max_timestamp < smallest):
                smallest = row.max_timestamp
            records += row.records_count
            producers += row.producer_id >= 0
            codecs |= 1 << (row.attributes & ATTRIBUTE_CODEC)
            last = row.last_offset
            row += 1
        if row == rows + first:
            return first
        if latest != NULL:
            self.max_timestamp, self.max_timestamp_offset, self.max_timestamp_position = largest, latest.last_offset, latest.position
        self.min_timestamp, self.last_offset = smallest, last
        self.batches += row - (rows + first)
        self.records += records
        self.producer_batches += producers
        self.codecs |= codecs
        self.end = row[-1].position + row[-1].size
        self.before = self.previous
        if row - (rows + first) > 1:
            self.before = neighbour(row - 2)
        self.previous, self.fallen = neighbour(row - 1), -1
        return row - rows

    cdef void _batch(self, const BatchRow *row) noexcept nogil:
        cdef Neighbour this
        this = neighbour(row)
        self._pass_slots(row.position)
        self._pass_time_slots(row.base_offset)
        self._slot_here(row)
        self._exact_slots(row)
        self._header(row)
        self._exact_time_slots(row)
        if self.previous.position >= 0:
            self._epoch(&this)
            if not self._follows(&this, row.magic < 2 and row.attributes & ATTRIBUTE_CODEC):
                return  # its offsets are its neighbours', so it is no neighbour itself
        else:
            if row.leader_epoch < -1:
                self._event(ODD_EPOCH, row.position, row.leader_epoch, -1)
            if not self.is_after_damage and row.magic >= 2 and row.base_offset > self.base:
                self._event(GAP, row.position, self.base, row.base_offset)
        self._begin_epoch(&this)
        self.is_after_damage = False
        self.before, self.previous = self.previous, this
        self.last_offset = row.last_offset

    cdef void _header(self, const BatchRow *row) noexcept nogil:
        """Count the batch, and judge what its own header says."""
        cdef int codec = row.attributes & ATTRIBUTE_CODEC
        if not self.batches:
            self.first_offset = row.base_offset
        self.batches += 1
        self.end = row.position + row.size
        self.producer_batches += row.producer_id >= 0
        self.codecs |= 1 << codec
        if row.magic < 2:
            self.legacy += 1
        else:
            self.records += max(row.records_count, 0)
            if row.last_offset_delta < 0 or not 0 <= row.records_count <= <long long>row.last_offset_delta + 1:
                self._event(BAD_COUNTS, row.position, row.records_count, row.last_offset_delta)
        if codec > 4 or (row.magic < 2 and codec > 3):
            self._event(UNKNOWN_CODEC, row.position, codec, 0)
        if row.base_offset < self.base or not 0 <= subtract(row.last_offset, self.base) <= 0x7FFFFFFF:
            self._event(OVERFLOW, row.position, row.base_offset, row.last_offset)
        elif row.last_offset >= self.next_base:
            self._event(BEYOND_NEXT, row.position, row.last_offset, self.next_base)
        if row.max_timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset, self.max_timestamp_position = row.max_timestamp, row.last_offset, row.position
        if row.max_timestamp >= 0 and (self.min_timestamp < 0 or row.max_timestamp < self.min_timestamp):
            self.min_timestamp = row.max_timestamp

    cdef bint _follows(self, const Neighbour *this, bint is_wrapper) noexcept nogil:
        """Judge the offsets of a batch that has a neighbour; False when it is the batch that is odd.

        *is_wrapper*: its base offset is not known, only its last.
        """
        cdef const Neighbour *previous = &self.previous
        cdef long long expected = add(self.before.last_offset, 1) if self.before.position >= 0 else self.base
        if this.base_offset > previous.last_offset:
            if this.base_offset > add(previous.last_offset, 1) and not is_wrapper and not self.is_after_damage:
                self._event(GAP, this.position, add(previous.last_offset, 1), this.base_offset)
            return True
        if previous.base_offset > this.base_offset and this.base_offset >= expected:
            # Without the batch between them all would be well.
            while self.events_count and self.events_start[self.events_count - 1].position == previous.position and (
                    self.events_start[self.events_count - 1].kind == GAP or self.events_start[self.events_count - 1].kind == BEYOND_NEXT):
                self.events_count -= 1
            self._event(ODD_OFFSET, previous.position, previous.base_offset, expected)
            self.previous = self.before
            return True
        self._event(BACKWARDS, this.position, this.base_offset, previous.last_offset)
        return False

    cdef void _epoch(self, Neighbour *this) noexcept nogil:
        """Judge a leader epoch against those before it; one that is odd counts no further.

        An epoch that has fallen, and stays so, is told once: later batches are judged by it.
        """
        cdef int fallen = self.fallen
        self.fallen = -1
        if this.epoch >= self.previous.epoch or this.epoch == -1:
            return
        if 0 <= fallen <= this.epoch:
            return
        if self.previous.epoch > self.before.epoch and this.epoch >= self.before.epoch:
            # Without the batch between them all would be well.
            if self.epochs_count and self.epochs_start[self.epochs_count - 1].position == self.previous.position:
                self.epochs_count -= 1
                self._event(ODD_EPOCH, self.previous.position, self.previous.epoch, this.epoch)
                self.previous.epoch = this.epoch
                return
        self._event(ODD_EPOCH, this.position, this.epoch, self.previous.epoch)
        self.fallen = this.epoch
        this.epoch = self.previous.epoch

    cdef void _begin_epoch(self, const Neighbour *this) noexcept nogil:
        cdef Epoch *new
        if this.epoch < 0 or self.epochs_count == MOST_EPOCHS:
            return
        if self.epochs_count and this.epoch <= self.epochs_start[self.epochs_count - 1].epoch:
            return
        if self.epochs_count == self.epochs_room and not self._more_epochs():
            return
        new = self.epochs_start + self.epochs_count
        new.epoch, new.offset, new.position = this.epoch, this.base_offset, this.position
        self.epochs_count += 1
