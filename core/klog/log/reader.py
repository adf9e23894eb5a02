"""Reads a log window by window: whole batches in order, and the damage between them.

The walk from header to header is sequential by nature, so it happens under a lock; everything that is done with a
window afterwards can happen in as many threads as there are windows in flight.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from typing import NamedTuple

from klog.base.errors import UnreadableError
from klog.base.read_only import ReadableLog
from klog.formats.batch import BATCH, ENTRY, OVERHEAD
from klog.formats.damage import Damage, DamageKind, Location
from klog.formats.java_integers import LONG_MAX
from klog.kernel import DONE, MORE, Window
from klog.log.header_walk import read_window
from klog.log.resync import BLOCK_BYTES, describe_damage, next_entry, readable

WINDOW_BYTES = 1 << 19
LARGE_WINDOW_BYTES = 4 << 20
"""The window for batches that do not fit the usual window: otherwise each would be read twice."""
REACH_BYTES = LARGE_WINDOW_BYTES
"""The sizes of broken batches are followed up to this many bytes to an intact one, at any window boundary: no window is
larger.

Without an intact batch in reach the walk continues at the next intact entry, which may be inside the extent that they
claim.
"""
FIRST_WINDOW_BYTES = 1 << 16
SMALL_WINDOW_BYTES = 1 << 13
MAX_BATCH_BYTES = 128 << 20


class WindowResult(NamedTuple):
    """One step of a LogReader: it filled a window with batches; *damage* follows the last of them.

    *consumed*: the number of bytes of the log that it processed.  *stop* is None as long as the walk continues;
    otherwise the reason why a walk like Kafka's ended (a kernel status) and its position: bytes from the start of the
    file.
    """

    number: int
    damage: Damage | None = None
    consumed: int = 0
    stop: tuple[int, int] | None = None


class LogReader:
    """Reads the batches of a log from byte *start* to byte *end*, a window at a time, for any number of threads.

    After damage it continues at the next entry whose header makes sense and whose checksum matches, and whose offset is
    within *min_offset* and *max_offset*.  With *like_kafka* it stops where Kafka's own tools stop, and accepts the
    batches that they accept.  A batch larger than *max_batch_bytes* is never read into memory.  With *stop* it yields
    only batches that begin before that byte, unchanged by the limit: another reader begins there.
    """

    def __init__(
        self,
        source: ReadableLog,
        start: int = 0,
        end: int | None = None,
        *,
        like_kafka: bool = False,
        min_offset: int = 0,
        max_offset: int = LONG_MAX,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        stop: int | None = None,
        checked: bool = False,
    ) -> None:
        self.source = source
        self.position = start
        self.end = source.size if end is None else min(end, source.size)
        self.max_batch_bytes = max_batch_bytes
        self._stop = self.end if stop is None else min(stop, self.end)
        self._like_kafka = like_kafka
        self._checked = checked
        self._min_offset, self._max_offset = min_offset, max_offset
        self._window_bytes = FIRST_WINDOW_BYTES  # small at first: many readers want only a few records
        self._most_bytes = WINDOW_BYTES
        self._number = 0
        self._ended = False
        self._broken: list[int] = []  # positions of entries, each reached from the one before, none of them intact …
        self._broken_end = 0  # … and the position after the last of them
        self._lock = threading.Lock()

    def stop(self) -> None:
        """Make every further `next` return None."""
        self._ended = True

    def next(self, window: Window) -> WindowResult | None:
        """Fill *window* with the next whole batches; None when the log is at its end.

        Raises nothing for content; an unreadable stretch is Damage.
        """
        with self._lock:
            if self._ended or self.position >= min(self._stop, self.end):
                return self._missing(window)
            before = self.position
            piece = self._step(window)
            self._number += 1
            self._window_bytes = min(2 * self._window_bytes, self._most_bytes)
            return piece if piece.consumed else piece._replace(consumed=self.position - before)

    def _missing(self, window: Window) -> WindowResult | None:
        """Return the damage of an object in remote storage that ends too early; None for every other log."""
        missing = getattr(self.source, "missing_bytes", 0)
        if not missing or self._ended or self._like_kafka or self._stop < self.source.size:
            return None
        self._ended = True
        window.load(self.position, 0)
        window.scan(0)
        detail = f"the object ends here, {missing} bytes before the end that the metadata have"
        place = Location(self.source.path, self.position)
        return WindowResult(self._number, Damage(DamageKind.UNREADABLE, place, detail, missing))

    def _step(self, window: Window) -> WindowResult:
        wanted = max(min(self._window_bytes, self._stop - self.position), BATCH.size)
        while True:
            size = min(wanted, self.end - self.position)
            try:
                read = read_window(self.source, window, self.position, size)
            except OSError as error:
                return self._unreadable(window, size, error)
            if read < size:
                self.end = self.position + read  # it has shrunk since it was opened
            status = window.scan(0, self._like_kafka, check=self._checked)
            if self._is_usual(window, status):
                self.position += window.next_at
                return WindowResult(self._number, None, window.next_at)
            larger = self._larger(window) if status == MORE else 0
            if not larger and self._like_kafka:
                return self._piece_like_kafka(window, status)
            if not larger and not self._is_short(window, status):
                return self._careful_piece(window, status)
            wanted = larger or REACH_BYTES
            if larger > WINDOW_BYTES // 2:
                self._most_bytes = LARGE_WINDOW_BYTES

    def _is_usual(self, window: Window, status: int) -> bool:
        """Whether all checksums are known to match, and there is no special case such as the end of the log."""
        usual = self._checked and window.all_hold and status in (DONE, MORE) and not self._like_kafka
        return usual and self.position + window.next_at <= self._stop and self.position + window.size < self.end

    def _larger(self, window: Window) -> int:
        """Return the window size for the whole first entry; 0 if it fits already or cannot fit."""
        if window.count or window.size < ENTRY.size:
            return 0
        need = max(ENTRY.read(window.copy(0, ENTRY.size))[1] + OVERHEAD, BATCH.size)
        if need <= window.size or need > min(self.end - self.position, self.max_batch_bytes):
            return 0
        return need

    def _is_short(self, window: Window, status: int) -> bool:
        """Whether sizes lead from a broken first batch out of the window, though an intact one may be in reach."""
        if not window.count or status not in (DONE, MORE) or window.size >= min(REACH_BYTES, self.end - self.position):
            return False
        return not self._without_bad_tail(window) and not self._leads_nowhere()

    def _leads_nowhere(self) -> bool:
        """Whether no intact entry is in reach from here; looks only at bytes that are newly in reach.

        A full search for each of a million broken entries would read four megabytes a million times.
        """
        at = bisect_left(self._broken, self.position)
        if self._broken[at : at + 1] != [self.position]:
            return False
        del self._broken[:at]
        start, end = self._broken_end, min(self.position + REACH_BYTES, self.end)
        try:
            head = self.source.read(start, ENTRY.size) if end - start > ENTRY.size else b""
            if len(head) < ENTRY.size or ENTRY.read(head)[1] + OVERHEAD > end - start:
                return True
            window = Window(end - start, 1, 1)
            read_window(self.source, window, start, end - start)
        except (OSError, UnreadableError):
            return False
        status = window.scan(0)
        if window.check(0, window.count) < window.count or (status == DONE and end == self.end):
            return False
        self._note_broken(window, 0, status)
        return True

    def _note_broken(self, window: Window, first: int, status: int) -> None:
        """Remember that the entries of the window from *first* on are broken, and the position after them."""
        self._broken += [window.position + window.at(i) for i in range(first, window.count)]
        self._broken_end = window.position + window.next_at if status in (DONE, MORE) else self.end

    def _piece_like_kafka(self, window: Window, status: int) -> WindowResult:
        self.position += window.next_at
        if window.count and status in (DONE, MORE):
            return WindowResult(self._number)  # a rest without a whole entry is looked at again, alone
        self._ended = True
        return WindowResult(self._number, stop=(status, self.position))

    def _careful_piece(self, window: Window, status: int) -> WindowResult:
        """Ensure that the window ends behind an intact batch, so that no damaged length misleads the reader."""
        behind = self._without_others(window)
        if behind < window.next_at and self._without_bad_tail(window) == window.count:
            self.position += behind
            return WindowResult(self._number)
        at_end = self.position + window.size >= self.end
        if status == DONE and at_end:
            self.position = self.end
            return WindowResult(self._number)
        good = self._without_bad_tail(window)
        if good < window.count and window.size >= min(REACH_BYTES, self.end - self.position):
            self._broken = []
            self._note_broken(window, good, status)
        if good and (status == DONE or (status == MORE and not at_end)):
            self.position += window.next_at if good == window.count else window.at(good)
            window.drop(good)
            return WindowResult(self._number)
        at = window.next_at
        if good < window.count:
            at, status = window.at(good), DONE
        window.drop(good)
        return self._resync(self.position + at, self.position + at + 1, status)

    def _without_others(self, window: Window) -> int:
        """Drop the batches from where to stop on; return where those before end, in bytes of the window."""
        own = bisect_left(range(window.count), self._stop - window.position, key=window.at)
        behind = window.at(own) if own < window.count else window.next_at
        window.drop(own)
        return behind

    def _without_bad_tail(self, window: Window) -> int:
        """Return how many batches remain without those at the end whose checksum does not match."""
        count = window.count
        while count and window.check(count - 1, count):
            count -= 1
        return count

    def _next_entry(self, start: int) -> int:
        span = self._min_offset, self._max_offset
        return next_entry(self.source, start, self.end, *span, self.max_batch_bytes)

    def _resync(self, start: int, search: int, status: int) -> WindowResult:
        """Continue at the next intact entry from *search* on; the bytes from *start* on are broken."""
        self._window_bytes = SMALL_WINDOW_BYTES // 2  # damage often comes in groups
        self.position = self._next_entry(search)
        return WindowResult(
            self._number, describe_damage(self.source, start, self.position, self.end, status, self.max_batch_bytes)
        )

    def _unreadable(self, window: Window, size: int, error: OSError) -> WindowResult:
        """Return the bytes before the unreadable block; if they hold no whole batch, continue after it."""
        start = self.position
        before = readable(self.source, start, size)
        read_window(self.source, window, start, before)
        window.scan(0, self._like_kafka)
        behind = self._without_others(window)
        good = self._without_bad_tail(window)
        if good:
            self.position += behind if good == window.count else window.at(good)
            window.drop(good)
            return WindowResult(self._number)
        if self._like_kafka:
            raise error
        window.drop(0)  # a broken batch before the block is lost with it, and is reported once
        behind = ((start + before) // BLOCK_BYTES + 1) * BLOCK_BYTES
        self.position = self._next_entry(behind)
        size = self.position - start
        detail = f"{error.strerror}; {size} bytes are lost"
        return WindowResult(
            self._number, Damage(DamageKind.UNREADABLE, Location(self.source.path, start), detail, size)
        )
