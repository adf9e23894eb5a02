/* A file system for tests, on libfuse: what lies below a directory, and a journal of every call that changes something.
 *
 *     lossy MOUNTPOINT BACKING JOURNAL CUT_AT [PATH:START:SIZE]...
 *
 * Before call number CUT_AT (-1: never) the power goes: nothing more is done, and every call is answered by EIO.  The
 * bytes START to START+SIZE of a file PATH cannot be read (EIO), by whatever name: only another file in its place can.
 *
 * The kernel keeps nothing back: it writes through, and asks again for every name and attribute.  The journal has a line
 * for each call, its fields separated by tabs, and behind a `write` the bytes.  Files go by their numbers in BACKING.
 * `meta` says what a call has left of mode, owner, group and time (ns).  tests/faults/journal.py reads it.
 */
#define FUSE_USE_VERSION 34
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { MOST_NODES = 60000, MOST_BAD = 16 };

/* A file or directory that the kernel has met: it stays open (O_PATH) to the end, so that no other gets its number. */
struct node {
    int file;
    ino_t number;
};

struct bad {
    ino_t number;
    off_t start, end;
};

static struct node nodes[MOST_NODES]; /* the kernel's name of one is its place here; 1 is the root */
static fuse_ino_t node_count = 1;
static struct bad bad[MOST_BAD];
static int bad_count;
static FILE *journal;
static long cut_at, calls;
static int is_dead;

static int refuse(fuse_req_t request, int changes_something) {
    if (changes_something && cut_at >= 0 && calls++ >= cut_at)
        is_dead = 1;
    if (is_dead)
        fuse_reply_err(request, EIO);
    return is_dead;
}

/* What each call begins with: one that changes nothing, one that does. */
#define LOOK(request) if (refuse(request, 0)) return
#define STEP(request) if (refuse(request, 1)) return

/* Answer a call that has no result. */
static void reply(fuse_req_t request, int failed) {
    fuse_reply_err(request, failed ? errno : 0);
}

static long long number_of(fuse_ino_t node) {
    return nodes[node].number;
}

/* The name by which a call reaches what is open with O_PATH alone. */
static const char *way_to(fuse_ino_t node) {
    static char name[32];
    snprintf(name, sizeof name, "/proc/self/fd/%d", nodes[node].file);
    return name;
}

static void note_meta(fuse_ino_t node) {
    struct stat status;
    if (!fstat(nodes[node].file, &status))
        fprintf(journal, "meta\t%lld\t%o\t%u\t%u\t%lld\n", number_of(node), status.st_mode & 07777, status.st_uid,
                status.st_gid, status.st_mtim.tv_sec * 1000000000LL + status.st_mtim.tv_nsec);
}

/* Find or add the node of a name; 0, and errno, where there is none. */
static fuse_ino_t find(fuse_ino_t parent, const char *name, struct stat *status) {
    int file = openat(nodes[parent].file, name, O_PATH | O_NOFOLLOW);
    if (file < 0 || fstat(file, status))
        return 0;
    for (fuse_ino_t at = 1; at < node_count; at++)
        if (nodes[at].number == status->st_ino) {
            close(file);
            return at;
        }
    if (node_count == MOST_NODES) {
        close(file);
        errno = ENFILE;
        return 0;
    }
    nodes[node_count] = (struct node){file, status->st_ino};
    return node_count++;
}

static fuse_ino_t fill(fuse_ino_t parent, const char *name, struct fuse_entry_param *entry) {
    memset(entry, 0, sizeof *entry);
    entry->ino = find(parent, name, &entry->attr);
    return entry->ino;
}

/* calls that change nothing */

static void look_up(fuse_req_t request, fuse_ino_t parent, const char *name) {
    struct fuse_entry_param entry;
    LOOK(request);
    if (fill(parent, name, &entry))
        fuse_reply_entry(request, &entry);
    else
        reply(request, 1);
}

static void get_attributes(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *info) {
    (void)info;
    struct stat status;
    LOOK(request);
    if (fstat(nodes[node].file, &status))
        reply(request, 1);
    else
        fuse_reply_attr(request, &status, 0);
}

static void open_directory(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *info) {
    LOOK(request);
    DIR *directory = opendir(way_to(node));
    info->fh = (uint64_t)directory;
    if (directory)
        fuse_reply_open(request, info);
    else
        fuse_reply_err(request, errno);
}

static void read_directory(fuse_req_t request, fuse_ino_t node, size_t size, off_t from, struct fuse_file_info *info) {
    (void)node;
    DIR *directory = (DIR *)info->fh;
    LOOK(request);
    char *names = malloc(size);
    size_t used = 0;
    struct dirent *entry;
    seekdir(directory, from);
    while (names && (entry = readdir(directory))) {
        struct stat status = {.st_ino = entry->d_ino, .st_mode = DTTOIF(entry->d_type)};
        size_t more = fuse_add_direntry(request, names + used, size - used, entry->d_name, &status, entry->d_off);
        if (used + more > size)
            break;
        used += more;
    }
    fuse_reply_buf(request, names, used);
    free(names);
}

static void release_directory(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *info) {
    (void)node;
    closedir((DIR *)info->fh);
    fuse_reply_err(request, 0);
}

static void open_file(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *info) {
    LOOK(request);
    /* The kernel says where it appends, and has seen to links. */
    int file = open(way_to(node), info->flags & ~(O_APPEND | O_CREAT | O_EXCL | O_TRUNC | O_NOFOLLOW));
    info->fh = file;
    if (file < 0)
        fuse_reply_err(request, errno);
    else
        fuse_reply_open(request, info);
}

static void read_file(fuse_req_t request, fuse_ino_t node, size_t size, off_t start, struct fuse_file_info *info) {
    LOOK(request);
    for (struct bad *one = bad; one < bad + bad_count; one++)
        if (one->number == nodes[node].number && one->start < start + (off_t)size && one->end > start) {
            fuse_reply_err(request, EIO);
            return;
        }
    char *data = malloc(size);
    ssize_t count = data ? pread(info->fh, data, size, start) : -1;
    if (count < 0)
        fuse_reply_err(request, errno);
    else
        fuse_reply_buf(request, data, count);
    free(data);
}

static void release_file(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *info) {
    (void)node;
    close(info->fh);
    fuse_reply_err(request, 0);
}

static void facts_of_file_system(fuse_req_t request, fuse_ino_t node) {
    struct statvfs facts;
    LOOK(request);
    if (fstatvfs(nodes[node].file, &facts))
        fuse_reply_err(request, errno);
    else
        fuse_reply_statfs(request, &facts);
}

/* calls that change something */

/* Take note of a new name, and fill in *entry*; whether that is possible. */
static int note_new(fuse_req_t request, const char *what, fuse_ino_t parent, const char *name,
                    struct fuse_entry_param *entry) {
    if (!fill(parent, name, entry)) {
        fuse_reply_err(request, errno);
        return 0;
    }
    fprintf(journal, "%s\t%lld\t%s\t%lld\n", what, number_of(parent), name, number_of(entry->ino));
    note_meta(entry->ino);
    note_meta(parent);
    return 1;
}

static void make_directory(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode) {
    struct fuse_entry_param entry;
    STEP(request);
    if (mkdirat(nodes[parent].file, name, mode))
        fuse_reply_err(request, errno);
    else if (note_new(request, "mkdir", parent, name, &entry))
        fuse_reply_entry(request, &entry);
}

static void create_file(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode,
                        struct fuse_file_info *info) {
    struct fuse_entry_param entry;
    STEP(request);
    int file = openat(nodes[parent].file, name, (info->flags & ~O_APPEND) | O_CREAT | O_EXCL, mode);
    info->fh = file;
    if (file < 0)
        fuse_reply_err(request, errno);
    else if (note_new(request, "create", parent, name, &entry))
        fuse_reply_create(request, &entry, info);
}

static void add_name(fuse_req_t request, fuse_ino_t node, fuse_ino_t parent, const char *name) {
    struct fuse_entry_param entry;
    STEP(request);
    if (linkat(AT_FDCWD, way_to(node), nodes[parent].file, name, AT_SYMLINK_FOLLOW))
        fuse_reply_err(request, errno);
    else if (note_new(request, "link", parent, name, &entry))
        fuse_reply_entry(request, &entry);
}

static void remove_name(fuse_req_t request, const char *what, fuse_ino_t parent, const char *name, int flags) {
    struct stat status;
    STEP(request);
    int failed = !find(parent, name, &status) || unlinkat(nodes[parent].file, name, flags);
    if (!failed) {
        fprintf(journal, "%s\t%lld\t%s\n", what, number_of(parent), name);
        note_meta(parent);
    }
    reply(request, failed);
}

static void unlink_file(fuse_req_t request, fuse_ino_t parent, const char *name) {
    remove_name(request, "unlink", parent, name, 0);
}

static void remove_directory(fuse_req_t request, fuse_ino_t parent, const char *name) {
    remove_name(request, "rmdir", parent, name, AT_REMOVEDIR);
}

static void rename_to(fuse_req_t request, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
                      const char *new_name, unsigned int flags) {
    struct stat status;
    STEP(request);
    if (flags) {
        fuse_reply_err(request, EINVAL);
        return;
    }
    find(new_parent, new_name, &status);
    int failed = renameat(nodes[parent].file, name, nodes[new_parent].file, new_name);
    if (!failed) {
        fprintf(journal, "rename\t%lld\t%s\t%lld\t%s\n", number_of(parent), name, number_of(new_parent), new_name);
        note_meta(parent);
        note_meta(new_parent);
    }
    reply(request, failed);
}

static int set_times(fuse_ino_t node, const struct stat *wanted, int which) {
    struct timespec times[2] = {wanted->st_atim, wanted->st_mtim};
    if (!(which & FUSE_SET_ATTR_ATIME))
        times[0].tv_nsec = UTIME_OMIT;
    if (!(which & FUSE_SET_ATTR_MTIME))
        times[1].tv_nsec = UTIME_OMIT;
    return utimensat(AT_FDCWD, way_to(node), times, 0);
}

static void set_attributes(fuse_req_t request, fuse_ino_t node, struct stat *wanted, int which,
                           struct fuse_file_info *info) {
    (void)info;
    struct stat status;
    STEP(request);
    uid_t owner = which & FUSE_SET_ATTR_UID ? wanted->st_uid : (uid_t)-1;
    gid_t group = which & FUSE_SET_ATTR_GID ? wanted->st_gid : (gid_t)-1;
    int failed = (which & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID) &&
                  fchownat(nodes[node].file, "", owner, group, AT_EMPTY_PATH)) ||
                 (which & FUSE_SET_ATTR_MODE && chmod(way_to(node), wanted->st_mode)) ||
                 (which & FUSE_SET_ATTR_SIZE && truncate(way_to(node), wanted->st_size)) ||
                 (which & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME) && set_times(node, wanted, which)) ||
                 fstat(nodes[node].file, &status);
    if (failed) {
        reply(request, 1);
        return;
    }
    fprintf(journal, "attributes\t%lld", number_of(node));
    if (which & FUSE_SET_ATTR_SIZE)
        fprintf(journal, "\t%lld", (long long)wanted->st_size);
    putc('\n', journal);
    note_meta(node);
    fuse_reply_attr(request, &status, 0);
}

static void write_file(fuse_req_t request, fuse_ino_t node, const char *data, size_t size, off_t start,
                       struct fuse_file_info *info) {
    STEP(request);
    ssize_t count = pwrite(info->fh, data, size, start);
    if (count < 0) {
        fuse_reply_err(request, errno);
        return;
    }
    fprintf(journal, "write\t%lld\t%lld\t%zd\n", number_of(node), (long long)start, count);
    fwrite(data, 1, count, journal);
    note_meta(node);
    fuse_reply_write(request, count);
}

static void sync_node(fuse_req_t request, fuse_ino_t node, int only_data, struct fuse_file_info *info) {
    (void)only_data, (void)info;
    STEP(request);
    fprintf(journal, "fsync\t%lld\n", number_of(node));
    fuse_reply_err(request, 0);
}

static void begin(void *nothing, struct fuse_conn_info *connection) {
    (void)nothing;
    /* What a program writes comes here at once, and cutting a file when it is opened is a call of its own. */
    connection->want &= ~(FUSE_CAP_WRITEBACK_CACHE | FUSE_CAP_ATOMIC_O_TRUNC);
}

static const struct fuse_lowlevel_ops operations = {
    .init = begin, .lookup = look_up, .getattr = get_attributes, .opendir = open_directory,
    .readdir = read_directory, .releasedir = release_directory, .open = open_file, .read = read_file,
    .release = release_file, .statfs = facts_of_file_system, .mkdir = make_directory, .create = create_file,
    .link = add_name, .unlink = unlink_file, .rmdir = remove_directory, .rename = rename_to,
    .setattr = set_attributes, .write = write_file, .fsync = sync_node, .fsyncdir = sync_node,
};

/* Take note of an unreadable range, PATH:START:SIZE. */
static int add_bad(char *given) {
    long long start, size;
    struct stat status;
    char *end = strchr(given, ':');
    if (!end || sscanf(end, ":%lld:%lld", &start, &size) != 2 || bad_count == MOST_BAD)
        return -1;
    *end = 0;
    if (!find(1, given, &status))
        return -1;
    bad[bad_count++] = (struct bad){status.st_ino, start, start + size};
    return 0;
}

static int prepare(int count, char **words) {
    struct rlimit files;
    struct stat status;
    if (!getrlimit(RLIMIT_NOFILE, &files)) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    umask(0);
    nodes[0].file = AT_FDCWD;
    journal = fopen(words[3], "w");
    cut_at = atol(words[4]);
    int failed = !journal || find(0, words[2], &status) != 1;
    for (int at = 5; at < count && !failed; at++)
        failed = add_bad(words[at]);
    return failed;
}

int main(int count, char **words) {
    char *given[] = {words[0], "-o", "fsname=lossy", NULL};
    struct fuse_args arguments = FUSE_ARGS_INIT(3, given);
    if (count < 5 || prepare(count, words)) {
        fputs("usage: lossy MOUNTPOINT BACKING JOURNAL CUT_AT [PATH:START:SIZE]...\n", stderr);
        return 2;
    }
    struct fuse_session *session = fuse_session_new(&arguments, &operations, sizeof operations, NULL);
    if (!session || fuse_set_signal_handlers(session) || fuse_session_mount(session, words[1]))
        return 1;
    fuse_session_loop(session);
    fuse_session_unmount(session);
    return fclose(journal) ? 1 : 0;
}
