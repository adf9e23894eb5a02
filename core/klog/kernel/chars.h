/* Bytes to characters: numbers, JSON strings, CSV fields, base64, hex, and text as a Java program prints it.
 *
 * Every writer takes a cursor and returns the new one.  None of them looks at the end of the output: the caller has
 * asked for enough room first: at worst six bytes for one in a JSON string, three in Java's text, two in a CSV field or
 * as hex, and sixteen on top, since some write a block and keep a part of it.  klog_json_size and klog_java_size are exact.
 */
#ifndef KLOG_CHARS_H
#define KLOG_CHARS_H

#include <stdlib.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cpu.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define KLOG_SSSE3 1
#include <tmmintrin.h>
#endif

static const char klog_digits[201] =
    "0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546474849"
    "5051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899";

static const uint64_t klog_powers[20] = {
    0ull, 10ull, 100ull, 1000ull, 10000ull, 100000ull, 1000000ull, 10000000ull, 100000000ull, 1000000000ull, 10000000000ull,
    100000000000ull, 1000000000000ull, 10000000000000ull, 100000000000000ull, 1000000000000000ull, 10000000000000000ull,
    100000000000000000ull, 1000000000000000000ull, 10000000000000000000ull};

static inline int klog_count_digits(uint64_t u) {
    int guess = (64 - __builtin_clzll(u | 1)) * 1233 >> 12; /* bits times log10(2): right, or one too many */
    return guess + 1 - (u < klog_powers[guess]);
}

static inline uint8_t *klog_decimal(uint8_t *w, int64_t value) {
    uint64_t u = (uint64_t)value;
    if (value < 0) {
        *w++ = '-';
        u = 0 - u;
    }
    uint8_t *end = w + klog_count_digits(u), *at = end;
    for (; u >= 10000; u /= 10000) {
        uint32_t four = (uint32_t)(u % 10000);
        at -= 4;
        memcpy(at, klog_digits + 2 * (four / 100), 2);
        memcpy(at + 2, klog_digits + 2 * (four % 100), 2);
    }
    uint32_t rest = (uint32_t)u;
    for (; rest >= 100; rest /= 100) {
        at -= 2;
        memcpy(at, klog_digits + 2 * (rest % 100), 2);
    }
    if (rest >= 10)
        memcpy(at - 2, klog_digits + 2 * rest, 2);
    else
        at[-1] = (uint8_t)('0' + rest);
    return end;
}

/* Length of the well-formed UTF-8 sequence at p, 0 if there is none (Unicode, table 3-7). */
static inline int klog_utf8_length(const uint8_t *p, const uint8_t *end) {
    uint8_t c = *p;
    if (c < 0x80) return 1;
    if (c < 0xc2) return 0;
    if (c < 0xe0) return end - p >= 2 && (p[1] & 0xc0) == 0x80 ? 2 : 0;
    if (c < 0xf0) {
        if (end - p < 3 || (p[1] & 0xc0) != 0x80 || (p[2] & 0xc0) != 0x80) return 0;
        if ((c == 0xe0 && p[1] < 0xa0) || (c == 0xed && p[1] >= 0xa0)) return 0;
        return 3;
    }
    if (c < 0xf5) {
        if (end - p < 4 || (p[1] & 0xc0) != 0x80 || (p[2] & 0xc0) != 0x80 || (p[3] & 0xc0) != 0x80) return 0;
        if ((c == 0xf0 && p[1] < 0x90) || (c == 0xf4 && p[1] >= 0x90)) return 0;
        return 4;
    }
    return 0;
}

static inline int klog_utf8_valid(const uint8_t *p, const uint8_t *end) {
    while (p < end) {
#if defined(KLOG_SSSE3)
        if (end - p >= 64) { /* most text is ASCII, and long */
            const __m128i *x = (const __m128i *)p;
            __m128i low = _mm_or_si128(_mm_loadu_si128(x), _mm_loadu_si128(x + 1));
            __m128i high = _mm_or_si128(_mm_loadu_si128(x + 2), _mm_loadu_si128(x + 3));
            if (!_mm_movemask_epi8(_mm_or_si128(low, high))) {
                p += 64;
                continue;
            }
        }
        if (end - p >= 16 && !_mm_movemask_epi8(_mm_loadu_si128((const __m128i *)p))) {
            p += 16;
            continue;
        }
#else
        uint64_t word;
        if (end - p >= 8 && (memcpy(&word, p, 8), !(word & 0x8080808080808080ull))) {
            p += 8;
            continue;
        }
#endif
        int length = klog_utf8_length(p, end);
        if (!length) return 0;
        p += length;
    }
    return 1;
}

/* 0: as it is, 1: a backslash and a letter, 2: \u00XX */
static uint8_t klog_escape_kind[256];
static uint8_t klog_escape_letter[256];
/* For each choice of bytes out of eight, how to spread the eight so that each chosen one has a gap (0x80) before it. */
static uint8_t klog_spread[256][16];
static int klog_has_ssse3;

static __attribute__((constructor)) void klog_chars_init(void) {
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    for (int c = 0; c < 32; c++) klog_escape_kind[c] = 2;
    for (int i = 0; from[i]; i++) {
        klog_escape_kind[(uint8_t)from[i]] = 1;
        klog_escape_letter[(uint8_t)from[i]] = (uint8_t)to[i];
    }
    for (int chosen = 0; chosen < 256; chosen++) {
        int at = 0;
        for (int i = 0; i < 8; i++) {
            if (chosen >> i & 1) klog_spread[chosen][at++] = 0x80;
            klog_spread[chosen][at++] = (uint8_t)i;
        }
    }
#if defined(KLOG_SSSE3)
    klog_has_ssse3 = (klog_cpu() & KLOG_CPU_SSSE3) != 0;
#endif
}

/* Behind the bytes that a JSON string may hold as they are: at a quote, a backslash, a control character, or the end. */
static inline const uint8_t *klog_json_plain(const uint8_t *p, const uint8_t *end) {
    while (p < end && !klog_escape_kind[*p]) p++;
    return p;
}

static const char klog_hex_digits[17] = "0123456789abcdef";

/* n bytes as they stand in a JSON string; *high is set when one of them is no ASCII. */
static inline uint8_t *klog_json_bytes(uint8_t *w, const uint8_t *p, int64_t n, int *high) {
    for (int64_t i = 0; i < n; i++) {
        uint8_t c = p[i];
        *high |= c & 0x80;
        if (!klog_escape_kind[c]) {
            *w++ = c;
        } else if (klog_escape_kind[c] == 1) {
            *w++ = '\\';
            *w++ = klog_escape_letter[c];
        } else {
            memcpy(w, "\\u00", 4);
            w[4] = (uint8_t)klog_hex_digits[c >> 4];
            w[5] = (uint8_t)klog_hex_digits[c & 15];
            w += 6;
        }
    }
    return w;
}

/* The same, eight bytes at a time where none of them needs a closer look. */
static uint8_t *klog_json_words(uint8_t *w, const uint8_t *p, int64_t n, int *high) {
    const uint64_t ones = 0x0101010101010101ull;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        uint64_t quote = word ^ ones * '"', backslash = word ^ ones * '\\';
        if (((word - ones * 32) | (quote - ones) | (backslash - ones) | word) & ones * 0x80) {
            w = klog_json_bytes(w, p, 8, high);
        } else {
            memcpy(w, p, 8);
            w += 8;
        }
    }
    return klog_json_bytes(w, p, n, high);
}

#if defined(KLOG_SSSE3)
#define KLOG_SPREADING __attribute__((target("ssse3,popcnt")))

/* The first n (at most eight) bytes of x, a backslash before each that *chosen* has a bit for. */
KLOG_SPREADING static inline uint8_t *klog_json_spread(uint8_t *w, __m128i x, unsigned chosen, int n) {
    __m128i spread = _mm_loadu_si128((const __m128i *)klog_spread[chosen]);
    __m128i gaps = _mm_and_si128(_mm_cmplt_epi8(spread, _mm_setzero_si128()), _mm_set1_epi8('\\'));
    _mm_storeu_si128((__m128i *)w, _mm_or_si128(_mm_shuffle_epi8(x, spread), gaps));
    return w + n + __builtin_popcount(chosen);
}

/* Fewer than sixteen bytes, and zeros behind them; nothing beyond them is read. */
KLOG_SPREADING static inline __m128i klog_short_load(const uint8_t *p, int n) {
    uint64_t low = 0, high = 0;
    uint32_t first = 0, last = 0;
    if (n >= 8) {
        memcpy(&low, p, 8);
        memcpy(&high, p + n - 8, 8);
        high = n > 8 ? high >> 8 * (16 - n) : 0;
    } else if (n >= 4) {
        memcpy(&first, p, 4);
        memcpy(&last, p + n - 4, 4);
        low = first | (uint64_t)last << 8 * (n - 4);
    } else if (n > 0) {
        low = p[0] | (uint64_t)p[n / 2] << 8 * (n / 2) | (uint64_t)p[n - 1] << 8 * (n - 1);
    }
    return _mm_set_epi64x((int64_t)high, (int64_t)low);
}

/* The same, sixteen bytes at a time: quotes and backslashes, the usual ones to be escaped, cost little more. */
KLOG_SPREADING static uint8_t *klog_json_ssse3(uint8_t *w, const uint8_t *p, int64_t n, int *high) {
    const __m128i quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\'), control = _mm_set1_epi8(31);
    for (; n > 0; n -= 16, p += 16) {
        int here = n < 16 ? (int)n : 16;
        __m128i x = here < 16 ? klog_short_load(p, here) : _mm_loadu_si128((const __m128i *)p);
        unsigned present = (1u << here) - 1;
        unsigned chosen = (unsigned)_mm_movemask_epi8(_mm_or_si128(_mm_cmpeq_epi8(x, quote), _mm_cmpeq_epi8(x, backslash)));
        if ((unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(x, control), x)) & present) {
            w = klog_json_bytes(w, p, here, high);
            continue;
        }
        *high |= _mm_movemask_epi8(x);
        if (!chosen) {
            _mm_storeu_si128((__m128i *)w, x);
            w += here;
            continue;
        }
        w = klog_json_spread(w, x, chosen & 255, here < 8 ? here : 8);
        if (here > 8) w = klog_json_spread(w, _mm_srli_si128(x, 8), chosen >> 8, here - 8);
    }
    return w;
}
#endif

/* A JSON string with its quotes, or NULL if the bytes are not UTF-8 (then what was written is to be forgotten). */
static inline uint8_t *klog_json_string_by(uint8_t *w, const uint8_t *p, int64_t n, int with_ssse3) {
    int high = 0;
    *w++ = '"';
#if defined(KLOG_SSSE3)
    if (with_ssse3)
        w = klog_json_ssse3(w, p, n, &high);
    else
#endif
        w = klog_json_words(w, p, n, &high);
    if (high && !klog_utf8_valid(p, p + n)) return NULL;
    *w++ = '"';
    return w;
}

static inline uint8_t *klog_json_string(uint8_t *w, const uint8_t *p, int64_t n) {
    return klog_json_string_by(w, p, n, klog_has_ssse3);
}

static inline uint8_t *klog_json_string_portable(uint8_t *w, const uint8_t *p, int64_t n) {
    return klog_json_string_by(w, p, n, 0);
}

/* Bytes of the JSON string that klog_json_string would write, quotes included. */
static inline int64_t klog_json_size(const uint8_t *p, int64_t n) {
    static const uint8_t extra[3] = {0, 1, 5};
    int64_t size = n + 2;
    for (int64_t i = 0; i < n; i++) size += extra[klog_escape_kind[p[i]]];
    return size;
}

static inline uint8_t *klog_base64(uint8_t *w, const uint8_t *p, int64_t n) {
    static const char letters[65] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (; n >= 3; n -= 3, p += 3) {
        uint32_t x = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
        *w++ = (uint8_t)letters[x >> 18];
        *w++ = (uint8_t)letters[x >> 12 & 63];
        *w++ = (uint8_t)letters[x >> 6 & 63];
        *w++ = (uint8_t)letters[x & 63];
    }
    if (n > 0) {
        uint32_t x = (uint32_t)p[0] << 16 | (n == 2 ? (uint32_t)p[1] << 8 : 0);
        *w++ = (uint8_t)letters[x >> 18];
        *w++ = (uint8_t)letters[x >> 12 & 63];
        *w++ = n == 2 ? (uint8_t)letters[x >> 6 & 63] : '=';
        *w++ = '=';
    }
    return w;
}

static inline uint8_t *klog_hex(uint8_t *w, const uint8_t *p, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        *w++ = (uint8_t)klog_hex_digits[p[i] >> 4];
        *w++ = (uint8_t)klog_hex_digits[p[i] & 15];
    }
    return w;
}

/* A quoted CSV field (RFC 4180). */
static inline uint8_t *klog_csv_field(uint8_t *w, const uint8_t *p, int64_t n) {
    const uint8_t *end = p + n;
    *w++ = '"';
    while (p < end) {
        const uint8_t *quote = memchr(p, '"', (size_t)(end - p));
        size_t run = (size_t)((quote ? quote + 1 : end) - p);
        memmove(w, p, run); /* the headers' field is written over its own source */
        w += run;
        p += run;
        if (quote) *w++ = '"';
    }
    *w++ = '"';
    return w;
}

/* Bytes that Java's decoder takes for one U+FFFD where the sequence at p is malformed; *stop when it gives up on the
 * rest, as it does with a sequence that the end of the string cuts short.  Java: String.decodeUTF8_UTF16 (JDK 17). */
static inline int64_t klog_java_malformed(const uint8_t *p, const uint8_t *end, int *stop) {
    uint8_t c = p[0];
    int64_t left = end - p;
    if (c >= 0xc2 && c < 0xe0) {
        *stop = left < 2;
        return 1;
    }
    if ((c & 0xf0) == 0xe0) {
        if (left >= 2 && ((c == 0xe0 && (p[1] & 0xe0) == 0x80) || (p[1] & 0xc0) != 0x80)) return 1;
        if (left < 3) {
            *stop = 1;
            return left;
        }
        return (p[2] & 0xc0) != 0x80 ? 2 : 3; /* 3: a surrogate */
    }
    if ((c & 0xf8) == 0xf0) {
        if (c > 0xf4) return 1;
        if (left >= 2 && ((c == 0xf0 && (p[1] < 0x90 || p[1] > 0xbf)) || (c == 0xf4 && (p[1] & 0xf0) != 0x80) || (p[1] & 0xc0) != 0x80))
            return 1;
        if (left >= 3 && (p[2] & 0xc0) != 0x80) return 2;
        if (left < 4) {
            *stop = 1;
            return left;
        }
        return 3;
    }
    return 1;
}

/* Text as a Java program prints bytes that it takes for UTF-8: what is malformed becomes U+FFFD by Java's own rules. */
static inline uint8_t *klog_java_text(uint8_t *w, const uint8_t *p, int64_t n) {
    const uint8_t *end = p + n;
    if (klog_utf8_valid(p, end)) {
        if (n > 0) memcpy(w, p, (size_t)n);
        return w + n;
    }
    int stop = 0;
    while (p < end && !stop) {
        int64_t length = klog_utf8_length(p, end);
        if (length) {
            memcpy(w, p, (size_t)length);
            w += length;
        } else {
            length = klog_java_malformed(p, end, &stop);
            memcpy(w, "\xef\xbf\xbd", 3);
            w += 3;
        }
        p += length;
    }
    return w;
}

/* Bytes that klog_java_text would write. */
static inline int64_t klog_java_size(const uint8_t *p, int64_t n) {
    const uint8_t *end = p + n;
    int64_t size = 0;
    int stop = 0;
    if (klog_utf8_valid(p, end)) return n;
    while (p < end && !stop) {
        int64_t length = klog_utf8_length(p, end);
        size += length ? length : 3;
        p += length ? length : klog_java_malformed(p, end, &stop);
    }
    return size;
}

/* Keep the C library from giving the heap back after each window of decompressed batches: the pages would have to be
 * faulted in again, which costs more than decompressing into them. */
static void klog_keep_heap(void) {
#if defined(__GLIBC__)
    mallopt(M_MMAP_THRESHOLD, 4 << 20);
    mallopt(M_TRIM_THRESHOLD, 32 << 20);
    mallopt(M_TOP_PAD, 1 << 20);
#endif
}

/* A literal without its terminator; the compiler knows its length. */
static inline __attribute__((always_inline)) uint8_t *klog_put(uint8_t *w, const char *literal) {
    size_t n = strlen(literal);
    memcpy(w, literal, n);
    return w + n;
}

#endif
