"""A plan over the metadata logs of several nodes survives power cuts and kills: it can be finished, and taken back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from klog.change.plan.session import PlanOptions, PlanSession
from klog.cluster.metadata.topic_config import TopicConfig
from klog.commands.replicas.copy_choice import CopyChoice
from klog.commands.replicas.copy_plan import CopyPlanSettings, of_copies
from klog.commands.replicas.disks import open_disks
from klog.commands.replicas.quorum_plan import QuorumPlanner, QuorumSettings
from klog.commands.replicas.voter_addresses import parse_voters
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.selection import PartitionQuery

from tests.commands.replicas.test_copy_plan_power import (
    NOW_MS,
    QuietDisk,
    changed,
    cut_everywhere,
    finish,
    fresh,
    leave_locks,
    log_dirs,
    memory,
    state,
    state_home,
    stopped,
    the_plan,
)
from tests.commands.replicas.test_only_broker import Disks
from tests.conftest import FIXTURES, writable_copy
from tests.support.power import take_back

__all__ = ["memory", "state_home"]
pytestmark = [pytest.mark.usefixtures("state_home")]


def quorum(root: Path) -> None:
    """The disks of a quorum, node 2 behind and node 3 with an unfinished batch at its end."""
    for node in (1, 2, 3):
        writable_copy(FIXTURES / "replicas" / "quorum" / f"broker-{node}", root / f"broker-{node}" / "data")
    log = max((root / "broker-3" / "data" / "__cluster_metadata-0").glob("*.log"))
    with log.open("ab") as file:
        file.write(log.read_bytes()[:40])


def move_voters(planner: QuorumPlanner) -> None:
    planner.move_voters(parse_voters("1@one:1,2@two:2,3@three:3"), uses_disk_ids=False)


def two_brokers(root: Path) -> None:
    """Two brokers, the first of which gets a partition of the second."""
    Disks(root, 30, inside="data")


def own_everything(planner: QuorumPlanner) -> None:
    planner.own_everything(1, CopyPlanSettings(CopyChoice(), TopicConfig(), NOW_MS, NOW_MS), None)


def work(wanted: Callable[[QuorumPlanner], None], root: Path, disk: Disk, backup: Path | None) -> None:
    paths = [str(path) for path in log_dirs(root)]
    options = PlanOptions("metadata", apply=True, backup=None if backup is None else str(backup))
    with PlanSession(PartitionQuery(paths), options, disk) as session:
        planner = QuorumPlanner(open_disks(paths), session.staging, QuorumSettings(NOW_MS), session.disk)
        wanted(planner)
        session.finish(planner.drafts(), losses=planner.losses, revise=partial(of_copies, planner.copies_json))


@pytest.mark.parametrize(
    ("make", "wanted", "is_far"),
    [
        pytest.param(quorum, move_voters, False, id="voters-beside"),
        pytest.param(quorum, move_voters, True, id="voters-elsewhere"),
        pytest.param(two_brokers, own_everything, False, id="one-broker"),
    ],
)
@pytest.mark.parametrize(
    ("every", "least"), [pytest.param(61, 10, id="some"), pytest.param(1, 300, marks=pytest.mark.long, id="all")]
)
def test_metadata_logs_survive_a_cut_at_any_call(
    make: Callable[[Path], None],
    wanted: Callable[[QuorumPlanner], None],
    is_far: bool,
    every: int,
    least: int,
    tmp_path: Path,
    memory: Path,
) -> None:
    original = tmp_path / "original"
    make(original)
    assert cut_everywhere(memory, original, partial(work, wanted), every, is_far) > least


def test_a_directory_without_its_first_file_is_half_a_plan(tmp_path: Path, memory: Path) -> None:
    """A kill just after it was made: the plan is finished or taken back, and the directory with it."""
    original, root = tmp_path / "original", memory / "cut"
    two_brokers(original)
    leave_locks(original)
    do = partial(work, own_everything)
    before = state(fresh(original, root))
    disk = QuietDisk(root)
    do(root, disk, None)
    after = state(root, times=False)
    (made,) = (at for at, call in enumerate(disk.calls) if call.startswith("mkdir") and call.endswith("data/t-1"))
    fresh(original, root)
    assert stopped(lambda disk: do(root, disk, None), root, made + 1, "killed")
    assert (root / "broker-1/data/t-1").is_dir()
    assert not list((root / "broker-1/data/t-1").iterdir())
    finish(root, do, None)
    assert not changed(state(root, times=False), after)
    take_back(the_plan(root), QuietDisk(root))
    assert not changed(state(root), before)
