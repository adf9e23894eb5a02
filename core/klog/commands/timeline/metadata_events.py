"""The events in the metadata log: brokers, topics, partitions, settings, and leaders of the quorum."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from klog.base.errors import KlogError, counted
from klog.cluster.metadata.change_history import oldest_state
from klog.cluster.metadata.change_reasons import BatchEvents, broker_reason, partition_reason, quorum_reason
from klog.cluster.metadata.cluster_image import BrokerRegistration, Voter
from klog.cluster.metadata.metadata_image import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE, MetadataImage
from klog.cluster.metadata.metadata_loader import replay_segments
from klog.cluster.metadata.metadata_replay import LoggedRecord, Problems, Replay
from klog.cluster.metadata.topics_image import PartitionRegistration
from klog.commands.timeline.timeline_event import BROKER_CLOCK, TimelineEvent
from klog.data_dir.partition import Partition
from klog.formats.control import Control
from klog.formats.internal_topics import CLUSTER_METADATA, MetadataRecord
from klog.formats.structs.schema import Data
from klog.kernel import Window, skip_partitions

Emit = Callable[[TimelineEvent], None]

_REGISTERS, _UNREGISTERS = "REGISTER_BROKER_RECORD", "UNREGISTER_BROKER_RECORD"
_BROKER_RECORDS: Final = (
    *(_REGISTERS, _UNREGISTERS, "FENCE_BROKER_RECORD", "UNFENCE_BROKER_RECORD"),
    "BROKER_REGISTRATION_CHANGE_RECORD",
)
_PARTITION_RECORDS: Final = ("PARTITION_RECORD", "PARTITION_CHANGE_RECORD")
_SECRETS: Final = ("password", "jaas", "secret", "keystore.key")
"""The value of a setting whose name has one of these in it is not shown."""
_SHOWN: Final = (("leader", "leader"), ("replicas", "replicas"), ("isr", "ISR"), ("elr", "ELR"))


class _Change(NamedTuple):
    """A record, and its subject before and after it; *event* has place and time."""

    record: str
    data: Data
    before: object | None
    after: object | None
    event: TimelineEvent


class _EventReplay(Replay):
    """A replay that passes *emit* an event for each change that matters to operators.

    *log_dir*, *directory*: the place of the log.  The changes of a batch are held back until its end: records of one
    batch explain each other (see `klog.cluster.metadata.change_reasons`), and a topic precedes its partitions.
    """

    def __init__(
        self, state: MetadataImage, problems: Problems, expected: int, log_dir: str, directory: str, emit: Emit
    ) -> None:
        super().__init__(state, problems, expected)
        self._log_dir, self._directory, self._emit = log_dir, directory, emit
        self._changes: list[_Change] = []
        self._batch: int | None = None
        self._events = BatchEvents({}, state.cluster.brokers)

    def pass_over(self, rows: Window, first: int, until: int) -> int:
        """Skip the records that do nothing: a controller writes two of them a second."""
        return skip_partitions(rows, first, self.expected, until, None)

    def apply(self, record: MetadataRecord, found: LoggedRecord, file: str) -> None:
        """Apply a record, and note its changes."""
        self._enter(found)
        name, data = record.name, record.data
        before, topic = self._subject(name, data), self._topic(name, data)
        super().apply(record, found, file)
        self._events.add(name, data)
        event = self._event(found, file)
        if topic is not None:
            event = event._replace(topic=topic, topic_id=self.state.topics.ids.get(topic, data.get("topicId")))
        after = self._subject(name, data)
        if after != before or name == _REGISTERS:
            self._changes.append(_Change(name, data, before, after, event))

    def apply_control(self, control: Control, found: LoggedRecord) -> None:
        """Take a control record: a leader of the quorum, or its voters."""
        self._enter(found)
        before = self.state.quorum.voters
        super().apply_control(control, found)
        event = self._event(found, self._file)._replace(topic=CLUSTER_METADATA, partition=0, epoch=found.epoch)
        after = self.state.quorum.voters
        if control.name == "LEADER_CHANGE" or before != after:
            self._changes.append(_Change(control.name, control.data, before, after, event))

    def log(self, path: str, first: int, until: int, is_in_use: bool) -> None:
        """Take the records of a segment."""
        self._file = path
        super().log(path, first, until, is_in_use)

    def flush(self) -> None:
        """Pass on the events of the last batch."""
        changes, self._changes = self._changes, []
        created = {change.data["topicId"] for change in changes if change.record == "TOPIC_RECORD"}
        for change in changes:
            if change.record == "PARTITION_RECORD" and change.data["topicId"] in created:
                continue
            event = self._to_event(change)
            if event is not None:
                self._emit(event)

    # ---- the subject of a record

    def _enter(self, found: LoggedRecord) -> None:
        if found.batch != self._batch:
            self.flush()
            self._batch = found.batch
            self._events = BatchEvents({}, self.state.cluster.brokers)

    def _subject(self, name: str, data: Data) -> object | None:
        state = self.state
        if name in _BROKER_RECORDS:
            return state.cluster.brokers.get(data["id"] if "id" in data else data["brokerId"])
        if name in _PARTITION_RECORDS:
            partitions = state.topics.partitions.get(data["topicId"])
            return None if partitions is None else partitions.get(data["partitionId"])
        if name in ("TOPIC_RECORD", "REMOVE_TOPIC_RECORD"):
            return state.topics.names.get(data["topicId"])
        if name == "CONFIG_RECORD":
            return state.settings.configs.get((data["resourceType"], data["resourceName"]), {}).get(data["name"])
        return state.settings.features.get(data["name"]) if name == "FEATURE_LEVEL_RECORD" else None

    def _topic(self, name: str, data: Data) -> str | None:
        if name == "TOPIC_RECORD":
            return str(data["name"])
        if name == "CONFIG_RECORD":
            return str(data["resourceName"]) if data["resourceType"] == TOPIC_RESOURCE else None
        return self.state.topics.names.get(data["topicId"]) if "topicId" in data else None

    def _event(self, found: LoggedRecord, file: str) -> TimelineEvent:
        name = f"{self._directory}/{os.path.basename(file)}"
        return TimelineEvent(found.timestamp, BROKER_CLOCK, "", "", self._log_dir, offset=found.offset, file=name)

    # ---- the message

    def _to_event(self, change: _Change) -> TimelineEvent | None:
        name, data, event = change.record, change.data, change.event
        if name in _BROKER_RECORDS:
            return self._broker(change)
        if name in _PARTITION_RECORDS:
            return self._partition(change)
        if name == "TOPIC_RECORD":
            return event._replace(kind="topic-created", message=self._size(data["topicId"]))
        if name == "REMOVE_TOPIC_RECORD":
            return event._replace(kind="topic-deleted", message=f"topic {event.topic} is deleted")
        if name == "CONFIG_RECORD":
            return _setting(change)
        if name == "FEATURE_LEVEL_RECORD":
            return event._replace(kind="config-changed", message=f"feature {data['name']} = {change.after or 'none'}")
        if name == "LEADER_CHANGE":
            node = data["leaderId"]
            return event._replace(kind="epoch", node=node, message=f"node {node} leads the quorum")
        reason = quorum_reason(_voters(change.before), _voters(change.after), data)
        return event._replace(kind="partition-changed", message=reason or "the voters of the quorum changed")

    def _broker(self, change: _Change) -> TimelineEvent | None:
        data = change.data
        before, after = (one if isinstance(one, BrokerRegistration) else None for one in (change.before, change.after))
        if after is None:
            return None
        node = data["id"] if "id" in data else data["brokerId"]
        event = change.event._replace(node=node, epoch=after.epoch)
        if change.record == _REGISTERS:
            known = before if before is not None and before.registered else None
            listens = ", ".join(map(str, after.endpoints))
            words = f"broker {node}: {broker_reason(known, after, change.record)}; {listens}"
            return event._replace(kind="broker-registered", message=words)
        if not after.registered:
            return event._replace(kind="broker-unregistered", message=f"broker {node} was unregistered")
        if before is None or before.fenced == after.fenced:
            return None
        kind = "broker-fenced" if after.fenced else "broker-unfenced"
        shuts_down = " after a controlled shutdown" if after.fenced and after.shutting_down else ""
        return event._replace(
            kind=kind, message=f"broker {node} {broker_reason(before, after, change.record)}{shuts_down}"
        )

    def _partition(self, change: _Change) -> TimelineEvent | None:
        before, after = (
            one if isinstance(one, PartitionRegistration) else None for one in (change.before, change.after)
        )
        if after is None:
            return None
        reason = partition_reason(before, after, change.record, self._events)
        words = "; ".join([*([reason] if reason else []), *_differences(before, after)])
        number = change.data["partitionId"]
        return change.event._replace(
            kind="partition-changed", partition=number, epoch=after.leader_epoch, message=words, node=after.leader
        )

    def _size(self, topic_id: str) -> str:
        partitions = self.state.topics.partitions.get(topic_id)
        first = None if not partitions else partitions.get(0)
        if not partitions or first is None:
            return "a topic without partitions"
        return f"{counted(len(partitions), 'partition')}, replication factor {len(first.replicas)}"


def _voters(found: object) -> Sequence[Voter]:
    return found if isinstance(found, tuple) else ()


def _differences(before: PartitionRegistration | None, after: PartitionRegistration) -> Iterator[str]:
    for name, title in _SHOWN:
        new = getattr(after, name)
        if before is None or getattr(before, name) != new:
            then = "" if before is None else f"{_nodes(getattr(before, name))} → "
            if before is not None or new:
                yield f"{title} {then}{_nodes(new)}"


def _nodes(found: int | tuple[int, ...]) -> str:
    if isinstance(found, int):
        return "none" if found < 0 else str(found)
    return ",".join(map(str, found)) or "none"


def _setting(change: _Change) -> TimelineEvent:
    """Return the event of a setting: of a topic, a broker, all brokers, a group, or another resource by its name."""
    data, event = change.data, change.event
    kind, name = data["resourceType"], data["resourceName"]
    if kind == BROKER_RESOURCE and name.isdecimal():
        event = event._replace(node=int(name))
    elif kind == GROUP_RESOURCE:
        event = event._replace(group=name)
    whose = {TOPIC_RESOURCE: f"topic {name}", BROKER_RESOURCE: f"broker {name}" if name else "all brokers"}
    whose[GROUP_RESOURCE] = f"group {name}"
    is_secret = any(word in data["name"] for word in _SECRETS)
    before, after = ("…" if one is not None and is_secret else one for one in (change.before, change.after))
    value = "not set" if after is None else f"= {after}"
    words = f"{whose.get(kind, name)}: {data['name']} {value}" + (f" (was {before})" if before is not None else "")
    if kind == TOPIC_RESOURCE and data["name"] == "remote.storage.enable" and "true" in (before, after):
        return event._replace(kind="tiering-enabled" if after == "true" else "tiering-disabled", message=words)
    return event._replace(kind="config-changed", message=words)


def read_metadata_events(partition: Partition, log_dir: str, is_in_use: bool, emit: Emit) -> Problems:
    """Pass the events of the metadata log in *partition* to *emit*; return the unreadable parts.

    *is_in_use*: a node is running on it.
    """
    problems = Problems()
    try:
        start = oldest_state(partition, problems, lambda: Replay(MetadataImage(), Problems()))
    except KlogError as error:
        problems.add(str(error))
        return problems
    expected = 0 if start.end is None else start.end.offset
    replay = _EventReplay(start.state, problems, expected, log_dir, partition.directory, emit)
    for _ in replay_segments(partition, replay, is_in_use=is_in_use):
        pass
    replay.flush()
    return problems
