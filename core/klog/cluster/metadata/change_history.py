"""The history of a partition, a broker or the quorum: all its changes in the metadata log.

    for change in read_history(partition, PartitionSubject("orders", 0), problems):
        print(change.offset, change.record, change.changed, change.reason)

It begins at the oldest offset of the log, or with the content of the oldest snapshot if the log begins later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

from klog.base.errors import KlogError
from klog.cluster.metadata.change_reasons import BatchEvents, broker_reason, partition_reason, quorum_reason
from klog.cluster.metadata.cluster_image import BrokerRegistration, Voter
from klog.cluster.metadata.metadata_image import MetadataImage
from klog.cluster.metadata.metadata_loader import (
    LogPoint,
    begins_at_zero,
    read_snapshot,
    replay_segments,
    snapshot_files,
)
from klog.cluster.metadata.metadata_replay import LoggedRecord, Problems, Replay
from klog.cluster.metadata.topics_image import PartitionRegistration, partition_key
from klog.data_dir.partition import Partition
from klog.formats.control import Control
from klog.formats.internal_topics import MetadataRecord
from klog.formats.structs.schema import Data
from klog.kernel import Window, skip_partitions

SNAPSHOT: Final = "snapshot"
"""The record of the first change if the log begins behind offset 0."""


class MetadataChange(NamedTuple):
    """One change.

    *epoch*: the leader epoch of the batch.  *timestamp*: ms.  *record*: Kafka's name, or `SNAPSHOT`.  *changed*: names
    of the changed fields of *state*.  *state*: after the change; all None once the subject is deleted.  *reason*: None
    if neither the record nor its neighbours show it.
    """

    offset: int
    epoch: int
    timestamp: int
    record: str
    changed: tuple[str, ...]
    state: Mapping[str, object]
    reason: str | None


class HistorySubject(Protocol):
    """The subject of a history.  A difference between two successive states is a change."""

    def find(self, state: MetadataImage) -> object | None:
        """Return the subject's state, None when it is not there."""

    def fields(self, found: object | None, before: object | None) -> dict[str, object]:
        """Return a state as fields by name; *before* has the names if the subject is deleted (*found* is None)."""

    def reason(
        self, before: object | None, after: object | None, record: str, data: Data, batch: BatchEvents
    ) -> str | None:
        """Return why it changed, None when no record shows it."""


class PartitionSubject(NamedTuple):
    """A partition by name: a topic that was deleted and created again is there with both ids."""

    topic: str
    number: int

    def find(self, state: MetadataImage) -> tuple[str, PartitionRegistration] | None:
        """Return the topic's id and the partition's registration."""
        topic_id = state.topics.ids.get(self.topic, "")
        partitions = state.topics.partitions.get(topic_id)
        found = None if partitions is None else partitions.get(self.number)
        return None if found is None else (topic_id, found)

    def keys(self, state: MetadataImage) -> bytes:
        """Return the key of the partition of the topic that has the name now."""
        topic_id = state.topics.ids.get(self.topic)
        return b"" if topic_id is None else partition_key(topic_id, self.number)

    def fields(self, found: object | None, before: object | None) -> dict[str, object]:
        """Return id, leader, epochs and members."""
        named = {"topic": self.topic, "topic_id": None, "partition": self.number}
        if isinstance(before, tuple):
            named["topic_id"] = before[0]
        if not isinstance(found, tuple):
            return {**named, **dict.fromkeys(PartitionRegistration._fields)}
        return {**named, "topic_id": found[0], **found[1]._asdict()}

    def reason(
        self, before: object | None, after: object | None, record: str, data: Data, batch: BatchEvents
    ) -> str | None:
        """See `partition_reason`."""
        old, new = (one[1] if isinstance(one, tuple) else None for one in (before, after))
        return partition_reason(old, new, record, batch)


class BrokerSubject(NamedTuple):
    """A broker."""

    node: int

    def find(self, state: MetadataImage) -> BrokerRegistration | None:
        """Return its registration, None once that was taken back."""
        found = state.cluster.brokers.get(self.node)
        return found if found is not None and found.registered else None

    def fields(self, found: object | None, before: object | None) -> dict[str, object]:
        """Return the registration; all None once the broker has been unregistered."""
        one = found if isinstance(found, BrokerRegistration) else before
        fields = one.as_json() if isinstance(one, BrokerRegistration) else {}
        return {"broker": self.node, **(dict.fromkeys(fields) if found is None else fields)}

    def reason(
        self, before: object | None, after: object | None, record: str, data: Data, batch: BatchEvents
    ) -> str | None:
        """See `broker_reason`."""
        old, new = (one if isinstance(one, BrokerRegistration) else None for one in (before, after))
        return broker_reason(old, new, record)


class _Quorum(NamedTuple):
    leader: int | None
    leader_epoch: int | None
    kraft_version: int
    voters: tuple[Voter, ...] | None


class QuorumSubject(NamedTuple):
    """The quorum: who led, and who could vote."""

    def find(self, state: MetadataImage) -> _Quorum:
        """Return leader and voters."""
        found = state.quorum
        return _Quorum(found.leader, found.epoch, found.kraft_version, found.voters)

    def fields(self, found: object | None, before: object | None) -> dict[str, object]:
        """Return them by name."""
        assert isinstance(found, _Quorum)
        voters = None if found.voters is None else [voter.as_json() for voter in found.voters]
        return {**found._asdict(), "voters": voters}

    def reason(
        self, before: object | None, after: object | None, record: str, data: Data, batch: BatchEvents
    ) -> str | None:
        """See `quorum_reason`."""
        old, new = (one.voters or () if isinstance(one, _Quorum) else () for one in (before, after))
        return quorum_reason(old, new, data)


class _Noted(NamedTuple):
    found: LoggedRecord
    record: str
    data: Data
    before: object | None
    after: object | None


class SubjectReplay(Replay):
    """A replay of the records about *subject*: of partitions only its own."""

    def __init__(self, subject: HistorySubject, state: MetadataImage, problems: Problems, expected: int = 0) -> None:
        super().__init__(state, problems, expected)
        self.subject = subject

    def pass_over(self, rows: Window, first: int, until: int) -> int:
        """Skip the records of other partitions: this state does without them."""
        keys = self.subject.keys(self.state) if isinstance(self.subject, PartitionSubject) else b""
        return skip_partitions(rows, first, self.expected, until, keys)


class HistoryReplay(SubjectReplay):
    """A replay that notes each change of *subject*, and passes it to *sink* once its batch has been read.

    A controller writes related records into one batch: first the changes of partitions, then the fence of the broker
    that caused them.
    """

    def __init__(
        self,
        subject: HistorySubject,
        sink: Callable[[MetadataChange], None],
        state: MetadataImage,
        problems: Problems,
        expected: int = 0,
    ) -> None:
        super().__init__(subject, state, problems, expected)
        self._sink = sink
        self._noted: list[_Noted] = []
        self._batch: int | None = None
        self._events = BatchEvents({}, state.cluster.brokers)

    def apply(self, record: MetadataRecord, found: LoggedRecord, file: str) -> None:
        """Apply a record, and note its changes."""
        self._enter(found)
        before = self.subject.find(self.state)
        super().apply(record, found, file)
        self._events.add(record.name, record.data)
        self._note(found, record.name, record.data, before)

    def apply_control(self, control: Control, found: LoggedRecord) -> None:
        """Apply a control record, and note its changes."""
        self._enter(found)
        before = self.subject.find(self.state)
        super().apply_control(control, found)
        self._note(found, control.name, control.data, before)

    def _enter(self, found: LoggedRecord) -> None:
        if found.batch != self._batch:
            self.flush()
            self._batch = found.batch
            self._events = BatchEvents({}, self.state.cluster.brokers)

    def _note(self, found: LoggedRecord, record: str, data: Data, before: object | None) -> None:
        after = self.subject.find(self.state)
        if after != before:
            self._noted.append(_Noted(found, record, data, before, after))

    def flush(self) -> None:
        """Pass on the changes of the last batch."""
        noted, self._noted = self._noted, []
        for one in noted:
            old = {} if one.before is None else self.subject.fields(one.before, None)
            new = self.subject.fields(one.after, one.before)
            self._sink(
                MetadataChange(
                    one.found.offset,
                    one.found.epoch,
                    one.found.timestamp,
                    one.record,
                    tuple(name for name, value in new.items() if value != old.get(name)),
                    new,
                    self.subject.reason(one.before, one.after, one.record, one.data, self._events),
                )
            )


class HistoryStart(NamedTuple):
    """The beginning of a history: the state and its position; None: the beginning of the log."""

    state: MetadataImage
    end: LogPoint | None
    timestamp: int = -1


def oldest_state(partition: Partition, problems: Problems, empty: Callable[[], Replay]) -> HistoryStart:
    """Return the state from which the records of the whole log follow without a gap.

    *empty*: returns a replay at its beginning, which takes the records of a snapshot.  Raises KlogError if the log
    begins behind offset 0 and no whole snapshot leads to it.
    """
    if begins_at_zero(partition):
        return HistoryStart(MetadataImage(), None)
    log_start = partition.segments[0].base_offset if partition.segments else 0
    for file in reversed(snapshot_files(partition)):
        if (file.offset or 0) >= log_start:
            found = read_snapshot(partition.file(file.name), LogPoint(file.offset or 0, file.epoch or 0), empty())
            if found.flaw is None:
                problems.take(found.problems)
                return HistoryStart(found.state, found.end, found.timestamp)
            problems.add(found.flaw)
    raise KlogError(f"{partition.path}: the log begins at {log_start}, and no complete snapshot ends there or later")


def read_history(
    partition: Partition, subject: HistorySubject, problems: Problems, is_in_use: bool = False
) -> Iterator[MetadataChange]:
    """Yield the changes of *subject* in the metadata log in *partition*, oldest first.

    *problems*: receives the unreadable parts.  *is_in_use*: a node is running on it. Raises KlogError if the log begins
    behind the end of its snapshots.
    """
    start = oldest_state(partition, problems, lambda: SubjectReplay(subject, MetadataImage(), Problems()))
    found: list[MetadataChange] = []
    first = subject.find(start.state)
    if start.end is not None and first is not None:
        state = subject.fields(first, None)
        yield MetadataChange(start.end.offset, start.end.epoch, start.timestamp, SNAPSHOT, tuple(state), state, None)
    expected = 0 if start.end is None else start.end.offset
    replay = HistoryReplay(subject, found.append, start.state, problems, expected)
    for _ in replay_segments(partition, replay, is_in_use=is_in_use):
        yield from found
        found.clear()
    replay.flush()
    yield from found
