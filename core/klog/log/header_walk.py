"""Walks along a log from header to header, window by window.

Of large batches only the headers are read.  Windows grow where batches are small or many searches fall close together.
"""

from __future__ import annotations

from typing import Final

from klog.files.read_only import ReadableLog
from klog.formats.batch import BatchFacts
from klog.kernel import Window
from klog.log.windows import read_window

SMALL_BYTES: Final = 8 << 10
LARGE_BYTES: Final = 1 << 20
_ROWS = 256
_NEAR_BYTES = 256 << 10
_DENSE_BYTES = 4 << 10


class HeaderWalk:
    """The batches of one window of a log at a time.

    *broken*: what stands where the walk would go on is no entry that is all there, or it cannot be read.  *previous*:
    the last batch of the window before, None at the start.
    """

    def __init__(self, log: ReadableLog) -> None:
        self.window = Window(2 * SMALL_BYTES, _ROWS, 1)
        self.previous: BatchFacts | None = None
        self.broken = False
        self._log = log
        self._bytes = self._least = SMALL_BYTES
        self._end = -1
        self._next = -1

    @property
    def next_position(self) -> int:
        """Where the batch after the window's last one begins, in bytes; -1 when nothing was loaded."""
        return self._next

    @property
    def at_end(self) -> bool:
        """Whether the walk has come to the end of the log, and nothing was wrong there."""
        return self._next >= self._log.size

    def row_at(self, position: int) -> int:
        """Return the row of the batch that begins at *position*, -1 when none in the window does."""
        return self.window.row_at(position - self.window.position) if self._end > position else -1

    def go(self, position: int, through: int) -> None:
        """Load a window from *position* on, where a batch should begin, and walk until *through* has been passed."""
        behind, ahead = self.window.position - _NEAR_BYTES, self._end + _NEAR_BYTES
        near = self._end >= 0 and behind <= through and position <= ahead
        self._least = min(2 * self._least, LARGE_BYTES) if near else SMALL_BYTES
        self.previous = None
        self._load(position, max(self._least, min(through - position + SMALL_BYTES, LARGE_BYTES)))
        while not self.broken and self._next <= through and self.more():
            pass

    def more(self) -> bool:
        """Go on to the next window; False at the end of the log, or where it is broken."""
        if self.broken or self.at_end:
            return False
        count = self.window.count
        dense = (self._next - self.window.position) < _DENSE_BYTES * count
        self._bytes = min(2 * self._bytes, LARGE_BYTES) if dense else SMALL_BYTES
        if count:
            self.previous = self.window.batch(count - 1)
        self._load(self._next, max(self._bytes, self._least))
        return self.window.count > 0

    def forget(self) -> None:
        """Do not use what is in the window again."""
        self._end = -1

    def _load(self, position: int, size: int) -> None:
        size = min(size, self._log.size - position)
        try:
            read = read_window(self._log, self.window, position, size)
        except OSError:
            read = 0
            self.window.load(position, 0)
        self.window.scan(0, False, self._log.size - position - read if read == size else 0)
        self._next = position + self.window.next_at
        self._end = position + read
        self.broken = self.window.count == 0
