"""Records of `__consumer_offsets`, by Kafka's schemas: commits and groups of any age, written behind a log."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

from klog.formats.structs.schema import Data, load
from klog.formats.structs.write import Writer, write

from tests.oracles.plain.encode import Record, batch

Pair = tuple[bytes, bytes]
DAY_MS = 86_400_000


def _written(name: str, data: Data, version: int) -> bytes:
    writer = Writer()
    write(load("coordinator", name), data, version, writer)
    return bytes(writer.tail)


def record(name: str, key: Data, value: Data, version: int = 0) -> Pair:
    """Return key and value; *name* as in Kafka's schemas, without "Key"."""
    number = load("coordinator", f"{name}Key").key
    assert number is not None
    return (
        struct.pack(">h", number) + _written(f"{name}Key", key, 0),
        struct.pack(">h", version) + _written(f"{name}Value", value, version),
    )


def commit(group: str, at_ms: int, number: int = 0, topic: str = "t", expires_ms: int | None = None) -> Pair:
    """Return a commit of that time; with *expires_ms* as brokers before 2.1 wrote it."""
    key = {"group": group, "topic": topic, "partition": number}
    value = {"offset": 1, "leaderEpoch": -1, "metadata": "", "commitTimestamp": at_ms, "expireTimestamp": expires_ms}
    return record("OffsetCommit", key, value, 3 if expires_ms is None else 1)


def classic(group: str, since_ms: int, protocol_type: str = "consumer", members: int = 0, version: int = 3) -> Pair:
    """Return a classic group whose state is of that time; up to version 1 it has no time."""
    subscription = struct.pack(">hih1si", 0, 1, 1, b"t", -1)
    one = {
        "memberId": "m-1", "groupInstanceId": None, "clientId": "c", "clientHost": "/h", "rebalanceTimeout": 6000,
        "sessionTimeout": 6000, "subscription": subscription, "assignment": b"",
    }  # fmt: skip
    value = {
        "protocolType": protocol_type, "generation": 3, "protocol": "range" if members else None,
        "leader": "m-1" if members else None, "currentStateTimestamp": since_ms, "members": [one] * members,
    }  # fmt: skip
    return record("GroupMetadata", {"group": group}, value, version)


def consumer(group: str, topic_id: str, *, member: bool) -> list[Pair]:
    """Return a group of the new protocol, with a member of topic t or without one."""
    key = {"groupId": group}
    found = [
        record("ConsumerGroupMetadata", key, {"epoch": 1, "metadataHash": 0}),
        record("ConsumerGroupTargetAssignmentMetadata", key, {"assignmentEpoch": 1, "assignmentTimestamp": 0}),
    ]
    if member:
        one = {**key, "memberId": "AAAAAAAAAAAAAAAAAAAAAQ"}
        subscribes = {
            "instanceId": None, "rackId": None, "clientId": "c", "clientHost": "/h", "subscribedTopicNames": ["t"],
            "subscribedTopicRegex": None, "rebalanceTimeoutMs": 6000, "serverAssignor": None,
            "classicMemberMetadata": None,
        }  # fmt: skip
        assigned = {
            "memberEpoch": 1, "previousMemberEpoch": 0, "state": 0, "partitionsPendingRevocation": [],
            "assignedPartitions": [{"topicId": topic_id, "partitions": [0], "assignmentEpochs": None}],
        }  # fmt: skip
        owned = {"topicPartitions": [{"topicId": topic_id, "partitions": [0]}]}
        found.insert(0, record("ConsumerGroupMemberMetadata", one, subscribes))
        found.append(record("ConsumerGroupTargetAssignmentMember", one, owned))
        found.append(record("ConsumerGroupCurrentMemberAssignment", one, assigned))
    return found


def append(path: Path, pairs: Iterable[Pair], offset: int, timestamp: int, leader_epoch: int = 0) -> None:
    """Append a batch of one record for each of *pairs*, from *offset* on, to the log of a directory."""
    batches = (
        batch([Record(offset + i, timestamp, key, value)], leader_epoch=leader_epoch)
        for i, (key, value) in enumerate(pairs)
    )
    with open(path / f"{0:020}.log", "ab") as log:
        log.write(b"".join(batches))
