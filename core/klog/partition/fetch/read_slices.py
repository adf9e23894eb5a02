"""Remembers where batches end in recently read slices, so that a sequential reader needs no index and no header."""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeAlias

from klog.base.errors import UnreadableError
from klog.base.read_only import ReadOnlyFile
from klog.formats.entry_header import HEADER_BYTES
from klog.kernel import Window
from klog.log.header_walk import read_window
from klog.log.reader import LARGE_WINDOW_BYTES

SLICE_BYTES: Final = 960 << 10
"""The size of a slice, which must fit into a window of a mebibyte."""
_RECORDS: Final = 64
_MOST_BATCHES: Final = 1 << 20
"""Sixteen bytes each: so many are kept, of all logs together."""


Key: TypeAlias = "tuple[str, int, int]"
"""A slice's log, its first byte, and the size of the log when it was opened."""


class WindowPool:
    """At most as many windows as there are processors, for many threads; further threads wait.

    A window costs a megabyte, and there are hundreds of connections.
    """

    def __init__(self, most: int | None = None) -> None:
        self._idle: list[Window] = []
        self._free = threading.Semaphore(most or min(os.cpu_count() or 1, 8))

    @contextmanager
    def borrowed(self) -> Iterator[Window]:
        """Give a window, whose content is anything."""
        with self._free:
            try:
                window = self._idle.pop()
            except IndexError:
                window = Window(records=_RECORDS, output=1)
            yield window
            if window.size <= LARGE_WINDOW_BYTES:  # one that grew for a huge batch would keep its memory
                self._idle.append(window)


class Slice(NamedTuple):
    """Batches that follow each other from byte *start* on, one at least, all of one *magic*.

    *ends*: the byte where each ends.  *lasts*: the last offset of each.  *key*: identifies it in later requests.
    """

    start: int
    magic: int
    ends: memoryview
    lasts: memoryview
    key: Key

    def batch(self, position: int) -> tuple[int, int, int]:
        """Return size, last offset and magic of the batch that begins at byte *position*."""
        i = bisect_right(self.ends, position)
        return self.ends[i] - position, self.lasts[i], self.magic

    def whole(self, limit: int) -> tuple[int, int]:
        """Return the end of the last batch that ends at or before byte *limit*, and the offset after it."""
        i = bisect_right(self.ends, limit) - 1
        return self.ends[i], self.lasts[i] + 1


class SliceCache:
    """Slices of many logs.  Any number of threads."""

    def __init__(self, windows: WindowPool) -> None:
        self.windows = windows
        self._recent: dict[Key, Slice] = {}
        self._batches = 0
        self._lock = threading.Lock()

    def kept(self, key: Key) -> Slice | None:
        """Return the slice of this key, if it is still there: only here may they be referred to for long."""
        return self._recent.get(key)

    def at(self, source: ReadOnlyFile, position: int, start: int, end: int) -> Slice | None:
        """Return the slice with byte *position*, of batches that are intact from *start* to *end*, the end of one.

        None if the file no longer has them.  Raises UnreadableError.
        """
        while start < end:
            found = self.kept((source.path, start, source.size)) or self._walked(source, start, end)
            if found is None or position < found.ends[-1]:
                return found
            start = found.ends[-1]
        return None

    def _walked(self, source: ReadOnlyFile, start: int, end: int) -> Slice | None:
        with self.windows.borrowed() as window:
            size = min(SLICE_BYTES + HEADER_BYTES, end - start)
            try:
                read = read_window(source, window, start, size)
            except OSError as error:
                raise UnreadableError(f"{source.path} @ {start}: cannot read: {error.strerror}") from error
            window.scan(0, beyond=end - start - read)
            count, ends, lasts = window.edges()
            if not count:
                return None
            magic = window.batch(0).magic
        ends_at, lasts_at = (memoryview(one).cast("q")[:count] for one in (ends, lasts))
        found = Slice(start, magic, ends_at, lasts_at, (source.path, start, source.size))
        self._keep(found)
        return found

    def _keep(self, found: Slice) -> None:
        with self._lock:
            while self._recent and self._batches + len(found.ends) > _MOST_BATCHES:
                oldest = next(iter(self._recent))
                self._batches -= len(self._recent.pop(oldest).ends)
            if found.key not in self._recent:
                self._recent[found.key] = found
                self._batches += len(found.ends)
