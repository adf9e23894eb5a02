"""Directories that a start does not take for a broker's copy: without a topic id, or behind a copy between log dirs."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands.replicas.test_lost_head import END, Disks
from tests.support import metadata_logs
from tests.support.metadata_logs import uuid

Run = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("hasty", "state_home")
MOVING = "t-0.0f8fad5bd9cb469fa16570867728950e-future"


class Assigned(Disks):
    """Disks whose metadata log names the log dir of each replica."""

    def _metadata(self, settings: object) -> None:
        made = metadata_logs.MetadataLog(self.place(1).parent)
        made.add(metadata_logs.value("FeatureLevel", name="metadata.version", featureLevel=17))
        for node in (1, 2, 3):
            register = {"brokerId": node, "brokerEpoch": 10 + node, "incarnationId": uuid(node)}
            made.add(metadata_logs.value("RegisterBroker", **register, logDirs=[uuid(100 + node), uuid(200 + node)]))
        made.add(metadata_logs.topic("t", 7))
        fields = {"replicas": [1, 2, 3], "isr": [1, 2, 3], "leader": 1, "leaderEpoch": 0, "partitionEpoch": 0}
        places = {"directories": [uuid(100 + node) for node in (1, 2, 3)]}
        made.add(metadata_logs.value("Partition", topicId=uuid(7), partitionId=0, **fields, **places))
        made.add(metadata_logs.config(2, "t", "retention.ms", "-1"))

    def second(self, node: int) -> Path:
        """Add another log dir of a node."""
        place = self.root / f"broker-{node}-second"
        place.mkdir()
        properties = f"version=1\ncluster.id=x\nnode.id={node}\ndirectory.id={uuid(200 + node)}\n"
        (place / "meta.properties").write_text(properties)
        (place / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
        return place

    def plan(self, klog: Run, *more: object) -> tuple[int, str]:
        done = klog("replicas", "plan", *self.paths, *more, "--apply")
        return done.exit_code, (done.stdout + done.stderr).decode()


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_copy_without_a_topic_id_is_lost_if_its_node_leads(klog: Run, tmp_path: Path, is_clean: bool) -> None:
    """Its broker sets the directory aside, and the others cut their logs to its empty one."""
    disks = Disks(tmp_path)
    (disks.place(1) / "partition.metadata").unlink()
    if not is_clean:
        (disks.place(1).parent / ".kafka_cleanshutdown").unlink()
    assert disks.lost(klog) == {"1": END, "2": 0, "3": 0}
    found = disks.compared(klog, 4)
    assert (found["verdict"], found["leader_if_all_back"]) == ("missing", 1)
    assert found["copies"]["2"]["cut_if_leads"]["1"] == 0
    assert not found["copies"]["1"]["truncated_at_start"]
    text = klog("replicas", "diff", *disks.paths).stdout.decode()
    assert text.startswith("1 partition lacks copies: do not start these brokers yet")
    assert f"klog doctor {disks.place(1).parent}" in text
    assert "1 sets its copy aside when it starts, and begins with an empty log: no partition.metadata" in text
    assert disks.rescued(klog, 1) == list(range(END))


def test_all_copies_without_a_topic_id_are_lost(klog: Run, tmp_path: Path) -> None:
    disks = Disks(tmp_path)
    for node in (1, 2, 3):
        (disks.place(node) / "partition.metadata").unlink()
    assert disks.lost(klog) == {"1": END, "2": END, "3": END}


@pytest.mark.parametrize("keep", [(), ("--keep", "longest"), ("--choose", "t-0=1")])
def test_a_plan_leaves_copies_one_of_which_is_set_aside(klog: Run, tmp_path: Path, keep: tuple[str, ...]) -> None:
    """It would say that all are equal; and with that copy chosen the others would become empty."""
    disks = Assigned(tmp_path)
    (disks.place(1) / "partition.metadata").unlink()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.log")}
    code, said = disks.plan(klog, *keep)
    assert code == 4, said
    assert "node 1 sets its copy aside when it starts: no partition.metadata" in said
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.log")} == before


@pytest.mark.parametrize(("node", "code"), [(1, 16), (2, 0)])
def test_one_broker_cannot_own_a_copy_that_its_start_sets_aside(
    klog: Run, tmp_path: Path, node: int, code: int
) -> None:
    """It would be the only replica; the directories of the others are only read, and need no topic id."""
    disks = Assigned(tmp_path)
    (disks.place(node) / "partition.metadata").unlink()
    done = klog("metadata", "plan", *disks.paths, "--only-broker", "1", "--voter", "localhost:1", "--keep", "longest")
    assert done.exit_code == code, done
    assert (b"node 1 sets its copy aside when it starts" in done.stderr) == (node == 1)


def test_with_its_topic_id_a_copy_is_one(klog: Run, tmp_path: Path) -> None:
    """The step is to write the file; nothing is wrong then."""
    disks = Disks(tmp_path)
    content = (disks.place(1) / "partition.metadata").read_bytes()
    (disks.place(1) / "partition.metadata").unlink()
    (disks.place(1) / "partition.metadata").write_bytes(content)
    assert disks.lost(klog, 0) == {"1": 0, "2": 0, "3": 0}


def test_without_a_metadata_log_nothing_is_set_aside(klog: Run, tmp_path: Path) -> None:
    """A broker with ZooKeeper needs no topic id."""
    disks = Disks(tmp_path, settings=None)
    (disks.place(1) / "partition.metadata").unlink()
    assert disks.lost(klog, 0) == {"1": 0, "2": 0, "3": 0}


def test_a_topic_that_the_metadata_log_does_not_have(klog: Run, tmp_path: Path) -> None:
    """All brokers set their copies aside, however equal they are."""
    disks = Disks(tmp_path)
    for node in (1, 2, 3):
        (disks.place(node) / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid(8)}\n")
    done = klog("replicas", "diff", *disks.paths)
    assert done.exit_code == 4, done.stdout
    assert "does not have t-0: its brokers set their copies aside when they start" in done.stderr.decode()


# copies between log dirs


def moving(disks: Assigned, end: int, *, keeps_current: bool = True) -> Path:
    """Let the copy of node 1 be in its second log dir, and one up to offset *end* in the one that is assigned."""
    second, here = disks.second(1), disks.place(1)
    if keeps_current:
        shutil.copytree(here, second / "t-0")
    here.rename(here.parent / MOVING)
    last = here.parent / MOVING / f"{40:020}.log"
    if end < END:
        os.truncate(last, last.stat().st_size * (end - 40) // 20)
    return second


@pytest.mark.parametrize("keeps_current", [True, False])
def test_a_copy_that_becomes_the_partition_is_not_passed_over(klog: Run, tmp_path: Path, keeps_current: bool) -> None:
    """With the current directory "all copies equal" was the answer; without it a plan made a second one, over which the
    broker did not start."""
    disks = Assigned(tmp_path)
    second = moving(disks, 50, keeps_current=keeps_current)
    done = klog("replicas", "diff", *disks.paths, second, "--output", "json")
    found = json.loads(done.stdout)["partitions"][0]
    assert (done.exit_code, found["verdict"]) == (4, "incomparable")
    code, said = disks.plan(klog, second)
    assert code & 4, said
    assert f"makes {disks.place(1).parent / MOVING} the partition" in said
    assert not disks.place(1).exists()


def test_a_copy_on_its_way_to_another_log_dir_changes_nothing(klog: Run, tmp_path: Path) -> None:
    """The metadata log names the log dir of the current directory: the broker goes on copying from there."""
    disks = Assigned(tmp_path)
    second = disks.second(1)
    shutil.copytree(disks.place(1), second / MOVING)
    os.truncate(second / MOVING / f"{40:020}.log", 0)
    done = klog("replicas", "diff", *disks.paths, second, "--output", "json")
    found = json.loads(done.stdout)["partitions"][0]
    assert (done.exit_code, found["verdict"]) == (0, "same")


# copies of nodes that are no replicas


class Reassigned(Disks):
    """Disks of a partition that was reassigned from node 3 while that was away."""

    def _metadata(self, settings: object) -> None:
        super()._metadata({"retention.ms": "-1"})
        made = self.place(1).parent / "__cluster_metadata-0"
        log = metadata_logs.MetadataLog.__new__(metadata_logs.MetadataLog)
        log.log, log.end = made / f"{0:020}.log", 7
        log.add(metadata_logs.value("PartitionChange", topicId=uuid(7), partitionId=0, replicas=[1, 2], isr=[1, 2]))


def test_a_former_replica_that_is_behind_is_no_danger(klog: Run, tmp_path: Path) -> None:
    """Its broker sets the directory aside, and never leads: the others have all of it."""
    disks = Reassigned(tmp_path)
    disks.lose(3, 40)
    done = klog("replicas", "diff", *disks.paths)
    assert done.exit_code == 0, done.stdout
    text = done.stdout.decode()
    assert text.startswith("1 partition has copies that are behind: nothing is lost, whoever leads")
    assert "3 is no replica: it never leads, and sets its copy aside when it starts" in text


def test_records_that_a_former_replica_alone_has_are_lost(klog: Run, tmp_path: Path) -> None:
    """The given disk has them, and no broker serves them."""
    disks = Reassigned(tmp_path)
    disks.lose(1, 40)
    disks.lose(2, 40)
    lost = disks.lost(klog)
    assert (lost["1"], lost["2"]) == (20, 20)


def test_a_replica_that_is_behind_is_one(klog: Run, tmp_path: Path) -> None:
    disks = Reassigned(tmp_path)
    disks.lose(2, 40)
    assert disks.lost(klog)["2"] == 20
