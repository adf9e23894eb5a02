"""Loads windows of a log's bytes, and walks along a log from header to header, window by window.

The walk reads only headers, no content and no checksums, which is cheap on any log: little more than the first 61 bytes
of large batches are read from the disk.  No size is followed beyond the end of the log, and the memory used is one
window.  LogReader reads whole batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from klog.base.errors import UnreadableError
from klog.base.read_only import ReadableLog
from klog.formats.batch import BatchFacts
from klog.formats.damage import Damage, DamageKind, Location
from klog.formats.entry_header import HEADER_BYTES, read_header
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


SMALL_BYTES: Final = 8 << 10
LARGE_BYTES: Final = 1 << 20
_ROWS = 256
_SPARSE_BYTES = 4 << 10
_NEAR_BYTES = 256 << 10
_DENSE_BYTES = 16 << 10
_ZEROS_BYTES = 4 << 10


class HeaderWalk:
    """The batches of one window of a log at a time.

    Windows grow where batches are small or many searches fall close together.  *broken*: the walk cannot continue,
    because no whole entry begins there or the log cannot be read; *error* is then the reason.  *previous*: position and
    size of the last batch of the window before, None at the start.
    """

    def __init__(self, log: ReadableLog) -> None:
        self.window = Window(2 * SMALL_BYTES, _ROWS, 1)
        self.previous: tuple[int, int] | None = None
        self.broken = False
        self.error: OSError | None = None
        self._log = log
        self._size = log.size
        self._bytes = _SPARSE_BYTES
        self._least = 0
        self._end = -1
        self._next = -1

    @property
    def next_position(self) -> int:
        """The position of the batch after the window's last one, in bytes; -1 when nothing was loaded."""
        return self._next

    @property
    def at_end(self) -> bool:
        """Whether the walk has reached the end of the log without a problem there."""
        return self._next >= self._size

    def row_at(self, position: int) -> int:
        """Return the row of the batch that begins at *position*, -1 when none in the window does."""
        return self.window.row_at(position - self.window.position) if self._end > position else -1

    def go(self, position: int, through: int) -> None:
        """Load a window from *position* on, where a batch should begin, and walk until *through* has been passed."""
        behind, ahead = self.window.position - _NEAR_BYTES, self._end + _NEAR_BYTES
        near = self._end >= 0 and behind <= through and position <= ahead
        self._least = min(2 * max(self._least, SMALL_BYTES), LARGE_BYTES) if near else 0
        self.previous, self.error = None, None
        self._load(position, max(self._least, SMALL_BYTES, min(through - position + SMALL_BYTES, LARGE_BYTES)))
        while not self.broken and self._next <= through and self.more():
            pass

    def more(self) -> bool:
        """Continue with the next window; False at the end of the log, or if the walk is broken."""
        if self.broken or self._next >= self._size:
            return False
        window = self.window
        count = window.count
        start = window.position
        dense = self._next - start < _DENSE_BYTES * count
        self._bytes = min(4 * self._bytes, LARGE_BYTES) if dense else _SPARSE_BYTES
        last = start + window.at(count - 1)
        self.previous = last, self._next - last
        self._load(self._next, max(self._bytes, self._least))
        return not self.broken

    def forget(self) -> None:
        """Discard the content of the window."""
        self._end = -1

    def damage(self) -> Damage | None:
        """Return the damage at which the walk stopped, None at the end of the log.  Raises UnreadableError."""
        position, left = self._next, self._size - self._next
        if self.error is not None:
            raise UnreadableError(f"{self._log.path} @ {position}: cannot read: {self.error.strerror}") from self.error
        if self.at_end:
            return None
        before = header_at(self._log, self.previous[0]) if self.previous else None
        place = Location(self._log.path, position, before.last_offset + 1 if before else None)
        there = self.window.copy(0, min(self.window.size, _ZEROS_BYTES))
        if not there.strip(b"\0"):
            return Damage(DamageKind.ZEROED_TAIL, place, f"{left} bytes that begin with zeros", left)
        kind = read_header(there, 0, position, left)
        assert isinstance(kind, DamageKind)  # otherwise the kernel would have found an entry
        return Damage(kind, place, f"{left} bytes that do not begin with a complete entry", left)

    def _load(self, position: int, size: int) -> None:
        window = self.window
        left = max(self._size - position, 0)  # a wrong index leads beyond the log's end
        size = min(size, left)
        try:
            read = read_window(self._log, window, position, size)
            if read < size:  # the log has shrunk since it was opened
                self._size, left = position + read, read
        except OSError as error:
            if size > SMALL_BYTES:  # the unreadable part may lie behind the entry that is searched for
                self._load(position, SMALL_BYTES)
                return
            self.error = error
            window.load(position, read := 0)
        window.scan(0, False, left - read)
        self._next = position + window.next_at
        self._end = position + read
        self.broken = window.count == 0


def walk_headers(log: ReadableLog, position: int = 0) -> Iterator[BatchFacts | Damage]:
    """Yield the header of each entry from *position* on; bytes that are no entry yield a Damage and end the walk.

    Raises UnreadableError.
    """
    for window in walk_windows(log, position):
        if isinstance(window, Damage):
            yield window
        else:
            yield from map(window.batch, range(window.count))


def walk_windows(log: ReadableLog, position: int = 0) -> Iterator[Window | Damage]:
    """Yield a window again and again, filled with the entries from *position* on; bytes that are no entry yield a
    Damage.

    The last entry in a window may be represented by its header only.  Raises UnreadableError.
    """
    if position >= log.size:
        return
    walk = HeaderWalk(log)
    walk.go(position, position)
    while not walk.broken:
        yield walk.window
        if not walk.more():
            break
    if damage := walk.damage():
        yield damage


def header_at(log: ReadableLog, position: int) -> BatchFacts | None:
    """Return the header of the entry at *position*, None if none can be."""
    if not 0 <= position < log.size:
        return None
    data = log.read(position, HEADER_BYTES)
    left = log.size - position if len(data) == HEADER_BYTES else len(data)
    header = read_header(data, 0, position, left)
    return header if isinstance(header, BatchFacts) else None
