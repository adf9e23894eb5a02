"""Outputs that this process does not read again: each stretch is flushed, and then dropped from the page cache.

A stretch is flushed while the next one is written, and is dropped when it is on the disk.  This syncs nothing: the data
of an output is safe when it is synced, as before.
"""

from __future__ import annotations

import os
import stat
from typing import Final

from klog.base.page_cache import BLOCK_BYTES, POLICY, drop
from klog.kernel import begin_sync, finish_sync

_LEAST_BYTES: Final = 64 << 10
"""Files with less new content stay in the cache."""


class _Written:
    """A range that was written: its bytes up to *dropped* are dropped, those up to *begun* are being flushed."""

    def __init__(self, start: int) -> None:
        self.start = self.dropped = self.begun = self.end = start

    def add(self, descriptor: int, end: int) -> None:
        self.end = end
        ready = end - end % BLOCK_BYTES
        if ready > self.begun:
            begin_sync(descriptor, self.begun, ready - self.begun)
            self._drop(descriptor, self.begun)
            self.begun = ready

    def finish(self, descriptor: int) -> None:
        if self.end - self.start >= _LEAST_BYTES:
            self._drop(descriptor, self.end)

    def _drop(self, descriptor: int, end: int) -> None:
        if end > self.dropped:
            finish_sync(descriptor, self.dropped, end - self.dropped)
            drop(descriptor, max(self.start, self.dropped - BLOCK_BYTES), end, [])
            self.dropped = end


class WrittenRanges:
    """The written ranges of open files, by descriptor; none unless the page cache is to stay as it was."""

    def __init__(self) -> None:
        self._ranges: dict[int, _Written] = {}

    def wrote(self, descriptor: int, size: int) -> None:
        """Take note that *size* bytes were written up to the file's current position."""
        if POLICY.drops and size:
            try:
                self.wrote_range(descriptor, os.lseek(descriptor, 0, os.SEEK_CUR) - size, size)
            except OSError:
                return  # a pipe

    def wrote_range(self, descriptor: int, start: int, size: int) -> None:
        """Take note that *size* bytes were written from position *start* on."""
        if POLICY.drops:
            written = self._ranges.get(descriptor)
            if written is None or written.end != start:
                written = self._ranges[descriptor] = _Written(start)
            written.add(descriptor, start + size)

    def grew(self, descriptor: int) -> None:
        """Take note that a file which was empty has grown, if it is a regular one."""
        if POLICY.drops and stat.S_ISREG((status := os.fstat(descriptor)).st_mode):
            written = self._ranges.get(descriptor)
            start = 0 if written is None or written.end > status.st_size else written.end
            self.wrote_range(descriptor, start, status.st_size - start)

    def close(self, descriptor: int) -> None:
        """Flush and drop the rest; the file is closed after this."""
        written = self._ranges.pop(descriptor, None)
        if written is not None:
            written.finish(descriptor)


WRITTEN: Final = WrittenRanges()
