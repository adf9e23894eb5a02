# What the files of partition directories occupy, and how young their segments are: a call for many directories.

cdef extern from "partition_sizes.h" nogil:
    ctypedef struct SizedFile "klog_sized_file":
        int64_t base, size, disk, modified_ms
        int32_t kind
        int64_t name
    ctypedef struct SizedDirectory "klog_sized_directory":
        int fd
        SizedFile *files
        int64_t count
        char *names
        int is_odd
    ctypedef struct SizedSegment "klog_sized_segment":
        int64_t base, log_bytes, index_bytes, log_disk, index_disk, modified_ms, largest
    int klog_read_sizes(const char *path, bint walk_active, SizedDirectory *out, SizedSegment **rows, int64_t *count)
    void klog_free_sizes(SizedDirectory *d)
    int SIZED_OTHER "KLOG_SIZED_OTHER"
    int SIZED_DIRECTORY "KLOG_SIZED_DIRECTORY"
    int NO_ENTRY "KLOG_NO_ENTRY"
    int NOT_KNOWN "KLOG_NOT_KNOWN"

ctypedef struct SizesOfDirectory:
    const char *path
    SizedDirectory found
    SizedSegment *rows
    int64_t count
    int failed


def partition_sizes(list paths not None, bint walk_active=False):
    """Return what is in each of the directories *paths* (bytes): segments, other files, directories, oddness, an errno.

    Segments are rows of seven int64: base offset, bytes of the log and of its indexes, bytes that these occupy, when
    the log was last written (ms), and the largest timestamp by the time index (-1: it has no entry, -2: not known).
    With *walk_active* that of the last segment is also that of the batches behind the last entry of its index.  Other
    files come with bytes and bytes occupied.  A directory is odd where something is neither file nor directory, or has
    the suffix of a segment's file and no name that a broker writes.  The errno is 0 unless it cannot be listed.
    """
    cdef Py_ssize_t i, count = PyList_Size(paths)
    cdef SizesOfDirectory *all = <SizesOfDirectory *>calloc(max(count, 1), sizeof(SizesOfDirectory))
    if all == NULL:
        raise MemoryError()
    try:
        for i in range(count):
            all[i].found.fd = -1
        for i in range(count):
            all[i].path = PyBytes_AsString(paths[i])
        with nogil:
            for i in range(count):
                all[i].failed = klog_read_sizes(all[i].path, walk_active, &all[i].found, &all[i].rows, &all[i].count)
        return [_sizes(&all[i]) for i in range(count)]
    finally:
        for i in range(count):
            klog_free_sizes(&all[i].found)
            free(all[i].rows)
        free(all)


cdef tuple _sizes(const SizesOfDirectory *one):
    cdef const SizedFile *file
    cdef int64_t i
    cdef list others = [], directories = []
    if one.failed:
        return b"", [], [], False, one.failed
    for i in range(one.found.count):
        file = one.found.files + i
        if file.kind >= SIZED_OTHER:
            name = (one.found.names + file.name).decode("utf-8", "surrogateescape")
            if file.kind == SIZED_OTHER:
                others.append((name, file.size, file.disk))
            elif file.kind == SIZED_DIRECTORY:
                directories.append(name)
    rows = PyBytes_FromStringAndSize(<const char *>one.rows, one.count * <Py_ssize_t>sizeof(SizedSegment))
    return rows, others, directories, bool(one.found.is_odd), 0
