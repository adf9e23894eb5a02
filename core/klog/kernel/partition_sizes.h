/* The files of a partition directory: one look at each, and of indexes and logs only the ends are read. */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef O_NOATIME
#define O_NOATIME 0
#endif

enum { KLOG_SIZED_LOG, KLOG_SIZED_INDEX, KLOG_SIZED_TIME, KLOG_SIZED_TXN, KLOG_SIZED_OTHER, KLOG_SIZED_DIRECTORY,
       KLOG_SIZED_ODD };

static const char *const klog_sized_suffix[4] = {".log", ".index", ".timeindex", ".txnindex"};

typedef struct { int64_t base, size, disk, modified_ms; int32_t kind; int64_t name; } klog_sized_file;

typedef struct {
    int fd;
    klog_sized_file *files;
    int64_t count, room;
    char *names;
    int64_t names_used, names_room;
    int is_odd; /* something is neither file nor directory, or is named as a broker reads but does not write */
} klog_sized_directory;

typedef struct { int64_t base, log_bytes, index_bytes, log_disk, index_disk, modified_ms, largest; } klog_sized_segment;

enum { KLOG_NO_ENTRY = -1, KLOG_NOT_KNOWN = -2, KLOG_PAGE = 4096, KLOG_MOST_READS = 64 };

/* Waits for nothing (a FIFO!), and leaves the access time alone if it may. */
static int klog_open_at(int directory, const char *name, int more) {
    int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | more;
    int fd = openat(directory, name, flags | O_NOATIME);
    return fd < 0 && errno == EPERM ? openat(directory, name, flags) : fd;
}

static int klog_is_of_segment(const char *name) {
    size_t size = strlen(name);
    int kind;
    for (kind = 0; kind < 4; kind++) {
        size_t end = strlen(klog_sized_suffix[kind]);
        if (size >= end && !strcmp(name + size - end, klog_sized_suffix[kind]))
            return 1;
    }
    return 0;
}

/* The kind of a file by the name that a broker writes: 20 digits and a suffix; KLOG_SIZED_OTHER for all others. */
static int klog_sized_kind(const char *name, int64_t *base) {
    uint64_t number = 0;
    int i, kind;
    for (i = 0; i < 20; i++) {
        if (name[i] < '0' || name[i] > '9')
            return KLOG_SIZED_OTHER;
        if (i < 19)
            number = number * 10 + (uint64_t)(name[i] - '0');
    }
    /* 20 digits: the first is 0 for whatever fits an int64 */
    if (name[0] != '0')
        return KLOG_SIZED_OTHER;
    number = number * 10 + (uint64_t)(name[19] - '0');
    if (number > INT64_MAX)
        return KLOG_SIZED_OTHER;
    *base = (int64_t)number;
    for (kind = 0; kind < 4; kind++)
        if (!strcmp(name + 20, klog_sized_suffix[kind]))
            return kind;
    return KLOG_SIZED_OTHER;
}

static int klog_keep_name(klog_sized_directory *d, const char *name, klog_sized_file *file) {
    int64_t size = (int64_t)strlen(name) + 1;
    if (d->names_used + size > d->names_room) {
        int64_t room = 2 * d->names_room + size + 256;
        char *names = realloc(d->names, (size_t)room);
        if (!names)
            return ENOMEM;
        d->names = names, d->names_room = room;
    }
    memcpy(d->names + d->names_used, name, (size_t)size);
    file->name = d->names_used;
    d->names_used += size;
    return 0;
}

static int klog_size_entry(int fd, const char *name, klog_sized_directory *d) {
    klog_sized_file file = {0};
    struct stat facts;
    if (fstatat(fd, name, &facts, AT_SYMLINK_NOFOLLOW)) {
        if (errno != ENOENT) /* else it vanished meanwhile */
            d->is_odd = 1;   /* looked at once more, and what is refused is told */
        return 0;
    }
    if (d->count == d->room) {
        int64_t room = 2 * d->room + 16;
        klog_sized_file *files = realloc(d->files, (size_t)room * sizeof(klog_sized_file));
        if (!files)
            return ENOMEM;
        d->files = files, d->room = room;
    }
    file.kind = S_ISREG(facts.st_mode) ? klog_sized_kind(name, &file.base)
                : S_ISDIR(facts.st_mode) ? KLOG_SIZED_DIRECTORY : KLOG_SIZED_ODD;
    if (file.kind == KLOG_SIZED_ODD || (file.kind == KLOG_SIZED_OTHER && klog_is_of_segment(name)))
        d->is_odd = 1;
    file.size = facts.st_size;
    file.disk = (int64_t)facts.st_blocks * 512;
    file.modified_ms = (int64_t)facts.st_mtim.tv_sec * 1000 + facts.st_mtim.tv_nsec / 1000000;
    if (file.kind >= KLOG_SIZED_OTHER && klog_keep_name(d, name, &file))
        return ENOMEM;
    d->files[d->count++] = file;
    return 0;
}

/* List a directory; 0, or an errno.  In any case klog_free_sizes has to follow. */
static int klog_list_sizes(const char *path, klog_sized_directory *d) {
    int fd, failed = 0;
    DIR *list;
    struct dirent *entry;
    memset(d, 0, sizeof *d);
    d->fd = klog_open_at(AT_FDCWD, path, O_DIRECTORY);
    if (d->fd < 0)
        return errno;
    fd = fcntl(d->fd, F_DUPFD_CLOEXEC, 0);
    list = fd < 0 ? NULL : fdopendir(fd);
    if (!list) {
        failed = errno;
        if (fd >= 0)
            close(fd);
        return failed;
    }
    while (!failed && (errno = 0, entry = readdir(list)))
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
            failed = klog_size_entry(d->fd, entry->d_name, d);
    if (!failed && errno)
        failed = errno;
    closedir(list);
    return failed;
}

static void klog_close_sizes(klog_sized_directory *d) {
    if (d->fd >= 0)
        close(d->fd);
    d->fd = -1;
}

static void klog_free_sizes(klog_sized_directory *d) {
    klog_close_sizes(d);
    free(d->files);
    free(d->names);
    memset(d, 0, sizeof *d);
    d->fd = -1;
}

static int klog_by_base(const void *left, const void *right) {
    const klog_sized_file *l = left, *r = right;
    if ((l->kind >= KLOG_SIZED_OTHER) != (r->kind >= KLOG_SIZED_OTHER))
        return l->kind >= KLOG_SIZED_OTHER ? 1 : -1;
    if (l->kind >= KLOG_SIZED_OTHER)
        return l->name < r->name ? -1 : l->name > r->name;
    if (l->base != r->base)
        return l->base < r->base ? -1 : 1;
    return l->kind - r->kind;
}

static int64_t klog_int64(const unsigned char *p) {
    uint64_t value = 0;
    int i;
    for (i = 0; i < 8; i++)
        value = value << 8 | p[i];
    return (int64_t)value;
}

static int32_t klog_int32(const unsigned char *p) {
    return (int32_t)((uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]);
}

static int klog_is_entry(const unsigned char *p, int width) {
    int i;
    for (i = 0; i < width; i++)
        if (p[i])
            return 1;
    return 0;
}

/* Read the last entry that is not zeros: 1, 0 if there is none, -1 if it cannot be read. */
static int klog_last_entry(int fd, int64_t size, int width, unsigned char *entry) {
    unsigned char page[KLOG_PAGE];
    int64_t slots = size / width, low, high, middle, got;
    if (!slots)
        return 0;
    if (slots * width > KLOG_PAGE) {
        if (pread(fd, entry, (size_t)width, (slots - 1) * width) != width)
            return -1;
        if (klog_is_entry(entry, width))
            return 1;
    }
    low = slots < KLOG_PAGE / width ? slots : KLOG_PAGE / width;
    got = pread(fd, page, (size_t)(low * width), 0);
    if (got != low * width)
        return -1;
    if (low == slots || !klog_is_entry(page + (low - 1) * width, width)) {
        while (low && !klog_is_entry(page + (low - 1) * width, width))
            low--;
        if (low)
            memcpy(entry, page + (low - 1) * width, (size_t)width);
        return low > 0;
    }
    for (high = slots - 1; low < high;) { /* the first of zeros is at or behind low */
        middle = low + (high - low) / 2;
        if (pread(fd, page, (size_t)width, middle * width) != width)
            return -1;
        if (klog_is_entry(page, width))
            low = middle + 1;
        else
            high = middle;
    }
    return pread(fd, entry, (size_t)width, (low - 1) * width) == width ? 1 : -1;
}

/* Open what was a regular file when it was listed: of anything else no read succeeds. */
static int klog_open_sized(int directory, int64_t base, int kind) {
    char name[40];
    snprintf(name, sizeof name, "%020lld%s", (long long)base, klog_sized_suffix[kind]);
    return klog_open_at(directory, name, O_NOFOLLOW);
}

static int klog_last_entry_of(int directory, int64_t base, int kind, int64_t size, int width, unsigned char *entry) {
    int fd = klog_open_sized(directory, base, kind), found;
    if (fd < 0)
        return -1;
    found = klog_last_entry(fd, size, width, entry);
    close(fd);
    return found;
}

/* The largest timestamp of the batches from *position* to the end of the log; KLOG_NOT_KNOWN where no batch is. */
static int64_t klog_largest_from(int fd, int64_t size, int64_t base, int64_t position) {
    unsigned char page[4 * KLOG_PAGE];
    int64_t largest = KLOG_NO_ENTRY, from = 0, got = 0, offset, length, timestamp, start = position;
    int reads = 0;
    while (position + 61 <= size) {
        const unsigned char *p = page + (position - from);
        if (position < from || position + 61 > from + got) {
            if (reads++ == KLOG_MOST_READS)
                return KLOG_NOT_KNOWN;
            got = pread(fd, page, sizeof page, from = position);
            if (got < 61)
                break;
            p = page;
        }
        offset = klog_int64(p), length = klog_int32(p + 8);
        if (offset < base || length < 14 || p[16] > 2)
            return position == start ? KLOG_NOT_KNOWN : largest;
        timestamp = p[16] == 2 ? klog_int64(p + 35) : p[16] == 1 ? klog_int64(p + 18) : KLOG_NO_ENTRY;
        if (position + 12 + length <= size && timestamp > largest)
            largest = timestamp;
        position += 12 + length;
    }
    return largest;
}

static int64_t klog_largest_of_active(int directory, const klog_sized_segment *last, int64_t index_size) {
    unsigned char entry[8];
    int64_t behind, position = 0;
    int fd = klog_open_sized(directory, last->base, KLOG_SIZED_LOG);
    if (fd < 0)
        return KLOG_NOT_KNOWN;
    /* without an entry in the time index the walk begins with the log */
    if (last->largest >= 0 && klog_last_entry_of(directory, last->base, KLOG_SIZED_INDEX, index_size, 8, entry) > 0)
        position = klog_int32(entry + 4);
    behind = position < 0 ? KLOG_NOT_KNOWN : klog_largest_from(fd, last->log_bytes, last->base, position);
    close(fd);
    return behind == KLOG_NOT_KNOWN || behind > last->largest ? behind : last->largest;
}

/* Put the files of segments together, base offsets ascending; return how many have a log.  Indexes without one become
   other files. */
static int64_t klog_gather_segments(klog_sized_directory *d, int walk_active, klog_sized_segment *out) {
    int64_t i = 0, count = 0, listed = d->count, index_size = 0;
    qsort(d->files, (size_t)d->count, sizeof(klog_sized_file), klog_by_base);
    while (i < listed && d->files[i].kind < KLOG_SIZED_OTHER) {
        klog_sized_file *log = d->files + i;
        klog_sized_segment row = {log->base, log->size, 0, log->disk, 0, log->modified_ms, KLOG_NOT_KNOWN};
        int64_t time_size = -1;
        int has_log = log->kind == KLOG_SIZED_LOG, found;
        unsigned char entry[12];
        for (i += has_log, index_size = 0; i < listed && d->files[i].kind < KLOG_SIZED_OTHER && d->files[i].base == row.base; i++) {
            klog_sized_file *index = d->files + i;
            if (!has_log) {
                char name[40];
                snprintf(name, sizeof name, "%020lld%s", (long long)index->base, klog_sized_suffix[index->kind]);
                if (!klog_keep_name(d, name, index))
                    index->kind = KLOG_SIZED_OTHER;
                d->is_odd = 1;
                continue;
            }
            row.index_bytes += index->size, row.index_disk += index->disk;
            if (index->kind == KLOG_SIZED_INDEX)
                index_size = index->size;
            if (index->kind == KLOG_SIZED_TIME)
                time_size = index->size;
        }
        if (!has_log)
            continue;
        if (time_size >= 0 && row.log_bytes) {
            found = klog_last_entry_of(d->fd, row.base, KLOG_SIZED_TIME, time_size, 12, entry);
            row.largest = found < 0 ? KLOG_NOT_KNOWN : found ? klog_int64(entry) : KLOG_NO_ENTRY;
        }
        out[count++] = row;
    }
    if (walk_active && count && out[count - 1].log_bytes)
        out[count - 1].largest = klog_largest_of_active(d->fd, out + count - 1, index_size);
    return count;
}

/* Look at a directory, and put its segments together; 0, or an errno.  In any case klog_free_sizes has to follow, and
   free for the rows. */
static int klog_read_sizes(const char *path, int walk_active, klog_sized_directory *d, klog_sized_segment **rows, int64_t *count) {
    int failed = klog_list_sizes(path, d);
    *rows = NULL, *count = 0;
    if (!failed && d->count) {
        *rows = malloc((size_t)d->count * sizeof(klog_sized_segment));
        if (*rows)
            *count = klog_gather_segments(d, walk_active, *rows);
        else
            failed = ENOMEM;
    }
    klog_close_sizes(d);
    return failed;
}
