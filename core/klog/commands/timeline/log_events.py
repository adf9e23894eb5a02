"""The events in the batches of a partition: rolls, leader epochs, producers, transactions, pauses, and damage."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from heapq import heappush, heappushpop
from typing import Final, NamedTuple

from klog.base.overlays import remote_object, shown_path
from klog.base.read_only import ReadOnlyFile
from klog.commands.timeline.timeline_event import BROKER_CLOCK, FILE_CLOCK, PRODUCER_CLOCK, TimelineEvent
from klog.data_dir.partition import Partition
from klog.formats.batch import DELETE_HORIZON_BIT, LOG_APPEND_TIME_BIT, BatchFacts
from klog.formats.damage import Damage
from klog.formats.internal_topics import CLUSTER_METADATA, CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from klog.kernel import LogLandmarks, Window
from klog.log.records import BatchRun
from klog.partition.transactions.markers import Marker, read_marker
from klog.partition.verify.segment_pass import MOST_DAMAGES, SegmentFacts

LEAST_SILENCE_MS: Final = 60_000
USUAL_PAUSES: Final = 10
"""A silence is a pause of a minute at least, and longer than ten times the partition's usual pause."""
MOST_SILENCES: Final = 100
"""The number of pauses per partition: the longest."""
MOST_PRODUCERS: Final = 100_000
"""The number of producers per partition: beyond it, the first half of them is forgotten, and treated as new later."""
_CLOCK_ERROR_MS: Final = 3_600_000
_BROKERS_TOPICS: Final = (CLUSTER_METADATA, CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE)

_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1))

Emit = Callable[[TimelineEvent], None]


class _Begun(NamedTuple):
    """A transaction without a marker so far: where its first batch is, by whose clock when."""

    event: TimelineEvent
    producer_epoch: int


class LogEvents:
    """Observes the pass over a partition, as a BatchObserver, and passes its events to *emit*.

    *coordinated*: producer id → the time (ms) from which on its coordinator's log contains its transactions; those that
    end later are not reported from this log.  *has_transactions*: some of its batches belong to transactions, or damage
    may hide them.
    """

    def __init__(self, partition: Partition, log_dir: str, emit: Emit, coordinated: Mapping[int, int]) -> None:
        self._partition, self._log_dir, self._emit, self._coordinated = partition, log_dir, emit, coordinated
        self._landmarks = LogLandmarks(LEAST_SILENCE_MS)
        self._producers: dict[int, int] = {}
        self._begun: dict[int, _Begun] = {}
        self._silences: list[tuple[int, int, TimelineEvent]] = []
        self._damaged: dict[tuple[str, int], tuple[int, str]] = {}
        self._epoch = -1
        self._first: BatchFacts | None = None
        self._last: BatchFacts | None = None
        self._log = ""
        self._modified, self._modified_by = 0, FILE_CLOCK
        self._begins_segment = False
        self.has_transactions = False

    # ---- the pass

    def begin(self, source: ReadOnlyFile, facts: SegmentFacts) -> None:
        """Take note of the segment's name, and of the time when its log was last written."""
        self._log, self._begins_segment = facts.files.log, True
        self._modified, self._modified_by = last_write(source.path) or (0, FILE_CLOCK)
        self._landmarks.ahead = self._modified + _CLOCK_ERROR_MS

    def take(self, run: BatchRun) -> None:
        """Take intact batches."""
        window = run.window
        if run.first == run.end:
            return
        if self._begins_segment:
            self._begins_segment = False
            if self._first is not None:
                self._tell("roll", window.batch(run.first), f"segment {self._log.removesuffix('.log')} begins")
        for row, before in self._landmarks.take(window, run.first, run.end):
            self._landmark(window, row, before)
        self._last = window.batch(run.end - 1)

    def damaged(self, damage: Damage) -> None:
        """Store the time for reporting damage: that of the batches before it."""
        self.has_transactions = True
        if len(self._damaged) < MOST_DAMAGES:
            last = self._last
            latest = -1 if last is None else max(self._landmarks.latest, last.max_timestamp)
            when = (latest, self._clock(last)) if latest >= 0 else (self._modified, self._modified_by)
            self._damaged[self._log, damage.place.position or 0] = when

    def end(self, size: int) -> None:
        """A segment needs no event at its end."""

    # ---- events

    def _landmark(self, window: Window, row: int, before: int) -> None:
        batch = window.batch(row)
        if self._first is None:
            self._first = batch
            self._tell("first-record", batch, "the log begins")
        if batch.magic >= 2 and batch.leader_epoch > self._epoch:
            self._new_epoch(batch)
        if batch.producer_id >= 0:
            self._producer(window, row, batch)
        self._pause(batch, before)

    def _new_epoch(self, batch: BatchFacts) -> None:
        is_first, self._epoch = self._epoch < 0, batch.leader_epoch
        # The metadata log has its own records of leaders; and the first epoch of a shortened log began earlier.
        if self._partition.topic != CLUSTER_METADATA and (not is_first or batch.base_offset == 0):
            self._tell("epoch", batch, f"leader epoch {batch.leader_epoch} begins", epoch=batch.leader_epoch)

    def _producer(self, window: Window, row: int, batch: BatchFacts) -> None:
        producer = batch.producer_id
        self.has_transactions |= batch.is_control or batch.is_transactional
        if batch.is_control:
            self._marker(window, row, batch)
            return
        known = self._producers.get(producer)
        # Each transaction of version 2 has an epoch of its own.
        if known is None or (known != batch.producer_epoch and not batch.is_transactional):
            now = f"epoch {batch.producer_epoch}"
            words = f"producer {producer} begins, {now}" if known is None else f"producer {producer} has {now}"
            self._tell("producer", batch, words, epoch=batch.producer_epoch, producer_id=producer)
        self._producers[producer] = batch.producer_epoch
        if len(self._producers) > MOST_PRODUCERS:
            for forgotten in list(self._producers)[: MOST_PRODUCERS // 2]:
                del self._producers[forgotten]
        if batch.is_transactional and producer not in self._begun:
            words = f"producer {producer} begins a transaction"
            event = self._event("txn-begin", batch, words, epoch=batch.producer_epoch, producer_id=producer)
            self._begun[producer] = _Begun(event, batch.producer_epoch)

    def _marker(self, window: Window, row: int, batch: BatchFacts) -> None:
        marker = read_marker(window, row)
        begun = self._begun.pop(batch.producer_id, None)
        if not isinstance(marker, Marker) or self._is_coordinated(batch.producer_id, marker.timestamp):
            return
        if begun is not None:
            self._emit(begun.event)
        what = "aborts" if marker.aborts else "commits"
        since = f"since offset {begun.event.offset}" if begun is not None else "its data is not in this log"
        words = f"producer {batch.producer_id} {what}: {since}"
        if begun is not None and marker.aborts and begun.producer_epoch < batch.producer_epoch:
            words += f"; the coordinator raised its epoch, {begun.producer_epoch} → {batch.producer_epoch}"
        kind = "txn-abort" if marker.aborts else "txn-commit"
        event = self._event(kind, batch, words, epoch=batch.producer_epoch, producer_id=batch.producer_id)
        self._emit(event._replace(time=marker.timestamp, clock=BROKER_CLOCK))

    def _is_coordinated(self, producer: int, timestamp: int) -> bool:
        since = self._coordinated.get(producer)
        return since is not None and since <= timestamp

    def _pause(self, batch: BatchFacts, before: int) -> None:
        pause = begin_ms(batch) - before
        is_known = before >= 0 and batch.max_timestamp <= self._landmarks.ahead
        if not is_known or batch.is_control or pause < LEAST_SILENCE_MS:
            return
        event = self._event("silence", batch, f"nothing for {duration(pause)}")._replace(time=before)
        silence = (pause, batch.base_offset, event)
        if len(self._silences) < MOST_SILENCES:
            heappush(self._silences, silence)
        else:
            heappushpop(self._silences, silence)

    # ---- the end

    def finish(self) -> None:
        """Emit the events that only the end of the log shows: silences, open transactions, the last record."""
        usual = usual_pause(self._landmarks.pauses)
        for pause, _, event in self._silences:
            if pause > USUAL_PAUSES * usual:
                self._emit(event._replace(message=f"{event.message}; usual: {duration(usual)}"))
        for producer, begun in self._begun.items():
            if producer not in self._coordinated:
                self._emit(begun.event)
                words = f"the transaction of producer {producer} from offset {begun.event.offset} on has no end"
                self._emit(begun.event._replace(kind="txn-open", message=words))
        if self._last is not None:
            self._tell("last-record", self._last, f"the log ends at offset {self._last.last_offset + 1}")

    def when_damaged(self, log: str, position: int) -> tuple[int, str]:
        """Return the time for reporting damage at *position*, and its clock."""
        return self._damaged.get((log, position)) or last_write(self._partition.file(log)) or (0, FILE_CLOCK)

    # ---- the parts of an event

    def _tell(self, kind: str, batch: BatchFacts, message: str, **more: int) -> None:
        self._emit(self._event(kind, batch, message, **more))

    def _event(self, kind: str, batch: BatchFacts, message: str, **more: int) -> TimelineEvent:
        is_end = kind == "last-record"
        time = batch.max_timestamp if is_end else begin_ms(batch)
        event = TimelineEvent(
            time if time >= 0 else self._modified,
            self._clock(batch) if time >= 0 else self._modified_by,
            kind,
            message,
            self._log_dir,
            self._partition.topic,
            self._partition.topic_id,
            self._partition.number,
            batch.last_offset if is_end else batch.base_offset,
            file=named_file(self._partition, self._log),
            position=batch.position,
        )
        return event._replace(**more) if more else event  # type: ignore[arg-type]  # the fields with numbers

    def _clock(self, batch: BatchFacts | None) -> str:
        is_brokers = batch is not None and (batch.is_control or bool(batch.attributes & LOG_APPEND_TIME_BIT))
        return BROKER_CLOCK if is_brokers or self._partition.topic in _BROKERS_TOPICS else PRODUCER_CLOCK


def begin_ms(batch: BatchFacts) -> int:
    """Return the time of a batch's first record, as far as its header contains it; -1 for none."""
    if batch.magic < 2 or batch.attributes & (DELETE_HORIZON_BIT | LOG_APPEND_TIME_BIT) or batch.base_timestamp < 0:
        return batch.max_timestamp
    return min(batch.base_timestamp, batch.max_timestamp)


def usual_pause(pauses: list[int]) -> int:
    """Return the median of pauses, rounded up to one less than a power of two, in ms.

    *pauses*: how many take 0, 1, 2 … bits.
    """
    left = (sum(pauses) + 1) // 2
    for bits, count in enumerate(pauses):
        left -= count
        if left <= 0:
            return (1 << bits) - 1
    return 0


def duration(milliseconds: int) -> str:
    """Return a duration for people, in its two largest units: `2 h 3 min`."""
    at = next((at for at, (_, size) in enumerate(_UNITS) if milliseconds >= size), len(_UNITS) - 1)
    unit, size = _UNITS[at]
    left = milliseconds % size
    smaller, its_size = _UNITS[min(at + 1, len(_UNITS) - 1)]
    return f"{milliseconds // size} {unit}" + (f" {left // its_size} {smaller}" if left >= its_size else "")


def named_file(partition: Partition, name: str) -> str:
    """Return how an event names a file of a partition: below its log dir, or by its key in remote storage."""
    path = partition.file(name)
    return f"{partition.directory}/{name}" if remote_object(path) is None else shown_path(path)


def last_write(log: str) -> tuple[int, str] | None:
    """Return when a log was last written, in ms, and the clock; None when it is not there.

    The metadata of a remote segment have the largest timestamp of its records.
    """
    if (remote := remote_object(log)) is not None:
        return remote.modified_ms, PRODUCER_CLOCK
    modified = modified_ms(log)
    return None if modified is None else (modified, FILE_CLOCK)


def modified_ms(path: str) -> int | None:
    """Return when a file was last modified, in ms; None when it is not there."""
    try:
        return os.stat(path).st_mtime_ns // 1_000_000
    except OSError:
        return None
