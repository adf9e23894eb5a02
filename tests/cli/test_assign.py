"""`klog assign` as operators type it: tables and JSON, refusals, results of --check."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FIXTURES, Ran
from tests.support.metadata_logs import MetadataLog, topic, uuid, value

Klog = Callable[..., Ran]
QUORUM = FIXTURES / "replicas" / "quorum" / "broker-1"
SIX = "--brokers 0,1,2,3,4,5 --racks 0:A,1:A,2:B,3:B,4:C,5:C"


def words(text: str) -> list[str]:
    return text.split()


@pytest.fixture
def said(klog: Klog) -> Callable[..., Any]:
    """A function that runs `klog assign` with words, and returns the JSON on stdout."""

    def run(words: str, code: int = 0) -> Any:
        done = klog("assign", *words.split(), "--output", "json")
        assert done.exit_code == code, done.stderr
        return json.loads(done.stdout)

    return run


# ---------------------------------------------------------------- where replicas go


def test_json_has_the_replicas_and_what_they_come_to(said: Callable[..., Any]) -> None:
    """The replicas are the recorded ones of the controller's class."""
    found = said(f"{SIX} --partitions 3 --replication 3 --seed 42")
    assert found == {
        "algorithm": "kraft",
        "seed": 42,
        "topic": None,
        "start_partition": 0,
        "racks": {"0": "A", "1": "A", "2": "B", "3": "B", "4": "C", "5": "C"},
        "fenced": [],
        "assignment": [[5, 1, 2], [0, 3, 4], [2, 5, 1]],
        "leaders": {"0": 1, "1": 0, "2": 1, "3": 0, "4": 0, "5": 1},
        "replicas": {"0": 1, "1": 2, "2": 2, "3": 1, "4": 1, "5": 2},
        "distinct": True,
        "racks_covered": True,
        "leaders_spread": 1,
        "replicas_spread": 1,
    }


def test_fenced_brokers_lead_nothing(said: Callable[..., Any]) -> None:
    found = said(f"{SIX} --fenced 1,4 --partitions 4 --replication 3 --seed 42")
    assert found["assignment"] == [[3, 5, 0], [5, 0, 2], [0, 3, 5], [2, 5, 0]]
    assert found["fenced"] == [1, 4]


def test_the_classic_placer_takes_a_start_a_shift_and_a_first_partition(said: Callable[..., Any]) -> None:
    five = "--brokers 4,3,2,1,0 --algorithm classic --replication 3"
    found = said(f"{five} --partitions 3 --start-index 2")
    assert (found["start_index"], found["shift"]) == (2, 2)
    assert found["assignment"] == [[2, 0, 1], [3, 1, 2], [4, 2, 3]]
    assert said(f"{five} --partitions 2 --start-index 3 --shift 1")["assignment"] == [[3, 0, 1], [4, 1, 2]]
    grown = said(f"{five} --partitions 2 --start-index 0 --start-partition 10")
    assert grown["assignment"] == [[0, 2, 3], [1, 3, 4]]
    aware = said(f"{SIX} --algorithm classic --partitions 1 --replication 3 --start-index 1")
    assert aware["assignment"] == [[2, 5, 0]]
    assert said(f"{SIX} --no-racks --algorithm classic --partitions 1 --replication 3 --start-index 1")[
        "assignment"
    ] == [[1, 3, 4]]


@pytest.mark.parametrize("algorithm", ["kraft", "classic"])
def test_what_is_drawn_is_said_and_gives_the_same_again(klog: Klog, algorithm: str) -> None:
    asked = ["assign", *SIX.split(), "--partitions", "40", "--replication", "2", "--algorithm", algorithm]
    done = klog(*asked, "--output", "json")
    drawn = done.stderr.decode().split(" gives the same again")[0].rpartition(": ")[2].split()
    assert drawn[0] in ("--seed", "--start-index")
    assert klog(*asked, *drawn, "--output", "json").stdout == done.stdout
    assert klog(*asked, *drawn).stderr == b""


def test_the_table_is_for_people(klog: Klog) -> None:
    done = klog(
        "assign",
        *[
            "--brokers",
            "1,2",
            "--racks",
            "2:b",
            "--partitions",
            "2",
            "--replication",
            "2",
            "--seed",
            "1",
            "--topic",
            "t",
        ],
    )
    assert done.stdout.decode() == (
        "kraft, seed 1\n\n"
        "partition  replicas  racks\n"
        "t-0             1,2  -,b\n"
        "t-1             2,1  b,-\n\n"
        "broker  rack  state    leads  replicas\n"
        "     1        running      1         2\n"
        "     2  b     running      1         2\n"
    )


def test_the_reassignment_is_one_line_for_kafkas_tool(klog: Klog) -> None:
    asked = "--brokers 0,1,2 --partitions 1 --replication 2 --algorithm classic --start-index 1 --start-partition 7"
    done = klog("assign", *asked.split(), "--topic", "t", "--output", "reassignment")
    part = {"topic": "t", "partition": 7, "replicas": [2, 1], "log_dirs": ["any", "any"]}
    assert done.stdout.count(b"\n") == 1
    assert json.loads(done.stdout) == {"version": 1, "partitions": [part]}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("", "--brokers or --metadata"),
        ("--brokers 0,1 --metadata x --partitions 1 --replication 1", "--brokers or --metadata"),
        ("--metadata x --racks 0:a --partitions 1 --replication 1", "--racks goes with --brokers"),
        ("--brokers 0,1 --partitions 1", "--partitions and --replication"),
        ("--brokers 0,1 --partitions 0 --replication 1", "INVALID_PARTITIONS (37)"),
        ("--brokers 0,1 --partitions -1 --replication 1", "INVALID_PARTITIONS (37)"),
        ("--brokers 0,1 --partitions 1 --replication 0", "INVALID_REPLICATION_FACTOR (38)"),
        ("--brokers 0,1 --partitions 1 --replication 3", "3 replicas on 2 brokers"),
        ("--brokers 0,1 --partitions 2000000000 --replication 2", "klog places up to 10000000"),
        ("--brokers 0,1 --partitions 1 --replication 3 --algorithm classic", "INVALID_REPLICATION_FACTOR (38)"),
        ("--brokers 0,1 --fenced 0,1 --partitions 1 --replication 1", "all brokers are fenced"),
        ("--brokers 0,1 --fenced 0,1 --partitions 1 --replication 1 --algorithm classic", "1 replica on 0 brokers"),
        ("--brokers 0,1 --racks 0:a --partitions 1 --replication 1 --algorithm classic", "broker 1 has no rack"),
        ("--brokers 0,1 --racks 0:a,7:b --partitions 1 --replication 1", "--racks: there is no broker 7"),
        ("--brokers 0,1 --racks 0:a,0:b --partitions 1 --replication 1", "0 is there twice"),
        ("--brokers 0,1 --racks 0 --partitions 1 --replication 1", "expected BROKER:RACK"),
        ("--brokers 0,1 --racks 0: --partitions 1 --replication 1", "expected BROKER:RACK"),
        ("--brokers 0,1 --fenced 2 --partitions 1 --replication 1", "--fenced: there is no broker 2"),
        ("--brokers 0,1,0 --partitions 1 --replication 1", "0 is there twice"),
        ("--brokers 0,-1 --partitions 1 --replication 1", "expected ids"),
        ("--brokers 0,2147483648 --partitions 1 --replication 1", "expected ids"),
        ("--brokers 0, --partitions 1 --replication 1", "expected ids"),
        ("--brokers 0,1 --partitions 1 --replication 1 --start-index 1", "--start-index means nothing to"),
        ("--brokers 0,1 --partitions 1 --replication 1 --shift 1", "--shift means nothing to"),
        ("--brokers 0,1 --partitions 1 --replication 1 --algorithm classic --seed 1", "--seed means nothing to"),
        ("--brokers 0,1 --partitions 1 --replication 1 --seed 9223372036854775808", "a number of 64 bits"),
        ("--brokers 0,1 --partitions 1 --replication 1 --algorithm clasic", "did you mean classic?"),
        ("--brokers 0,1 --partitions 1 --replication 1 --output reassignment", "--topic NAME: one is needed"),
        ("--brokers 0,1 --partitions 1 --replication 1 --topic a --topic b", "--topic NAME: one is needed"),
        ("--check x --brokers 0,1", "--brokers: not with --check"),
        ("--check x --output reassignment", "--output reassignment: not with --check"),
        ("--check /nowhere", "/nowhere: No such file"),
    ],
)
def test_what_cannot_be_placed_is_refused_with_kafkas_reason(klog: Klog, words: str, reason: str) -> None:
    done = klog("assign", *words.split())
    assert (done.exit_code, done.stdout) == (16, b"")
    assert done.stderr.count(b"\n") == 1
    assert reason in done.stderr.decode()


# ---------------------------------------------------------------- with a metadata log


def test_brokers_racks_and_fencing_come_from_the_metadata_log(klog: Klog, said: Callable[..., Any]) -> None:
    found = said(f"--metadata {QUORUM} --partitions 4 --replication 2 --seed 3")
    assert (found["racks"], found["fenced"]) == ({"1": "a", "2": "b", "3": "a"}, [2])
    assert all(replicas[0] != 2 and 2 in replicas for replicas in found["assignment"])
    assert said(f"--metadata {QUORUM} --partitions 4 --replication 2 --seed 3 --fenced none")["fenced"] == []
    asked = (
        "--metadata",
        QUORUM,
        *words("--partitions 1 --replication 1 --algorithm classic --start-index 1"),
    )
    done = klog("assign", *asked, "--output", "json")
    assert b"left out, as ZooKeeper lists only brokers that run: 2\n" in done.stderr
    assert json.loads(done.stdout)["racks"] == {"1": "a", "3": "a"}


class Written:
    """A metadata log with three brokers in racks a, b, a and one topic."""

    def __init__(self, folder: Path, **fields: object) -> None:
        self.log = MetadataLog(folder)
        for node, rack in ((1, "a"), (2, "b"), (3, "a")):
            self.register(node, rack=rack, **fields)
        self.log.add(topic("orders", 1))

    def register(self, node: int, **fields: object) -> None:
        usual: dict[str, object] = {"fenced": False, "logDirs": [uuid(node)], "incarnationId": uuid(1)}
        self.log.add(value("RegisterBroker", brokerId=node, brokerEpoch=self.log.end, **{**usual, **fields}))

    def put(self, *partitions: list[int], **fields: object) -> None:
        for number, replicas in enumerate(partitions):
            usual = {"replicas": replicas, "isr": replicas, "leader": replicas[0], "topicId": uuid(1)}
            self.log.add(value("Partition", partitionId=number, **{**usual, **fields}))

    @property
    def path(self) -> Path:
        return self.log.log_dir


def test_planted_faults_are_found_and_named(klog: Klog, said: Callable[..., Any], tmp_path: Path) -> None:
    """A doubled broker, which no controller accepts, and a partition in one rack of two."""
    written = Written(tmp_path)
    written.put([1, 2], [2, 2], [3, 1], [2, 3])
    done = klog("assign", "--check", tmp_path)
    assert done.exit_code == 4
    assert done.stdout.decode() == (
        "2 faults in 1 topic\n"
        "  orders-1: a broker is there twice: 2,2\n"
        "  orders-2: in 1 of 2 racks: 3 (a), 1 (a)\n"
        "\n"
        "topic   partitions  distinct  all racks  leaders  replicas  classic\n"
        "orders           4  NO        NO             1–2       2–4  no\n"
    )
    (found,) = said(f"--check {tmp_path}", 4)["topics"]
    assert found == {
        "topic": "orders",
        "topic_id": uuid(1),
        "partitions": 4,
        "leaders": {"1": 1, "2": 2, "3": 1},
        "replicas": {"1": 2, "2": 4, "3": 2},
        "distinct": False,
        "racks_covered": False,
        "leaders_spread": 1,
        "replicas_spread": 2,
        "doubled": [1],
        "narrow": [2],
        "classic": None,
    }


def test_many_faults_are_named_once_and_counted(klog: Klog, tmp_path: Path) -> None:
    Written(tmp_path).put(*[[1, 3]] * 30)
    lines = klog("assign", "--check", tmp_path).stdout.decode().splitlines()
    assert lines[0] == "30 faults in 1 topic"
    assert lines[21:23] == ["  and 10 more", ""]


def test_a_reassignment_under_way_is_judged_by_where_it_goes(said: Callable[..., Any], tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.put([1, 2, 3], removingReplicas=[2], addingReplicas=[3])
    assert said(f"--check {tmp_path}", 4)["topics"][0]["replicas"] == {"1": 1, "2": 0, "3": 1}


def test_brokers_that_a_controller_would_not_use_get_nothing(said: Callable[..., Any], tmp_path: Path) -> None:
    """One that shuts down, one without a log dir for new partitions, one that was unregistered."""
    written = Written(tmp_path)
    written.register(4, rack="c", inControlledShutdown=True)
    written.register(5, rack="c", logDirs=[uuid(8), uuid(9)], cordonedLogDirs=[uuid(9), uuid(8)])
    written.register(6, rack="c", logDirs=[uuid(8), uuid(9)], cordonedLogDirs=[uuid(9)])
    written.log.add(value("UnregisterBroker", brokerId=3, brokerEpoch=2))
    found = said(f"--metadata {tmp_path} --partitions 1 --replication 3 --seed 1")
    assert found["racks"] == {"1": "a", "2": "b", "6": "c"}


def test_all_fenced_as_after_a_stop_can_be_taken_for_running(klog: Klog, tmp_path: Path) -> None:
    Written(tmp_path, fenced=True)
    asked = ("assign", "--metadata", tmp_path, *words("--partitions 1 --replication 1 --seed 1"))
    done = klog(*asked)
    assert done.exit_code == 16
    assert b"--fenced none takes them for running" in done.stderr
    assert klog(*asked, "--fenced", "none").exit_code == 0


def test_where_no_metadata_log_is_nothing_is_said(klog: Klog, tmp_path: Path) -> None:
    """A log dir of ZooKeeper's time, one without brokers, one whose beginning is missing."""
    legacy = klog("assign", "--check", FIXTURES / "legacy")
    assert legacy.exit_code == 8
    assert b"__cluster_metadata-0" in legacy.stderr
    empty = MetadataLog(tmp_path / "empty")
    empty.add(topic("orders", 1))
    done = klog("assign", "--metadata", empty.log_dir, *words("--partitions 1 --replication 1"))
    assert done.exit_code == 8
    assert b"no broker is registered" in done.stderr
    late = MetadataLog(tmp_path / "late", start=50)
    late.add(topic("orders", 1))
    assert klog("assign", "--check", late.log_dir).exit_code == 8


def test_damage_is_said_and_leaves_the_code_at_four(klog: Klog, tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.put([1, 2])
    at = written.log.log.stat().st_size
    written.put([2, 3])
    content = bytearray(written.log.log.read_bytes())
    content[at + 70] ^= 0xFF
    written.log.log.write_bytes(content)
    written.log.add(topic("more", 2))
    done = klog("assign", "--check", tmp_path, "--quiet")
    assert done.exit_code == 4
    assert b".log @ " in done.stderr
    assert b"no fault in 2 topics" in done.stdout


def test_only_topics_that_match_are_checked(klog: Klog, said: Callable[..., Any], tmp_path: Path) -> None:
    shutil.copytree(QUORUM, tmp_path / "copy")
    every = said(f"--check {tmp_path}/copy", 4)
    names = [found["topic"] for found in every["topics"]]
    assert len(names) == 7
    some = said(f"--check {tmp_path}/copy --topic orders*")
    assert [found["topic"] for found in some["topics"]] == [name for name in names if name.startswith("orders")]
    done = klog("assign", "--check", tmp_path / "copy", "--topic", "order")
    assert done.exit_code == 16
    assert b"no topic order" in done.stderr
