"""A backup elsewhere is found by its log dir and by its id, and finding it costs no more from day to day."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from klog.base.read_only import ReadOnlyFile
from klog.change.plan import pointers
from klog.change.plan.backups import find_plan, plans_of
from klog.change.plan.model import Plan
from klog.change.plan.pointers import forget, remember
from klog.change.plan.session import PlanOptions

from tests.change.plan.test_session import repair
from tests.conftest import FIXTURES, Ran, writable_copy

Klog = Callable[..., Ran]
LONG_AGO = time.time() - 31 * 24 * 3600


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log dir with a torn tail."""
    return writable_copy(FIXTURES / "crash/torn-in-batch", tmp_path / "w" / "data")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The pointers that are read, as they are."""
    paths: list[str] = []

    class Counting(ReadOnlyFile):
        def __init__(self, path: str) -> None:
            paths.append(path)
            super().__init__(path)

    monkeypatch.setattr(pointers, "ReadOnlyFile", Counting)
    return paths


def applied(data: Path, backup: Path | None = None) -> Plan:
    result = repair(data, PlanOptions("recover", apply=True, backup=None if backup is None else str(backup)))
    assert result.plan is not None
    return result.plan


def ids(data: Path) -> list[str]:
    return [kept.plan.id for kept in plans_of(str(data))]


def stale_notes(state_home: Path, count: int) -> Path:
    """Leave notes as an older klog did, whose backups are gone."""
    notes = state_home / "klog/plans"
    notes.mkdir(parents=True)
    for number in range(count):
        note = notes / f"20260101-000000-recover-{number:04x}"
        note.write_text(f"/nowhere/klog-backup/{note.name}")
        os.utime(note, (LONG_AGO, LONG_AGO))
    return notes


def test_a_backup_elsewhere_is_found_from_its_log_dir_by_anybody(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state_home: Path
) -> None:
    """Who looks at the plans of a log dir may be another user than the one who repaired it."""
    plan = applied(data, tmp_path / "elsewhere/backup")
    assert (data.parent / f"klog-backup/{plan.id}.path").read_text() == plan.backups[0]
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    assert ids(data) == [plan.id]
    monkeypatch.chdir(data)
    assert find_plan(plan.id).backup == plan.backups[0]
    monkeypatch.chdir("/")
    monkeypatch.setenv("XDG_STATE_HOME", str(state_home))
    assert find_plan(plan.id).backup == plan.backups[0]


@pytest.mark.usefixtures("state_home")
def test_a_backup_beside_its_log_dir_needs_no_pointer(data: Path) -> None:
    plan = applied(data)
    assert os.listdir(data.parent / "klog-backup") == [plan.id]
    assert ids(data) == [plan.id]


def test_where_nothing_may_be_written_beside_a_log_dir_the_pointer_is_at_home(
    data: Path, tmp_path: Path, state_home: Path
) -> None:
    """A log dir that is a volume of its own is such a case: its backup is elsewhere for that reason."""
    (data.parent / "klog-backup").touch()
    plan = applied(data, tmp_path / "elsewhere/backup")
    assert ids(data) == [plan.id]
    (index,) = (state_home / "klog/log-dirs").iterdir()
    assert os.listdir(index) == [plan.id]
    forget(plan)
    assert ids(data) == []
    assert not index.exists()


def test_notes_of_an_older_klog_are_found_and_read_once(
    data: Path, tmp_path: Path, state_home: Path, read: list[str]
) -> None:
    """They say nothing of log dirs; each was read for each log dir."""
    plan = applied(data, tmp_path / "elsewhere/backup")
    (data.parent / f"klog-backup/{plan.id}.path").unlink()
    (state_home / "klog/log-dirs").rmdir()
    assert ids(data) == [plan.id]
    remember(plan._replace(id="20990101-000000-recover-0000"))
    read.clear()
    assert ids(data) == [plan.id]
    assert len(read) <= 2
    assert find_plan(plan.id).backup == plan.backups[0]


def test_hundreds_of_stale_notes_cost_nothing(data: Path, state_home: Path, read: list[str]) -> None:
    """Each change of a log dir read all that anybody had ever left: a tenth of what it did, after some days."""
    notes = stale_notes(state_home, 250)
    plan = applied(data)  # looks once what the notes of an older klog lead to
    read.clear()
    forget(plan)
    remember(plan)
    assert ids(data) == [plan.id]
    assert len(read) <= 8
    assert 240 <= len(os.listdir(notes)) < 250


def test_stale_notes_go_faster_than_new_ones_come(data: Path, state_home: Path) -> None:
    """Nothing grows for ever; a note whose backup is there stays, and one that is new, whatever became of it."""
    notes = stale_notes(state_home, 40)
    plan = applied(data)
    os.utime(notes / plan.id, (LONG_AGO, LONG_AGO))
    for number in range(200):
        other = plan._replace(id=f"20260102-000000-recover-{number:04x}", backups=(f"/nowhere/{number}",))
        remember(other)
        forget(other)
    assert os.listdir(notes) == [plan.id]


def test_pointers_beside_a_log_dir_go_when_their_backups_have_been_gone_for_long(
    data: Path, tmp_path: Path, state_home: Path
) -> None:
    """A disk with backups may be unmounted for a while; after a month it is no longer waited for."""
    gone, unmounted = (data.parent / f"klog-backup/20260101-000000-recover-000{n}.path" for n in (1, 2))
    gone.parent.mkdir()
    for path in (gone, unmounted):
        path.write_text("/nowhere")
    os.utime(gone, (LONG_AGO, LONG_AGO))
    plan = applied(data, tmp_path / "elsewhere/backup")
    assert sorted(os.listdir(gone.parent)) == [unmounted.name, f"{plan.id}.path"]


@pytest.mark.usefixtures("state_home")
def test_an_undo_by_id_and_the_list_of_plans_from_anywhere(
    klog: Klog, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = klog("recover", data, "--apply", "--backup", tmp_path / "elsewhere/backup")
    assert done.exit_code == 1
    (identity,) = ids(data)
    monkeypatch.chdir("/")
    assert identity in klog("plans", data).stdout.decode()
    assert klog("undo", identity, "--apply").exit_code == 0
