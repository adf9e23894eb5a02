# Checksums (`crc.h`).

from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef extern from "crc.h" nogil:
    int klog_hardware
    uint32_t klog_crc32c(uint32_t crc, const uint8_t *p, size_t n)
    uint32_t klog_crc32c_portable(uint32_t crc, const uint8_t *p, size_t n)
    uint32_t klog_crc32(uint32_t crc, const uint8_t *p, size_t n)
    uint32_t klog_crc32c_shift(uint32_t crc, uint64_t n)
    uint32_t klog_crc32_shift(uint32_t crc, uint64_t n)
    uint32_t klog_crc32c_share(uint64_t word, uint32_t n)
    void klog_moves_init()
