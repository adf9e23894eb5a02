"""A segment: one `.log` file, named after its base offset."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from klog.base.read_only import ReadableLog, ReadOnlyFile
from klog.formats.codec import Decompressor
from klog.formats.damage import Damage, DamageKind
from klog.formats.java_integers import LONG_MAX, LONG_MIN
from klog.kernel import Window
from klog.log.batch import Batch
from klog.log.reader import MAX_BATCH_BYTES, LogReader
from klog.log.records import BatchRun, Codecs, OffsetRange, decode_window, intact_runs

MAX_SEGMENT_BYTES = 2**31 - 1
"""A broker opens no larger `.log`: positions in a segment are int32."""

MAX_RELATIVE_OFFSET = 2**31 - 1
"""Offsets in a segment are at most this far above its base offset: an index stores the difference as an int32."""

_BELIEVED = 1 << 48
"""The range of offsets above the base that a repair believes behind damage: a million a second for nine years."""
_LIBRARY_ROWS = 64


class BatchTotals(NamedTuple):
    """The content of a segment: intact batches, their records (None if not decoded), bytes, damaged stretches."""

    batches: int
    records: int | None
    bytes: int
    damaged: int


class Segment:
    """A `.log`, by its path; nothing is opened before it is read.

    *base_offset* is None when the file's name does not begin with a number.  *bounded*: behind damage only batches
    count whose offsets fit the segment; a repair also needs the others.
    """

    def __init__(self, path: str, *, bounded: bool = True) -> None:
        self.path = path
        stem = os.path.basename(path).split(".", 1)[0]
        self.base_offset = int(stem) if stem.isascii() and stem.isdigit() and int(stem) < 2**63 else None
        base, reach = self.base_offset or 0, MAX_RELATIVE_OFFSET if bounded else _BELIEVED
        self.span = OffsetRange() if self.base_offset is None else OffsetRange(base, min(base + reach, LONG_MAX))

    def reader(
        self,
        source: ReadableLog,
        start: int = 0,
        end: int | None = None,
        *,
        like_kafka: bool = False,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        checked: bool = False,
    ) -> LogReader:
        """Return a reader over the open file from byte *start* on, the position of a batch."""
        min_offset, max_offset = self.span.min_offset, self.span.max_offset
        return LogReader(
            source,
            start,
            end,
            like_kafka=like_kafka,
            min_offset=min_offset,
            max_offset=max_offset,
            max_batch_bytes=max_batch_bytes,
            checked=checked,
        )

    def batches(
        self, start: int = 0, *, resync: bool = True, max_batch_bytes: int = MAX_BATCH_BYTES
    ) -> Iterator[Batch | Damage]:
        """Yield the batches from byte *start* on, and a Damage for each stretch that is damaged.

        A batch whose checksum does not match is a Damage, not a Batch.  After a Damage the walk continues at the next
        position with a valid header *and* a matching checksum, or, without *resync*, ends.  Content never raises; a
        file that cannot be opened does (UnreadableError, NotKafkaError).
        """
        with ReadOnlyFile(self.path) as source:
            reader = self.reader(source, start, max_batch_bytes=max_batch_bytes)
            while True:
                window = Window(1, _LIBRARY_ROWS, 1)
                piece = reader.next(window)
                if piece is None:
                    return
                for run in intact_runs(window, self.path, self.span):
                    if run.damage:
                        yield run.damage
                        if not resync:
                            return
                        continue
                    for i in range(run.first, run.end):
                        yield Batch.of_row(run.window, i, self.path)
                if piece.damage:
                    yield piece.damage
                    if not resync:
                        return

    def runs(
        self,
        start: int = 0,
        end: int | None = None,
        *,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        window: Window | None = None,
    ) -> Iterator[BatchRun | Damage]:
        """Yield runs of intact batches from byte *start* to byte *end*, and a Damage for each stretch that is damaged.

        Use a run before the next step: windows are filled again.  *window*: one to use; a caller that reads many small
        segments keeps it.  Raises as `batches` does.
        """
        window = window or Window(output=0)
        with ReadOnlyFile(self.path) as source:
            reader = self.reader(source, start, end, max_batch_bytes=max_batch_bytes)
            while piece := reader.next(window):
                for run in intact_runs(window, self.path, self.span):
                    yield run.damage or run
                if piece.damage:
                    yield piece.damage

    def record_windows(
        self, first: int = LONG_MIN, window: Window | None = None, codecs: Codecs | None = None
    ) -> Iterator[Window | Damage]:
        """Yield a window each time that its rows are filled with records, and a Damage for each unreadable part.

        Batches that end below offset *first* are not decoded.  Use a window before the next step; *window*: the one to
        fill; *codecs*: instead of a decompressor's own.  Raises as `batches` does.
        """
        window, codecs = window or Window(), codecs or Decompressor().functions
        with ReadOnlyFile(self.path) as source:
            reader = self.reader(source)
            while piece := reader.next(window):
                if first > LONG_MIN:
                    window.skip_outside(first, LONG_MAX, LONG_MIN)
                for rows, damage in decode_window(window, codecs, self.path, self.span):
                    yield damage or rows
                if piece.damage:
                    yield piece.damage

    def totals(self, deep: bool = False, *, max_batch_bytes: int = MAX_BATCH_BYTES) -> BatchTotals:
        """Read the whole segment and check every batch; with *deep*, decompress and decode every record too."""
        window = Window()
        codecs = Decompressor().functions
        batches = records = damaged = 0
        with ReadOnlyFile(self.path) as source:
            reader = self.reader(source, max_batch_bytes=max_batch_bytes, checked=True)
            while piece := reader.next(window):
                damaged += piece.damage is not None
                for run in intact_runs(window, self.path, self.span):
                    damaged += run.damage is not None
                    batches += 0 if run.damage else run.end - run.first
                if not deep:
                    continue
                for rows, damage in decode_window(window, codecs, self.path, self.span):
                    if damage is None:
                        records += rows.records
                    elif damage.kind is not DamageKind.BAD_CRC:
                        damaged += 1
        return BatchTotals(batches, records if deep else None, source.size, damaged)
