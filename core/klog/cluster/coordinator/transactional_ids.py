"""Transactional ids in the state of a coordinator that has loaded `__transaction_state`, and its earlier records.

for image in transaction_images(partitions):
    print(image.transactional_id, image.status)
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from klog.base.unusable import UNUSABLE, Unusable
from klog.cluster.coordinator.consumer_groups import AssignedPartition
from klog.cluster.coordinator.coordinator_records import Note, ignore, latest_records, record_windows
from klog.data_dir.partition import Partition
from klog.formats.internal_topics import TRANSACTION_STATE, CoordinatorRecord, coordinator_record
from klog.formats.transaction_state import VALUE_HEAD, VALUE_TAIL, TransactionStatus
from klog.kernel import Window, transaction_states

EPOCH_BUMPS: Final = 2
"""From this transaction version on each transaction has an epoch of its own.  Kafka: TransactionVersion.TV_2."""
_STATUSES: Final = {status.value: status for status in TransactionStatus}
_VERSION_0: Final = bytes(2)
PREPARED: Final = frozenset([TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT])
COMPLETED: Final = frozenset([TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT])
_WINDOW_BYTES: Final = 128 << 10
_WINDOW_ROWS: Final = 2048
IN_PROGRESS: Final = PREPARED | {TransactionStatus.ONGOING}
"""States in which the coordinator will end a transaction."""


class TransactionImage(NamedTuple):
    """The content of a record of `__transaction_state`.  Times are ms since the epoch; *started*: −1 before the first.

    *partitions*: those that the transaction wrote to, empty once it is complete.  *client_version*: 2 for clients that
    use an epoch for each transaction.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    status: TransactionStatus
    timeout_ms: int
    partitions: frozenset[AssignedPartition]
    updated: int
    started: int
    client_version: int = 0
    previous_producer_id: int = -1

    @property
    def commits(self) -> bool:
        """Whether the transaction is, or will be, committed."""
        return self.status in (TransactionStatus.PREPARE_COMMIT, TransactionStatus.COMPLETE_COMMIT)

    @property
    def producer_of_data(self) -> int:
        """The producer id with which a completed transaction was written.

        The last epoch of a producer id ends with a new id.  Kafka: TransactionMetadata.prepareComplete.
        """
        bumped = self.client_version >= EPOCH_BUMPS
        return self.previous_producer_id if bumped and self.producer_epoch == 0 else self.producer_id


def transaction_image(key: bytes, value: bytes) -> TransactionImage | None:
    """Return the content of a record of `__transaction_state`; None when it cannot be decoded.

    Kafka: TransactionLog.readTxnRecordValue.
    """
    if value[:2] != _VERSION_0 or len(value) < VALUE_HEAD.size + VALUE_TAIL.size:
        return _decoded(key, value)
    # Most values differ only in their times.
    image = _decoded_before(key, value[: -VALUE_TAIL.size])
    updated, started = VALUE_TAIL.read(value, len(value) - VALUE_TAIL.size)
    return None if image is None else image._replace(updated=updated, started=started)


@lru_cache(maxsize=1 << 14)
def _decoded_before(key: bytes, head: bytes) -> TransactionImage | None:
    return _decoded(key, head + bytes(VALUE_TAIL.size))


def _decoded(key: bytes, value: bytes) -> TransactionImage | None:
    record = coordinator_record(TRANSACTION_STATE, key, value)
    if not isinstance(record, CoordinatorRecord) or record.value is None:
        return None
    fields = record.value
    if fields["transactionStatus"] not in _STATUSES:
        return None
    topics = fields["transactionPartitions"] or ()
    return TransactionImage(
        record.key["transactionalId"],
        fields["producerId"],
        fields["producerEpoch"],
        _STATUSES[fields["transactionStatus"]],
        fields["transactionTimeoutMs"],
        frozenset((one["topic"], number) for one in topics for number in one["partitionIds"]),
        fields["transactionLastUpdateTimestampMs"],
        fields["transactionStartTimestampMs"],
        fields.get("clientTransactionVersion", 0),
        fields.get("previousProducerId", -1),
    )


def transaction_images(partitions: Iterable[Partition], note: Note = ignore) -> Iterator[TransactionImage]:
    """Yield the latest state of each transactional id.

    Raises nothing for content.  Kafka: TransactionStateManager.loadTransactionMetadata.
    """
    for partition in partitions:
        unknown = 0
        for key, value in latest_records(partition, note=note).records():
            image = transaction_image(key, value)
            if image is None:
                unknown += 1
            else:
                yield image
        if unknown:
            line = f"{partition.path}: {unknown} records that cannot be decoded"
            note(line)
            UNUSABLE.note(Unusable(partition.path, line, is_unreadable=False))


class TransactionEnding(NamedTuple):
    """A record that ends a transaction, undecoded.  *timestamp*: ms, when it was written."""

    timestamp: int
    producer_id: int
    status: TransactionStatus
    key: bytes
    value: bytes

    def image(self) -> TransactionImage | None:
        """Decode it; None when that cannot be done."""
        return transaction_image(self.key, self.value)


def transaction_endings(partition: Partition, producers: Container[int] | None = None) -> Iterator[TransactionEnding]:
    """Yield the records of a log that announce how a transaction will end, or that it has ended, in their order.

    *producers*: only of these; None: of all.
    """
    wanted = sum(1 << status for status in PREPARED | COMPLETED)
    for window in record_windows(partition, window=Window(_WINDOW_BYTES, _WINDOW_ROWS, 1)):
        for _, timestamp, key, value in transaction_states(window, wanted):
            _, producer_id, _, _, status = VALUE_HEAD.read(value)
            if producers is None or producer_id in producers:
                yield TransactionEnding(timestamp, producer_id, _STATUSES[status], key, value)
