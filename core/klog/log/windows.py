"""Loads windows of a log's bytes, from memory or from a file, without scanning them."""

from __future__ import annotations

from klog.base.read_only import ReadableLog
from klog.kernel import Window


def window_of(data: bytes | bytearray, position: int, records: int = 1024, output: int = 1) -> Window:
    """Return a window of *data*, the bytes of a log from byte *position* on.  *records*, *output*: see Window."""
    window = Window(len(data), records, output)
    window.buffer(len(data))[: len(data)] = data
    window.load(position, len(data))
    return window


def read_window(source: ReadableLog, window: Window, position: int, size: int) -> int:
    """Load *window* with up to *size* bytes of a log from byte *position* on; return how many there were.

    Raises OSError; the window then has no content that counts.
    """
    read = source.read_into(position, window.buffer(size)[:size])
    window.load(position, read)
    return read
