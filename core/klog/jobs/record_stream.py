"""Decides which records of a log are read, and where its damage is reported, for dumps and for jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from klog.formats.damage import Damage
from klog.kernel import Window
from klog.log.reader import LogReader, WindowResult
from klog.log.record_filter import RecordFilter, RecordLimit
from klog.log.records import (
    BatchRun,
    BatchTaker,
    Codecs,
    OffsetRange,
    intact_runs,
    message_damages,
    wanted_rows,
)
from klog.partition.transactions.isolation import AbortedFilter, TxnBatch


class RecordStream:
    """A log, or a part of it, that is read.  Several threads may use it, each with windows of its own.

    *file*: the name of the log in damage.  *span*: the offsets that it can have.  *wanted*: the filter of records.
    *aborted*: the filter of aborted ones, None if all are shown.
    """

    def __init__(self, file: str, span: OffsetRange, wanted: RecordFilter, aborted: AbortedFilter | None) -> None:
        self.file, self.span, self.wanted, self.aborted = file, span, wanted, aborted

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
        return wanted_rows(self.runs(window), self.wanted, codecs, self.file, taker)

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
            if is_last:
                return
