"""`klog metadata history` as operators type it: what happened, in which order, and why."""

from __future__ import annotations

import json
import random
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_metadata_show import Said, klog
from tests.cluster.metadata.quorum_truth import MOMENTS, NODES, TOLD, TRUTH, disk, end
from tests.support.metadata_logs import MetadataLog, control, topic, uuid, value

Row = dict[str, Any]
EVERY = sorted({(node, name) for node in NODES for moment in MOMENTS for name in moment["partitions"]})


def rows(*arguments: str | Path, code: int = 0) -> list[Row]:
    ran = klog("metadata", "history", *arguments, "--output", "jsonl")
    assert ran.exit_code == code, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


# a real cluster


@pytest.mark.parametrize(("node", "name"), EVERY)
def test_each_partition_passes_through_every_moment(node: int, name: str) -> None:
    """Clients' answers at five moments, and the partition's own count of its changes."""
    found = rows(disk(node), "--partition", name)
    for moment in MOMENTS:
        if moment["high_watermark"] > end(node):
            continue
        before = [row for row in found if row["offset"] < moment["high_watermark"]]
        told = moment["partitions"].get(name)
        if told is None:
            assert not before or before[-1]["replicas"] is None
            continue
        assert {field: before[-1][field] for field in TOLD} == told
        assert before[-1]["topic_id"] == moment["topic_ids"][before[-1]["topic"]]
    for earlier, later in pairwise(found):
        assert later["offset"] > earlier["offset"]
        assert later["timestamp"] >= earlier["timestamp"]
        if None not in (earlier["partition_epoch"], later["partition_epoch"]):
            assert later["partition_epoch"] == earlier["partition_epoch"] + 1
            assert later["leader_epoch"] == earlier["leader_epoch"] + ("leader_epoch" in later["changed"])


def test_a_topic_that_was_made_anew_has_both_ids() -> None:
    found = rows(disk(1), "--partition", f"{TRUTH['names']['again']}-0")
    assert [(row["record"], row["topic_id"], row["reason"]) for row in found] == [
        ("PARTITION_RECORD", MOMENTS[0]["topic_ids"]["again95"], "created"),
        ("REMOVE_TOPIC_RECORD", MOMENTS[0]["topic_ids"]["again95"], "the topic was deleted"),
        ("PARTITION_RECORD", MOMENTS[-1]["topic_ids"]["again95"], "created"),
    ]
    text = klog("metadata", "history", disk(1), "--partition", "again95-0").stdout
    assert all(row["topic_id"] in text for row in found)


def test_the_records_around_a_change_tell_why() -> None:
    """The fence of a broker lies behind the changes that it causes, in the same batch."""
    found = {row["offset"]: row for row in rows(disk(3), "--partition", "elr16-0")}
    assert {offset: row["reason"] for offset, row in found.items()} == {
        54: "created",
        76: "broker 3 shuts down",
        85: "3 (registered at 80) caught up",
        115: "broker 2 was fenced",
    }
    assert (found[76]["changed"], found[76]["epoch"]) == (["isr", "partition_epoch", "elr"], 4)
    assert found[115]["epoch"] == 5
    assert [row["reason"] for row in rows(disk(3), "--partition", "solo95-2")][1:] == [
        "broker 3 shuts down; no leader is left",
        "broker 3 was unfenced; election of 3",
    ]


def test_a_broker_comes_and_goes() -> None:
    found = rows(disk(1), "--broker", "3")
    assert [(row["offset"], row["epoch"], row["fenced"], row["shutting_down"]) for row in found] == [
        (16, 16, True, False),
        (30, 16, False, False),
        (67, 16, False, True),
        (77, 16, True, True),
        (80, 80, True, False),
        (81, 80, False, False),
    ]
    assert {(row["rack"], *row["endpoints"], row["quorum_epoch"]) for row in found} == {
        ("a", "PLAINTEXT://localhost:31620", 4)
    }
    assert [row["reason"] for row in found][-2:] == ["registered after a start", "was unfenced"]


def test_who_led_the_quorum() -> None:
    found = rows(disk(1), "--quorum")
    leaders = [
        (row["offset"], row["epoch"], row["leader"], row["reason"]) for row in found if "leader" in row["changed"]
    ]
    assert leaders == [(0, 1, 2, "votes of 1, 2"), (104, 5, 3, "votes of 3, 1")]
    assert [row["offset"] for row in found] == [0, 1, 2, 3, 104]
    assert [voter["directory_id"] for voter in found[2]["voters"]] == list(TRUTH["directory_ids"].values())
    # The log of node 2, which was killed earlier, does not have the last of them.
    assert [row["offset"] for row in rows(disk(2), "--quorum")] == [0, 1, 2, 3]


def test_changes_from_an_offset_on() -> None:
    every = rows(disk(1), "--partition", "elr16-0")
    assert rows(disk(1), "--partition", "elr16-0", "--from-offset", "85") == every[2:]
    assert rows(disk(1), "--partition", "elr16-0", "--from-offset", "999", code=4) == []


def test_where_the_log_begins_later_the_oldest_snapshot_is_first(tmp_path: Path) -> None:
    every = rows(disk(1), "--partition", "elr16-0")
    folder = Path(shutil.copytree(disk(1), tmp_path / "disk")) / "__cluster_metadata-0"
    for path in folder.iterdir():
        if path.name < "00000000000000000079":
            path.unlink()
    first, *later = rows(folder, "--partition", "elr16-0")
    assert (first["record"], first["offset"], first["epoch"], first["timestamp"]) == (
        "snapshot",
        98,
        4,
        1795376450451,
    )
    assert {name: first[name] for name in TOLD} == {name: every[2][name] for name in TOLD}
    assert later == every[3:]
    for path in folder.glob("*.checkpoint"):
        path.unlink()
    ran = klog("metadata", "history", folder, "--quorum")
    assert (ran.exit_code, ran.stdout) == (8, "")
    assert "the log begins at 79, and no complete snapshot ends there or later" in ran.stderr


# the request


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--partition", "orders-1"), "no topic orders; did you mean orders21?"),
        (("--partition", "orders21-7"), "no partition orders21-7; known are 0–2"),
        (("--broker", "9"), "no broker 9; known are 1, 2, 3"),
    ],
)
def test_what_nobody_knows(arguments: tuple[str, ...], said: str) -> None:
    ran = klog("metadata", "history", disk(1), *arguments)
    assert (ran.exit_code, ran.stdout) == (4, "")
    assert said in ran.stderr


@pytest.mark.parametrize(
    "arguments", [(), ("--quorum", "--broker", "1"), ("--partition", "orders"), ("--partition", "orders-1.x-delete")]
)
def test_one_thing_at_a_time(arguments: tuple[str, ...]) -> None:
    assert klog("metadata", "history", disk(1), *arguments).exit_code == 16


# reasons


@pytest.fixture
def log(tmp_path: Path) -> MetadataLog:
    """A log with brokers 1 to 4 and t-0 on three of them."""
    found = MetadataLog(tmp_path / "data")
    for node in (1, 2, 3, 4):
        found.add(value("RegisterBroker", brokerId=node, brokerEpoch=node, incarnationId=uuid(node), rack=None))
    found.add(
        topic("t", 1), value("Partition", partitionId=0, topicId=uuid(1), replicas=[1, 2, 3], isr=[1, 2, 3], leader=1)
    )
    return found


def change(**fields: object) -> bytes:
    return value("PartitionChange", partitionId=0, topicId=uuid(1), **fields)


def fence(node: int) -> bytes:
    return value("BrokerRegistrationChange", brokerId=node, brokerEpoch=node, fenced=1)


def why(log: MetadataLog) -> list[str | None]:
    return [row["reason"] for row in rows(log.log_dir, "--partition", "t-0")][1:]


def test_a_reassignment_from_its_beginning_to_its_end(log: MetadataLog) -> None:
    log.add(change(replicas=[4, 2, 3, 1], addingReplicas=[4], removingReplicas=[1]))
    log.add(change(isr=[1, 2, 3, 4]))
    log.add(change(replicas=[4, 2, 3], isr=[4, 2, 3], addingReplicas=[], removingReplicas=[], leader=4))
    log.add(change(replicas=[4, 2, 3, 1], addingReplicas=[1]))
    log.add(change(replicas=[4, 2, 3], addingReplicas=[]))
    assert why(log) == [
        "a reassignment begins: +4 -1",
        "4 (registered at 4) caught up",
        "the reassignment is complete; election of 4",
        "a reassignment begins: +1",
        "the reassignment was cancelled",
    ]


def test_elections_of_every_kind(log: MetadataLog) -> None:
    log.add(change(isr=[2, 3], leader=2), fence(1))
    log.add(change(isr=[2, 3, 1]))
    log.add(change(leader=1))
    log.add(change(isr=[1]))
    log.add(change(isr=[], leader=-1, eligibleLeaderReplicas=[1], lastKnownElr=[1]), fence(1))
    log.add(
        change(eligibleLeaderReplicas=[]), value("RegisterBroker", brokerId=1, brokerEpoch=1, incarnationId=uuid(7))
    )
    log.add(change(isr=[1], leader=1, lastKnownElr=[]))
    log.add(change(isr=[], leader=-1), fence(1))
    log.add(change(isr=[3], leader=3, leaderRecoveryState=1))
    log.add(change(leaderRecoveryState=0))
    log.add(change(eligibleLeaderReplicas=[2]))
    log.add(value("ClearElr", topicName="t"))
    log.add(change(directories=[uuid(4), uuid(5), uuid(6)]))
    assert why(log) == [
        "broker 1 was fenced; election of 2",
        "1 (registered at 1) caught up",
        "election of 1, the preferred leader",
        "2, 3 fell behind",
        "broker 1 was fenced; no leader is left",
        "broker 1 registered without having stopped cleanly",
        "election of 1, the last known leader",
        "broker 1 was fenced; no leader is left",
        "unclean election of 3",
        "the leader has recovered",
        None,
        "the ELR was cleared",
        "assigned to other log dirs",
    ]


def test_records_of_a_transaction_count_where_they_stand(log: MetadataLog) -> None:
    begin = log.add(value("BeginTransaction", name="x"), change(isr=[1]))
    log.add(change(isr=[1, 2]))
    log.add(value("EndTransaction"))
    log.add(value("BeginTransaction", name="y"), change(isr=[2]), value("AbortTransaction"))
    log.add(value("BeginTransaction", name="z"), change(isr=[3]))
    found = rows(log.log_dir, "--partition", "t-0")[1:]
    assert [(row["offset"], row["isr"]) for row in found] == [(begin + 1, [1]), (begin + 2, [1, 2])]


def test_a_broker_that_was_unregistered_is_gone(log: MetadataLog) -> None:
    log.add(value("UnregisterBroker", brokerId=4, brokerEpoch=4))
    log.add(value("RegisterBroker", brokerId=4, brokerEpoch=8, incarnationId=uuid(4), rack="b"))
    found = rows(log.log_dir, "--broker", "4")
    assert [(row["epoch"], row["rack"], row["reason"]) for row in found] == [
        (4, None, "registered"),
        (None, None, "was unregistered"),
        (8, "b", "registered"),
    ]


def test_voters_that_came_and_went(log: MetadataLog) -> None:
    def voters(*nodes: int) -> bytes:
        each = b"".join(
            node.to_bytes(4, "big") + bytes(15) + bytes([node]) + b"\2\x02C\x02h\0\x09\0" + b"\0\0\0\1\0\0"
            for node in nodes
        )
        return b"\0\0" + bytes([len(nodes) + 1]) + each + b"\0"

    for nodes in ((1, 2), (1, 2, 3), (2, 3)):
        log.add_control(control(6, voters(*nodes)))
    found = rows(log.log_dir, "--quorum")
    assert [row["reason"] for row in found] == ["voters added 1, 2", "voters added 3", "voters removed 1"]
    assert [one["endpoints"] for one in found[2]["voters"]] == [["C://h:9"], ["C://h:9"]]


def test_damage_is_said_and_the_rest_is_told(log: MetadataLog) -> None:
    log.add(change(isr=[1]))
    log.add(change(isr=[1, 2]))
    content = bytearray(log.log.read_bytes())
    content[-1] ^= 0xFF
    log.log.write_bytes(content)
    ran: Said = klog("metadata", "history", log.log_dir, "--partition", "t-0", "--output", "jsonl")
    assert (ran.exit_code, len(ran.stdout.splitlines())) == (4, 2)
    assert "bad CRC" in ran.stderr


def test_spoilt_logs_end_in_no_traceback(tmp_path: Path) -> None:
    """Any byte in a log: everything readable is shown, the damage is reported, and nothing is raised."""
    chance = random.Random(5)
    folder = Path(shutil.copytree(disk(3), tmp_path / "disk")) / "__cluster_metadata-0"
    files = sorted(path for path in folder.iterdir() if path.suffix in (".log", ".checkpoint"))
    for _ in range(40):
        path = chance.choice(files)
        kept = path.read_bytes()
        at = chance.randrange(len(kept))
        spoilt = kept[:at] if chance.random() < 0.3 else kept[:at] + bytes([kept[at] ^ 0xFF]) + kept[at + 1 :]
        path.write_bytes(spoilt)
        for words in (("show",), ("history", "--partition", "elr16-0"), ("history", "--quorum"), ("compare", disk(1))):
            verb, *more = words
            paths = (folder.parent, *more) if verb == "compare" else (folder.parent,)
            ran = klog("metadata", verb, *paths, *(() if verb == "compare" else more))
            assert ran.exit_code in (0, 4, 8), (path, at, words, ran.stderr)
            assert "Traceback" not in ran.stderr
        path.write_bytes(kept)
