"""Reads an object in a bucket in fewer requests: small reads, as of headers, take a larger range that is kept."""

from __future__ import annotations

from typing import Final

from klog.base.read_only import ReadableLog

RANGE_BYTES: Final = 1 << 16


class RangeCache:
    """The bytes of an object by position; the last range that was fetched is kept.  See ReadableLog."""

    def __init__(self, source: ReadableLog) -> None:
        self.path, self.size, self._source = source.path, source.size, source
        self._kept = (0, b"")

    def read(self, position: int, size: int) -> bytes:
        """Return up to *size* bytes from *position* on.  Raises UnreadableError."""
        size = max(0, min(size, self.size - position))
        start, kept = self._kept
        if start <= position and position + size <= start + len(kept):
            return kept[position - start : position - start + size]
        data = self._source.read(position, max(size, RANGE_BYTES))
        self._kept = (position, data)
        return data[:size]

    def read_into(self, position: int, view: memoryview) -> int:
        """Fill *view* from *position* on; return the number of bytes.  Raises OSError."""
        start, kept = self._kept
        within = kept[position - start : position - start + len(view)] if position >= start else b""
        if len(within) == min(len(view), self.size - position):
            view[: len(within)] = within
            return len(within)
        if len(view) > RANGE_BYTES:
            return self._source.read_into(position, view)
        buffer = bytearray(RANGE_BYTES)
        data = bytes(buffer[: self._source.read_into(position, memoryview(buffer))])
        self._kept = (position, data)
        view[: len(data)] = data[: len(view)]
        return min(len(data), len(view))

    def next_data(self, position: int) -> int:
        """Return *position*: objects have no holes."""
        return position

    def close(self) -> None:
        """Close the object."""
        self._source.close()
