/* A table of digests in lines of the processor's cache: which keys lie in which partitions. */
#ifndef KLOG_KEY_PLACES_H
#define KLOG_KEY_PLACES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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

/* Make a shard a fifth larger; 0 when there is no memory. */
static int klog_grow_shard(klog_place_shard *shard) {
    klog_place_shard larger = {0, shard->lines_count + shard->lines_count / 5 + 1, shard->used};
    void *memory;
    if (posix_memalign(&memory, 64, (size_t)larger.lines_count * sizeof(klog_place_line))) return 0;
    memset(memory, 0, (size_t)larger.lines_count * sizeof(klog_place_line));
    larger.lines = (klog_place_line *)memory;
    for (const klog_place_line *line = shard->lines; line < shard->lines + shard->lines_count; line++)
        for (uint32_t i = 0; i < line->count; i++) {
            klog_place to = klog_free_place(&larger, line->digests[i]);
            to.line->partitions[to.at] = line->partitions[i];
            to.line->bits[to.at] = line->bits[i];
        }
    free(shard->lines);
    *shard = larger;
    return 1;
}

/* Room for a new place with this digest; no line when there is no memory.  Nine places in ten are used at most. */
static inline klog_place klog_add_place(klog_place_shard *shard, uint64_t digest) {
    klog_place none = {0, 0};
    if (10 * ((uint64_t)shard->used + 1) > 9 * KLOG_LINE_PLACES * (uint64_t)shard->lines_count && !klog_grow_shard(shard)) return none;
    shard->used++;
    return klog_free_place(shard, digest);
}

#endif
