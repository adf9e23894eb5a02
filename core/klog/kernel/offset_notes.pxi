# Two bits about each of the offsets from a first one on: whether it was put into a map, whether it is superseded by now.

cdef extern from *:
    int popcount "__builtin_popcountll"(unsigned long long word) noexcept nogil

cdef enum:
    MOST_NOTES = 1 << 27         # offsets from the start on that are noted, two bits each: 32 MiB, as they are touched
    NOTES_A_WORD = 32

cdef enum:                       # a note about an offset
    WAS_PUT = 1
    WAS_SUPERSEDED = 2           # by a later record of the same key

cdef uint64_t EACH_NOTE = 0x5555555555555555

cdef struct Notes:
    uint64_t *words
    long long start              # the offset of the first note
    Py_ssize_t used              # so many offsets from there on, at most, have a note
    bint counts                  # false once an offset did not ascend: then no note counts


cdef inline void clear_notes(Notes *notes, long long start) noexcept nogil:
    memset(notes.words, 0, (notes.used + NOTES_A_WORD - 1) // NOTES_A_WORD * sizeof(uint64_t))
    notes.start, notes.used, notes.counts = start, 0, True


cdef inline void add_note(Notes *notes, long long offset, uint64_t what) noexcept nogil:
    cdef long long at
    if offset < notes.start:
        return
    at = offset - notes.start
    if at < MOST_NOTES:
        notes.words[at // NOTES_A_WORD] |= what << 2 * (at % NOTES_A_WORD)
        notes.used = max(notes.used, at + 1)


cdef inline int note_of(const Notes *notes, long long offset) noexcept nogil:
    """Return what is noted of an offset; 0: nothing is known."""
    cdef long long at
    if not notes.counts or offset < notes.start:
        return 0
    at = offset - notes.start
    if at >= notes.used:
        return 0
    return <int>(notes.words[at // NOTES_A_WORD] >> 2 * (at % NOTES_A_WORD) & 3)


cdef inline bint all_superseded(const Notes *notes, long long first, long long last, long long count) noexcept nogil:
    """Whether *count* records from *first* to *last* were put, and every one of them has been superseded."""
    cdef long long at, end
    cdef uint64_t word, wanted
    if not notes.counts or not notes.start <= first <= last or last - first >= NOTES_A_WORD * (count + 1):
        return False  # not even the spread of so few records is looked through
    at, end = first - notes.start, last - notes.start + 1
    if end > notes.used:
        return False
    while at < end:
        wanted = EACH_NOTE << 2 * (at % NOTES_A_WORD)
        if end - at < NOTES_A_WORD - at % NOTES_A_WORD:
            wanted &= EACH_NOTE >> 2 * (NOTES_A_WORD - end % NOTES_A_WORD)
        word = notes.words[at // NOTES_A_WORD]
        count -= popcount(word & word >> 1 & wanted)
        at += NOTES_A_WORD - at % NOTES_A_WORD
    return count == 0
