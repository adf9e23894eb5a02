"""Copies ranges from file to file: inside the system where it can, holes stay holes."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from klog.base.bulk_reads import BulkReads
from klog.base.page_cache import POLICY
from klog.data_dir.disk.written_ranges import WRITTEN

_WINDOW: Final = 1 << 20


def share_blocks(source: int, target: int) -> bool:
    """Let a new file share the blocks of another, without a copy; False if the file system cannot."""
    import fcntl

    with suppress(OSError):
        fcntl.ioctl(target, 0x40049409, source)  # FICLONE of Linux, the same on every processor that matters here
        return True
    return False


def copy_range(source: int, start: int, end: int, target: int, at: int) -> None:
    """Copy a range to position *at* of a file that is empty from there on; holes at its end are left to the caller."""
    reads = BulkReads(source, os.fstat(source), end) if POLICY.is_on else None
    try:
        for first, last in _data(source, start, end):
            if reads is None:
                _copy(source, first, last, target, first + at - start)
                continue
            for position in range(first, last, reads.piece_bytes):
                stop = min(position + reads.piece_bytes, last)
                _copy(source, position, stop, target, position + at - start)
                reads.passed(position, stop, stop - position)
                WRITTEN.wrote_range(target, position + at - start, stop - position)
    finally:
        if reads is not None:
            reads.close()


def _copy(source: int, start: int, end: int, target: int, at: int) -> None:
    position = start + _copy_in_kernel(source, start, end, target, at)
    while position < end:
        data = os.pread(source, min(_WINDOW, end - position), position)
        if not data:
            break  # it has shrunk: the caller compares digests
        view = memoryview(data)
        while len(view):
            view = view[os.pwrite(target, view, at + position - start + len(data) - len(view)) :]
        position += len(data)


def _copy_in_kernel(source: int, start: int, end: int, target: int, at: int) -> int:
    """Copy a range without a way through this process, as far as the system does it; return the bytes that it did."""
    done = 0
    try:
        while hasattr(os, "copy_file_range") and start + done < end:
            count = os.copy_file_range(source, target, end - start - done, start + done, at + done)
            if not count:
                break
            done += count
    except OSError:
        pass  # a later read or write reports the cause, if it is more than an old kernel
    return done


def _data(descriptor: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges between *start* and *end* that are not holes; one range if holes are not reported."""
    while start < end:
        try:
            first = os.lseek(descriptor, start, os.SEEK_DATA)
            last = os.lseek(descriptor, first, os.SEEK_HOLE)
        except (OSError, AttributeError) as error:
            if getattr(error, "errno", None) == errno.ENXIO:
                return  # only a hole remains
            first, last = start, end
        if first < end:
            yield first, min(last, end)
        start = max(last, start + 1)
