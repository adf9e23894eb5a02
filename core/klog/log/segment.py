"""A segment: one `.log` file, named after its base offset, and its batches, each with its records on request."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from klog.base.read_only import ReadableLog, ReadOnlyFile
from klog.formats.batch import BatchFacts
from klog.formats.codec import Decompressor
from klog.formats.damage import Damage, DamageKind, Location
from klog.formats.java_integers import LONG_MAX, LONG_MIN
from klog.formats.record import Record
from klog.kernel import BAD_COUNT, MORE, Window
from klog.log.header_walk import window_of
from klog.log.reader import MAX_BATCH_BYTES, LogReader
from klog.log.records import BatchRun, Codecs, OffsetRange, decode_window, intact_runs


class Batch(BatchFacts):
    """An entry of a log: a record batch (magic 2), a message or a wrapper of messages (magic 0, 1).

    It is row *row* of *window*, read from *file*.  The base offset of a wrapper is known only once its records have
    been read; until then it is its last offset.
    """

    file: str
    window: Window
    row: int

    @classmethod
    def of_row(cls, window: Window, row: int, file: str) -> Batch:
        """Return batch *row* of *window*, which was read from *file*."""
        batch = tuple.__new__(cls, window.batch(row))
        batch.file, batch.window, batch.row = file, window, row
        return batch

    def records(self, decompressor: Decompressor | None = None) -> Iterator[Record | Damage]:
        """Yield the records; a Damage comes last if their structure is broken.

        Check `crc_holds`: the records of a batch whose checksum does not match are unreliable.
        """
        codecs = (decompressor or Decompressor()).functions
        own = window_of(self.content(), self.position)  # of its own, so that several batches can be read in turns
        own.scan(0)
        if own.decompress(0, 1, codecs) == 0:
            yield self._damage(DamageKind.BAD_COMPRESSION, str(own.error))
            return
        own.begin(0, 1)
        status = MORE
        while status == MORE:
            status = own.decode()
            for i in range(own.records):
                offset, timestamp, key, value, headers, sequence, _ = own.record(i)
                if headers is None:
                    yield self._damage(DamageKind.BAD_RECORD, f"record {offset} has more headers than klog takes")
                    return
                yield Record(offset, timestamp, key, value, headers, sequence)
        if status:
            reason = "more or fewer bytes than the records take" if status == BAD_COUNT else "its structure is broken"
            yield self._damage(DamageKind.BAD_RECORD, f"record {own.decoding_record} of the batch: {reason}")

    def content(self) -> bytes:
        """Return the bytes of the batch in the file, with its header."""
        start = self.window.at(self.row)
        return self.window.copy(start, start + self.size)

    def _damage(self, kind: DamageKind, detail: str) -> Damage:
        return Damage(kind, Location(self.file, self.position, self.base_offset), detail, self.size)


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
