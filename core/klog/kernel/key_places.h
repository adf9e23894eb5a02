/* A table of digests in lines of the processor's cache: which keys lie in which partitions. */
#ifndef KLOG_KEY_PLACES_H
#define KLOG_KEY_PLACES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { KLOG_LINE_PLACES = 5 };

/* Five places.  A line is filled from its start; one that is not full ends each search. */
typedef struct {
    uint64_t digests[KLOG_LINE_PLACES];
    uint16_t partitions[KLOG_LINE_PLACES];
    uint16_t bits[KLOG_LINE_PLACES];
    uint32_t count;
} klog_place_line;

typedef struct {
    klog_place_line *lines;
    uint32_t lines_count, used;
} klog_place_shard;

/* Copy a key, short as a rule, without the call of a function. */
static inline void klog_copy_key(uint8_t *to, const uint8_t *key, size_t n) {
    if (n < 8) {
        while (n--) *to++ = *key++;
        return;
    }
    for (size_t i = 0; i < n - 8; i += 8) memcpy(to + i, key + i, 8);
    memcpy(to + n - 8, key + n - 8, 8);
}

/* A place: its line, and which one it is there; no line where there is none. */
typedef struct {
    klog_place_line *line;
    int at;
} klog_place;

static inline klog_place_line *klog_line_of(const klog_place_shard *shard, uint64_t digest) {
    return shard->lines + ((uint64_t)(uint32_t)(digest >> 16) * shard->lines_count >> 32);
}

static inline klog_place_line *klog_next_line(const klog_place_shard *shard, klog_place_line *line) {
    return ++line < shard->lines + shard->lines_count ? line : shard->lines;
}

/* The place with this digest, of those whose bit *flag* is *set*.  All five are compared, since a branch for each would
 * be mispredicted. */
static inline klog_place klog_find_place(const klog_place_shard *shard, uint64_t digest, unsigned flag, int set) {
    klog_place found = {0, 0};
    if (!shard->lines) return found;
    for (klog_place_line *line = klog_line_of(shard, digest);; line = klog_next_line(shard, line)) {
        unsigned equal = 0;
        for (int i = 0; i < KLOG_LINE_PLACES; i++) equal |= (unsigned)(line->digests[i] == digest) << i;
        for (equal &= (1u << line->count) - 1; equal; equal &= equal - 1) {
            int at = __builtin_ctz(equal);
            if (!(line->bits[at] & flag) == !set) {
                found.line = line, found.at = at;
                return found;
            }
        }
        if (line->count < KLOG_LINE_PLACES) return found;
    }
}

static inline klog_place klog_free_place(const klog_place_shard *shard, uint64_t digest) {
    klog_place_line *line = klog_line_of(shard, digest);
    while (line->count == KLOG_LINE_PLACES) line = klog_next_line(shard, line);
    klog_place found = {line, (int)line->count++};
    line->digests[found.at] = digest;
    return found;
}

/* Lines for a shard, from the system, so that those of a smaller shard go back to it whole. */
static klog_place_line *klog_get_lines(uint32_t count) {
    void *pages = mmap(NULL, (size_t)count * sizeof(klog_place_line), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return pages == MAP_FAILED ? NULL : (klog_place_line *)pages;
}

static void klog_free_shard(const klog_place_shard *shard) {
    if (shard->lines) munmap(shard->lines, (size_t)shard->lines_count * sizeof(klog_place_line));
}

/* Make a shard a sixth larger; 0 when there is no memory.  *first* differs from shard to shard: they are not all to
 * be emptiest at the same time. */
static int klog_grow_shard(klog_place_shard *shard, uint32_t first) {
    uint32_t more = shard->lines_count ? shard->lines_count / 6 + 1 : first;
    klog_place_shard larger = {0, shard->lines_count + more, shard->used};
    larger.lines = klog_get_lines(larger.lines_count);
    if (!larger.lines) return 0;
    for (const klog_place_line *line = shard->lines; line < shard->lines + shard->lines_count; line++)
        for (uint32_t i = 0; i < line->count; i++) {
            klog_place to = klog_free_place(&larger, line->digests[i]);
            to.line->partitions[to.at] = line->partitions[i];
            to.line->bits[to.at] = line->bits[i];
        }
    klog_free_shard(shard);
    *shard = larger;
    return 1;
}

/* Room for a new place with this digest; no line when there is no memory.  Fourteen places in fifteen are used at most. */
static inline klog_place klog_add_place(klog_place_shard *shard, uint64_t digest, uint32_t first) {
    klog_place none = {0, 0};
    if (15 * ((uint64_t)shard->used + 1) > 14 * KLOG_LINE_PLACES * (uint64_t)shard->lines_count && !klog_grow_shard(shard, first))
        return none;
    shard->used++;
    return klog_free_place(shard, digest);
}

#endif
