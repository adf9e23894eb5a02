"""`klog doctor` on disks that need no broker: its output, its refusals, and that it changes nothing."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from klog.commands.doctor.broker_start import diagnose
from klog.commands.doctor.diagnosis import Fate, KafkaVersion
from klog.commands.doctor.start_request import StartRequest
from klog.partition.start.start_reasons import REASONS

from tests.conftest import FIXTURES, Ran, writable_copy
from tests.support.measure import measured
from tests.support.metadata_logs import MetadataLog, topic, uuid, value

Klog = Callable[..., Ran]
METADATA = "__cluster_metadata-0"


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    return writable_copy(FIXTURES / "modern", tmp_path / "disk")


def answer(klog: Klog, *arguments: object, code: int) -> dict[str, Any]:
    done = klog("doctor", "--output", "json", *map(str, arguments))
    assert done.exit_code == code, done
    assert done.stderr == b""
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def row(found: dict[str, Any], directory: str) -> dict[str, Any]:
    return next(one for one in found["partitions"] if one["directory"] == directory)


def digest(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Everything about a tree that somebody could notice: modes, times, content."""
    found = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        facts = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (facts.st_mode, facts.st_mtime_ns, hashlib.sha256(content).hexdigest())
    return found


def flip_metadata(disk: Path) -> None:
    """Damage the metadata log in its middle, and leave no snapshot behind."""
    for snapshot in (disk / METADATA).glob("*.checkpoint"):
        snapshot.unlink()
    log = sorted((disk / METADATA).glob("*.log"))[0]
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 0xFF
    log.write_bytes(content)


def test_a_clean_disk_starts_and_loses_nothing(klog: Klog, disk: Path) -> None:
    """The answer before every start; partitions that are not on this disk are made, which is no loss."""
    found = answer(klog, disk, code=0)
    assert (found["starts"], found["loses"], found["fatal"], found["next"]) == (True, 0, None, [])
    assert [step["step"] for step in found["steps"]] == ["format", "lock", "metadata", "load", "partitions"]
    assert [one["fate"] for one in found["log_dirs"]] == ["loads"]
    plain = row(found, "plain-1")
    assert (plain["fate"], plain["log_start"], plain["log_end"], plain["records"]) == ("serves", 0, 113, None)
    assert row(answer(klog, disk, "--records", code=0), "plain-1")["records"] == 113
    missing = [one for one in found["partitions"] if one["directory"] is None]
    assert {one["fate"] for one in missing} == {"creates"}


def test_records_count_no_markers(klog: Klog, disk: Path) -> None:
    """The records that a consumer receives are those that an operator counts."""
    counted = row(answer(klog, disk, "--records", code=0), "tx-0")
    lines = klog("dump", "--output", "jsonl", "--no-control", disk / "tx-0").stdout.splitlines()
    assert counted["records"] == len(lines) < counted["log_end"]


def test_every_field_of_the_contract_is_there(klog: Klog, disk: Path) -> None:
    """Scripts read these names."""
    (disk / "plain-1" / "partition.metadata").unlink()
    found = answer(klog, disk, code=4)
    contract = ("version", "starts", "loses", "fatal", "log_dirs", "steps", "partitions", "recovery", "next")
    assert set(found) == {*contract, "notes", "retention", "offsets"}
    assert set(found["log_dirs"][0]) == {
        "path", "fate", "reason", "cluster_id", "node_id", "directory_id", "clean", "lock"
    }  # fmt: skip
    one = row(found, "plain-1")
    assert list(one) == [
        "topic", "partition", "topic_id", "log_dir", "directory", "fate", "reason", "becomes", "log_start", "log_end",
        "records", "lost_records", "lost_bytes", "message",
    ]  # fmt: skip
    assert (one["fate"], one["reason"], one["becomes"], one["lost_records"]) == (
        "strays", "topic-id-missing", "empty", 113
    )  # fmt: skip
    assert set(found["recovery"]) == {"partitions", "segments", "bytes", "seconds"}
    assert [set(step) for step in found["next"]] == [{"command", "why"}]
    assert found["loses"] == 113


def test_a_cut_metadata_log_is_what_partitions_are_judged_by(klog: Klog, disk: Path) -> None:
    """One flipped bit rolls the cluster back, and every topic since then strays: that is the first line."""
    flip_metadata(disk)
    found = answer(klog, disk, code=4)
    assert found["notes"][0]["id"] == "metadata-log-damaged"
    assert any(one["fate"] == "strays" and one["reason"] == "topic-unknown" for one in found["partitions"])
    text = klog("doctor", disk).stdout.decode()
    verdict, reason = text.splitlines()[:2]
    assert verdict.startswith("STARTS, LOSES ")
    assert verdict.endswith("; its metadata log is damaged")
    assert reason.endswith("(metadata-log-damaged)")
    assert "Restore the directory __cluster_metadata-0" in text


def test_a_partition_that_the_topic_does_not_have(klog: Klog, disk: Path) -> None:
    """The topic id is right, and there are fewer partitions: nothing is made in its place."""
    shutil.copytree(disk / "plain-1", disk / "plain-3")
    found = answer(klog, disk, code=4)
    one = row(found, "plain-3")
    assert (one["fate"], one["reason"], one["message"]) == ("strays", "partition-unknown", "the topic has 3 partitions")
    assert (one["becomes"], one["lost_records"], found["loses"]) == (None, 113, 113)
    assert [step["manual"] for step in found["next"]] == [f"move {disk / 'plain-3'} out of every log dir"]
    assert row(found, "plain-1")["fate"] == row(found, "plain-2")["fate"] == "serves"


def test_a_partition_of_other_brokers(klog: Klog, tmp_path: Path) -> None:
    """Reassigned while the broker was away: of its directories, it serves those that the metadata assign to it, at any
    place."""
    log = MetadataLog(tmp_path / "data")
    places = {0: [2, 3], 1: [2, 1], 2: [1, 2]}
    partitions = (
        value(
            "Partition", partitionId=number, topicId=uuid(1), replicas=nodes, isr=[2], leader=2, leaderEpoch=0,
            partitionEpoch=0, directories=[uuid(800), uuid(800)],
        )
        for number, nodes in places.items()
    )  # fmt: skip
    log.add(topic("orders", 1), *partitions)
    meta = log.log_dir / "meta.properties"
    meta.write_text(f"{meta.read_text()}directory.id={uuid(800)}\n")
    for number in places:
        shutil.copytree(FIXTURES / "modern/plain-1", log.log_dir / f"orders-{number}")
        (log.log_dir / f"orders-{number}/partition.metadata").write_text(f"version: 0\ntopic_id: {uuid(1)}")
    found = answer(klog, log.log_dir, code=4)
    fates = [(one["fate"], one["reason"], one["becomes"]) for one in found["partitions"]]
    assert fates == [("strays", "not-assigned", None), ("serves", None, None), ("serves", None, None)]
    assert (found["partitions"][0]["message"], found["loses"]) == ("its replicas are on 2, 3", 113)


def test_without_a_metadata_log_everything_strays(klog: Klog, disk: Path) -> None:
    shutil.rmtree(disk / METADATA)
    found = answer(klog, disk, code=4)
    assert (found["starts"], found["notes"][0]["id"]) == (True, "metadata-log-missing")
    assert {one["fate"] for one in found["partitions"]} == {"strays"}
    assert found["loses"] == sum(one["records"] for one in found["partitions"]) > 0


def test_a_high_watermark_that_is_no_number_keeps_everything_from_being_served(klog: Klog, disk: Path) -> None:
    """A real broker starts, and an exception ends the step in which it takes its partitions: see test_real_starts."""
    checkpoint = disk / "replication-offset-checkpoint"
    lines = checkpoint.read_text().splitlines()
    checkpoint.write_text("\n".join([*lines[:-1], f"{lines[-1]}x"]) + "\n")
    done = klog("doctor", "--output", "json", str(disk))
    found = json.loads(done.stdout)
    assert (done.exit_code, found["starts"], found["loses"]) == (4, True, 0)
    assert "high-watermark-number" in [note["id"] for note in found["notes"]]
    assert {one["fate"] for one in found["partitions"]} == {"leaderless"}
    assert {one["reason"] for one in found["partitions"]} == {"high-watermark-number"}
    text = klog("doctor", str(disk)).stdout.decode()
    assert text.startswith("STARTS, LOSES NOTHING, BUT NOT EVERY PARTITION IS SERVED\n")
    assert "The broker serves hardly any of its" in text
    (step,) = found["next"]
    assert step["command"] == f"klog recover {disk} --apply"
    klog("recover", str(disk), "--apply")
    again = json.loads(klog("doctor", "--output", "json", str(disk)).stdout)
    assert not [one for one in again["partitions"] if one["reason"] == "high-watermark-number"]


def test_zookeepers_time_knows_no_strays(klog: Klog, tmp_path: Path) -> None:
    """--kafka-version 2.8: there is no metadata log, so nothing is held against one."""
    disk = writable_copy(FIXTURES / "legacy", tmp_path / "disk")
    meta = "version=0\nbroker.id=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n"
    (disk / "meta.properties").write_text(meta)
    for name in [one.name for one in disk.iterdir() if one.is_dir() and "-" not in one.name]:
        shutil.rmtree(disk / name)
    found = answer(klog, disk, "--kafka-version", "2.8", code=0)
    assert found["starts"]
    assert {one["fate"] for one in found["partitions"]} == {"serves"}
    assert (
        answer(klog, disk, "--kafka-version", "2.8", "--cluster-id", "another", code=4)["fatal"]["id"]
        == "cluster-id-differs"
    )
    assert answer(klog, disk, "--kafka-version", "2.8", "--node-id", "9", code=4)["fatal"]["id"] == "node-id-differs"
    (disk / "plain-9.0f8fad5bd9cb469fa16570867728950e-stray").mkdir()
    assert answer(klog, disk, "--kafka-version", "2.8", code=4)["fatal"]["id"] == "foreign-directory"


def test_another_node_and_another_cluster(klog: Klog, disk: Path) -> None:
    """The wrong node is fatal; the wrong cluster only the other nodes notice."""
    fatal = answer(klog, disk, "--node-id", "7", code=4)["fatal"]
    assert (fatal["id"], fatal["log_dir"]) == ("node-id-differs", str(disk))
    noted = answer(klog, disk, "--cluster-id", "AAAAAAAAQACAAAAAAAAAAA", code=0)
    due = {"retention-due", "offsets-due"}  # its records are old
    assert {note["id"] for note in noted["notes"]} == {"cluster-id-differs", *due}


def test_disks_of_two_brokers_are_no_one_brokers(klog: Klog, disk: Path, tmp_path: Path) -> None:
    """Without --node-id the starting node is unknown; with it a broker's own refusal is printed."""
    other = writable_copy(disk, tmp_path / "other")
    shutil.rmtree(other / METADATA)
    meta = (other / "meta.properties").read_text()
    lines = [line for line in meta.splitlines() if not line.startswith(("node.id", "directory.id"))]
    (other / "meta.properties").write_text("\n".join([*lines, "node.id=2"]) + "\n")
    done = klog("doctor", disk, other)
    assert (done.exit_code, done.stdout) == (16, b"")
    assert b"give the log dirs of one broker" in done.stderr
    assert answer(klog, "--node-id", "1", disk, other, code=4)["fatal"]["id"] == "node-id-differs"


def test_one_of_two_log_dirs_that_is_not_there_is_a_case(klog: Klog, disk: Path, tmp_path: Path) -> None:
    fatal = answer(klog, disk, tmp_path / "nowhere", code=4)["fatal"]
    assert (fatal["id"], fatal["log_dir"]) == ("meta-properties-missing", str(tmp_path / "nowhere"))


def test_what_the_config_says(klog: Klog, disk: Path, tmp_path: Path) -> None:
    """The broker's own file instead of arguments, and never against them."""
    config = tmp_path / "server.properties"
    config.write_text(f"node.id=1\nlog.dirs={disk}\nlog.segment.delete.delay.ms=5000\n")
    assert answer(klog, "--server-properties", config, code=0)["log_dirs"][0]["path"] == str(disk)
    (disk / "plain-1").rename(disk / "plain-1.0f8fad5bd9cb469fa16570867728950e-delete")
    steps = answer(klog, "--server-properties", config, code=4)["steps"]
    assert steps[-1] == {"step": "after", "fate": "ok", "message": "1 directory removed, 5 s after the start"}
    for arguments in ((tmp_path, "--server-properties", config), ("--server-properties", config, "--node-id", "2"), ()):
        done = klog("doctor", *arguments)
        assert (done.exit_code, done.stdout, done.stderr.count(b"\n")) == (16, b"", 1)
    config.write_text("node.id=one\nlog.dirs=x\n")
    assert klog("doctor", "--server-properties", config).exit_code == 16


def test_a_directory_id_that_the_cluster_does_not_have(klog: Klog, disk: Path) -> None:
    """Its partitions load, and may have no leader; the way back is the id that the metadata log has."""
    meta = (disk / "meta.properties").read_text()
    before = next(line for line in meta.splitlines() if line.startswith("directory.id"))
    (disk / "meta.properties").write_text(meta.replace(before, "directory.id=AAAAAAAAQACAAAAAAAAAAA"))
    found = answer(klog, disk, code=4)
    assert (found["starts"], found["loses"]) == (True, 0)
    assert {one["fate"] for one in found["partitions"] if one["directory"]} == {"leaderless"}
    assert found["next"][0]["manual"] == f"set {before} in {disk / 'meta.properties'}"


def test_a_partition_without_a_directory_that_the_cluster_has_elsewhere(klog: Klog, disk: Path) -> None:
    """A broker makes it, and may not lead it: after a clean stop 3.9.1 and 4.3.1 did not.  No other one is made so."""
    meta = (disk / "meta.properties").read_text()
    before = next(line for line in meta.splitlines() if line.startswith("directory.id"))
    there = sorted(path.name for path in disk.glob("*-[0-9]*") if path.name != METADATA)
    for name in there:
        shutil.rmtree(disk / name)
    assert {one["fate"] for one in answer(klog, disk, code=0)["partitions"]} == {"creates"}
    (disk / "meta.properties").write_text(meta.replace(before, f"directory.id={uuid(800)}"))
    found = answer(klog, disk, code=4)
    assert (found["starts"], found["loses"]) == (True, 0)
    assert len(found["partitions"]) > len(there)
    for one in found["partitions"]:
        assert (one["fate"], one["reason"]) == ("leaderless", "directory-id-unknown"), one
        assert (one["log_dir"], one["directory"], one["log_start"], one["log_end"]) == (None, None, 0, 0)
    assert [step["manual"] for step in found["next"]] == [f"set {before} in {disk / 'meta.properties'}"]


def test_a_log_dir_that_was_not_named(klog: Klog, tmp_path: Path) -> None:
    """Its partitions would be made in another: it has to return, or to be named."""
    log = MetadataLog(tmp_path / "data")
    meta = log.log_dir / "meta.properties"
    meta.write_text(f"{meta.read_text()}directory.id={uuid(800)}\n")
    broker = value("RegisterBroker", brokerId=1, incarnationId=uuid(5), brokerEpoch=1, logDirs=[uuid(800), uuid(801)])
    partitions = (
        value(
            "Partition", partitionId=number, topicId=uuid(1), replicas=[1], isr=[1], leader=1, leaderEpoch=0,
            partitionEpoch=0, directories=[uuid(800 + number)],
        )
        for number in range(2)
    )  # fmt: skip
    log.add(broker, topic("orders", 1), *partitions)
    found = answer(klog, log.log_dir, code=4)
    assert [one["fate"] for one in found["partitions"]] == ["creates", "leaderless"]
    (step,) = found["next"]
    assert step["manual"].startswith(f"mount the log dir with directory.id={uuid(801)} and name it in log.dirs, or")
    assert b"It should report" not in klog("doctor", log.log_dir).stdout


def test_beside_a_running_broker(klog: Klog, disk: Path) -> None:
    """It names the holder of the lock, and waits for nothing."""
    (disk / ".lock").touch()
    hold = "import fcntl,sys,time; f=open(sys.argv[1],'r+'); fcntl.lockf(f,fcntl.LOCK_EX); print('held',flush=True)"
    hold += "; time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", hold, disk / ".lock"], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        found = answer(klog, disk, code=4)
        holder.kill()
    assert (found["fatal"]["id"], found["log_dirs"][0]["lock"]) == ("lock-held", "held")
    assert {one["fate"] for one in found["partitions"]} == {"unreached"}


def test_nothing_is_changed(klog: Klog, disk: Path) -> None:
    """Content, times and modes; on a disk that it must recover, too, and without a `.lock` there is none afterwards."""
    (disk / ".kafka_cleanshutdown").unlink(missing_ok=True)
    for path in disk.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = digest(disk)
    found = answer(klog, "--records", disk, code=0)
    assert digest(disk) == before
    assert found["recovery"]["segments"] > 20
    assert found["recovery"]["seconds"][0] <= found["recovery"]["seconds"][1]


def test_no_file_is_opened_for_writing(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read-only media need no more."""
    opened = os.open

    def watch(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and str(path).startswith(str(disk)):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return opened(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", watch)
    monkeypatch.setattr(fcntl, "lockf", None)
    assert diagnose(StartRequest((str(disk),))).is_harmless


def test_a_disk_full_of_oddities_gets_an_answer(klog: Klog, disk: Path) -> None:
    """Names of any bytes, links in a circle, pipes, files where directories should be: an answer, or one line."""
    os.symlink("loop", disk / "loop")
    os.symlink(disk, disk / "around-0")
    os.mkfifo(disk / "pipe-0")
    os.mkdir(os.fsencode(disk) + b"/\xff\xfe-3")
    (disk / "plain-2" / "partition.metadata").unlink()
    (disk / "plain-2" / "partition.metadata").mkdir()
    os.mkfifo(disk / "gzip-0" / "leader-epoch-checkpoint-")
    found = answer(klog, disk, code=4)
    assert found["starts"]
    assert row(found, "around-0")["fate"] == "strays"
    assert klog("doctor", disk).exit_code == 4
    (disk / "recovery-point-offset-checkpoint").unlink()
    os.mkfifo(disk / "recovery-point-offset-checkpoint")
    assert answer(klog, disk, code=4)["fatal"]["id"] == "checkpoint-malformed"


def test_files_of_any_size_need_little_memory(disk: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A gigabyte of meta.properties is not read, and a million lines of a checkpoint are not many copies of them."""
    entries = "".join(f"topic-{i} 0 0\n" for i in range(1_000_000))
    (disk / "recovery-point-offset-checkpoint").write_text(f"0\n1000000\n{entries}")
    command = [sys.executable, "-m", "klog_cli.app", "doctor", "--output", "json", str(disk)]
    done = measured(command, tmp_path_factory.mktemp("measured"))
    assert (done.exit_code, json.loads(done.stdout)["starts"]) == (0, True), done.stderr
    assert done.rss < 120_000_000, f"{done.rss >> 20} MiB"
    with (disk / "meta.properties").open("r+b") as meta:
        meta.truncate(1 << 30)
    done = measured(command, tmp_path_factory.mktemp("measured"))
    assert (done.exit_code, json.loads(done.stdout)["fatal"]["id"]) == (4, "meta-properties-malformed")
    assert done.rss < 100_000_000, f"{done.rss >> 20} MiB"


def test_very_many_directories(disk: Path) -> None:
    """Each has its row, and the answer arrives in time."""
    for i in range(3000):
        (disk / f"many-{i}").mkdir()
    found = diagnose(StartRequest((str(disk),)))
    assert sum(one.topic == "many" and one.fate is Fate.STRAYS for one in found.partitions) == 3000


def test_every_reason_is_one_of_the_table(disk: Path) -> None:
    """The page explains each of them."""
    broken = [Path(disk)]
    found = diagnose(StartRequest(tuple(map(str, broken)), KafkaVersion.V3_9))
    assert {one.reason for one in found.partitions} - {None} <= set(REASONS)


def test_a_stray_in_a_log_dir_that_has_failed_stops_the_broker(klog: Klog, disk: Path) -> None:
    """The one takes the log dir offline and the other is renamed; both together end the broker, as 4.3.1 showed."""
    (disk / "plain-1" / "partition.metadata").unlink()
    (disk / "log-start-offset-checkpoint").write_text("0\n1\nplain 1\n")
    found = answer(klog, disk, code=4)
    assert (found["fatal"]["id"], found["fatal"]["directory"]) == ("checkpoint-malformed", "plain-1")
    assert found["next"][0]["command"] == f"klog recover {disk} --apply"


def test_an_index_that_leads_behind_the_last_batch(klog: Klog, disk: Path) -> None:
    """A broker then uses an earlier offset as the end, and would assign offsets that intact batches have."""
    log = max(path for path in (disk / "dense-0").glob("*.log") if path.stat().st_size)
    log.write_bytes(log.read_bytes()[:-5])
    found = row(answer(klog, disk, code=4), "dense-0")
    assert (found["fate"], found["reason"]) == ("serves", "torn-tail")
    assert found["lost_records"] > 0
    assert klog("recover", disk / "dense-0", "--apply").exit_code in (1, 5)
    assert row(answer(klog, disk, code=0), "dense-0")["lost_records"] == 0


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("disk/plain-1", "a partition directory; name its log dir: {disk}"),
        ("disk/meta.properties", "a file; expected a log dir"),
        (".", "not a log dir, but it contains some; name them: {folder}/disk"),
    ],
)
def test_what_to_name_instead(wrong: str, told: str, disk: Path, tmp_path: Path, klog: Klog) -> None:
    """If a path cannot be meant as a log dir, there is no advice to make one of it."""
    (tmp_path / "other").mkdir()
    done = klog("doctor", str(tmp_path / wrong))
    assert done.exit_code == 16
    assert done.stdout == b""
    assert done.stderr.decode() == f"klog: {tmp_path / wrong}: {told.format(disk=disk, folder=tmp_path)}\n"


def test_a_disk_that_is_not_formatted_yet_is_analysed(klog: Klog, tmp_path: Path) -> None:
    """An empty directory, with or without the lost+found of its file system; another program's is none of Kafka's."""
    disk = tmp_path / "disk"
    (disk / "lost+found").mkdir(parents=True)
    assert b"meta-properties-missing" in klog("doctor", disk).stdout
    (disk / "lost+found").rmdir()
    assert b"meta-properties-missing" in klog("doctor", disk).stdout
    (disk / "passwd").touch()
    done = klog("doctor", disk)
    assert (done.exit_code, done.stdout) == (8, b"")
    assert f"{disk} is not a Kafka log dir" in done.stderr.decode()
