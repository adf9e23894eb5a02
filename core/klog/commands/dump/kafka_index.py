"""`.index`, `.timeindex`, `.txnindex` and `.snapshot` as Kafka's dump tool prints them, byte for byte.

Kafka: DumpLogSegments of 4.3.1.  Nothing is created or trimmed beside the files, unlike in that tool.  DiedError
contains, in one line, the reason for a stack trace of that tool.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import TracebackType

from klog.base.errors import ExitCode, KlogError
from klog.base.read_only import ReadOnlyFile
from klog.commands.dump.dump_request import IndexStyle
from klog.commands.dump.reports import DumpReports, absolute
from klog.formats.batch import BATCH, ENTRY, MIN_SIZE, OVERHEAD
from klog.formats.codec import MAX_OUTPUT, Decompressor
from klog.formats.index import OFFSET_ENTRY, TIME_ENTRY
from klog.formats.layout import Layout
from klog.formats.producer_snapshot import read_snapshot
from klog.kernel import DONE, MORE, Window, crc32c
from klog.log.header_walk import read_window
from klog.log.index import IndexEntries, aborted_txns, newer_version
from klog.log.records import broken_record
from klog.log.segment import MAX_SEGMENT_BYTES

_LARGEST_SNAPSHOT = 64 << 20


class DiedError(KlogError):
    """Kafka's tool would have died here."""

    exit_code = ExitCode.PROBLEMS_LEFT


def _entries(path: str, layout: Layout) -> IndexEntries:
    """Return the entries of an index, with all slots valid, as a broker does.  Raises DiedError."""
    with IndexEntries(path, layout, None) as entries:
        if entries.size > MAX_SEGMENT_BYTES:
            raise DiedError(f"{path}: {entries.size} bytes, more than an index can have")
        entries.load()
    if entries.unreadable is not None:
        raise DiedError(str(entries.unreadable)) from entries.unreadable
    return entries


class _Log:
    """A log, as Kafka's tool looks at it through an index."""

    def __init__(self, path: str) -> None:
        try:
            self.source = ReadOnlyFile(path)
        except KlogError as error:
            raise DiedError(str(error)) from error
        if self.source.size > MAX_SEGMENT_BYTES:
            self.source.close()
            raise DiedError(f"{path}: {self.source.size} bytes, more than a segment can have")
        self.size = self.source.size

    def __enter__(self) -> _Log:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.source.close()

    def check_position(self, position: int) -> None:
        """Die of a position outside the log."""
        if not 0 <= position <= self.size:
            raise DiedError(f"{self.source.path}: the index points to {position}, outside the log's {self.size} bytes")

    def last_offset(self, position: int, end: int) -> tuple[int, int] | None:
        """Return the last offset and the size of the entry at *position*; None if none is complete before *end*.

        Kafka: FileLogInputStream.nextBatch; an entry's header may reach beyond the entry.
        """
        if position >= end - ENTRY.size:
            return None
        head = self.source.read(position, BATCH.size)
        offset, size, _, magic = ENTRY.read(head)
        if size < MIN_SIZE:
            raise DiedError(
                f"{self.source.path} @ {position}: a size of {size} bytes, where at least {MIN_SIZE} was expected"
            )
        if position > end - OVERHEAD - size:
            return None
        if magic >= BATCH_MAGIC:
            if len(head) < BATCH.size:
                raise DiedError(f"{self.source.path} @ {position}: the file ends in the batch's header")
            offset += BATCH.read(head)[6]
        return offset, OVERHEAD + size


BATCH_MAGIC = 2


def _paths(path: str) -> tuple[int, str]:
    """Return the base offset that the file's name gives, and the path without its suffix."""
    from klog.formats.java_text import parse_long

    stem = os.path.basename(path).split(".", 1)[0]
    base_offset = parse_long(stem)
    if base_offset is None:
        raise DiedError(f"{path}: the name does not begin with an offset")
    return base_offset, os.path.join(os.path.dirname(path), stem)


def dump_offset_index(path: str, shown: str, style: IndexStyle, reports: DumpReports) -> Iterator[str]:
    """Yield the lines for an `.index`; entries that do not fit the log are passed to *reports*.  Raises DiedError."""
    base_offset, stem = _paths(path)
    with _Log(stem + ".log") as log:
        index = _entries(path, OFFSET_ENTRY)
        if index.count == 0:
            yield f"{shown} is empty."
        elif style.sanity_only:
            _check_offsets(path, index, index[index.count - 1][0], base_offset, OFFSET_ENTRY)
            yield f"{shown} passed sanity check."
        else:
            yield from _offset_lines(path, index, base_offset, log, style, reports)


def _offset_lines(
    path: str, index: IndexEntries, base_offset: int, log: _Log, style: IndexStyle, reports: DumpReports
) -> Iterator[str]:
    for slot in range(index.count):
        relative, position = index[slot]
        if relative == 0 and slot > 0:
            return  # preallocated: only zeros follow
        offset = base_offset + relative
        log.check_position(position)
        end = min(position + style.max_message_size, log.size)
        found = log.last_offset(position, end)
        if found is None:
            raise DiedError(
                f"{path}: no batch at position {position} of the log, to which the entry of offset {offset} points"
            )
        if found[0] != offset:
            reports.mismatches.setdefault(absolute(path), []).append((offset, found[0]))
        if not style.verify_only:
            yield f"offset: {offset} position: {position}"


def _check_offsets(path: str, index: IndexEntries, last: int, base_offset: int, layout: Layout) -> None:
    """Die of a *last* relative offset below zero, or of an odd size.  Kafka: OffsetIndex.sanityCheck."""
    if last < 0:
        raise DiedError(f"{path}: corrupt: the last offset {base_offset + last} is below the base offset {base_offset}")
    if index.size % layout.size:
        raise DiedError(f"{path}: corrupt: {index.size} bytes are not a multiple of {layout.size}")


def _check_times(path: str, times: IndexEntries, base_offset: int) -> None:
    """Kafka: TimeIndex.sanityCheck."""
    first = times[0][0] if times.count else 0
    timestamp, relative = times[times.count - 1] if times.count else (0, 0)
    if timestamp < first:
        raise DiedError(f"{path}: corrupt: the last timestamp {timestamp} is below the first, {first}")
    _check_offsets(path, times, relative, base_offset, TIME_ENTRY)


def dump_time_index(path: str, shown: str, style: IndexStyle, reports: DumpReports) -> Iterator[str]:
    """Yield the lines for a `.timeindex`; entries that do not fit the log are passed to *reports*.  Raises DiedError.

    One walk over the log serves all entries; Kafka's tool walks it once for each.
    """
    base_offset, stem = _paths(path)
    with _Log(stem + ".log") as log:
        index, times = _entries(stem + ".index", OFFSET_ENTRY), _entries(path, TIME_ENTRY)
        if style.sanity_only:
            _check_times(path, times, base_offset)
            yield f"{shown} passed sanity check."
        else:
            yield from _time_lines(path, index, times, base_offset, log, style, reports)


def _time_lines(
    path: str, index: IndexEntries, times: IndexEntries, base_offset: int, log: _Log, style: IndexStyle,
    reports: DumpReports,
) -> Iterator[str]:  # fmt: skip
    count = next((slot for slot in range(1, times.count) if times[slot][1] == 0), times.count)
    walks = _Walks(log, [(_position(index, times[slot][1]), base_offset + times[slot][1]) for slot in range(count)])
    largest = _Timestamps(log)
    before = -1
    for slot in range(count):
        timestamp, relative = times[slot]
        offset = base_offset + relative
        found = walks.answer(slot)
        if found is None or found[1] != offset:
            reports.not_found.setdefault(absolute(path), []).append((offset, -1 if found is None else found[1]))
        else:
            in_log = largest.of(found[0])
            if in_log != timestamp:
                reports.timestamp_mismatches.setdefault(absolute(path), []).append((timestamp, in_log))
            if before >= timestamp:
                reports.out_of_order.setdefault(absolute(path), []).append((timestamp, before))
        if not style.verify_only:
            yield f"timestamp: {timestamp} offset: {offset}"
        before = timestamp


def _position(index: IndexEntries, relative: int) -> int:
    slot = index.search(relative).slot
    return index[slot][1] if slot >= 0 else 0


class _Walks:
    """Answers queries (position, offset): the first entry from that position on that reaches that offset.

    A walk that reaches the positions of later queries answers these too: an index in order costs one walk over the log.
    A wrong entry costs a walk of its own; such walks end when together they have become much longer than the log.
    """

    def __init__(self, log: _Log, queries: list[tuple[int, int]]) -> None:
        self._log = log
        self._queries = queries
        self._answers: dict[int, tuple[int, int] | DiedError | None] = {}
        self._budget = 16 * log.size + (64 << 20)

    def answer(self, number: int) -> tuple[int, int] | None:
        """Return (position, last offset) of the entry that query *number* is after, None when the log has none.

        Raises DiedError when the walk breaks off, as Kafka's tool would: it reads on to the end of the log first.
        """
        if number not in self._answers:
            try:
                self._walk(self._queries[number][0])
            except DiedError as error:
                self._answers[number] = error
        found = self._answers[number]
        if isinstance(found, DiedError):
            raise found
        return found

    def _walk(self, position: int) -> None:
        """Walk from *position* to the end of the log and answer all queries whose positions lie on the way."""
        import heapq

        self._log.check_position(position)
        starts: dict[int, list[int]] = {}
        for number, (start, _) in enumerate(self._queries):
            if start >= position and number not in self._answers:
                starts.setdefault(start, []).append(number)
        active: list[tuple[int, int]] = []
        answers: dict[int, tuple[int, int] | DiedError | None] = {}
        died: DiedError | None = None
        while True:
            for number in starts.get(position, ()):
                heapq.heappush(active, (self._queries[number][1], number))
                answers[number] = None
            try:
                entry = self._log.last_offset(position, self._log.size)
            except DiedError as error:
                died = error
                break
            if entry is None:
                break
            while active and active[0][0] <= entry[0]:
                answers[heapq.heappop(active)[1]] = position, entry[0]
            position += entry[1]
            self._budget -= BATCH.size
            if self._budget < 0:
                raise DiedError(f"{self._log.source.path}: the index points astray too often to be followed")
        self._answers |= dict.fromkeys(answers, died) if died else answers


class _Timestamps:
    """The largest record timestamp of an entry, by decoding it."""

    def __init__(self, log: _Log) -> None:
        self._log = log
        self._codecs = Decompressor().functions

    def of(self, position: int) -> int:
        """Return the largest timestamp of the records of the entry at *position*, -1 for none.  Raises DiedError."""
        entry = self._log.last_offset(position, self._log.size)
        assert entry is not None
        where = f"{self._log.source.path} @ {position}"
        if entry[1] > MAX_OUTPUT:
            raise DiedError(f"{where}: a batch of {entry[1]} bytes")
        size = max(entry[1], BATCH.size)
        window = Window(size, 1024, 1)
        read_window(self._log.source, window, position, size)
        window.scan(0, True)
        window.drop(min(window.count, 1))
        if window.count == 0:
            raise DiedError(f"{where}: no batch")
        if window.decompress(0, 1, self._codecs) == 0:
            raise DiedError(f"{where}: {window.error}")
        window.begin(0, 1, True)
        status, largest = MORE, -1
        while status == MORE:
            status = window.decode()
            largest = max(largest, window.times())
        if status != DONE:
            raise DiedError(f"{where}: {broken_record(window, status)}")
        return largest


def dump_txn_index(path: str) -> Iterator[str]:
    """Yield the lines for a `.txnindex`.  Raises DiedError."""
    _paths(path)
    try:
        with ReadOnlyFile(path) as source:
            for entry in aborted_txns(source):  # the tool reads all entries before it prints one
                if version := newer_version(entry.version):
                    raise DiedError(f"{path}: an aborted transaction of version {version}, where 0 was expected")
            for version, producer_id, first, last, stable in aborted_txns(source):
                yield (
                    f"version: {version >> 8} producerId: {producer_id} firstOffset: {first} lastOffset: {last}"
                    f" lastStableOffset: {stable}"
                )
    except KlogError as error:
        raise error if isinstance(error, DiedError) else DiedError(str(error)) from error


def dump_snapshot(path: str) -> tuple[list[str], str | None]:
    """Return the lines for a `.snapshot`, or none and its fault.  Raises DiedError.

    Kafka: DumpLogSegments.dumpProducerIdSnapshot, ProducerStateManager.readSnapshot.
    """
    try:
        with ReadOnlyFile(path) as source:
            if source.size > _LARGEST_SNAPSHOT:
                raise DiedError(f"{path}: {source.size} bytes, more than a producer snapshot can have")
            snapshot = read_snapshot(source.read(0, source.size), crc32c)
    except KlogError as error:
        raise DiedError(str(error)) from error
    if snapshot.problem:
        return [], snapshot.problem
    lines = []
    for producer in snapshot.producers:
        start = producer.current_txn_first_offset
        open_from = f"OptionalLong[{start}]" if start >= 0 else "OptionalLong.empty"
        line = (
            f"producerId: {producer.producer_id} producerEpoch: {producer.producer_epoch}"
            f" coordinatorEpoch: {producer.coordinator_epoch} currentTxnFirstOffset: {open_from}"
            f" lastTimestamp: {producer.timestamp}"
        )
        if producer.last_offset >= 0:
            line += (
                f" firstSequence: {producer.first_sequence} lastSequence: {producer.last_sequence}"
                f" lastOffset: {producer.last_offset} offsetDelta: {producer.offset_delta}"
                f" timestamp: {producer.timestamp}"
            )
        lines.append(line)
    return lines, None
