"""`klog doctor` if an offset or time index contradicts the log: consumers and followers would skip records."""

from __future__ import annotations

import json
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brokers import clients, kafka
from tests.commands.doctor.broker import TwoDirBroker
from tests.conftest import Ran
from tests.oracles.plain.encode import Record, batch
from tests.support.metadata_logs import uuid
from tests.support.rolled_back import NOW_MS, metadata, partition

Klog = Callable[..., Ran]
FIRST, SECOND, THIRD = (f"{base:020}" for base in (0, 10, 20))
ONE = len(batch([Record(0, NOW_MS, b"k", b"v" * 50)]))
"""The size of each batch, which has one record."""


def offsets(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">ii", *entry) for entry in entries)


def times(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">qi", *entry) for entry in entries)


def segment(base: int, skip: tuple[int, ...] = ()) -> bytes:
    """Return ten batches of a record each; later records are younger."""
    kept = [offset for offset in range(base, base + 10) if offset not in skip]
    return b"".join(batch([Record(offset, NOW_MS + offset, b"k", b"v" * 50)]) for offset in kept)


RIGHT = offsets((3, 2 * ONE), (6, 6 * ONE))
"""Two entries for ten batches; the first belongs to an append of two batches."""


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """Return a partition of three segments, in a log dir that was stopped cleanly."""
    metadata(tmp_path / "data", leader_epoch=0, next_producer_id=None)
    path = partition(tmp_path / "data", [segment(0)], [(0, 0)])
    for name in (SECOND, THIRD):
        (path / f"{name}.log").write_bytes(segment(int(name)))
    for name in (FIRST, SECOND, THIRD):
        (path / f"{name}.index").write_bytes(RIGHT)
        (path / f"{name}.timeindex").write_bytes(times((NOW_MS + int(name) + 3, 3), (NOW_MS + int(name) + 9, 9)))
    return path


def ask(klog: Klog, path: Path) -> tuple[str | None, str, int]:
    """Return the reason and message of the partition, and the exit code."""
    done = klog("doctor", "--output", "json", str(path.parent))
    found = json.loads(done.stdout)
    assert found["starts"]
    (row,) = found["partitions"]
    assert (row["log_end"], row["lost_records"]) == (30, 0)
    return row["reason"], row["message"], done.exit_code


@pytest.mark.parametrize(
    ("index", "said"),
    [
        (offsets((3, 5 * ONE), (6, 6 * ONE)), f"leads from offset 13 to position {5 * ONE}"),
        (offsets((3, 2 * ONE + 7), (6, 6 * ONE)), f"leads from offset 13 to position {2 * ONE + 7}"),
        (offsets((1, 2 * ONE), (6, 6 * ONE)), f"leads from offset 11 to position {2 * ONE}"),
        (offsets((3, 2 * ONE), (6, 1 << 20)), f"leads from offset 16 to position {1 << 20}"),
        (offsets((6, 2 * ONE), (3, 6 * ONE)), f"leads from offset 13 to position {6 * ONE}"),
        (offsets((3, 2 * ONE), (0, 0), (6, 8 * ONE)), f"leads from offset 16 to position {8 * ONE}"),
    ],
)
def test_an_entry_behind_records(index: bytes, said: str, klog: Klog, disk: Path) -> None:
    """Behind a clean stop a broker takes the index as it is."""
    (disk / f"{SECOND}.index").write_bytes(index)
    reason, message, code = ask(klog, disk)
    assert (reason, code) == ("index-wrong", 4)
    assert f"{SECOND}.index {said}" in message


def test_a_time_that_leads_behind_younger_records(klog: Klog, disk: Path) -> None:
    (disk / f"{SECOND}.timeindex").write_bytes(times((NOW_MS + 11, 8), (NOW_MS + 19, 9)))
    reason, message, code = ask(klog, disk)
    assert (reason, code) == ("index-wrong", 4)
    assert f"{SECOND}.timeindex leads behind records" in message


@pytest.mark.parametrize(
    "index",
    [
        b"",
        offsets((6, 6 * ONE)),
        offsets((6, 5 * ONE)),  # an append of two batches
        RIGHT + bytes(4096),  # preallocated, and never trimmed: a search in the zeros begins at position 0
        offsets((3, 2 * ONE)) + bytes(16) + offsets((6, 6 * ONE)),
        RIGHT + offsets((11, 1 << 20)),  # about records that the log does not have
    ],
)
def test_an_index_with_nothing_amiss(index: bytes, klog: Klog, disk: Path) -> None:
    (disk / f"{FIRST}.index").write_bytes(index)
    assert ask(klog, disk) == (None, "", 0)


def test_gaps_of_compaction(klog: Klog, disk: Path) -> None:
    """The entry has the last offset of a batch that is there; those before it are not."""
    (disk / f"{FIRST}.log").write_bytes(segment(0, skip=(2, 3, 4)))
    (disk / f"{FIRST}.index").write_bytes(offsets((5, 2 * ONE), (8, 5 * ONE)))
    assert ask(klog, disk) == (None, "", 0)


@pytest.mark.parametrize(("recovery_point", "is_wrong"), [(0, False), (10, False), (19, False), (20, True), (30, True)])
def test_a_killed_broker_rebuilds_from_the_recovery_point_on(
    recovery_point: int, is_wrong: bool, klog: Klog, disk: Path
) -> None:
    """The segment before is taken as it is."""
    (disk / f"{SECOND}.index").write_bytes(offsets((3, 5 * ONE)))
    (disk.parent / ".kafka_cleanshutdown").unlink()
    (disk.parent / "recovery-point-offset-checkpoint").write_text(f"0\n1\norders 0 {recovery_point}\n")
    reason, _, code = ask(klog, disk)
    assert (reason, code) == (("index-wrong", 4) if is_wrong else (None, 0))


def test_a_missing_index_is_rebuilt(klog: Klog, disk: Path) -> None:
    (disk / f"{SECOND}.index").unlink()
    (disk / f"{SECOND}.timeindex").write_bytes(times((NOW_MS + 11, 8)))
    assert ask(klog, disk) == (None, "", 0)


def test_a_segment_below_the_log_start(klog: Klog, disk: Path) -> None:
    """A fetch there is refused."""
    (disk / f"{FIRST}.index").write_bytes(offsets((3, 5 * ONE)))
    (disk.parent / "log-start-offset-checkpoint").write_text("0\n1\norders 0 10\n")
    (disk / "leader-epoch-checkpoint").write_text("0\n1\n0 10\n")
    assert ask(klog, disk) == (None, "", 0)


def test_the_way_out_makes_the_index_again(klog: Klog, disk: Path) -> None:
    (disk / f"{SECOND}.index").write_bytes(offsets((3, 5 * ONE)))
    done = klog("doctor", "--output", "json", str(disk.parent))
    (step,) = json.loads(done.stdout)["next"]
    assert step["command"] == f"klog recover {disk} --apply"
    text = klog("doctor", str(disk.parent)).stdout.decode()
    assert "BUT CONSUMERS AND FOLLOWERS SKIP RECORDS" in text
    assert f"{SECOND}.index leads from offset 13" in text
    klog("recover", str(disk), "--apply")
    assert ask(klog, disk) == (None, "", 0)


def test_large_logs_are_compared_when_asked(klog: Klog, disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer mentions that they were not."""
    monkeypatch.setattr("klog.commands.doctor.index_check._MOST_BYTES", 100)
    (disk / f"{SECOND}.index").write_bytes(offsets((3, 5 * ONE)))
    done = klog("doctor", str(disk.parent))
    assert b"the offset and time indexes of 1 partition were not compared with the logs" in done.stdout
    assert klog("doctor", "--records", str(disk.parent)).exit_code == 4


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        (((3, 2 * ONE), (6, 1 << 20)), "index-wrong"),
        (((3, 6 * ONE), (6, 2 * ONE)), "index-wrong"),
        (((6, 2 * ONE), (3, 6 * ONE)), "index-wrong"),
        (((3, 2 * ONE), (6, 6 * ONE)), None),
        (((3, 2 * ONE), (0, 0)), None),
        (((3, 2 * ONE), (10, 1 << 20)), None),
    ],
    ids=["beyond the log", "positions", "offsets", "right", "zeros", "of no record"],
)
def test_entries_of_large_logs_that_belong_to_no_batch(
    entries: tuple[tuple[int, int], ...],
    reason: str | None,
    klog: Klog,
    disk: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are found without the log, and to compare it gives the same answer."""
    (disk / f"{SECOND}.index").write_bytes(offsets(*entries))
    whole = ask(klog, disk)
    monkeypatch.setattr("klog.commands.doctor.index_check._MOST_BYTES", 100)
    found = ask(klog, disk)
    assert (found[0], found[2]) == (whole[0], whole[2]) == (reason, 4 if reason else 0)


UNIQUE = "0f8fad5bd9cb469fa16570867728950e"


def copy_of(disk: Path, batches: int, *, beside: bool = True) -> Path:
    """Make a copy on the way to another log dir of the node, with the first batches of the last segment.

    *beside*: the partition stays where it is; without it the copy is all that there is.
    """
    other = disk.parent.parent / "other"
    other.mkdir()
    properties = (disk.parent / "meta.properties").read_text()
    (other / "meta.properties").write_text(properties.replace(uuid(101), uuid(102)))
    shutil.copy(disk.parent / ".kafka_cleanshutdown", other)
    copy = shutil.copytree(disk, other / f"orders-0.{UNIQUE}-future")
    log = copy / f"{THIRD}.log"
    log.write_bytes(log.read_bytes()[: batches * ONE])
    if not beside:
        shutil.rmtree(disk)
    return copy


@pytest.mark.parametrize(
    ("batches", "fate", "fine"), [(10, "promotes", "future-complete"), (7, "moves", "copy-unfinished")]
)
def test_a_copy_that_becomes_the_partition(batches: int, fate: str, fine: str, klog: Klog, disk: Path) -> None:
    """A complete one at the start, an unfinished one when the rest is copied: its indexes are then the partition's."""
    copy = copy_of(disk, batches)

    def row() -> tuple[str, str, str, int, list[str]]:
        done = klog("doctor", "--output", "json", disk.parent, copy.parent)
        found = json.loads(done.stdout)
        (one,) = [one for one in found["partitions"] if one["directory"] == copy.name]
        return one["fate"], one["reason"], one["message"], done.exit_code, [step["command"] for step in found["next"]]

    assert (*row()[:2], *row()[3:]) == (fate, fine, 0, [])
    (copy / f"{SECOND}.index").write_bytes(offsets((3, 5 * ONE), (6, 6 * ONE)))
    found = row()
    assert (*found[:2], found[3]) == (fate, "index-wrong", 4)
    assert f"it becomes the partition{'' if fate == 'promotes' else ' later'}; " in found[2]
    assert f"{SECOND}.index leads from offset 13 to position {5 * ONE}" in found[2]
    assert found[4] == [f"klog recover {copy} --apply"]
    assert b"BUT CONSUMERS AND FOLLOWERS SKIP RECORDS" in klog("doctor", disk.parent, copy.parent).stdout
    klog("recover", copy, "--apply")
    assert (*row()[:2], *row()[3:]) == (fate, fine, 0, [])


def test_a_copy_that_is_truncated_or_never_used(klog: Klog, disk: Path) -> None:
    """Without its partition it is emptied, and beside it in the same log dir it stops the broker: no index matters."""
    copy = copy_of(disk, 7, beside=False)
    (copy / f"{SECOND}.index").write_bytes(offsets((3, 5 * ONE)))
    found = json.loads(klog("doctor", "--output", "json", disk.parent, copy.parent).stdout)
    (row,) = found["partitions"]
    assert row["reason"] == "future-without-current"


def test_the_index_of_a_partition_that_a_copy_replaces(klog: Klog, disk: Path) -> None:
    """The broker deletes it."""
    copy = copy_of(disk, 10)
    (disk / f"{SECOND}.index").write_bytes(offsets((3, 5 * ONE)))
    assert klog("doctor", disk.parent, copy.parent).exit_code == 0


@pytest.mark.kafka
@pytest.mark.parametrize("is_complete", [True, False])
def test_a_real_broker_skips_the_records_of_a_copy(is_complete: bool, klog: Klog, tmp_path: Path) -> None:
    """It renames the copy with the index that it has, at once or when the rest is there."""
    broker = TwoDirBroker(kafka.NEWEST, tmp_path)
    with broker:
        small = {"internal.segment.bytes": "20000", "index.interval.bytes": "900"}
        clients.create(broker.bootstrap, {"orders": small})
        given = [clients.Given(b"k", b"v" * 200, (), 1_700_000_000_000 + i) for i in range(200)]
        clients.with_librdkafka(broker.bootstrap, "orders", "none", given, batch_num_messages=1)
    (path,) = [one / "orders-0" for one in broker.dirs if (one / "orders-0").exists()]
    (other,) = [one for one in broker.dirs if one != path.parent]
    copy = shutil.copytree(path, other / f"orders-0.{UNIQUE}-future")
    for file in copy.glob(f"{max(copy.glob('*.log')).stem}.*") if not is_complete else ():
        file.unlink()
    assert klog("doctor", *broker.dirs).exit_code == 0
    index = copy / f"{0:020}.index"
    entries = list(struct.iter_unpack(">ii", index.read_bytes()))
    first, following = entries[1], entries[3]
    index.write_bytes(offsets(entries[0], (first[0], following[1]), *entries[2:]))
    done = klog("doctor", "--output", "json", *broker.dirs)
    (row,) = [one for one in json.loads(done.stdout)["partitions"] if one["directory"] == copy.name]
    assert (row["fate"], row["reason"]) == ("promotes" if is_complete else "moves", "index-wrong")
    assert done.exit_code == 4
    with broker:
        until = time.monotonic() + clients.WAIT_S
        while not (other / "orders-0").exists():
            assert time.monotonic() < until, "the copy does not become the partition"
            time.sleep(0.2)
        time.sleep(1)
        found = clients.consume(broker.bootstrap, "orders", "read_committed", start=first[0])
    assert found[0].offset > first[0]


@pytest.mark.kafka
def test_a_real_broker_skips_the_records(klog: Klog, tmp_path: Path) -> None:
    """Consumers at the entry's offset get no error, and not the records before the position; after the repair all."""
    with kafka.Cluster(kafka.NEWEST, tmp_path) as cluster:
        small = {"internal.segment.bytes": "20000", "index.interval.bytes": "900"}
        clients.create(cluster.bootstrap, {"orders": small})
        given = [clients.Given(b"k", b"v" * 200, (), 1_700_000_000_000 + i) for i in range(200)]
        clients.with_librdkafka(cluster.bootstrap, "orders", "none", given, batch_num_messages=1)
    path = tmp_path / "data/orders-0"
    assert klog("doctor", tmp_path / "data").exit_code == 0
    index = path / f"{0:020}.index"
    entries = list(struct.iter_unpack(">ii", index.read_bytes()))
    first, following = entries[1], entries[3]
    index.write_bytes(offsets(entries[0], (first[0], following[1]), *entries[2:]))
    done = klog("doctor", "--output", "json", tmp_path / "data")
    (row,) = [one for one in json.loads(done.stdout)["partitions"] if one["topic"] == "orders"]
    assert (row["reason"], done.exit_code) == ("index-wrong", 4)
    with kafka.Cluster(kafka.NEWEST, tmp_path) as cluster:
        found = clients.consume(cluster.bootstrap, "orders", "read_committed", start=first[0])
    assert found[0].offset > first[0]
    klog("recover", path, "--apply")
    with kafka.Cluster(kafka.NEWEST, tmp_path) as cluster:
        found = clients.consume(cluster.bootstrap, "orders", "read_committed", start=first[0])
    assert [one.offset for one in found] == list(range(first[0], 200))
