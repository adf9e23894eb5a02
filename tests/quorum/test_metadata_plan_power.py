"""A plan over the metadata logs of three nodes survives power cuts and kills: it can be finished, and taken back."""

from __future__ import annotations

from pathlib import Path

import pytest
from klog.data_dir.selection import PartitionQuery
from klog.disk.disk import Disk
from klog.plan.session import PlanOptions, PlanSession
from klog.quorum.quorum_plan import QuorumPlanner, QuorumSettings
from klog.quorum.voters import parse_voters
from klog.replicas.disks import open_disks

from tests.conftest import FIXTURES, writable_copy
from tests.replicas.test_copy_plan_power import NOW_MS, cut_everywhere, log_dirs, memory, state_home

__all__ = ["memory", "state_home"]
pytestmark = [pytest.mark.usefixtures("state_home")]


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """The disks of a quorum, node 2 behind and node 3 with an unfinished batch at its end."""
    for node in (1, 2, 3):
        writable_copy(
            FIXTURES / "replicas" / "quorum" / f"broker-{node}", tmp_path / "original" / f"broker-{node}" / "data"
        )
    log = max((tmp_path / "original" / "broker-3" / "data" / "__cluster_metadata-0").glob("*.log"))
    with log.open("ab") as file:
        file.write(log.read_bytes()[:40])
    return tmp_path / "original"


def move_voters(root: Path, disk: Disk, backup: Path | None) -> None:
    paths = [str(path) for path in log_dirs(root)]
    options = PlanOptions("metadata", apply=True, backup=None if backup is None else str(backup))
    with PlanSession(PartitionQuery(paths), options, disk) as session:
        planner = QuorumPlanner(open_disks(paths), session.staging, QuorumSettings(NOW_MS), session.disk)
        planner.move_voters(parse_voters("1@one:1,2@two:2,3@three:3"), uses_disk_ids=False)
        session.finish(planner.drafts(), losses=planner.losses, copies=planner.copies_json)


@pytest.mark.parametrize("is_far", [False, True], ids=["beside", "elsewhere"])
@pytest.mark.parametrize(
    ("every", "least"), [pytest.param(61, 10, id="some"), pytest.param(1, 300, marks=pytest.mark.long, id="all")]
)
def test_metadata_logs_survive_a_cut_at_any_call(
    original: Path, memory: Path, is_far: bool, every: int, least: int
) -> None:
    assert cut_everywhere(memory, original, move_voters, every, is_far) > least
