/* Which partition a key goes to: the hashes of Kafka's clients, and how they become a partition's number.
 *
 * murmur2: Kafka: Utils.murmur2, the 32-bit MurmurHash2 of Austin Appleby with a fixed seed.  FNV-1a: 32 bits, as
 * Sarama and librdkafka have it.  CRC-32 is zlib's: crc.h.
 */
#ifndef KLOG_PARTITIONS_H
#define KLOG_PARTITIONS_H

#include "crc.h"

enum { KLOG_RULES = 7 };

typedef struct {
    uint32_t murmur2, crc32, fnv1a;
} klog_key_hashes;

static inline uint32_t klog_murmur2(const uint8_t *p, size_t n) {
    const uint32_t m = 0x5bd1e995u;
    uint32_t h = 0x9747b28cu ^ (uint32_t)n;
    for (const uint8_t *end = p + n / 4 * 4; p < end; p += 4) {
        uint32_t k = klog_le32(p) * m;
        h = h * m ^ (k ^ k >> 24) * m;
    }
    if (n % 4) {
        if (n % 4 == 3) h ^= (uint32_t)p[2] << 16;
        if (n % 4 >= 2) h ^= (uint32_t)p[1] << 8;
        h = (h ^ p[0]) * m;
    }
    h = (h ^ h >> 13) * m;
    return h ^ h >> 15;
}

static inline uint32_t klog_fnv1a(const uint8_t *p, size_t n) {
    uint32_t h = 0x811c9dc5u;
    for (const uint8_t *end = p + n; p < end; p++) h = (h ^ *p) * 0x01000193u;
    return h;
}

/* Tells keys apart that one of the hashes does not; *secret* keeps others from finding two that are alike. */
static inline uint32_t klog_key_check(const uint8_t *p, size_t n, uint64_t secret) {
    uint64_t h = secret ^ n, last = 0;
    const uint8_t *end = p + n / 8 * 8;
    for (; p < end; p += 8) {
        h = (h ^ klog_le64(p)) * 0x9e3779b97f4a7c15ull;
        h ^= h >> 32;
    }
    if (n % 8) {
        for (size_t left = n % 8; left--;) last = last << 8 | p[left];
        h = (h ^ last) * 0x9e3779b97f4a7c15ull;
    }
    return (uint32_t)(h >> 32);
}

static inline void klog_hash_key(const uint8_t *p, size_t n, klog_key_hashes *out) {
    out->murmur2 = klog_murmur2(p, n);
    out->crc32 = klog_crc32(0, p, n);
    out->fnv1a = klog_fnv1a(p, n);
}

/* The constants for the remainder of a division by n: two multiplications instead of a division.
 * Lemire, Kaser, Kurz, "Faster remainder by direct computation" (2019). */
static inline uint64_t klog_reciprocal(uint32_t n) { return UINT64_MAX / n + 1; }

static inline uint32_t klog_remainder(uint32_t value, uint64_t reciprocal, uint32_t n) {
#ifdef __SIZEOF_INT128__
    return (uint32_t)((unsigned __int128)(reciprocal * value) * n >> 64);
#else
    (void)reciprocal;
    return value % n;
#endif
}

/* The absolute value of h as Java's int; -2^31 has none and stays 2^31. */
static inline uint32_t klog_absolute(uint32_t h) { return h >> 31 ? 0 - h : h; }

/* The number that a rule divides by n, of all rules in the order of klog.cluster.partitioners.RULES. */
static inline uint32_t klog_dividend(int rule, const klog_key_hashes *hashes) {
    switch (rule) {
    case 0: return hashes->murmur2 & 0x7fffffffu;
    case 1: return hashes->crc32;
    case 2: return klog_absolute(hashes->fnv1a);
    case 3: return hashes->fnv1a & 0x7fffffffu;
    case 4: return hashes->fnv1a;
    case 5: return hashes->murmur2;
    default: return klog_absolute(hashes->murmur2);
    }
}

/* A bit for each rule that puts a key into this partition of n. */
static inline unsigned klog_rules_for(const klog_key_hashes *hashes, uint32_t partition, uint64_t reciprocal, uint32_t n) {
    unsigned bits = 0;
    for (int rule = 0; rule < KLOG_RULES; rule++)
        bits |= (unsigned)(klog_remainder(klog_dividend(rule, hashes), reciprocal, n) == partition) << rule;
    return bits;
}

/* Keys as text.  Each returns how many bytes it wrote, -1 for text that is no such key. */
enum { KLOG_KEY_TEXT, KLOG_KEY_HEX, KLOG_KEY_BASE64, KLOG_KEY_INT32, KLOG_KEY_INT64 };

static inline int klog_hex_value(uint8_t c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int64_t klog_read_hex(uint8_t *w, const uint8_t *p, int64_t n) {
    if (n % 2) return -1;
    for (int64_t i = 0; i < n; i += 2) {
        int high = klog_hex_value(p[i]), low = klog_hex_value(p[i + 1]);
        if (high < 0 || low < 0) return -1;
        *w++ = (uint8_t)(high << 4 | low);
    }
    return n / 2;
}

static inline int klog_base64_value(uint8_t c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Standard alphabet, with its padding. */
static int64_t klog_read_base64(uint8_t *w, const uint8_t *p, int64_t n) {
    const uint8_t *start = w;
    if (n % 4) return -1;
    for (int64_t i = 0; i < n; i += 4) {
        int padding = i + 4 < n ? 0 : p[i + 3] != '=' ? 0 : p[i + 2] != '=' ? 1 : 2;
        uint32_t word = 0;
        for (int k = 0; k < 4; k++) {
            int value = k >= 4 - padding ? 0 : klog_base64_value(p[i + k]);
            if (value < 0) return -1;
            word = word << 6 | (uint32_t)value;
        }
        for (int k = 0; k < 3 - padding; k++) *w++ = (uint8_t)(word >> (16 - 8 * k));
    }
    return w - start;
}

/* As Kafka's IntegerSerializer (4 bytes) and LongSerializer (8 bytes) write a number: big-endian. */
static int64_t klog_read_integer(uint8_t *w, const uint8_t *p, int64_t n, int bytes) {
    int negative = n > 0 && p[0] == '-', sign = negative || (n > 0 && p[0] == '+');
    uint64_t value = 0, most = (UINT64_C(1) << (8 * bytes - 1)) - !negative;
    if (n == sign) return -1;
    for (int64_t i = sign; i < n; i++) {
        if (p[i] < '0' || p[i] > '9') return -1;
        uint64_t digit = (uint64_t)(p[i] - '0');
        if (value > (most - digit) / 10) return -1;
        value = value * 10 + digit;
    }
    if (negative) value = 0 - value;
    for (int i = 0; i < bytes; i++) w[i] = (uint8_t)(value >> (8 * (bytes - 1 - i)));
    return bytes;
}

/* The key that text in one of these forms means; *w* has room for as many bytes as the text has, and for eight. */
static inline int64_t klog_read_key(uint8_t *w, const uint8_t *p, int64_t n, int form) {
    switch (form) {
    case KLOG_KEY_HEX: return klog_read_hex(w, p, n);
    case KLOG_KEY_BASE64: return klog_read_base64(w, p, n);
    case KLOG_KEY_INT32: return klog_read_integer(w, p, n, 4);
    case KLOG_KEY_INT64: return klog_read_integer(w, p, n, 8);
    default: memcpy(w, p, (size_t)n); return n;
    }
}

#endif
