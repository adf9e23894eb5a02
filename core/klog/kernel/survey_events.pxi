# What a survey finds odd: events, in the order in which they are met.

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

SURVEY_KINDS = (None, "odd offset", "backwards", "overflow", "beyond next", "odd epoch", "gap", "bad counts", "unknown codec",
                "index no batch", "index skips", "time misses", "time unreached", "index inexact", "time inexact", "time inside")

cdef struct Event:
    int kind
    long long position           # of the batch in the file; of an index entry, what it says
    long long first              # the two numbers that the kind tells
    long long second


cdef class SurveyEvents:
    """The oddities of a segment, the first of each sort."""

    cdef readonly long long dropped                      # oddities of batches beyond MOST_EVENTS
    cdef Event *events_start
    cdef Py_ssize_t events_count, events_room, others_count

    def __dealloc__(self):
        free(self.events_start)

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
