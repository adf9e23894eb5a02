"""Reading and recovering one segment as a broker does, without a change on disk.

Kafka: LogSegment.recover, readNextOffset, read; FileLogInputStream.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from klog.formats.batch import Attributes
from klog.formats.index import ABORTED_TXN
from klog.irregularities import IrregularityKind
from klog.kernel import BAD_LENGTH, IndexBuilder, Window
from klog.lanes import Lane, Silence, Sink, Work, run
from klog.producers import Event, ProducerState
from klog.reader import LogReader, Piece
from klog.recover.broker_files import FailsError, Segment, index_floor, index_last_offset
from klog.recover.broker_producers import Producers
from klog.source import Source
from klog.transactions import CompletedTxn, FlawedMarker, MarkerFlaw, read_marker

_CONTROL = int(Attributes.CONTROL)
_LARGE_BYTES = 8 << 20
_FATAL = (IrregularityKind.NOT_TRANSACTIONAL, IrregularityKind.TXN_NOT_STARTED)


class Settings(NamedTuple):
    """What of a broker's settings decides about indexes, and with how many threads a large log is read.

    *interval*: index.interval.bytes; *index_bytes*: segment.index.bytes.
    """

    interval: int = 4096
    index_bytes: int = 10 << 20
    jobs: int = 1


class Reading:
    """What is read of a partition: where it is, and who hears of the progress."""

    def __init__(self, folder: str, settings: Settings, sink: Sink | None = None) -> None:
        self.folder = folder
        self.settings = settings
        self.sink = sink or Silence()
        self.window = Window(output=0)

    def path(self, segment: Segment) -> str:
        """Return the path of a segment's log, which is in one piece."""
        return os.path.join(self.folder, segment.log[0].name)

    def windows(self, segment: Segment, offset: int, end: int | None = None) -> Iterator[tuple[Window, int]]:
        """Yield a segment's batches from the first on that reaches *offset*, each window with its first row that does.

        *end*: bytes of the log to read up to.  No checksums.  Raises FailsError where a broker's reading fails.
        Kafka: LogSegment.read, translateOffset.
        """
        segment.is_open = True
        position = index_floor(self.folder, segment.offset_index, segment.base, offset)[1]
        with Source(self.path(segment)) as source:
            reached = False
            start = segment.log[0].start
            end = segment.size if end is None else end
            reader = LogReader(source, start + position, start + end, lenient=True)
            while piece := reader.next(self.window):
                first = 0 if reached else self.window.first_reaching(offset)
                if first < self.window.count:
                    reached = True
                    yield self.window, first
                if piece.stop and piece.stop[0] == BAD_LENGTH:
                    raise FailsError(f"{segment.log[0].name} @ {piece.stop[1]}: a size that no batch can have")

    def next_offset(self, segment: Segment) -> int:
        """Return the offset after the last batch; the base offset without one.  Kafka: LogSegment.readNextOffset."""
        if segment.next_offset is None:
            found = segment.base
            last = index_last_offset(self.folder, segment.offset_index, segment.base)
            for window, _ in self.windows(segment, last):
                found = window.batch(window.count - 1).last_offset + 1
            segment.next_offset = found
        return segment.next_offset

    def position(self, segment: Segment, offset: int) -> int | None:
        """Return where the first batch begins that reaches *offset*, bytes; None without one."""
        start = segment.log[0].start
        return next((window.batch(first).position - start for window, first in self.windows(segment, offset)), None)

    def replay(self, producers: Producers, segment: Segment, offset: int, end: int) -> None:
        """Apply a segment's batches from *offset* on, up to *end* bytes of its log.

        Kafka: UnifiedLog.loadProducersFromRecords.
        """
        for window, first in self.windows(segment, offset, end):
            for i in window.produced(first, window.count, checked=False):
                apply_batch(producers.state, window, i, segment.log[0].name)


def apply_batch(state: ProducerState, window: Window, i: int, file: str) -> tuple[Event, ...] | None:
    """Apply batch *i* of a producer; None for a marker at which recovery stops.

    Raises FailsError where a broker does not go on.
    """
    batch = window.batch(i)
    marker = read_marker(window, i) if batch.attributes & _CONTROL else None
    if isinstance(marker, FlawedMarker):
        if marker.flaw is MarkerFlaw.INVALID_RECORD:
            return None
        raise FailsError(f"{file} @ {batch.position}: {marker.flaw.value}: {marker.detail}")
    events = state.apply(batch, marker, file)
    for event in events:
        if not isinstance(event, CompletedTxn) and event.kind in _FATAL:
            raise FailsError(f"{event.place}: producer {event.producer_id}: {event.kind.value}")
    return events


class Recovery:
    """A segment's recovery: `size` bytes of the log are taken, the indexes made anew.

    *stop*: as IndexBuilder has it, when an exception ended it that a broker handles.
    """

    def __init__(self, reading: Reading, segment: Segment, producers: Producers, latest_epoch: int) -> None:
        settings = reading.settings
        self.builder = IndexBuilder(segment.base, settings.interval, settings.index_bytes, latest_epoch)
        self.txn_entries: list[tuple[int, int, int, int, int]] = []
        self.records = 0
        self._reading = reading
        self._segment = segment
        self._producers = producers
        self._stopped = False

    def run(self) -> None:
        """Read the segment.  Raises FailsError, and UnreadableError for what the system cannot read."""
        reading = self._reading
        with Source(reading.path(self._segment)) as source:
            _, start, end = self._segment.log[0]
            reader = LogReader(source, start, end, lenient=True)
            jobs = reading.settings.jobs if self._segment.size >= _LARGE_BYTES else 1
            run(reader, self._make_work, reading.sink, jobs, reading.window)
        if self.builder.stop == "full":
            raise FailsError(f"{self._segment.log[0].name}: its index is full: segment.index.bytes is too small")
        self.builder.finish()

    def _make_work(self) -> Work:
        def work(window: Window, piece: Piece, lane: Lane) -> bool:
            window.check(0, window.count)
            lane.wait()
            return not self._take(window)

        return work

    def _take(self, window: Window) -> bool:
        """Take a window's batches; False where recovery stops."""
        good = window.first_bad(0, window.count)
        # A marker can end the recovery, so the indexes go no further than the next one.
        controls = [i + 1 for i in window.produced(0, good) if window.batch(i).attributes & _CONTROL]
        first = 0
        for end in (*controls, good):
            taken = self.builder.walk(window, first, end)
            if not self._produce(window, first, taken) or taken < end:
                return False
            first = end
        return good == window.count

    def _produce(self, window: Window, first: int, end: int) -> bool:
        """Apply the producers' batches; False at a marker with which a broker's recovery stops."""
        producers, file = self._producers, self._segment.log[0].name
        for i in window.produced(first, end):
            events = apply_batch(producers.state, window, i, file)
            if events is None:
                if i:
                    self._ends(window, i)
                return False
            for event in events:
                if isinstance(event, CompletedTxn) and event.index_entry is not None:
                    self._aborted(event.index_entry, file)
        self._ends(window, end)
        return True

    def _ends(self, window: Window, end: int) -> None:
        """Say that the producers have seen everything before row *end*.  Batches before v2 do not count to a broker."""
        for i in range(end - 1, -1, -1):
            batch = window.batch(i)
            if batch.magic >= 2:
                self._producers.end = batch.last_offset + 1
                return

    def _aborted(self, entry: tuple[int, int, int, int, int], file: str) -> None:
        if self.txn_entries and entry[3] <= self.txn_entries[-1][3]:
            raise FailsError(f"{file}: the markers' offsets do not increase at {entry[3]}")
        self.txn_entries.append(entry)

    @property
    def txn_index(self) -> bytes:
        """The content of the transaction index."""
        return b"".join(ABORTED_TXN.write(*entry) for entry in self.txn_entries)
