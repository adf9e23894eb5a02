"""A file that the disk returns only in part is replaced, if the logs show its content, and restored by undo."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from klog.base.errors import ExitCode, UnreadableError
from klog.change.plan.model import file_state, same_content

from tests.conftest import run_klog
from tests.faults.lossy_mount import Unreadable, mounted
from tests.faults.single_faults import BLOCK, FILES, PARTITION, log_dir
from tests.support.bad_sectors import spoil
from tests.support.power import tree

pytestmark = [pytest.mark.fuse, pytest.mark.usefixtures("state_home")]

WHY = os.strerror(errno.EIO).encode()
LOG = f"{PARTITION}/*.log"
NOT_FROM_LOGS = (LOG, f"{PARTITION}/partition.metadata")
NOW = "--now=1750000000000"


def _disk(folder: Path, *patterns: str) -> list[Unreadable]:
    """Make a log dir in *folder*; return the block at the middle of the largest file of each kind."""
    folder.mkdir()
    data = log_dir(folder / "data", "killed")
    files = [max(data.glob(one), key=lambda path: path.stat().st_size) for one in patterns]
    return [Unreadable(str(one.relative_to(folder)), one.stat().st_size // 2 // BLOCK * BLOCK, BLOCK) for one in files]


@pytest.mark.parametrize("pattern", [one for one in FILES if one not in NOT_FROM_LOGS])
def test_recover_replaces_what_can_be_told_from_the_logs(pattern: str, tmp_path: Path) -> None:
    """It loses nothing; and undo brings the very file back, on a disk that may give all of it another day."""
    disk, place = tmp_path / "disk", tmp_path / "place"
    bad = _disk(disk, pattern)
    before = tree(disk / "data")
    place.mkdir()
    with mounted(place, disk, tmp_path / "calls", unreadable=bad):
        assert WHY in run_klog("verify", place / "data").stdout
        done = run_klog("recover", place / "data", NOW, "--apply")
        assert done.exit_code == ExitCode.CORRECTED, done
        verified = run_klog("verify", place / "data")
        assert verified.exit_code == ExitCode.CLEAN, verified
        assert tree(disk / "data") != before
        (backup,) = (place / "klog-backup").iterdir()
        undone = run_klog("undo", backup, "--apply")
        assert undone.exit_code == ExitCode.CLEAN, undone
    assert {**tree(disk / "data"), ".lock": 0} == {**before, ".lock": 0}


def test_files_that_cannot_be_read_are_not_taken_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have the same size, and unknown bytes."""
    paths = [tmp_path / name for name in ("one", "other", "renamed")]
    for path in paths[:2]:
        path.write_bytes(bytes(5000))
    spoil(monkeypatch, range(4096, 4097))
    one, other = (file_state(str(path), or_unreadable=True) for path in paths[:2])
    assert one is not None
    assert one.is_unreadable
    assert not same_content(one, other)
    paths[0].rename(paths[2])
    assert same_content(one, file_state(str(paths[2]), or_unreadable=True))
    with pytest.raises(UnreadableError, match="other @ 0: cannot read"):
        file_state(str(paths[1]))


def test_salvage_goes_around_what_cannot_be_read_of_a_log(tmp_path: Path) -> None:
    disk, place = tmp_path / "disk", tmp_path / "place"
    bad = _disk(disk, LOG)
    before = tree(disk / "data")
    place.mkdir()
    with mounted(place, disk, tmp_path / "calls", unreadable=bad):
        done = run_klog("recover", place / "data", NOW, "--salvage", "--apply")
        assert done.exit_code == ExitCode.CORRECTED, done
        assert b"lost 26 records" in done.stdout, done
        assert run_klog("verify", place / "data").exit_code == ExitCode.CLEAN
        (backup,) = (place / "klog-backup").iterdir()
        undone = run_klog("undo", backup, "--apply")
        assert undone.exit_code == ExitCode.CLEAN, undone
    assert {**tree(disk / "data"), ".lock": 0} == {**before, ".lock": 0}


def test_where_the_original_would_have_to_be_copied_nothing_is_changed(tmp_path: Path) -> None:
    """It cannot be kept on another file system: the bytes that the disk still returns would be lost."""
    disk, place = tmp_path / "disk", tmp_path / "place"
    bad = _disk(disk, f"{PARTITION}/*.index")
    before = tree(disk / "data")
    place.mkdir()
    with mounted(place, disk, tmp_path / "calls", unreadable=bad):
        done = run_klog("recover", place / "data", NOW, "--apply", "--backup", tmp_path / "elsewhere")
        assert done.exit_code & ExitCode.OPERATIONAL_ERROR, done
        assert WHY in done.stdout + done.stderr, done
        assert b"nothing was changed" in done.stdout + done.stderr, done
    assert {**tree(disk / "data"), ".lock": 0} == {**before, ".lock": 0}


def test_a_file_that_can_be_read_again_has_changed_since_the_plan_was_made(tmp_path: Path) -> None:
    """Then its bytes may be worth more than those that would replace it."""
    disk, place = tmp_path / "disk", tmp_path / "place"
    bad = _disk(disk, f"{PARTITION}/*.index")
    place.mkdir()
    with mounted(place, disk, tmp_path / "calls", unreadable=bad):
        planned = run_klog("recover", place / "data", NOW, "--save-plan", place / "plan.json")
        assert planned.exit_code == ExitCode.PROBLEMS_LEFT | ExitCode.OPERATIONAL_ERROR, planned
    before = tree(disk / "data")
    with mounted(place, disk, tmp_path / "calls"):
        applied = run_klog("apply", place / "plan.json")
        assert applied.exit_code == ExitCode.OPERATIONAL_ERROR, applied
        assert b"has changed since the plan was made" in applied.stderr, applied
    assert {**tree(disk / "data"), ".lock": 0} == {**before, ".lock": 0}
