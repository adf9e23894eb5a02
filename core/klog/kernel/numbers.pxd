# Reading and writing fixed and variable numbers.  Everything is big-endian; every caller has compared lengths before.

from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef extern from "words.h" nogil:
    uint32_t klog_le32(const uint8_t *p)
    uint64_t klog_le64(const uint8_t *p)
    uint32_t turned32 "__builtin_bswap32"(uint32_t value)
    uint64_t turned64 "__builtin_bswap64"(uint64_t value)


cdef inline int be16(const uint8_t *p) noexcept nogil:
    return <short>(p[0] << 8 | p[1])

cdef inline int be32(const uint8_t *p) noexcept nogil:
    return <int>turned32(klog_le32(p))

cdef inline long long be64(const uint8_t *p) noexcept nogil:
    return <long long>turned64(klog_le64(p))


cdef inline void put16(uint8_t *p, uint32_t value) noexcept nogil:
    p[0], p[1] = value >> 8 & 0xFF, value & 0xFF

cdef inline void put32(uint8_t *p, uint32_t value) noexcept nogil:
    p[0], p[1], p[2], p[3] = value >> 24, value >> 16 & 0xFF, value >> 8 & 0xFF, value & 0xFF

cdef inline void put64(uint8_t *p, uint64_t value) noexcept nogil:
    put32(p, <uint32_t>(value >> 32))
    put32(p + 4, <uint32_t>value)


cdef inline const uint8_t *varint(const uint8_t *p, const uint8_t *end, int *value) noexcept nogil:
    """Read a zig-zag varint of at most five bytes; NULL where it does not end in time.

    Surplus bits of the fifth byte are dropped and overlong forms accepted.  Kafka: ByteUtils.readVarint.
    """
    cdef uint32_t u
    cdef int shift
    cdef uint8_t c
    if p < end and p[0] < 0x80:
        u = p[0]
        value[0] = <int>(u >> 1) ^ -<int>(u & 1)
        return p + 1
    if end - p >= 2 and p[1] < 0x80:
        u = (p[0] & 0x7F) | <uint32_t>p[1] << 7
        value[0] = <int>(u >> 1) ^ -<int>(u & 1)
        return p + 2
    u = 0
    shift = 0
    while p < end:
        c = p[0]
        p += 1
        u |= <uint32_t>(c & 0x7F) << shift
        if c < 0x80:
            value[0] = <int>(u >> 1) ^ -<int>(u & 1)
            return p
        shift += 7
        if shift > 28:
            return NULL
    return NULL


cdef inline const uint8_t *varlong(const uint8_t *p, const uint8_t *end, long long *value) noexcept nogil:
    """Read a zig-zag varint of at most ten bytes; NULL where it does not end in time.  Kafka: ByteUtils.readVarlong."""
    cdef uint64_t u = 0
    cdef int shift = 0
    cdef uint8_t c
    while p < end:
        c = p[0]
        p += 1
        u |= <uint64_t>(c & 0x7F) << shift
        if c < 0x80:
            value[0] = <long long>(u >> 1) ^ -<long long>(u & 1)
            return p
        shift += 7
        if shift > 63:
            return NULL
    return NULL


cdef inline long long add(long long a, long long b) noexcept nogil:
    """Sum that wraps as Java's does."""
    return <long long>(<uint64_t>a + <uint64_t>b)


cdef inline long long subtract(long long a, long long b) noexcept nogil:
    """Difference that wraps as Java's does."""
    return <long long>(<uint64_t>a - <uint64_t>b)


cdef inline int increment_sequence(int sequence, int by) noexcept nogil:
    """The sequence *by* records on; 2^31 - 1 is followed by 0.  Kafka: DefaultRecordBatch.incrementSequence."""
    if sequence > <int>(<uint32_t>2147483647 - <uint32_t>by):  # wraps, as Java's does, for a delta below zero
        return <int>(<uint32_t>by - (<uint32_t>2147483647 - <uint32_t>sequence) - 1)
    return <int>(<uint32_t>sequence + <uint32_t>by)


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
