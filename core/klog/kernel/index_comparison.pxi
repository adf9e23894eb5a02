# The indexes of a segment, compared with its batches.


cdef class IndexComparison(SurveyEvents):
    """Compares the entries of a segment's indexes with its batches, as these are met."""

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
