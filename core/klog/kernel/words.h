/* Words of memory, the first byte the lowest. */
#ifndef KLOG_WORDS_H
#define KLOG_WORDS_H

#include <stdint.h>
#include <string.h>

static inline uint64_t klog_le64(const uint8_t *p) {
    uint64_t word;
    memcpy(&word, p, 8);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

static inline uint32_t klog_le32(const uint8_t *p) {
    uint32_t word;
    memcpy(&word, p, 4);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap32(word);
#endif
    return word;
}

#endif
