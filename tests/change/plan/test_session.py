"""Repairs from Python alone: a session does for a program the same as the command line for an operator."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
from klog.base.errors import PlanError, UsageError
from klog.base.progress import Silence, Sink
from klog.change.plan import draft, session
from klog.change.plan.find_plans import plans_of
from klog.change.plan.model import StaleError
from klog.change.plan.plan_status import PlanStatus, state_of
from klog.change.plan.reporter import Reporter
from klog.change.plan.session import PlanOptions, PlanResult, PlanSession, apply_plan, undo_plan
from klog.cluster.metadata.topic_config import topic_configs
from klog.commands.compact.compaction import CompactionRun, CompactOptions
from klog.commands.compact.log_cleaner import CleanerOptions
from klog.commands.recover.recovery import recover_log_dirs
from klog.data_dir.locks import LockedError
from klog.data_dir.selection import PartitionQuery
from klog.partition.repair.recover_outcome import RecoverMode, RecoverOptions

from tests.change.plan.test_executor import end, other_process, said
from tests.conftest import FIXTURES, writable_copy
from tests.support.power import HastyDisk, KilledError, tree

pytestmark = pytest.mark.usefixtures("state_home")
NOW_MS = 1_795_000_000_000
OPTIONS = RecoverOptions(RecoverMode.DEFAULT, now_ms=NOW_MS)
APPLY = PlanOptions("recover", apply=True)


class Heard:
    """The messages of a session."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.errors: list[str] = []

    def note(self, message: str) -> None:
        self.notes.append(message)

    def error(self, message: str) -> None:
        self.errors.append(message)

    def progress(self) -> AbstractContextManager[Sink]:
        return nullcontext(Silence())


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log dir with a torn tail."""
    return writable_copy(FIXTURES / "crash/torn-in-batch", tmp_path / "w" / "data")


def content(data: Path) -> dict[str, object]:
    return {name: facts for name, facts in tree(data).items() if name not in (".", ".lock")}


def repair(
    data: Path,
    options: PlanOptions = APPLY,
    reporter: Reporter | None = None,
    disk: HastyDisk | None = None,
    beside: Sequence[Path] = (),
) -> PlanResult:
    with PlanSession(
        PartitionQuery([str(path) for path in (data, *beside)]), options, disk or HastyDisk(), reporter
    ) as session:
        recovery = recover_log_dirs(session.selections, OPTIONS, session.staging, {})
        return session.finish(recovery.drafts, losses=recovery.losses, kept=recovery.kept)


class HalfWayDisk(HastyDisk):
    """Its process is killed before the second change of a log."""

    def __init__(self) -> None:
        self.changes = 0

    def rename(self, source: str, target: str) -> None:
        self.changes += "klog-backup" not in target
        if self.changes > 1:
            raise KilledError
        super().rename(source, target)


def killed_half_way(data: Path, *beside: Path) -> None:
    """Begin a repair, and be killed when some of its files have changed."""
    with pytest.raises(KilledError):
        repair(data, disk=HalfWayDisk(), beside=beside)
    (kept,) = plans_of(str(data))
    assert state_of(kept.plan) is PlanStatus.HALF_DONE


def files(folder: Path) -> dict[str, object]:
    """The content of a directory; without the times of directories."""
    return {name: facts if facts[0] is not None else None for name, facts in tree(folder).items()}


def test_a_repair_that_is_applied_and_taken_back(data: Path) -> None:
    """The whole way: the plan is carried out, nothing is left to do, and undo restores the bytes."""
    before = content(data)
    result = repair(data)
    assert result.is_applied
    assert result.plan is not None
    assert [loss.topic for loss in result.plan.losses] == ["torn"]
    assert os.listdir(data.parent / "klog-backup") == [result.plan.id]
    assert not (data / ".lock").exists()
    assert repair(data) == PlanResult(None, is_applied=False)
    back, done = undo_plan(result.plan)
    assert done is not None
    assert done.done == len(back.actions)
    assert content(data) == before
    assert undo_plan(result.plan)[1] is None


def test_plans_of_the_same_second_never_share_a_backup(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The four digits of two of them may be the same: a plan with the backup of another one could not be applied."""
    digits = iter([b"\0\1", b"\0\1", b"\0\1", b"\0\2"])
    monkeypatch.setattr(session.time, "time", lambda: NOW_MS / 1000)
    monkeypatch.setattr(draft.os, "urandom", lambda _: next(digits))
    first = repair(data).plan
    assert first is not None
    assert undo_plan(first)[0].id.endswith("-undo-0001")
    second = repair(data).plan
    assert second is not None
    assert (first.id[-4:], second.id) == ("0001", first.id[:-1] + "2")


def test_a_plan_that_is_only_made_changes_nothing(data: Path) -> None:
    before = files(data.parent)
    result = repair(data, PlanOptions("recover"))
    assert result.plan is not None
    assert result.plan.actions
    assert not result.is_applied
    assert files(data.parent) == before


def test_a_plan_that_is_saved_is_applied_later(data: Path, tmp_path: Path) -> None:
    file = str(tmp_path / "plan")
    saved = repair(data, PlanOptions("recover", plan_file=file))
    assert saved.plan is not None
    plan, result = apply_plan(file)
    assert result is not None
    assert (plan.id, result.done) == (saved.plan.id, len(saved.plan.actions))


def test_saving_and_applying_exclude_each_other(data: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not both"):
        repair(data, PlanOptions("recover", apply=True, plan_file=str(tmp_path / "plan")))


def test_a_log_dir_of_a_running_broker_is_refused(data: Path) -> None:
    """A program must not need to remember the locks: without them a broker and a repair write at once."""
    process = other_process(data / ".lock")
    try:
        said(process)
        before = files(data.parent)
        with pytest.raises(LockedError, match=f"pid {process.pid}"):
            repair(data)
        heard = Heard()
        repair(data, PlanOptions("recover"), heard)
        assert [note.partition(": ")[2] for note in heard.notes] == ["what is planned now may be stale"]
        assert files(data.parent) == before
    finally:
        end(process)


def test_an_interrupted_plan_is_finished_first(data: Path) -> None:
    killed_half_way(data)
    (kept,) = plans_of(str(data))
    heard = Heard()
    assert repair(data, PlanOptions("recover"), heard).plan is not None
    assert heard.notes == [f"{kept.plan.id} is half done: with --apply it is finished first"]
    heard = Heard()
    assert repair(data, reporter=heard) == PlanResult(None, is_applied=False)
    assert heard.notes == [f"finishing {kept.plan.id}, which was interrupted"]
    assert state_of(kept.plan) is PlanStatus.APPLIED


def test_partitions_of_a_plan_that_cannot_be_finished_are_left_out(data: Path) -> None:
    """It needs the locks of other log dirs too; a repair on top of half a plan would destroy the plan's backups."""
    other = writable_copy(data, data.parent / "other")
    killed_half_way(data, other)
    with pytest.raises(StaleError, match="in other log dirs too; first: klog apply"):
        repair(data / "torn-0")
    writable_copy(data / "torn-0", data / "more-0")
    with (data / "more-0" / "00000000000000000364.log").open("ab") as log:
        log.write(b"torn")
    heard = Heard()
    result = repair(data, reporter=heard)
    assert result.is_partial
    assert len(heard.errors) == 1
    assert result.plan is not None
    assert {os.path.dirname(action.file) for action in result.plan.actions} <= {"more-0", ""}
    assert any(action.file.startswith("more-0/") for action in result.plan.actions)


@pytest.mark.parametrize("options", [APPLY, PlanOptions("recover", plan_file="saved")])
def test_a_block_that_fails_leaves_nothing_behind(
    data: Path, options: PlanOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New content waits beside the log dir while a repair is drafted; half a repair must not stay there."""
    monkeypatch.chdir(data.parent)
    before = files(data.parent)

    def fail() -> None:
        with PlanSession(PartitionQuery([str(data)]), options, HastyDisk()) as session:
            assert recover_log_dirs(session.selections, OPTIONS, session.staging, {}).drafts
            assert files(data.parent) != before
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert files(data.parent) == before
    assert repair(data).is_applied


def test_a_block_that_never_finishes_leaves_nothing_behind(data: Path) -> None:
    before = files(data.parent)
    with PlanSession(PartitionQuery([str(data)]), APPLY, HastyDisk()) as session:
        recover_log_dirs(session.selections, OPTIONS, session.staging, {})
    assert files(data.parent) == before


def test_what_a_killed_planner_has_left_is_swept(data: Path) -> None:
    code = f"""
import os
from klog.data_dir.selection import PartitionQuery
from klog.change.plan.session import PlanOptions, PlanSession
from klog.partition.repair.recover_outcome import RecoverMode, RecoverOptions
from klog.commands.recover.recovery import recover_log_dirs
with PlanSession(PartitionQuery([{str(data)!r}]), PlanOptions("recover", apply=True)) as session:
    recover_log_dirs(session.selections, RecoverOptions(RecoverMode.DEFAULT, 0), session.staging, {{}})
    os.kill(os.getpid(), {int(signal.SIGKILL)})
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    (left,) = (data.parent / "klog-backup").iterdir()
    heard = Heard()
    result = repair(data, reporter=heard)
    assert heard.notes == [f"{left.name} was interrupted while it was being made; what it left is removed"]
    assert result.plan is not None
    assert os.listdir(left.parent) == [result.plan.id]


def test_a_backup_in_a_log_dir_is_refused_before_anything_is_made(data: Path) -> None:
    before = files(data.parent)
    with pytest.raises(PlanError, match="lies in the log dir"):
        repair(data, PlanOptions("recover", apply=True, backup=str(data / "backup")))
    assert files(data.parent) == before


def test_a_compaction_in_a_session(tmp_path: Path) -> None:
    data = writable_copy(FIXTURES / "compaction/before", tmp_path / "w" / "data")
    query = PartitionQuery([str(data)], topics=["keys-none"])
    options = CompactOptions(1_795_000_000_000, True, CleanerOptions(1 << 20))
    with PlanSession(query, PlanOptions("compact", apply=True), HastyDisk()) as session:
        topics = topic_configs([one.log_dir for one in session.selections], {"cleanup.policy": "compact"})
        run = CompactionRun(session.selections, session.staging, topics, options, session.disk)
        run.run()
        result = session.finish(run.drafts)
    assert result.is_applied
    assert [one.compacted is not None for one in run.outcomes] == [True]


def test_times_of_ids_are_of_the_session(data: Path) -> None:
    """Plans are listed by when they were made."""
    before = time.gmtime()
    first = repair(data, PlanOptions("recover")).plan
    assert first is not None
    assert first.created >= time.strftime("%Y-%m-%dT%H:%M:%SZ", before)
    assert first.id.split("-")[2] == "recover"
