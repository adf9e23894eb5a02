"""The steps under `next`: one list, whatever a start that stops at its first fault does not come to see."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from klog.commands.doctor.broker_start import diagnose
from klog.commands.doctor.start_request import StartRequest

from tests.commands.doctor.disks import follow
from tests.commands.doctor.test_doctor_command import METADATA, flip_metadata
from tests.conftest import FIXTURES, Ran, writable_copy
from tests.support.measure import measured
from tests.support.metadata_logs import MetadataLog, topic, uuid, value

Klog = Callable[..., Ran]
UNIQUE = "0f8fad5bd9cb469fa16570867728950e"


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    return writable_copy(FIXTURES / "modern", tmp_path / "disk")


def manual(disk: Path) -> list[str | None]:
    return [step.manual or step.command for step in diagnose(StartRequest((str(disk),))).next]


def drop(disk: Path, *names: str) -> None:
    """Remove lines of `meta.properties`."""
    lines = (disk / "meta.properties").read_text().splitlines()
    (disk / "meta.properties").write_text("\n".join(one for one in lines if not one.startswith(names)) + "\n")


def test_what_is_behind_the_first_fault(disk: Path, tmp_path: Path) -> None:
    """No node id, foreign directories, a quorum state that is none, a bad checkpoint, four partitions with faults."""
    drop(disk, "node.id", "directory.id")
    (disk / "lost+found").mkdir()
    (disk / "old-data").mkdir()
    (disk / METADATA / "quorum-state").write_text("no json")
    (disk / "log-start-offset-checkpoint").write_text("0\n7\n")
    (disk / "snappy-1" / "leader-epoch-checkpoint").write_text("x")
    (disk / "snappy-1" / "partition.metadata").write_text("x")
    (disk / "plain-1" / "partition.metadata").unlink()
    (disk / "plain-2").rename(disk / f"plain-2.{UNIQUE}-delete")
    (disk / "gzip-0" / "foo.log").touch()
    request = StartRequest((str(disk),), node_id=1)
    told = diagnose(request)
    assert told.failure is not None
    assert told.failure.id == "meta-properties-malformed"
    assert {row.fate.value for row in told.partitions} == {"unreached"}
    assert told.is_whole_way
    follow(told.next, tmp_path / "aside")
    after = diagnose(request)
    assert (after.is_harmless, after.next) == (True, ()), after


def test_what_would_be_destroyed_comes_first(disk: Path) -> None:
    """Then the faults that stop the broker, then the directories that it would set aside; klog adopt needs a node
    without a fault."""
    (disk / "lost+found").mkdir()
    (disk / "plain-1" / "partition.metadata").unlink()
    (disk / "plain-2").rename(disk / f"plain-2.{UNIQUE}-delete")
    log = max(path for path in (disk / "dense-0").glob("*.log") if path.stat().st_size)
    log.write_bytes(log.read_bytes() + b"torn")
    (disk / "log-start-offset-checkpoint").write_text("0\n1\ntrimmed 0 99999\n")
    steps = manual(disk)
    firsts = [(step or "").partition(str(disk))[0].strip() for step in steps]
    assert firsts == ["klog recover", "klog recover", "move", "klog adopt", "move", "klog adopt"], steps


def test_a_checkpoint_that_klog_adopt_refuses_is_repaired_first(disk: Path, tmp_path: Path) -> None:
    """A broker passes over a number that is none; klog adopt must not, since it writes the file anew."""
    (disk / "plain-1" / "partition.metadata").unlink()
    (disk / "recovery-point-offset-checkpoint").write_text("0\n1\norders 1 many\n")
    request = StartRequest((str(disk),), node_id=1)
    told = diagnose(request)
    assert [(step.command or "").split()[1:2] for step in told.next if step.command] == [["recover"], ["adopt"]]
    follow(told.next, tmp_path / "aside")
    after = diagnose(request)
    assert (after.is_harmless, after.next) == (True, ()), after


def test_many_foreign_directories_are_one_step_in_the_end(disk: Path) -> None:
    for i in range(1000):
        (disk / f"foreign{i}").mkdir()
    steps = manual(disk)
    assert len(steps) == 21
    assert steps[-1] == f"move the other 980 directories whose names are not a partition's out of the log dir {disk}"


def test_a_log_dir_that_is_not_there_may_be_mounted(klog: Klog, disk: Path, tmp_path: Path) -> None:
    """Or made, with the id that the metadata have for it; here none is left over."""
    gone = tmp_path / "gone"
    found = json.loads(klog("doctor", "--output", "json", disk, gone).stdout)
    assert found["next"][0]["manual"].startswith(f"mount {gone}, or, if it is gone for good, make it and write ")
    assert len(found["next"]) == 1


def test_what_nobody_here_can_do_promises_nothing(klog: Klog, disk: Path) -> None:
    """A metadata log has to be copied from another node: the doctor cannot predict its next answer."""
    (disk / "lost+found").mkdir()
    assert b"It should report: starts, loses nothing." in klog("doctor", disk).stdout
    shutil.rmtree(disk / METADATA)
    text = klog("doctor", disk).stdout
    assert f"Check what is left.\n       klog doctor {disk}\n".encode() in text
    assert b"It should report" not in text


def test_a_damaged_metadata_log_stands_first_whatever_else_there_is(klog: Klog, disk: Path) -> None:
    """Also where a broker stops before it looks: who repairs that alone rolls the cluster back."""
    flip_metadata(disk)
    (disk / "lost+found").mkdir()
    drop(disk, "node.id")
    found: dict[str, Any] = json.loads(klog("doctor", "--output", "json", "--node-id", "1", disk).stdout)
    assert (found["fatal"]["id"], found["notes"][0]["id"]) == ("meta-properties-malformed", "metadata-log-damaged")
    verdict, reason = klog("doctor", "--node-id", "1", disk).stdout.decode().splitlines()[:2]
    assert verdict.startswith("WILL NOT START: ")
    assert verdict.endswith("(meta-properties-malformed); its metadata log is damaged")
    assert reason.endswith("(metadata-log-damaged)")


def test_a_directory_id_that_the_cluster_is_known_to_have(disk: Path) -> None:
    """If no metadata log contains it, the command line does."""
    wanted = "AAAAAAAAQACAAAAAAAAAAA"
    told = diagnose(StartRequest((str(disk),), directory_ids=[wanted]))
    assert told.next[0].manual == f"set directory.id={wanted} in {disk / 'meta.properties'}"


def test_an_id_that_is_left_when_other_log_dirs_have_found_theirs(tmp_path: Path) -> None:
    """Neither log dir has one: the partitions of the first show which is its own, and the other gets the rest."""
    log = MetadataLog(tmp_path / "data")
    directories = [uuid(8), uuid(9)]
    broker = value("RegisterBroker", brokerId=1, incarnationId=uuid(5), brokerEpoch=1, logDirs=directories)
    first, second = (
        value(
            "Partition", partitionId=number, topicId=uuid(1), replicas=[1], isr=[1], leader=1, leaderEpoch=0,
            partitionEpoch=0, directories=[directories[number]],
        )
        for number in range(2)
    )  # fmt: skip
    log.add(broker, topic("orders", 1), first, second)
    (log.log_dir / "orders-0").mkdir()
    (log.log_dir / "orders-0/partition.metadata").write_text(f"version: 0\ntopic_id: {uuid(1)}\n")
    (log.log_dir / "orders-0" / f"{0:020}.log").touch()
    steps = [one.manual or "" for one in diagnose(StartRequest((str(log.log_dir), str(tmp_path / "data1")))).next]
    assert steps[0].endswith(f"directory.id={directories[1]}"), steps


def test_what_cannot_be_read_is_named(disk: Path, tmp_path: Path) -> None:
    """The broker's own user may read it; klog names the unreadable parts."""
    for name in ("plain-1", "plain-2/00000000000000000000.log", "gzip-0/leader-epoch-checkpoint"):
        (disk / name).chmod(0)
    command = [sys.executable, "-m", "klog_cli.app", "doctor", "--output", "json", str(disk)]
    done = measured(command, tmp_path, privileges=False)
    assert (done.exit_code, done.stderr) == (12, "")
    found = json.loads(done.stdout)
    assert found["fatal"]["id"] == "log-dirs-offline"
    refused = {one["directory"]: one["reason"] for one in found["partitions"] if one["fate"] == "refuses"}
    assert refused == {"plain-1": "unreadable", "plain-2": "unreadable", "gzip-0": "epochs-malformed"}
    assert f"make {disk / 'plain-1'} readable" in [step.get("manual") for step in found["next"]]
    for name in ("plain-1", "plain-2/00000000000000000000.log", "gzip-0/leader-epoch-checkpoint"):
        (disk / name).chmod(0o755)
