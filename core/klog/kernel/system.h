/* Calls of the system that Python does not offer: here and not through ctypes, for a static program loads no library. */
#ifndef KLOG_SYSTEM_H
#define KLOG_SYSTEM_H

#ifdef __linux__
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#include <stdint.h>
#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

/* FALLOC_FL_KEEP_SIZE: blocks are allocated, the file's size stays.  The bare call: a 64-bit offset everywhere. */
static int klog_set_aside(int fd, long long start, long long size) {
#if defined(SYS_fallocate) && __SIZEOF_LONG__ == 8
    return syscall(SYS_fallocate, fd, 1, start, size) == 0;
#else
    (void)fd, (void)start, (void)size;
    return 0;
#endif
}

/* SYNC_FILE_RANGE_WRITE: pages are handed to the disk, nothing is waited for; errors are for a later fsync. */
static void klog_begin_sync(int fd, long long start, long long size) {
#if defined(SYS_sync_file_range) && __SIZEOF_LONG__ == 8
    syscall(SYS_sync_file_range, fd, start, size, 2);
#else
    (void)fd, (void)start, (void)size;
#endif
}

static void klog_sync_file_system(int fd) {
#ifdef SYS_syncfs
    syscall(SYS_syncfs, fd);
#else
    (void)fd;
#endif
}

/* mallopt(3): the threshold stays where it is set, instead of growing with what is freed. */
static void klog_give_memory_back(void) {
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
    mallopt(M_ARENA_MAX, 2);
#endif
}

#endif
