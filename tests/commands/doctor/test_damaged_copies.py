"""Unfinished copies with damage below their log end: the broker copies the rest, and deletes the partition."""

from __future__ import annotations

import json
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from klog.commands.doctor.broker_start import diagnose
from klog.commands.doctor.start_request import StartRequest

from tests.brokers import clients, kafka
from tests.commands.doctor.broker import TwoDirBroker
from tests.commands.doctor.disks import follow
from tests.commands.doctor.test_indexes import FIRST, ONE, SECOND, THIRD, UNIQUE, copy_of, disk, offsets, segment
from tests.conftest import Ran

__all__ = ["disk"]  # a fixture
Klog = Callable[..., Ran]
Change = Callable[[Path], object]


def position_of(content: bytes, batch: int) -> int:
    position = 0
    for _ in range(batch):
        position += 12 + int.from_bytes(content[position + 8 : position + 12], "big")
    return position


def flipped(log: Path, batch: int, at: int = 70) -> None:
    """Flip the bits of a byte in a batch; *at*: its place there, 70 is in the records."""
    content = bytearray(log.read_bytes())
    content[position_of(content, batch) + at] ^= 0xFF
    log.write_bytes(content)


def resized(log: Path, batch: int, size: int) -> None:
    """Give a batch another size."""
    content = bytearray(log.read_bytes())
    position = position_of(content, batch)
    content[position + 8 : position + 12] = struct.pack(">i", size)
    log.write_bytes(content)


def without(copy: Path, base: str) -> None:
    for file in copy.glob(f"{base}.*"):
        file.unlink()


def write_start(copy: Path, offset: int) -> None:
    (copy.parent / "log-start-offset-checkpoint").write_text(f"0\n1\norders 0 {offset}\n")


def emptied(copy: Path) -> None:
    """Let the copy have no segment but an empty one at its log end."""
    for base in (FIRST, SECOND, THIRD):
        without(copy, base)
    for kind in ("log", "index", "timeindex"):
        (copy / f"{27:020}.{kind}").touch()


def killed(copy: Path, recovery_point: int) -> None:
    (copy.parent / ".kafka_cleanshutdown").unlink()
    (copy.parent / "recovery-point-offset-checkpoint").write_text(f"0\n1\norders 0 {recovery_point}\n")


def answer(klog: Klog, disk: Path, copy: Path, *options: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the document with the exit code, and its rows by directory."""
    done = klog("doctor", *options, "--output", "json", disk.parent, copy.parent)
    found = json.loads(done.stdout)
    found["code"] = done.exit_code
    found["next"] = [step.get("command") or step.get("manual") for step in found["next"]]
    return found, {one["directory"]: one for one in found["partitions"]}


DAMAGE: dict[str, tuple[Change, int]] = {
    "records": (lambda copy: flipped(copy / f"{SECOND}.log", 3), 1),
    "records of the last segment": (lambda copy: flipped(copy / f"{THIRD}.log", 3), 1),
    "a size that no batch has": (lambda copy: resized(copy / f"{SECOND}.log", 3, 5), 7),
    "a size beyond the log": (lambda copy: resized(copy / f"{SECOND}.log", 3, 1 << 24), 7),
    "a base offset beyond the segment": (lambda copy: flipped(copy / f"{SECOND}.log", 3, 6), 7),
    "no first segment": (lambda copy: without(copy, FIRST), 10),
    "a raised log start": (lambda copy: write_start(copy, 12), 12),
    "nothing left": (lambda copy: emptied(copy), 27),
    "no segment in the middle": (lambda copy: without(copy, SECOND), 10),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_intact_records_of_the_partition_are_lost_with_it(name: str, klog: Klog, disk: Path, tmp_path: Path) -> None:
    """Behind a broken header a client finds no more of the segment."""
    copy = copy_of(disk, 7)
    change, lost = DAMAGE[name]
    change(copy)
    found, rows = answer(klog, disk, copy)
    row = rows[copy.name]
    assert (row["fate"], row["reason"], row["log_end"]) == ("moves", "copy-damaged", 27)
    assert (row["lost_records"], row["lost_bytes"], found["loses"], found["code"]) == (lost, lost * ONE, lost, 4)
    assert "it becomes the partition later, without" in row["message"]
    assert (rows[disk.name]["fate"], rows[disk.name]["lost_records"]) == ("serves", 0)
    assert found["next"] == [f"move {copy} out of every log dir"]
    shutil.move(copy, tmp_path / "aside")
    found, rows = answer(klog, disk, copy)
    assert (found["loses"], found["code"], [*rows]) == (0, 0, [disk.name])


def test_the_first_line_names_the_loss(klog: Klog, disk: Path) -> None:
    copy = copy_of(disk, 7)
    flipped(copy / f"{SECOND}.log", 3)
    text = klog("doctor", disk.parent, copy.parent).stdout.decode()
    assert text.startswith(f"STARTS, LOSES 1 RECORD of {copy.name}\n")
    assert "still being copied; loses 1 record; it becomes the partition later" in text
    assert f"1. Move {copy} out of every log dir" in text


@pytest.mark.parametrize(("recovery_point", "lost"), [(0, 0), (10, 0), (20, 1)])
def test_a_part_that_recovery_cuts_is_copied_again(recovery_point: int, lost: int, klog: Klog, disk: Path) -> None:
    """Damage below the recovery point stays."""
    copy = copy_of(disk, 7)
    flipped(copy / f"{SECOND}.log", 3)
    killed(copy, recovery_point)
    found, rows = answer(klog, disk, copy)
    row = rows[copy.name]
    assert (row["reason"], row["log_end"]) == (("copy-damaged", 27) if lost else ("copy-unfinished", 13))
    assert (row["lost_records"], found["code"], len(found["next"])) == (lost, 4 if lost else 0, lost)


def test_a_segment_without_its_index_is_cut_in_the_middle(klog: Klog, disk: Path) -> None:
    """The start makes the index again, which truncates this segment alone."""
    copy = copy_of(disk, 7)
    flipped(copy / f"{SECOND}.log", 3)
    (copy / f"{SECOND}.index").unlink()
    found, rows = answer(klog, disk, copy)
    assert (rows[copy.name]["log_end"], rows[copy.name]["lost_records"], found["code"]) == (27, 7, 4)


def both_lack_it(disk: Path, copy: Path) -> None:
    for one in (disk, copy):
        flipped(one / f"{SECOND}.log", 3)


def starts_behind_it(disk: Path, copy: Path) -> None:
    flipped(copy / f"{SECOND}.log", 3)
    (disk.parent / "log-start-offset-checkpoint").write_text("0\n1\norders 0 14\n")
    (disk / "leader-epoch-checkpoint").write_text("0\n1\n0 14\n")


def cleaned(disk: Path, copy: Path) -> None:
    """Let the partition have no records 12 to 14 any more."""
    flipped(copy / f"{SECOND}.log", 3)
    (disk / f"{SECOND}.log").write_bytes(segment(10, (12, 13, 14)))
    (disk / f"{SECOND}.index").write_bytes(b"")


def never_finished(disk: Path, copy: Path) -> None:
    """Let the index of the copy lead behind its last whole batch."""
    flipped(copy / f"{SECOND}.log", 3)
    (copy / f"{THIRD}.log").write_bytes(segment(20)[: 5 * ONE + 30])
    (copy / f"{THIRD}.index").write_bytes(offsets((3, 2 * ONE), (6, 6 * ONE)))


@pytest.mark.parametrize(
    "change", [lambda *_: None, both_lack_it, starts_behind_it, cleaned, never_finished], ids=lambda one: one.__name__
)
def test_nothing_is_lost_that_the_partition_has(change: Callable[..., object], klog: Klog, disk: Path) -> None:
    copy = copy_of(disk, 7)
    change(disk, copy)
    found, rows = answer(klog, disk, copy)
    assert (rows[copy.name]["fate"], rows[copy.name]["reason"]) == ("moves", "copy-unfinished")
    assert (found["loses"], found["code"], found["next"]) == (0, 0, [])


def test_damage_before_a_torn_tail(klog: Klog, disk: Path) -> None:
    """The records behind the tail are lost as well, and a repair of the tail does not help."""
    copy = copy_of(disk, 7)
    flipped(copy / f"{SECOND}.log", 3)
    (copy / f"{THIRD}.log").write_bytes(segment(20)[: 7 * ONE + 30])
    found, rows = answer(klog, disk, copy)
    assert (rows[copy.name]["reason"], rows[copy.name]["lost_records"]) == ("copy-damaged", 1 + 3)
    assert found["next"] == [f"move {copy} out of every log dir"]


def test_large_copies_are_compared_when_asked(klog: Klog, disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer mentions that they were not."""
    monkeypatch.setattr("klog.commands.doctor.unfinished_copies._MOST_BYTES", 100)
    copy = copy_of(disk, 7)
    flipped(copy / f"{SECOND}.log", 3)
    found, rows = answer(klog, disk, copy)
    assert (found["loses"], rows[copy.name]["reason"]) == (0, "copy-unfinished")
    assert "its records were not compared with those of the partition: --records" in rows[copy.name]["message"]
    assert answer(klog, disk, copy, "--records")[0]["loses"] == 1


@pytest.mark.parametrize("is_longer", [False, True])
def test_a_complete_copy_that_lacks_records(is_longer: bool, klog: Klog, disk: Path, tmp_path: Path) -> None:
    """A checksum that no longer matches counts, although the header is that of the partition's batch."""
    copy = copy_of(disk, 10)
    flipped(copy / f"{SECOND}.log", 3)
    if is_longer:
        (copy / f"{THIRD}.log").write_bytes(segment(20) + segment(30)[:ONE])
    found, rows = answer(klog, disk, copy)
    assert (rows[copy.name]["fate"], rows[disk.name]["fate"]) == ("promotes", "replaced")
    assert (rows[disk.name]["lost_records"], found["code"]) == (1, 4)
    away, wanted = disk if is_longer else copy, copy.parent / disk.name
    renaming = [f"rename {copy} to {wanted}"] if is_longer else []
    assert found["next"] == [f"move {away} out of every log dir", *renaming]
    shutil.move(away, tmp_path / "aside")
    if is_longer:
        copy.rename(wanted)
    found, rows = answer(klog, disk, copy)
    assert (found["loses"], found["code"], len(rows)) == (0, 0, 1)


@pytest.mark.parametrize("beside", [True, False])
def test_a_copy_at_which_the_broker_stops(beside: bool, klog: Klog, disk: Path, tmp_path: Path) -> None:
    """The partition stays where it is: it has all records."""
    copy = copy_of(disk, 7, beside=beside)
    resized(copy / f"{SECOND}.log", 3, 5)
    killed(copy, 20)
    found, rows = answer(klog, disk, copy)
    assert (found["fatal"]["id"], rows[copy.name]["fate"]) == ("log-refused", "refuses")
    if not beside:
        assert found["next"][-1] == f"klog recover {copy} --apply"
        return
    assert found["next"] == [f"move {copy} out of every log dir"]
    shutil.move(copy, tmp_path / "aside")
    found, rows = answer(klog, disk, copy)
    assert (found["starts"], found["loses"], rows[disk.name]["fate"]) == (True, 0, "serves")


@pytest.mark.parametrize("is_served", [True, False])
def test_a_directory_that_the_broker_removes(is_served: bool, klog: Klog, disk: Path) -> None:
    """Its record is lost if that of the served partition is damaged."""
    old = shutil.copytree(disk, disk.with_name(f"{disk.name}.{UNIQUE}-delete"))
    if not is_served:
        flipped(disk / f"{SECOND}.log", 3)
    done = klog("doctor", "--output", "json", disk.parent)
    found = json.loads(done.stdout)
    lost = {row["directory"]: row["lost_records"] for row in found["partitions"]}
    assert lost == {disk.name: 0, old.name: 0 if is_served else 1}
    assert (found["next"][0]["manual"], found["loses"] == 0) == (f"move {old} out of every log dir", is_served)


def flip_in_the_first(copy: Path) -> None:
    flipped(copy / f"{FIRST}.log", 30, 100)


CLEAN: dict[str, tuple[Change, int]] = {
    "intact": (lambda _: None, 0),
    "records": (flip_in_the_first, 1),
    "size": (lambda copy: resized(copy / f"{FIRST}.log", 30, 1 << 24), 42),
    "segment": (lambda copy: without(copy, f"{72:020}"), 72),
    "moved": (flip_in_the_first, 1),
}
KILLED: dict[str, tuple[Change, int]] = {"records": (flip_in_the_first, 1), "recovered": (flip_in_the_first, 0)}
"""For each topic the change of its unfinished copy, and how many records are lost: 72 are in a segment."""


def begin_copy(broker: TwoDirBroker, topic: str) -> Path:
    """Copy two of the three segments of a partition and a part of the third into the other log dir."""
    (path,) = [one / f"{topic}-0" for one in broker.dirs if (one / f"{topic}-0").exists()]
    (other,) = [one for one in broker.dirs if one != path.parent]
    copy = shutil.copytree(path, other / f"{topic}-0.{UNIQUE}-future")
    for file in {*copy.glob(f"{144:020}.*index"), *copy.glob("*.snapshot")}:
        file.unlink()
    log = copy / f"{144:020}.log"
    log.write_bytes(log.read_bytes()[: position_of(log.read_bytes(), 20)])
    return copy


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("version", "cases"),
    [
        pytest.param(kafka.NEWEST, CLEAN, id="stopped"),
        pytest.param(kafka.NEWEST, KILLED, id="killed"),
        pytest.param(kafka.BEFORE, CLEAN, id="stopped-before", marks=pytest.mark.long),
        pytest.param(kafka.BEFORE, KILLED, id="killed-before", marks=pytest.mark.long),
    ],
)
def test_a_real_broker_replaces_the_partition(
    version: str, cases: dict[str, tuple[Change, int]], klog: Klog, tmp_path: Path
) -> None:
    """Consumers do not get the records that were counted; all of them where the copy was moved away first."""
    broker = TwoDirBroker(version, tmp_path)
    with broker:
        small = {"internal.segment.bytes" if version == kafka.NEWEST else "segment.bytes": "20000"}
        clients.create(broker.bootstrap, {name: {**small, "index.interval.bytes": "900"} for name in cases})
        given = [clients.Given(b"k", b"%06d" % i + b"v" * 200, (), 1_700_000_000_000 + i) for i in range(200)]
        for name in cases:
            clients.with_librdkafka(broker.bootstrap, name, "none", given, batch_num_messages=1)
    copies, lost = {name: begin_copy(broker, name) for name in cases}, {name: one[1] for name, one in cases.items()}
    for name, (change, _) in cases.items():
        change(copies[name])
    for log_dir in broker.dirs if cases is KILLED else ():
        (log_dir / ".kafka_cleanshutdown").unlink()
        (log_dir / "recovery-point-offset-checkpoint").write_text("0\n1\nrecords 0 150\n")
    done = klog("doctor", "--kafka-version", version[:3], "--output", "json", *broker.dirs)
    told = json.loads(done.stdout)
    assert (told["starts"], told["loses"], done.exit_code) == (True, sum(lost.values()), 4)
    rows = {
        row["topic"]: row for row in told["partitions"] if row["directory"] in {one.name for one in copies.values()}
    }
    assert {name: row["lost_records"] for name, row in rows.items()} == lost
    steps = {f"move {copies[name]} out of every log dir" for name in cases if lost[name]}
    assert {step.get("manual") for step in told["next"]} == steps
    if "moved" in cases:
        shutil.move(copies.pop("moved"), tmp_path / "aside")
    with broker:
        until = time.monotonic() + clients.WAIT_S
        while not all((copy.parent / f"{name}-0").exists() for name, copy in copies.items()):
            assert time.monotonic() < until, "a copy does not become the partition"
            time.sleep(0.2)
        time.sleep(3)  # the leaders have moved there, and the old directories are deleted
        for name in cases:
            found = clients.consume(broker.bootstrap, name, "read_committed", start=0, check_crcs=False)
            good = {one.offset for one in found if one.value == given[one.offset].value}
            assert len(good) == 200 - lost[name] * (name in copies), name
        with pytest.raises(RuntimeError, match="CRC32C"):
            clients.consume(broker.bootstrap, "records", "read_committed", start=0)


@pytest.mark.kafka
def test_a_real_broker_serves_the_partitions_whose_copies_were_moved(klog: Klog, tmp_path: Path) -> None:
    """One copy is complete and damaged, in the log dir that the metadata log names; the broker stops at the other."""
    broker = TwoDirBroker(kafka.NEWEST, tmp_path / "broker")
    given = [clients.Given(b"k", b"%06d" % i + b"v" * 200, (), 1_700_000_000_000 + i) for i in range(200)]
    with broker:
        for name in ("complete", "refused"):
            clients.create(broker.bootstrap, {name: {"internal.segment.bytes": "20000", "index.interval.bytes": "900"}})
            clients.with_librdkafka(broker.bootstrap, name, "none", given, batch_num_messages=1)
    refused = begin_copy(broker, "refused")
    resized(refused / f"{FIRST}.log", 30, 5)
    (refused.parent / ".kafka_cleanshutdown").unlink()
    (refused.parent / "recovery-point-offset-checkpoint").write_text("0\n1\nrefused 0 90\n")
    (path,) = [one / "complete-0" for one in broker.dirs if (one / "complete-0").exists()]
    (other,) = [one for one in broker.dirs if one != path.parent]
    moved = path.rename(other / path.name)
    complete = shutil.copytree(moved, path.with_name(f"{path.name}.{UNIQUE}-future"))
    flip_in_the_first(complete)
    told = diagnose(StartRequest([str(one) for one in broker.dirs]))
    assert told.failure is not None
    assert (told.failure.id, told.failure.directory) == ("log-refused", refused.name)
    assert {one.manual for one in told.next} == {f"move {one} out of every log dir" for one in (refused, complete)}
    follow(told.next, tmp_path / "aside")
    assert diagnose(StartRequest([str(one) for one in broker.dirs])).is_harmless
    with broker:
        for name in ("complete", "refused"):
            found = clients.consume(broker.bootstrap, name, "read_committed", start=0)
            assert [one.value for one in found] == [one.value for one in given]
