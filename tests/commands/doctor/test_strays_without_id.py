"""Directories that an earlier start set aside because they have no topic id: they may be the cluster's."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from klog.commands.doctor.broker_start import diagnose
from klog.commands.doctor.diagnosis import Diagnosis, Fate, PartitionFate
from klog.commands.doctor.start_request import StartRequest

from tests.conftest import FIXTURES, run_klog, writable_copy
from tests.support.metadata_logs import config
from tests.support.rolled_back import NOW_MS, data, metadata, partition

FIRST = f"{0:020}.log"
TOPIC = 2
"""The type of a topic's settings."""
UNIQUE = "0f8fad5bd9cb469fa16570867728950e"
STRAY = f"plain-1.{UNIQUE}-stray"
OTHER_ID = "BBBBBBBBBBBBBBBBBBBBBA"


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """The disk after such a start: the directory is aside, and an empty one has its place."""
    folder = writable_copy(FIXTURES / "modern", tmp_path / "disk")
    shutil.copytree(folder / "plain-1", folder / STRAY)
    (folder / STRAY / "partition.metadata").unlink()
    for path in (folder / "plain-1").glob("0*"):
        path.unlink() if path.suffix == ".snapshot" else path.write_bytes(b"")
    (folder / "plain-1" / "leader-epoch-checkpoint").write_text("0\n0\n")
    for path in folder.glob("*-offset-checkpoint"):
        lines = [line for line in path.read_text().splitlines()[2:] if not line.startswith("plain 1 ")]
        path.write_text("\n".join(["0", str(len(lines)), *lines]) + "\n")
    return folder


def told(disk: Path) -> Diagnosis:
    return diagnose(StartRequest((str(disk),)))


def stray_row(found: Diagnosis) -> PartitionFate:
    return next(row for row in found.partitions if row.directory is not None and row.directory.endswith("-stray"))


def test_its_records_are_lost(disk: Path) -> None:
    """The directory was set aside by the start before; it is the only one that has them."""
    found = told(disk)
    row = stray_row(found)
    assert (row.fate, row.lost_records, found.is_harmless) == (Fate.KEEPS, 113, False)
    assert [step.manual for step in found.next] == [f"move {disk / STRAY} out of every log dir"]


def test_once_they_are_adopted_nothing_is_lost(disk: Path) -> None:
    done = run_klog("adopt", str(disk / STRAY), "--to", str(disk), "--apply")
    assert done.exit_code & ~1 == 0, done
    found = told(disk)
    assert (stray_row(found).lost_records, found.is_harmless) == (0, True)


def test_one_of_a_deleted_topic_is_no_loss(disk: Path) -> None:
    """It has another id, or the cluster has no topic of that name."""
    file = disk / STRAY / "partition.metadata"
    file.write_text(f"version: 0\ntopic_id: {OTHER_ID}\n")
    assert told(disk).is_harmless
    file.unlink()
    (disk / STRAY).rename(disk / f"gone-1.{UNIQUE}-stray")
    assert told(disk).is_harmless


def test_one_that_is_being_deleted_may_have_lost_its_id_on_the_way(disk: Path) -> None:
    """A broker removes the files of a deleted topic in any order."""
    (disk / STRAY).rename(disk / f"plain-1.{UNIQUE}-delete")
    assert told(disk).loses == 0


# other batches at the same offsets


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """A -stray directory with ten records, and the served partition with the same batches."""
    return with_stray(tmp_path / "data", "delete")


def with_stray(folder: Path, policy: str) -> Path:
    log = metadata(folder, leader_epoch=0, next_producer_id=None)
    log.add(config(TOPIC, "orders", "cleanup.policy", policy))
    path = partition(folder, [data(offset) for offset in range(0, 10, 2)], [(0, 0)])
    shutil.copytree(path, folder / f"orders-0.{UNIQUE}-stray")
    return path


def test_the_same_batches_are_served(beside: Path) -> None:
    """The leader epoch does not count: klog adopt may write another, and no checksum covers it."""
    (beside / FIRST).write_bytes(b"".join(data(offset, epoch=3) for offset in range(0, 10, 2)))
    (beside / "leader-epoch-checkpoint").write_text("0\n1\n3 0\n")
    found = told(beside.parent)
    assert (stray_row(found).records, stray_row(found).lost_records) == (10, 0)


@pytest.mark.parametrize("state", ["stray", "delete"])
def test_other_batches_at_the_same_offsets_are_another_history(beside: Path, state: str) -> None:
    """The partition was created empty in its place, and producers wrote to it again."""
    later = [data(offset, timestamp=NOW_MS + 1) for offset in range(4, 10, 2)]
    (beside / FIRST).write_bytes(b"".join([data(0), data(2), *later]))
    aside = beside.parent / f"orders-0.{UNIQUE}-stray"
    aside.rename(beside.parent / f"orders-0.{UNIQUE}-{state}")
    found = told(beside.parent)
    (row,) = [row for row in found.partitions if row.directory != "orders-0"]
    assert (row.lost_records, found.is_harmless) == (6, False)


def test_a_log_start_within_a_batch(beside: Path) -> None:
    """The records are counted one by one; those below it were deleted."""
    (beside.parent / "log-start-offset-checkpoint").write_text("0\n1\norders 0 3\n")
    (beside / "leader-epoch-checkpoint").write_text("0\n1\n0 3\n")
    assert stray_row(told(beside.parent)).lost_records == 0
    (beside / FIRST).write_bytes(b"".join([data(0), data(2, timestamp=NOW_MS + 1), *map(data, range(4, 10, 2))]))
    assert stray_row(told(beside.parent)).lost_records == 1


@pytest.mark.parametrize("cleaned", [None, 8])
def test_the_cleaner_makes_new_batches(cleaned: int | None, tmp_path: Path) -> None:
    """Below its checkpoint the offsets decide; all of them if it is not known."""
    beside = with_stray(tmp_path / "data", "compact")
    (beside / FIRST).write_bytes(b"".join([*(data(offset, timestamp=NOW_MS + 1) for offset in (0, 4)), data(8)]))
    if cleaned is not None:
        (beside.parent / "cleaner-offset-checkpoint").write_text(f"0\n1\norders 0 {cleaned}\n")
    assert stray_row(told(beside.parent)).lost_records == 0
