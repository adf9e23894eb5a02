"""The records that a plan appends about partitions and brokers, with the intended state after them, and their batches.

The batches are created once, so that every metadata log receives the same bytes.  Kafka: PartitionChangeBuilder,
PartitionRegistration.merge, ReplicationControlManager; BatchAccumulator, BatchBuilder, and for control records
MemoryRecordsBuilder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from klog.cluster.election import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from klog.cluster.metadata.cluster_image import Voter
from klog.cluster.metadata.metadata_loader import ClusterMetadata
from klog.cluster.metadata.topics_image import PartitionRegistration
from klog.commands.replicas.disks import BrokerDisk
from klog.commands.replicas.voters import KRAFT_VOTERS, voters_data
from klog.data_dir.log_dir import LogDir
from klog.formats.batch import CONTROL_BIT, BatchHead, write_batch
from klog.formats.control import kraft_control
from klog.formats.internal_topics import MetadataRecord, metadata_value, new_metadata_record
from klog.formats.names import PartitionState
from klog.formats.record import write_record
from klog.formats.structs.schema import Data
from klog.kernel import crc32c

_RESERVED: Final = (UNASSIGNED_DIRECTORY, LOST_DIRECTORY, MIGRATING_DIRECTORY)
_DIRECTORIES_FROM, _ELR_FROM = 17, 23
"""The metadata.version from which on records have these: 3.7-IV2 and 4.0-IV1.  Kafka: MetadataVersion."""

_ID_BLOCK: Final = 1000
"""Kafka: ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE."""

PartitionKey = tuple[str, int]
"""A topic's id, and the number of a partition."""


class PartitionUpdate(NamedTuple):
    """A record about a partition, and the intended state of the partition after it."""

    key: PartitionKey
    record: MetadataRecord
    after: PartitionRegistration


def change_version(state: ClusterMetadata) -> int:
    """Return the version of PartitionChange records.  Kafka: MetadataVersion.partitionChangeRecordVersion."""
    level = state.features.get("metadata.version", 0)
    return 2 if level >= _ELR_FROM else 1 if level >= _DIRECTORIES_FROM else 0


def _change(state: ClusterMetadata, key: PartitionKey, fields: Data) -> MetadataRecord:
    data = {"topicId": key[0], "partitionId": key[1], **fields}
    return new_metadata_record("PartitionChangeRecord", change_version(state), data)


def _every(state: ClusterMetadata) -> Iterator[tuple[str, PartitionKey, PartitionRegistration]]:
    """Yield topic, key and state of each partition, by the topics' names and the partitions' numbers."""
    for topic, topic_id in sorted(state.topic_ids.items()):
        for number, known in sorted(state.partitions.get(topic_id, {}).items()):
            yield topic, (topic_id, number), known


def directory_updates(state: ClusterMetadata, disks: Sequence[BrokerDisk]) -> Iterator[PartitionUpdate]:
    """Yield an update for each partition one of whose directories has another id now; the other directories stay.

    A broker with one log dir has its partitions there; of several it is the one that has the partition.
    """
    if change_version(state) == 0:
        return
    places = _Places(state, disks)
    for topic, key, known in _every(state):
        pairs = zip(known.replicas, known.directories, strict=False)
        new = tuple(places.now(node, old, topic, key) for node, old in pairs)
        if new != known.directories:
            after = known._replace(directories=new, partition_epoch=known.partition_epoch + 1)
            yield PartitionUpdate(key, _change(state, key, {"directories": list(new)}), after)


class _Places:
    """The present places of a node's log dirs."""

    def __init__(self, state: ClusterMetadata, disks: Sequence[BrokerDisk]) -> None:
        self._log_dirs: dict[int, list[LogDir]] = {}
        self._registered = {node: broker.log_dirs for node, broker in state.brokers.items()}
        self._voters = {voter.id: voter.directory_id for voter in state.quorum.voters or ()}
        for disk in disks:
            self._log_dirs.setdefault(disk.node, []).append(disk.log_dir)

    def now(self, node: int, old: str, topic: str, key: PartitionKey) -> str:
        """Return the id of the log dir that had the id *old*, or *old*: it is there, reserved, or not known."""
        mine = self._log_dirs.get(node, [])
        if not mine or old in _RESERVED or any(log_dir.directory_id == old for log_dir in mine):
            return old
        if len(mine) == 1 and len(self._registered.get(node, ())) == 1:
            return mine[0].directory_id or old
        for log_dir in mine:
            if any(
                _is(partition.topic, partition.number, partition.topic_id, topic, key)
                for partition in log_dir.partitions
                if partition.state is PartitionState.CURRENT
            ):
                return log_dir.directory_id or old
        if old == self._voters.get(node):
            return next((one.directory_id for one in mine if one.metadata_log is not None), None) or old
        return old


def _is(topic: str | None, number: int | None, topic_id: str | None, wanted: str, key: PartitionKey) -> bool:
    return (topic, number) == (wanted, key[1]) and topic_id in (None, key[0])


def ownership_updates(
    state: ClusterMetadata, node: int, directories: Mapping[PartitionKey, str]
) -> Iterator[PartitionUpdate]:
    """Yield the updates after which *node* alone has the partitions of *directories*: the ids of their log dirs."""
    version = change_version(state)
    for _, key, known in _every(state):
        if key not in directories:
            continue
        fields: Data = {"replicas": [node], "isr": [node], "leader": node}
        after = known._replace(
            replicas=(node,), isr=(node,), leader=node, adding=(), removing=(),
            leader_epoch=known.leader_epoch + 1, partition_epoch=known.partition_epoch + 1,
        )  # fmt: skip
        if known.removing:
            fields["removingReplicas"] = []
        if known.adding:
            fields["addingReplicas"] = []
        if version >= 1:
            fields["directories"] = [directories[key]]
            after = after._replace(directories=(directories[key],))
        if version >= 2:
            fields["eligibleLeaderReplicas"] = fields["lastKnownElr"] = []
            after = after._replace(elr=(), last_known_elr=())
        yield PartitionUpdate(key, _change(state, key, fields), after)


def with_unused_epochs(
    state: ClusterMetadata, updates: Iterable[PartitionUpdate], used: Mapping[PartitionKey, int]
) -> Iterator[PartitionUpdate]:
    """Yield *updates*, and more, so that no partition keeps a leader epoch that a log has already.

    *used*: the latest epochs of logs that are beyond those of the metadata.  A change raises the epoch by one, so such
    a partition is written anew.  Kafka: ReplicationControlManager.replay(PartitionRecord).
    """
    planned = {update.key: update for update in updates}
    for key in (*planned, *(key for key in used if key not in planned)):
        if key not in used:
            yield planned[key]
            continue
        known = state.partitions[key[0]][key[1]]
        after = planned[key].after if key in planned else known._replace(partition_epoch=known.partition_epoch + 1)
        yield _anew(state, key, after._replace(leader_epoch=used[key] + 1))


def _anew(state: ClusterMetadata, key: PartitionKey, after: PartitionRegistration) -> PartitionUpdate:
    """Return the record with the complete state of a partition.  Kafka: PartitionRegistration.toRecord."""
    version = change_version(state)
    data: Data = {
        "topicId": key[0],
        "partitionId": key[1],
        "replicas": list(after.replicas),
        "isr": list(after.isr),
        "removingReplicas": list(after.removing),
        "addingReplicas": list(after.adding),
        "leader": after.leader,
        "leaderRecoveryState": int(after.recovering),
        "leaderEpoch": after.leader_epoch,
        "partitionEpoch": after.partition_epoch,
    }
    if version >= 1:
        data["directories"] = list(after.directories) or [MIGRATING_DIRECTORY] * len(after.replicas)
    if version >= 2:
        data |= {"eligibleLeaderReplicas": list(after.elr) or None, "lastKnownElr": list(after.last_known_elr) or None}
    return PartitionUpdate(key, new_metadata_record("PartitionRecord", version, data), after)


def unused_producer_ids(highest: int) -> MetadataRecord:
    """Return the record behind which producer ids are handed out from the first block beyond *highest* on.

    Kafka: ProducerIdsImage.write, ProducerIdsBlock.
    """
    following = (highest // _ID_BLOCK + 1) * _ID_BLOCK
    return new_metadata_record("ProducerIdsRecord", 0, {"brokerId": -1, "brokerEpoch": -1, "nextProducerId": following})


def unregistrations(state: ClusterMetadata, node: int) -> Iterator[MetadataRecord]:
    """Yield a record for each broker but *node*, with the epoch of its last registration."""
    for other, broker in sorted(state.brokers.items()):
        if other != node and not broker.unregistered:
            data = {"brokerId": other, "brokerEpoch": broker.epoch}
            yield new_metadata_record("UnregisterBrokerRecord", 0, data)


def end_of_open_transaction(state: ClusterMetadata) -> list[MetadataRecord]:
    """Return the record that ends an open transaction, which would otherwise include all later records and never end.

    Kafka: QuorumController, ActivationRecordsGenerator.
    """
    if not state.open_transaction:
        return []
    reason = "the plan follows a transaction that was open at the end of the log"
    return [new_metadata_record("AbortTransactionRecord", 0, {"reason": reason})]


_MOST_RECORDS: Final = 5000
"""The number of records in a batch; Kafka accepts no batch of more than 8 MiB.  Kafka:
KafkaRaftClient.MAX_BATCH_SIZE_BYTES."""


class AppendedBatch(NamedTuple):
    """A batch of a metadata log; *records*: their names."""

    offset: int
    epoch: int
    records: tuple[str, ...]
    content: bytes


class NewBatches:
    """Batches behind offset *end*, all of one *epoch* and of one time, *now_ms*."""

    def __init__(self, end: int, epoch: int, now_ms: int) -> None:
        self.end, self._epoch, self.now_ms = end, epoch, now_ms
        self.batches: list[AppendedBatch] = []

    @property
    def content(self) -> bytes:
        """Return the bytes of all of them."""
        return b"".join(batch.content for batch in self.batches)

    def add_voters(self, voters: Sequence[Voter]) -> None:
        """Append the control record with the voters of the quorum."""
        self._add(["VOTERS"], [kraft_control(KRAFT_VOTERS, voters_data(voters))], CONTROL_BIT)

    def add_records(self, records: Iterable[MetadataRecord]) -> None:
        """Append metadata records, some thousands a batch."""
        left = iter(records)
        while some := list(islice(left, _MOST_RECORDS)):
            names = [record.name.removesuffix("_RECORD") for record in some]
            self._add(names, [(None, metadata_value(record)) for record in some], 0)

    def _add(self, names: Sequence[str], pairs: Sequence[tuple[bytes | None, bytes]], attributes: int) -> None:
        head = BatchHead(self.end, self._epoch, attributes, len(pairs) - 1, self.now_ms, self.now_ms, len(pairs))
        records = b"".join(write_record(0, i, key, value) for i, (key, value) in enumerate(pairs))
        self.batches.append(AppendedBatch(self.end, self._epoch, tuple(names), write_batch(head, records, crc32c)))
        self.end += len(pairs)
