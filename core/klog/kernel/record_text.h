/* Records from JSON lines, as `klog dump` prints them: decoded in place, for nothing grows by that.
 *
 * A line ends with a newline, which no token contains: so no function goes beyond it; words of bytes that are compared or
 * converted at once may.  Each returns where it stopped
 * reading, or NULL, and then `error` and `stopped` say why and where.
 */
#ifndef KLOG_RECORD_TEXT_H
#define KLOG_RECORD_TEXT_H

#include <stdint.h>
#include <string.h>

#include "partitions.h"
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum {
    KLOG_NO_ERROR = 0,
    KLOG_BAD_SYNTAX = 1,     /* not JSON, or not CSV */
    KLOG_WRONG_TYPE = 2,     /* a field has a value of another type, or a number out of its range */
    KLOG_BAD_BASE64 = 3,
    KLOG_BAD_UTF8 = 4,
    KLOG_DAMAGE = 5,         /* the line is about damage, not a record */
    KLOG_WRONG_COLUMNS = 6,  /* a CSV line has more or fewer fields than the header names */
    KLOG_UNDECIDED = 7       /* a record of a transaction that nothing ends */
};

enum { KLOG_NO_CONTROL = 255 };
#define KLOG_MISSING INT64_MIN

typedef struct {
    int64_t line, offset, timestamp, producer_id, position, batch;
    uint8_t *key, *value, *headers, *topic, *stopped;
    int32_t key_length, value_length;                    /* -1: null, -2: missing */
    int32_t headers_length, headers_count, topic_length; /* headers: as a record has them; topic -1: missing */
    int32_t partition, leader_epoch, producer_epoch, sequence, coordinator_epoch;
    int32_t error;
    uint8_t transactional, append_time, control;         /* control: 0 ABORT, 1 COMMIT */
    int8_t field;                                        /* in which there is an error, -1: none that is known */
} klog_record;

static inline void klog_record_clear(klog_record *r, int64_t line) {
    memset(r, 0, sizeof *r);
    r->line = line;
    r->offset = r->position = r->batch = -1;
    r->timestamp = KLOG_MISSING;
    r->producer_id = -1;
    r->key_length = r->value_length = -2;
    r->topic_length = r->partition = r->leader_epoch = r->producer_epoch = r->sequence = -1;
    r->control = KLOG_NO_CONTROL;
    r->field = -1;
}

static inline uint8_t *klog_stop(klog_record *r, uint8_t *p, int error) {
    if (!r->error) r->error = error, r->stopped = p;
    return NULL;
}

static inline uint8_t *klog_blank(uint8_t *p) {
    while (*p <= ' ' && (*p == ' ' || *p == '\t' || *p == '\r')) p++;
    return p;
}

static inline int32_t klog_hex4(const uint8_t *p) {
    int32_t value = 0;
    for (int i = 0; i < 4; i++) {
        int digit = klog_hex_value(p[i]);
        if (digit < 0) return -1;
        value = value << 4 | digit;
    }
    return value;
}

static inline uint8_t *klog_put_utf8(uint8_t *w, uint32_t c) {
    if (c < 0x80) {
        *w++ = (uint8_t)c;
        return w;
    }
    if (c < 0x800) {
        *w++ = (uint8_t)(0xC0 | c >> 6);
    } else {
        if (c < 0x10000) {
            *w++ = (uint8_t)(0xE0 | c >> 12);
        } else {
            *w++ = (uint8_t)(0xF0 | c >> 18);
            *w++ = (uint8_t)(0x80 | (c >> 12 & 63));
        }
        *w++ = (uint8_t)(0x80 | (c >> 6 & 63));
    }
    *w++ = (uint8_t)(0x80 | (c & 63));
    return w;
}

/* The place of the next quote, backslash or control character. */
static inline uint8_t *klog_plain_end(uint8_t *p, const uint8_t *end) {
#if defined(__SSE2__)
    const __m128i quote16 = _mm_set1_epi8('"'), slash16 = _mm_set1_epi8('\\'), last16 = _mm_set1_epi8(0x1F);
    while (end - p >= 16) {
        __m128i x = _mm_loadu_si128((const __m128i *)p);
        __m128i found = _mm_or_si128(_mm_cmpeq_epi8(x, quote16), _mm_cmpeq_epi8(x, slash16));
        found = _mm_or_si128(found, _mm_cmpeq_epi8(_mm_min_epu8(x, last16), x));
        int bits = _mm_movemask_epi8(found);
        if (bits) return p + __builtin_ctz((unsigned)bits);
        p += 16;
    }
#endif
    while (end - p >= 8) {
        uint64_t x;
        memcpy(&x, p, 8);
        const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
        uint64_t quote = x ^ ones * '"', slash = x ^ ones * '\\';
        if ((((quote - ones) & ~quote) | ((slash - ones) & ~slash) | ((x - ones * 0x20) & ~x)) & tops) break;
        p += 8;
    }
    while (*p != '"' && *p != '\\' && *p >= 0x20) p++;
    return p;
}

/* Decode the rest of the string that begins at start, from its first byte at p that is not plain. */
static uint8_t *klog_rest_of_string(klog_record *r, uint8_t *start, uint8_t *p, const uint8_t *end, int32_t *length) {
    uint8_t *w = p;
    while (*p != '"') {
        if (*p < 0x20) return klog_stop(r, p, KLOG_BAD_SYNTAX);
        if (*p != '\\') {
            uint8_t *stop = klog_plain_end(p, end);
            memmove(w, p, (size_t)(stop - p));
            w += stop - p;
            p = stop;
            continue;
        }
        static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
        const char *found = p[1] ? strchr(from, p[1]) : NULL;
        if (found) {
            *w++ = (uint8_t)to[found - from];
            p += 2;
            continue;
        }
        int32_t c = p[1] == 'u' ? klog_hex4(p + 2) : -1, low;
        if (c < 0) return klog_stop(r, p, KLOG_BAD_SYNTAX);
        uint8_t *behind = p + 6;
        if (c >= 0xD800 && c < 0xE000) {
            low = c < 0xDC00 && behind[0] == '\\' && behind[1] == 'u' ? klog_hex4(behind + 2) : -1;
            if (low < 0xDC00 || low >= 0xE000) return klog_stop(r, p, KLOG_BAD_UTF8);
            c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
            behind += 6;
        }
        w = klog_put_utf8(w, (uint32_t)c);
        p = behind;
    }
    if (w - start > INT32_MAX) return klog_stop(r, p, KLOG_WRONG_TYPE);
    *length = (int32_t)(w - start);
    return p + 1;
}

/* Decode the string whose first letter is at p; *length: of what is left at p. */
static inline uint8_t *klog_string(klog_record *r, uint8_t *p, const uint8_t *end, int32_t *length) {
    uint8_t *stop = klog_plain_end(p, end);
    if (*stop != '"' || stop - p > INT32_MAX) return klog_rest_of_string(r, p, stop, end, length);
    *length = (int32_t)(stop - p);
    return stop + 1;
}

/* Take the digits at p, eight at most, into *number; return how many.  Eight bytes at p can be read. */
static inline int klog_take_digits(const uint8_t *p, uint64_t *number) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    const uint64_t high = 0xF0F0F0F0F0F0F0F0u, zeros = 0x3030303030303030u;
    uint64_t x, other;
    memcpy(&x, p, 8);
    other = ((x & high) ^ zeros) | (((x + 0x0606060606060606u) & high) ^ zeros);
    int count = other ? __builtin_ctzll(other) >> 3 : 8;
    if (!count) return 0;
    x <<= 64 - 8 * count; /* zeros come before them, and what follows goes: then each step adds up neighbours */
    x = (x & 0x0F0F0F0F0F0F0F0Fu) * 2561 >> 8;
    x = (x & 0x00FF00FF00FF00FFu) * 6553601 >> 16;
    *number = *number * klog_powers[count] + ((x & 0x0000FFFF0000FFFFu) * 42949672960001 >> 32);
#else
    int count = 0;
    for (; count < 8 && (uint8_t)(p[count] - '0') < 10; count++) *number = *number * 10 + (uint64_t)(p[count] - '0');
#endif
    return count;
}

/* A whole number.  Eight bytes behind it can be read. */
static inline uint8_t *klog_whole(klog_record *r, uint8_t *p, int64_t *value) {
    uint8_t *start = p;
    int negative = *p == '-', count;
    uint64_t number = 0;
    p += negative;
    do {
        count = klog_take_digits(p, &number);
        p += count;
    } while (count == 8);
    /* No number of nineteen digits is so large that it wraps. */
    if (p - start > 19 + negative) return klog_stop(r, start, KLOG_WRONG_TYPE);
    if (p == start + negative || *p == '.' || (*p | 0x20) == 'e') return klog_stop(r, start, KLOG_WRONG_TYPE);
    if (number > (uint64_t)INT64_MAX) return klog_stop(r, start, KLOG_WRONG_TYPE);
    *value = negative ? -(int64_t)number : (int64_t)number;
    return p;
}

static inline int klog_word(const uint8_t *p, const char *word, size_t n) { return !memcmp(p, word, n); }

/* Pass over a value of any type, which is not wanted. */
static uint8_t *klog_pass(klog_record *r, uint8_t *p, const uint8_t *end) {
    int depth = 0;
    do {
        p = klog_blank(p);
        if (*p == '"') {
            int32_t length;
            p = klog_string(r, p + 1, end, &length);
            if (!p) return NULL;
        } else if (*p == '{' || *p == '[') {
            depth++, p++;
        } else if (*p == '}' || *p == ']') {
            if (!depth--) return klog_stop(r, p, KLOG_BAD_SYNTAX);
            p++;
        } else if (depth && (*p == ',' || *p == ':')) {
            p++;
        } else {
            uint8_t *start = p;
            while (*p > ' ' && !strchr(",:{}[]\"", *p)) p++;
            if (p == start) return klog_stop(r, p, KLOG_BAD_SYNTAX);
        }
    } while (depth);
    return p;
}

/* A string, null (length -1), or {"base64":"…"}: a header's key or value. */
static uint8_t *klog_text_or_base64(klog_record *r, uint8_t *p, const uint8_t *end, uint8_t **start, int32_t *length) {
    p = klog_blank(p);
    if (*p == '"') {
        *start = p + 1;
        return klog_string(r, p + 1, end, length);
    }
    if (*p == 'n' && klog_word(p, "null", 4)) {
        *start = p, *length = -1;
        return p + 4;
    }
    if (*p != '{') return klog_stop(r, p, KLOG_WRONG_TYPE);
    p = klog_blank(p + 1);
    if (!klog_word(p, "\"base64\"", 8)) return klog_stop(r, p, KLOG_WRONG_TYPE);
    p = klog_blank(p + 8);
    if (*p != ':') return klog_stop(r, p, KLOG_BAD_SYNTAX);
    p = klog_blank(p + 1);
    if (*p != '"') return klog_stop(r, p, KLOG_WRONG_TYPE);
    *start = p + 1;
    p = klog_string(r, p + 1, end, length);
    if (!p) return NULL;
    *length = (int32_t)klog_read_base64(*start, *start, *length);
    if (*length < 0) return klog_stop(r, *start, KLOG_BAD_BASE64);
    p = klog_blank(p);
    return *p == '}' ? p + 1 : klog_stop(r, p, KLOG_BAD_SYNTAX);
}

static inline uint8_t *klog_put_length(uint8_t *w, int32_t length) {
    uint32_t u = ((uint32_t)length << 1) ^ (uint32_t)(length >> 31);
    for (; u >= 0x80; u >>= 7) *w++ = (uint8_t)(u | 0x80);
    *w++ = (uint8_t)u;
    return w;
}

static inline int klog_length_bytes(int32_t length) {
    uint32_t u = ((uint32_t)length << 1) ^ (uint32_t)(length >> 31);
    return (38 - __builtin_clz(u | 1)) / 7;
}

/* Headers, [["key","value"],…], become what a record has: lengths and bytes, in the room of their own text. */
static uint8_t *klog_headers(klog_record *r, uint8_t *p, const uint8_t *end) {
    uint8_t *w = p;
    r->headers = p;
    r->headers_count = 0;
    if (*p != '[') return klog_stop(r, p, KLOG_WRONG_TYPE);
    p = klog_blank(p + 1);
    while (*p != ']') {
        if (r->headers_count) {
            if (*p != ',') return klog_stop(r, p, KLOG_BAD_SYNTAX);
            p = klog_blank(p + 1);
        }
        if (*p != '[') return klog_stop(r, p, KLOG_WRONG_TYPE);
        p++;
        for (int part = 0; part < 2; part++) {
            uint8_t *start;
            int32_t length;
            p = klog_text_or_base64(r, p, end, &start, &length);
            if (!p) return NULL;
            if (!part && length < 0) return klog_stop(r, start, KLOG_WRONG_TYPE);
            /* The input had its quotes and a comma too; only lengths of a megabyte are this close. */
            if (w + klog_length_bytes(length) + (length > 0 ? length : 0) > p) return klog_stop(r, start, KLOG_WRONG_TYPE);
            if (length > 0) memmove(w + klog_length_bytes(length), start, (size_t)length);
            w = klog_put_length(w, length) + (length > 0 ? length : 0);
            p = klog_blank(p);
            if (*p != (part ? ']' : ',')) return klog_stop(r, p, KLOG_BAD_SYNTAX);
            p = klog_blank(p + 1);
        }
        r->headers_count++;
    }
    r->headers_length = (int32_t)(w - r->headers);
    return p + 1;
}
#endif
