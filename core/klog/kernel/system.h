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

/* cachestat (Linux 6.5): pages of a range that are in the page cache; -1 if the system does not say. */
static long long klog_cached_pages(int fd, long long start, long long size) {
#ifdef __linux__
    uint64_t range[2] = {(uint64_t)start, (uint64_t)size}, found[5] = {0};
    return syscall(451, fd, range, found, 0) == 0 ? (long long)found[0] : -1;
#else
    (void)fd, (void)start, (void)size;
    return -1;
#endif
}

/* SYNC_FILE_RANGE_WAIT_BEFORE | WRITE | WAIT_AFTER: returns when the pages of the range are on their way and written. */
static void klog_finish_sync(int fd, long long start, long long size) {
#if defined(SYS_sync_file_range) && __SIZEOF_LONG__ == 8
    syscall(SYS_sync_file_range, fd, start, size, 7);
#else
    (void)fd, (void)start, (void)size;
#endif
}

/* ioprio_set of the calling thread, which those that it starts inherit; returns the value before, -1 if that failed. */
static int klog_set_io_priority(int value) {
#if defined(SYS_ioprio_set) && defined(SYS_ioprio_get)
    int before = (int)syscall(SYS_ioprio_get, 1, 0);
    return syscall(SYS_ioprio_set, 1, 0, value) == 0 ? before : -1;
#else
    (void)value;
    return -1;
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
