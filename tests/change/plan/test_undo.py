"""Taking back: the tree is as it was, to the last modification time, or nothing happens."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from klog.base.errors import PlanError, UsageError
from klog.change.plan.draft import Draft, backup_places, make_plan, plan_id
from klog.change.plan.executor import apply
from klog.change.plan.find_plans import find_plan, load_backup, plans_of
from klog.change.plan.model import PUT, REMOVE, STAGED, UNFINISHED, Plan, StaleError
from klog.change.plan.plan_document import load_plan, plan_pieces
from klog.change.plan.plan_status import Announcement, PlanStatus, state_of
from klog.change.plan.session import undo_plan
from klog.change.plan.staging import Staging
from klog.change.plan.undo import plan_undo, stage_undo
from klog.data_dir.disk.disk_changes import Disk

from tests.change.plan.test_executor import NOW, name, original, plan_repair, repair
from tests.support.power import (
    HastyDisk,
    PowerCutDisk,
    PowerCutError,
    SteppedDisk,
    copy_of,
    take_back,
    tree,
    unfinished,
)

__all__ = ["original"]


def test_undo_brings_back_everything_and_undo_of_undo_does_it_again(original: Path) -> None:
    before = tree(original)
    plan = plan_repair(original, Disk())
    apply(plan, Disk())
    after = tree(original)
    back = take_back(plan, Disk())
    assert tree(original) == before
    assert (back.undoes, back.command) == (plan.id, f"klog undo {plan.id}")
    again = take_back(back, Disk())
    assert tree(original) == after
    take_back(again, Disk())
    assert tree(original) == before


def test_the_very_file_comes_back(original: Path) -> None:
    """Bringing a log back by a copy would need the room once more."""
    file = original / name(1900, "log")
    inode = file.stat().st_ino
    plan = plan_repair(original, Disk())
    apply(plan, Disk())
    take_back(plan, Disk())
    assert file.stat().st_ino == inode


def test_undo_goes_the_other_way_round(original: Path) -> None:
    """A broker that survives each step forwards also survives each step backwards."""
    plan = plan_repair(original, Disk())
    apply(plan, Disk())
    back = plan_undo(plan, NOW)
    files = [action.file for action in back.actions if action.file.startswith("orders-3")]
    assert files == [action.file for action in reversed(plan.actions) if action.file.startswith("orders-3")]
    index = [action for action in back.actions if action.file == name(1841, "index")]
    assert [action.do for action in index] == [PUT, PUT]
    assert [action.after.size for action in index if action.after] == [0, 20]
    created = next(action for action in back.actions if action.file == name(1841, "txnindex"))
    assert created.do == REMOVE


@pytest.mark.parametrize("file", [name(1841, "log"), name(1841, "txnindex"), "recovery-point-offset-checkpoint"])
def test_what_was_used_since_is_not_taken_back(original: Path, file: str) -> None:
    """The broker has written behind the cut: bringing back the tail would bury that."""
    plan = plan_repair(original, Disk())
    apply(plan, Disk())
    with (original / file).open("ab") as used:
        used.write(b"more")
    before = tree(original)
    with pytest.raises(StaleError, match=f"{file}: used since"):
        plan_undo(plan, NOW)
    assert tree(original) == before
    assert state_of(plan) is PlanStatus.USED_SINCE


def test_half_of_a_plan_that_changes_no_segment_is_taken_back_below_a_log_that_has_grown(original: Path) -> None:
    """Even where a broker has appended to the first segment, whose base offset is 0."""
    for file in sorted((original / "orders-3").glob(f"{1841:020}.*")):
        file.rename(original / name(0, file.suffix[1:]))
    epochs, log = original / "orders-3/leader-epoch-checkpoint", original / name(0, "log")
    before = epochs.read_bytes()
    number = plan_id("recover", NOW)
    backups = backup_places(number, [str(original)])
    draft = Draft(str(original), 0, Staging(os.path.join(backups[0], STAGED), Disk()))
    draft.put("orders-3/leader-epoch-checkpoint", [b"0\n1\n1 0\n"])
    draft.put("recovery-point-offset-checkpoint", [b"0\n1\norders 3 0\n"])
    plan = make_plan(number, "klog recover data --apply", [str(original)], backups, [draft], NOW)

    class Dying(Disk):
        def rename(self, source: str, target: str) -> None:
            if target.endswith("original/recovery-point-offset-checkpoint"):
                raise PowerCutError
            super().rename(source, target)

    with pytest.raises(PowerCutError):
        apply(plan, Dying())
    assert epochs.read_bytes() != before
    with log.open("ab") as used:
        used.write(b"more")
    grown = log.read_bytes()
    take_back(plan, Disk())
    assert (epochs.read_bytes(), log.read_bytes()) == (before, grown)


@pytest.mark.parametrize("kept", [f"originals/{name(1900, 'log')}", f"tails/{name(1841, 'log')}"])
def test_without_the_originals_nothing_is_taken_back(original: Path, kept: str) -> None:
    plan = plan_repair(original, Disk())
    apply(plan, Disk())
    Path(plan.backups[0], kept).unlink()
    with pytest.raises(StaleError, match=f"{kept}: gone"):
        plan_undo(plan, NOW)


@pytest.mark.parametrize("kept", [f"originals/{name(1841, 'index')}", f"tails/{name(1841, 'log')}"])
def test_originals_that_have_changed_are_not_brought_back(original: Path, kept: str) -> None:
    plan = plan_repair(original, Disk())
    apply(plan, Disk())
    path = Path(plan.backups[0], kept)
    content = bytearray(path.read_bytes())
    content[3] ^= 0xFF
    path.write_bytes(content)
    after = tree(original)
    back = plan_undo(plan, NOW)

    def carry_out() -> None:
        apply(stage_undo(plan, back, Disk()), Disk())

    with pytest.raises(StaleError):
        carry_out()
    assert tree(original) == after
    assert not os.path.exists(back.backups[0])


def test_what_has_been_taken_back_is_not_taken_back_again(original: Path) -> None:
    plan = plan_repair(original, Disk())
    assert plan_undo(plan, NOW).actions == ()
    apply(plan, Disk())
    take_back(plan, Disk())
    assert plan_undo(plan, NOW).actions == ()


def half_done(data: Path, calls_left: int = 20) -> Plan:
    """Repair, and lose power when it is half done; the disk keeps all names."""
    counting = SteppedDisk(data.parent)
    apply(plan_repair(copy_of(data, data.parent / "count"), HastyDisk()), counting)
    plan = plan_repair(data, HastyDisk())
    disk = PowerCutDisk(data.parent, len(counting.calls) - calls_left)
    with pytest.raises(PowerCutError):
        apply(plan, disk)
    return plan


def test_what_is_half_done_can_be_taken_back(original: Path) -> None:
    before = tree(original)
    plan = half_done(original)
    assert state_of(plan) is PlanStatus.HALF_DONE
    assert [kept.plan.id for kept in unfinished(str(original))] == [plan.id]
    take_back(plan, Disk())
    assert {**tree(original), ".lock": 0} == {**before, ".lock": 0}
    assert unfinished(str(original)) == []


def test_how_far_a_plan_has_come(original: Path) -> None:
    plan = plan_repair(original, Disk())
    assert state_of(plan) is PlanStatus.NOT_BEGUN
    apply(plan, Disk())
    assert state_of(plan) is PlanStatus.APPLIED
    assert unfinished(str(original)) == []
    back = take_back(plan, Disk())
    assert state_of(plan) is PlanStatus.TAKEN_BACK
    assert state_of(back) is PlanStatus.APPLIED
    (original / name(1841, "log")).unlink()
    (original / name(1841, "log")).mkdir()
    assert state_of(plan) is PlanStatus.USED_SINCE


def test_a_plan_whose_new_files_have_their_old_names_again_is_applied(original: Path) -> None:
    """After a power cut at its end, before the directory of new files was synced: not all of them have a place."""
    before, file = tree(original), "orders-3/leader-epoch-checkpoint"
    backup = original.parent / "klog-backup/x"
    draft = Draft(str(original), 0, Staging(str(backup / STAGED), HastyDisk()))
    draft.put(file, [b"0\n1\n1 0\n"])
    draft.put(name(1841, "index"), [b"entries!"])
    draft.put(file, [b"0\n2\n1 0\n2 1900\n"])
    plan = make_plan("x", "klog", [str(original)], [str(backup)], [draft], NOW)
    shutil.copytree(backup / STAGED, original.parent / "kept", copy_function=os.link)
    apply(plan, HastyDisk())
    shutil.copytree(original.parent / "kept", backup / STAGED, copy_function=os.link)
    (backup / UNFINISHED).touch()
    assert state_of(plan) is PlanStatus.APPLIED
    take_back(plan, HastyDisk())
    assert {**tree(original), ".lock": 0} == {**before, ".lock": 0}


def test_files_of_the_same_size_and_time_are_told_apart(original: Path) -> None:
    """A rebuilt index has the size and the time of the one that it replaces."""
    file = name(1900, "index")
    draft = Draft(str(original), 0, Staging(str(original.parent / "staged"), Disk()))
    draft.put(file, [bytes(reversed((original / file).read_bytes()))])
    plan = make_plan("x", "klog", [str(original)], [str(original.parent / "klog-backup" / "x")], [draft], NOW)
    assert state_of(plan) is PlanStatus.NOT_BEGUN
    apply(plan, Disk())
    assert state_of(plan) is PlanStatus.APPLIED


@pytest.mark.usefixtures("state_home")
def test_plans_are_found_by_file_directory_and_id(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_repair(original, Disk())
    apply(plan, Disk())
    stored = load_plan(os.path.join(plan.backups[0], "plan.json"))
    monkeypatch.chdir(original / "orders-3")
    for what in (f"{plan.backups[0]}/plan.json", plan.backups[0], plan.id, os.path.dirname(plan.backups[0])):
        assert find_plan(what).plan == stored
    assert find_plan(plan.id, os.path.dirname(plan.backups[0])).backup == plan.backups[0]
    monkeypatch.chdir("/")
    with pytest.raises(UsageError, match="expected a plan's file"):
        find_plan(plan.id)


@pytest.mark.usefixtures("state_home")
def test_plans_of_a_log_dir_are_those_beside_it_and_those_of_pointers(original: Path, tmp_path: Path) -> None:
    plan = plan_repair(original, Disk(), str(tmp_path / "far" / "backup"))
    apply(plan, Disk())
    other = copy_of(original, tmp_path / "other")
    (tmp_path / "klog-backup" / "broken").mkdir(parents=True)
    (tmp_path / "klog-backup" / "broken" / "plan.json").write_bytes(b"{")
    assert [kept.plan.id for kept in plans_of(str(original))] == [plan.id]
    assert plans_of(str(other)) == []


def test_a_backup_that_was_moved_still_serves(original: Path, tmp_path: Path) -> None:
    before = tree(original)
    plan = plan_repair(original, Disk())
    apply(plan, Disk())
    shutil.move(plan.backups[0], tmp_path / "moved")
    kept = load_backup(str(tmp_path / "moved"))
    assert kept.plan.backups == (str(tmp_path / "moved"),)
    take_back(kept.plan, Disk())
    assert tree(original) == before


def test_a_directory_without_a_plan_is_no_backup(original: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no backup, there is no plan\.json in it"):
        find_plan(str(tmp_path))
    (tmp_path / "plan.json").write_bytes(b"{}")
    with pytest.raises(PlanError, match=r"plan\.json: the plan is refused"):
        find_plan(str(tmp_path))


def test_several_log_dirs_are_one_plan(original: Path, tmp_path: Path) -> None:
    """Brokers have many disks; a repair of all of them is taken back as one."""
    second = copy_of(original, tmp_path / "second")
    (tmp_path / "both").mkdir()
    first, second = (
        Path(shutil.move(path, tmp_path / "both" / name)) for path, name in ((original, "one"), (second, "two"))
    )
    before = tree(first), tree(second)
    plans = [plan_repair(path, Disk()) for path in (first, second)]
    backups = tuple(str(tmp_path / "both" / "klog-backup" / f"x{n}") for n in (0, 1))
    plan = Plan(
        "x",
        "",
        "klog",
        (str(first), str(second)),
        backups,
        tuple(action._replace(log_dir=n) for n in (0, 1) for action in plans[n].actions),
        staging=tuple(one.staged(0) for one in plans),
        no_lock=(0, 1),
        directory_times={
            (n, inside): modified_ns for n in (0, 1) for (_, inside), modified_ns in plans[n].directory_times.items()
        },
    )
    apply(plan, Disk())
    assert load_backup(backups[1]).plan.actions == plan.actions
    assert ".kafka_cleanshutdown" not in {*tree(first), *tree(second)}
    take_back(plan, Disk())
    assert (tree(first), tree(second)) == before


def test_a_plan_file_keeps_its_new_files_beside_it(original: Path, tmp_path: Path) -> None:
    """It may be carried out days later, from where it was written to."""
    draft = Draft(str(original), 0, Staging(str(tmp_path / "p.staged" / "0"), Disk()))
    draft.put(name(1841, "index"), [b"entries!"])
    plan = make_plan("x", "klog", [str(original)], [str(tmp_path / "klog-backup" / "x")], [draft], NOW)
    assert b"p.staged/0" in b"".join(plan_pieces(plan))
    apply(plan, Disk())
    assert (original / name(1841, "index")).read_bytes() == b"entries!"


def test_a_repair_that_has_nothing_to_do_leaves_nothing(original: Path) -> None:
    repair(original, Disk())
    after = tree(original)
    repair(original, Disk())
    assert tree(original) == after


def test_undo_removes_what_a_killed_process_had_made_ready(original: Path) -> None:
    """It may be as large as the log dir, and `klog plans` would call it a plan that is being made for ever."""
    plan = plan_repair(original, Disk())
    apply(plan, Disk())
    number = plan_id("recover", NOW + 1000)
    begun = make_plan(number, plan.command, [str(original)], backup_places(number, [str(original)]), [], NOW + 1000)
    Announcement(begun, Disk()).make()
    staged = Path(begun.backups[0], STAGED, "orders-3")
    staged.mkdir(parents=True)
    (staged / "log").write_bytes(b"half of it")
    assert [kept.plan.id for kept in plans_of(str(original))] == [plan.id, number]
    back, done = undo_plan(plan)
    assert done is not None
    assert not Path(begun.backups[0]).exists()
    assert {kept.plan.id for kept in plans_of(str(original))} == {plan.id, back.id}
