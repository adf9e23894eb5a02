/* CRC-32C (Castagnoli: record batches, producer snapshots) and CRC-32 (zlib's: message sets).
 *
 * CRC-32C runs on the processor's own instruction where it has one: SSE 4.2 on x86-64, the CRC extension on arm64, found
 * at run time.  One instruction has a latency of three cycles but starts every cycle, so three streams run side by side
 * and are joined by a table.  Streams of 256 bytes keep the hardware prefetcher with us; the usual 2 KB lose half the
 * speed on data that comes from memory.  Everything else is slicing by eight.
 */
#ifndef KLOG_CRC_H
#define KLOG_CRC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cpu.h"
#include "words.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define KLOG_X86 1
#include <nmmintrin.h>
#include <wmmintrin.h>
#elif defined(__aarch64__) && defined(__linux__) && (defined(__GNUC__) || defined(__clang__))
#define KLOG_ARM 1
#include <arm_acle.h>
#include <sys/auxv.h>
#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif
#elif defined(__aarch64__) && defined(__APPLE__)
#define KLOG_ARM 1
#include <arm_acle.h>
#endif

#define KLOG_CASTAGNOLI 0x82f63b78u
#define KLOG_ZLIB 0xedb88320u
#define KLOG_LONG 256
#define KLOG_SHORT 64

static uint32_t klog_castagnoli[8][256], klog_zlib[8][256];
static uint32_t klog_long[4][256], klog_short[4][256];
static int klog_hardware;

static void klog_slices(uint32_t table[8][256], uint32_t polynomial) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++) c = c & 1 ? (c >> 1) ^ polynomial : c >> 1;
        table[0][i] = c;
    }
    for (int i = 0; i < 256; i++)
        for (int k = 1; k < 8; k++) table[k][i] = (table[k - 1][i] >> 8) ^ table[0][table[k - 1][i] & 255];
}

static uint32_t klog_sliced(uint32_t table[8][256], uint32_t crc, const uint8_t *p, size_t n) {
    crc = ~crc;
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t w = klog_le64(p) ^ crc;
        crc = table[7][w & 255] ^ table[6][(w >> 8) & 255] ^ table[5][(w >> 16) & 255] ^ table[4][(w >> 24) & 255] ^
              table[3][(w >> 32) & 255] ^ table[2][(w >> 40) & 255] ^ table[1][(w >> 48) & 255] ^ table[0][w >> 56];
    }
    while (n--) crc = (crc >> 8) ^ table[0][(crc ^ *p++) & 255];
    return ~crc;
}

/* table[k][b]: what byte k of a register holding b becomes after *length* zero bytes.  The step is linear, so the 32
 * single bits decide all the rest. */
static void klog_shift_table(uint32_t table[4][256], size_t length) {
    uint32_t bits[32];
    for (int bit = 0; bit < 32; bit++) {
        uint32_t c = 1u << bit;
        for (size_t i = 0; i < length; i++) c = (c >> 8) ^ klog_castagnoli[0][c & 255];
        bits[bit] = c;
    }
    for (int k = 0; k < 4; k++)
        for (int b = 0; b < 256; b++) {
            uint32_t c = 0;
            for (int bit = 0; bit < 8; bit++)
                if (b >> bit & 1) c ^= bits[8 * k + bit];
            table[k][b] = c;
        }
}

#if defined(KLOG_X86)
#if defined(__clang__) /* to Clang, the CRC instruction is a feature beside SSE 4.2 */
#define KLOG_SSE42 "sse4.2,crc32"
#else
#define KLOG_SSE42 "sse4.2"
#endif
#define KLOG_TARGET __attribute__((target(KLOG_SSE42)))
#define KLOG_STEP_WORD(c, word) _mm_crc32_u64((c), (word))
#define KLOG_STEP1(c, b) _mm_crc32_u8((c), (b))
#elif defined(KLOG_ARM)
#define KLOG_TARGET __attribute__((target("+crc")))
#define KLOG_STEP_WORD(c, word) __crc32cd((c), (word))
#define KLOG_STEP1(c, b) __crc32cb((c), (b))
#endif

#ifdef KLOG_TARGET
#define KLOG_STEP8(c, p) KLOG_STEP_WORD((c), klog_le64(p))

static inline uint32_t klog_shift(uint32_t table[4][256], uint32_t c) {
    return table[0][c & 255] ^ table[1][(c >> 8) & 255] ^ table[2][(c >> 16) & 255] ^ table[3][c >> 24];
}

#define KLOG_THREE_STREAMS(width, table)                                          \
    while (n >= 3 * (width)) {                                                    \
        uint64_t second = 0, third = 0;                                           \
        const uint8_t *end = p + (width);                                         \
        do {                                                                      \
            c = KLOG_STEP8(c, p);                                                 \
            second = KLOG_STEP8(second, p + (width));                             \
            third = KLOG_STEP8(third, p + 2 * (width));                           \
            p += 8;                                                               \
        } while (p < end);                                                        \
        c = klog_shift(table, klog_shift(table, c) ^ second) ^ third;             \
        p += 2 * (width);                                                         \
        n -= 3 * (width);                                                         \
    }

/* The last bytes, fewer than 3 * KLOG_SHORT, or a small batch, go through one stream: several small batches are in flight at
 * once.  No branch depends on the last digits of a length, for it would be mispredicted every other time. */
KLOG_TARGET static inline uint32_t klog_crc32c_rest(uint64_t c, const uint8_t *p, size_t n) {
    if (n < 8) {
        while (n--) c = KLOG_STEP1((uint32_t)c, *p++);
        return (uint32_t)c;
    }
    const uint8_t *last = p + n - 8;
    for (; last - p > 24; p += 32) c = KLOG_STEP8(KLOG_STEP8(KLOG_STEP8(KLOG_STEP8(c, p), p + 8), p + 16), p + 24);
    if (last - p > 8) {
        c = KLOG_STEP8(KLOG_STEP8(c, p), p + 8);
        p += 16;
    }
    int64_t left = last - p; /* -7 to 8 */
    uint64_t taken = 0 - (uint64_t)(left > 0);
    uint64_t next = KLOG_STEP8(c, last - (left & taken));
    c = (next & taken) | (c & ~taken);
    left -= 8 & taken;
    /* One to eight bytes are left.  Zeros in front of them would leave a register of 0 unchanged, so they are taken as one
     * word, register included, behind zeros; of a register longer than they are, the rest is shifted down. */
    int passed = -8 * (int)left;
    uint64_t word = (klog_le64(last) >> passed ^ c) << passed;
    return (uint32_t)(KLOG_STEP_WORD(0, word) ^ c >> 1 >> (63 - passed));
}

KLOG_TARGET static uint32_t klog_crc32c_hardware(uint32_t crc, const uint8_t *p, size_t n) {
    uint64_t c = (uint32_t)~crc;
    KLOG_THREE_STREAMS(KLOG_LONG, klog_long)
    KLOG_THREE_STREAMS(KLOG_SHORT, klog_short)
    return ~klog_crc32c_rest(c, p, n);
}
#endif

static int klog_find_hardware(void) {
#if defined(KLOG_X86)
    return (klog_cpu() & KLOG_CPU_SSE42) != 0;
#elif defined(KLOG_ARM) && defined(__APPLE__)
    return 1;
#elif defined(KLOG_ARM)
    return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
#else
    return 0;
#endif
}

/* Each extension that includes this has tables of its own. */
static __attribute__((constructor)) void klog_crc_init(void) {
    klog_slices(klog_castagnoli, KLOG_CASTAGNOLI);
    klog_slices(klog_zlib, KLOG_ZLIB);
    klog_shift_table(klog_long, KLOG_LONG);
    klog_shift_table(klog_short, KLOG_SHORT);
    klog_hardware = klog_find_hardware();
}

static inline uint32_t klog_crc32c(uint32_t crc, const uint8_t *p, size_t n) {
#ifdef KLOG_TARGET
    if (klog_hardware) return klog_crc32c_hardware(crc, p, n);
#endif
    return klog_sliced(klog_castagnoli, crc, p, n);
}

/* klog_powers[k]: what each bit of a register becomes after 2^k zero bytes. */
static uint32_t klog_castagnoli_powers[64][32], klog_zlib_powers[64][32];

static uint32_t klog_times(const uint32_t step[32], uint32_t crc) {
    uint32_t result = 0;
    for (int bit = 0; bit < 32; bit++) result ^= step[bit] & (0u - (crc >> bit & 1));
    return result;
}

static void klog_power_table(uint32_t powers[64][32], uint32_t table[8][256]) {
    for (int bit = 0; bit < 32; bit++) {
        uint32_t c = 1u << bit;
        powers[0][bit] = (c >> 8) ^ table[0][c & 255];
    }
    for (int k = 1; k < 64; k++)
        for (int bit = 0; bit < 32; bit++) powers[k][bit] = klog_times(powers[k - 1], powers[k - 1][bit]);
}

/* A checksum moved *n* bytes on: checksum(b) == checksum(ab) ^ shift(checksum(a), length of b). */
static uint32_t klog_crc_shift(uint32_t powers[64][32], uint32_t crc, uint64_t n) {
    if (!powers[0][31]) klog_power_table(powers, powers == klog_zlib_powers ? klog_zlib : klog_castagnoli);
    for (int k = 0; n; n >>= 1, k++)
        if (n & 1) crc = klog_times(powers[k], crc);
    return crc;
}

static inline uint32_t klog_crc32c_shift(uint32_t crc, uint64_t n) { return klog_crc_shift(klog_castagnoli_powers, crc, n); }

/* The same for many lengths below 2^31, a few nanoseconds each, once `klog_moves_init` has been called.  A product without
 * carries by x^(8n - 33), and the CRC instruction, which multiplies by x^32 and reduces: reflected products lack one bit.
 * Polynomials stand in a table for each third of the length; what is too short for one goes the slow way. */
#define KLOG_MOVE_BITS 11
static uint32_t klog_moves[3][1 << KLOG_MOVE_BITS];
static int klog_moves_ready;

static void klog_moves_init(void) {
    if (klog_moves[0][5]) return;
    klog_crc32c_shift(1, 1);
#ifdef KLOG_X86
    for (int third = 0; third < 3; third++)
        for (uint64_t i = 0; i < 1 << KLOG_MOVE_BITS; i++) {
            uint64_t n = i << KLOG_MOVE_BITS * third;
            klog_moves[third][i] = n < 5 ? 0 : klog_crc32c_shift(1u << 24, n - 5);
        }
    klog_moves_ready = klog_hardware && (klog_cpu() & KLOG_CPU_PCLMUL);
#endif
}

#ifdef KLOG_X86
__attribute__((target(KLOG_SSE42 ",pclmul"))) static inline uint32_t klog_move_once(uint32_t crc, uint32_t polynomial) {
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)crc), _mm_cvtsi32_si128((int)polynomial), 0);
    return (uint32_t)_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

__attribute__((target(KLOG_SSE42 ",pclmul"))) static uint32_t klog_move_fast(uint32_t crc, uint32_t n) {
    for (int third = 0; n; n >>= KLOG_MOVE_BITS, third++) {
        uint32_t part = n & ((1u << KLOG_MOVE_BITS) - 1), polynomial = klog_moves[third][part];
        if (polynomial) crc = klog_move_once(crc, polynomial);
        else if (part) crc = klog_crc32c_shift(crc, (uint64_t)part << KLOG_MOVE_BITS * third);
    }
    return crc;
}
#endif

/* The contribution of eight bytes of a text to its CRC, if n bytes follow them: CRCs are linear.  word: as a big-endian
 * number. */
#ifdef KLOG_X86
__attribute__((target(KLOG_SSE42 ",pclmul"))) static uint32_t klog_share_fast(uint64_t word, uint32_t n) {
    return klog_move_fast((uint32_t)_mm_crc32_u64(0, __builtin_bswap64(word)), n);
}
#endif

static inline uint32_t klog_crc32c_share(uint64_t word, uint32_t n) {
#ifdef KLOG_X86
    if (klog_moves_ready) return klog_share_fast(word, n);
#endif
    uint8_t bytes[8], zeros[8] = {0};
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(word >> (56 - 8 * i));
    return klog_crc32c_shift(klog_crc32c(0, bytes, 8) ^ klog_crc32c(0, zeros, 8), n);
}

static inline uint32_t klog_crc32_shift(uint32_t crc, uint64_t n) { return klog_crc_shift(klog_zlib_powers, crc, n); }

static inline uint32_t klog_crc32(uint32_t crc, const uint8_t *p, size_t n) { return klog_sliced(klog_zlib, crc, p, n); }

static inline uint32_t klog_crc32c_portable(uint32_t crc, const uint8_t *p, size_t n) {
    return klog_sliced(klog_castagnoli, crc, p, n);
}

#endif
