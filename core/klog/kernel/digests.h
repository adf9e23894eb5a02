/* Sixteen bytes that stand for a key: SipHash-2-4 with 128 bits of output, and MD5.  Eight: a sum of products.
 *
 * SipHash is keyed: who writes the records does not know the key, and so cannot make two keys with one digest, nor many
 * that fall into one slot.  MD5 (RFC 1321) is what a broker's cleaner uses.  Keys are short as a rule, so neither has a
 * state that could be fed piece by piece.
 */
#ifndef KLOG_DIGESTS_H
#define KLOG_DIGESTS_H

#include "crc.h"

/* As bytes the halves are little-endian for SipHash, and big-endian for MD5, out of which a broker reads slots. */
typedef struct {
    uint64_t high, low;
} klog_digest;

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
        __typeof__(a) w = word; \
        d ^= w;             \
        KLOG_SIP_ROUND;     \
        KLOG_SIP_ROUND;     \
        a ^= w;             \
    } while (0)

/* The rest of a key behind its last whole word, and the key's length. */
static inline uint64_t klog_sip_last(const uint8_t *rest, size_t n) {
    uint64_t last = (uint64_t)n << 56;
    for (size_t left = n % 8; left--;) last |= (uint64_t)rest[left] << 8 * left;
    return last;
}

#define KLOG_SIP_START(even, odd)                                                               \
    a = even ^ 0x736f6d6570736575ull, b = odd ^ 0x646f72616e646f6dull ^ 0xee,                   \
    c = even ^ 0x6c7967656e657261ull, d = odd ^ 0x7465646279746573ull
#define KLOG_SIP_END(high, low)                 \
    do {                                        \
        c ^= 0xee;                              \
        for (int i = 0; i < 4; i++) KLOG_SIP_ROUND; \
        high = a ^ b ^ c ^ d;                   \
        b ^= 0xdd;                              \
        for (int i = 0; i < 4; i++) KLOG_SIP_ROUND; \
        low = a ^ b ^ c ^ d;                    \
    } while (0)

static inline void klog_siphash(const uint8_t secret[16], const uint8_t *p, size_t n, klog_digest *out) {
    uint64_t even = klog_le64(secret), odd = klog_le64(secret + 8), a, b, c, d, last;
    const uint8_t *end = p + n / 8 * 8;
    KLOG_SIP_START(even, odd);
    last = klog_sip_last(end, n);
    for (; p < end; p += 8) KLOG_SIP_WORD(klog_le64(p));
    KLOG_SIP_WORD(last);
    KLOG_SIP_END(out->high, out->low);
}

/* Eight bytes for n whole words: the upper half of a sum of products with secret factors of 128 bits, n + 1 of them.
 * Whatever two rows of words are, over all factors they have one digest in one case of 2^64 (multilinear hashing: Lemire
 * and Kaser, "Strongly universal string hashing is fast", 2014).  For digests that are never shown. */
typedef unsigned __int128 klog_wide_factor;

static inline uint64_t klog_sum_words(const klog_wide_factor *factors, const uint64_t *words, size_t n) {
    klog_wide_factor sum = factors[n];
    for (size_t i = 0; i < n; i++) sum += factors[i] * words[i];
    return (uint64_t)(sum >> 64);
}

static inline void klog_sum_factors(const uint8_t secret[16], klog_wide_factor *factors, size_t n) {
    klog_digest made;
    for (size_t i = 0; i <= n; i++) {
        uint8_t number = (uint8_t)i;
        klog_siphash(secret, &number, 1, &made);
        factors[i] = (klog_wide_factor)made.high << 64 | made.low;
    }
}

/* Eight keys at once, side by side in the lanes of vectors.  Only for keys that have equally many whole words, and few;
 * processors whose vectors are no faster take them one by one. */
#define KLOG_SIP_WORDS 8
#if defined(__x86_64__) && defined(__GNUC__)
#define KLOG_SIP_VECTORS 1
typedef uint64_t klog_wide __attribute__((vector_size(64)));

static inline __attribute__((always_inline)) void klog_sip_lanes(
    const uint8_t secret[16], const uint8_t *const keys[8], const size_t sizes[8], klog_digest *const out[8]) {
    const klog_wide none = {0}, even = none + klog_le64(secret), odd = none + klog_le64(secret + 8);
    klog_wide a, b, c, d, high, low, word = none;
    size_t whole = sizes[0] / 8;
    KLOG_SIP_START(even, odd);
    for (size_t i = 0; i < whole; i++) {
        for (int lane = 0; lane < 8; lane++) word[lane] = klog_le64(keys[lane] + 8 * i);
        KLOG_SIP_WORD(word);
    }
    for (int lane = 0; lane < 8; lane++) word[lane] = klog_sip_last(keys[lane] + 8 * whole, sizes[lane]);
    KLOG_SIP_WORD(word);
    KLOG_SIP_END(high, low);
    for (int lane = 0; lane < 8; lane++) out[lane]->high = high[lane], out[lane]->low = low[lane];
}

__attribute__((target("avx512f"))) static void klog_sip_avx512(
    const uint8_t secret[16], const uint8_t *const keys[8], const size_t sizes[8], klog_digest *const out[8]) {
    klog_sip_lanes(secret, keys, sizes, out);
}

__attribute__((target("avx2"))) static void klog_sip_avx2(
    const uint8_t secret[16], const uint8_t *const keys[8], const size_t sizes[8], klog_digest *const out[8]) {
    klog_sip_lanes(secret, keys, sizes, out);
}

static inline int klog_sip_vectors(void) {
    static int found = -1; /* to ask costs thousands of cycles in a virtual machine; two threads find the same */
    if (found < 0) found = klog_cpu();
    return found & KLOG_CPU_AVX512F ? 2 : found & KLOG_CPU_AVX2 ? 1 : 0;
}
#endif

static void klog_siphash_eight(
    const uint8_t secret[16], const uint8_t *const keys[8], const size_t sizes[8], klog_digest *const out[8]) {
#ifdef KLOG_SIP_VECTORS
    int vectors = klog_sip_vectors(), lane = 1;
    if (vectors && sizes[0] / 8 <= KLOG_SIP_WORDS) {
        while (lane < 8 && sizes[lane] / 8 == sizes[0] / 8) lane++;
        if (lane == 8) {
            (vectors == 2 ? klog_sip_avx512 : klog_sip_avx2)(secret, keys, sizes, out);
            return;
        }
    }
#endif
    for (int lane = 0; lane < 8; lane++) klog_siphash(secret, keys[lane], sizes[lane], out[lane]);
}

#define KLOG_MD5_START 0x67452301u, 0xefcdab89u, 0x98badcfeu, 0x10325476u
#define KLOG_ROTL32(x, by) ((x) << (by) | (x) >> (32 - (by)))
/* RFC 1321 joins two masked words by "or", and no bit is set in both: a sum is the same, and its terms that are
 * known early are added early. */
#define KLOG_MD5_CHOOSE(x, y, z) (z ^ (x & (y ^ z)))
#define KLOG_MD5_SELECT(x, y, z) (y & ~z) + (x & z)
#define KLOG_MD5_PARITY(x, y, z) (x ^ (y ^ z))
#define KLOG_MD5_NEITHER(x, y, z) (y ^ (x | ~z))
#define KLOG_MD5_STEP(mix, a, b, c, d, word, constant, by) \
    a += word + constant + mix(b, c, d);                   \
    a = b + KLOG_ROTL32(a, by);
#define KLOG_MD5_STEPS(word) \
    KLOG_MD5_STEP(KLOG_MD5_CHOOSE, a, b, c, d, word(0), 0xd76aa478u, 7) \
    KLOG_MD5_STEP(KLOG_MD5_CHOOSE, d, a, b, c, word(1), 0xe8c7b756u, 12) \
    KLOG_MD5_STEP(KLOG_MD5_CHOOSE, c, d, a, b, word(2), 0x242070dbu, 17) \
    KLOG_MD5_STEP(KLOG_MD5_CHOOSE, b, c, d, a, word(3), 0xc1bdceeeu, 22) \
    KLOG_MD5_STEP(KLOG_MD5_CHOOSE, a, b, c, d, word(4), 0xf57c0fafu, 7) \
    KLOG_MD5_STEP(KLOG_MD5_CHOOSE, d, a, b, c, word(5), 0x4787c62au, 12) \
    KLOG_MD5_STEP(KLOG_MD5_CHOOSE, c, d, a, b, word(6), 0xa8304613u, 17) \
    KLOG_MD5_STEP(KLOG_MD5_CHOOSE, b, c, d, a, word(7), 0xfd469501u, 22) \
    KLOG_MD5_STEP(KLOG_MD5_CHOOSE, a, b, c, d, word(8), 0x698098d8u, 7) \
    KLOG_MD5_STEP(KLOG_MD5_CHOOSE, d, a, b, c, word(9), 0x8b44f7afu, 12) \
    KLOG_MD5_STEP(KLOG_MD5_CHOOSE, c, d, a, b, word(10), 0xffff5bb1u, 17) \
    KLOG_MD5_STEP(KLOG_MD5_CHOOSE, b, c, d, a, word(11), 0x895cd7beu, 22) \
    KLOG_MD5_STEP(KLOG_MD5_CHOOSE, a, b, c, d, word(12), 0x6b901122u, 7) \
    KLOG_MD5_STEP(KLOG_MD5_CHOOSE, d, a, b, c, word(13), 0xfd987193u, 12) \
    KLOG_MD5_STEP(KLOG_MD5_CHOOSE, c, d, a, b, word(14), 0xa679438eu, 17) \
    KLOG_MD5_STEP(KLOG_MD5_CHOOSE, b, c, d, a, word(15), 0x49b40821u, 22) \
    KLOG_MD5_STEP(KLOG_MD5_SELECT, a, b, c, d, word(1), 0xf61e2562u, 5) \
    KLOG_MD5_STEP(KLOG_MD5_SELECT, d, a, b, c, word(6), 0xc040b340u, 9) \
    KLOG_MD5_STEP(KLOG_MD5_SELECT, c, d, a, b, word(11), 0x265e5a51u, 14) \
    KLOG_MD5_STEP(KLOG_MD5_SELECT, b, c, d, a, word(0), 0xe9b6c7aau, 20) \
    KLOG_MD5_STEP(KLOG_MD5_SELECT, a, b, c, d, word(5), 0xd62f105du, 5) \
    KLOG_MD5_STEP(KLOG_MD5_SELECT, d, a, b, c, word(10), 0x02441453u, 9) \
    KLOG_MD5_STEP(KLOG_MD5_SELECT, c, d, a, b, word(15), 0xd8a1e681u, 14) \
    KLOG_MD5_STEP(KLOG_MD5_SELECT, b, c, d, a, word(4), 0xe7d3fbc8u, 20) \
    KLOG_MD5_STEP(KLOG_MD5_SELECT, a, b, c, d, word(9), 0x21e1cde6u, 5) \
    KLOG_MD5_STEP(KLOG_MD5_SELECT, d, a, b, c, word(14), 0xc33707d6u, 9) \
    KLOG_MD5_STEP(KLOG_MD5_SELECT, c, d, a, b, word(3), 0xf4d50d87u, 14) \
    KLOG_MD5_STEP(KLOG_MD5_SELECT, b, c, d, a, word(8), 0x455a14edu, 20) \
    KLOG_MD5_STEP(KLOG_MD5_SELECT, a, b, c, d, word(13), 0xa9e3e905u, 5) \
    KLOG_MD5_STEP(KLOG_MD5_SELECT, d, a, b, c, word(2), 0xfcefa3f8u, 9) \
    KLOG_MD5_STEP(KLOG_MD5_SELECT, c, d, a, b, word(7), 0x676f02d9u, 14) \
    KLOG_MD5_STEP(KLOG_MD5_SELECT, b, c, d, a, word(12), 0x8d2a4c8au, 20) \
    KLOG_MD5_STEP(KLOG_MD5_PARITY, a, b, c, d, word(5), 0xfffa3942u, 4) \
    KLOG_MD5_STEP(KLOG_MD5_PARITY, d, a, b, c, word(8), 0x8771f681u, 11) \
    KLOG_MD5_STEP(KLOG_MD5_PARITY, c, d, a, b, word(11), 0x6d9d6122u, 16) \
    KLOG_MD5_STEP(KLOG_MD5_PARITY, b, c, d, a, word(14), 0xfde5380cu, 23) \
    KLOG_MD5_STEP(KLOG_MD5_PARITY, a, b, c, d, word(1), 0xa4beea44u, 4) \
    KLOG_MD5_STEP(KLOG_MD5_PARITY, d, a, b, c, word(4), 0x4bdecfa9u, 11) \
    KLOG_MD5_STEP(KLOG_MD5_PARITY, c, d, a, b, word(7), 0xf6bb4b60u, 16) \
    KLOG_MD5_STEP(KLOG_MD5_PARITY, b, c, d, a, word(10), 0xbebfbc70u, 23) \
    KLOG_MD5_STEP(KLOG_MD5_PARITY, a, b, c, d, word(13), 0x289b7ec6u, 4) \
    KLOG_MD5_STEP(KLOG_MD5_PARITY, d, a, b, c, word(0), 0xeaa127fau, 11) \
    KLOG_MD5_STEP(KLOG_MD5_PARITY, c, d, a, b, word(3), 0xd4ef3085u, 16) \
    KLOG_MD5_STEP(KLOG_MD5_PARITY, b, c, d, a, word(6), 0x04881d05u, 23) \
    KLOG_MD5_STEP(KLOG_MD5_PARITY, a, b, c, d, word(9), 0xd9d4d039u, 4) \
    KLOG_MD5_STEP(KLOG_MD5_PARITY, d, a, b, c, word(12), 0xe6db99e5u, 11) \
    KLOG_MD5_STEP(KLOG_MD5_PARITY, c, d, a, b, word(15), 0x1fa27cf8u, 16) \
    KLOG_MD5_STEP(KLOG_MD5_PARITY, b, c, d, a, word(2), 0xc4ac5665u, 23) \
    KLOG_MD5_STEP(KLOG_MD5_NEITHER, a, b, c, d, word(0), 0xf4292244u, 6) \
    KLOG_MD5_STEP(KLOG_MD5_NEITHER, d, a, b, c, word(7), 0x432aff97u, 10) \
    KLOG_MD5_STEP(KLOG_MD5_NEITHER, c, d, a, b, word(14), 0xab9423a7u, 15) \
    KLOG_MD5_STEP(KLOG_MD5_NEITHER, b, c, d, a, word(5), 0xfc93a039u, 21) \
    KLOG_MD5_STEP(KLOG_MD5_NEITHER, a, b, c, d, word(12), 0x655b59c3u, 6) \
    KLOG_MD5_STEP(KLOG_MD5_NEITHER, d, a, b, c, word(3), 0x8f0ccc92u, 10) \
    KLOG_MD5_STEP(KLOG_MD5_NEITHER, c, d, a, b, word(10), 0xffeff47du, 15) \
    KLOG_MD5_STEP(KLOG_MD5_NEITHER, b, c, d, a, word(1), 0x85845dd1u, 21) \
    KLOG_MD5_STEP(KLOG_MD5_NEITHER, a, b, c, d, word(8), 0x6fa87e4fu, 6) \
    KLOG_MD5_STEP(KLOG_MD5_NEITHER, d, a, b, c, word(15), 0xfe2ce6e0u, 10) \
    KLOG_MD5_STEP(KLOG_MD5_NEITHER, c, d, a, b, word(6), 0xa3014314u, 15) \
    KLOG_MD5_STEP(KLOG_MD5_NEITHER, b, c, d, a, word(13), 0x4e0811a1u, 21) \
    KLOG_MD5_STEP(KLOG_MD5_NEITHER, a, b, c, d, word(4), 0xf7537e82u, 6) \
    KLOG_MD5_STEP(KLOG_MD5_NEITHER, d, a, b, c, word(11), 0xbd3af235u, 10) \
    KLOG_MD5_STEP(KLOG_MD5_NEITHER, c, d, a, b, word(2), 0x2ad7d2bbu, 15) \
    KLOG_MD5_STEP(KLOG_MD5_NEITHER, b, c, d, a, word(9), 0xeb86d391u, 21)

static inline void klog_md5_block(uint32_t state[4], const uint8_t *p) {
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
#define KLOG_WORD(i) klog_le32(p + 4 * i)
    KLOG_MD5_STEPS(KLOG_WORD)
#undef KLOG_WORD
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
}

/* The bytes behind the last whole block of a message of n bytes: the rest of it, one bit, zeros, and the length. */
static inline size_t klog_md5_tail(const uint8_t *rest, size_t n, uint8_t tail[128]) {
    size_t left = n % 64, size = left < 56 ? 64 : 128;
    memset(tail, 0, size);
    if (left) memcpy(tail, rest, left);
    tail[left] = 0x80;
    for (int i = 0; i < 8; i++) tail[size - 8 + i] = (uint8_t)((uint64_t)n << 3 >> 8 * i);
    return size;
}

static inline void klog_md5_result(uint32_t a, uint32_t b, uint32_t c, uint32_t d, klog_digest *out) {
    out->high = (uint64_t)__builtin_bswap32(a) << 32 | __builtin_bswap32(b);
    out->low = (uint64_t)__builtin_bswap32(c) << 32 | __builtin_bswap32(d);
}

static void klog_md5(const uint8_t *p, size_t n, klog_digest *out) {
    uint32_t state[4] = {KLOG_MD5_START};
    uint8_t tail[128];
    size_t at = 0;
    for (; n - at >= 64; at += 64) klog_md5_block(state, p + at);
    size_t size = klog_md5_tail(p + at, n, tail);
    for (at = 0; at < size; at += 64) klog_md5_block(state, tail + at);
    klog_md5_result(state[0], state[1], state[2], state[3], out);
}

/* Eight keys at once, side by side in the lanes of a vector: nearly three times as fast, since one step of MD5 has to
 * wait for the one before it.  Keys that need more than a block go alone. */
typedef uint32_t klog_lanes __attribute__((vector_size(32)));

static void klog_md5_eight(const uint8_t *const keys[8], const size_t sizes[8], klog_digest *const out[8]) {
    klog_lanes a, b, c, d, words[16];
    uint8_t block[128];
    size_t longest = 0;
    for (int lane = 0; lane < 8; lane++)
        if (sizes[lane] > longest) longest = sizes[lane];
    if (longest > 55) {
        for (int lane = 0; lane < 8; lane++) klog_md5(keys[lane], sizes[lane], out[lane]);
        return;
    }
    for (int lane = 0; lane < 8; lane++) {
        klog_md5_tail(keys[lane], sizes[lane], block);
        for (int i = 0; i < 16; i++) words[i][lane] = klog_le32(block + 4 * i);
    }
    const uint32_t start[4] = {KLOG_MD5_START};
    const klog_lanes none = {0}, A = none + start[0], B = none + start[1], C = none + start[2], D = none + start[3];
    a = A, b = B, c = C, d = D;
#define KLOG_WORD(i) words[i]
    KLOG_MD5_STEPS(KLOG_WORD)
#undef KLOG_WORD
    a += A, b += B, c += C, d += D;
    for (int lane = 0; lane < 8; lane++) klog_md5_result(a[lane], b[lane], c[lane], d[lane], out[lane]);
}

#endif
