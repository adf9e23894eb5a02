"""The coordinator: members join, take over, fall silent and leave as at a broker, and strangers are bounded."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

import pytest
from klog.commands.serve import classic_group as group_module
from klog.commands.serve import group_coordinator as groups_module
from klog.commands.serve.group_coordinator import GroupCoordinator, Offsets
from klog.formats.error_codes import ErrorCode
from klog.formats.structs.schema import Data, load

DISK: Mapping[str, Offsets] = {"old": {("orders", 0): (5, 1, "m"), ("orders", 1): (6, -1, "")}}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def groups(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> GroupCoordinator:
    monkeypatch.setattr(group_module, "INITIAL_DELAY_S", 0.0)
    return GroupCoordinator(lambda name: DISK.get(name, {}), clock)


def request(name: str, **fields: object) -> Data:
    """Return a request with everything else at its default, as it would be read."""
    found = load("wire", f"{name}Request").struct.default() | fields
    assert found.keys() == load("wire", f"{name}Request").struct.default().keys()
    return found


def joining(member: str = "", *, group: str = "g", protocols: str = "range", data: bytes = b"", **more: object) -> Data:
    offered = [{"name": name, "metadata": data} for name in protocols.split()]
    fields = {"sessionTimeoutMs": 10_000, "rebalanceTimeoutMs": 60_000, "protocolType": "consumer"} | more
    return request("JoinGroup", groupId=group, memberId=member, protocols=offered, **fields)


def syncing(joined: Data, *assignments: tuple[str, bytes], group: str = "g", **more: object) -> Data:
    rows = [{"memberId": member, "assignment": data} for member, data in assignments]
    return request(
        "SyncGroup",
        groupId=group,
        memberId=joined["memberId"],
        generationId=joined["generationId"],
        assignments=rows,
        **more,
    )


def alive(joined: Data, **more: object) -> Data:
    member, generation = joined["memberId"], joined["generationId"]
    return request("Heartbeat", groupId="g", memberId=member, generationId=generation, **more)


class Later:
    """A call on a thread of its own."""

    def __init__(self, call: Callable[[], Data]) -> None:
        self._answer: list[Data] = []
        self._thread = threading.Thread(target=lambda: self._answer.append(call()), daemon=True)
        self._thread.start()

    def waits(self) -> bool:
        self._thread.join(0.1)
        return self._thread.is_alive()

    def answer(self) -> Data:
        self._thread.join(90)
        return self._answer[0]


def later(call: Callable[[], Data]) -> Later:
    return Later(call)


def error(answer: Data) -> int:
    return int(answer.get("errorCode", 0))


def alone(groups: GroupCoordinator, **more: object) -> Data:
    """Return the answers for the only member of a group, which has synced."""
    joined = groups.join(joining(**more), 3, "c", "127.0.0.1")
    assert error(joined) == 0
    assert error(groups.sync(syncing(joined, (joined["memberId"], b"all")))) == 0
    return joined


def test_the_first_member_leads_and_assigns(groups: GroupCoordinator) -> None:
    joined = groups.join(joining(data=b"what I read"), 3, "app", "127.0.0.1")
    assert joined["leader"] == joined["memberId"]
    assert joined["memberId"].startswith("app-")
    assert (joined["generationId"], joined["protocolName"]) == (1, "range")
    assert [one["metadata"] for one in joined["members"]] == [b"what I read"]
    answer = groups.sync(syncing(joined, (joined["memberId"], b"all of it")))
    assert (error(answer), answer["assignment"]) == (0, b"all of it")
    assert groups.heartbeat(alive(joined)) is ErrorCode.NONE


def test_a_new_member_is_told_its_id_first(groups: GroupCoordinator) -> None:
    """Else a client that asks again after a timeout leaves a member behind each time (KIP-394)."""
    told = groups.join(joining(), 4, "c", "h")
    assert error(told) == ErrorCode.MEMBER_ID_REQUIRED
    joined = groups.join(joining(told["memberId"]), 4, "c", "h")
    assert (error(joined), joined["memberId"]) == (0, told["memberId"])


def test_who_was_told_its_id_is_waited_for(groups: GroupCoordinator) -> None:
    """It is being sent; otherwise each new member would cost the group two rebalances."""
    first = alone(groups)
    told = groups.join(joining(), 4, "b", "h")
    second = later(lambda: groups.join(joining(first["memberId"]), 3, "a", "h"))
    assert second.waits()
    third = groups.join(joining(told["memberId"]), 4, "b", "h")
    assert (error(third), len(second.answer()["members"])) == (0, 2)


def test_three_members_join_and_leave(groups: GroupCoordinator) -> None:
    first = alone(groups)
    second = later(lambda: groups.join(joining(), 3, "b", "h"))
    third = later(lambda: groups.join(joining(), 3, "c", "h"))
    assert second.waits()
    assert third.waits()
    assert groups.heartbeat(alive(first)) is ErrorCode.REBALANCE_IN_PROGRESS
    first = groups.join(joining(first["memberId"]), 3, "a", "h")
    others = [second.answer(), third.answer()]
    assert {one["generationId"] for one in others} <= {first["generationId"]}
    assert len(first["members"]) == 3
    assert [one["members"] for one in others] == [[], []]
    followers = [later(lambda one=one: groups.sync(syncing(one))) for one in others]
    assert all(follower.waits() for follower in followers)
    ids = [first["memberId"], *(one["memberId"] for one in others)]
    assert groups.sync(syncing(first, *((one, one.encode()) for one in ids)))["assignment"] == ids[0].encode()
    assert [follower.answer()["assignment"] for follower in followers] == [one.encode() for one in ids[1:]]
    assert groups.leave("g", ids[1], None) is ErrorCode.NONE
    assert groups.heartbeat(alive(first)) is ErrorCode.REBALANCE_IN_PROGRESS
    again = later(lambda: groups.join(joining(ids[2]), 3, "c", "h"))
    assert again.waits()
    first = groups.join(joining(ids[0]), 3, "a", "h")
    assert {one["memberId"] for one in first["members"]} == {ids[0], ids[2]}
    assert error(again.answer()) == 0


def test_who_falls_silent_is_out(groups: GroupCoordinator, clock: Clock) -> None:
    first = alone(groups)
    second = later(lambda: groups.join(joining(), 3, "b", "h"))
    assert second.waits()
    first = groups.join(joining(first["memberId"]), 3, "a", "h")
    told = second.answer()
    follower = later(lambda: groups.sync(syncing(told)))
    assert follower.waits()
    groups.sync(syncing(first, (told["memberId"], b"x")))
    assert follower.answer()["assignment"] == b"x"
    clock.now += 9
    assert groups.heartbeat(alive(told)) is ErrorCode.NONE
    clock.now += 2
    assert groups.heartbeat(alive(told)) is ErrorCode.REBALANCE_IN_PROGRESS
    assert groups.heartbeat(alive(first)) is ErrorCode.UNKNOWN_MEMBER_ID
    alone_now = groups.join(joining(told["memberId"]), 3, "b", "h")
    assert (len(alone_now["members"]), alone_now["leader"]) == (1, told["memberId"])


def test_a_leader_that_dies_before_it_assigns_does_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the real clock: whoever waits wakes up by itself."""
    monkeypatch.setattr(groups_module, "SHORTEST_SESSION_MS", 0)
    monkeypatch.setattr(group_module, "INITIAL_DELAY_S", 1.0)
    groups = GroupCoordinator(lambda _: {})
    first = later(lambda: groups.join(joining(sessionTimeoutMs=300), 3, "a", "h"))
    assert first.waits()
    told = groups.join(joining(), 3, "b", "h")
    assert first.answer()["leader"] == told["leader"] != told["memberId"]
    began = time.monotonic()
    assert error(groups.sync(syncing(told))) == ErrorCode.REBALANCE_IN_PROGRESS
    assert time.monotonic() - began < 60  # of the half an hour that a session may be silent


def test_a_member_that_never_comes_back_is_waited_for_until_the_rebalance_is_over(
    groups: GroupCoordinator, clock: Clock
) -> None:
    first = alone(groups, sessionTimeoutMs=40_000)
    second = later(lambda: groups.join(joining(), 3, "b", "h"))
    assert second.waits()
    clock.now += 30
    assert groups.heartbeat(alive(first)) is ErrorCode.REBALANCE_IN_PROGRESS
    assert second.waits()
    clock.now += 31
    assert groups.heartbeat(alive(first)) is ErrorCode.UNKNOWN_MEMBER_ID
    answer = second.answer()
    assert [one["memberId"] for one in answer["members"]] == [answer["memberId"]]


def test_the_strategy_that_all_have_and_most_prefer_is_taken(groups: GroupCoordinator) -> None:
    first = alone(groups, protocols="range sticky")
    assert error(groups.join(joining(protocols="other"), 3, "b", "h")) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert error(groups.join(joining(protocolType="connect"), 3, "b", "h")) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    second = later(lambda: groups.join(joining(protocols="sticky"), 3, "b", "h"))
    assert second.waits()
    assert groups.join(joining(first["memberId"], protocols="range sticky"), 3, "a", "h")["protocolName"] == "sticky"
    assert second.answer()["protocolName"] == "sticky"


def test_an_answer_that_was_lost_is_given_again_without_a_rebalance(groups: GroupCoordinator) -> None:
    first = alone(groups)
    second = later(lambda: groups.join(joining(), 3, "b", "h"))
    assert second.waits()
    first = groups.join(joining(first["memberId"]), 3, "a", "h")
    told = second.answer()
    assert groups.join(joining(told["memberId"]), 3, "b", "h") == told
    follower = later(lambda: groups.sync(syncing(told)))
    assert follower.waits()
    groups.sync(syncing(first, (told["memberId"], b"x")))
    assert groups.join(joining(told["memberId"]), 3, "b", "h")["generationId"] == told["generationId"]
    assert groups.sync(syncing(told))["assignment"] == b"x"
    assert groups.heartbeat(alive(first)) is ErrorCode.NONE


def test_a_static_member_comes_back_in_its_place(groups: GroupCoordinator) -> None:
    """A restart must not make all others stop (KIP-345); and the earlier member is informed."""
    first = alone(groups, groupInstanceId="node-1")
    again = groups.join(joining(groupInstanceId="node-1"), 9, "c", "h")
    assert (error(again), again["generationId"], again["skipAssignment"]) == (0, first["generationId"], True)
    assert again["memberId"] != first["memberId"]
    assert groups.sync(syncing(again, groupInstanceId="node-1"))["assignment"] == b"all"
    old = alive(first, groupInstanceId="node-1")
    assert groups.heartbeat(old) is ErrorCode.FENCED_INSTANCE_ID
    assert groups.heartbeat(alive(first)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.heartbeat(alive(again, groupInstanceId="node-1")) is ErrorCode.NONE
    older = groups.join(joining(groupInstanceId="node-1"), 5, "c", "h")
    assert (older["leader"], older["members"]) == (again["memberId"], []), "not told to skip, it only follows"
    assert groups.leave("g", "", "node-1") is ErrorCode.NONE
    assert groups.known("g") is None


def test_a_static_member_that_waits_is_told_when_another_takes_its_name(groups: GroupCoordinator) -> None:
    alone(groups)
    waiting = later(lambda: groups.join(joining(groupInstanceId="node-1"), 5, "c", "h"))
    assert waiting.waits()
    newer = later(lambda: groups.join(joining(groupInstanceId="node-1"), 5, "c", "h"))
    assert error(waiting.answer()) == ErrorCode.FENCED_INSTANCE_ID
    assert newer.waits()


def test_who_is_not_a_member_is_told_so(groups: GroupCoordinator) -> None:
    nobody = {"memberId": "x", "generationId": 1}
    assert groups.heartbeat(alive(nobody)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert error(groups.sync(syncing(nobody))) == ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.leave("g", "x", None) is ErrorCode.UNKNOWN_MEMBER_ID
    assert error(groups.join(joining("x"), 3, "c", "h")) == ErrorCode.UNKNOWN_MEMBER_ID
    joined = alone(groups)
    assert groups.heartbeat(alive(joined | {"generationId": 7})) is ErrorCode.ILLEGAL_GENERATION
    assert error(groups.sync(syncing(joined, protocolName="other"))) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_offsets_begin_with_those_of_the_disk_and_stay_in_memory(groups: GroupCoordinator) -> None:
    assert groups.offsets("old") == DISK["old"]
    assert groups.commit("old", "orders", 0, (9, 2, "new")) is ErrorCode.NONE
    assert groups.offsets("old") == {("orders", 0): (9, 2, "new"), ("orders", 1): (6, -1, "")}
    assert DISK["old"]["orders", 0] == (5, 1, "m")
    assert groups.names() == ["old"]
    assert groups.commit("old", "orders", 0, (9, 2, "x" * 4097)) is ErrorCode.OFFSET_METADATA_TOO_LARGE


def test_only_members_commit_for_a_group_that_has_some(groups: GroupCoordinator) -> None:
    def committing(generation: int, member: str) -> Data:
        fields = {"groupId": "g", "generationIdOrMemberEpoch": generation, "memberId": member}
        return request("OffsetCommit", **fields)

    assert groups.may_commit(committing(-1, "")) is ErrorCode.NONE
    assert groups.may_commit(committing(3, "m")) is ErrorCode.ILLEGAL_GENERATION
    joined = alone(groups)
    assert groups.may_commit(committing(joined["generationId"], joined["memberId"])) is ErrorCode.NONE
    assert groups.may_commit(committing(-1, "")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.may_commit(committing(9, joined["memberId"])) is ErrorCode.ILLEGAL_GENERATION


def test_members_grow_no_more_than_fits(groups: GroupCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by their content when they join again, nor by a leader's assignment, nor by their names."""
    monkeypatch.setattr(groups_module, "MOST_BYTES", 20_000)
    joined = alone(groups)
    again = joining(joined["memberId"], data=bytes(30_000))
    assert error(groups.join(again, 3, "c", "h")) == ErrorCode.GROUP_MAX_SIZE_REACHED
    joined = groups.join(joining(joined["memberId"], data=b"new"), 3, "c", "h")
    assigned = syncing(joined, (joined["memberId"], bytes(30_000)))
    assert error(groups.sync(assigned)) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert error(groups.join(joining(group="g" * 1001), 3, "c", "h")) == ErrorCode.INVALID_GROUP_ID
    assert error(groups.join(joining(groupInstanceId="i" * 1001), 5, "c", "h")) == ErrorCode.INVALID_REQUEST
    assert error(groups.join(joining(group="h", protocolType="k" * 1001), 3, "c", "h")) == ErrorCode.INVALID_REQUEST


def test_whoever_hangs_up_waits_no_longer(groups: GroupCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """It took a connection for half an hour; that it had joined still counts, as at a broker."""

    class GoneError(Exception):
        pass

    def gone() -> None:
        raise GoneError

    monkeypatch.setattr(groups_module, "_LOOKS_EVERY_S", 0.01)
    first = alone(groups)
    with pytest.raises(GoneError):
        groups.join(joining(), 3, "c", "h", gone)
    joined = groups.join(joining(first["memberId"]), 3, "c", "h")
    assert len(joined["members"]) == 2
    follower = next(one["memberId"] for one in joined["members"] if one["memberId"] != first["memberId"])
    with pytest.raises(GoneError):
        groups.sync(syncing(joined | {"memberId": follower}), gone)


def test_strangers_invent_no_more_than_fits(
    groups: GroupCoordinator, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert error(groups.join(joining(group=""), 3, "c", "h")) == ErrorCode.INVALID_GROUP_ID
    assert error(groups.join(joining(sessionTimeoutMs=1), 3, "c", "h")) == ErrorCode.INVALID_SESSION_TIMEOUT
    monkeypatch.setattr(groups_module, "MOST_GROUPS", 5)
    monkeypatch.setattr(groups_module, "MOST_MEMBERS", 3)
    for number in range(5):
        assert error(groups.join(joining(group=f"g{number}"), 4, "c", "h")) == ErrorCode.MEMBER_ID_REQUIRED
    assert error(groups.join(joining(group="one more"), 4, "c", "h")) == ErrorCode.GROUP_MAX_SIZE_REACHED
    clock.now += 11  # they never returned
    assert [error(groups.join(joining(), 4, "c", "h")) for _ in range(4)] == [ErrorCode.MEMBER_ID_REQUIRED] * 3 + [
        ErrorCode.GROUP_MAX_SIZE_REACHED
    ]
    monkeypatch.setattr(groups_module, "MOST_BYTES", 20_000)
    assert error(groups.join(joining(group="h", data=bytes(30_000)), 4, "c", "h")) == ErrorCode.GROUP_MAX_SIZE_REACHED
    monkeypatch.setattr(groups_module, "MOST_COMMIT_BYTES", 20_000)
    codes = [groups.commit("h", "orders", number, (1, 1, "x" * 1000)) for number in range(20)]
    assert codes[0] is ErrorCode.NONE
    assert codes[-1] is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert groups.commit("h", "orders", 0, (2, 1, "y" * 1000)) is ErrorCode.NONE, "what is there may be replaced"
