"""The batches of one copy, in the order of their offsets, identified by their headers.

A batch whose checksum does not match contains nothing.  Neither does one with impossible offsets for its position: the
checksum covers neither the base offset nor the leader epoch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from struct import Struct
from typing import NamedTuple

from klog.commands.replicas.source_log import position_in
from klog.data_dir.partition import Partition
from klog.formats.batch import CONTROL_BIT, TRANSACTIONAL_BIT
from klog.formats.codec import Decompressor
from klog.formats.damage import Damage, DamageKind, Location
from klog.kernel import Window, ascending_run, batch_identities
from klog.log.json_lines import LineStyle, record_lines
from klog.log.records import BatchRun, decode_run
from klog.log.segment import Segment
from klog.partition.start.kept_log import KeptLog
from klog.partition.start.misleading_index import SegmentIndexes

IDENTITY = Struct("=qqiIihbx")
IDENTITY_BYTES = IDENTITY.size
MOST_BAD_BATCHES = 1000
"""Kept one by one; a log can be all damage."""

MOST_LINE_BYTES = 256 << 20
"""The limit for the JSON line of one record: sixty million headers take ten times their bytes."""

_LONG_MAX = 2**63 - 1
_free_windows: list[Window] = []
"""Windows of copies that have been read: a new one for each of many small copies would cost more than reading them."""


class BatchIdentity(NamedTuple):
    """The identity of a batch; CRC and length alone do not cover its position.

    Offsets of a compressed v0 or v1 entry are its last message's, and its *records_count* is -1.
    """

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    records_count: int
    attributes: int
    magic: int

    @property
    def data_records(self) -> int | None:
        """The number of its records that are no markers; None if only decoding shows it."""
        if self.magic < 2:
            return None
        return 0 if self.attributes & CONTROL_BIT else self.records_count

    @property
    def is_dense(self) -> bool:
        """Whether it has a record at each of its offsets."""
        return self.magic >= 2 and self.records_count == self.last_offset - self.base_offset + 1


class DataRecord(NamedTuple):
    """A record that is no marker, as far as copies can differ in it.  Timestamps are ms."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: bytes


class CopyReader:
    """Reads a copy once, from its log start on, or from the batch that reaches *from_offset* on.

    The part below *from_offset* is known, as is *epoch*, the last leader epoch there; it is read only from the position
    that the offset index yields.  *kept*: the broker's log after its next start; None: all of it.  *identities*: the
    rest of the current run, IDENTITY_BYTES a batch; empty at the end.  *stays*: whether the start keeps them.
    *last_offset*: that of the batch before them.  *damages*, *bad_batches* (base offsets): found so far; the latter at
    most MOST_BAD_BATCHES.  *with_indexes*: compare the indexes of segments that are read from their beginning;
    *misleading*: by base offset the entry of each that leads behind records, in words.
    """

    def __init__(
        self,
        partition: Partition,
        log_start: int,
        from_offset: int = 0,
        epoch: int = -1,
        kept: KeptLog | None = None,
        *,
        with_indexes: bool = False,
    ) -> None:
        self.identities = memoryview(b"")
        self.stays = True
        self.last_offset = max(log_start, from_offset) - 1
        self.damages: list[Damage] = []
        self.bad_batches: list[int] = []
        self.misleading: dict[int, str] = {}
        self._with_indexes = with_indexes
        self._partition = partition
        self._start = max(log_start, from_offset)
        self._is_known_below = from_offset > log_start
        self._epoch = epoch
        self._kept = kept
        self._last = -1
        self._window: Window | None = None
        self._row = 0
        self._path = ""
        self._codecs = Decompressor().functions
        self._runs = self._all_runs()
        self.load()

    @property
    def head(self) -> BatchIdentity | None:
        """The next batch; None at the end."""
        if not self.identities:
            return None
        return BatchIdentity._make(IDENTITY.unpack_from(self.identities))

    @property
    def producer_id(self) -> int:
        """The producer whose transaction the next batch belongs to, -1 for none."""
        assert self._window is not None
        batch = self._window.batch(self._row)
        return batch.producer_id if batch.attributes & TRANSACTIONAL_BIT and batch.magic >= 2 else -1

    @property
    def first_possible(self) -> int:
        """The lowest offset that the next batch can have a record at; LONG_MAX at the end."""
        head = self.head
        if head is None:
            return _LONG_MAX
        return head.base_offset if head.magic >= 2 else min(self.last_offset + 1, head.base_offset)

    def content(self, count: int) -> memoryview:
        """Return the bytes of the next *count* batches of the current run."""
        assert self._window is not None
        last = self._window.batch(self._row + count - 1)
        return self._window.content()[self._window.at(self._row) : last.position - self._window.position + last.size]

    def load(self) -> None:
        """Continue with the next run when the current one is used up."""
        while not self.identities:
            found = next(self._runs, None)
            if found is None:
                return
            self._window, self._row, end, self.stays = found
            self.identities = memoryview(batch_identities(self._window, self._row, end))

    def skip(self, count: int) -> None:
        """Pass over *count* batches of the current run."""
        if count:
            last = IDENTITY.unpack_from(self.identities, (count - 1) * IDENTITY_BYTES)
            self.last_offset = last[1]
            self.identities = self.identities[count * IDENTITY_BYTES :]
            self._row += count
            self.load()

    def records(self, origin: bytes | None = None) -> Iterator[tuple[int, DataRecord, bytes]]:
        """Decode the next batch: yield its data records with their offsets.  Broken records inside are a damage.

        With *origin* (see `klog.log.json_lines.record_lines`) each has its JSON line, else an empty one.
        """
        assert self._window is not None
        window, row = self._window, self._row
        if window.batch(row).attributes & CONTROL_BIT and window.batch(row).magic >= 2:
            return
        for damage in decode_run(BatchRun(window, row, row + 1), self._codecs, self._path):
            if damage is not None:
                self._note(damage, window.batch(row).base_offset)
                continue
            for i in range(window.records):
                offset, timestamp, key, value, *_ = window.record(i, False)
                line = b"" if origin is None else _line(window, i, origin)
                yield offset, DataRecord(timestamp, key, value, window.raw_headers(i)), line

    def record_windows(self, leave_out: Callable[[Window, int, int], None]) -> Iterator[Window]:
        """Decode the remaining batches that are kept: yield a window each time that its rows are filled with records.

        *leave_out*: skips batches of a window, from a first row up to an end.  Broken records inside are left out.
        """
        while self.identities:
            assert self._window is not None
            count = len(self.identities) // IDENTITY_BYTES
            run = BatchRun(self._window, self._row, self._row + count if self.stays else self._row)
            leave_out(self._window, run.first, run.end)
            for damage in decode_run(run, self._codecs, self._path):
                if damage is None:
                    yield self._window
            self.skip(count)

    def _note(self, damage: Damage, base_offset: int) -> None:
        if len(self.damages) < MOST_BAD_BATCHES:
            self.damages.append(damage)
            self.bad_batches.append(base_offset)

    def _all_runs(self) -> Iterator[tuple[Window, int, int, bool]]:
        """Yield window, first row and end of runs of batches that count, and whether they stay."""
        segments = self._partition.segments
        window = _free_windows.pop() if _free_windows else Window(output=0)
        for number, files in enumerate(segments):
            behind = segments[number + 1].base_offset if number + 1 < len(segments) else _LONG_MAX
            if behind <= self._start:
                continue
            self._path = self._partition.file(files.log)
            is_last = number + 1 == len(segments)
            position = position_in(self._partition, files, self._start) if self._is_known_below else 0
            indexes = SegmentIndexes(self._partition, files, behind) if self._with_indexes and not position else None
            for run in Segment(self._path, bounded=False).runs(position, window=window):
                if isinstance(run, Damage):
                    if indexes is not None:
                        indexes.take_damage(at := run.place.position or 0, at + (run.size or 0))
                    if not (is_last and run.is_unfinished):
                        self._note(run, run.place.offset if run.place.offset is not None else self._last + 1)
                    continue
                if indexes is not None:
                    indexes.take(run.window, run.first, run.end)
                for first, end in self._in_order(run.window, run.first, run.end, behind - 1):
                    leaving = self._first_leaving(files.log, run.window, first, end)
                    if first < leaving:
                        yield run.window, first, leaving, True
                    if leaving < end:
                        yield run.window, leaving, end, False
            if indexes is not None and (wrong := indexes.wrong()) is not None:
                self.misleading[files.base_offset] = wrong
        _free_windows.append(window)

    def _first_leaving(self, log: str, window: Window, first: int, end: int) -> int:
        """Return the first row that the next start removes; *end*: it removes none."""
        if self._kept is None:
            return end
        size = _LONG_MAX if self._kept.sizes is None else self._kept.sizes.get(log, 0)
        log_end = self._kept.log_end

        def leaves(row: int) -> bool:
            batch = window.batch(row)
            return batch.position + batch.size > size or batch.base_offset >= log_end

        return end if not leaves(end - 1) else bisect_left(range(end), True, first, key=leaves)

    def _in_order(self, window: Window, first: int, end: int, ceiling: int) -> Iterator[tuple[int, int]]:
        """Yield the rows whose offsets are possible at their positions, without those that end below the start."""
        while first < end and window.batch(first).last_offset < self._start:
            first += 1
        while first < end:
            at, _ = ascending_run(window, first, end, self._last, self._epoch, ceiling)
            if at < end and self._is_too_high(window, first, at):
                at -= 1  # the one before leads too far, not this one back
            if at > first:
                found = window.batch(at - 1)
                self._last, self._epoch = found.last_offset, found.leader_epoch
                yield first, at
            if at < end:
                self._note_misplaced(window, at)
            first = at + 1

    def _is_too_high(self, window: Window, first: int, at: int) -> bool:
        """Whether the batch before row *at* has the wrong offset: without it *at* would be in order."""
        if at == first or window.batch(at).base_offset > window.batch(at - 1).last_offset:
            return False
        before = window.batch(at - 2).last_offset if at - 1 > first else self._last
        return window.batch(at).base_offset > before

    def _note_misplaced(self, window: Window, row: int) -> None:
        batch = window.batch(row)
        place = Location(self._path, batch.position, batch.base_offset)
        self._note(
            Damage(DamageKind.OFFSET_BACKWARDS, place, "its offsets or epoch do not fit here"), batch.base_offset
        )


def keeps_bad_batch(partition: Partition, kept: KeptLog, offset: int) -> bool:
    """Whether a bad batch stays in a copy that is cut at *offset*, *kept* of which its next start leaves.

    One that lies below the log start, but in the segment that contains it, stays as well.  Raises UnreadableError.
    """
    reader = CopyReader(partition, kept.log_start, kept=kept)
    while True:
        after, before = reader.last_offset + 1, reader.first_possible
        for base_offset in reader.bad_batches:
            # An offset that does not fit there is damaged itself.
            if (base_offset if after <= base_offset <= before else after) < offset:
                return True
        if before >= offset:
            return False
        reader.skip(len(reader.identities) // IDENTITY_BYTES)


def _line(window: Window, row: int, origin: bytes) -> bytes:
    """Return the JSON line of a record, an empty one where it has more than MOST_LINE_BYTES."""
    line = bytearray()
    for piece in record_lines(window, row, row + 1, origin, LineStyle()):
        line += piece
        if len(line) > MOST_LINE_BYTES:
            window.flushed()
            return b""
    line += window.output()
    window.flushed()
    return bytes(line)
