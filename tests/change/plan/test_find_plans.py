"""A backup elsewhere is found by its log dir and by its id, through a pointer in the log dir."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.change.plan.find_plans import find_plan, load_backup, plans_of
from klog.change.plan.model import Plan
from klog.change.plan.session import PlanOptions
from klog.data_dir.disk.disk_changes import Disk, OpenFile

from tests.change.plan.test_session import repair
from tests.conftest import FIXTURES, Ran, writable_copy

Klog = Callable[..., Ran]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log dir with a torn tail."""
    return writable_copy(FIXTURES / "crash/torn-in-batch", tmp_path / "w" / "data")


def applied(data: Path, backup: Path | None = None) -> Plan:
    result = repair(data, PlanOptions("recover", apply=True, backup=None if backup is None else str(backup)))
    assert result.plan is not None
    return result.plan


def ids(data: Path) -> list[str]:
    return [kept.plan.id for kept in plans_of(str(data))]


def pointer(data: Path, plan: Plan) -> Path:
    return data / f"{plan.id}.klog-backup"


def test_a_backup_elsewhere_is_found_from_its_log_dir_by_anybody(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who looks at the plans of a log dir may be another user than the one who repaired it."""
    modified_ns = data.stat().st_mtime_ns
    plan = applied(data, tmp_path / "elsewhere/backup")
    assert pointer(data, plan).read_text() == plan.backups[0]
    assert pointer(data, plan).stat().st_mode & 0o777 == 0o644
    assert data.stat().st_mtime_ns == modified_ns
    assert ids(data) == [plan.id]
    assert not (data.parent / "klog-backup").exists()
    for place in (data, data / "torn-0", data.parent):
        monkeypatch.chdir(place)
        assert find_plan(plan.id).backup == plan.backups[0]


def test_a_backup_elsewhere_is_found_when_its_log_dir_has_moved(data: Path, tmp_path: Path) -> None:
    """A disk may be mounted somewhere else; its pointer is still there, and its plan is of the log dir as it was."""
    plan = applied(data, tmp_path / "elsewhere/backup")
    moved = data.rename(tmp_path / "moved")
    data.symlink_to(moved)
    assert ids(moved) == [plan.id]


def test_nothing_is_left_in_the_home_of_a_user(data: Path, tmp_path: Path, state_home: Path) -> None:
    applied(data, tmp_path / "elsewhere/backup")
    assert not state_home.exists()


def test_a_backup_beside_its_log_dir_needs_no_pointer(data: Path) -> None:
    plan = applied(data)
    assert os.listdir(data.parent / "klog-backup") == [plan.id]
    assert not pointer(data, plan).exists()
    assert ids(data) == [plan.id]


def test_a_plan_that_is_refused_leaves_no_pointer(data: Path, tmp_path: Path, klog: Klog) -> None:
    saved = tmp_path / "plan.json"
    assert klog("recover", data, "--save-plan", saved, "--backup", tmp_path / "elsewhere").exit_code == 4
    (data / "torn-0/00000000000000000364.index").write_bytes(b"changed")
    assert klog("apply", saved).exit_code == 8
    assert not list(data.glob("*.klog-backup"))
    assert not (tmp_path / "elsewhere").exists()


def test_a_plan_is_carried_out_where_a_pointer_finds_no_room(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is what many repairs begin with."""
    create = Disk.create

    def full(disk: Disk, path: str) -> OpenFile:
        if path.endswith(".klog-backup"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return create(disk, path)

    monkeypatch.setattr(Disk, "create", full)
    plan = applied(data, tmp_path / "elsewhere/backup")
    assert ids(data) == []
    assert load_backup(plan.backups[0]).plan.id == plan.id


def test_the_commands_that_read_a_log_dir_take_no_notice_of_a_pointer(data: Path, tmp_path: Path, klog: Klog) -> None:
    plan = applied(data, tmp_path / "elsewhere/backup")
    pointer(data, plan).rename(tmp_path / "pointer")
    commands = (("verify", data), ("doctor", data), ("describe", data), ("recover", data))
    without = [klog(*command) for command in commands]
    (tmp_path / "pointer").rename(pointer(data, plan))
    assert [klog(*command) for command in commands] == without


def test_an_undo_by_id_and_the_list_of_plans(
    klog: Klog, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = klog("recover", data, "--apply", "--backup", tmp_path / "elsewhere/backup")
    assert done.exit_code == 1
    (identity,) = ids(data)
    assert identity in klog("plans", data).stdout.decode()
    monkeypatch.chdir(data)
    assert klog("undo", identity, "--apply").exit_code == 0
