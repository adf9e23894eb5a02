"""Reads, recovers and splits one segment as a broker does, without changing the disk.

A broker's recovery ends at the first damage.  Any pass that verifies the checksums of the batches before it and builds
the indexes has the result of that recovery (`IntactPrefix`); only producers need more.  Only open transactions can make
a recovery stop or fail because of a producer (Kafka: ProducerAppendInfo), and they alone are compared.  A segment whose
offsets do not fit into it is split.

Kafka: LogSegment.recover, readNextOffset, read; FileLogInputStream; LocalLog.splitOverflowedSegment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from klog.base.progress import Silence, Sink
from klog.base.read_only import ReadOnlyFile
from klog.change.partition_plan.contents import FileRange
from klog.formats.batch import CODEC_BITS, CONTROL_BIT, BatchFacts
from klog.formats.codec import Decompressor
from klog.formats.index import OFFSET_ENTRY, TIME_ENTRY
from klog.formats.java_integers import LONG_MIN
from klog.formats.producer_snapshot import Producer, Snapshot
from klog.kernel import BAD_LENGTH, IndexBuilder, Window
from klog.log.index import AbortedTxn, txn_index_content
from klog.log.ordered_pipeline import OrderedOutput, Work, run
from klog.log.reader import LogReader, WindowResult
from klog.log.segment import MAX_RELATIVE_OFFSET
from klog.partition.start.producer_recovery import ProducerLoader
from klog.partition.start.start_files import FailsError, ReadSettings, StartSegment, index_floor, index_last_offset
from klog.partition.transactions.markers import CompletedTxn, FlawedMarker, MarkerFlaw, ProducerAnomalyKind, read_marker
from klog.partition.transactions.producer_replay import OpenTxns, open_txns
from klog.partition.transactions.producer_state import Event, ProducerState

_LARGE_BYTES = 8 << 20
_FATAL = (ProducerAnomalyKind.NOT_TRANSACTIONAL, ProducerAnomalyKind.TXN_NOT_STARTED)


class PartitionReader:
    """The input of a start that plays one partition: its files, and the receiver of the progress.

    *window*: a read buffer; a caller that reads thousands of small partitions reuses it.
    """

    def __init__(
        self, folder: str, settings: ReadSettings, sink: Sink | None = None, window: Window | None = None
    ) -> None:
        self.folder = folder
        self.settings = settings
        self.sink = sink or Silence()
        self.window = window or Window(output=0)

    def path(self, segment: StartSegment) -> str:
        """Return the path of a segment's log, which is in one piece."""
        return os.path.join(self.folder, segment.log[0].name)

    def windows(self, segment: StartSegment, offset: int, end: int | None = None) -> Iterator[Window]:
        """Yield a segment's batches from the one on that a broker reads for *offset*, up to *end* bytes of its log.

        No checksums.  Raises FailsError if a broker's reading fails.  Kafka: LogSegment.read.
        """
        start = self.position(segment, offset)
        if start is not None:
            yield from self._walk(segment, start, segment.size if end is None else end)

    def _walk(self, segment: StartSegment, start: int, end: int) -> Iterator[Window]:
        first = segment.log[0].start
        with ReadOnlyFile(self.path(segment)) as source:
            reader = LogReader(source, first + start, first + end, like_kafka=True)
            while piece := reader.next(self.window):
                if self.window.count:
                    yield self.window
                if piece.stop and piece.stop[0] == BAD_LENGTH:
                    raise FailsError(f"{segment.log[0].name} @ {piece.stop[1]}: a size that no batch can have")

    def position(self, segment: StartSegment, offset: int) -> int | None:
        """Return the position in a segment's log to read for *offset*, in bytes; None beyond its last batch.

        Kafka: LogSegment.translateOffset, FileRecords.searchForOffsetFromPosition.
        """
        segment.is_open = True
        start = index_floor(self.folder, segment.offset_index, segment.base, offset)[1]
        if start < 0:  # IllegalArgumentException, which ends the broker.  Java: FileChannel.read
            raise FailsError(f"{segment.base:020}.index leads to position {start}")
        before, before_last = None, -1
        for window in self._walk(segment, start, segment.size):
            first = 0 if _has_wrappers(window) else max(window.first_reaching(offset) - 1, 0)
            for i in range(first, window.count):
                batch = window.batch(i)
                base = first_offset(window, i, segment.log[0].name)
                if base >= offset:
                    is_inside = base > offset and before is not None and before_last >= offset
                    return before if is_inside else batch.position - segment.log[0].start
                before, before_last = batch.position - segment.log[0].start, batch.last_offset
        return before if before_last >= offset else None

    def next_offset(self, segment: StartSegment) -> int:
        """Return the offset after the last batch; the base offset without one.  Kafka: LogSegment.readNextOffset."""
        if segment.next_offset is None:
            found = segment.base
            last = index_last_offset(self.folder, segment.offset_index, segment.base)
            for window in self.windows(segment, last):
                found = window.batch(window.count - 1).last_offset + 1
            segment.next_offset = found
        return segment.next_offset

    def replay(self, producers: ProducerLoader, segment: StartSegment, offset: int, end: int) -> None:
        """Apply a segment's batches from *offset* on, up to *end* bytes of its log.

        Kafka: UnifiedLog.loadProducersFromRecords.
        """
        for window in self.windows(segment, offset, end):
            for i in window.produced(0, window.count, checked=False):
                apply_batch(producers.state, window, i, segment.log[0].name)


def _has_wrappers(window: Window) -> bool:
    """Whether a window may have compressed messages before v2, whose offsets only decompressing shows."""
    return window.batch(0).magic < 2 or window.batch(window.count - 1).magic < 2


def first_offset(window: Window, i: int, file: str) -> int:
    """Return the offset of the first record of batch *i*.  Raises FailsError.  Kafka: RecordBatch.baseOffset."""
    batch = window.batch(i)
    if batch.magic >= 2 or not batch.attributes & CODEC_BITS:
        return batch.base_offset
    ready = window.decompress(i, i + 1, Decompressor().functions)
    if ready > i:
        window.begin(i, i + 1)
        window.decode()
    if ready == i or not window.records:
        raise FailsError(f"{file} @ {batch.position}: its messages cannot be read")
    offset: int = window.record(0, False)[0]
    return offset


def apply_batch(state: ProducerState, window: Window, i: int, file: str) -> tuple[Event, ...] | None:
    """Apply batch *i* of a producer; None for a marker at which recovery stops.

    Raises FailsError if a broker does not go on.
    """
    batch = window.batch(i)
    marker = read_marker(window, i) if batch.attributes & CONTROL_BIT else None
    if isinstance(marker, FlawedMarker):
        if marker.flaw is MarkerFlaw.INVALID_RECORD:
            return None
        raise FailsError(f"{file} @ {batch.position}: {marker.flaw.value}: {marker.detail}")
    events = state.apply(batch, marker, file)
    for event in events:
        if not isinstance(event, CompletedTxn) and event.kind in _FATAL:
            raise FailsError(f"{event.place}: producer {event.producer_id}: {event.kind.value}")
    return events


class SegmentRecovery:
    """A segment's recovery: `size` bytes of the log are kept, the indexes rebuilt.

    *stop*: as IndexBuilder has it, when an exception ended it that a broker handles.
    """

    def __init__(
        self, reading: PartitionReader, segment: StartSegment, producers: ProducerLoader, latest_epoch: int
    ) -> None:
        settings = reading.settings
        self.builder = IndexBuilder(segment.base, settings.interval, settings.index_bytes, latest_epoch)
        self.txn_entries: list[AbortedTxn] = []
        self.records = 0
        self._reading = reading
        self._segment = segment
        self._producers = producers
        self._stopped = False

    def run(self) -> None:
        """Read the segment.  Raises FailsError, and UnreadableError for a file that the system cannot read."""
        reading = self._reading
        with ReadOnlyFile(reading.path(self._segment)) as source:
            _, start, end = self._segment.log[0]
            reader = LogReader(source, start, end, like_kafka=True)
            jobs = reading.settings.jobs if self._segment.size >= _LARGE_BYTES else 1
            run(reader, self._make_work, reading.sink, jobs, reading.window)
        if self.builder.stop == "full":
            raise FailsError(f"{self._segment.log[0].name}: its index is full: segment.index.bytes is too small")
        self.builder.finish()

    def _make_work(self) -> Work:
        def work(window: Window, piece: WindowResult, lane: OrderedOutput) -> bool:
            window.check(0, window.count)
            lane.wait()
            return not self._take(window)

        return work

    def _take(self, window: Window) -> bool:
        """Take a window's batches; False if recovery stops."""
        good = window.first_bad(0, window.count)
        # A marker can end the recovery: the indexes are extended only up to the next one.
        controls = [i + 1 for i in window.produced(0, good) if window.batch(i).attributes & CONTROL_BIT]
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
        """Advance the end of the producers' state to row *end*.  A broker ignores batches before v2 here."""
        for i in range(end - 1, -1, -1):
            batch = window.batch(i)
            if batch.magic >= 2:
                self._producers.end = batch.last_offset + 1
                return

    def _aborted(self, entry: AbortedTxn, file: str) -> None:
        if self.txn_entries and entry.last_offset <= self.txn_entries[-1].last_offset:
            raise FailsError(f"{file}: the markers' offsets do not increase at {entry.last_offset}")
        self.txn_entries.append(entry)

    @property
    def txn_index(self) -> bytes:
        """The content of the transaction index."""
        return txn_index_content(self.txn_entries)


_CHUNK_BYTES = 1 << 20


def split(segment: StartSegment, reading: PartitionReader) -> list[StartSegment]:
    """Return the segments that take the place of one with an overflow.  Raises FailsError if a broker gives up."""
    segment.offset_index = None
    batches = list(_batches(segment, reading))
    end = batches[-1].last_offset if batches else segment.base - 1
    if not segment.base < end + 1 or 0 <= end - segment.base <= MAX_RELATIVE_OFFSET:
        raise FailsError(f"{segment.log[0].name}: Split operation is only permitted for segments with overflow")
    if sum(batch.size for batch in batches) != segment.size:
        raise FailsError(f"{segment.log[0].name}: ends in the middle of a batch, and cannot be split")
    parts: list[_Part] = []
    while batches:
        part = _Part(batches[0].base_offset, reading)
        taken = part.fill(batches)
        if not taken:
            raise FailsError(f"{segment.log[0].name} @ {batches[0].position}: Failed to append records")
        del batches[:taken]
        parts.append(part)
    if len({part.base for part in parts}) < len(parts):
        raise FailsError(f"{segment.log[0].name}: two of the segments to split it into have the same base offset")
    return [part.segment(segment.log[0].name) for part in parts]


def _batches(segment: StartSegment, reading: PartitionReader) -> Iterator[BatchFacts]:
    for window in reading.windows(segment, LONG_MIN):
        for i in range(window.count):
            yield window.batch(i)._replace(base_offset=first_offset(window, i, segment.log[0].name))


class _Part:
    """One of the new segments, appended to in chunks.  Kafka: LogSegment.appendFromFile."""

    def __init__(self, base: int, reading: PartitionReader) -> None:
        self.base = base
        self._interval = reading.settings.interval
        self._start = self._end = 0
        self._since = 0
        self._largest, self._largest_offset = -1, base
        self._last_time = -1
        self._entries = self._times = b""

    def fill(self, batches: list[BatchFacts]) -> int:
        """Take as many batches as fit; return how many."""
        self._start = self._end = batches[0].position
        room, taken = _CHUNK_BYTES, 0
        while taken < len(batches):
            chunk: list[BatchFacts] = []
            size = 0
            for batch in batches[taken:]:
                if not 0 <= batch.last_offset - self.base <= MAX_RELATIVE_OFFSET or (
                    chunk and size + batch.size >= room
                ):
                    break
                chunk.append(batch)
                size += batch.size
            if not chunk:
                break
            room = max(room, size)
            self._append(chunk, size)
            taken += len(chunk)
        return taken

    def _append(self, chunk: list[BatchFacts], size: int) -> None:
        largest = max(chunk, key=lambda batch: batch.max_timestamp)
        if largest.max_timestamp > self._largest:
            self._largest, self._largest_offset = largest.max_timestamp, largest.last_offset
        if self._since > self._interval:
            if (
                self._entries
                and chunk[-1].last_offset - self.base <= OFFSET_ENTRY.read(self._entries[-OFFSET_ENTRY.size :])[0]
            ):
                raise FailsError(f"offset {chunk[-1].last_offset} is not above that of the index entry before it")
            self._entries += OFFSET_ENTRY.write(chunk[-1].last_offset - self.base, self._end - self._start)
            self._time_entry()
            self._since = 0
        self._since += size
        self._end += size

    def _time_entry(self) -> None:
        if self._largest > self._last_time:
            self._times += TIME_ENTRY.write(self._largest, self._largest_offset - self.base)
            self._last_time = self._largest

    def segment(self, log: str) -> StartSegment:
        """Return the finished segment, a piece of *log*."""
        self._time_entry()
        made = StartSegment(self.base, (FileRange(log, self._start, self._end),))
        made.offset_index, made.time_index = self._entries, self._times
        return made


_SPARE_ENTRIES = 4
"""An index with fewer free entries may have filled up on the way."""


class IntactPrefix(NamedTuple):
    """The intact batches (v2, offsets ascending) at the start of a segment, up to its end or its first damage.

    *log_bytes*: size of the whole log; *size*: of these batches.  *epochs*: the leader epochs that they begin, with
    their first offsets.  *last_entry*: of the rebuilt offset index; *index_bytes*, *time_index_bytes*: sizes of the
    rebuilt indexes.  *has_producers*: some batches have producer ids; *open_before*, *open_after*: the transactions
    that were open at the start and the end of the segment.
    """

    log_bytes: int
    size: int
    batches: int
    last_offset: int
    epochs: tuple[tuple[int, int], ...]
    last_entry: bytes
    index_bytes: int
    time_index_bytes: int
    has_producers: bool
    open_before: OpenTxns
    open_after: OpenTxns

    def is_of(self, segment: StartSegment, producers: ProducerLoader, settings: ReadSettings) -> bool:
        """Whether a recovery of *segment* that begins with *producers* takes these batches and then stops."""
        if len(segment.log) != 1 or segment.log[0].start or segment.size not in (self.size, self.log_bytes):
            return False
        room = settings.index_bytes // OFFSET_ENTRY.size - _SPARE_ENTRIES
        time_room = settings.index_bytes // TIME_ENTRY.size - _SPARE_ENTRIES
        if self.index_bytes > room * OFFSET_ENTRY.size or self.time_index_bytes > time_room * TIME_ENTRY.size:
            return False
        return not self.has_producers or open_txns(producers.state) == self.open_before

    def apply_to(self, producers: ProducerLoader) -> None:
        """Bring *producers* behind the batches, as far as a recovery depends on them: to the open transactions."""
        if not self.batches:
            return
        producers.end = self.last_offset + 1
        if self.has_producers:
            found = tuple(Producer(producer_id, -1, -1, -1, 0, -1, -1, first) for first, producer_id in self.open_after)
            producers.state = ProducerState.load(Snapshot(found), producers.end)
