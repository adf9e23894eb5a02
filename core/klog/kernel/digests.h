/* Sixteen bytes that stand for a key: SipHash-2-4 with 128 bits of output, and MD5.
 *
 * SipHash is keyed: who writes the records does not know the key, and so cannot make two keys with one digest, nor many
 * that fall into one slot.  MD5 (RFC 1321) is what a broker's cleaner uses.  Keys are short as a rule, so neither has a
 * state that could be fed piece by piece.
 */
#ifndef KLOG_DIGESTS_H
#define KLOG_DIGESTS_H

#include "crc.h"

#define KLOG_ROTL64(x, by) ((x) << (by) | (x) >> (64 - (by)))
#define KLOG_SIP_ROUND         \
    do {                       \
        a += b;                \
        c += d;                \
        b = KLOG_ROTL64(b, 13) ^ a; \
        d = KLOG_ROTL64(d, 16) ^ c; \
        a = KLOG_ROTL64(a, 32); \
        c += b;                \
        a += d;                \
        b = KLOG_ROTL64(b, 17) ^ c; \
        d = KLOG_ROTL64(d, 21) ^ a; \
        c = KLOG_ROTL64(c, 32); \
    } while (0)
#define KLOG_SIP_WORD(word) \
    do {                    \
        uint64_t w = word;  \
        d ^= w;             \
        KLOG_SIP_ROUND;     \
        KLOG_SIP_ROUND;     \
        a ^= w;             \
    } while (0)

/* The two halves of the result are numbers; as bytes each is little-endian. */
static inline void klog_siphash(const uint64_t key[2], const uint8_t *p, size_t n, uint64_t *first, uint64_t *second) {
    uint64_t a = key[0] ^ 0x736f6d6570736575ull, b = key[1] ^ 0x646f72616e646f6dull ^ 0xee;
    uint64_t c = key[0] ^ 0x6c7967656e657261ull, d = key[1] ^ 0x7465646279746573ull;
    uint64_t last = (uint64_t)n << 56;
    for (; n >= 8; p += 8, n -= 8) KLOG_SIP_WORD(klog_le64(p));
    while (n--) last |= (uint64_t)p[n] << 8 * n;
    KLOG_SIP_WORD(last);
    c ^= 0xee;
    for (int i = 0; i < 4; i++) KLOG_SIP_ROUND;
    *first = a ^ b ^ c ^ d;
    b ^= 0xdd;
    for (int i = 0; i < 4; i++) KLOG_SIP_ROUND;
    *second = a ^ b ^ c ^ d;
}

#define KLOG_ROTL32(x, by) ((x) << (by) | (x) >> (32 - (by)))
/* Where RFC 1321 joins two masked words by "or", no bit is set in both: a sum is the same, and its terms that are known
 * early are added early. */
#define KLOG_MD5_CHOOSE(x, y, z) (z ^ (x & (y ^ z)))
#define KLOG_MD5_SELECT(x, y, z) (y & ~z) + (x & z)
#define KLOG_MD5_PARITY(x, y, z) (x ^ (y ^ z))
#define KLOG_MD5_NEITHER(x, y, z) (y ^ (x | ~z))
#define KLOG_MD5_STEP(mix, a, b, c, d, word, constant, by) \
    a += klog_le32(p + 4 * word) + constant + mix(b, c, d); \
    a = b + KLOG_ROTL32(a, by);

static inline void klog_md5_block(uint32_t state[4], const uint8_t *p) {
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    KLOG_MD5_STEP(KLOG_MD5_CHOOSE, a, b, c, d, 0, 0xd76aa478u, 7)
    KLOG_MD5_STEP(KLOG_MD5_CHOOSE, d, a, b, c, 1, 0xe8c7b756u, 12)
    KLOG_MD5_STEP(KLOG_MD5_CHOOSE, c, d, a, b, 2, 0x242070dbu, 17)
    KLOG_MD5_STEP(KLOG_MD5_CHOOSE, b, c, d, a, 3, 0xc1bdceeeu, 22)
    KLOG_MD5_STEP(KLOG_MD5_CHOOSE, a, b, c, d, 4, 0xf57c0fafu, 7)
    KLOG_MD5_STEP(KLOG_MD5_CHOOSE, d, a, b, c, 5, 0x4787c62au, 12)
    KLOG_MD5_STEP(KLOG_MD5_CHOOSE, c, d, a, b, 6, 0xa8304613u, 17)
    KLOG_MD5_STEP(KLOG_MD5_CHOOSE, b, c, d, a, 7, 0xfd469501u, 22)
    KLOG_MD5_STEP(KLOG_MD5_CHOOSE, a, b, c, d, 8, 0x698098d8u, 7)
    KLOG_MD5_STEP(KLOG_MD5_CHOOSE, d, a, b, c, 9, 0x8b44f7afu, 12)
    KLOG_MD5_STEP(KLOG_MD5_CHOOSE, c, d, a, b, 10, 0xffff5bb1u, 17)
    KLOG_MD5_STEP(KLOG_MD5_CHOOSE, b, c, d, a, 11, 0x895cd7beu, 22)
    KLOG_MD5_STEP(KLOG_MD5_CHOOSE, a, b, c, d, 12, 0x6b901122u, 7)
    KLOG_MD5_STEP(KLOG_MD5_CHOOSE, d, a, b, c, 13, 0xfd987193u, 12)
    KLOG_MD5_STEP(KLOG_MD5_CHOOSE, c, d, a, b, 14, 0xa679438eu, 17)
    KLOG_MD5_STEP(KLOG_MD5_CHOOSE, b, c, d, a, 15, 0x49b40821u, 22)
    KLOG_MD5_STEP(KLOG_MD5_SELECT, a, b, c, d, 1, 0xf61e2562u, 5)
    KLOG_MD5_STEP(KLOG_MD5_SELECT, d, a, b, c, 6, 0xc040b340u, 9)
    KLOG_MD5_STEP(KLOG_MD5_SELECT, c, d, a, b, 11, 0x265e5a51u, 14)
    KLOG_MD5_STEP(KLOG_MD5_SELECT, b, c, d, a, 0, 0xe9b6c7aau, 20)
    KLOG_MD5_STEP(KLOG_MD5_SELECT, a, b, c, d, 5, 0xd62f105du, 5)
    KLOG_MD5_STEP(KLOG_MD5_SELECT, d, a, b, c, 10, 0x02441453u, 9)
    KLOG_MD5_STEP(KLOG_MD5_SELECT, c, d, a, b, 15, 0xd8a1e681u, 14)
    KLOG_MD5_STEP(KLOG_MD5_SELECT, b, c, d, a, 4, 0xe7d3fbc8u, 20)
    KLOG_MD5_STEP(KLOG_MD5_SELECT, a, b, c, d, 9, 0x21e1cde6u, 5)
    KLOG_MD5_STEP(KLOG_MD5_SELECT, d, a, b, c, 14, 0xc33707d6u, 9)
    KLOG_MD5_STEP(KLOG_MD5_SELECT, c, d, a, b, 3, 0xf4d50d87u, 14)
    KLOG_MD5_STEP(KLOG_MD5_SELECT, b, c, d, a, 8, 0x455a14edu, 20)
    KLOG_MD5_STEP(KLOG_MD5_SELECT, a, b, c, d, 13, 0xa9e3e905u, 5)
    KLOG_MD5_STEP(KLOG_MD5_SELECT, d, a, b, c, 2, 0xfcefa3f8u, 9)
    KLOG_MD5_STEP(KLOG_MD5_SELECT, c, d, a, b, 7, 0x676f02d9u, 14)
    KLOG_MD5_STEP(KLOG_MD5_SELECT, b, c, d, a, 12, 0x8d2a4c8au, 20)
    KLOG_MD5_STEP(KLOG_MD5_PARITY, a, b, c, d, 5, 0xfffa3942u, 4)
    KLOG_MD5_STEP(KLOG_MD5_PARITY, d, a, b, c, 8, 0x8771f681u, 11)
    KLOG_MD5_STEP(KLOG_MD5_PARITY, c, d, a, b, 11, 0x6d9d6122u, 16)
    KLOG_MD5_STEP(KLOG_MD5_PARITY, b, c, d, a, 14, 0xfde5380cu, 23)
    KLOG_MD5_STEP(KLOG_MD5_PARITY, a, b, c, d, 1, 0xa4beea44u, 4)
    KLOG_MD5_STEP(KLOG_MD5_PARITY, d, a, b, c, 4, 0x4bdecfa9u, 11)
    KLOG_MD5_STEP(KLOG_MD5_PARITY, c, d, a, b, 7, 0xf6bb4b60u, 16)
    KLOG_MD5_STEP(KLOG_MD5_PARITY, b, c, d, a, 10, 0xbebfbc70u, 23)
    KLOG_MD5_STEP(KLOG_MD5_PARITY, a, b, c, d, 13, 0x289b7ec6u, 4)
    KLOG_MD5_STEP(KLOG_MD5_PARITY, d, a, b, c, 0, 0xeaa127fau, 11)
    KLOG_MD5_STEP(KLOG_MD5_PARITY, c, d, a, b, 3, 0xd4ef3085u, 16)
    KLOG_MD5_STEP(KLOG_MD5_PARITY, b, c, d, a, 6, 0x04881d05u, 23)
    KLOG_MD5_STEP(KLOG_MD5_PARITY, a, b, c, d, 9, 0xd9d4d039u, 4)
    KLOG_MD5_STEP(KLOG_MD5_PARITY, d, a, b, c, 12, 0xe6db99e5u, 11)
    KLOG_MD5_STEP(KLOG_MD5_PARITY, c, d, a, b, 15, 0x1fa27cf8u, 16)
    KLOG_MD5_STEP(KLOG_MD5_PARITY, b, c, d, a, 2, 0xc4ac5665u, 23)
    KLOG_MD5_STEP(KLOG_MD5_NEITHER, a, b, c, d, 0, 0xf4292244u, 6)
    KLOG_MD5_STEP(KLOG_MD5_NEITHER, d, a, b, c, 7, 0x432aff97u, 10)
    KLOG_MD5_STEP(KLOG_MD5_NEITHER, c, d, a, b, 14, 0xab9423a7u, 15)
    KLOG_MD5_STEP(KLOG_MD5_NEITHER, b, c, d, a, 5, 0xfc93a039u, 21)
    KLOG_MD5_STEP(KLOG_MD5_NEITHER, a, b, c, d, 12, 0x655b59c3u, 6)
    KLOG_MD5_STEP(KLOG_MD5_NEITHER, d, a, b, c, 3, 0x8f0ccc92u, 10)
    KLOG_MD5_STEP(KLOG_MD5_NEITHER, c, d, a, b, 10, 0xffeff47du, 15)
    KLOG_MD5_STEP(KLOG_MD5_NEITHER, b, c, d, a, 1, 0x85845dd1u, 21)
    KLOG_MD5_STEP(KLOG_MD5_NEITHER, a, b, c, d, 8, 0x6fa87e4fu, 6)
    KLOG_MD5_STEP(KLOG_MD5_NEITHER, d, a, b, c, 15, 0xfe2ce6e0u, 10)
    KLOG_MD5_STEP(KLOG_MD5_NEITHER, c, d, a, b, 6, 0xa3014314u, 15)
    KLOG_MD5_STEP(KLOG_MD5_NEITHER, b, c, d, a, 13, 0x4e0811a1u, 21)
    KLOG_MD5_STEP(KLOG_MD5_NEITHER, a, b, c, d, 4, 0xf7537e82u, 6)
    KLOG_MD5_STEP(KLOG_MD5_NEITHER, d, a, b, c, 11, 0xbd3af235u, 10)
    KLOG_MD5_STEP(KLOG_MD5_NEITHER, c, d, a, b, 2, 0x2ad7d2bbu, 15)
    KLOG_MD5_STEP(KLOG_MD5_NEITHER, b, c, d, a, 9, 0xeb86d391u, 21)
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
}

/* The two halves of the result are numbers; as bytes each is big-endian, which is how a broker reads slots out of them. */
static inline void klog_md5(const uint8_t *p, size_t n, uint64_t *first, uint64_t *second) {
    uint32_t state[4] = {0x67452301u, 0xefcdab89u, 0x98badcfeu, 0x10325476u};
    uint8_t tail[128] = {0};
    uint64_t bits = (uint64_t)n << 3;
    for (; n >= 64; p += 64, n -= 64) klog_md5_block(state, p);
    size_t size = n < 56 ? 64 : 128;
    if (n) memcpy(tail, p, n);
    tail[n] = 0x80;
    for (int i = 0; i < 8; i++) tail[size - 8 + i] = (uint8_t)(bits >> 8 * i);
    klog_md5_block(state, tail);
    if (size == 128) klog_md5_block(state, tail + 64);
    for (int i = 0; i < 4; i++) state[i] = __builtin_bswap32(state[i]);
    *first = (uint64_t)state[0] << 32 | state[1];
    *second = (uint64_t)state[2] << 32 | state[3];
}

#endif
