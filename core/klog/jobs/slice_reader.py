"""Reads the records of a slice, window by window, and the damage between them.

for found in records(part, RecordFilter(), Window(), Decompressor().functions):
    print(found if isinstance(found, Damage) else found.records)
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from klog.base.errors import KlogError
from klog.base.files.read_only import ReadOnlyFile
from klog.base.location import Location
from klog.data_dir.lock_state import lock_state
from klog.data_dir.partition import Partition
from klog.data_dir.preallocation import is_preallocated_tail
from klog.formats.codec import Decompressor
from klog.formats.damage import Damage, DamageKind
from klog.formats.java_integers import LONG_MAX
from klog.formats.names import FileKind
from klog.jobs.slices import LogSlice
from klog.kernel import Window
from klog.log.reader import MAX_BATCH_BYTES, LogReader
from klog.log.record_filter import RecordFilter
from klog.log.records import BatchRun, BatchTaker, Codecs, OffsetRange, intact_runs, message_damages, wanted_rows
from klog.partition.transactions.isolation import AbortedFilter

_ROWS = 16 << 10


def records(
    part: LogSlice,
    wanted: RecordFilter,
    window: Window,
    codecs: Codecs,
    max_batch_bytes: int = MAX_BATCH_BYTES,
    controls: bool = False,
    taker: BatchTaker | None = None,
) -> Iterator[Window | Damage]:
    """Yield a window each time that rows of wanted records are filled in it, and a Damage for each damaged stretch.

    A window is to be used before the next step, and need not be *window*.  Control records are left out unless there
    are to be *controls*, and so is whatever the slice says is not to be seen; *wanted*'s limit and tail do not count.
    Raises nothing for content, nor for a log that cannot be read, has shrunk or was changed since the slice was made:
    that is damage; a log that a running broker has removed has no records.  *taker* may take batches whole; it then has
    to leave out what is not wanted.
    """
    try:
        with ReadOnlyFile(part.path) as source:
            yield from _SliceWalk(part, wanted, max_batch_bytes, controls).all(source, window, codecs, taker)
    except KlogError as error:
        if _was_removed(part.path):
            return
        yield Damage(DamageKind.UNREADABLE, Location(part.path), str(error).removeprefix(part.path).lstrip(" :"))


def _was_removed(path: str) -> bool:
    """Whether a log is gone from the log dir of a running broker: retention and compaction remove segments."""
    log_dir = os.path.dirname(os.path.dirname(path))
    return not os.path.lexists(path) and bool(lock_state(os.path.join(log_dir, FileKind.LOCK.value)).held)


class _SliceWalk:
    """One slice while it is read."""

    def __init__(self, part: LogSlice, wanted: RecordFilter, max_batch_bytes: int, controls: bool) -> None:
        self._part = part
        self._span = part.span
        self._wanted = wanted._replace(
            from_offset=max(wanted.from_offset, part.from_offset),
            to_offset=min(wanted.to_offset, part.to_offset),
            controls=controls,
        )
        self._hiding = None
        if part.aborted is not None:
            self._hiding = AbortedFilter(part.aborted, part.path, part.aborted_from, part.aborted_to)
        self._max_batch_bytes = max_batch_bytes
        self._end = part.start  # of what was read last and is intact, in bytes
        self._next_offset = self._span.min_offset  # the one behind that

    def all(
        self, source: ReadOnlyFile, window: Window, codecs: Codecs, taker: BatchTaker | None
    ) -> Iterator[Window | Damage]:
        """Yield the rows and the damage of the slice."""
        part = self._part
        reader = LogReader(
            source,
            part.start,
            part.log_bytes,
            min_offset=self._span.min_offset,
            max_offset=self._span.max_offset,
            max_batch_bytes=self._max_batch_bytes,
            stop=part.end,
        )
        while piece := reader.next(window):
            for found in wanted_rows(self._runs(window), self._wanted, codecs, part.path, taker):
                if isinstance(found, Damage):
                    yield found
                    continue
                bad = message_damages(found, part.path)
                yield found
                yield from bad
            if piece.damage and not self._is_room(piece.damage):
                yield piece.damage
        yield from self._changed(reader)

    def _runs(self, window: Window) -> Iterator[BatchRun | Damage]:
        """Yield the intact batches of the slice and the damaged ones, and what is wrong with markers."""
        window.check(0, window.count)
        between = OffsetRange(self._next_offset, self._span.max_offset)
        self._note_end(window)
        yield from self._leave_out(window)
        latest = window
        for run in intact_runs(window, self._part.path, between):
            if run.window is not latest:
                latest = run.window
                self._leave_to_others(latest)
                yield from self._leave_out(latest)
            yield run

    def _leave_out(self, window: Window) -> list[Damage]:
        """Leave out the batches that are not wanted or not to be seen; return what is wrong with markers."""
        self._wanted.skip(window)
        return self._hiding.hide(window) if self._hiding else []

    def _leave_to_others(self, window: Window) -> None:
        """Leave out the batches of another slice, where a damaged length swallowed them with the last of this one."""
        for i in range(window.count):
            if window.position + window.at(i) >= self._part.end:
                window.skip(i)

    def _note_end(self, window: Window) -> None:
        if window.count:
            last = window.batch(window.count - 1)
            if last.crc_holds:
                self._end = last.position + last.size
                self._next_offset = min(last.last_offset, LONG_MAX - 1) + 1

    def _is_room(self, damage: Damage) -> bool:
        """Whether the damage is only space at the end of a log, for a batch that is or was to be written."""
        part = self._part
        if not damage.is_unfinished or part.next_base is not None:
            return False
        return part.live or is_preallocated_tail(Partition(os.path.dirname(part.path)), damage)

    def _changed(self, reader: LogReader) -> Iterator[Damage]:
        """Yield what is wrong if the log is no longer the one that was cut, or was cut where an index led astray."""
        part = self._part
        if reader.end < min(part.end, part.log_bytes):
            detail = f"the log ends here; it had {part.log_bytes} bytes when it was looked at"
            yield Damage(DamageKind.UNREADABLE, Location(part.path, reader.end), detail, part.end - reader.end)
        elif self._end > part.end:
            detail = f"a batch reaches beyond byte {part.end}, where its index has another one begin"
            yield Damage(DamageKind.BAD_INDEX, Location(part.path, part.end), detail)


class SliceScan:
    """Reads data records as *wanted*, whose limit does not count, control records too if there are to be *controls*.

    No batch larger than *max_batch_bytes* is read.
    """

    def __init__(self, wanted: RecordFilter, max_batch_bytes: int = MAX_BATCH_BYTES, *, controls: bool = False) -> None:
        self._wanted, self._max_batch_bytes, self._controls = wanted, max_batch_bytes, controls
        self._window = Window(records=_ROWS)
        self._codecs = Decompressor(max_batch_bytes).functions

    @property
    def position(self) -> int:
        """Where in its log the last window began: bytes."""
        return self._window.position

    def read(self, part: LogSlice, taker: BatchTaker | None = None) -> Iterator[Window | Damage]:
        """Yield the record rows of a slice, each window good until the next step, and damage in its place.

        There are no rows of batches that *taker* takes.
        Raises nothing: what cannot be read is damage too.
        """
        return records(part, self._wanted, self._window, self._codecs, self._max_batch_bytes, self._controls, taker)
