# The survey of a segment: what its batches say of each other, and its indexes of them.  One pass, batch by batch.

cdef enum:
    ODD_OFFSET = 1               # a base offset that fits neither neighbour, while they fit each other: (found, expected)
    BACKWARDS = 2                # offsets that a batch before it has, or lower ones: (base offset, last offset before)
    OVERFLOW = 3                 # outside of what the segment can hold: (base offset, last offset)
    BEYOND_NEXT = 4              # offsets of the next segment: (last offset, base of the next)
    ODD_EPOCH = 5                # a leader epoch that fits neither neighbour, or falls: (found, a neighbour's)
    GAP = 6                      # offsets that no batch has: (the first of them, base offset found)
    BAD_COUNTS = 7               # more records than offsets, or a number below zero: (records, last offset delta)
    UNKNOWN_CODEC = 8            # (codec, 0)
    INDEX_NO_BATCH = 9           # an offset index entry to where no batch begins: (slot, its offset)
    INDEX_SKIPS = 10             # … to a batch that begins behind the entry's offset, or after it was reached: (slot, its offset)
    TIME_MISSES = 11             # a time index entry below a timestamp up to its offset: (slot, that timestamp)
    TIME_UNREACHED = 12          # … above all timestamps up to its offset: (slot, the largest of them)
    INDEX_INEXACT = 13           # an offset index entry about an offset that no batch ends with: (slot, its offset)
    TIME_INEXACT = 14            # a time index entry about an offset that no broker would give: (slot, its offset)
    TIME_INSIDE = 15             # … about an offset inside a batch, whose records tell whether it is right: (slot, its offset)

cdef enum:
    MOST_INEXACT = 64            # events kept of each of the last three kinds
    MOST_EVENTS = 1000           # kept of what batches say, and of gaps and indexes; more of the former are counted
    MOST_EPOCHS = 4096           # more leaders than a segment ever had

SURVEY_KINDS = (None, "odd offset", "backwards", "overflow", "beyond next", "odd epoch", "gap", "bad counts", "unknown codec",
                "index no batch", "index skips", "time misses", "time unreached", "index inexact", "time inexact", "time inside")

cdef struct Event:
    int kind
    long long position           # of the batch in the file; of an index entry, what it says
    long long first              # the two numbers that the kind tells
    long long second

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


cdef class SegmentSurvey:
    """What all intact batches of a segment say, given to `walk` in their order, with `damaged` between and `finish` behind.

    *base*: the segment's base offset.  *next_base*: that of the next segment, 2^63 - 1 if there is none.
    *offset_entries*, *time_entries*: the used part of the indexes, keys ascending.  An entry that leads into a damaged
    stretch is not judged.
    """

    cdef readonly long long base, next_base
    cdef readonly long long batches, records             # intact ones; records of v2 batches
    cdef readonly long long legacy                       # batches of v0 and v1
    cdef readonly long long first_offset, last_offset    # -1: no batch
    cdef readonly long long max_timestamp, max_timestamp_offset, max_timestamp_position     # -1: none has a timestamp
    cdef readonly long long min_timestamp                # smallest of the batches' largest; -1: none
    cdef readonly long long producer_batches             # those with a producer id
    cdef readonly long long end                          # where the last one ends: bytes from the start of the file
    cdef readonly long long dropped                      # oddities of batches beyond MOST_EVENTS
    cdef Event *events_start
    cdef Py_ssize_t events_count, events_room, others_count
    cdef Epoch *epochs_start
    cdef Py_ssize_t epochs_count, epochs_room
    cdef Neighbour before, previous
    cdef bint is_after_damage, is_lossy
    cdef bytes offset_entries, time_entries
    cdef const uint8_t *slots
    cdef const uint8_t *time_slots
    cdef Py_ssize_t slot, slots_count, time_slot, time_slots_count
    cdef Py_ssize_t exact_slot, exact_time_slot          # the next entries to be compared with the offsets of batches
    cdef int inexact_count[3]                            # of each kind from INDEX_INEXACT on

    def __cinit__(self, long long base, long long next_base, bytes offset_entries not None, bytes time_entries not None):
        self.base, self.next_base = base, next_base
        self.first_offset = self.last_offset = self.min_timestamp = -1
        self.max_timestamp = self.max_timestamp_offset = self.max_timestamp_position = -1
        self.previous.position = self.before.position = self.previous.epoch = self.before.epoch = -1
        self.offset_entries, self.time_entries = offset_entries, time_entries
        self.slots = <const uint8_t *>PyBytes_AS_STRING(offset_entries)
        self.time_slots = <const uint8_t *>PyBytes_AS_STRING(time_entries)
        self.slots_count = PyBytes_GET_SIZE(offset_entries) // OFFSET_ENTRY_BYTES
        self.time_slots_count = PyBytes_GET_SIZE(time_entries) // TIME_ENTRY_BYTES

    def __dealloc__(self):
        free(self.events_start)
        free(self.epochs_start)

    def walk(self, Window window not None, Py_ssize_t first, Py_ssize_t end):
        """Take batches *first* to *end* of a window, which are intact."""
        cdef Py_ssize_t i = first
        window._range(first, end)
        with nogil:
            while i < end:
                i = self._continuing(window.view.batches, i, end)
                if i < end:
                    self._batch(window.view.batches + i)
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
    def events(self):
        """What is odd: (kind, position, first number, second number), in the order in which it was met."""
        cdef Py_ssize_t i
        cdef Event *event
        found = []
        for i in range(self.events_count):
            event = self.events_start + i
            found.append((SURVEY_KINDS[event.kind], event.position, event.first, event.second))
        return found

    @property
    def epochs(self):
        """Leader epochs, ascending, each with the base offset of the batch that began it and its position."""
        cdef Py_ssize_t i
        return [(self.epochs_start[i].epoch, self.epochs_start[i].offset, self.epochs_start[i].position) for i in range(self.epochs_count)]

    cdef void _event(self, int kind, long long position, long long first, long long second) noexcept nogil:
        cdef Event *event
        # Gaps are legal after compaction, and of an index one wrong entry is enough: they crowd out nothing else.
        cdef bint is_other = kind == GAP or kind >= INDEX_NO_BATCH
        cdef Py_ssize_t of_its_kind = self.others_count if is_other else self.events_count - self.others_count
        if of_its_kind == MOST_EVENTS or (self.events_count == self.events_room and not self._more_events()):
            self.dropped += not is_other
            return
        self.others_count += is_other
        event = self.events_start + self.events_count
        event.kind, event.position, event.first, event.second = kind, position, first, second
        self.events_count += 1

    # Most segments have no event and one epoch, and thousands of surveys may be held at once: room is made when needed.

    cdef bint _more_events(self) noexcept nogil:
        """Make room for events; False when there is no memory."""
        cdef Py_ssize_t room = min(2 * self.events_room + 8, 2 * MOST_EVENTS)
        cdef Event *larger = <Event *>realloc(self.events_start, room * sizeof(Event))
        if larger == NULL:
            return False
        self.events_start, self.events_room = larger, room
        return True

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
        sense, and no index entry leads to it or names its last offset.  In most logs these are all but one in thirty, so nothing is written for each.
        """
        cdef const BatchRow *row = rows + first
        cdef const BatchRow *stop = rows + end
        cdef const BatchRow *latest = NULL
        cdef long long last = self.previous.last_offset, ceiling = min(add(self.base, 0x7FFFFFFF), self.next_base - 1)
        cdef long long slot_at = 0x7FFFFFFFFFFFFFFF, time_slot_at = 0x7FFFFFFFFFFFFFFF, exact_at = 0x7FFFFFFFFFFFFFFF
        cdef long long largest = self.max_timestamp, smallest = self.min_timestamp, records = 0, producers = 0
        cdef int epoch = self.previous.epoch
        if self.previous.position < 0 or self.is_after_damage or ceiling < self.base:
            return first
        if self.slot < self.slots_count:
            slot_at = be32(self.slots + self.slot * OFFSET_ENTRY_BYTES + OFFSET_ENTRY_POSITION)
        if self.time_slot < self.time_slots_count:
            time_slot_at = add(self.base, be32(self.time_slots + self.time_slot * TIME_ENTRY_BYTES + TIME_ENTRY_RELATIVE_OFFSET))
        if self.exact_slot < self.slots_count:
            exact_at = add(self.base, be32(self.slots + self.exact_slot * OFFSET_ENTRY_BYTES + OFFSET_ENTRY_RELATIVE_OFFSET))
        if self.exact_time_slot < self.time_slots_count:
            exact_at = min(exact_at, add(self.base, be32(
                self.time_slots + self.exact_time_slot * TIME_ENTRY_BYTES + TIME_ENTRY_RELATIVE_OFFSET)))
        while row < stop:
            if (row.magic < 2 or row.attributes & ATTRIBUTE_CODEC > 4 or row.leader_epoch != epoch
                    or row.base_offset <= last or row.base_offset != add(last, 1) or row.base_offset < self.base
                    or row.last_offset_delta < 0 or row.last_offset > ceiling or row.last_offset < row.base_offset
                    or row.records_count < 0 or row.records_count > <long long>row.last_offset_delta + 1
                    or row.position >= slot_at or row.base_offset > time_slot_at or row.last_offset >= exact_at):
                break
            if row.max_timestamp > largest:
                largest, latest = row.max_timestamp, row
            if row.max_timestamp >= 0 and (smallest < 0 or row.max_timestamp < smallest):
                smallest = row.max_timestamp
            records += row.records_count
            producers += row.producer_id >= 0
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
        self.end = row[-1].position + row[-1].size
        self.before = self.previous
        if row - (rows + first) > 1:
            self.before = neighbour(row - 2)
        self.previous = neighbour(row - 1)
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
        """Judge a leader epoch against those before it; one that is odd counts no further."""
        if this.epoch >= self.previous.epoch or this.epoch == -1:
            return
        if self.previous.epoch > self.before.epoch and this.epoch >= self.before.epoch:
            # Without the batch between them all would be well.
            if self.epochs_count and self.epochs_start[self.epochs_count - 1].position == self.previous.position:
                self.epochs_count -= 1
                self._event(ODD_EPOCH, self.previous.position, self.previous.epoch, this.epoch)
                self.previous.epoch = this.epoch
                return
        self._event(ODD_EPOCH, this.position, this.epoch, self.previous.epoch)
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

    # The indexes ascend in both columns, so each entry is looked at once.

    cdef void _pass_slots(self, long long position) noexcept nogil:
        """Judge the offset index entries that lead to before *position*, where a batch begins: to none."""
        cdef const uint8_t *entry = self.slots + self.slot * OFFSET_ENTRY_BYTES
        while self.slot < self.slots_count and be32(entry + OFFSET_ENTRY_POSITION) < position:
            self._event(INDEX_NO_BATCH, be32(entry + OFFSET_ENTRY_POSITION), self.slot,
                        add(self.base, be32(entry + OFFSET_ENTRY_RELATIVE_OFFSET)))
            self.slot += 1
            entry += OFFSET_ENTRY_BYTES

    cdef void _slot_here(self, const BatchRow *row) noexcept nogil:
        """Judge the offset index entry that leads to this batch: all before it must be below the entry's offset."""
        cdef const uint8_t *entry = self.slots + self.slot * OFFSET_ENTRY_BYTES
        cdef long long offset
        if self.slot == self.slots_count or be32(entry + OFFSET_ENTRY_POSITION) != row.position:
            return
        offset = add(self.base, be32(entry + OFFSET_ENTRY_RELATIVE_OFFSET))
        if row.base_offset > offset or (self.batches and self.last_offset >= offset):
            self._event(INDEX_SKIPS, row.position, self.slot, offset)
        self.slot += 1

    cdef void _pass_time_slots(self, long long offset) noexcept nogil:
        """Judge the time index entries about offsets below *offset*, all of which have gone by."""
        cdef const uint8_t *entry = self.time_slots + self.time_slot * TIME_ENTRY_BYTES
        cdef long long timestamp
        while self.time_slot < self.time_slots_count and add(self.base, be32(entry + TIME_ENTRY_RELATIVE_OFFSET)) < offset:
            timestamp = be64(entry + TIME_ENTRY_TIMESTAMP)
            if timestamp < self.max_timestamp:
                self._event(TIME_MISSES, self.max_timestamp_position, self.time_slot, self.max_timestamp)
            elif timestamp > self.max_timestamp and not self.is_lossy:
                self._event(TIME_UNREACHED, self.max_timestamp_position, self.time_slot, self.max_timestamp)
            self.time_slot += 1
            entry += TIME_ENTRY_BYTES

    # A broker writes an entry when it appends: about the last offset of what it appends, and the position where that
    # begins.  Before 1.1 about the first offset.  Wrappers of old messages do not say which offsets they hold, and from
    # a batch that compaction has thinned out the last offset may have gone.

    cdef void _exact_slots(self, const BatchRow *row) noexcept nogil:
        """Judge the offset index entries about offsets up to the batch's last."""
        cdef const uint8_t *entry = self.slots + self.exact_slot * OFFSET_ENTRY_BYTES
        cdef long long offset
        while self.exact_slot < self.slots_count:
            offset = add(self.base, be32(entry + OFFSET_ENTRY_RELATIVE_OFFSET))
            if offset > row.last_offset:
                return
            if offset < row.last_offset and not self._may_end_at(row, offset) and not (
                    offset == row.base_offset and be32(entry + OFFSET_ENTRY_POSITION) == row.position):
                self._inexact(INDEX_INEXACT, row, self.exact_slot, offset)
            self.exact_slot += 1
            entry += OFFSET_ENTRY_BYTES

    cdef bint _may_end_at(self, const BatchRow *row, long long offset) noexcept nogil:
        """Whether a batch, or the damage before it, may have ended with *offset* when its index entry was written."""
        if offset < row.base_offset or row.magic < 2:
            return self.is_after_damage or (row.magic < 2 and row.attributes & ATTRIBUTE_CODEC and offset > self.last_offset)
        return row.records_count <= row.last_offset_delta

    cdef void _exact_time_slots(self, const BatchRow *row) noexcept nogil:
        """Judge the time index entries about offsets up to the batch's last: it must have their timestamp.

        The offset is the batch's last, or that of the record which has it: brokers before 3.8 write either.
        """
        cdef const uint8_t *entry = self.time_slots + self.exact_time_slot * TIME_ENTRY_BYTES
        cdef long long offset
        while self.exact_time_slot < self.time_slots_count:
            offset = add(self.base, be32(entry + TIME_ENTRY_RELATIVE_OFFSET))
            if offset > row.last_offset:
                return
            if offset < row.base_offset and not self._may_end_at(row, offset):
                self._inexact(TIME_INEXACT, row, self.exact_time_slot, offset)
            elif offset >= row.base_offset and be64(entry + TIME_ENTRY_TIMESTAMP) != row.max_timestamp:
                self._inexact(TIME_INEXACT, row, self.exact_time_slot, offset)
            elif row.base_offset <= offset < row.last_offset and row.magic >= 2:
                self._inexact(TIME_INSIDE, row, self.exact_time_slot, offset)
            self.exact_time_slot += 1
            entry += TIME_ENTRY_BYTES

    cdef void _inexact(self, int kind, const BatchRow *row, Py_ssize_t slot, long long offset) noexcept nogil:
        cdef int *count = self.inexact_count + (kind - INDEX_INEXACT)
        if count[0] < MOST_INEXACT:
            count[0] += 1
            self._event(kind, row.position, slot, offset)


# The used part of an index file.

def offset_index_used(const unsigned char[::1] entries not None, long long log_bytes):
    """Return how many entries at the start of an offset index are in order, and why that is the end of them.

    "end": of the file; "zeros"; "order": a column does not ascend; "beyond": a position that is not in the log.
    """
    cdef Py_ssize_t i, count = entries.shape[0] // OFFSET_ENTRY_BYTES
    cdef const uint8_t *p
    cdef int relative, position, last_relative = 0, last_position = 0
    for i in range(count):
        p = &entries[i * OFFSET_ENTRY_BYTES]
        relative, position = be32(p + OFFSET_ENTRY_RELATIVE_OFFSET), be32(p + OFFSET_ENTRY_POSITION)
        if relative == 0 and position == 0:
            return i, "zeros"
        if relative <= last_relative and (i or relative < 0) or position <= last_position:
            return i, "order"
        if position >= log_bytes:
            return i, "beyond"
        last_relative, last_position = relative, position
    return count, "end"


def time_index_used(const unsigned char[::1] entries not None):
    """Return how many entries at the start of a time index are in order, and why that is the end of them; as above."""
    cdef Py_ssize_t i, count = entries.shape[0] // TIME_ENTRY_BYTES
    cdef const uint8_t *p
    cdef long long timestamp, last_timestamp = -1
    cdef int relative, last_relative = 0
    for i in range(count):
        p = &entries[i * TIME_ENTRY_BYTES]
        timestamp, relative = be64(p + TIME_ENTRY_TIMESTAMP), be32(p + TIME_ENTRY_RELATIVE_OFFSET)
        if timestamp == 0 and relative == 0 and (i or count > 1):
            return i, "zeros"
        if timestamp <= last_timestamp or relative < last_relative:
            return i, "order"
        last_timestamp, last_relative = timestamp, relative
    return count, "end"
