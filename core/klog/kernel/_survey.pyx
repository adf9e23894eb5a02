# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False, binding=False, annotation_typing=False
"""Surveys of segments: their batches compared with each other, and their indexes with them; one pass, batch by batch."""

from libc.stdint cimport int16_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memset

from klog.kernel._window cimport BatchRow, FEW, Window
from klog.kernel.layouts cimport (
    ATTRIBUTE_CODEC, ATTRIBUTE_CONTROL, ATTRIBUTE_DELETE_HORIZON, ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL, BATCH_BASE_OFFSET, BATCH_BYTES, BATCH_LAST_OFFSET_DELTA, BATCH_LEADER_EPOCH,
    BATCH_MAGIC, BATCH_SIZE, ENTRY_BYTES, MIN_SIZE, OFFSET_ENTRY_BYTES, OFFSET_ENTRY_POSITION,
    OFFSET_ENTRY_RELATIVE_OFFSET, OVERHEAD, TIME_ENTRY_BYTES, TIME_ENTRY_RELATIVE_OFFSET, TIME_ENTRY_TIMESTAMP,
)
from klog.kernel.numbers cimport add, be32, be64, subtract
from klog.kernel.python cimport PyBytes_AsString, PyBytes_FromStringAndSize, PyBytes_Size

cdef extern from *:
    int clz "__builtin_clzll"(unsigned long long word) noexcept nogil


cdef inline int leading_zeros(uint64_t word) noexcept nogil:
    return clz(word) if word else 64


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


# The oddities that a survey finds: events, in their order.
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
    TIME_INSIDE = 15             # … about an offset inside a batch, whose records decide whether it is right: (slot, its offset)

cdef enum:
    MOST_INEXACT = 64            # events kept of each of the last three kinds
    MOST_EVENTS = 1000           # kept about batches, about gaps and about indexes; more of the first are counted

_SURVEY_KINDS = (None, "odd offset", "backwards", "overflow", "beyond next", "odd epoch", "gap", "bad counts", "unknown codec",
                "index no batch", "index skips", "time misses", "time unreached", "index inexact", "time inexact", "time inside")

cdef struct Event:
    int kind
    long long position           # of the batch in the file; of an index entry, what it says
    long long first              # the two numbers that the kind tells
    long long second


cdef inline Neighbour neighbour(const BatchRow *row) noexcept nogil:
    cdef Neighbour this
    this.position, this.base_offset, this.last_offset, this.epoch = row.position, row.base_offset, row.last_offset, row.leader_epoch
    return this


cdef class SegmentSurvey:
    """The facts of all intact batches of a segment, given to `walk` in their order, with `damaged` between and `finish` behind.

    *base*: the segment's base offset.  *next_base*: that of the next segment, 2^63 - 1 if there is none.
    *offset_entries*, *time_entries*: the used part of the indexes, keys ascending.  An entry that leads into a damaged
    stretch is not judged.
    """

    cdef readonly long long base
    cdef readonly long long batches                      # intact ones, so far
    cdef readonly long long last_offset                  # -1: no batch
    cdef readonly long long max_timestamp, max_timestamp_offset, max_timestamp_position     # -1: none has a timestamp
    cdef bint is_after_damage, is_lossy
    cdef bytes offset_entries, time_entries
    cdef const uint8_t *slots
    cdef const uint8_t *time_slots
    cdef Py_ssize_t slot, slots_count, time_slot, time_slots_count
    cdef Py_ssize_t exact_slot, exact_time_slot          # the next entries to be compared with the offsets of batches
    cdef int inexact_count[3]                            # of each kind from INDEX_INEXACT on
    cdef readonly long long next_base
    cdef readonly long long records                      # of intact v2 batches
    cdef readonly long long legacy                       # batches of v0 and v1
    cdef readonly long long first_offset                 # -1: no batch
    cdef readonly long long producer_batches             # those with a producer id
    cdef readonly int codecs                             # a bit for each codec of theirs: bit 0 for none
    cdef readonly long long end                          # where the last one ends: bytes from the start of the file
    cdef Epoch *epochs_start
    cdef Py_ssize_t epochs_count, epochs_room
    cdef Neighbour before, previous
    cdef int fallen                                      # the leader epoch of the batch before, where that fell; else -1
    cdef readonly long long dropped                      # oddities of batches beyond MOST_EVENTS
    cdef Event *events_start
    cdef Py_ssize_t events_count, events_room
    cdef Py_ssize_t kept_count[3]                        # about batches, gaps, indexes

    def __cinit__(self, long long base, long long next_base, bytes offset_entries not None, bytes time_entries not None):
        self.base, self.next_base = base, next_base
        self.first_offset = self.last_offset = -1
        self.max_timestamp = self.max_timestamp_offset = self.max_timestamp_position = -1
        self.previous.position = self.before.position = self.previous.epoch = self.before.epoch = self.fallen = -1
        self.offset_entries, self.time_entries = offset_entries, time_entries
        self.slots = <const uint8_t *>PyBytes_AsString(offset_entries)
        self.time_slots = <const uint8_t *>PyBytes_AsString(time_entries)
        self.slots_count = PyBytes_Size(offset_entries) // OFFSET_ENTRY_BYTES
        self.time_slots_count = PyBytes_Size(time_entries) // TIME_ENTRY_BYTES

    def __dealloc__(self):
        free(self.epochs_start)
        free(self.events_start)

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
    def epochs(self) -> list[tuple[int, int, int]]:
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

        Such a batch needs no event: its offsets follow at once, its epoch is that of the one before, its header
        makes sense, and no index entry points at it.  In most logs these are all but one in thirty, so nothing is written for each.
        """
        cdef const BatchRow *row = rows + first
        cdef const BatchRow *stop = rows + end
        cdef const BatchRow *latest = NULL
        cdef long long last = self.previous.last_offset
        cdef long long limit = min(add(self.base, 0x7FFFFFFF), self.next_base - 1)  # of last offsets
        cdef long long position = 0, passed = 0, reached = 0
        cdef long long largest = self.max_timestamp, records = 0, producers = 0
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
            records += row.records_count
            producers += row.producer_id >= 0
            codecs |= 1 << (row.attributes & ATTRIBUTE_CODEC)
            last = row.last_offset
            row += 1
        if row == rows + first:
            return first
        if latest != NULL:
            self.max_timestamp, self.max_timestamp_offset, self.max_timestamp_position = largest, latest.last_offset, latest.position
        self.last_offset = last
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
        """Count the batch, and judge its own header."""
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

    # ---- the entries of its indexes, compared with its batches as these are met

    cdef void _next_entries(self, long long *position, long long *passed, long long *reached) noexcept nogil:
        """Set where the next batch begins that an entry is about, in all ways in which one can be.

        *position*: bytes; of batches from there on.  *passed*: of those with a base offset above.  *reached*: of those
        with that last offset or a higher one.
        """
        cdef const uint8_t *entry
        position[0] = passed[0] = reached[0] = 0x7FFFFFFFFFFFFFFF
        if self.slot < self.slots_count:
            position[0] = be32(self.slots + self.slot * OFFSET_ENTRY_BYTES + OFFSET_ENTRY_POSITION)
        if self.time_slot < self.time_slots_count:
            entry = self.time_slots + self.time_slot * TIME_ENTRY_BYTES
            passed[0] = add(self.base, be32(entry + TIME_ENTRY_RELATIVE_OFFSET))
        if self.exact_slot < self.slots_count:
            entry = self.slots + self.exact_slot * OFFSET_ENTRY_BYTES
            reached[0] = add(self.base, be32(entry + OFFSET_ENTRY_RELATIVE_OFFSET))
        if self.exact_time_slot < self.time_slots_count:
            entry = self.time_slots + self.exact_time_slot * TIME_ENTRY_BYTES
            reached[0] = min(reached[0], add(self.base, be32(entry + TIME_ENTRY_RELATIVE_OFFSET)))

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

    # ---- what is odd

    @property
    def events(self) -> list[tuple[str, int, int, int]]:
        """The oddities: (kind, position, first number, second number), in their order."""
        cdef Py_ssize_t i
        cdef Event *event
        found = []
        for i in range(self.events_count):
            event = self.events_start + i
            found.append((_SURVEY_KINDS[event.kind], event.position, event.first, event.second))
        return found

    cdef void _event(self, int kind, long long position, long long first, long long second) noexcept nogil:
        cdef Event *event
        # Gaps are legal after compaction, and of an index one wrong entry is enough: they crowd out nothing else.
        cdef int group = 1 if kind == GAP else 2 if kind >= INDEX_NO_BATCH else 0
        if self.kept_count[group] == MOST_EVENTS or (self.events_count == self.events_room and not self._more_events()):
            self.dropped += group == 0
            return
        self.kept_count[group] += 1
        event = self.events_start + self.events_count
        event.kind, event.position, event.first, event.second = kind, position, first, second
        self.events_count += 1

    # Most segments have no event and one epoch, and thousands of surveys may be held at once: room is made when needed.

    cdef bint _more_events(self) noexcept nogil:
        """Make room for events; False when there is no memory."""
        cdef Py_ssize_t room = min(2 * self.events_room + 8, 3 * MOST_EVENTS)
        cdef Event *larger = <Event *>realloc(self.events_start, room * sizeof(Event))
        if larger == NULL:
            return False
        self.events_start, self.events_room = larger, room
        return True


# Whether batches follow one another as those of a log must.

def ascending_run(Window window not None, Py_ssize_t first, Py_ssize_t end, long long last_offset, int epoch, long long ceiling) -> tuple[int, int]:
    """Return the first batch from *first* to *end* that cannot stand where it does, and the records of those before it.

    A batch can when its offsets begin above *last_offset*, the last one before it, and end at *ceiling* at most, and its
    leader epoch is -1 or not below *epoch*, that of the batch before it.  A message set counts as one record.
    """
    cdef Py_ssize_t i
    cdef long long records = 0
    window._range(first, end)
    if end - first < FEW:
        i = ascending_end(window.view.batches, first, end, last_offset, epoch, ceiling, &records)
    else:
        with nogil:
            i = ascending_end(window.view.batches, first, end, last_offset, epoch, ceiling, &records)
    return i, records


cdef Py_ssize_t ascending_end(const BatchRow *rows, Py_ssize_t i, Py_ssize_t end, long long last_offset, int epoch,
                              long long ceiling, long long *records) noexcept nogil:
    cdef const BatchRow *row
    while i < end:
        row = rows + i
        if row.base_offset <= last_offset or row.last_offset < row.base_offset or row.last_offset > ceiling:
            break
        if row.leader_epoch < epoch and row.leader_epoch != -1:
            break
        last_offset, epoch = row.last_offset, row.leader_epoch
        records[0] += max(row.records_count, 0) if row.magic >= 2 else 1
        i += 1
    return i


def last_batch_end(const unsigned char[::1] data not None) -> tuple[int, int]:
    """Return where the whole batches at the beginning of *data* end, as the header of the last one says it.

    The offset behind it, and its leader epoch; -1, -1 where there is no whole batch.  Nothing is checked but lengths.
    """
    cdef Py_ssize_t at = 0, left = data.shape[0], size
    cdef long long end = -1
    cdef int epoch = -1
    cdef const uint8_t *p
    while left >= ENTRY_BYTES:
        p = &data[at]
        size = <Py_ssize_t>be32(p + BATCH_SIZE) + OVERHEAD
        if size < OVERHEAD + MIN_SIZE or size > left:
            break
        end, epoch = be64(p + BATCH_BASE_OFFSET), -1
        if p[BATCH_MAGIC] >= 2:
            if size < BATCH_BYTES:
                break
            end = <long long>(<unsigned long long>end + <unsigned long long>be32(p + BATCH_LAST_OFFSET_DELTA))
            epoch = be32(p + BATCH_LEADER_EPOCH)
        end = <long long>(<unsigned long long>end + 1)
        at, left = at + size, left - size
    return end, epoch


# The identity of a batch: 32 bytes a batch, for comparing replicas without decoding a record.

cdef packed struct BatchIdentity:
    long long base_offset
    long long last_offset
    int leader_epoch
    unsigned int crc
    int records_count            # -1: v0, v1
    short attributes
    signed char magic
    signed char padding


def batch_identities(Window window not None, Py_ssize_t first, Py_ssize_t end) -> bytes:
    """Return offsets, leader epoch, CRC, count of records, attributes and format of each batch from *first* to *end*.

    32 bytes a batch, in the machine's byte order: int64 ×2, int32, uint32, int32, int16, int8, and a byte of zeros.
    """
    cdef bytes result
    cdef BatchIdentity *to
    cdef const BatchRow *row
    cdef Py_ssize_t i
    window._range(first, end)
    result = PyBytes_FromStringAndSize(NULL, (end - first) * <Py_ssize_t>sizeof(BatchIdentity))
    to = <BatchIdentity *>PyBytes_AsString(result)
    with nogil:
        for i in range(first, end):
            row = window.view.batches + i
            to.base_offset, to.last_offset = row.base_offset, row.last_offset
            to.leader_epoch, to.crc, to.records_count = row.leader_epoch, row.crc, row.records_count
            to.attributes, to.magic, to.padding = row.attributes, row.magic, 0
            to += 1
    return result


# The batches of a log that tell of an event: the first, a leader's, a producer's, a transaction's, and those after a pause.

cdef enum:
    KNOWN_PRODUCERS = 4096       # remembered by their low bits, a power of two
    PAUSE_BITS = 64              # pauses are counted by how many bits their ms take

cdef struct KnownProducer:
    long long id                 # -1: free
    short epoch
    bint is_open                 # a batch of a transaction was seen, and no marker since


cdef inline long long begin_of(const BatchRow *row) noexcept nogil:
    """The time of a batch's first record (ms), as far as its header has it: -1, none."""
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
    def pauses(self) -> list[int]:
        """How many pauses between a batch and the latest before it take 0, 1, 2 … bits, in ms."""
        return [self.counts[i] for i in range(PAUSE_BITS)]

    def take(self, Window window not None, Py_ssize_t first, Py_ssize_t end) -> list[tuple[int, int]]:
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


# Which bit is wrong, from how a checksum is wrong.
#
# A checksum is a remainder in GF(2)[x], so what one flipped bit does to it is x^e modulo its polynomial whatever the data
# is; e: how many bits stand behind the bit, those of the checksum included.  To find e is to take a logarithm, by small
# steps and giant ones: x^0 … x^4095 stand in a table, and the difference is divided by x^4096 until it is one of them.
# Less than a millisecond for a batch of 16 MiB, where trying every bit takes a few hundred: a log that is all damage would
# have that tried for each of a thousand batches.

cdef enum:
    STEP = 4096
    SLOTS = 4 * STEP             # a table that is three quarters empty is seldom asked twice

cdef struct Powers:
    uint32_t giant[32]           # what division by x^STEP makes of each bit of a checksum
    uint32_t values[SLOTS]       # powers of x; 0: an empty slot, for no power is 0
    int16_t logs[SLOTS]

cdef Powers castagnoli_powers, zlib_powers


cdef inline uint32_t slot_of(uint32_t value) noexcept nogil:
    return (value * <uint32_t>0x9E3779B1) >> 18


cdef int find_slot(const Powers *powers, uint32_t value) noexcept nogil:
    """Return where *value* stands in the table, or the empty slot where it would."""
    cdef uint32_t slot = slot_of(value)
    while powers.values[slot] and powers.values[slot] != value:
        slot = (slot + 1) % SLOTS
    return <int>slot


cdef void fill_powers(Powers *powers, uint32_t polynomial) noexcept nogil:
    """Fill the tables for a polynomial in its reflected form: bit 31 of a checksum is x^0, bit 0 is x^31."""
    cdef uint32_t value = 0x80000000, odd
    cdef int i, bit, slot
    for i in range(STEP):
        slot = find_slot(powers, value)
        powers.values[slot], powers.logs[slot] = value, <int16_t>i
        value = (value >> 1) ^ (polynomial & (0 - (value & 1)))
    for bit in range(32):
        value = <uint32_t>1 << bit
        for i in range(STEP):
            odd = value >> 31
            value = ((value ^ (polynomial & (0 - odd))) << 1) | odd
        powers.giant[bit] = value


cdef long long logarithm(const Powers *powers, uint32_t value, long long below) noexcept nogil:
    """Return the e below *below* for which x^e is *value*, -1 if there is none."""
    cdef long long passed = 0
    cdef uint32_t divided
    cdef int bit, slot
    while passed < below:
        slot = find_slot(powers, value)
        if powers.values[slot]:
            passed += powers.logs[slot]
            return passed if passed < below else -1
        divided = 0
        for bit in range(32):
            divided ^= powers.giant[bit] & (0 - (value >> bit & 1))
        value = divided
        passed += STEP
    return -1


def flipped_bit(unsigned int difference, long long size, bint zlib=False) -> int | None:
    """Return which single bit, flipped, makes a stored and a computed checksum differ by *difference* (stored ^ computed).

    *size*: how many bytes the checksum covers.  The answer is 8 times the byte, counted from the first that is covered,
    plus the bit, 0 being the lowest.  From -32 to -1 it is one of the stored checksum itself: four bytes, big-endian, in
    front of those it covers.  None: more than one bit is wrong, or none.  *zlib*: of a CRC-32, not a CRC-32C.

    Two wrong bits under a CRC-32C are never taken for one (its polynomial is divisible by x + 1).  For other damage
    each bit matches once in 2^32: the result is a guess, and `klog.log.bit_flips` computes its odds.
    """
    cdef Powers *powers = &zlib_powers if zlib else &castagnoli_powers
    cdef long long e, byte
    if difference == 0 or not 0 <= size <= 1 << 27:  # not far beyond, powers of x repeat
        return None
    if not powers.giant[31]:  # filled when they are first wanted: most processes never ask
        fill_powers(powers, 0xEDB88320 if zlib else 0x82F63B78)
    with nogil:
        e = logarithm(powers, difference, 8 * size + 32)
    if e < 0:
        return None
    if e < 32:
        return -8 * (1 + (31 - e) // 8) + (31 - e) % 8
    byte = size - 1 - (e - 32) // 8
    return 8 * byte + 7 - (e - 32) % 8
