"""The open transactions that the transaction coordinator had decided to commit.

The marker of a decision may be missing in a partition: the broker stopped before writing it, or the end of the log is
lost.  The log of `__transaction_state` still contains the decision.  Other open data of the same producer belongs to a
later transaction, or to a hanging earlier one, and the decision does not apply to it.  In doubt the data stays open: a
consumer cannot undo the reading of data that was never committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from klog.base.errors import UnreadableError
from klog.cluster.coordinator.coordinator_records import records_until
from klog.cluster.coordinator.transactional_ids import EPOCH_BUMPS
from klog.data_dir.partition import Partition
from klog.formats.batch import Attributes, BatchFacts
from klog.formats.internal_topics import TRANSACTION_STATE, CoordinatorRecord, coordinator_record
from klog.formats.structs.schema import Data
from klog.formats.transaction_state import VALUE_HEAD, TransactionStatus
from klog.partition.transactions.markers import FlawedMarker, Marker
from klog.partition.transactions.producer_replay import nearest_state, replay
from klog.partition.transactions.producer_state import Event, ProducerState

_NONE: Final = -1
_LAST_EPOCH: Final = 2**15 - 2
"""The last one that a producer writes with: its end brings a new producer id.  Kafka: isEpochExhausted."""
_LEAD_MS: Final = 500
"""A record is created before the coordinator learns of its partition, but hardly longer before."""
_KEPT: Final = 8
"""The number of records kept of each transactional id: any of its last transactions may be open."""

_UNDECIDED: Final = frozenset(
    [TransactionStatus.EMPTY, TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT]
)
"""States without a transaction in progress: the next one begins after them."""
_KEPT_STATUSES: Final = _UNDECIDED | {TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT}


class TransactionDecision(NamedTuple):
    """The decision to commit the records that a producer wrote with an epoch, in some partitions (None: unknown in
    which).

    *begins_ms*: the earliest time of its first record; *starts_ms*: the time at which the coordinator added the first
    partition; *ends_ms*: the time of the decision.  *is_exact*: no other transaction of the producer has this epoch.
    """

    producer_id: int
    producer_epoch: int
    partitions: frozenset[tuple[str, int]] | None
    begins_ms: int
    starts_ms: int
    ends_ms: int
    is_exact: bool = False

    def is_about(self, topic: str, number: int) -> bool:
        """Whether it names a partition, or none."""
        return self.partitions is None or (topic, number) in self.partitions

    def covers(self, batch: BatchFacts, ended_ms: int) -> bool:
        """Whether an open batch belongs to it; *ended_ms*: the time of the marker before it, -1 for none.

        A marker after the start is that of this transaction: later data arrived too late.
        """
        if batch.producer_epoch != self.producer_epoch:
            return False
        if self.is_exact:
            return True
        return ended_ms <= self.starts_ms and self.begins_ms <= _made_ms(batch) <= self.ends_ms


def _made_ms(batch: BatchFacts) -> int:
    """Return the time of a batch's first record; it decides for the whole batch, which never spans two transactions."""
    if batch.attributes & (Attributes.LOG_APPEND_TIME | Attributes.DELETE_HORIZON):
        return batch.max_timestamp
    return batch.base_timestamp


# ---------------------------------------------------------------- the decisions


def decisions(partitions: Iterable[Partition], until_ms: int | None = None) -> Iterator[TransactionDecision]:
    """Yield the coordinator's decisions to commit, from the available partitions of `__transaction_state`.

    *until_ms*: only decisions before that time.  Kafka: TransactionCoordinator.endTransaction, TransactionMetadata.
    """
    for partition in partitions:
        kept: dict[bytes, deque[bytes]] = {}
        for key, value in records_until(partition, until_ms):
            if value is not None and len(value) >= VALUE_HEAD.size and VALUE_HEAD.read(value)[-1] in _KEPT_STATUSES:
                kept.setdefault(key, deque(maxlen=_KEPT)).append(value)
        for key, values in kept.items():
            for one in _of_one_id(key, values):
                if until_ms is None or one.ends_ms < until_ms:
                    yield one


def _of_one_id(key: bytes, values: Iterable[bytes]) -> Iterator[TransactionDecision]:
    """Yield the decisions among the records of a transactional id, in their order."""
    before: Data | None = None
    for value in values:
        record = coordinator_record(TRANSACTION_STATE, key, value)
        if not isinstance(record, CoordinatorRecord) or record.value is None:
            before = None
            continue
        fields = record.value
        if fields["transactionStatus"] == TransactionStatus.PREPARE_COMMIT:
            yield _prepared(fields, before)
        elif fields["transactionStatus"] == TransactionStatus.COMPLETE_COMMIT and not _completes(fields, before):
            yield _completed(fields)
        before = fields


def _prepared(fields: Data, before: Data | None) -> TransactionDecision:
    topics = fields["transactionPartitions"] or ()
    pairs = ((topic["topic"], number) for topic in topics for number in topic["partitionIds"])
    bumped = fields.get("clientTransactionVersion", 0) >= EPOCH_BUMPS
    starts, ends = fields["transactionStartTimestampMs"], fields["transactionLastUpdateTimestampMs"]
    begins = starts
    if before is not None and before["transactionStatus"] in _UNDECIDED:
        begins = min(starts, max(before["transactionLastUpdateTimestampMs"], starts - _LEAD_MS))
    epoch = fields["producerEpoch"] - bumped
    return TransactionDecision(fields["producerId"], epoch, frozenset(pairs), begins, starts, ends, bumped)


def _completes(fields: Data, before: Data | None) -> bool:
    """Whether the decision itself precedes: it names the partitions."""
    return (
        before is not None
        and before["transactionStatus"] == TransactionStatus.PREPARE_COMMIT
        and before["transactionStartTimestampMs"] == fields["transactionStartTimestampMs"]
    )


def _completed(fields: Data) -> TransactionDecision:
    bumped = fields.get("clientTransactionVersion", 0) >= EPOCH_BUMPS
    producer, epoch = fields["producerId"], fields["producerEpoch"] - bumped
    if bumped and epoch < 0:  # it ended the last epoch of the producer id before
        producer, epoch = fields["previousProducerId"], _LAST_EPOCH
    starts, ends = fields["transactionStartTimestampMs"], fields["transactionLastUpdateTimestampMs"]
    return TransactionDecision(producer, epoch, None, starts, starts, ends)


# ---------------------------------------------------------------- their transactions


def was_decided(
    partition: Partition, producer_id: int, first: int, end: int, found: Sequence[TransactionDecision]
) -> bool:
    """Whether one of the decisions *found* covers all open data of a producer, from offset *first* up to *end*.

    They are of that producer, and about the partition.
    """
    if not found:
        return False
    state = _OpenData(nearest_state(partition, first), producer_id, first, found)
    bases = [segment.base_offset for segment in partition.segments]
    try:
        for segment, following in zip(partition.segments, [*bases[1:], None], strict=True):
            if (following is not None and following <= state.end) or segment.base_offset >= end:
                continue
            for _ in replay(state, partition.path, (segment,), end if following is None or end < following else None):
                pass
            if not state.left:
                return False
    except UnreadableError:
        return False
    return state.was_met


class _OpenData(ProducerState):
    """The state while walking a producer's open data; *left*: the decisions that cover all of it so far."""

    def __init__(
        self, state: ProducerState, producer_id: int, first: int, found: Sequence[TransactionDecision]
    ) -> None:
        super().__init__(state.end)
        self.producers, self.ongoing = state.producers, state.ongoing
        self.left = list(found)
        self.was_met = False
        self._producer_id, self._first = producer_id, first
        self._ended_ms = _NONE

    def apply(
        self, batch: BatchFacts, marker: Marker | FlawedMarker | None = None, file: str = ""
    ) -> tuple[Event, ...]:
        is_data = batch.records_count > 0 and not batch.attributes & Attributes.CONTROL
        if is_data and batch.producer_id == self._producer_id and batch.base_offset >= self._first:
            if not self.was_met:
                entry = self.producers.get(batch.producer_id)
                self._ended_ms = _NONE if entry is None else entry.last_timestamp
            self.was_met = True
            self.left = [one for one in self.left if one.covers(batch, self._ended_ms)]
        return super().apply(batch, marker, file)
