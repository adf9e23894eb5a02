"""Slices of logs as windows of the record rows that are wanted, and what is wrong in between."""

from __future__ import annotations

from collections.abc import Iterator

from klog.decode import decoded, message_damages
from klog.errors import KlogError
from klog.formats.codec import Decompressor
from klog.formats.damage import Damage, DamageKind
from klog.kernel import Window
from klog.place import Place
from klog.reader import MAX_BATCH_BYTES, LogReader
from klog.source import Source
from klog.wanted import Wanted
from klog.work import Slice

_ROWS = 16 << 10


class Scan:
    """Reads slices one after the other with the same buffers: data records as *wanted*, never markers."""

    def __init__(self, wanted: Wanted, max_batch_bytes: int = MAX_BATCH_BYTES) -> None:
        self._wanted, self._max_batch_bytes = wanted._replace(controls=False), max_batch_bytes
        self._window = Window(records=_ROWS)
        self._codecs = Decompressor(max_batch_bytes).functions

    @property
    def position(self) -> int:
        """Where in its log the last window began, or the next one does: bytes."""
        return self._window.position

    def read(self, part: Slice) -> Iterator[Window | Damage]:
        """Yield the record rows of a slice, each window good until the next step, and damage in its place.

        Raises nothing: what cannot be opened or has shrunk is damage too.
        """
        try:
            with Source(part.path) as source:
                yield from self._rows(part, source)
                if source.size < part.end:
                    size = part.end - max(source.size, part.start)
                    place = Place(part.path, max(source.size, part.start))
                    yield Damage(DamageKind.UNREADABLE, place, f"{size} bytes less than when it was planned", size)
        except KlogError as error:
            detail = str(error).removeprefix(f"{part.path}: ")
            yield Damage(DamageKind.UNREADABLE, Place(part.path, part.start), detail, part.bytes)

    def _rows(self, part: Slice, source: Source) -> Iterator[Window | Damage]:
        window, span = self._window, part.span
        wanted = self._wanted._replace(
            from_offset=max(self._wanted.from_offset, part.from_offset),
            to_offset=min(self._wanted.to_offset, part.to_offset),
        )
        reader = LogReader(
            source, part.start, part.log_bytes, floor=span.floor, ceiling=span.ceiling,
            max_batch_bytes=self._max_batch_bytes, stop=part.end,
        )  # fmt: skip
        while piece := reader.next(window):
            beyond = wanted.skip(window)
            _skip_aborted(window, part)
            for rows, damage in decoded(window, self._codecs, part.path, span):
                if damage is not None:
                    yield damage
                    continue
                wanted.keep(rows)
                bad = message_damages(rows, part.path)
                if rows.records:
                    yield rows
                yield from bad
            if piece.damage is not None and not (part.live and piece.damage.is_unfinished):
                yield piece.damage
            if beyond:
                return


def _skip_aborted(window: Window, part: Slice) -> None:
    """Leave out the batches of aborted transactions."""
    if not part.aborted:
        return
    for i in window.transactional(0, window.count):
        facts = window.batch(i)
        if any(
            txn.producer_id == facts.producer_id and txn.first_offset <= facts.base_offset <= txn.last_offset
            for txn in part.aborted
        ):
            window.skip(i)
