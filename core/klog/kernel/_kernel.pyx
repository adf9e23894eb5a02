# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False, binding=False
"""The compiled kernel: everything that happens once a batch or once a record.

A `Window` holds a stretch of a log.  Its methods turn bytes into batch rows (`scan`, `check`), batch rows into record
rows (`decode`) and rows into lines or columns, many at a time, without a Python object for each.  Buffers are kept and
used again: fresh memory costs seven times what copying into warm memory does.

The interpreter's lock is released for every call that has more than a little to do.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_Resize
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

from os import urandom

# Functions, for the limited API has no macros that look into an object.  Declared without the exception that they raise
# for an object of another class: it was looked at before.
cdef extern from "Python.h":
    char *PyBytes_AsString(object content)
    Py_ssize_t PyBytes_Size(object content)
    char *PyByteArray_AsString(object content)
    Py_ssize_t PyList_Size(object items)

cdef extern from "crc.h" nogil:
    int klog_hardware
    void klog_crc_init()
    uint32_t klog_le32(const uint8_t *p)
    uint64_t klog_le64(const uint8_t *p)
    uint32_t klog_crc32c(uint32_t crc, const uint8_t *p, size_t n)
    uint32_t klog_crc32c_portable(uint32_t crc, const uint8_t *p, size_t n)
    uint32_t klog_crc32(uint32_t crc, const uint8_t *p, size_t n)
    uint32_t klog_crc32c_shift(uint32_t crc, uint64_t n)
    uint32_t klog_crc32_shift(uint32_t crc, uint64_t n)
    uint32_t klog_crc32c_share(uint64_t word, uint32_t n)
    void klog_moves_init()
    void prefetch "__builtin_prefetch"(const void *p)
    void prefetch_to_write "__builtin_prefetch"(const void *p, int write)
    uint32_t turned32 "__builtin_bswap32"(uint32_t value)
    uint64_t turned64 "__builtin_bswap64"(uint64_t value)

cdef extern from "chars.h" nogil:
    void klog_chars_init()
    void klog_keep_heap()
    uint8_t *put "klog_put"(uint8_t *w, const char *literal)
    uint8_t *decimal "klog_decimal"(uint8_t *w, int64_t value)
    bint utf8_valid "klog_utf8_valid"(const uint8_t *p, const uint8_t *end)
    uint8_t *json_string "klog_json_string"(uint8_t *w, const uint8_t *p, int64_t n)
    uint8_t *json_string_portable "klog_json_string_portable"(uint8_t *w, const uint8_t *p, int64_t n)
    int64_t json_size "klog_json_size"(const uint8_t *p, int64_t n)
    uint8_t *base64 "klog_base64"(uint8_t *w, const uint8_t *p, int64_t n)
    uint8_t *hex_digits "klog_hex"(uint8_t *w, const uint8_t *p, int64_t n)
    uint8_t *csv_field "klog_csv_field"(uint8_t *w, const uint8_t *p, int64_t n)
    uint8_t *java_text "klog_java_text"(uint8_t *w, const uint8_t *p, int64_t n)
    int64_t java_size "klog_java_size"(const uint8_t *p, int64_t n)

cdef extern from "digests.h" nogil:
    ctypedef struct Digest "klog_digest":
        uint64_t high
        uint64_t low
    void siphash "klog_siphash"(const uint8_t *secret, const uint8_t *p, size_t n, Digest *out)
    ctypedef struct WideFactor "klog_wide_factor":
        pass
    uint64_t sum_words "klog_sum_words"(const WideFactor *factors, const uint64_t *words, size_t n)
    void sum_factors "klog_sum_factors"(const uint8_t *secret, WideFactor *factors, size_t n)
    void md5 "klog_md5"(const uint8_t *p, size_t n, Digest *out)
    void siphash_eight "klog_siphash_eight"(const uint8_t *secret, const uint8_t **keys, const size_t *sizes, Digest **out)
    void md5_eight "klog_md5_eight"(const uint8_t **keys, const size_t *sizes, Digest **out)

klog_crc_init()
klog_chars_init()

cdef object BatchFacts = None, CodecError = None


cdef int import_classes() except -1:
    """Import the classes of Python that a window needs: not with the module, for `klog --version` needs none."""
    global BatchFacts, CodecError
    if CodecError is None:
        from klog.formats import batch, codec
        BatchFacts, CodecError = batch.BatchFacts, codec.CodecError
    return 0


include "layouts.pxi"
include "rows.pxi"
include "read.pxi"
include "scan.pxi"
include "decode.pxi"
include "filter.pxi"
include "text.pxi"
include "json.pxi"
include "columns.pxi"
include "buffer.pxi"
include "batch_rows.pxi"
include "record_rows.pxi"
include "line_output.pxi"
include "window.pxi"
include "survey_events.pxi"
include "index_comparison.pxi"
include "survey.pxi"
include "build.pxi"
include "active_segment.pxi"
include "bits.pxi"
include "order.pxi"
include "batch_identities.pxi"
include "landmarks.pxi"
include "offset_notes.pxi"
include "digest_slots.pxi"
include "offset_map.pxi"
include "retention.pxi"
include "retimed_records.pxi"
include "rewrite.pxi"
include "transactions.pxi"
include "latest_records.pxi"
include "transaction_spans.pxi"
include "profile.pxi"
include "partitions.pxi"
include "key_places.pxi"
include "key_reader.pxi"
include "key_causes.pxi"
include "key_examples.pxi"
include "partition_records.pxi"
include "partition_slots.pxi"
include "partition_table.pxi"
include "record_lines.pxi"
include "record_columns.pxi"
include "transaction_ends.pxi"
include "batch_builder.pxi"
include "batch_router.pxi"
include "stamp.pxi"
include "producer_runs.pxi"
include "header_pass.pxi"
include "system.pxi"
include "entry_list.pxi"
include "record_signs.pxi"


def crc32c(const unsigned char[::1] data not None, unsigned int value=0):
    """Return the CRC-32C of *data*, continuing from *value*."""
    cdef uint32_t result
    cdef Py_ssize_t n = data.shape[0]
    if n == 0:
        return value
    with nogil:
        result = klog_crc32c(value, &data[0], n)
    return result


def crc32c_portable(const unsigned char[::1] data not None, unsigned int value=0):
    """Return the same without the processor's own instruction; for tests."""
    return klog_crc32c_portable(value, &data[0], data.shape[0]) if data.shape[0] else value


def crc32(const unsigned char[::1] data not None, unsigned int value=0):
    """Return the CRC-32 (zlib's polynomial) of *data*, continuing from *value*."""
    return klog_crc32(value, &data[0], data.shape[0]) if data.shape[0] else value


def crc32c_shift(unsigned int value, unsigned long long n):
    """Return *value* moved *n* bytes on: the CRC-32C of b is that of ab ^ crc32c_shift(that of a, length of b)."""
    return klog_crc32c_shift(value, n)


def crc32_shift(unsigned int value, unsigned long long n):
    """Return the same for the CRC-32 of zlib."""
    return klog_crc32_shift(value, n)


def hardware_crc():
    """Whether CRC-32C runs on the processor's own instruction."""
    return bool(klog_hardware)


def json_text(const unsigned char[::1] data not None, bint portable=False):
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


def is_utf8(const unsigned char[::1] data not None):
    """Whether *data* is well-formed UTF-8."""
    return not data.shape[0] or bool(utf8_valid(&data[0], &data[0] + data.shape[0]))


def java_string(const unsigned char[::1] data not None):
    """Return *data* as a Java program prints it when it takes it for UTF-8 (bytes; malformed parts become U+FFFD)."""
    cdef Py_ssize_t n = data.shape[0]
    cdef bytearray out
    cdef uint8_t *w
    if n == 0:
        return b""
    out = bytearray(3 * n + 16)
    w = <uint8_t *>PyByteArray_AsString(out)
    return bytes(out[: java_text(w, &data[0], n) - w])
