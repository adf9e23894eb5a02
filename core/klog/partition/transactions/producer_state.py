"""The state of a partition's producers, which makes writes idempotent and transactions visible.

    state = ProducerState.load(snapshot, at_offset=1052)
    for batch in batches:                       # from offset 1052 on
        for event in state.apply(batch):        # a CompletedTxn, or an Irregularity
            print(event)
    state.snapshot()                            # what a broker would write at state.end

The state follows a broker of Kafka 4.3.1 that replays the log (a follower, a recovery, a start): nothing is refused.
A batch that a leader would have refused is applied, and reported.  `ProducerState.apply`, batch by batch,

1. moves the end behind the batch, which is all for a batch without a producer; a flawed marker is only reported;
2. finds the producer's entry, or adds one;
3. data: reports a sequence out of order, enters the batch's epoch, which forgets the batches of any other epoch, keeps
   the batch as one of the last five, and opens a transaction with the first transactional batch;
4. a marker: reports epochs that go backwards and a marker without a transaction, completes the transaction, whose last
   stable offset is the first offset of the earliest one still open, and enters the marker's epoch.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable
from typing import Final, NamedTuple

from klog.data_dir.partition import Partition
from klog.data_dir.root_files import read_small
from klog.formats.batch import (
    CONTROL_BIT,
    MAX_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchFacts,
    decrement_sequence,
    increment_sequence,
)
from klog.formats.damage import Location
from klog.formats.java_integers import LONG_MAX
from klog.formats.producer_snapshot import PRODUCER_ID_EXPIRATION_MS, Producer, Snapshot, read_snapshot
from klog.kernel import crc32c
from klog.partition.transactions.markers import (
    CompletedTxn,
    FlawedMarker,
    Marker,
    ProducerAnomaly,
    ProducerAnomalyKind,
    offset_after,
)

BATCHES_KEPT: Final = 5
"""The number of last batches kept of each producer, to recognise a repeated one.  Kafka: ProducerStateEntry."""

_NONE: Final = -1
_new_tuple = tuple.__new__  # a NamedTuple's own is Python, and this is done for every batch


Event = CompletedTxn | ProducerAnomaly
"""The effects of a batch besides a new state."""


class BatchMetadata(NamedTuple):
    """A remembered data batch.  *timestamp*: the largest in it, ms.  *last_sequence*: -1 without sequences."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """Sequence of its first record; means nothing without sequences."""
        return decrement_sequence(self.last_sequence, self.offset_delta)


class ProducerEntry:
    """One producer's state, -1 for unknown fields.  *batches*: the last few of its epoch, oldest first.

    *epoch_began*: whether the state includes the beginning of the epoch, whose first data batch must begin with
    sequence 0. Kafka: ProducerStateEntry.
    """

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "epoch_began",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
    )

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = _NONE
        self.coordinator_epoch = _NONE
        self.last_timestamp = _NONE
        self.current_txn_first_offset = _NONE
        self.batches: list[BatchMetadata] = []
        self.epoch_began = False

    @classmethod
    def load(cls, producer: Producer) -> ProducerEntry:
        """Return the entry for a snapshot's entry.  Kafka: ProducerStateManager.readSnapshot."""
        entry = cls(producer.producer_id)
        entry.producer_epoch = producer.producer_epoch
        entry.coordinator_epoch = producer.coordinator_epoch
        entry.last_timestamp = producer.timestamp
        entry.current_txn_first_offset = max(producer.current_txn_first_offset, _NONE)
        if producer.last_offset >= 0:
            last = (producer.last_sequence, producer.last_offset, producer.offset_delta, producer.timestamp)
            entry.batches.append(BatchMetadata(*last))
        return entry

    def producer(self) -> Producer:
        """Return its entry of a snapshot.  Kafka: ProducerStateManager.writeSnapshot."""
        sequence, offset, delta, _ = self.batches[-1] if self.batches else (_NONE, _NONE, 0, _NONE)
        return Producer(
            self.producer_id,
            self.producer_epoch,
            sequence,
            offset,
            delta,
            self.last_timestamp,
            self.coordinator_epoch,
            self.current_txn_first_offset,
        )

    def enter(self, producer_epoch: int) -> None:
        """Set the epoch; the batches of any other one, lower ones too, are forgotten."""
        if producer_epoch != self.producer_epoch:
            self.epoch_began = self.producer_epoch != _NONE
            self.producer_epoch = producer_epoch
            self.batches.clear()


class OngoingTxns:
    """Transactions without a marker, by first offset, which is unique: of two with the same one the later counts.

    Kafka: ProducerStateManager.ongoingTxns.
    """

    def __init__(self) -> None:
        self._sorted: list[tuple[int, int]] = []  # (first offset, producer id)

    def __len__(self) -> int:
        return len(self._sorted)

    def all(self) -> tuple[tuple[int, int], ...]:
        """Return (first offset, producer id) of each, earliest first."""
        return tuple(self._sorted)

    def begin(self, first_offset: int, producer_id: int) -> None:
        """Add a transaction."""
        i = bisect_left(self._sorted, (first_offset, -LONG_MAX))
        if i < len(self._sorted) and self._sorted[i][0] == first_offset:
            del self._sorted[i]
        self._sorted.insert(i, (first_offset, producer_id))

    def end(self, first_offset: int) -> bool:
        """Remove a transaction; False when there is none with that first offset."""
        i = bisect_left(self._sorted, (first_offset, -LONG_MAX))
        if i == len(self._sorted) or self._sorted[i][0] != first_offset:
            return False
        del self._sorted[i]
        return True

    def first_offset(self, besides: int | None = None) -> int | None:
        """Return the first offset of the earliest transaction, None without one; *besides*: a producer not to count."""
        return next((first for first, producer_id in self._sorted if producer_id != besides), None)


class ProducerState:
    """The producers of a partition after every batch below *end*, and their open transactions.

    Kafka: ProducerStateManager, ProducerAppendInfo with the origin REPLICATION.
    """

    def __init__(self, end: int = 0) -> None:
        self.end = end
        self.producers: dict[int, ProducerEntry] = {}
        self.ongoing = OngoingTxns()

    @classmethod
    def load(cls, snapshot: Snapshot, at_offset: int) -> ProducerState:
        """Return the state in a snapshot; *at_offset* is the number in its name.

        A broker takes none with a *problem*, and at once expires the idle: that is left to the caller.
        """
        state = cls(at_offset)
        state.take(snapshot.producers)
        return state

    def take(self, producers: Iterable[Producer]) -> None:
        """Add the entries of *producers* from a snapshot."""
        for producer in producers:
            entry = self.producers[producer.producer_id] = ProducerEntry.load(producer)
            if entry.current_txn_first_offset != _NONE:
                self.ongoing.begin(entry.current_txn_first_offset, producer.producer_id)

    def snapshot(self) -> tuple[Producer, ...]:
        """Return the snapshot that a broker would write at `end`, by producer id."""
        return tuple(self.producers[producer_id].producer() for producer_id in sorted(self.producers))

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the earliest open transaction, else the end.

        A broker's is never above the high watermark, which counts a transaction as open until it has passed the marker.
        """
        first = self.ongoing.first_offset()
        return self.end if first is None else first

    def expire(self, now_ms: int, expiration_ms: int = PRODUCER_ID_EXPIRATION_MS) -> tuple[int, ...]:
        """Forget producers that were idle for *expiration_ms* without an open transaction; return their ids.

        Idle by the time of their records.  Kafka: ProducerStateManager.isProducerExpired, producer.id.expiration.ms.
        """
        idle = [
            producer_id
            for producer_id, entry in self.producers.items()
            if entry.current_txn_first_offset == _NONE and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in idle:
            del self.producers[producer_id]
        return tuple(idle)

    def apply(
        self, batch: BatchFacts, marker: Marker | FlawedMarker | None = None, file: str = ""
    ) -> tuple[Event, ...]:
        """Apply the next batch; return its events, mostly none.

        *marker*: the result of `read_marker` for a control batch of a producer, else None.  *file* is for places. A
        batch without a producer only advances the end.  Content never raises.
        """
        self.end = batch.last_offset + 1
        if batch.producer_id < 0:
            return ()
        if isinstance(marker, FlawedMarker):
            kind = ProducerAnomalyKind(marker.flaw.value)
            return (_irregularity(kind, batch, file, None)._replace(detail=marker.detail),)
        entry = self.producers.get(batch.producer_id)
        if entry is None:
            entry = self.producers[batch.producer_id] = ProducerEntry(batch.producer_id)
        if not batch.attributes & CONTROL_BIT:
            return self._append(entry, batch, file)
        # After an empty control batch a broker, too, remembers only that the producer exists.
        return () if marker is None else self._end_txn(entry, batch, marker, file)

    def _append(self, entry: ProducerEntry, batch: BatchFacts, file: str) -> tuple[Event, ...]:
        """Take in a data batch.  Kafka: ProducerAppendInfo.appendDataBatch."""
        kept, base, timestamp = entry.batches, batch.base_sequence, batch.max_timestamp
        in_sequence = kept and batch.producer_epoch == entry.producer_epoch and base == kept[-1][0] + 1 > 0
        found: tuple[Event, ...] = ()
        if not in_sequence:
            found = _judge_sequence(entry, batch, file)
            entry.enter(batch.producer_epoch)
        if len(kept) == BATCHES_KEPT:
            del kept[0]
        delta = batch.last_offset_delta
        last = _NONE if base == _NONE else increment_sequence(base, delta)
        kept.append(_new_tuple(BatchMetadata, (last, batch.last_offset, delta, timestamp)))
        entry.last_timestamp = timestamp
        if bool(batch.attributes & TRANSACTIONAL_BIT) == (entry.current_txn_first_offset != _NONE):
            return found
        if batch.attributes & TRANSACTIONAL_BIT:
            entry.current_txn_first_offset = batch.base_offset
            self.ongoing.begin(batch.base_offset, batch.producer_id)
            return found
        began = entry.current_txn_first_offset
        return (*found, _irregularity(ProducerAnomalyKind.NOT_TRANSACTIONAL, batch, file, entry, began))

    def _end_txn(self, entry: ProducerEntry, batch: BatchFacts, marker: Marker, file: str) -> tuple[Event, ...]:
        """Take in a marker.  Kafka: ProducerAppendInfo.appendEndTxnMarker, ProducerStateManager.completeTxn."""
        found: list[Event] = []

        def note(kind: ProducerAnomalyKind, expected: int | None = None, was: int | None = None) -> None:
            found.append(_irregularity(kind, batch, file, entry, expected, was))

        if batch.producer_epoch < entry.producer_epoch:
            note(ProducerAnomalyKind.EPOCH_BACKWARDS, entry.producer_epoch, batch.producer_epoch)
        if marker.coordinator_epoch < entry.coordinator_epoch:
            note(ProducerAnomalyKind.COORDINATOR_EPOCH_BACKWARDS, entry.coordinator_epoch, marker.coordinator_epoch)
        first = entry.current_txn_first_offset
        if first == _NONE:
            note(ProducerAnomalyKind.MARKER_WITHOUT_TXN)
        else:
            open_still = self.ongoing.first_offset(besides=batch.producer_id)
            stable = offset_after(batch.base_offset) if open_still is None else open_still
            place = Location(file, batch.position, batch.base_offset)
            found.append(CompletedTxn(batch.producer_id, first, batch.base_offset, marker.aborts, stable, place))
            if not self.ongoing.end(first):
                note(ProducerAnomalyKind.TXN_NOT_STARTED, None, first)
        entry.enter(batch.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.current_txn_first_offset = _NONE
        entry.last_timestamp = marker.timestamp
        return tuple(found)


def _judge_sequence(entry: ProducerEntry, batch: BatchFacts, file: str) -> tuple[Event, ...]:
    """Return why a leader would have refused a data batch.  Kafka: ProducerAppendInfo.checkSequence."""
    epoch, known, base = batch.producer_epoch, entry.producer_epoch, batch.base_sequence
    if known != _NONE and epoch < known:
        return (_irregularity(ProducerAnomalyKind.EPOCH_BACKWARDS, batch, file, entry, known, epoch),)
    if base == _NONE:
        return (_irregularity(ProducerAnomalyKind.NO_SEQUENCE, batch, file, entry),)
    if known == _NONE:
        return ()
    if epoch != known or not entry.batches:
        begins = epoch != known or entry.epoch_began
        kind = ProducerAnomalyKind.FIRST_SEQUENCE_NOT_ZERO
        return (_irregularity(kind, batch, file, entry, 0, base),) if base and begins else ()
    expected = (entry.batches[-1].last_sequence + 1) & MAX_SEQUENCE
    if base == expected:
        return ()
    ends = (base, increment_sequence(base, batch.last_offset_delta))
    if any((kept.first_sequence, kept.last_sequence) == ends for kept in entry.batches):
        kind = ProducerAnomalyKind.DUPLICATE_SEQUENCE
    else:
        ahead = (base - expected) & MAX_SEQUENCE
        kind = (
            ProducerAnomalyKind.SEQUENCE_GAP
            if ahead <= MAX_SEQUENCE // 2 + 1
            else ProducerAnomalyKind.SEQUENCE_BACKWARDS
        )
    return (_irregularity(kind, batch, file, entry, expected, base),)


def _irregularity(
    kind: ProducerAnomalyKind,
    batch: BatchFacts,
    file: str,
    entry: ProducerEntry | None,
    expected: int | None = None,
    found: int | None = None,
) -> ProducerAnomaly:
    idle_ms = batch.max_timestamp - entry.last_timestamp if entry and entry.producer_epoch != _NONE else None
    place = Location(file, batch.position, batch.base_offset)
    return ProducerAnomaly(kind, place, batch.producer_id, batch.producer_epoch, expected, found, idle_ms)


def differences(
    left: Iterable[Producer], right: Iterable[Producer]
) -> tuple[tuple[Producer | None, Producer | None], ...]:
    """Compare snapshots as maps; return the pairs that differ, by producer id, None for a producer not there."""
    lefts = {producer.producer_id: producer for producer in left}
    rights = {producer.producer_id: producer for producer in right}
    pairs = ((lefts.get(producer_id), rights.get(producer_id)) for producer_id in sorted(lefts.keys() | rights.keys()))
    return tuple(pair for pair in pairs if pair[0] != pair[1])


def read_snapshot_file(path: str) -> Snapshot:
    """Return the content of a snapshot; its *problem* is why it cannot be read, or why a broker deletes it."""
    content = read_small(path)
    return read_snapshot(content, crc32c) if isinstance(content, bytes) else Snapshot((), str(content))


def snapshots_of(partition: Partition) -> list[tuple[str, int, Snapshot]]:
    """Return the name, the offset and the content of each producer snapshot, by offset."""
    return [
        (file.name, file.offset or 0, read_snapshot_file(os.path.join(partition.path, file.name)))
        for file in partition.snapshots
    ]
