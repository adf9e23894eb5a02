"""Groups in the state of a coordinator that has loaded `__consumer_offsets`: classic, consumer, share, streams.

    for group in group_images(partitions, topic_name):
        print(group.group, group.state, group.offsets)

The disk does not contain all of a coordinator's state: a classic group that is rebalancing is Stable here, and a
member's heartbeats leave no trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from klog.cluster.coordinator.coordinator_records import Note, ignore, latest_records
from klog.data_dir.partition import Partition
from klog.formats.internal_topics import CONSUMER_OFFSETS, CoordinatorRecord, coordinator_record
from klog.formats.structs.json import EmbeddedStruct
from klog.formats.structs.schema import Data

if TYPE_CHECKING:
    from klog.kernel import LatestRecords

GroupType: TypeAlias = Literal["classic", "consumer", "share", "streams"]
AssignedPartition: TypeAlias = "tuple[str, int]"
"""Topic and partition."""
TopicName: TypeAlias = Callable[[str], "str | None"]
"""Topic id in its 22 letters → name, None if unknown."""

_COMMITS: Final = (0, 1)
_CLASSIC: Final = 2
_EPOCHS: Final[dict[int, GroupType]] = {3: "consumer", 11: "share", 17: "streams"}
_MEMBERS: Final = (5, 10, 19)
_TARGET_EPOCHS: Final = (6, 12, 20)
_ASSIGNMENTS: Final = (8, 14, 22)
_TOPIC_METADATA: Final = 4
_SHARE_PARTITIONS: Final = 15
_STABLE: Final = 0
"""Kafka: MemberState.STABLE."""


class OffsetImage(NamedTuple):
    """A committed offset; if *offset* is None, compaction has deleted the commit of that time, and *certain* is False.

    *leader_epoch*: -1 for none.  *committed_at*: ms.  *producer_id*: that of an open transaction.  *expires_at*: ms, if
    its client set a time for it.
    """

    topic: str
    partition: int
    offset: int | None
    leader_epoch: int = -1
    metadata: str = ""
    committed_at: int | None = None
    certain: bool = True
    producer_id: int | None = None
    expires_at: int | None = None


class MemberImage(NamedTuple):
    """A member of a group.  *partitions*: its assigned partitions, sorted."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[AssignedPartition, ...]


class GroupImage(NamedTuple):
    """A group.  *state*: None if the records do not contain it.  *protocol*: the assignor, None for none or unknown.

    *epoch*: a classic group's generation, else the group epoch; None for a group of offsets alone.  *partitions*: of a
    share group, those it has initialized.  *certain*: False if compaction has deleted the group's record of that time.
    *empty_since*: ms, since when a classic group of members has none.
    """

    group: str
    type: GroupType
    state: str | None
    protocol: str | None
    epoch: int | None
    coordinator_partition: int | None
    members: tuple[MemberImage, ...]
    offsets: tuple[OffsetImage, ...]
    pending: tuple[OffsetImage, ...]
    partitions: tuple[AssignedPartition, ...] = ()
    certain: bool = True
    empty_since: int | None = None


def group_images(
    partitions: Iterable[Partition], topic_name: TopicName, until_ms: int | None = None, note: Note = ignore
) -> Iterator[GroupImage]:
    """Yield the groups of some partitions of `__consumer_offsets`, each partition's by name.

    *until_ms*: their state before that time, as far as compaction has kept it.  *note* receives the unreadable parts.
    Raises nothing for content.  Kafka: GroupCoordinatorShard.replay.
    """
    for partition in partitions:
        unknown = 0
        for _, rows in groupby(_rows(latest_records(partition, until_ms, note, commits=True)), _FIRST):
            groups = _Groups(topic_name)
            for _, key, value, producer_id in rows:
                if value is None:
                    groups.lose(key)
                else:
                    unknown += not groups.take(key, value, producer_id)
            for name in sorted(groups.found):
                yield groups.found[name].image(partition.number, topic_name)
        if unknown:
            note(f"{partition.path}: {unknown} records that cannot be decoded")


_FIRST: Final = itemgetter(0)


def _rows(latest: LatestRecords) -> Iterator[tuple[bytes, bytes, bytes | None, int | None]]:
    """Yield group, key, value and producer id of the records, by group; the value of a lost record is None.

    Records are not decoded before: as objects they need several times the memory.
    """
    records = ((_group_of(key), key, value, None) for key, value in latest.records(_group_of))
    pending = ((_group_of(key), key, value, producer_id) for producer_id, key, value in latest.pending())
    lost = ((_group_of(key), key, None, None) for key in latest.lost())
    yield from merge(records, sorted(pending, key=_FIRST), sorted(lost, key=_FIRST), key=_FIRST)


def _group_of(key: bytes) -> bytes:
    """Return the name of the group in a key of any type, which begins with the type and that."""
    return key[4 : 4 + int.from_bytes(key[2:4], "big")]


class _Groups:
    """The groups of a partition while its records are taken."""

    def __init__(self, topic_name: TopicName) -> None:
        self.found: dict[str, _Group] = {}

    def _group(self, record: CoordinatorRecord) -> _Group:
        name = record.key["group" if record.type in (*_COMMITS, _CLASSIC) else "groupId"]
        return self.found.setdefault(name, _Group(name))

    def take(self, key: bytes, value: bytes, producer_id: int | None = None) -> bool:
        """Take a record; False when it cannot be decoded."""
        record = coordinator_record(CONSUMER_OFFSETS, key, value)
        if not isinstance(record, CoordinatorRecord) or record.value is None:
            return False
        self._group(record).take(record.type, record.key, record.value, producer_id)
        return True

    def lose(self, key: bytes) -> None:
        """Handle a key whose value at that time is deleted."""
        record = coordinator_record(CONSUMER_OFFSETS, key, None)
        if isinstance(record, CoordinatorRecord):
            group = self._group(record)
            if record.type in _COMMITS:
                where = record.key["topic"], record.key["partition"]
                group.offsets.setdefault(where, OffsetImage(*where, None, certain=False))
            else:
                group.certain = False


class _Group:
    """A group while its records are taken, in any order: there is one of each key."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.offsets: dict[AssignedPartition, OffsetImage] = {}
        self.pending: list[OffsetImage] = []
        self.certain = True
        self._classic: Data | None = None
        self._type: GroupType | None = None
        self._epoch: int | None = None
        self._target_epoch = 0
        self._members: dict[str, Data] = {}
        self._assignments: dict[str, Data] = {}
        self._names: dict[str, str] = {}
        self._partitions: list[AssignedPartition] = []

    def take(self, record_type: int, key: Data, value: Data, producer_id: int | None) -> None:
        if record_type in _COMMITS:
            self._commit(key, value, producer_id)
        elif record_type == _CLASSIC:
            self._classic = value
        elif record_type in _EPOCHS:
            self._type, self._epoch = _EPOCHS[record_type], value["epoch"]
        elif record_type in _MEMBERS:
            self._members[key["memberId"]] = value
        elif record_type in _TARGET_EPOCHS:
            self._target_epoch = value["assignmentEpoch"]
        elif record_type in _ASSIGNMENTS:
            self._assignments[key["memberId"]] = value
        elif record_type == _TOPIC_METADATA:
            self._names |= {one["topicId"]: one["topicName"] for one in value["topics"]}
        elif record_type == _SHARE_PARTITIONS:
            for one in value["initializedTopics"]:
                self._names[one["topicId"]] = one["topicName"]
                self._partitions += [(one["topicName"], number) for number in one["partitions"]]

    def _commit(self, key: Data, value: Data, producer_id: int | None) -> None:
        where = key["topic"], key["partition"]
        epoch, metadata = value.get("leaderEpoch", -1), value["metadata"] or ""
        expires_at = value.get("expireTimestamp", -1)
        image = OffsetImage(
            *where, value["offset"], epoch, metadata, value["commitTimestamp"], producer_id=producer_id,
            expires_at=None if expires_at == -1 else expires_at
        )  # fmt: skip
        if producer_id is None:
            self.offsets[where] = image
        else:
            self.pending.append(image)

    def image(self, coordinator_partition: int | None, topic_name: TopicName) -> GroupImage:
        """Return the group; *topic_name* for ids that the group's own records do not name."""
        offsets, pending = tuple(sorted(self.offsets.values())), tuple(sorted(self.pending))
        if self._type is None:
            return self._classic_image(coordinator_partition, offsets, pending)

        def name(topic_id: str) -> str:
            return self._names.get(topic_id) or topic_name(topic_id) or topic_id

        members = tuple(self._member(one, name) for one in sorted(self._members))
        state = self._state(self._type) if self.certain else None
        return GroupImage(
            self.name, self._type, state, self._assignor(), self._epoch, coordinator_partition, members, offsets,
            pending, tuple(sorted(self._partitions)), self.certain
        )  # fmt: skip

    def _classic_image(
        self, coordinator_partition: int | None, offsets: tuple[OffsetImage, ...], pending: tuple[OffsetImage, ...]
    ) -> GroupImage:
        fields = self._classic or {"members": (), "protocol": None, "generation": None}
        members = tuple(_classic_member(one) for one in sorted(fields["members"], key=lambda one: str(one["memberId"])))
        state = ("Stable" if members else "Empty") if self.certain else None
        since = fields.get("currentStateTimestamp", -1) if fields.get("protocolType") and not members else -1
        return GroupImage(
            self.name, "classic", state, fields["protocol"] or None, fields["generation"], coordinator_partition,
            members, offsets, pending, certain=self.certain, empty_since=None if since == -1 else since
        )  # fmt: skip

    def _state(self, kind: GroupType) -> str | None:
        """Kafka: ConsumerGroup.maybeUpdateGroupState, ShareGroup.maybeUpdateGroupState."""
        if not self._members:
            return "Empty"
        if kind == "share":
            return "Stable"
        if (self._epoch or 0) > self._target_epoch:
            return "Assigning"
        for member in self._members:
            fields = self._assignments.get(member)
            if fields is None or fields["state"] != _STABLE or fields["memberEpoch"] != self._target_epoch:
                return "Reconciling"
        return "Stable" if kind == "consumer" else None  # of streams the topology decides, too

    def _assignor(self) -> str | None:
        """Kafka: ConsumerGroup.preferredServerAssignor, without the broker's default."""
        named = Counter(one["serverAssignor"] for one in self._members.values() if one.get("serverAssignor"))
        return named.most_common(1)[0][0] if named else None

    def _member(self, member_id: str, name: Callable[[str], str]) -> MemberImage:
        fields = self._members[member_id]
        owned = self._assignments.get(member_id, {}).get("assignedPartitions", ())
        partitions = sorted((name(one["topicId"]), number) for one in owned for number in one["partitions"])
        return MemberImage(
            member_id, fields.get("instanceId"), fields["clientId"], fields["clientHost"], tuple(partitions)
        )  # fmt: skip


def _classic_member(fields: Data) -> MemberImage:
    assignment = fields["assignment"]
    owned = assignment.value["assignedPartitions"] if isinstance(assignment, EmbeddedStruct) else ()
    partitions = sorted((one["topic"], number) for one in owned for number in one["partitions"])
    return MemberImage(
        fields["memberId"], fields.get("groupInstanceId"), fields["clientId"], fields["clientHost"], tuple(partitions)
    )  # fmt: skip
