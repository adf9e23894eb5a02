/* Copying and comparing memory on x86_64, in the place of musl's own, which work through a byte or a word at a time or wait
 * for `rep movs` to begin: klog copies many short keys and values.  SSE2 is in every x86_64.
 *
 * Compiled with -fno-builtin, or the compiler would see what these are, and call them. */
#include <emmintrin.h>
#include <stddef.h>
#include <stdint.h>

typedef __m128i Wide; /* 16 bytes */

static inline Wide load(const char *from) { return _mm_loadu_si128((const Wide *)from); }
static inline void store(char *to, Wide value) { _mm_storeu_si128((Wide *)to, value); }

#define COPY_ENDS(type)                                                    \
    do {                                                                   \
        type first, last;                                                  \
        __builtin_memcpy_inline(&first, from, sizeof first);               \
        __builtin_memcpy_inline(&last, from + size - sizeof last, sizeof last); \
        __builtin_memcpy_inline(to, &first, sizeof first);                 \
        __builtin_memcpy_inline(to + size - sizeof last, &last, sizeof last);   \
    } while (0)

/* At most 64 bytes: all is read before anything is written, so that the two places may overlap. */
static inline void copy_short(char *to, const char *from, size_t size) {
    if (size > 32) {
        Wide first = load(from), second = load(from + 16);
        Wide third = load(from + size - 32), last = load(from + size - 16);
        store(to, first);
        store(to + 16, second);
        store(to + size - 32, third);
        store(to + size - 16, last);
    } else if (size > 16) {
        COPY_ENDS(Wide);
    } else if (size >= 8) {
        COPY_ENDS(uint64_t);
    } else if (size >= 4) {
        COPY_ENDS(uint32_t);
    } else if (size >= 2) {
        COPY_ENDS(uint16_t);
    } else if (size) {
        *to = *from;
    }
}

/* More than 64 bytes.  The 64 at the other end are read first, for the loop may write over them. */
static inline void copy_up(char *to, const char *from, size_t size) {
    Wide ends[4];
    for (int i = 0; i < 4; i++) ends[i] = load(from + size - 64 + 16 * i);
    char *end = to + size - 64;
    for (; to < end; to += 64, from += 64) {
        Wide a = load(from), b = load(from + 16), c = load(from + 32), d = load(from + 48);
        store(to, a);
        store(to + 16, b);
        store(to + 32, c);
        store(to + 48, d);
    }
    for (int i = 0; i < 4; i++) store(end + 16 * i, ends[i]);
}

static inline void copy_down(char *to, const char *from, size_t size) {
    Wide ends[4];
    for (int i = 0; i < 4; i++) ends[i] = load(from + 16 * i);
    for (size_t left = size; left > 64; left -= 64) {
        Wide a = load(from + left - 16), b = load(from + left - 32), c = load(from + left - 48), d = load(from + left - 64);
        store(to + left - 16, a);
        store(to + left - 32, b);
        store(to + left - 48, c);
        store(to + left - 64, d);
    }
    for (int i = 0; i < 4; i++) store(to + 16 * i, ends[i]);
}

void *memmove(void *to, const void *from, size_t size) {
    if (size <= 64) copy_short(to, from, size);
    else if ((uintptr_t)to - (uintptr_t)from >= size) copy_up(to, from, size);
    else copy_down(to, from, size);
    return to;
}

void *memcpy(void *restrict to, const void *restrict from, size_t size) {
    if (size <= 64) copy_short(to, from, size);
    else copy_up(to, from, size);
    return to;
}

int memcmp(const void *left, const void *right, size_t size) {
    const unsigned char *a = left, *b = right;
    for (; size >= 16; a += 16, b += 16, size -= 16) {
        unsigned differ = 0xffff ^ (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(load((const char *)a), load((const char *)b)));
        if (differ) return a[__builtin_ctz(differ)] - b[__builtin_ctz(differ)];
    }
    for (; size; a++, b++, size--)
        if (*a != *b) return *a - *b;
    return 0;
}

void *memchr(const void *place, int wanted, size_t size) {
    const unsigned char *at = place;
    Wide every = _mm_set1_epi8((char)wanted);
    for (; size >= 16; at += 16, size -= 16) {
        unsigned found = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(load((const char *)at), every));
        if (found) return (void *)(at + __builtin_ctz(found));
    }
    for (; size; at++, size--)
        if (*at == (unsigned char)wanted) return (void *)at;
    return NULL;
}
