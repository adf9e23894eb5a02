"""Topics and their partitions as the metadata log has them.

Kafka: TopicsDelta, TopicDelta, PartitionRegistration.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from klog.cluster.election import MIGRATING_DIRECTORY
from klog.formats.java_text import uuid_bytes
from klog.formats.structs.schema import Data
from klog.kernel import PartitionTable

_NO_LEADER_CHANGE: Final = -2
_NO_RECOVERY_CHANGE: Final = -1
_MOST_BYTES: Final = 4 * 9999
"""The size limit of a list: more replicas than any cluster has nodes."""


class PartitionRegistration(NamedTuple):
    """A partition as the controller has it; replicas are node ids.

    *leader*: -1 for none.  *elr*: eligible leader replicas, which may lead although they are not in the *isr*.
    *directories*: for each replica the id of the log dir that has it, empty before 3.7.  *adding*, *removing*: of a
    reassignment that is under way.  *recovering*: the leader was elected uncleanly and has not recovered yet.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    directories: tuple[str, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    recovering: bool = False


class TopicPartitions(Mapping[int, PartitionRegistration]):
    """The partitions of one topic in the kernel's table, by number, ascending."""

    def __init__(self, table: PartitionTable, topic_id: bytes) -> None:
        self._table, self._topic_id = table, topic_id

    def __getitem__(self, number: int) -> PartitionRegistration:
        found = self._table.get(self._topic_id, number)
        if found is None:
            raise KeyError(number)
        return PartitionRegistration(*found)

    def __iter__(self) -> Iterator[int]:
        return iter(self._table.numbers(self._topic_id))

    def __len__(self) -> int:
        return self._table.count(self._topic_id)

    def __repr__(self) -> str:
        return repr(dict(self))

    def json(self) -> bytes:
        """Return all of them as a JSON array."""
        return self._table.json(self._topic_id)


class TopicsImage:
    """*ids* by name and *names* by id are about the same topics; *partitions* by topic id, then number.

    The partitions themselves are in the kernel's *table*: it takes the records that a controller writes by the million,
    and `put_partition` and `change_partition` take any record, by the same rules.
    """

    def __init__(self) -> None:
        self.ids: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.partitions: dict[str, TopicPartitions] = {}
        self.table = PartitionTable()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicsImage) and (self.ids, self.partitions) == (other.ids, other.partitions)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def add(self, name: str, topic_id: str) -> None:
        """Add a topic without partitions."""
        self.ids[name] = topic_id
        self.names[topic_id] = name
        self.table.add_topic(uuid_bytes(topic_id))
        self.partitions[topic_id] = TopicPartitions(self.table, uuid_bytes(topic_id))

    def remove(self, topic_id: str) -> str:
        """Remove a topic that is there, with its partitions; return its name."""
        name = self.names.pop(topic_id)
        del self.ids[name], self.partitions[topic_id]
        self.table.remove_topic(uuid_bytes(topic_id))
        return name

    def put_partition(self, data: Data) -> str | None:
        """Kafka: PartitionRegistration, from a record."""
        if data["topicId"] not in self.partitions:
            return self.no_topic(data)
        return self._put(data, partition_of(data))

    def change_partition(self, data: Data) -> str | None:
        """Kafka: PartitionRegistration.merge."""
        partitions = self.partitions.get(data["topicId"])
        if partitions is None:
            return self.no_topic(data)
        before = partitions.get(data["partitionId"])
        if before is None:
            return f"topic {self.names[data['topicId']]} has no partition {data['partitionId']}"
        return self._put(data, merged(before, data))

    def _put(self, data: Data, partition: PartitionRegistration) -> str | None:
        """Kafka: the checks in the constructor of PartitionRegistration."""
        if partition.directories and len(partition.directories) != len(partition.replicas):
            return f"{len(partition.replicas)} replicas in {len(partition.directories)} log dirs"
        members = (partition.replicas, partition.isr, partition.elr, partition.last_known_elr)
        lists = [struct.pack(f">{len(nodes)}i", *nodes) for nodes in (*members, partition.adding, partition.removing)]
        lists.insert(len(members), b"".join(map(uuid_bytes, partition.directories)))
        if max(map(len, lists)) > _MOST_BYTES:
            return f"a list of {max(map(len, lists))} bytes"
        self.table.put(
            uuid_bytes(data["topicId"]),
            data["partitionId"],
            (lists[0], lists[1], lists[2], lists[3], lists[4], lists[5], lists[6]),
            partition.leader,
            partition.leader_epoch,
            partition.partition_epoch,
            partition.recovering,
        )
        return None

    @staticmethod
    def no_topic(data: Data) -> str:
        """Return the sentence about a record of a topic that is not there."""
        return f"no topic has the id {data['topicId']}"

    def clear_elr(self, data: Data) -> str | None:
        """Take the eligible leaders from the partitions of one topic, or of all topics if the record names none.

        Kafka: TopicsDelta.replay, TopicDelta.maybeClearElr.
        """
        name = data["topicName"]
        if name and name not in self.ids:
            return f"there is no topic {name}"
        self.table.clear_elr(uuid_bytes(self.ids[name]) if name else None)
        return None


def partition_key(topic_id: str, number: int) -> bytes:
    """Return number and topic id as both records of partitions begin with them."""
    return struct.pack(">i", number) + uuid_bytes(topic_id)


def partition_of(data: Data) -> PartitionRegistration:
    """Return the content of a PartitionRecord.  Kafka: the constructor of PartitionRegistration."""
    return PartitionRegistration(
        tuple(data["replicas"]),
        tuple(data["isr"]),
        data["leader"],
        data["leaderEpoch"],
        data["partitionEpoch"],
        tuple(data["eligibleLeaderReplicas"] or ()),
        tuple(data["lastKnownElr"] or ()),
        _without_migrating(data["directories"] or ()),
        tuple(data["addingReplicas"]),
        tuple(data["removingReplicas"]),
        data["leaderRecoveryState"] == 1,
    )


def merged(before: PartitionRegistration, data: Data) -> PartitionRegistration:
    """Return *before* with a PartitionChangeRecord; null fields stay as they were.

    Kafka: PartitionRegistration.merge.
    """

    def changed(name: str, members: tuple[int, ...]) -> tuple[int, ...]:
        return members if data[name] is None else tuple(data[name])

    keeps_leader = data["leader"] == _NO_LEADER_CHANGE
    recovery = data["leaderRecoveryState"]
    return PartitionRegistration(
        changed("replicas", before.replicas),
        changed("isr", before.isr),
        before.leader if keeps_leader else data["leader"],
        # The same leader again is a new epoch, too.
        before.leader_epoch + (not keeps_leader),
        before.partition_epoch + 1,
        changed("eligibleLeaderReplicas", before.elr),
        changed("lastKnownElr", before.last_known_elr),
        before.directories if data["directories"] is None else _without_migrating(data["directories"]),
        changed("addingReplicas", before.adding),
        changed("removingReplicas", before.removing),
        before.recovering if recovery == _NO_RECOVERY_CHANGE else recovery == 1,
    )


def _without_migrating(directories: Sequence[str]) -> tuple[str, ...]:
    """Drop ids that only mean that no broker has reported any.  Kafka: PartitionRegistration.defaultToMigrating."""
    return tuple(directories) if any(one != MIGRATING_DIRECTORY for one in directories) else ()
