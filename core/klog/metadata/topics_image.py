"""Topics and their partitions as the metadata log has them.

Kafka: TopicsDelta, TopicDelta, PartitionRegistration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from klog.formats.structs.schema import Data
from klog.replication.election import MIGRATING_DIRECTORY

_NO_LEADER_CHANGE: Final = -2
_NO_RECOVERY_CHANGE: Final = -1


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


@dataclass
class TopicsImage:
    """*ids* by name and *names* by id are about the same topics; *partitions* by topic id, then number."""

    ids: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    partitions: dict[str, dict[int, PartitionRegistration]] = field(default_factory=dict)
    # Of these topics some partitions have an ELR, or had one; else each ClearElr would look at every partition.
    _have_elr: dict[str, set[int]] = field(default_factory=dict, compare=False)

    def add(self, name: str, topic_id: str) -> None:
        """Add a topic without partitions."""
        self.ids[name] = topic_id
        self.names[topic_id] = name
        self.partitions[topic_id] = {}

    def remove(self, topic_id: str) -> str:
        """Remove a topic that is there, with its partitions; return its name."""
        name = self.names.pop(topic_id)
        del self.ids[name], self.partitions[topic_id]
        self._have_elr.pop(topic_id, None)
        return name

    def put(self, topic_id: str, number: int, partition: PartitionRegistration) -> None:
        """Set a partition of a topic that is there."""
        self.partitions[topic_id][number] = partition
        if partition.elr or partition.last_known_elr:
            self._have_elr.setdefault(topic_id, set()).add(number)

    def put_partition(self, data: Data) -> str | None:
        """Kafka: PartitionRegistration, from a record."""
        if data["topicId"] not in self.partitions:
            return self.no_topic(data)
        return self._put_fitting(data, partition_of(data))

    def change_partition(self, data: Data) -> str | None:
        """Kafka: PartitionRegistration.merge."""
        partitions = self.partitions.get(data["topicId"])
        if partitions is None:
            return self.no_topic(data)
        before = partitions.get(data["partitionId"])
        if before is None:
            return f"topic {self.names[data['topicId']]} has no partition {data['partitionId']}"
        return self._put_fitting(data, merged(before, data))

    def _put_fitting(self, data: Data, partition: PartitionRegistration) -> str | None:
        """Kafka: the checks in the constructor of PartitionRegistration."""
        if partition.directories and len(partition.directories) != len(partition.replicas):
            return f"{len(partition.replicas)} replicas in {len(partition.directories)} log dirs"
        self.put(data["topicId"], data["partitionId"], partition)
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
        for topic_id in [self.ids[name]] if name else list(self._have_elr):
            for number in self._have_elr.pop(topic_id, ()):
                before = self.partitions[topic_id][number]
                if before.elr or before.last_known_elr:
                    epoch = before.partition_epoch + 1
                    self.partitions[topic_id][number] = before._replace(
                        elr=(), last_known_elr=(), partition_epoch=epoch
                    )
        return None


def partition_of(data: Data) -> PartitionRegistration:
    """Return what a PartitionRecord says.  Kafka: the constructor of PartitionRegistration."""
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
    """Ids that only say that nobody has reported any are none.  Kafka: PartitionRegistration.defaultToMigrating."""
    return tuple(directories) if any(one != MIGRATING_DIRECTORY for one in directories) else ()
