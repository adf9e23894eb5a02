"""Copies of random histories become equal: batch for batch, with nothing invented, and all of it can be taken back."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from klog.change.plan.session import PlanOptions, PlanSession
from klog.cluster.leader_epoch_cache import LeaderEpochCache
from klog.cluster.metadata.topic_config import TopicConfig
from klog.commands.replicas.copy_choice import CopyChoice
from klog.commands.replicas.copy_plan import CopyPlan, CopyPlanSettings, of_copies
from klog.commands.replicas.diff import DiffOptions, ReplicaDiffer, Verdict
from klog.commands.replicas.disks import copies_on, open_disks
from klog.data_dir.partition_identity import IdentityChoice
from klog.data_dir.selection import PartitionQuery
from klog.formats.checkpoint import EpochEntry, write_epochs

from tests.commands.replicas.test_batch_comparison import Made, end, histories, written
from tests.support.examples import examples
from tests.support.power import HastyDisk, take_back, tree

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


def disks_of(root: Path, logs: dict[int, list[Made]], random: Random) -> list[str]:
    """Write the log dirs of brokers, with the checkpoints that they would have."""
    for node, log in logs.items():
        data = root / str(node) / "data"
        partition = written(data / "t-0", log, random)
        Path(partition.file("partition.metadata")).write_text(f"version: 0\ntopic_id: {TOPIC_ID}")
        cache = LeaderEpochCache()
        for one in log:
            if one.epoch > cache.latest:
                cache.assign(one.epoch, one.first)
        entries = [EpochEntry(entry.epoch, entry.start_offset) for entry in cache.entries]
        Path(partition.file("leader-epoch-checkpoint")).write_bytes(write_epochs(entries))
        for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
            (data / name).write_text(f"0\n1\nt 0 {random.randint(0, end(log))}\n")
    return [f"{node}={root / str(node) / 'data'}" for node in logs]


def state(root: Path) -> dict[str, object]:
    return {
        str(path): {name: entry for name, entry in tree(path).items() if name != ".lock"}
        for path in root.glob("*/data")
    }


@pytest.mark.usefixtures("hasty")
@examples(20)
@given(st.integers(0, 2**32), st.integers(2, 4), st.integers(1, 8), st.sampled_from(["newest", "longest", None, 1]))
def test_copies_of_a_history_become_equal(
    tmp_path_factory: pytest.TempPathFactory, seed: int, nodes: int, elections: int, keep: str | int | None
) -> None:
    root = tmp_path_factory.mktemp("copies")
    logs = histories(seed, nodes, elections)
    paths = disks_of(root, logs, Random(seed))
    before = state(root)
    settings = CopyPlanSettings(CopyChoice(keep), TopicConfig(), 0, 0)
    query = PartitionQuery([path.partition("=")[2] for path in paths])
    with PlanSession(query, PlanOptions("replicas", apply=True), HastyDisk()) as session:
        disks = open_disks(paths)
        differ = ReplicaDiffer(disks, DiffOptions(None, TopicConfig()))
        plan = CopyPlan(disks, session.staging, differ, settings)
        choice = IdentityChoice(by_name=True)
        for found in copies_on(disks, choice=choice):
            plan.add(found)
        result = session.finish(plan.drafts(), losses=plan.losses, revise=partial(of_copies, plan.copies))
    if result.plan is None:
        assert state(root) == before
        return
    kept = logs[plan.equal[0].kept]
    assert {target.records_lost for target in plan.equal[0].targets} <= {
        *(len(records(logs[node]) - records(kept)) for node in logs)
    }
    data = b"".join(one.data for one in kept)
    disks = open_disks(paths)
    for disk in disks:
        partition = disk.log_dir.partition("t-0")
        assert b"".join(Path(partition.file(files.log)).read_bytes() for files in partition.segments) == data
        assert (partition.high_watermark or 0) <= end(kept)
        assert (partition.recovery_point or 0) <= end(kept)
        assert partition.epochs is not None
        assert [entry.epoch for entry in partition.epochs.entries] == sorted({one.epoch for one in kept})
    (again,) = (ReplicaDiffer(disks, DiffOptions(None, TopicConfig())).diff(one) for one in copies_on(disks))
    assert again.verdict is Verdict.SAME
    assert again.trusts_epochs
    take_back(result.plan, HastyDisk())
    assert state(root) == before


def records(log: list[Made]) -> set[object]:
    return {(offset, content) for one in log for offset, content in one.records.items()}
