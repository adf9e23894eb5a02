"""The transactions of one log, by the headers of its batches: the offsets of each, and the marker that ended it.

    for span in transaction_spans(partition):
        print(span.producer_id, span.first_offset, span.marker)

No file is open between two steps, which allows to read thousands of logs side by side; the memory is that of the log's
open transactions.

`wrong_txn_index` compares transaction indexes with the same headers.  A broker reads the aborted transactions for a
read_committed consumer only from the `.txnindex` files.  An index that lacks an entry, or has a wrong one, shows
aborted records or hides committed ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Container, Iterator
from typing import Final, NamedTuple

from klog.base.errors import KlogError, offsets_text
from klog.base.read_only import ReadableLog, ReadOnlyFile
from klog.data_dir.partition import Partition, SegmentFiles
from klog.data_dir.zeroed_tail import note_damage
from klog.formats.batch import CONTROL_BIT, BatchFacts
from klog.formats.damage import Damage
from klog.kernel import TransactionSpans, Window
from klog.log.header_walk import HeaderWalk, read_window, walk_windows
from klog.log.index import AbortedTxn, read_txn_index
from klog.log.segment import Segment
from klog.partition.transactions.markers import Marker, read_marker
from klog.partition.transactions.txn_index_search import search_may_end

_SPANS_AT_ONCE: Final = 64


class SpanMarker(NamedTuple):
    """The marker of a transaction in a partition.  *timestamp*: ms, of the broker that led the partition."""

    commits: bool
    offset: int
    timestamp: int
    producer_epoch: int
    coordinator_epoch: int


class TransactionSpan(NamedTuple):
    """The part of a transaction in a partition, and its marker; None: it is open.

    *began*, *latest*: largest timestamps (ms) of its first and of its latest batch.  If no data precedes a marker,
    offsets, times and epoch are −1.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    first_offset: int
    last_offset: int
    records: int
    began: int
    latest: int
    marker: SpanMarker | None


def transaction_spans(
    partition: Partition, note: Callable[[str], object], ended_of: Container[int] | None = None
) -> Iterator[TransactionSpan]:
    """Yield the transactions of a partition in the order of their markers, then the open ones.

    *ended_of*: return ended transactions only of these producers; None: of all.  *note* receives the unreadable parts.
    Checksums are not verified.  Content raises no error.

    The log counts up to its end at the time of the listing.  If a broker has appended since, only the ends of
    transactions that were open by then are looked for in the new part.
    """
    spans = TransactionSpans()
    for segment in partition.segments:
        position: int | None = 0
        while position is not None:
            position = _read_segment(partition, segment, position, spans, note)
            ended, spans.ended = spans.ended, []
            for facts in ended:
                if ended_of is None or facts[0] in ended_of:
                    yield _span(partition, facts)
    if spans.open:
        opened = {facts[0]: facts[2] for facts in spans.open}
        ends = _read_later(partition, spans, note)
        for facts in (*ends, *spans.open):
            if opened.get(facts[0]) == facts[2]:
                yield _span(partition, facts)


def _read_later(partition: Partition, spans: TransactionSpans, note: Callable[[str], object]) -> list[tuple[int, ...]]:
    """Read the batches that a broker has appended since the listing; return the transactions that ended there."""
    ended: list[tuple[int, ...]] = []
    listed = partition.segments[-1]
    for segment in Partition(partition.path).segments:
        position: int | None = listed.size if segment.base_offset == listed.base_offset else 0
        while position is not None and segment.base_offset >= listed.base_offset and position < segment.size:
            position = _read_segment(partition, segment, position, spans, note)
            ended += spans.ended
            spans.ended = []
    return ended


def _read_segment(
    partition: Partition,
    segment: SegmentFiles,
    position: int,
    spans: TransactionSpans,
    note: Callable[[str], object],
) -> int | None:
    """Read from *position* (bytes) until transactions have ended; return the next position, None at the end."""
    path = partition.file(segment.log)
    try:
        return _read_on(partition, path, position, segment.size, spans, note)
    except KlogError as error:
        if os.path.lexists(path):  # otherwise a running broker has just deleted it
            note(str(error))
        return None


def _span(partition: Partition, facts: tuple[int, ...]) -> TransactionSpan:
    producer_id, epoch, first, last, records, began, latest, *told = facts
    marker = SpanMarker(bool(told[0]), *told[1:]) if told else None
    topic, number = partition.topic or partition.directory, partition.number or 0
    return TransactionSpan(topic, number, producer_id, epoch, first, last, records, began, latest, marker)


def _read_on(
    partition: Partition, path: str, position: int, end: int, spans: TransactionSpans, note: Callable[[str], object]
) -> int | None:
    with ReadOnlyFile(path) as log:
        log.size = min(log.size, end)
        if position >= log.size:
            return None
        walk = HeaderWalk(log)
        walk.go(position, position)
        while not walk.broken:
            window = walk.window
            left = _take(window, 0, window.count, spans, position)
            if left is not None:
                return left
            if len(spans.ended) >= _SPANS_AT_ONCE and not walk.at_end:
                return walk.next_position
            if not walk.more():
                break
        if (damage := walk.damage()) is None:
            return None
        position = walk.next_position
        note_damage(partition, path, damage, note)
    for run in Segment(path).runs(position, end):
        if isinstance(run, Damage):
            note_damage(partition, path, run, note)
        else:
            _take(run.window, run.first, run.end, spans, None)
    return None


def _take(window: Window, first: int, end: int, spans: TransactionSpans, start: int | None) -> int | None:
    """Take batches of a window; return the position of a marker that is not completely in it, None without one.

    *start*: the requested start of the window; a marker there that is too large for it is skipped.  None: all batches
    are whole.
    """
    while (first := spans.take(window, first, end)) < end:
        batch = window.batch(first)
        if start is not None and window.at(first) + batch.size > window.size:
            if batch.position > start:
                return batch.position
        else:
            marker = read_marker(window, first)
            if isinstance(marker, Marker):
                told = int(not marker.aborts), batch.base_offset, marker.timestamp
                spans.end(batch.producer_id, *told, batch.producer_epoch, marker.coordinator_epoch)
        first += 1
    return None


_MOST_MARKER_BYTES = 64 << 10


def wrong_txn_index(
    partition: Partition, start: int, end: int, rebuilt: Collection[int] = (), *, is_clean: bool = False
) -> str | None:
    """Return, in words, the first transaction of offsets from *start* below *end* that an index is wrong about.

    None if all are right.  Only headers and markers are read, without checksums; behind a damaged header the rest of a
    segment is unknown, and counts as right.  Entries for data that is no longer there are right.  *rebuilt*: base
    offsets of segments whose index counts as right.  *is_clean*: the start follows a clean stop; without a producer
    snapshot it then forgets open transactions, which later get no entry.  Raises UnreadableError.
    """
    walk = _Walk(partition, start, end)
    for segment in partition.segments:
        wrong = walk.compare(segment)
        if wrong is not None and segment.base_offset not in rebuilt:
            return wrong
    if is_clean and not partition.snapshots:
        return walk.forgotten()
    return None


class _Walk:
    """The transactions along a log.

    *_open*: the first offset of data of each producer since its last marker.  *_commits*: the offset of the last COMMIT
    of each producer.  *_ends*: the last stable offset of each entry, in words, in which it is behind the marker.  A
    follower, which appends many batches at once, writes such entries, and few of them end a search too early.
    """

    def __init__(self, partition: Partition, start: int, end: int) -> None:
        self._partition, self._start, self._end = partition, start, end
        self._open: dict[int, int] = {}
        self._commits: dict[int, int] = {}
        self._ends: dict[str, int] = {}
        self._window = Window()

    def compare(self, segment: SegmentFiles) -> str | None:
        """Pass over *segment*, and return the first thing that its index is wrong about."""
        name = segment.txn_index
        entries = read_txn_index(self._partition.path, name)[0] if name is not None else []
        known = {(one.producer_id, one.last_offset): one for one in entries}
        wrong = [found for one in self._aborted(segment) if (found := self._missed(name, *one, known))]
        wrong += [
            self._hides(name, one)
            for one in known.values()
            if one.first_offset <= self._commits.get(one.producer_id, -1) <= one.last_offset
        ]
        return wrong[0] if wrong else None

    def forgotten(self) -> str | None:
        """Return the first transaction that is open at the end.  Kafka: UnifiedLog.rebuildProducerState."""
        if not self._open:
            return None
        producer, first = min(self._open.items(), key=lambda one: one[1])
        return (
            f"producer {producer} has an open transaction from offset {first} on, and there is no .snapshot: the start"
            " forgets it, and its records count as committed"
        )

    def _missed(
        self, name: str | None, producer: int, first: int, marker: int, known: dict[tuple[int, int], AbortedTxn]
    ) -> str | None:
        entry = known.pop((producer, marker), None)
        aborted = f"producer {producer} aborted {offsets_text(first, marker)}"
        if entry is None:
            place = "there is no .txnindex" if name is None else f"{name} has no entry for it"
            return f"{aborted}, and {place}"
        if entry.first_offset > first:
            return f"{aborted}, and the entry in {name} begins at {entry.first_offset}"
        # A broker looks for no more entries behind it.  Kafka: TransactionIndex.collectAbortedTxns.
        for hiding, end in self._ends.items():
            if first < end and search_may_end(self._partition, first, end, self._end):
                return hiding
        if entry.last_stable_offset > marker + 1:
            found = f"{aborted}, and the entry in {name} has the last stable offset {entry.last_stable_offset}"
            if entry.last_stable_offset > self._end:
                return found
            self._ends = {one: end for one, end in self._ends.items() if end > marker} | {
                found: entry.last_stable_offset
            }
        if entry.first_offset <= self._commits.get(producer, -1):
            return self._hides(name, entry)
        return None

    def _hides(self, name: str | None, entry: AbortedTxn) -> str:
        span = offsets_text(entry.first_offset, entry.last_offset)
        return f"{name} says that producer {entry.producer_id} aborted {span}, where it committed records"

    def _aborted(self, segment: SegmentFiles) -> Iterator[tuple[int, int, int]]:
        """Yield producer, first offset and marker of the transactions with data that end aborted in *segment*."""
        with ReadOnlyFile(os.path.join(self._partition.path, segment.log)) as log:
            for window in walk_windows(log):
                if isinstance(window, Damage):
                    self._open.clear()
                    return
                for i in window.transactional(0, window.count):
                    batch = window.batch(i)
                    if not batch.attributes & CONTROL_BIT:
                        if batch.records_count and batch.last_offset >= self._start:
                            self._open.setdefault(batch.producer_id, max(batch.base_offset, self._start))
                        continue
                    if (aborts := self._aborts(log, batch)) is None:
                        continue
                    first = self._open.pop(batch.producer_id, None)
                    if not aborts:
                        if first is not None:
                            self._commits[batch.producer_id] = batch.base_offset
                    elif first is not None and batch.base_offset < self._end:
                        yield batch.producer_id, first, batch.base_offset

    def _aborts(self, log: ReadableLog, batch: BatchFacts) -> bool | None:
        """Whether a marker aborts; None for a batch that is no marker."""
        if batch.size > _MOST_MARKER_BYTES:
            return None
        if read_window(log, self._window, batch.position, batch.size) < batch.size:
            return None
        self._window.scan(0, False, 0)
        marker = read_marker(self._window, 0) if self._window.count else None
        return marker.aborts if isinstance(marker, Marker) else None
