"""The coordinator of consumer groups: classic groups and their offsets, in memory, for many threads.

It has the offsets that were committed on the disk, and later ones; nothing is written.  A request that must wait for
other members waits here, on its own thread.  Groups, members and their data are limited, because any client that
reaches the port can create them.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping
from sys import getsizeof
from typing import Final, NamedTuple, TypeAlias

from klog.commands.serve.classic_group import LONGEST_REBALANCE_S, MEMBER_BYTES, ConsumerGroup, GroupState, Member
from klog.formats.error_codes import ErrorCode
from klog.formats.structs.schema import Data

MOST_GROUPS: Final = 1000
MOST_MEMBERS: Final = 1000
MOST_BYTES: Final = 8 << 20
"""The memory limit of members."""
MOST_COMMIT_BYTES: Final = 12 << 20
LONGEST_NAME: Final = 1000
"""Bytes of a group id, instance id or group type: a waiting client keeps its request in memory."""
LONGEST_METADATA: Final = 4096
"""offset.metadata.max.bytes."""
SHORTEST_SESSION_MS: Final = 6000
LONGEST_SESSION_MS: Final = 1_800_000
_COMMIT_BYTES: Final = 384
_MEMBER_ID_IS_TOLD: Final = 4
"""From this version of JoinGroup on, a new member first receives its id, and joins with it."""
_LOOKS_EVERY_S: Final = 1.0
"""How often a waiting request checks that its client is still connected."""
_LEADER_SKIPS: Final = 9
"""From this version of JoinGroup on, a leader can be asked to skip the assignment."""

Committed: TypeAlias = "tuple[int, int, str]"
"""Offset, leader epoch (-1: none), metadata."""
Offsets: TypeAlias = "Mapping[tuple[str, int], Committed]"
"""Offsets by topic and partition."""


def _still_there() -> None:
    """The default for tests: no client disconnects."""


class GroupDescription(NamedTuple):
    """A group as other clients see it."""

    kind: str
    state: str
    protocol: str
    members: tuple[Member, ...]


class GroupCoordinator:
    """All groups.  *on_disk* returns the offsets that a group has committed there."""

    def __init__(self, on_disk: Callable[[str], Offsets], clock: Callable[[], float] = time.monotonic) -> None:
        self._on_disk, self._clock = on_disk, clock
        self._changed = threading.Condition()
        self._groups: dict[str, ConsumerGroup] = {}
        self._commits: dict[str, dict[tuple[str, int], Committed]] = {}
        self._commit_bytes = 0

    # ------------------------------------------------------------ joining

    def join(
        self, request: Data, version: int, client: str, host: str, still_there: Callable[[], None] = _still_there
    ) -> Data:
        """Return the answer to JoinGroup; waits until the group is complete, or *still_there* raises.

        A member whose client disconnects has joined all the same, and then times out, as with a broker.
        """
        with self._changed:
            group = self._group_to_join(request)
            if isinstance(group, ErrorCode):
                return _not_joined(group, request["memberId"], version)
            member = self._joining(group, request, version, client, host)
            self._changed.notify_all()
            if isinstance(member, dict):
                return member
            request.clear()  # it may be large, and the wait long
            while member.joining and group.members.get(member.id) is member:
                self._wait(group, still_there)
            if member.fenced:
                return _not_joined(ErrorCode.FENCED_INSTANCE_ID, member.id, version)
            if group.members.get(member.id) is not member:
                return _not_joined(ErrorCode.UNKNOWN_MEMBER_ID, member.id, version)
            if group.state is GroupState.PREPARING:  # before this thread woke up, the next rebalance had begun
                return _not_joined(ErrorCode.REBALANCE_IN_PROGRESS, member.id, version)
            return _joined(group, member)

    def _wait(self, group: ConsumerGroup, still_there: Callable[[], None]) -> None:
        due = group.next_change()
        self._changed.wait(_LOOKS_EVERY_S if due is None else min(_LOOKS_EVERY_S, max(0.0, due - self._clock())))
        self._tick(group)
        still_there()

    def _tick(self, group: ConsumerGroup) -> None:
        before = group.state, group.generation
        group.tick(self._clock())
        if (group.state, group.generation) != before:
            self._changed.notify_all()

    def _group_to_join(self, request: Data) -> ConsumerGroup | ErrorCode:
        name, protocols = request["groupId"], _protocols(request)
        if not name or len(name) > LONGEST_NAME:
            return ErrorCode.INVALID_GROUP_ID
        if max(len(request["protocolType"]), len(request["groupInstanceId"] or "")) > LONGEST_NAME:
            return ErrorCode.INVALID_REQUEST
        if not SHORTEST_SESSION_MS <= request["sessionTimeoutMs"] <= LONGEST_SESSION_MS:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        group = self._groups.get(name)
        if group is None:
            if len(self._groups) >= MOST_GROUPS:
                self._forget_abandoned()
            if len(self._groups) >= MOST_GROUPS:
                return ErrorCode.GROUP_MAX_SIZE_REACHED
            group = ConsumerGroup(name)
        self._tick(group)
        if not group.supports(request["protocolType"], protocols):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        is_new = request["memberId"] not in group.members
        if is_new and len(group.members) + len(group.pending) >= MOST_MEMBERS:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if not self._fits(sum(map(len, protocols)) + sum(map(len, protocols.values())) + is_new * MEMBER_BYTES):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        self._groups[name] = group
        return group

    def _fits(self, growth: int) -> bool:
        """Return whether so many bytes more can be kept."""
        return sum(one.size for one in self._groups.values()) + growth <= MOST_BYTES

    def _forget_abandoned(self) -> None:
        for group in list(self._groups.values()):
            self._tick(group)
            if group.abandoned:
                del self._groups[group.id]

    def _joining(self, group: ConsumerGroup, request: Data, version: int, client: str, host: str) -> Member | Data:
        """Return the member that has to wait, or an immediate answer."""
        member_id, instance = request["memberId"], request["groupInstanceId"]
        if not member_id:
            return self._joining_newly(group, _member(request, client, host, self._clock()), request, version)
        if member_id in group.pending and instance is None:
            member = _member(request, client, host, self._clock())
            group.join(member, request["protocolType"], self._clock())
            return member
        found = group.find(member_id, instance)
        if isinstance(found, ErrorCode):
            return _not_joined(found, member_id, version)
        renewed = _member(request, client, host, self._clock())
        same = renewed.protocols == found.protocols
        found.protocols, found.session_s, found.rebalance_s = renewed.protocols, renewed.session_s, renewed.rebalance_s
        found.seen = self._clock()
        leads = group.leader == found.id
        if same and (group.state is GroupState.COMPLETING or (group.state is GroupState.STABLE and not leads)):
            return _joined(group, found)  # the answer to its last request was lost
        group.join(found, request["protocolType"], self._clock())
        return found

    def _joining_newly(self, group: ConsumerGroup, member: Member, request: Data, version: int) -> Member | Data:
        member.id = f"{member.instance or member.client}-{uuid.uuid4()}"
        old = group.static(member.instance)
        if old is not None:
            led = group.leader == old.id
            if not group.replace(old, member, self._clock()):
                return member
            if led and version < _LEADER_SKIPS:  # only from version 9 on it can be asked to skip
                return _joined(group, member) | {"leader": old.id, "members": []}
            return _joined(group, member) | {"skipAssignment": led}
        if member.instance is None and version >= _MEMBER_ID_IS_TOLD:
            group.pending[member.id] = self._clock() + member.session_s
            return _not_joined(ErrorCode.MEMBER_ID_REQUIRED, member.id, version)
        group.join(member, request["protocolType"], self._clock())
        return member

    # ------------------------------------------------------------ being a member

    def _found(self, request: Data) -> tuple[ConsumerGroup, Member] | ErrorCode:
        """Return the member that sent the request, or the error; the request extends its session."""
        group = self._groups.get(request["groupId"])
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self._tick(group)
        member = group.find(request["memberId"], request["groupInstanceId"])
        if isinstance(member, ErrorCode):
            return member
        member.seen = self._clock()
        generation = request.get("generationId", request.get("generationIdOrMemberEpoch"))
        return (group, member) if generation == group.generation else ErrorCode.ILLEGAL_GENERATION

    def sync(self, request: Data, still_there: Callable[[], None] = _still_there) -> Data:
        """Return the answer to SyncGroup; a follower waits for its leader, or until *still_there* raises."""
        with self._changed:
            found = self._found(request)
            if isinstance(found, ErrorCode):
                return {"errorCode": found}
            group, member = found
            for told, held in ((request["protocolType"], group.kind), (request["protocolName"], group.protocol)):
                if told is not None and told != held:
                    return {"errorCode": ErrorCode.INCONSISTENT_GROUP_PROTOCOL}
            if group.state is GroupState.COMPLETING and group.leader == member.id:
                if not self._fits(sum(len(one["assignment"]) for one in request["assignments"])):
                    return {"errorCode": ErrorCode.GROUP_MAX_SIZE_REACHED}
                group.assign({one["memberId"]: one["assignment"] for one in request["assignments"]}, self._clock())
                self._changed.notify_all()
            generation = group.generation
            request.clear()  # it may be large, and the wait long
            while group.state is GroupState.COMPLETING and group.generation == generation and not member.fenced:
                member.syncing = True
                self._wait(group, still_there)
            if member.fenced:
                return {"errorCode": ErrorCode.FENCED_INSTANCE_ID}
            if group.state is not GroupState.STABLE or group.generation != generation:
                return {"errorCode": ErrorCode.REBALANCE_IN_PROGRESS}
            return {"protocolType": group.kind, "protocolName": group.protocol, "assignment": member.assignment}

    def heartbeat(self, request: Data) -> ErrorCode:
        """Return the answer to Heartbeat."""
        with self._changed:
            found = self._found(request)
            if isinstance(found, ErrorCode):
                return found
            return ErrorCode.REBALANCE_IN_PROGRESS if found[0].state is GroupState.PREPARING else ErrorCode.NONE

    def leave(self, name: str, member_id: str, instance: str | None) -> ErrorCode:
        """Remove a member; one that is named by its instance alone may have any id."""
        with self._changed:
            group = self._groups.get(name)
            if group is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if instance is None and group.pending.pop(member_id, None) is not None:
                self._tick(group)
                self._changed.notify_all()
                return ErrorCode.NONE
            known = group.static(instance)
            member = group.find(known.id if known is not None and not member_id else member_id, instance)
            if isinstance(member, ErrorCode):
                return member
            group.leave(member, self._clock())
            self._changed.notify_all()
            return ErrorCode.NONE

    # ------------------------------------------------------------ offsets

    def may_commit(self, request: Data) -> ErrorCode:
        """Return whether the request may commit offsets.  Kafka: ClassicGroup.validateOffsetCommit."""
        with self._changed:
            group = self._groups.get(request["groupId"])
            alone = request["generationIdOrMemberEpoch"] < 0
            if group is None or not group.members:
                return ErrorCode.NONE if alone else ErrorCode.ILLEGAL_GENERATION
            if alone and not request["memberId"] and request["groupInstanceId"] is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            found = self._found(request)
            if isinstance(found, ErrorCode):
                return found
            return ErrorCode.REBALANCE_IN_PROGRESS if found[0].state is GroupState.COMPLETING else ErrorCode.NONE

    def commit(self, name: str, topic: str, partition: int, committed: Committed) -> ErrorCode:
        """Keep an offset of the group *name* in memory."""
        if len(committed[2]) > LONGEST_METADATA:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        with self._changed:
            mine, place = self._commits.get(name, {}), (topic, partition)
            size = getsizeof(committed[2])
            growth = size - getsizeof(mine[place][2]) if place in mine else _COMMIT_BYTES + size
            growth += 0 if name in self._commits else _COMMIT_BYTES + getsizeof(name)
            if self._commit_bytes + growth > MOST_COMMIT_BYTES:
                return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            self._commit_bytes += growth
            self._commits.setdefault(name, mine)[place] = committed
            return ErrorCode.NONE

    def offsets(self, name: str) -> Offsets:
        """Return the group's committed offsets: those since the start, else those on the disk."""
        with self._changed:
            since = dict(self._commits.get(name, {}))
        return {**self._on_disk(name), **since}

    # ------------------------------------------------------------ descriptions and responses

    def names(self) -> list[str]:
        """Return the groups that were used since the start."""
        with self._changed:
            self._forget_abandoned()
            return sorted({*self._groups, *self._commits})

    def known(self, name: str) -> GroupDescription | None:
        """Return the description of a group; None if it was not used since the start."""
        with self._changed:
            group = self._groups.get(name)
            if group is not None:
                self._tick(group)
            if group is None or group.abandoned:
                return GroupDescription("consumer", GroupState.EMPTY.value, "", ()) if name in self._commits else None
            members = tuple(group.members.values())
            return GroupDescription(group.kind, group.state.value, group.protocol or "", members)


def _protocols(request: Data) -> dict[str, bytes]:
    return {one["name"]: one["metadata"] for one in request["protocols"]}


def _member(request: Data, client: str, host: str, now: float) -> Member:
    session_ms = request["sessionTimeoutMs"]
    rebalance_ms = request["rebalanceTimeoutMs"]
    rebalance_s = min((rebalance_ms if rebalance_ms >= 0 else session_ms) / 1000, LONGEST_REBALANCE_S)
    instance = request["groupInstanceId"]
    return Member(request["memberId"], instance, client, host, _protocols(request), session_ms / 1000, rebalance_s, now)


def _joined(group: ConsumerGroup, member: Member) -> Data:
    """Return the response to a member of a generation; the leader receives all members, to compute the assignment."""
    protocol, leads = group.protocol or "", member.id == group.leader
    members = [
        {"memberId": one.id, "groupInstanceId": one.instance, "metadata": one.protocols.get(protocol, b"")}
        for one in (group.members.values() if leads else ())
    ]
    return {
        "generationId": group.generation,
        "protocolType": group.kind,
        "protocolName": protocol,
        "leader": group.leader or "",
        "memberId": member.id,
        "members": members,
    }


def _not_joined(error: ErrorCode, member_id: str, version: int) -> Data:
    return {"errorCode": error, "memberId": member_id, "protocolName": None if version >= 7 else ""}
