"""Puts the parts of a transaction together: its spans in the partitions, and its coordinator's records.

All logs are read side by side in the order of time, so the memory is that of transactions in progress.  The records of
a coordinator are read with a lead: the clocks of brokers differ, and a marker must find its decision.  A producer id
has one transaction at a time.  Without its coordinator's records, markers belong together if they have the same epoch
and decision, are in different partitions, and no data of one was created after the marker of another.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Final, TypeAlias

from klog.cluster.coordinator.transactional_ids import (
    COMPLETED,
    PREPARED,
    TransactionEnding,
    TransactionImage,
    transaction_endings,
)
from klog.data_dir.partition import Partition
from klog.formats.java_integers import LONG_MAX
from klog.partition.transactions.spans import SpanMarker, TransactionSpan, transaction_spans

_LEAD_MS: Final = 2000
"""How far the clocks of two brokers may differ."""
_MOST_WAITING: Final = 100_000
"""The number of transactions that are kept for later markers; beyond it the oldest is returned unfinished."""


class JoinedTransaction:
    """A transaction.

    *spans*: its parts.  *prepared*, *completed*: its coordinator's records, None if they are missing.  *completed_at*:
    the time at which the latter was written, ms: after all markers, while the time in it is from before them.
    """

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.prepared: TransactionImage | None = None
        self.completed: TransactionImage | None = None
        self.completed_at = LONG_MAX
        self.spans: list[TransactionSpan] = []
        self.first_marker: SpanMarker | None = None
        self.last_marked = -1

    @property
    def image(self) -> TransactionImage | None:
        """The latest record of its coordinator."""
        return self.completed or self.prepared

    def lacks(self, topic: str, partition: int) -> bool:
        """Whether no part of a partition has been added to it."""
        return all((one.topic, one.partition) != (topic, partition) for one in self.spans)

    def add(self, span: TransactionSpan) -> None:
        """Put a part to it."""
        self.spans.append(span)
        if span.marker is not None:
            self.first_marker = self.first_marker or span.marker
            self.last_marked = max(self.last_marked, span.marker.timestamp)

    def distance(self, span: TransactionSpan, marker: SpanMarker) -> int | None:
        """Return the time between a marker and its coordinator's record, ms; None if it is another transaction's."""
        image = self.image
        if image is None or image.commits != marker.commits or not self.lacks(span.topic, span.partition):
            return None
        if self.prepared is not None and (span.topic, span.partition) not in self.prepared.partitions:
            return None
        begins = image.started if self.prepared is None else self.prepared.updated
        found = max(begins - marker.timestamp, marker.timestamp - self.completed_at, 0)
        return found if found <= _LEAD_MS else None

    def takes(self, span: TransactionSpan, marker: SpanMarker) -> bool:
        """Whether a span belongs to it by the data alone."""
        first = self.first_marker
        if self.image is not None or first is None or not self.lacks(span.topic, span.partition):
            return False
        same = (marker.commits, marker.producer_epoch) == (first.commits, first.producer_epoch)
        return same and span.began <= first.timestamp and marker.timestamp - first.timestamp <= _LEAD_MS


_Event: TypeAlias = "tuple[int, int, TransactionSpan | TransactionEnding]"


def _span_events(number: int, spans: Iterable[TransactionSpan]) -> Iterator[_Event]:
    """Yield the spans with the times of their markers, which never decrease; open ones are the last."""
    latest = 0
    for span in spans:
        latest = LONG_MAX if span.marker is None else max(latest, span.marker.timestamp)
        yield latest, number, span


def _ending_events(number: int, endings: Iterable[TransactionEnding]) -> Iterator[_Event]:
    latest = 0
    for ending in endings:
        latest = max(latest, ending.timestamp - _LEAD_MS)
        yield latest, number, ending


def joined_transactions(
    logs: Iterable[Partition],
    coordinators: Iterable[Partition],
    note: Callable[[str], object],
    ended_of: Container[int] | None = None,
) -> Iterator[JoinedTransaction]:
    """Yield the transactions in *logs*, about in the order of their ends, then the open ones: one for each producer.

    *coordinators*: partitions of `__transaction_state`.  *note* receives the unreadable parts.  *ended_of*: return
    ended transactions only of these producers; None: of all.
    """
    logs = list(logs)
    endings = (transaction_endings(one, ended_of) for one in coordinators)
    events = [_ending_events(i, one) for i, one in enumerate(endings)]
    spans = (transaction_spans(one, note, ended_of) for one in logs)
    events += [_span_events(i, one) for i, one in enumerate(spans, len(events))]
    join = _Join({(one.topic or one.directory, one.number or 0) for one in logs})
    for time, _, event in heapq.merge(*events):  # a number is in it once, so events are not compared
        if isinstance(event, TransactionEnding):
            join.take_ending(event)
        elif event.marker is not None:
            join.take_span(event, event.marker)
        else:
            join.take_open(event)
        yield from join.finished(time)
    yield from join.finished(None)


class _Join:
    """The transactions that may get more parts.  *here*: the partitions that are read."""

    def __init__(self, here: set[tuple[str, int]]) -> None:
        self._here = here
        self._waiting: dict[JoinedTransaction, int] = {}  # until when, in the order of their beginning
        self._of_producer: dict[int, list[JoinedTransaction]] = {}
        self._of_id: dict[bytes, JoinedTransaction] = {}
        self._whole: list[JoinedTransaction] = []

    def _begin(self, producer_id: int) -> JoinedTransaction:
        new = JoinedTransaction(producer_id)
        self._of_producer.setdefault(producer_id, []).append(new)
        self._waiting[new] = LONG_MAX
        return new

    def take_ending(self, ending: TransactionEnding) -> None:
        image = ending.image()
        if image is None:
            return
        before = self._of_id.get(ending.key)
        if ending.status in PREPARED:
            if before is not None and before in self._waiting:  # its markers can only be late by a clock
                self._waiting[before] = ending.timestamp
            new = self._begin(ending.producer_id)
            new.prepared = image
            self._of_id[ending.key] = new
            self._end_if_whole(new)
        elif ending.status in COMPLETED:
            if before is None or before.prepared is None or before.prepared.started != image.started:
                before = self._begin(image.producer_of_data)
            before.completed, before.completed_at = image, ending.timestamp
            self._of_id.pop(ending.key, None)
            if before in self._waiting:
                self._waiting[before] = ending.timestamp

    def take_span(self, span: TransactionSpan, marker: SpanMarker) -> None:
        found = self._of_producer.get(span.producer_id, ())
        near = [(one.distance(span, marker), i) for i, one in enumerate(found)]
        best = min(((far, i) for far, i in near if far is not None), default=None)
        if best is not None:
            chosen = found[best[1]]
        else:
            chosen = next((one for one in found if one.takes(span, marker)), None) or self._begin(span.producer_id)
        chosen.add(span)
        if chosen.image is None:
            self._waiting[chosen] = chosen.last_marked
        self._end_if_whole(chosen)

    def take_open(self, span: TransactionSpan) -> None:
        """Add an open part to the transaction whose markers are being written, else to one of all open parts."""
        for one in self._of_producer.get(span.producer_id, ()):
            told = one.prepared if one.completed is None else None
            is_told = told is not None and (span.topic, span.partition) in told.partitions
            is_open = one.image is None and one.first_marker is None
            if (is_told or is_open) and one.lacks(span.topic, span.partition):
                one.add(span)
                return
        self._begin(span.producer_id).add(span)

    def _end_if_whole(self, one: JoinedTransaction) -> None:
        """Give out a transaction when all its partitions that are here have their markers."""
        if one.prepared is not None and len(one.spans) == len(one.prepared.partitions & self._here):
            self._waiting.pop(one, None)
            self._forget(one)
            self._whole.append(one)

    def _forget(self, one: JoinedTransaction) -> None:
        rest = self._of_producer[one.producer_id]
        rest.remove(one)
        if not rest:
            del self._of_producer[one.producer_id]

    def finished(self, time: int | None) -> Iterator[JoinedTransaction]:
        """Yield the transactions that are complete by *time*, ms; None: all."""
        yield from self._whole
        self._whole = []
        while self._waiting:
            one, until = next(iter(self._waiting.items()))
            late = time is None or (time != LONG_MAX and until < time - 2 * _LEAD_MS)
            if not late and len(self._waiting) <= _MOST_WAITING:
                return
            del self._waiting[one]
            self._forget(one)
            yield one
