"""Blocks of logs in remote storage that were read, for many readers of the same logs: the last ones stay in memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from klog.base.errors import UnreadableError
from klog.base.read_only import ReadableLog

BLOCK_BYTES: Final = 1 << 20


class BlockCache:
    """At most *most_bytes* of blocks of any logs; the one that was used least recently goes first.  Any threads."""

    def __init__(self, most_bytes: int) -> None:
        self._most = max(most_bytes // BLOCK_BYTES, 1)
        self._blocks: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def block(self, source: ReadableLog, number: int) -> bytes:
        """Return a block of a log.  Raises OSError."""
        key = source.path, number
        with self._lock:
            if (found := self._blocks.get(key)) is not None:
                self._blocks.move_to_end(key)
                return found
        buffer = bytearray(max(0, min(BLOCK_BYTES, source.size - number * BLOCK_BYTES)))
        read = source.read_into(number * BLOCK_BYTES, memoryview(buffer))
        found = bytes(buffer[:read])
        with self._lock:
            self._blocks[key] = found
            while len(self._blocks) > self._most:
                self._blocks.popitem(last=False)
        return found


class CachedLog:
    """The bytes of a log by position, through a cache.  See `klog.base.read_only.ReadableLog`."""

    def __init__(self, source: ReadableLog, cache: BlockCache) -> None:
        self.path, self.size, self._source, self._cache = source.path, source.size, source, cache

    def read_into(self, position: int, view: memoryview) -> int:
        """Fill *view* from *position* on; return the number of bytes.  Raises OSError."""
        done = 0
        while done < len(view) and position + done < self.size:
            number, within = divmod(position + done, BLOCK_BYTES)
            piece = self._cache.block(self._source, number)[within : within + len(view) - done]
            if not piece:
                break
            view[done : done + len(piece)] = piece
            done += len(piece)
        return done

    def read(self, position: int, size: int) -> bytes:
        """Return up to *size* bytes from *position* on.  Raises UnreadableError."""
        buffer = bytearray(max(0, min(size, self.size - position)))
        try:
            return bytes(buffer[: self.read_into(position, memoryview(buffer))])
        except OSError as error:
            raise UnreadableError(f"{self.path} @ {position}: {error}") from error

    def next_data(self, position: int) -> int:
        """Return *position*: objects have no holes."""
        return position

    def close(self) -> None:
        """Close the object; its blocks stay."""
        self._source.close()
