"""Copies on the way between log dirs: the start that renames one, and what keeps it from that."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from klog.commands.doctor.broker_start import diagnose
from klog.commands.doctor.diagnosis import HARMLESS, Fate, PartitionFate
from klog.commands.doctor.partition_fates import MAY_HAVE_NO_LEADER, MAY_LOAD_FIRST, MAY_RENAME_FIRST
from klog.commands.doctor.start_request import StartRequest

from tests.commands.doctor.disks import follow
from tests.conftest import FIXTURES, writable_copy

COPY = "plain-1.0f8fad5bd9cb469fa16570867728950e-future"
OTHER_ID = "AAAAAAAAQACAAAAAAAAAAA"


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """Return a log dir with a copy that becomes the partition; its metadata log names this log dir."""
    folder = writable_copy(FIXTURES / "modern", tmp_path / "disk")
    (folder / "plain-1").rename(folder / COPY)
    return folder


def request(disk: Path) -> StartRequest:
    return StartRequest((str(disk),), count_all=True)


def row_of(disk: Path, directory: str) -> PartitionFate:
    return next(row for row in diagnose(request(disk)).partitions if row.directory == directory)


def change_id(disk: Path) -> None:
    """Give the log dir an id that the metadata log does not have."""
    file = disk / "meta.properties"
    lines = [line for line in file.read_text().splitlines() if not line.startswith("directory.id=")]
    file.write_text("\n".join([*lines, f"directory.id={OTHER_ID}"]) + "\n")


def test_a_copy_becomes_the_partition(disk: Path) -> None:
    """Nothing is lost by it."""
    row = row_of(disk, COPY)
    assert (row.fate, row.reason, row.records) == (Fate.PROMOTES, "future-complete", 113)
    assert diagnose(request(disk)).is_harmless


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
def test_it_is_not_renamed_in_a_log_dir_with_a_malformed_checkpoint(disk: Path, tmp_path: Path, name: str) -> None:
    """The broker stops on it: the log dir counts as offline since the load."""
    shutil.rmtree(disk / "tx-open-0")  # the broker would stop on its open transaction before
    (disk / name).write_text("0\n1\n1 2\n")
    told = diagnose(request(disk))
    assert told.failure is not None
    assert (told.failure.id, told.failure.directory) == ("checkpoint-malformed", COPY)
    assert told.failure.message.endswith("is already offline")
    follow(told.next, tmp_path / "aside")
    assert diagnose(request(disk)).is_harmless


@pytest.mark.parametrize(
    ("file", "reason"), [("leader-epoch-checkpoint", "epochs-malformed"), ("partition.metadata", "metadata-malformed")]
)
def test_nor_in_one_that_another_partition_took_offline(disk: Path, tmp_path: Path, file: str, reason: str) -> None:
    """The steps are about that partition; after them the copy becomes the partition."""
    (disk / "plain-2" / file).write_text("nothing\nof that kind")
    told = diagnose(request(disk))
    assert told.failure is not None
    assert (told.failure.id, told.failure.directory) == (reason, COPY)
    assert told.next
    assert all("plain-2" in (step.command or step.manual or "") for step in told.next)
    follow(told.next, tmp_path / "aside")
    assert diagnose(request(disk)).is_harmless


@pytest.mark.parametrize("is_stray", [False, True])
def test_a_log_dir_that_another_partition_takes_offline(disk: Path, tmp_path: Path, is_stray: bool) -> None:
    """An open transaction or a stray in it stops the broker, unless it is loaded before: doctor names the worse."""
    other, moved = tmp_path / "other", "gzip-0" if is_stray else "tx-open-0"
    other.mkdir()
    (other / "meta.properties").write_text((disk / "meta.properties").read_text())
    change_id(other)
    for name in (moved, "plain-2"):
        (disk / name).rename(other / name)
    if is_stray:
        (other / moved / "partition.metadata").unlink()
    both = StartRequest((str(disk), str(other)), count_all=True)
    assert diagnose(both).failure is None
    (other / "plain-2/leader-epoch-checkpoint").write_text("nothing\nof that kind")
    told = diagnose(both)
    assert told.failure is not None
    assert (told.failure.id, told.failure.directory) == ("epochs-malformed", moved)
    assert MAY_LOAD_FIRST in told.failure.message
    assert any("plain-2" in (step.command or "") for step in told.next)


def test_it_may_be_renamed_before_the_log_cleaner_reads_its_checkpoint(disk: Path, tmp_path: Path) -> None:
    """Two threads decide it: the answer is the worse one, and names the other."""
    (disk / "cleaner-offset-checkpoint").write_text("0\n1\n1 2\n")
    told = diagnose(request(disk))
    assert told.failure is not None
    assert (told.failure.id, told.failure.directory) == ("checkpoint-malformed", COPY)
    assert MAY_RENAME_FIRST in told.failure.message
    follow(told.next, tmp_path / "aside")
    assert diagnose(request(disk)).is_harmless


@pytest.mark.parametrize("is_longer", [False, True])
def test_a_copy_beside_its_partition_stays_if_the_metadata_have_it_elsewhere(disk: Path, is_longer: bool) -> None:
    """The broker ignores it, and a later start stops on it; so it has to be moved away, whatever is in it."""
    shutil.copytree(disk / COPY, disk / "plain-1")
    change_id(disk)
    if is_longer:
        log = max(path for path in (disk / "plain-1").glob("*.log") if path.stat().st_size)
        os.truncate(log, 0)
    kept, current = row_of(disk, COPY), row_of(disk, "plain-1")
    assert (kept.fate, kept.reason, bool(kept.lost_records)) == (Fate.KEEPS, "future-beside-current", is_longer)
    assert (current.fate, current.reason) == (Fate.LEADERLESS, "directory-id-unknown")
    told = diagnose(request(disk))
    assert not told.is_harmless
    assert f"move {disk / COPY} out of every log dir" in {step.manual for step in told.next}


def test_a_served_partition_beside_its_copy_is_no_clean_answer(disk: Path, tmp_path: Path) -> None:
    """The metadata have all partitions in a second log dir: the start after the next one stops on the copy."""
    shutil.copytree(disk / COPY, disk / "plain-1")
    other = tmp_path / "other"
    other.mkdir()
    for name in ("meta.properties", ".kafka_cleanshutdown"):
        if (disk / name).exists():
            shutil.copy(disk / name, other)
    change_id(disk)
    told = diagnose(StartRequest((str(disk), str(other)), count_all=True))
    rows = {row.directory: row for row in told.partitions}
    assert (rows["plain-1"].fate, rows[COPY].fate) == (Fate.SERVES, Fate.KEEPS)
    assert {row.fate for row in told.partitions} <= HARMLESS
    assert (told.starts, told.loses, told.is_harmless) == (True, 0, False)


def test_an_empty_partition_that_is_made_for_it_may_have_no_leader(disk: Path) -> None:
    """The metadata log has the partition in a log dir that this broker does not have."""
    change_id(disk)
    row = row_of(disk, COPY)
    assert (row.fate, row.reason, row.lost_records) == (Fate.EMPTIES, "future-without-current", 113)
    assert MAY_HAVE_NO_LEADER in row.message
