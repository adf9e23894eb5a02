# Memory that is visited at random.

cdef extern from *:
    """
    #include <stdint.h>
    #include <sys/mman.h>
    /* A map is read at random, and with pages of 4 KiB most of what a look costs is to find out where a page is. */
    static void klog_huge_pages(void *start, size_t size) {
    #ifdef MADV_HUGEPAGE
        uintptr_t page = 2 << 20, from = ((uintptr_t)start + page - 1) & ~(page - 1);
        uintptr_t to = ((uintptr_t)start + size) & ~(page - 1);
        if (from < to) madvise((void *)from, to - from, MADV_HUGEPAGE);
    #else
        (void)start, (void)size;
    #endif
    }
    """
    void huge_pages "klog_huge_pages"(void *start, size_t size) noexcept nogil

cdef extern from "<stdlib.h>" nogil:
    int posix_memalign(void **found, size_t alignment, size_t size)
    void prefetch "__builtin_prefetch"(const void *p) noexcept nogil

cdef enum:
    CACHE_LINE = 64              # bytes of the processor's cache
    HUGE_PAGE = 2 << 20          # bytes; where memory is visited at random, small pages cost time
