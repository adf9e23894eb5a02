"""The transactions of one log, by the headers of its batches: the offsets of each, and the marker that ended it.

    for span in transaction_spans(partition):
        print(span.producer_id, span.first_offset, span.marker)

No file is open between two steps, which allows to read thousands of logs side by side; the memory is that of the log's
open transactions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterator
from typing import Final, NamedTuple

from klog.base.errors import KlogError
from klog.base.read_only import ReadOnlyFile
from klog.data_dir.partition import Partition, SegmentFiles
from klog.data_dir.preallocation import note_damage
from klog.formats.damage import Damage
from klog.kernel import TransactionSpans, Window
from klog.log.header_walk import HeaderWalk
from klog.log.segment import Segment
from klog.partition.transactions.markers import Marker, read_marker

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
