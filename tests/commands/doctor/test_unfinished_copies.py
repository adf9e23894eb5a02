"""Unfinished copies with a tail that the start cuts or leaves, beside the partition that is served meanwhile."""

from __future__ import annotations

import json
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import clients, kafka
from tests.commands.doctor.broker import TwoDirBroker
from tests.commands.doctor.test_indexes import ONE, THIRD, UNIQUE, copy_of, disk, offsets, segment
from tests.conftest import Ran

__all__ = ["disk"]  # a fixture
Klog = Callable[..., Ran]
BAD_SIZE = struct.pack(">i", 5)


def torn(copy: Path, kept: int, *, index_fits: bool) -> None:
    """Let the last log of a copy end inside a batch, behind *kept* whole ones; its index may have more entries."""
    log = copy / f"{THIRD}.log"
    log.write_bytes(segment(20)[: kept * ONE + 30])
    (copy / f"{THIRD}.index").write_bytes(offsets((3, 2 * ONE), (6, (kept - 1 if index_fits else kept + 1) * ONE)))


def damaged(copy: Path, batches: int, at: int) -> None:
    """Give the last log of a copy so many batches, one of them with a size that no batch can have, and no marker."""
    content = bytearray(segment(20) + segment(30))[: batches * ONE]
    content[at * ONE + 8 : at * ONE + 12] = BAD_SIZE
    (copy / f"{THIRD}.log").write_bytes(content)
    (copy.parent / ".kafka_cleanshutdown").unlink()


def row_of(klog: Klog, disk: Path, copy: Path) -> dict[str, Any]:
    """Return the row of the copy, with the exit code and the commands of the next steps."""
    done = klog("doctor", "--output", "json", disk.parent, copy.parent)
    found = json.loads(done.stdout)
    (row,) = [one for one in found["partitions"] if one["directory"] == copy.name]
    assert found["loses"] == row["lost_records"]
    return {**row, "code": done.exit_code, "next": [step.get("command") for step in found["next"]]}


@pytest.mark.parametrize(("missing", "lost"), [((), 0), ((21, 22), 2), ((28,), 0)])
@pytest.mark.parametrize("case", ["left", "cut"])
def test_the_tail_of_a_copy_counts_if_the_partition_lacks_it(
    case: str, missing: tuple[int, ...], lost: int, klog: Klog, disk: Path
) -> None:
    """The broker copies it again, or does not finish the copy: the partition stays with all that it has."""
    copy = copy_of(disk, 10)
    (disk / f"{THIRD}.log").write_bytes(segment(20, missing))
    (disk / f"{THIRD}.index").write_bytes(b"")
    if case == "left":
        torn(copy, 5, index_fits=False)
    else:
        damaged(copy, 8, 0)
    row = row_of(klog, disk, copy)
    assert (row["fate"], row["reason"], row["log_end"]) == ("moves", "copy-unfinished", 20)
    assert (row["lost_records"], row["lost_bytes"], row["code"]) == (lost, lost * ONE, 4 if lost else 0)


def test_the_rest_is_copied_behind_a_tail_that_stays(klog: Klog, disk: Path) -> None:
    """The copy then replaces the partition, and no client can read beyond the tail."""
    copy = copy_of(disk, 10)
    torn(copy, 7, index_fits=True)
    row = row_of(klog, disk, copy)
    assert (row["fate"], row["reason"], row["log_end"], row["lost_records"]) == ("moves", "torn-tail", 27, 3)
    assert row["message"].startswith("it becomes the partition later; ")
    assert (row["code"], row["next"]) == (4, [f"klog recover {copy} --apply"])
    klog("recover", copy, "--apply")
    row = row_of(klog, disk, copy)
    assert (row["reason"], row["lost_records"], row["code"]) == ("copy-unfinished", 0, 0)


def test_the_tail_of_a_copy_that_becomes_the_partition_counts(klog: Klog, disk: Path) -> None:
    """It has all that the partition has, and a record more, which recovery cuts."""
    copy = copy_of(disk, 10)
    damaged(copy, 12, 10)
    row = row_of(klog, disk, copy)
    assert (row["fate"], row["log_end"], row["lost_records"], row["code"]) == ("promotes", 30, 1, 4)


def test_a_tail_behind_all_that_the_partition_has(klog: Klog, disk: Path) -> None:
    """Nothing is lost at the start, but new records are appended behind it."""
    copy = copy_of(disk, 10)
    (copy / f"{THIRD}.log").write_bytes(segment(20) + segment(30)[:30])
    row = row_of(klog, disk, copy)
    assert (row["fate"], row["reason"], row["lost_records"], row["code"]) == ("promotes", "torn-tail", 0, 4)
    assert row["next"] == [f"klog recover {copy} --apply"]


def test_a_copy_without_its_partition_counts_as_a_whole(klog: Klog, disk: Path) -> None:
    copy = copy_of(disk, 10, beside=False)
    damaged(copy, 8, 0)
    row = row_of(klog, disk, copy)
    assert (row["fate"], row["reason"], row["lost_records"]) == ("empties", "future-without-current", 27)


def one_of(log: Path) -> int:
    return 12 + int.from_bytes(log.read_bytes()[8:12], "big")


def shortened(copy: Path, kept: int, rest: int, *, index_fits: bool) -> None:
    """Cut the only log of a copy behind so many batches and some bytes of the next one."""
    (log,), (index,), (times,) = (list(copy.glob(f"*.{kind}")) for kind in ("log", "index", "timeindex"))
    one = one_of(log)
    log.write_bytes(log.read_bytes()[: kept * one + rest])
    if index_fits:
        entries = [entry for entry in struct.iter_unpack(">ii", index.read_bytes()) if entry[1] < (kept - 2) * one]
        index.write_bytes(offsets(*entries))
        times.write_bytes(times.read_bytes()[: 12 * (len(entries) - 1)])
    for file in copy.glob("*.snapshot"):
        file.unlink()


def halved(copy: Path) -> None:
    """Damage the middle of a copy, in a log dir without the marker."""
    (log,) = copy.glob("*.log")
    content, at = bytearray(log.read_bytes()), 50 * one_of(log)
    content[at + 8 : at + 12] = BAD_SIZE
    log.write_bytes(content)
    (copy.parent / ".kafka_cleanshutdown").unlink()
    (copy.parent / "recovery-point-offset-checkpoint").unlink()


CASES: dict[str, tuple[Callable[[Path], None], int]] = {
    "no tail": (lambda copy: shortened(copy, 100, 0, index_fits=True), 0),
    "tail": (lambda copy: shortened(copy, 100, 200, index_fits=True), 100),
    "index beyond the tail": (lambda copy: shortened(copy, 100, 200, index_fits=False), 0),
    "cut": (halved, 0),
}


@pytest.mark.kafka
@pytest.mark.parametrize("version", [kafka.NEWEST, pytest.param(kafka.BEFORE, marks=pytest.mark.long)])
def test_a_real_broker_continues_a_copy(version: str, klog: Klog, tmp_path: Path) -> None:
    """Some seconds after the start it serves all records but those that were counted as lost."""
    first = TwoDirBroker(version, tmp_path / "first")
    with first:
        clients.create(first.bootstrap, {"orders": {"index.interval.bytes": "900"}})
        given = [clients.Given(b"k", b"v" * 200, (), 1_700_000_000_000 + i) for i in range(200)]
        clients.with_librdkafka(first.bootstrap, "orders", "none", given, batch_num_messages=1)
    for name, (change, lost) in CASES.items():
        broker = TwoDirBroker(version, tmp_path / name.replace(" ", "-"))
        for old, new in zip(first.dirs, broker.dirs, strict=True):
            shutil.copytree(old, new)
        (path,) = [one / "orders-0" for one in broker.dirs if (one / "orders-0").exists()]
        (other,) = [one for one in broker.dirs if one != path.parent]
        copy = shutil.copytree(path, other / f"orders-0.{UNIQUE}-future")
        change(copy)
        done = klog("doctor", "--kafka-version", version[:3], "--output", "json", *broker.dirs)
        told = json.loads(done.stdout)
        assert (told["starts"], told["loses"], done.exit_code) == (True, lost, 4 if lost else 0), name
        with broker:
            assert served(broker, other / "orders-0", is_complete=name != "index beyond the tail") == 200 - lost, name


def served(broker: TwoDirBroker, place: Path, *, is_complete: bool) -> int:
    """Return how many records a client gets from offset 0 on, once the copy is the partition, if it ever is."""
    until = time.monotonic() + (clients.WAIT_S if is_complete else 10)
    while not place.exists() and time.monotonic() < until:
        time.sleep(0.2)
    assert place.exists() == is_complete
    time.sleep(3)  # its leader has moved there, and the old directory is deleted
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "reads", "enable.partition.eof": True}
    consumer = Consumer({**settings, "check.crcs": True, **clients.SILENT})
    consumer.assign([TopicPartition("orders", 0, 0)])
    found, ends = 0, time.monotonic() + clients.WAIT_S
    while (message := consumer.poll(1)) is None or message.error() is None:
        found += message is not None
        assert time.monotonic() < ends
    consumer.close()
    return found
