# Text (`chars.h`).

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

cdef extern from "chars.h" nogil:
    void klog_keep_heap()
    uint8_t *put "klog_put"(uint8_t *w, const char *literal)
    uint8_t *decimal "klog_decimal"(uint8_t *w, int64_t value)
    bint utf8_valid "klog_utf8_valid"(const uint8_t *p, const uint8_t *end)
    uint8_t *json_string "klog_json_string"(uint8_t *w, const uint8_t *p, int64_t n)
    uint8_t *json_string_portable "klog_json_string_portable"(uint8_t *w, const uint8_t *p, int64_t n)
    const uint8_t *json_plain "klog_json_plain"(const uint8_t *p, const uint8_t *end)
    int64_t json_size "klog_json_size"(const uint8_t *p, int64_t n)
    uint8_t *base64 "klog_base64"(uint8_t *w, const uint8_t *p, int64_t n)
    uint8_t *hex_digits "klog_hex"(uint8_t *w, const uint8_t *p, int64_t n)
    uint8_t *csv_field "klog_csv_field"(uint8_t *w, const uint8_t *p, int64_t n)
    uint8_t *java_text "klog_java_text"(uint8_t *w, const uint8_t *p, int64_t n)
    int64_t java_size "klog_java_size"(const uint8_t *p, int64_t n)


cdef inline uint8_t *put_bytes(uint8_t *w, const uint8_t *p, Py_ssize_t n) noexcept nogil:
    memcpy(w, p, n)
    return w + n
