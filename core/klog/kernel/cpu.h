/* The features of the processor, asked of itself: the compiler's own question needs a library that not every linker has. */
#ifndef KLOG_CPU_H
#define KLOG_CPU_H

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <cpuid.h>
#include <stdint.h>

enum { KLOG_CPU_SSSE3 = 1, KLOG_CPU_SSE42 = 2, KLOG_CPU_PCLMUL = 4, KLOG_CPU_AVX2 = 8, KLOG_CPU_AVX512F = 16 };

/* Return the sets of instructions that the processor has, added up; SSSE3: with POPCNT.  Wide registers count only if the
 * system saves them (Intel's manual, volume 1, 14.3 and 15.2). */
static inline int klog_cpu(void) {
    unsigned a, b, c, d, low = 0, high;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
    int found = ((c & bit_SSSE3) && (c & bit_POPCNT) ? KLOG_CPU_SSSE3 : 0) | (c & bit_SSE4_2 ? KLOG_CPU_SSE42 : 0) |
                (c & bit_PCLMUL ? KLOG_CPU_PCLMUL : 0);
    if (c & bit_OSXSAVE) __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 0x06) != 0x06 || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return found;
    return found | (b & bit_AVX2 ? KLOG_CPU_AVX2 : 0) |
           ((b & bit_AVX512F) && (low & 0xe6) == 0xe6 ? KLOG_CPU_AVX512F : 0);
}
#endif

#endif
