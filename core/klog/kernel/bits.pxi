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


def flipped_bit(unsigned int difference, long long size, bint zlib=False):
    """Return which single bit, flipped, makes a stored and a computed checksum differ by *difference* (stored ^ computed).

    *size*: how many bytes the checksum covers.  The answer is 8 times the byte, counted from the first that is covered,
    plus the bit, 0 being the lowest.  From -32 to -1 it is one of the stored checksum itself: four bytes, big-endian, in
    front of those it covers.  None: more than one bit is wrong, or none.  *zlib*: of a CRC-32, not a CRC-32C.

    Two wrong bits under a CRC-32C are never taken for one (its polynomial is divisible by x + 1).  Of other damage,
    one in 2^32 is for each bit that there is: what comes out is a guess, and `klog.log.bit_flips` says what it is worth.
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
