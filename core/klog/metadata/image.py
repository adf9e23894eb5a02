"""The state of a cluster after replaying the metadata log: topics, partitions, settings, features, brokers.

There is a rule for each type of record that changes these; Kafka: MetadataDelta.replay and the deltas below it.
Types without a rule (quotas, ACLs, tokens, controllers …) change nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from klog.formats.internal_topics import MetadataRecord
from klog.formats.structs.schema import Data
from klog.replication.election import UNASSIGNED_DIRECTORY

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
"""Whose settings they are; a broker's go by its node id, those of all brokers by "".  Kafka: ConfigResource.Type."""

_NO_LEADER_CHANGE: Final = -2
_KRAFT_VERSION: Final = "kraft.version"


class PartitionRegistration(NamedTuple):
    """A partition as the controller has it; replicas are node ids.

    *leader*: -1 for none.  *elr*: eligible leader replicas, which may lead although they are not in the *isr*.
    *directories*: for each replica the id of the log dir that has it, empty before 3.7.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    directories: tuple[str, ...] = ()


class BrokerRegistration(NamedTuple):
    """A broker's last registration.

    *epoch*: the offset of its RegisterBroker record, a new one at each start.  *incarnation_id*: of that process.
    *log_dirs*: ids of its directories, empty before 3.7.  *unregistered*: it was unregistered since; a snapshot that is
    taken after that no longer contains it.
    """

    epoch: int
    incarnation_id: str
    fenced: bool
    log_dirs: tuple[str, ...] = ()
    unregistered: bool = False


class MetadataImage:
    """The state so far.  `topic_ids`, `topic_names` and `partitions` are about the same topics."""

    def __init__(self) -> None:
        self.topic_ids: dict[str, str] = {}
        self.topic_names: dict[str, str] = {}
        self.partitions: dict[str, dict[int, PartitionRegistration]] = {}
        self._have_elr: dict[str, set[int]] = {}  # or had once; else each ClearElr would look at every partition
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.features: dict[str, int] = {}
        self.brokers: dict[int, BrokerRegistration] = {}

    def apply(self, record: MetadataRecord) -> str | None:
        """Take a record in; return why it does not fit, and changes nothing, or None."""
        rule = _RULES.get(record.name)
        return None if rule is None else rule(self, record.data)

    def forget_topic(self, topic_id: str) -> None:
        """Remove a topic with its partitions and settings."""
        name = self.topic_names.pop(topic_id)
        del self.topic_ids[name], self.partitions[topic_id]
        self._have_elr.pop(topic_id, None)
        self.configs.pop((TOPIC_RESOURCE, name), None)

    def put_partition(self, topic_id: str, number: int, partition: PartitionRegistration) -> None:
        """Set a partition of a topic that is there."""
        self.partitions[topic_id][number] = partition
        if partition.elr or partition.last_known_elr:
            self._have_elr.setdefault(topic_id, set()).add(number)

    def clear_elr(self, topic_id: str | None) -> None:
        """Take the eligible leaders from the partitions of a topic; None: of all.  Kafka: TopicDelta.maybeClearElr."""
        for each in [topic_id] if topic_id is not None else list(self._have_elr):
            for number in self._have_elr.pop(each, ()):
                before = self.partitions[each][number]
                if before.elr or before.last_known_elr:
                    epoch = before.partition_epoch + 1
                    self.partitions[each][number] = before._replace(elr=(), last_known_elr=(), partition_epoch=epoch)


# ---------------------------------------------------------------- topics and partitions


def _topic(state: MetadataImage, data: Data) -> str | None:
    name, topic_id = data["name"], data["topicId"]
    for before in (state.topic_ids.get(name), topic_id):
        if before in state.topic_names:
            state.forget_topic(before)  # the record of its removal could not be read
    state.topic_ids[name] = topic_id
    state.topic_names[topic_id] = name
    state.partitions[topic_id] = {}
    return None


def _remove_topic(state: MetadataImage, data: Data) -> str | None:
    if data["topicId"] not in state.topic_names:
        return _no_topic(data)
    state.forget_topic(data["topicId"])
    return None


def _no_topic(data: Data) -> str:
    return f"no topic has the id {data['topicId']}"


def _partition(state: MetadataImage, data: Data) -> str | None:
    """Kafka: PartitionRegistration, from a record."""
    if data["topicId"] not in state.partitions:
        return _no_topic(data)
    registration = PartitionRegistration(
        tuple(data["replicas"]),
        tuple(data["isr"]),
        data["leader"],
        data["leaderEpoch"],
        data["partitionEpoch"],
        tuple(data["eligibleLeaderReplicas"] or ()),
        tuple(data["lastKnownElr"] or ()),
        tuple(data["directories"] or ()),
    )
    state.put_partition(data["topicId"], data["partitionId"], registration)
    return None


def _change_partition(state: MetadataImage, data: Data) -> str | None:
    """Kafka: PartitionRegistration.merge; null fields stay as they were."""
    partitions = state.partitions.get(data["topicId"])
    if partitions is None:
        return _no_topic(data)
    before = partitions.get(data["partitionId"])
    if before is None:
        return f"topic {state.topic_names[data['topicId']]} has no partition {data['partitionId']}"

    def changed(field: str, members: tuple[int, ...]) -> tuple[int, ...]:
        return members if data[field] is None else tuple(data[field])

    keeps_leader = data["leader"] == _NO_LEADER_CHANGE
    registration = PartitionRegistration(
        changed("replicas", before.replicas),
        changed("isr", before.isr),
        before.leader if keeps_leader else data["leader"],
        # The same leader again is a new epoch, too.
        before.leader_epoch + (not keeps_leader),
        before.partition_epoch + 1,
        changed("eligibleLeaderReplicas", before.elr),
        changed("lastKnownElr", before.last_known_elr),
        _changed_directories(before, data),
    )
    state.put_partition(data["topicId"], data["partitionId"], registration)
    return None


def _changed_directories(before: PartitionRegistration, data: Data) -> tuple[str, ...]:
    """Kafka: DirectoryId.createDirectoriesFrom: a new replica is in no directory yet."""
    if data["directories"] is not None:
        return tuple(data["directories"])
    if data["replicas"] is None or not before.directories:
        return before.directories
    known = dict(zip(before.replicas, before.directories, strict=False))
    return tuple(known.get(node, UNASSIGNED_DIRECTORY) for node in data["replicas"])


def _clear_elr(state: MetadataImage, data: Data) -> str | None:
    """Of one topic, or of all topics if it names none.  Kafka: TopicsDelta.replay."""
    name = data["topicName"]
    if name and name not in state.topic_ids:
        return f"there is no topic {name}"
    state.clear_elr(state.topic_ids[name] if name else None)
    return None


# ---------------------------------------------------------------- settings and features


def _config(state: MetadataImage, data: Data) -> str | None:
    """Kafka: ConfigurationDelta; null takes a setting back."""
    resource = (data["resourceType"], data["resourceName"])
    if data["value"] is not None:
        state.configs.setdefault(resource, {})[data["name"]] = data["value"]
    elif resource in state.configs:
        state.configs[resource].pop(data["name"], None)
        if not state.configs[resource]:
            del state.configs[resource]
    return None


def _feature(state: MetadataImage, data: Data) -> str | None:
    """Level 0 takes a feature back.  Kafka: FeaturesDelta, which takes kraft.version from control records only."""
    if data["featureLevel"] == 0:
        state.features.pop(data["name"], None)
    elif data["name"] != _KRAFT_VERSION:
        state.features[data["name"]] = data["featureLevel"]
    return None


# ---------------------------------------------------------------- brokers


def _register_broker(state: MetadataImage, data: Data) -> str | None:
    state.brokers[data["brokerId"]] = BrokerRegistration(
        data["brokerEpoch"], data["incarnationId"], data["fenced"], tuple(data["logDirs"])
    )
    return None


def _unregister_broker(state: MetadataImage, data: Data) -> str | None:
    before = state.brokers.get(data["brokerId"])
    if before is None:
        return f"there is no broker {data['brokerId']}"
    state.brokers[data["brokerId"]] = before._replace(unregistered=True)
    return None


def _change_broker(
    state: MetadataImage, node_id: int, epoch: int, fenced: bool | None, log_dirs: list[str]
) -> str | None:
    """Kafka: ClusterDelta.getBrokerOrThrow, BrokerRegistration.cloneWith; None and [] change nothing."""
    before = state.brokers.get(node_id)
    if before is None or before.unregistered:
        return f"there is no broker {node_id}"
    if before.epoch != epoch:
        return f"broker {node_id} has epoch {before.epoch}, not {epoch}"
    state.brokers[node_id] = before._replace(
        fenced=before.fenced if fenced is None else fenced, log_dirs=tuple(log_dirs) or before.log_dirs
    )
    return None


def _fence(state: MetadataImage, data: Data) -> str | None:
    return _change_broker(state, data["id"], data["epoch"], True, [])


def _unfence(state: MetadataImage, data: Data) -> str | None:
    return _change_broker(state, data["id"], data["epoch"], False, [])


def _change_registration(state: MetadataImage, data: Data) -> str | None:
    fenced = {1: True, -1: False}.get(data["fenced"])
    return _change_broker(state, data["brokerId"], data["brokerEpoch"], fenced, data["logDirs"])


_Rule: TypeAlias = Callable[[MetadataImage, Data], "str | None"]
_RULES: Final[Mapping[str, _Rule]] = {
    "REGISTER_BROKER_RECORD": _register_broker,
    "UNREGISTER_BROKER_RECORD": _unregister_broker,
    "TOPIC_RECORD": _topic,
    "PARTITION_RECORD": _partition,
    "CONFIG_RECORD": _config,
    "PARTITION_CHANGE_RECORD": _change_partition,
    "FENCE_BROKER_RECORD": _fence,
    "UNFENCE_BROKER_RECORD": _unfence,
    "REMOVE_TOPIC_RECORD": _remove_topic,
    "FEATURE_LEVEL_RECORD": _feature,
    "BROKER_REGISTRATION_CHANGE_RECORD": _change_registration,
    "CLEAR_ELR_RECORD": _clear_elr,
}
