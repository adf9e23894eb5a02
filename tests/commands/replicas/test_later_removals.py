"""`klog replicas plan` and `--only-broker` name the committed offsets that coordinators remove after the start."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Ran
from tests.partition.retention.disks import second_disk
from tests.support.group_records import DAY_MS, Pair, append, classic, commit
from tests.support.metadata_logs import config
from tests.support.rolled_back import NOW_MS, metadata, partition

Klog = Callable[..., Ran]
TOPIC = "__consumer_offsets"
OLD, YOUNG = NOW_MS - 8 * DAY_MS, NOW_MS - 6 * DAY_MS
IDLE = [commit("idle", OLD), commit("idle", OLD, 1), classic("idle", OLD)]
BUSY = [commit("busy", YOUNG), classic("busy", YOUNG), commit("member", OLD), classic("member", OLD, members=1)]
PLANS = {"replicas": ("replicas", "plan"), "only-broker": ("metadata", "plan", "--only-broker", "2")}


def disks(folder: Path, first: Sequence[Pair], second: Sequence[Pair] | None) -> list[Path]:
    """Write the log dirs of nodes 1 and 2 with a copy each of the coordinators' partition, None: with none."""
    log_dirs = [folder / "one", second_disk(folder / "two")]
    log = metadata(log_dirs[0], leader_epoch=0, next_producer_id=None, name=TOPIC, replicas=(1, 2))
    log.add(config(2, TOPIC, "cleanup.policy", "compact"))
    for log_dir, pairs in zip(log_dirs, (first, second), strict=True):
        if pairs is not None:
            append(partition(log_dir, [], [(0, 0)], name=TOPIC), pairs, 0, OLD)
    return log_dirs


def planned(klog: Klog, plan: str, *words: object) -> tuple[list[dict[str, Any]], str]:
    """Return the groups whose offsets are removed, and the notes."""
    done = klog(*PLANS[plan], *words, "--output", "json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)["offsets"], done.stderr.decode()


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("second", [[*IDLE, *BUSY], IDLE[:1], None], ids=["equal", "behind", "new"])
def test_it_names_those_that_have_expired(klog: Klog, tmp_path: Path, plan: str, second: Sequence[Pair] | None) -> None:
    """Whether a copy is made equal or is so already: both plans report no loss, and doctor finds the same later."""
    given = disks(tmp_path, [*IDLE, *BUSY], second)
    groups, notes = planned(klog, plan, *given)
    assert groups == [
        {
            "group": "idle", "type": "classic", "partition": 0, "offsets": 2, "since": OLD, "has_members": False,
            "has_replicas": False,
        }
    ]  # fmt: skip
    assert "10 minutes after the start, the coordinators remove 2 committed offsets of 1 group (idle), by" in notes
    assert "first: set offsets.retention.minutes=2147483647 in server.properties" in notes
    planned(klog, plan, *given, "--apply")
    assert planned(klog, "replicas", *given)[0] == groups
    if plan == "only-broker":
        assert json.loads(klog("doctor", given[1], "--output", "json").stdout)["offsets"] == groups


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("second", [BUSY, BUSY[:1], None], ids=["equal", "behind", "new"])
def test_offsets_that_stay_have_no_note(klog: Klog, tmp_path: Path, plan: str, second: Sequence[Pair] | None) -> None:
    assert planned(klog, plan, *disks(tmp_path, BUSY, second)) == ([], "")


@pytest.mark.parametrize("plan", PLANS)
def test_the_records_that_a_copy_gets_count(klog: Klog, tmp_path: Path, plan: str) -> None:
    """A later commit in the other copy keeps the group's offset."""
    again = [*IDLE[:1], commit("idle", YOUNG)]
    groups, notes = planned(klog, plan, *disks(tmp_path, again, again[:1]))
    assert (groups, "coordinators" in notes) == ([], False)


def test_a_cluster_of_unknown_size_may_have_another_copy(klog: Klog, tmp_path: Path) -> None:
    """Without a metadata log the replicas are not known."""
    given = disks(tmp_path, IDLE, IDLE)
    shutil.rmtree(given[0] / "__cluster_metadata-0")
    groups, notes = planned(klog, "replicas", *given)
    assert [one["has_replicas"] for one in groups] == [True]
    assert "(idle) unless another node has a newer log of it, by" in notes


def test_a_partition_that_is_left_has_no_note(klog: Klog, tmp_path: Path) -> None:
    """The user has to choose a copy first; the plan then names those of that copy."""
    given = disks(tmp_path, IDLE, BUSY)
    done = klog("replicas", "plan", *given, "--output", "json")
    assert (done.exit_code, json.loads(done.stdout)["offsets"]) == (4, [])
    assert [one["group"] for one in planned(klog, "replicas", *given, "--keep", "1")[0]] == ["idle"]
    assert planned(klog, "replicas", *given, "--keep", "2")[0] == []
