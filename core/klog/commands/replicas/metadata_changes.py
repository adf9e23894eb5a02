"""The records that a plan appends to a metadata log, with the intended state after them, and their batches.

They are about partitions and brokers.  If one broker is to own everything, its log dirs get a copy of every partition
that another disk has a better one of.

The batches are created once, so that every metadata log receives the same bytes.  Kafka: PartitionChangeBuilder,
PartitionRegistration.merge, ReplicationControlManager; BatchAccumulator, BatchBuilder, and for control records
MemoryRecordsBuilder.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from klog.base.errors import KlogError, UsageError
from klog.cluster.election import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from klog.cluster.metadata.cluster_image import Voter
from klog.cluster.metadata.metadata_loader import ClusterMetadata
from klog.cluster.metadata.topics_image import PartitionRegistration
from klog.commands.replicas.copy_plan import CopyPlan
from klog.commands.replicas.disks import BrokerCopies, BrokerDisk, copies_on
from klog.commands.replicas.voter_addresses import KRAFT_VOTERS, voters_data
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition_identity import IdentityChoice
from klog.formats.batch import CONTROL_BIT, BatchHead, write_batch
from klog.formats.checkpoint import Malformed
from klog.formats.control import kraft_control
from klog.formats.internal_topics import MetadataRecord, metadata_value, new_metadata_record
from klog.formats.names import PartitionState
from klog.formats.record import write_record
from klog.formats.structs.schema import Data
from klog.kernel import crc32c

_MOST_LINES = 10


class Gathering:
    """The partitions that *node* is to own; *copies* plans them, and changes only that node's log dirs.

    *directories*: for each that a disk has, the id of the log dir of *node* that has it, or will have it.  *lost*:
    those that no disk has, topic and number.  *unknown*: those on a disk that the metadata log does not have.
    """

    def __init__(self, node: int, disks: Sequence[BrokerDisk], copies: CopyPlan) -> None:
        self.node, self._disks, self.copies = node, disks, copies
        self.directories: dict[PartitionKey, str] = {}
        self.lost: list[tuple[str, int]] = []
        self.unknown: list[tuple[str, int]] = []

    def collect(self, state: ClusterMetadata) -> None:
        """Plan every partition of the cluster.

        Raises UsageError if the user has to choose a copy, KlogError, UnreadableError.
        """
        found = {(one.topic, one.number): one for one in copies_on(self._disks, choice=IdentityChoice(by_name=True))}
        for topic, topic_id in sorted(state.topic_ids.items()):
            for number in sorted(state.partitions.get(topic_id, {})):
                copies = _of_topic(found.get((topic, number)), topic_id)
                if copies is None:
                    self.lost.append((topic, number))
                else:
                    self._check_name(topic, number, copies, found[topic, number])
                    self.directories[topic_id, number] = self._add(copies)
        self.unknown = [place for place, one in sorted(found.items()) if not _is_known(one, state)]
        self._check_left()

    def _check_name(self, topic: str, number: int, copies: BrokerCopies, all_found: BrokerCopies) -> None:
        mine = all_found.copies.get(self.node)
        if mine is not None and self.node not in copies.copies:
            raise KlogError(
                f"{mine.partition.path}: of another topic, id {mine.partition.topic_id}; the partition of the cluster"
                f" {number} cannot be copied here while it exists"
            )

    def _add(self, copies: BrokerCopies) -> str:
        """Plan one partition; return the id of the log dir that has it in the end."""
        before = len(self.copies.equal)
        self.copies.add(copies)
        if self.node in copies.copies:
            log_dir = copies.copies[self.node].disk.log_dir
        elif len(self.copies.equal) > before:
            log_dir = LogDir(os.path.dirname(self.copies.equal[-1].targets[0].directory))
        else:
            return UNASSIGNED_DIRECTORY  # it was left, which is refused below
        if isinstance(log_dir.meta, Malformed):
            raise KlogError(f"{log_dir.path}: its meta.properties cannot be used: {log_dir.meta}")
        return log_dir.directory_id or UNASSIGNED_DIRECTORY

    def _check_left(self) -> None:
        if self.copies.left:
            left = self.copies.left[:_MOST_LINES]
            lines = [f"{one.diff.topic}-{one.diff.number}: {one.reason}" for one in left]
            more = len(self.copies.left) - len(lines)
            told = "; ".join([*lines, *([f"and {more} more"] if more else [])])
            raise KlogError(told) if any(one.is_unreadable for one in self.copies.left) else UsageError(told)


def _is_known(found: BrokerCopies, state: ClusterMetadata) -> bool:
    """Whether the metadata log has the partition of each copy."""
    topic_id = state.topic_ids.get(found.topic, "")
    ids = {copy.partition.topic_id or topic_id for copy in found.copies.values()}
    return ids == {topic_id} and found.number in state.partitions.get(topic_id, {})


def _of_topic(found: BrokerCopies | None, topic_id: str) -> BrokerCopies | None:
    """Return the copies without directories of another topic of that name; None if none is left."""
    if found is None:
        return None
    copies = {node: copy for node, copy in found.copies.items() if copy.partition.topic_id in (None, topic_id)}
    return found._replace(copies=copies, is_one_thing=True) if copies else None


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
            current = (one for one in log_dir.partitions if one.state is PartitionState.CURRENT)
            found = (one for one in current if (one.topic, one.number) == (topic, key[1]))
            if any(one.topic_id in (None, key[0]) for one in found):
                return log_dir.directory_id or old
        if old == self._voters.get(node):
            return next((one.directory_id for one in mine if one.metadata_log is not None), None) or old
        return old


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
    return PartitionUpdate(key, registration_record(state, key, after), after)


def registration_record(state: ClusterMetadata, key: PartitionKey, after: PartitionRegistration) -> MetadataRecord:
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
    return new_metadata_record("PartitionRecord", version, data)


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
