# Digests of keys (`digests.h`).

from libc.stdint cimport uint8_t, uint64_t

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
