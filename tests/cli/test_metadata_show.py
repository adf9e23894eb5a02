"""`klog metadata show` as operators type it, against the answers of a real cluster to clients."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from klog.base.read_only import DirectoryListing, list_directory

from tests.cluster.metadata.quorum_truth import MOMENTS, NODES, TOLD, TRUTH, disk, end, voters
from tests.conftest import FIXTURES, run_klog
from tests.support.metadata_logs import SNAPSHOT_FOOTER, MetadataLog, topic, uuid, value
from tests.support.power import tree


class Said(NamedTuple):
    """The answer of klog."""

    exit_code: int
    stdout: str
    stderr: str


def klog(*arguments: str | Path) -> Said:
    ran = run_klog(*arguments)
    return Said(ran.exit_code, ran.stdout.decode(), ran.stderr.decode())


def shown(ran: Said, code: int = 0) -> dict[str, Any]:
    assert ran.exit_code == code, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def partitions(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{topic['topic']}-{one['partition']}": {name: one[name] for name in TOLD}
        for topic in found["topics"]
        for one in topic["partitions"]
    }


# the answers of a real cluster


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("moment", MOMENTS, ids=[moment["label"] for moment in MOMENTS])
def test_each_moment_is_what_clients_were_told_on_every_disk(node: int, moment: dict[str, Any]) -> None:
    """Snapshots that end behind the moment must not be used: they contain later changes."""
    at = moment["high_watermark"]
    ran = klog("metadata", "show", disk(node), "--at-offset", str(at), "--output", "json")
    if at > end(node):
        assert (ran.exit_code, ran.stdout) == (4, "")
        assert f"the log ends at {end(node)}" in ran.stderr
        return
    found = shown(ran)
    assert partitions(found) == moment["partitions"]
    assert {one["topic"]: one["topic_id"] for one in found["topics"]} == moment["topic_ids"]
    assert (found["at"], found["end"]["offset"]) == (at, end(node))
    told = dict(line.split(":", 1) for line in moment["quorum"].splitlines())
    assert found["quorum"] == {"leader": int(told["LeaderId"]), "epoch": int(told["LeaderEpoch"])}
    assert [{name: one[name] for name in ("id", "directoryId", "endpoints")} for one in voters(moment)] == [
        {"id": one["id"], "directoryId": one["directory_id"], "endpoints": one["endpoints"]} for one in found["voters"]
    ]


@pytest.mark.parametrize("node", [1, 3])
def test_the_end_is_what_the_administrator_was_told(node: int) -> None:
    found = shown(klog("metadata", "show", disk(node), "--output", "json"))
    admin, ends = TRUTH["admin"], TRUTH["ends"][str(node)]
    assert found["cluster_id"] == admin["cluster_id"]
    assert (found["node"], found["directory_id"]) == (node, TRUTH["directory_ids"][str(node)])
    alive = {str(one["id"]): one["rack"] for one in found["brokers"] if not one["fenced"]}
    assert alive == admin["nodes"]
    configs = {f"{kind}/{name}": texts for kind, named in found["configs"].items() for name, texts in named.items()}
    # The truth has the settings of topics and of all brokers.
    assert configs.pop("broker/2") == {"log.cleaner.threads": "2"}
    assert configs == {name: texts for name, texts in admin["configs"].items() if texts}
    levels = {**found["features"], "kraft.version": found["kraft_version"]}
    assert levels.pop("metadata.version") == 30
    assert (levels, found["metadata_version"]) == (admin["features"], "4.3-IV0")
    assert found["end"] == {"offset": ends["last"][0] + 1, "epoch": ends["last"][1]}
    assert found["snapshot"] == {"offset": ends["snapshot"][0], "epoch": ends["snapshot"][1]}
    state = ends["quorum_state"]
    assert found["quorum_state"] == {
        "leader_id": state["leaderId"],
        "leader_epoch": state["leaderEpoch"],
        "voted_id": state["votedId"],
    }
    assert found["quotas"] == [{"entity": {"user": "u1"}, "values": {"producer_byte_rate": 1024.0}}]
    assert found["scram"] == [{"user": "u1", "mechanism": "SCRAM-SHA-256", "iterations": 4096}]
    assert (found["unknown"], found["open_transaction"], found["damage"]) == ({}, False, [])


def test_no_secret_is_printed() -> None:
    """The record of the credential lies in the log with its salt and keys."""
    log = next(Path(disk(1)).glob("*/00000000000000000103.log")).read_bytes()
    assert b"1c86zapfnv5xggyug28i8f0qr" in log
    for form in ("text", "json"):
        ran = klog("metadata", "show", disk(1), "--output", form)
        assert "u1" in ran.stdout
        for secret in ("1c86zapf", "MWM4Nn", "okh/", "lxkx"):
            assert secret not in ran.stdout


def test_the_page_has_everything_in_words() -> None:
    ran = klog("metadata", "show", disk(3))
    assert ran.exit_code == 0
    for line in (
        "offset 117, leader epoch 5; the end of the log; snapshot at 117",
        "the files do not record which of the last records were committed",
        "leader 3, epoch 5; quorum-state: leader 3, epoch 5, voted for none",
        "2 QVafHrYZ9JF7tgHe76HItw CONTROLLER://localhost:31611",
        "metadata.version 4.3-IV0 (30)",
        "every broker: log.retention.ms=987654321 min.insync.replicas=1",
        "user u1: producer_byte_rate=1024",
    ):
        assert line in ran.stdout, line
    rows = {line.split()[0]: line.split() for line in ran.stdout.splitlines() if line.strip()}
    assert rows["2"] == ["2", "13", "b", "fenced", "PLAINTEXT://localhost:31610"]
    assert rows["elr16-0"] == ["elr16-0", "1", "0", "1,2,3", "1,3", "2"]
    assert max(map(len, ran.stdout.splitlines())) < 200


def test_only_the_topics_that_are_asked_for() -> None:
    ran = klog("metadata", "show", disk(1), "--topic", "pairs*", "--topic", "solo95", "--output", "json")
    assert [one["topic"] for one in shown(ran)["topics"]] == ["pairs44", "solo95"]
    ran = klog("metadata", "show", disk(1), "--topic", "pairs45")
    assert ran.exit_code == 16
    assert "no topic pairs45; did you mean pairs44?" in ran.stderr


def test_reading_leaves_no_trace(tmp_path: Path) -> None:
    copied = shutil.copytree(disk(1), tmp_path / "disk")
    before = tree(copied)
    assert klog("metadata", "show", copied).exit_code == 0
    assert tree(copied) == before


# where it lies


def test_the_directory_itself_and_a_copy_of_it_are_read_as_well(tmp_path: Path) -> None:
    inside = str(Path(disk(1)) / "__cluster_metadata-0")
    whole = shown(klog("metadata", "show", disk(1), "--output", "json"))
    assert shown(klog("metadata", "show", inside, "--output", "json")) == whole
    for name in ("copy", "meta-1"):
        copied = shutil.copytree(inside, tmp_path / name)
        found = shown(klog("metadata", "show", copied, "--output", "json"))
        assert (found["node"], found["cluster_id"]) == (None, None)
        assert (found["topics"], found["end"]) == (whole["topics"], whole["end"])


def test_a_log_dir_of_zookeepers_time_has_none() -> None:
    ran = klog("metadata", "show", FIXTURES / "legacy")
    assert (ran.exit_code, ran.stdout) == (8, "")
    assert "expected " in ran.stderr
    assert "__cluster_metadata-0/00000000000000000000.log" in ran.stderr


@pytest.mark.parametrize("inside", ["", "__cluster_metadata-0"])
def test_an_empty_directory_says_what_was_expected(tmp_path: Path, inside: str) -> None:
    log = MetadataLog(tmp_path / "data")
    log.log.unlink()
    ran = klog("metadata", "show", log.log_dir / inside)
    assert (ran.exit_code, ran.stdout) == (8, "")
    assert "neither a log nor a snapshot; expected 00000000000000000000.log" in ran.stderr


@pytest.mark.parametrize("words", [("show",), ("history", "--quorum")])
def test_a_directory_that_cannot_be_listed_is_not_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """The reason is that of the system, not that the files are missing."""
    log = MetadataLog(tmp_path / "data")

    def refused(path: str, *, sized: str = "") -> DirectoryListing:
        if path == str(log.path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return list_directory(path, sized=sized)

    monkeypatch.setattr("klog.data_dir.partition.list_directory", refused)
    ran = klog("metadata", *words, log.log_dir)
    assert (ran.exit_code, ran.stdout) == (8, "")
    assert ran.stderr == f"klog: {log.path}: cannot be listed: Permission denied\n"


def test_other_paths_are_wrong(tmp_path: Path) -> None:
    for path in (FIXTURES / "modern" / "plain-1", Path(disk(1)) / "meta.properties"):
        assert klog("metadata", "show", path).exit_code == 16, path
    assert klog("metadata", "show", tmp_path).exit_code == 8


# as of an offset


def test_a_state_before_the_oldest_snapshot_is_not_there(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(disk(1), tmp_path / "disk")) / "__cluster_metadata-0"
    for path in folder.iterdir():
        if path.name < "00000000000000000060":
            path.unlink()
    ran = klog("metadata", "show", folder, "--at-offset", "59")
    assert (ran.exit_code, ran.stdout) == (4, "")
    assert "no state as of offset 59: the oldest is as of 60, where a snapshot ends" in ran.stderr
    assert shown(klog("metadata", "show", folder, "--at-offset", "60", "--output", "json"))["at"] == 60
    # The records from 60 to 66 are missing, and no snapshot ends there.
    assert klog("metadata", "show", folder, "--at-offset", "65").exit_code == 8
    for path in folder.glob("*.checkpoint"):
        path.unlink()
    ran = klog("metadata", "show", folder, "--at-offset", "100")
    assert (ran.exit_code, "the log begins at 67, and there is no snapshot" in ran.stderr) == (4, True)


def test_the_very_beginning_is_empty() -> None:
    found = shown(klog("metadata", "show", disk(1), "--at-offset", "0", "--output", "json"))
    assert (found["topics"], found["brokers"], found["snapshot"]) == ([], [], {"offset": 0, "epoch": 0})


# the broken parts


@pytest.fixture
def log(tmp_path: Path) -> MetadataLog:
    found = MetadataLog(tmp_path / "data")
    found.add(topic("a", 1))
    found.add(topic("b", 2))
    return found


def names(found: dict[str, Any]) -> list[str]:
    return [one["topic"] for one in found["topics"]]


def test_only_a_snapshot_is_enough(log: MetadataLog) -> None:
    log.snapshot(2, topic("c", 3))
    log.log.unlink()
    found = shown(klog("metadata", "show", log.log_dir, "--output", "json"))
    assert (names(found), found["end"], found["snapshot"]) == (
        ["c"],
        {"offset": 2, "epoch": 1},
        {"offset": 2, "epoch": 1},
    )


@pytest.mark.parametrize("how", ["torn", "without footer"])
def test_a_broken_snapshot_gives_way_to_the_one_before(log: MetadataLog, how: str) -> None:
    log.snapshot(1, topic("c", 3))
    newest = log.snapshot(2, topic("d", 4), finished=how == "torn")
    if how == "torn":
        newest.write_bytes(newest.read_bytes()[:-7])
    found = shown(klog("metadata", "show", log.log_dir, "--output", "json"), 4)
    assert (names(found), found["snapshot"]) == (["b", "c"], {"offset": 1, "epoch": 1})
    assert len(found["damage"]) == 1
    assert found["damage"][0].startswith(str(newest))


def test_a_log_that_begins_behind_the_snapshots_end_is_a_gap(tmp_path: Path) -> None:
    log = MetadataLog(tmp_path / "data", start=9)
    log.add(topic("b", 2))
    log.snapshot(5, topic("a", 1))
    ran = klog("metadata", "show", log.log_dir)
    assert (ran.exit_code, ran.stdout) == (8, "")
    assert "records are missing: " in ran.stderr
    assert "offset 9 where 5 was expected" in ran.stderr


def test_records_of_unknown_numbers_are_counted(log: MetadataLog) -> None:
    log.add(b"\1\x63\0\0", b"\1\x63\0\0", b"\1\x1d\0\0", topic("c", 3))
    ran = klog("metadata", "show", log.log_dir, "--output", "json")
    found = shown(ran)
    assert (names(found), found["unknown"], found["damage"]) == (["a", "b", "c"], {"29": 1, "99": 2}, [])
    assert "Unknown metadata id 99" in ran.stderr
    assert "2 records of type 99, which this klog does not know" in klog("metadata", "show", log.log_dir).stdout


def test_a_record_of_an_unknown_version_is_damage(log: MetadataLog) -> None:
    """Kafka reads it as the newest known version, which may be a wrong state."""
    log.add(b"\1\x02\1" + topic("c", 3)[3:])
    found = shown(klog("metadata", "show", log.log_dir, "--output", "json"), 4)
    assert names(found) == ["a", "b"]
    assert "version 1 of TOPIC_RECORD, known are 0 to 0" in found["damage"][0]


def test_a_broker_that_registers_twice_is_as_it_registered_last(log: MetadataLog) -> None:
    usual = {"brokerId": 1, "incarnationId": uuid(9), "logDirs": [uuid(4)], "fenced": False}
    endpoint = {"name": "PLAINTEXT", "host": "::1", "port": 9092, "securityProtocol": 0}
    log.add(value("RegisterBroker", brokerEpoch=2, rack="a", **usual))
    log.add(value("RegisterBroker", brokerEpoch=3, rack=None, endPoints=[endpoint], **usual))
    found = shown(klog("metadata", "show", log.log_dir, "--output", "json"))
    (broker,) = found["brokers"]
    assert (broker["epoch"], broker["rack"], broker["endpoints"]) == (3, None, ["PLAINTEXT://[::1]:9092"])


def test_a_topic_id_without_a_topic_is_said(log: MetadataLog) -> None:
    log.add(value("PartitionChange", partitionId=0, topicId=uuid(8), isr=[1]))
    found = shown(klog("metadata", "show", log.log_dir, "--output", "json"), 4)
    assert names(found) == ["a", "b"]
    assert found["damage"] == [f"{log.log} (offset 2): PARTITION_CHANGE_RECORD: no topic has the id {uuid(8)}"]


def test_a_transaction_without_an_end_counts_for_nothing(log: MetadataLog) -> None:
    log.add(value("BeginTransaction", name="x"), topic("c", 3), value("RemoveTopic", topicId=uuid(1)))
    found = shown(klog("metadata", "show", log.log_dir, "--output", "json"))
    assert (names(found), found["open_transaction"], found["at"]) == (["a", "b"], True, 5)
    assert "the log ends inside of a metadata transaction" in klog("metadata", "show", log.log_dir).stdout


def test_a_torn_tail_is_damage_and_what_is_before_it_counts(log: MetadataLog) -> None:
    log.log.write_bytes(log.log.read_bytes()[:-3])
    found = shown(klog("metadata", "show", log.log_dir, "--output", "json"), 4)
    assert (names(found), found["at"]) == (["a"], 1)
    assert "torn tail" in found["damage"][0]


def test_zeros_at_the_end_are_none(log: MetadataLog) -> None:
    """A node that was killed leaves its preallocated space."""
    log.log.write_bytes(log.log.read_bytes() + bytes(200))
    found = shown(klog("metadata", "show", log.log_dir, "--output", "json"))
    assert (names(found), found["at"], found["damage"]) == (["a", "b"], 2, [])


def test_voters_of_the_configuration_are_not_in_the_log(log: MetadataLog) -> None:
    log.add_control()
    found = shown(klog("metadata", "show", log.log_dir, "--output", "json"))
    assert (found["voters"], found["kraft_version"], found["quorum"]) == (None, 0, {"leader": 1, "epoch": 0})
    assert "controller.quorum.voters" in klog("metadata", "show", log.log_dir).stdout


def test_a_control_record_that_cannot_be_read_is_damage(log: MetadataLog) -> None:
    log.add_control((SNAPSHOT_FOOTER[0][:3] + b"\6", b"\0\0\5"))
    found = shown(klog("metadata", "show", log.log_dir, "--output", "json"), 4)
    assert "KRAFT_VOTERS: " in found["damage"][0]
