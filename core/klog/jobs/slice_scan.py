"""Decides which records of a log are read, and where its damage is reported, for dumps and jobs; reads those of slices.

scan = SliceScan(RecordFilter())
for found in scan.read(part):
    print(found if isinstance(found, Damage) else found.records)
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Literal

from klog.base.errors import KlogError
from klog.base.overlays import shown_path
from klog.base.read_only import ReadOnlyFile
from klog.data_dir.log_dir import lock_state
from klog.data_dir.partition import Partition
from klog.data_dir.zeroed_tail import is_preallocated_tail
from klog.formats.codec import Decompressor
from klog.formats.damage import Damage, DamageKind, Location
from klog.formats.java_integers import LONG_MAX
from klog.formats.names import FileKind
from klog.jobs.slices import LogSlice
from klog.kernel import Window
from klog.log.reader import MAX_BATCH_BYTES, LogReader, WindowResult
from klog.log.records import (
    BatchRun,
    BatchTaker,
    Codecs,
    OffsetRange,
    RecordFilter,
    RecordLimit,
    decoded_rows,
    intact_runs,
    message_damages,
)
from klog.partition.transactions.isolation import AbortedFilter, TxnBatch


class RecordStream:
    """A log, or a part of it, that is read.  Several threads may use it, each with windows of its own.

    *file*: the name of the log in damage.  *span*: the offsets that it can have.  *wanted*: the filter of records.
    *aborted*: the filter of aborted ones, None if all are shown.  *decoded* counts the records that were read, matching
    or not; a single thread can rely on it.  *next_offset*: behind the last intact batch that `read` has passed.
    """

    def __init__(self, file: str, span: OffsetRange, wanted: RecordFilter, aborted: AbortedFilter | None) -> None:
        self.file, self.span, self.wanted, self.aborted = file, span, wanted, aborted
        self.decoded = 0
        self.next_offset = span.min_offset

    def is_end(self, damage: Damage) -> bool:
        """Whether *damage* is no damage, but an end of the log that is being written or was cut off."""
        return False

    def leave_out(self, window: Window) -> tuple[bool, Sequence[TxnBatch]]:
        """Hide the batches of *window* that do not match or cannot be seen.

        Returns whether all later batches can be skipped, and the other batches of transactions: in the order of the log
        they are the input of `aborted.contradictions`.
        """
        is_last = self.wanted.skip(window)
        if self.aborted is None:
            return is_last, ()
        window.check(0, window.count)
        return is_last, self.aborted.skip(window)

    def runs(self, window: Window) -> Iterator[BatchRun | Damage]:
        """Yield the intact batches of *window* that are not hidden, and the damaged ones."""
        return intact_runs(window, self.file, self.span)

    def rows(self, window: Window, codecs: Codecs, taker: BatchTaker | None = None) -> Iterator[Window | Damage]:
        """Yield a window each time that it is filled with rows of matching records, and each damage in its place."""
        for found in decoded_rows(self.runs(window), codecs, self.file, taker):
            if isinstance(found, Window):
                self.decoded += found.records
                self.wanted.keep(found)
            if isinstance(found, Damage) or found.records:
                yield found

    def behind(self, piece: WindowResult, txns: Sequence[TxnBatch]) -> list[Damage]:
        """Return the damage behind a window, and that of the markers among *txns*; to be called in the log's order."""
        found = self.aborted.contradictions(txns) if txns and self.aborted else []
        return found if piece.damage is None or self.is_end(piece.damage) else [*found, piece.damage]

    def read(
        self, reader: LogReader, window: Window, codecs: Codecs, count: RecordLimit, taker: BatchTaker | None = None
    ) -> Iterator[Window | Damage]:
        """Yield the rows of all windows of *reader*, cut by *count*, and the damage in its place or behind them.

        Use a window before the next step; it need not be *window*.  Batches that *taker* takes have no rows.
        """
        while count.left != 0 and (piece := reader.next(window)):
            is_last, txns = self.leave_out(window)
            for found in self.rows(window, codecs, taker):
                if isinstance(found, Damage):
                    yield found
                    continue
                count.take(found)
                bad = message_damages(found, self.file)
                yield found
                yield from bad
            yield from self.behind(piece, txns)
            self._note_end(window)
            if is_last:
                return

    def _note_end(self, window: Window) -> None:
        """Note the end of the last batch whose checksum was computed and holds: those that are left out have none."""
        for i in range(window.count - 1, -1, -1):
            last = window.batch(i)
            if last.crc_holds:
                self.next_offset = min(last.last_offset, LONG_MAX - 1) + 1
                return


_ROWS = 16 << 10


class SliceScan:
    """Reads data records that match *wanted*, whose limit does not count, and control records if *controls*.

    No batch larger than *max_batch_bytes* is read.  *decoded* counts the records that were read, matching or not.
    """

    def __init__(self, wanted: RecordFilter, max_batch_bytes: int = MAX_BATCH_BYTES, *, controls: bool = False) -> None:
        self._wanted, self._max_batch_bytes = wanted._replace(controls=controls), max_batch_bytes
        self._window = Window(records=_ROWS)
        self._codecs = Decompressor(max_batch_bytes).functions
        self.decoded = 0

    @property
    def position(self) -> int:
        """The position in its log at which the last window began: bytes."""
        return self._window.position

    def read(self, part: LogSlice, taker: BatchTaker | None = None) -> Iterator[Window | Damage]:
        """Yield the record rows of a slice, each window to be used before the next step, and damage in its place.

        There are no rows of batches that *taker* takes: it has to leave out those that do not match.  Raises nothing
        for content, nor for a log that cannot be read, has shrunk or was changed since the slice was made: that is
        damage; a log that a running broker has removed has no records.
        """
        try:
            with ReadOnlyFile(part.path, until=part.end) as source:
                stream = _SliceStream(part, self._wanted)
                reader = stream.reader(source, self._max_batch_bytes)
                try:
                    yield from stream.read(reader, self._window, self._codecs, RecordLimit(None), taker)
                finally:
                    self.decoded += stream.decoded
                yield from stream.changed(reader)
        except KlogError as error:
            if not _was_removed(part.path):
                file = shown_path(part.path)
                reason = str(error).removeprefix(file).lstrip(" :")
                yield Damage(DamageKind.UNREADABLE, Location(file), reason)


def _was_removed(path: str) -> bool:
    """Whether a log or a partition directory is gone from the log dir of a running broker, which removes them."""
    if os.path.lexists(path):
        return False
    above = os.path.dirname(path)
    return any(lock_state(os.path.join(one, FileKind.LOCK.value)).held for one in (above, os.path.dirname(above)))


class _SliceStream(RecordStream):
    """One slice while it is read: batches behind its end are those of another slice."""

    def __init__(self, part: LogSlice, wanted: RecordFilter) -> None:
        # Offsets that count from the log end are those of the slice.
        from_offset = max(wanted.from_offset, part.from_offset)
        to_offset = part.to_offset if wanted.to_offset < 0 else min(wanted.to_offset, part.to_offset)
        aborted = None
        if part.aborted is not None:
            aborted = AbortedFilter(part.aborted, part.path, part.aborted_from, part.aborted_to)
        wanted = wanted._replace(from_offset=from_offset, to_offset=to_offset)
        super().__init__(shown_path(part.path), part.span, wanted, aborted)
        self._part = part
        self._end = part.start  # of the last intact batch that was read, in bytes

    def reader(self, source: ReadOnlyFile, max_batch_bytes: int) -> LogReader:
        """Return the reader of its windows."""
        return LogReader(
            source,
            self._part.start,
            self._part.log_bytes,
            min_offset=self.span.min_offset,
            max_offset=self.span.max_offset,
            max_batch_bytes=max_batch_bytes,
            stop=self._part.end,
        )

    def leave_out(self, window: Window) -> tuple[Literal[False], Sequence[TxnBatch]]:
        """Leave it to `runs`, for windows inside a damaged length as well; other slices have the later batches."""
        return False, ()

    def runs(self, window: Window) -> Iterator[BatchRun | Damage]:
        """Yield the intact batches of the slice, the damaged ones, and before them the damage of markers."""
        window.check(0, window.count)
        between = OffsetRange(self.next_offset, self.span.max_offset)
        self._note_end(window)
        yield from self._hide(window)
        latest = window
        for run in intact_runs(window, self.file, between):
            if run.window is not latest:
                latest = run.window
                self._leave_to_others(latest)
                yield from self._hide(latest)
            yield run

    def _hide(self, window: Window) -> list[Damage]:
        _, txns = super().leave_out(window)
        return self.aborted.contradictions(txns) if self.aborted else []

    def _leave_to_others(self, window: Window) -> None:
        """Leave out the batches of another slice, where a damaged length swallowed them with the last of this one."""
        for i in range(window.count):
            if window.position + window.at(i) >= self._part.end:
                window.skip(i)

    def _note_end(self, window: Window) -> None:
        super()._note_end(window)
        last = window.batch(window.count - 1) if window.count else None
        if last is not None and last.crc_holds:
            self._end = last.position + last.size

    def is_end(self, damage: Damage) -> bool:
        """Whether the damage is only space at the end of a log, for a batch that is or was to be written."""
        part = self._part
        if not damage.is_unfinished or part.next_base is not None:
            return False
        return part.live or is_preallocated_tail(Partition(os.path.dirname(part.path)), damage)

    def changed(self, reader: LogReader) -> Iterator[Damage]:
        """Yield the damage of a log that changed since it was cut, or that was cut where its index is wrong."""
        part = self._part
        if reader.end < min(part.end, part.log_bytes):
            detail = f"the log ends here; it had {part.log_bytes} bytes when it was looked at"
            yield Damage(DamageKind.UNREADABLE, Location(part.path, reader.end), detail, part.end - reader.end)
        elif self._end > part.end:
            detail = f"a batch reaches beyond byte {part.end}, where its index has another one begin"
            yield Damage(DamageKind.BAD_INDEX, Location(part.path, part.end), detail)
