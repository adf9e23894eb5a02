"""A plan over three brokers' log dirs can be finished and taken back after a power cut or a kill at any call.

The third log dir behaves as one on another file system: nothing of it can be renamed or linked to where the others are,
and all originals go to one place beside those.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random

import pytest
from klog.change.plan.executor import apply
from klog.change.plan.file_history import locate_histories
from klog.change.plan.find_plans import kept_plan, plans_of
from klog.change.plan.model import Plan
from klog.change.plan.plan_status import PlanStatus, is_unfinished, state_of
from klog.change.plan.session import PlanOptions, PlanSession
from klog.cluster.metadata.topic_config import TopicConfig
from klog.commands.replicas.copy_choice import CopyChoice
from klog.commands.replicas.copy_plan import CopyPlan, CopyPlanSettings, of_copies
from klog.commands.replicas.diff import DiffOptions, ReplicaDiffer
from klog.commands.replicas.disks import copies_on, find_metadata, open_disks
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.log_dir import LogDir
from klog.data_dir.selection import PartitionQuery

from tests.support.power import (
    MODELS,
    DeadlyDisk,
    KilledError,
    PowerCutDisk,
    PowerCutError,
    SteppedDisk,
    Tree,
    less_pointers,
    take_back,
    tree,
)

pytestmark = [pytest.mark.corpora, pytest.mark.usefixtures("state_home")]

NOW_MS = 1_800_000_000_000
SCENES = (("split", "orders-0", CopyChoice("newest")), ("damage", "orders-1", CopyChoice(None, {}, True)))


def check_crossing(source: str, target: str) -> None:
    """Refuse what cannot be done from one file system to another."""
    if ("/broker-3/" in source) != ("/broker-3/" in target):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), source)


class TwoFileSystems(SteppedDisk):
    """The third log dir is on a file system of its own."""

    def rename(self, source: str, target: str) -> None:
        check_crossing(source, target)
        super().rename(source, target)

    def link(self, source: str, target: str) -> None:
        check_crossing(source, target)
        super().link(source, target)


class CutDisk(TwoFileSystems, PowerCutDisk):
    """Loses power."""


class KillDisk(TwoFileSystems, DeadlyDisk):
    """Dies."""


class QuietDisk(TwoFileSystems):
    """It continues."""


@pytest.fixture
def state_home(monkeypatch: pytest.MonkeyPatch, memory: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(memory / "cut" / "state"))


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """Return a directory in memory, where there is one: a disk there loses power hundreds of times a second."""
    shm = Path("/dev/shm")
    folder = shm / f"klog-{os.getpid()}-{tmp_path.name}" if shm.is_dir() else tmp_path
    folder.mkdir(exist_ok=True)
    yield folder
    shutil.rmtree(folder)


def scene(image: Callable[[str], Path], name: str, partition: str, target: Path) -> Path:
    """Return the brokers' disks with this partition alone."""
    found = image(f"replicas/{name}.tar.xz")
    for broker in sorted(found.glob("broker-*")):
        data = target / broker.name / "data"
        shutil.copytree(broker, data, symlinks=True)
        for directory in data.iterdir():
            if directory.is_dir() and directory.name not in (partition, "__cluster_metadata-0"):
                shutil.rmtree(directory)
    return target


def log_dirs(root: Path) -> list[Path]:
    return sorted(root.glob("broker-*/data"))


Work = Callable[[Path, Disk, "Path | None"], object]
"""The change of the log dirs below a directory, with originals in a place or beside them."""


def equalise(choice: CopyChoice, root: Path, disk: Disk, backup: Path | None) -> None:
    """Make the copies equal; nothing happens where they are."""
    paths = [str(path) for path in log_dirs(root)]
    options = PlanOptions("replicas", apply=True, backup=None if backup is None else str(backup))
    with PlanSession(PartitionQuery(paths), options, disk) as session:
        disks = open_disks(paths)
        metadata = find_metadata(disks)
        assert metadata is not None
        config = TopicConfig(None, {}, LogDir(metadata.path))
        differ = ReplicaDiffer(disks, DiffOptions(metadata, config))
        plan = CopyPlan(disks, session.staging, differ, CopyPlanSettings(choice, config, NOW_MS, NOW_MS))
        for found in copies_on(disks):
            plan.add(found)
        session.finish(plan.drafts(), losses=plan.losses, revise=partial(of_copies, plan.copies))


def state(root: Path, *, times: bool = True) -> dict[str, Tree]:
    """Return all log dirs, without their locks: the power may fail before their owner is recorded."""
    found = {path.parent.name: less_pointers(tree(path, directory_times=times)) for path in log_dirs(root)}
    return {
        broker: {name: entry for name, entry in files.items() if name != ".lock"} for broker, files in found.items()
    }


def changed(now: dict[str, Tree], wanted: dict[str, Tree]) -> list[tuple[object, ...]]:
    """Return the names that differ."""
    return [
        (broker, name, now[broker].get(name), wanted[broker].get(name))
        for broker in wanted
        for name in now[broker].keys() | wanted[broker].keys()
        if now[broker].get(name) != wanted[broker].get(name)
    ]


def fresh(original: Path, root: Path) -> Path:
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    subprocess.run(["cp", "-a", f"{original}/.", root], check=True)  # with all times
    return root


def stopped(work: Callable[[Disk], object], root: Path, at: int, model: str) -> bool:
    """Let *work* continue until call number *at*; return whether it reached that."""
    disk = KillDisk(root, at) if model == "killed" else CutDisk(root, at)
    try:
        work(disk)
    except PowerCutError:
        assert isinstance(disk, CutDisk)
        disk.lose_power(model, Random(at))
    except KilledError:
        pass
    else:
        return False
    return True


def plans(root: Path) -> dict[str, Plan]:
    """Return the plans that an operator finds; the pointers to backups elsewhere may be lost with the power."""
    found = {kept.plan.id: kept.plan for path in log_dirs(root) for kept in plans_of(str(path)) if kept.plan.actions}
    for place in root.glob("kept/**/plan.json"):
        kept = kept_plan(str(place))
        if kept is not None:
            found.setdefault(kept.id, kept)
    return {name: plan for name, plan in found.items() if plan.actions}


def check_known_everywhere(root: Path) -> None:
    """A plan that is half done is so from wherever one looks."""
    for plan in plans(root).values():
        if state_of(plan) is PlanStatus.HALF_DONE and not (root / "kept").exists():
            for path in plan.log_dirs:
                assert plan.id in {kept.plan.id for kept in plans_of(path)}, path


def begun(root: Path) -> dict[str, Plan]:
    return {name: plan for name, plan in plans(root).items() if is_unfinished(plan)}


def finish(root: Path, work: Work, backup: Path | None) -> None:
    half = begun(root)
    assert len(half) <= 1
    for plan in half.values():
        apply(plan, QuietDisk(root))
        return
    if not any(not chain.to_do for plan in plans(root).values() for chain in locate_histories(plan)):
        for place in [*root.glob("broker-*/klog-backup"), root / "kept"]:
            shutil.rmtree(place, ignore_errors=True)
        work(root, QuietDisk(root), backup)


def the_plan(root: Path) -> Plan:
    found = {name: plan for name, plan in plans(root).items() if plan.undoes is None}
    assert len(found) == 1, found.keys()
    return next(iter(found.values()))


def finish_undo(root: Path, plan: Plan) -> None:
    backs = {name: back for name, back in plans(root).items() if back.undoes == plan.id}
    for back in backs.values():
        # Done, but perhaps not with the times of directories; or half done.
        if back.id in begun(root) or not any(chain.to_do for chain in locate_histories(back)):
            apply(back, QuietDisk(root))
            return
    take_back(plan, QuietDisk(root))


def leave_locks(root: Path) -> None:
    """Brokers do.  A process that dies just after making one has changed the time of the log dir, without a record of
    that."""
    for log_dir in log_dirs(root):
        (log_dir / ".lock").touch()


def cut_everywhere(memory: Path, original: Path, work: Work, every: int, is_far: bool) -> int:
    """Stop *work*, and what takes it back, at every so-manieth call; see that it can be finished and taken back."""
    leave_locks(original)
    root = memory / "cut"
    backup = root / "kept" if is_far else None
    # A process that dies just after it made a pointer to a backup elsewhere has changed the time of the log dir.
    aside = "." if is_far else ""

    def restored() -> dict[str, Tree]:
        return {broker: {name: files[name] for name in files if name != aside} for broker, files in state(root).items()}

    fresh(original, root)
    before = restored()
    disk = QuietDisk(root)
    work(root, disk, backup)
    after = state(root, times=False)
    done = fresh(root, memory / "done")
    cuts = 0
    for model in (*MODELS, "killed"):
        for at in range(0, len(disk.calls), every):
            fresh(original, root)
            assert stopped(lambda disk: work(root, disk, backup), root, at, model)
            check_known_everywhere(root)
            finish(root, work, backup)
            assert not changed(state(root, times=False), after), f"{model}, call {at}"
            take_back(the_plan(root), QuietDisk(root))
            assert not changed(restored(), before), f"{model}, call {at}"
            cuts += 1
        at = 0
        while True:
            fresh(done, root)
            plan = the_plan(root)
            if not stopped(lambda disk, plan=plan: take_back(plan, disk), root, at, model):
                break
            finish_undo(root, plan)
            assert not changed(restored(), before), f"undo, {model}, call {at}"
            at += every
            cuts += 1
    return cuts


@pytest.mark.parametrize(("name", "partition", "choice"), SCENES, ids=[one[0] for one in SCENES])
@pytest.mark.parametrize("is_far", [False, True], ids=["beside", "elsewhere"])
@pytest.mark.parametrize(
    ("every", "least"), [pytest.param(151, 5, id="some"), pytest.param(1, 300, marks=pytest.mark.long, id="all")]
)
def test_a_plan_over_three_log_dirs_survives_a_cut_at_any_call(
    name: str,
    partition: str,
    choice: CopyChoice,
    is_far: bool,
    every: int,
    least: int,
    image: Callable[[str], Path],
    tmp_path: Path,
    memory: Path,
) -> None:
    original = scene(image, name, partition, tmp_path / "original")
    assert cut_everywhere(memory, original, partial(equalise, choice), every, is_far) > least
