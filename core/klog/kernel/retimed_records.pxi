# Records with other timestamp deltas than they had.

cdef Py_ssize_t moved_records(uint8_t *w, const uint8_t *p, Py_ssize_t size, long long times, long long shift) noexcept nogil:
    """Write whole records, *size* bytes, with other timestamp deltas: *times* what they were, and *shift*; return the bytes."""
    cdef const uint8_t *end = p + size
    cdef const uint8_t *record_end
    cdef const uint8_t *rest
    cdef uint8_t *start = w
    cdef int length = 0
    cdef long long delta = 0
    while p < end:
        p = varint(p, end, &length)
        record_end = p + length
        rest = varlong(p + 1, record_end, &delta)
        delta = add(times * delta, shift)
        w = put_varint(w, <uint32_t>(1 + varlong_bytes(delta) + (record_end - rest)))
        w[0] = 0
        w = put_varlong(w + 1, delta)
        memcpy(w, rest, record_end - rest)
        w += record_end - rest
        p = record_end
    return w - start


cdef inline uint8_t *put_varlong(uint8_t *w, long long value) noexcept nogil:
    cdef uint64_t u = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    while u >= 0x80:
        w[0] = <uint8_t>(u | 0x80)
        u >>= 7
        w += 1
    w[0] = <uint8_t>u
    return w + 1


cdef inline uint8_t *put_varint(uint8_t *w, uint32_t value) noexcept nogil:
    """Write a length, which is not negative."""
    return put_varlong(w, <long long>value)


cdef inline int varlong_bytes(long long value) noexcept nogil:
    cdef uint64_t u = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    cdef int n = 1
    while u >= 0x80:
        u >>= 7
        n += 1
    return n
