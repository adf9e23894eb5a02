# Keys by their digests: what an offset map keeps of one, and where it looks for it.

cdef enum:
    AHEAD = 64                   # rows that are hashed and asked for before the first of them is looked up
    LAST_WINDOW = 12             # of a digest's bytes, the first of the last four

cdef struct MapEntry:
    Digest digest
    long long inverse            # ~offset, which is never 0: 0 is an empty slot

cdef struct Pending:
    const uint8_t *key
    Py_ssize_t key_length
    Digest digest
    Py_ssize_t slot              # the first to look at
    long long offset
    Py_ssize_t row


cdef inline void prefetch_entry(const MapEntry *entry) noexcept nogil:
    """Ask for both of the lines that an entry may lie on."""
    prefetch(entry)
    prefetch(<const uint8_t *>entry + sizeof(MapEntry) - 1)


cdef inline Py_ssize_t broker_slot(const Digest *digest, Py_ssize_t attempt, Py_ssize_t slots) noexcept nogil:
    """Return where a broker looks: four bytes of the digest, further on at each attempt, then the next numbers.

    Kafka: SkimpyOffsetMap.positionOf.
    """
    cdef int at = <int>min(attempt, LAST_WINDOW)
    cdef uint32_t probe
    if at <= 4:
        probe = <uint32_t>(digest.high >> (32 - 8 * at))
    elif at < 8:
        probe = <uint32_t>(digest.high << (8 * at - 32) | digest.low >> (96 - 8 * at))
    else:
        probe = <uint32_t>(digest.low >> (96 - 8 * at))
    probe += <uint32_t>max(0, attempt - LAST_WINDOW)
    if <int>probe < 0:
        probe = 0 - probe  # but 2^31 has no negative, and Kafka takes 0 for it
    return (probe & 0x7FFFFFFF) % <uint32_t>slots
