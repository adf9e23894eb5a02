# Calls of the system that Python does not offer (`system.h`).

cdef extern from "system.h" nogil:
    int klog_set_aside(int fd, long long start, long long size)
    void klog_begin_sync(int fd, long long start, long long size)
    void klog_sync_file_system(int fd)
    void klog_give_memory_back()


def set_aside(int descriptor, long long start, long long size):
    """Allocate blocks without changing the file's size (Linux fallocate); False if that is not possible."""
    cdef int done
    with nogil:
        done = klog_set_aside(descriptor, start, size)
    return done != 0


def begin_sync(int descriptor, long long start, long long size):
    """Let the system begin to write out a range of a file (Linux sync_file_range), or do nothing; wait for nothing."""
    with nogil:
        klog_begin_sync(descriptor, start, size)


def sync_file_system(int descriptor):
    """Write out everything that the file system of an open file has not written yet (Linux syncfs), or do nothing."""
    with nogil:
        klog_sync_file_system(descriptor)


def give_memory_back():
    """Have glibc return what large requests took: else it keeps some of it for each of sixteen groups of threads."""
    klog_give_memory_back()
