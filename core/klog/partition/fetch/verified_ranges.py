"""The ranges of a log that are known to be intact or damaged: each checksum is computed once, before its batch is sent.

It stores ranges, not batches: a log without damage that was read from end to end is one range, with a mark every 960
KiB at the beginning of a slice.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Final, NamedTuple

from klog.base.read_only import ReadOnlyFile
from klog.formats.damage import Damage, DamageKind, Location
from klog.kernel import Window
from klog.log.reader import LogReader
from klog.log.records import BatchRun, OffsetRange, intact_runs
from klog.partition.fetch.read_slices import SLICE_BYTES, Slice, SliceCache

AHEAD_BYTES: Final = 1 << 20
"""The number of bytes that are read at once, also for smaller requests."""
_BEHIND_ALL: Final = 1 << 63


class UnservedRange(NamedTuple):
    """A damaged range that is not served; *after* is the last offset before it, None if that is unknown."""

    damage: Damage
    size: int
    after: int | None


class VerifiedRange(NamedTuple):
    """Intact batches from byte *start* to byte *end*, in which there are *marks*: positions of batches."""

    start: int
    end: int
    marks: array[int]


class VerifiedRanges:
    """The ranges of one log.  *report* receives each damaged range once.  Any number of threads may use it."""

    def __init__(
        self, path: str, span: OffsetRange, size: int, slices: SliceCache, report: Callable[[UnservedRange], None]
    ) -> None:
        self.size = size
        self.next_offset: int | None = None  # after the last intact batch that is known
        self.transactional = False  # whether a batch of a transaction was seen
        self._last_at = -1
        self._path, self._span, self._slices, self._report = path, span, slices, report
        self._stretches: tuple[
            VerifiedRange, ...
        ] = ()  # ascending; replaced as a whole, for who looks without the lock
        self._damaged: dict[int, int] = {}
        self._lock = threading.Lock()

    def intact(self, source: ReadOnlyFile, position: int, ahead: int) -> tuple[int, int]:
        """Return the first range of intact batches from *position* on, known for *ahead* bytes if it is that long.

        A batch, or damage, begins at *position*.  At the end of the log the range is empty.  Reads unread bytes.
        """
        known = self._known(position, ahead)
        if known is None:
            with self._lock:
                while (known := self._known(position, ahead)) is None:
                    self._read_on(source, position, ahead)
        return known

    def _known(self, position: int, ahead: int) -> tuple[int, int] | None:
        """Return the range from *position* on, None if too little is known.  It waits for no other reader."""
        while (behind := self._damaged.get(position)) is not None:
            position = behind
        if position >= self.size:
            return self.size, self.size
        stretch = self._holding(position)
        if stretch is None:
            return None
        end = stretch.end
        enough = end - position >= ahead or end >= self.size or end in self._damaged
        return (position, end) if enough else None

    def _read_on(self, source: ReadOnlyFile, position: int, ahead: int) -> None:
        """Read the unknown part from *position* on."""
        while (behind := self._damaged.get(position)) is not None:
            position = behind
        stretch = self._holding(position)
        end = position if stretch is None else stretch.end
        self._read(source, end, max(position + ahead, end + AHEAD_BYTES))
        if end < self.size and end not in self._damaged and self._holding(end) is None:
            place = Location(self._path, end)  # otherwise the caller would never stop asking
            self._note(Damage(DamageKind.BAD_LENGTH, place, "it leads nowhere", self.size - end), None)

    def slice_at(self, source: ReadOnlyFile, position: int) -> Slice | None:
        """Return intact batches that contain byte *position*; None if unknown to be intact.

        Raises UnreadableError.
        """
        known = self._holding(position)
        if known is None:
            return None
        start = known.marks[bisect_right(known.marks, position) - 1]
        return self._slices.at(source, position, start, known.end)

    def note(self, damage: Damage, after: int | None = None) -> None:
        """Add damage that another reader has found."""
        with self._lock:
            self._note(damage, after)

    def shrink(self, size: int) -> None:
        """Note that the log ends at *size* by now: all ranges are forgotten."""
        with self._lock:
            if size < self.size:
                self.size = size
                self._stretches = ()
                self.next_offset, self._last_at = None, -1

    # ------------------------------------------------------------ reading

    def _read(self, source: ReadOnlyFile, start: int, through: int) -> None:
        """Compute checksums from *start*, the position of a batch or of damage, until *through* has been passed."""
        reader = LogReader(source, start, self.size, min_offset=self._span.min_offset, max_offset=self._span.max_offset)
        with self._slices.windows.borrowed() as window:
            while reader.position < through:
                piece = reader.next(window)
                if piece is None:
                    self.size = min(self.size, max(reader.end, start))  # it has shrunk
                    return
                after = None
                for run in intact_runs(window, self._path, self._span):
                    after = self._take(run)
                if piece.damage is not None:
                    self._note(piece.damage, after)

    def _take(self, run: BatchRun) -> int | None:
        """Add a run of a window; return the last offset of its intact part."""
        window, first, end = run.window, run.first, run.end
        if run.damage is not None:
            self._note(run.damage, window.batch(first - 1).last_offset if first else None)
            return None
        last = window.batch(end - 1)
        start, behind = window.position + window.at(first), last.position + last.size
        if behind > self._last_at:
            self._last_at, self.next_offset = behind, last.last_offset + 1
        self.transactional = self.transactional or bool(window.transactional(first, end))
        self._add(start, behind, _marks(window, first, end))
        return last.last_offset

    def _note(self, damage: Damage, after: int | None) -> None:
        start, size = damage.place.position or 0, damage.size or 0
        if size and start not in self._damaged:
            self._damaged[start] = start + size
            self._report(UnservedRange(damage, size, after))

    # ------------------------------------------------------------ ranges

    def _holding(self, position: int) -> VerifiedRange | None:
        stretches = self._stretches
        i = bisect_right(stretches, (position, _BEHIND_ALL)) - 1
        return stretches[i] if i >= 0 and position < stretches[i].end else None

    def _add(self, start: int, end: int, marks: array[int]) -> None:
        """Record that batches from *start* to *end* are intact; adjacent ranges become one."""
        stretches = self._stretches
        i = bisect_left(stretches, start, key=lambda stretch: stretch.end)
        kept, j = marks, i
        while j < len(stretches) and stretches[j].start <= end:
            other = stretches[j]
            if j == i and other.start <= start:
                near = other.marks[-1] + SLICE_BYTES // 2
                other.marks.extend(mark for mark in kept if mark >= max(other.end, near))
                kept = other.marks
            else:
                kept.extend(mark for mark in other.marks if mark >= end)
            start, end = min(start, other.start), max(end, other.end)
            j += 1
        self._stretches = (*stretches[:i], VerifiedRange(start, end, kept), *stretches[j:])


def _marks(window: Window, first: int, end: int) -> array[int]:
    """Return the position of the first batch, and about one every SLICE_BYTES behind it."""
    found = array("q")
    while first < end:
        found.append(window.position + window.at(first))
        first = bisect_left(range(window.count), window.at(first) + SLICE_BYTES, lo=first + 1, hi=end, key=window.at)
    return found
