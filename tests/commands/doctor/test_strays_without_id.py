"""Directories that an earlier start set aside because they have no topic id: they may be the cluster's."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from klog.commands.doctor.broker_start import diagnose
from klog.commands.doctor.diagnosis import Diagnosis, Fate, PartitionFate
from klog.commands.doctor.start_request import StartRequest

from tests.conftest import FIXTURES, run_klog, writable_copy

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
