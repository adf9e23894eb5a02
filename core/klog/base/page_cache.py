"""The ways in which this process spares the page cache, from which a running broker serves its consumers.

`POLICY` says what is wanted; `klog.base.bulk_reads` reads accordingly.  Pages that were in the cache before stay there,
pages that this process brings in are dropped again:

* With RWF_DONTCACHE (Linux 6.14, where the file system has it) the system drops them as soon as they are read.
* Without it, ranges behind the reader are dropped by posix_fadvise, except those that were cached before according to
  cachestat (Linux 6.5).
* Without cachestat nothing tells them apart: all ranges behind the reader are dropped, but only beside a running
  broker.
"""

from __future__ import annotations

import errno
import os
from _thread import allocate_lock
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from klog.base.rate_limit import RateLimit

DONT_CACHE: Final = 0x80
"""The flag RWF_DONTCACHE of preadv2."""
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
FEW_BYTES: Final = 16 << 10
"""Reads of at most so many bytes are no bulk reads, unless many of them follow each other closely."""
BLOCK_BYTES: Final = 8 << 20
"""Ranges are dropped in blocks of this size, each with the one before it: a large folio is dropped whole, or stays."""
READ_AHEAD_BYTES: Final = 16 << 20
"""The system has read at most so far beyond a reader."""
_MOST_LEFT: Final = 4
_COARSE_BYTES: Final = 2 << 20
_FINE_BYTES: Final = 64 << 10
_NO_SUPPORT: Final = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)

Ranges = list[tuple[int, int]]
"""Ranges of bytes in ascending order, the end exclusive."""


class Policy:
    """How this process reads whole logs.

    *drops*: it leaves the page cache as it was.  *beside_broker*: another process holds the lock of a log dir.  *rate*:
    the limit of all reads, None without one.  *cached_pages*: that of `klog.kernel`, or a function that returns -1.
    """

    def __init__(self) -> None:
        self._left: list[tuple[int, int, int, Ranges]] = []
        self._lock = allocate_lock()
        self.reset()

    def reset(self) -> None:
        """Read as any program does."""
        self._drop_left(0)
        self.drops = self.beside_broker = False
        self.rate: RateLimit | None = None
        self.cached_pages: Callable[[int, int, int], int] = lambda descriptor, start, size: -1
        self._devices: dict[int, bool] = {}
        self._telling: dict[int, bool] = {}
        self._before: dict[tuple[int, int], tuple[int, Ranges | None]] = {}

    def drop_later(self, descriptor: int, start: int, kept: Ranges) -> None:
        """Drop the pages that the system has read ahead of *start*, where a reader has ended.

        They are dropped after some more readers: until then the disk may still be reading them, or another reader may
        need them.
        """
        try:
            own = os.dup(descriptor)
        except OSError:  # no descriptor is left
            drop(descriptor, start, start + READ_AHEAD_BYTES, kept)
            return
        with self._lock:
            self._left.append((own, start, start + READ_AHEAD_BYTES, kept))
        self._drop_left(_MOST_LEFT)

    def _drop_left(self, most: int) -> None:
        """Drop the oldest ranges that are left, until there are at most so many."""
        with self._lock:
            ready, self._left = self._left[: max(len(self._left) - most, 0)], self._left[-most:] if most else []
        for descriptor, start, end, kept in ready:
            drop(descriptor, start, end, kept)
            os.close(descriptor)

    def cached_before(self, descriptor: int, status: os.stat_result) -> Ranges | None:
        """Return the ranges of a file that were cached when this process opened it for the first time.

        The system reads ahead of a reader: an answer at the second opening would name pages that this process has
        brought in.  None: the system does not say.
        """
        inode = status.st_dev, status.st_ino
        with self._lock:
            size, ranges = self._before.get(inode, (0, []))
            if status.st_size > size and ranges is not None:
                later = cached_ranges(descriptor, size, status.st_size)
                is_told = later or self.can_dont_cache(descriptor, status) or self._tells(descriptor, status)
                ranges = [*ranges, *later] if later is not None and is_told else None
            self._before[inode] = max(size, status.st_size), ranges
            return ranges

    def _tells(self, descriptor: int, status: os.stat_result) -> bool:
        """Whether cachestat names a page of this file system that was just read.

        On overlay it does not: the pages belong to the file below, and posix_fadvise drops them nevertheless.
        """
        device = status.st_dev
        if device not in self._telling:
            try:
                os.pread(descriptor, 1, 0)
            except OSError:
                return False  # a bad sector: the next file is asked
            self._telling[device] = self.cached_pages(descriptor, 0, PAGE_BYTES) > 0
        return self._telling[device]

    @property
    def is_on(self) -> bool:
        """Whether reads differ from plain ones at all."""
        return self.drops or self.rate is not None

    def concerns(self, size: int) -> bool:
        """Whether the reads of a file of *size* bytes differ from plain ones: some pages more do not matter."""
        return self.rate is not None or (self.drops and size > FEW_BYTES)

    def share_rate(self, processes: int) -> None:
        """Take one of *processes* equal shares of the rate: this is one of as many processes."""
        if self.rate is not None:
            self.rate = self.rate.share(processes)

    def can_dont_cache(self, descriptor: int, status: os.stat_result) -> bool:
        """Whether the file system of an open file supports RWF_DONTCACHE; each is asked once."""
        device = status.st_dev
        if device not in self._devices:
            self._devices[device] = supports_dont_cache(descriptor, status.st_size)
        return self._devices[device]


POLICY: Final = Policy()


def supports_dont_cache(descriptor: int, size: int) -> bool:
    """Whether RWF_DONTCACHE is supported; asks by a read behind the end of the file, which reads nothing."""
    try:
        os.preadv(descriptor, [bytearray(1)], size, DONT_CACHE)
    except NotImplementedError:
        return False
    except OSError as error:
        return error.errno not in _NO_SUPPORT
    return True


def cached_ranges(descriptor: int, start: int, end: int) -> Ranges | None:
    """Return the parts of a range that are in the page cache, rounded up to 64 KiB; None if the system does not say."""
    cached = POLICY.cached_pages
    total = cached(descriptor, start, end - start)
    if total < 0:
        return None
    if total == 0 or total >= -(-(end - start) // PAGE_BYTES):
        return [(start, end)] if total else []
    ranges: Ranges = []
    for first, last in _pieces(start, end, _COARSE_BYTES):
        pages = cached(descriptor, first, last - first)
        if pages >= -(-(last - first) // PAGE_BYTES):
            _add(ranges, first, last)
        elif pages:
            for one, other in _pieces(first, last, _FINE_BYTES):
                if cached(descriptor, one, other - one):
                    _add(ranges, one, other)
    return ranges


def _pieces(start: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    return ((at, min(at + size, end)) for at in range(start, end, size))


def _add(ranges: Ranges, start: int, end: int) -> None:
    """Append a range, or extend the last one by it."""
    if ranges and ranges[-1][1] == start:
        ranges[-1] = ranges[-1][0], end
    else:
        ranges.append((start, end))


def covers(ranges: Ranges, start: int, end: int) -> bool:
    """Whether all of a range is in *ranges*."""
    at = bisect_right(ranges, (start, 1 << 63)) - 1
    return at >= 0 and ranges[at][0] <= start and end <= ranges[at][1]


def without(ranges: Ranges, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a range that are not in *ranges*."""
    for first, last in ranges[max(bisect_right(ranges, (start, 1 << 63)) - 1, 0) :]:
        if first >= end:
            break
        if start < first:
            yield start, first
        start = max(start, last)
    if start < end:
        yield start, end


class DropBehind:
    """Drops the ranges of a file of *size* bytes that are read in ascending order, except *kept*, from the page cache.

    *kept* None: it is unknown which of them were there before, so that only whole pages behind the reader are dropped.
    """

    def __init__(self, descriptor: int, size: int, kept: Ranges | None) -> None:
        self._descriptor, self._size, self._kept = descriptor, size, kept
        self._from, self._to = 0, -1

    def passed(self, start: int, end: int) -> None:
        """Take note that a range was read; drop what is a block behind."""
        if not self._from - BLOCK_BYTES <= start <= self._to + BLOCK_BYTES:
            self.finish()
        if self._to < 0:
            self._from = start - start % BLOCK_BYTES
        self._to = max(self._to, end)
        ready = self._to - self._to % BLOCK_BYTES
        if ready - self._from >= BLOCK_BYTES:
            drop(self._descriptor, max(self._from - BLOCK_BYTES, 0), ready, self._kept)
            self._from = ready

    def finish(self) -> None:
        """Drop the rest, and later what was read ahead of the reader."""
        if self._to >= 0:
            drop(self._descriptor, max(self._from - BLOCK_BYTES, 0), self._to, self._kept)
            if self._kept is not None and self._to < self._size:
                POLICY.drop_later(self._descriptor, self._to, self._kept)
        self._to = -1


def drop(descriptor: int, start: int, end: int, kept: Ranges | None) -> None:
    """Drop a range from the page cache, except *kept*; only whole pages.  Errors do not matter."""
    for first, last in without(kept or [], start, end):
        first, last = -(-first // PAGE_BYTES) * PAGE_BYTES, last if kept is not None else last - last % PAGE_BYTES
        if first < last:
            try:
                os.posix_fadvise(descriptor, first, last - first, os.POSIX_FADV_DONTNEED)
            except (OSError, AttributeError):
                return
