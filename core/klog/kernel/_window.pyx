# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False, binding=False, annotation_typing=False
"""The core of the compiled kernel: everything that happens once a batch or once a record.

A `Window` holds a stretch of a log.  Its methods turn bytes into batch rows (`scan`, `check`), batch rows into record
rows (`decode`) and rows into lines or columns, many at a time, without a Python object for each.  Buffers are kept and
used again: fresh memory costs seven times what copying into warm memory does.

The interpreter's lock is released for every call that has more than a little to do.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memset

from klog.kernel.chars cimport *
from klog.kernel.crc cimport *
from klog.kernel.layouts cimport *
from klog.kernel.memory cimport prefetch
from klog.kernel.numbers cimport *
from klog.kernel.python cimport *

VALUES = ("text", "base64", "hex", "redacted", "none")
"""How `json_lines` and `csv_lines` show values: the place in this list is the option's number."""

cdef object BatchFacts = None, CodecError = None


cdef int import_classes() except -1:
    """Import the classes of Python that a window needs: not with the module, for `klog --version` needs none."""
    global BatchFacts, CodecError
    if CodecError is None:
        from klog.formats import batch, codec
        BatchFacts, CodecError = batch.BatchFacts, codec.CodecError
    return 0


include "scan.pxi"
include "decode.pxi"
include "filter.pxi"
include "text.pxi"
include "json_lines.pxi"
include "columns.pxi"
include "window.pxi"


def crc32c(const unsigned char[::1] data not None, unsigned int value=0) -> int:
    """Return the CRC-32C of *data*, continuing from *value*."""
    cdef uint32_t result
    cdef Py_ssize_t n = data.shape[0]
    if n == 0:
        return value
    with nogil:
        result = klog_crc32c(value, &data[0], n)
    return result


def crc32c_portable(const unsigned char[::1] data not None, unsigned int value=0) -> int:
    """Return the same without the processor's own instruction; for tests."""
    return klog_crc32c_portable(value, &data[0], data.shape[0]) if data.shape[0] else value


def crc32(const unsigned char[::1] data not None, unsigned int value=0) -> int:
    """Return the CRC-32 (zlib's polynomial) of *data*, continuing from *value*."""
    return klog_crc32(value, &data[0], data.shape[0]) if data.shape[0] else value


def crc32c_shift(unsigned int value, unsigned long long n) -> int:
    """Return *value* moved *n* bytes on: the CRC-32C of b is that of ab ^ crc32c_shift(that of a, length of b)."""
    return klog_crc32c_shift(value, n)


def crc32_shift(unsigned int value, unsigned long long n) -> int:
    """Return the same for the CRC-32 of zlib."""
    return klog_crc32_shift(value, n)


def hardware_crc() -> bool:
    """Whether CRC-32C runs on the processor's own instruction."""
    return bool(klog_hardware)


def json_text(const unsigned char[::1] data not None, bint portable=False) -> bytes | None:
    """Return *data* (UTF-8) as it stands between the quotes of a JSON string; None if it is no UTF-8.

    *portable*: without the processor's own instructions; for tests.
    """
    cdef Py_ssize_t n = data.shape[0]
    cdef bytearray out
    cdef uint8_t *start
    cdef uint8_t *end
    if n == 0:
        return b""
    out = bytearray(json_size(&data[0], n) + 16)
    start = <uint8_t *>PyByteArray_AsString(out)
    end = json_string_portable(start, &data[0], n) if portable else json_string(start, &data[0], n)
    return None if end == NULL else bytes(memoryview(out)[1 : end - start - 1])


def is_utf8(const unsigned char[::1] data not None) -> bool:
    """Whether *data* is well-formed UTF-8."""
    return not data.shape[0] or bool(utf8_valid(&data[0], &data[0] + data.shape[0]))


def java_string(const unsigned char[::1] data not None) -> bytes:
    """Return *data* as a Java program prints it when it takes it for UTF-8 (bytes; malformed parts become U+FFFD)."""
    cdef Py_ssize_t n = data.shape[0]
    cdef bytearray out
    cdef uint8_t *w
    if n == 0:
        return b""
    out = bytearray(3 * n + 16)
    w = <uint8_t *>PyByteArray_AsString(out)
    return bytes(out[: java_text(w, &data[0], n) - w])


# ---- calls of the system that Python does not offer

cdef extern from "system.h" nogil:
    int klog_set_aside(int fd, long long start, long long size)
    void klog_begin_sync(int fd, long long start, long long size)
    long long klog_cached_pages(int fd, long long start, long long size)
    void klog_finish_sync(int fd, long long start, long long size)
    int klog_set_io_priority(int value)
    void klog_sync_file_system(int fd)
    void klog_give_memory_back()


def set_aside(int descriptor, long long start, long long size) -> bool:
    """Allocate blocks without changing the file's size (Linux fallocate); False if that is not possible."""
    cdef int done
    with nogil:
        done = klog_set_aside(descriptor, start, size)
    return done != 0


def begin_sync(int descriptor, long long start, long long size):
    """Let the system begin to write out a range of a file (Linux sync_file_range), or do nothing; wait for nothing."""
    with nogil:
        klog_begin_sync(descriptor, start, size)


def finish_sync(int descriptor, long long start, long long size):
    """Write out a range of a file and wait for it (Linux sync_file_range), or do nothing; its metadata is not synced."""
    with nogil:
        klog_finish_sync(descriptor, start, size)


def cached_pages(int descriptor, long long start, long long size) -> int:
    """Return how many pages of a range are in the page cache (Linux 6.5: cachestat); -1 if the system does not say.

    *size* 0: up to the end of the file.
    """
    cdef long long pages
    with nogil:
        pages = klog_cached_pages(descriptor, start, size)
    return pages


def set_io_priority(int value) -> int:
    """Set the I/O priority of this thread, and of those that it starts (Linux ioprio_set: the class shifted by 13 bits).

    Returns the value before, -1 if it was not set.
    """
    return klog_set_io_priority(value)


def sync_file_system(int descriptor):
    """Write out everything that the file system of an open file has not written yet (Linux syncfs), or do nothing."""
    with nogil:
        klog_sync_file_system(descriptor)


def give_memory_back():
    """Have glibc return what large requests took: else it keeps some of it for each of sixteen groups of threads."""
    klog_give_memory_back()
