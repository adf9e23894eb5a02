"""Open transactions that nothing ends after the start: no coordinator has them.

Their coordinator's partition of `__transaction_state` was lost, emptied or set aside, and a broker creates it again
without them.  The last stable offset stays at the first of them for ever, and read_committed consumers stop there.
Kafka: TransactionCoordinator.abortTimedOutTransactions, UnifiedLog.fetchLastStableOffsetMetadata.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from klog.cluster.coordinator.transactional_ids import IN_PROGRESS, transaction_images
from klog.cluster.metadata.metadata_loader import ClusterMetadata
from klog.commands.doctor.diagnosis import HANGING, SERVED, Fate, PartitionFate
from klog.commands.doctor.partition_loader import LoadedPartition
from klog.formats.internal_topics import TRANSACTION_STATE


def with_hanging(
    rows: Sequence[PartitionFate],
    loaded: Mapping[str, LoadedPartition],
    cluster: ClusterMetadata | None,
    node_id: int,
) -> tuple[PartitionFate, ...]:
    """Return *rows* with a reason for those whose open transaction nothing ends; *loaded*: by path.

    Only transactions that no other node can know are judged: of partitions, and of coordinators, with this node as the
    only replica.
    """
    if cluster is None:
        return tuple(rows)
    coordinators = cluster.partitions.get(cluster.topic_ids.get(TRANSACTION_STATE, ""), {})
    if not all(one.replicas == (node_id,) for one in coordinators.values()):
        return tuple(rows)
    opened = {row: loaded[_path(row)].used.open_transactions for row in rows if _path(row) in loaded}
    judged = {
        row: transactions
        for row, transactions in opened.items()
        if transactions and row.fate is Fate.SERVES and row.reason is None and _is_alone(row, cluster, node_id)
    }
    if not judged:
        return tuple(rows)
    logs = (loaded[_path(row)] for row in opened if row.topic == TRANSACTION_STATE and row.fate in SERVED)
    images = transaction_images(one.read_again() for one in logs)
    known = {(one.producer_id, *place) for one in images if one.status in IN_PROGRESS for place in one.partitions}
    return tuple(_judged(row, judged.get(row, ()), known) for row in rows)


def _path(row: PartitionFate) -> str:
    return f"{row.log_dir}/{row.directory}"


def _is_alone(row: PartitionFate, cluster: ClusterMetadata, node_id: int) -> bool:
    known = cluster.partition(row.topic, row.partition)
    return known is not None and known.replicas == (node_id,)


def _judged(
    row: PartitionFate, transactions: Sequence[tuple[int, int]], known: set[tuple[int, str, int]]
) -> PartitionFate:
    for first, producer in transactions:
        if (producer, row.topic, row.partition) not in known:
            what = f"{TRANSACTION_STATE} does not have the transaction of producer {producer} from offset {first} on"
            words = f"--topic {row.topic} --partition {row.partition} --start-offset {first}"
            message = f"{what}: nothing ends it, but kafka-transactions abort {words}"
            return row._replace(reason=HANGING, message=message)
    return row
