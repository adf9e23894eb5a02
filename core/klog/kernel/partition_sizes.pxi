# What the files of a partition directory occupy, and how young its segments are: a call for a directory.

cdef extern from "partition_sizes.h" nogil:
    ctypedef struct SizedFile "klog_sized_file":
        int64_t base, size, disk, modified_ms
        int32_t kind
        int64_t name
    ctypedef struct SizedDirectory "klog_sized_directory":
        SizedFile *files
        int64_t count
        char *names
    ctypedef struct SizedSegment "klog_sized_segment":
        int64_t base, log_bytes, index_bytes, log_disk, index_disk, modified_ms, largest
    int klog_list_sizes(const char *path, SizedDirectory *out)
    int64_t klog_gather_segments(SizedDirectory *d, bint walk_active, SizedSegment *out)
    void klog_free_sizes(SizedDirectory *d)
    int SIZED_OTHER "KLOG_SIZED_OTHER"
    int SIZED_DIRECTORY "KLOG_SIZED_DIRECTORY"
    int SIZED_ODD "KLOG_SIZED_ODD"


def partition_sizes(bytes path not None, bint walk_active=False):
    """Return what is in the directory *path*: segments, other files, directories, what is neither; and an errno.

    Segments are rows of seven int64: base offset, bytes of the log and of its indexes, bytes that these occupy, when
    the log was last written (ms), and the largest timestamp by the time index (-1: it has no entry, -2: not known).
    With *walk_active* that of the last segment is also that of the batches behind the last entry of its index.  Other
    files come with bytes and bytes occupied.  The errno is 0 unless the directory cannot be listed.
    """
    cdef SizedDirectory d
    cdef const char *place = path
    cdef int failed
    cdef int64_t i, count
    cdef SizedFile *one
    cdef bytes rows
    cdef SizedSegment *out
    with nogil:
        failed = klog_list_sizes(place, &d)
    try:
        if failed:
            return b"", [], [], [], failed
        rows = PyBytes_FromStringAndSize(NULL, d.count * sizeof(SizedSegment))
        out = <SizedSegment *>PyBytes_AsString(rows)
        with nogil:
            count = klog_gather_segments(&d, walk_active, out)
        others, directories, odd = [], [], []
        for i in range(d.count):
            one = &d.files[i]
            if one.kind < SIZED_OTHER:
                continue
            name = (d.names + one.name).decode("utf-8", "surrogateescape")
            if one.kind == SIZED_OTHER:
                others.append((name, one.size, one.disk))
            else:
                (directories if one.kind == SIZED_DIRECTORY else odd).append(name)
        return rows[: count * sizeof(SizedSegment)], others, directories, odd, 0
    finally:
        klog_free_sizes(&d)
