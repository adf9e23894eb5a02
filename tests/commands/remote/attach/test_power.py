"""Power cuts and kills in the middle of `klog remote attach`: old or new, and never between."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.change.plan.session import PlanOptions
from klog.commands.remote.attach.attachment import AttachOptions, AttachRequest, attach
from klog.data_dir.disk.disk_changes import Disk
from klog.tier.tier import open_tier

from tests.commands.adopt.test_power import DEADLY
from tests.commands.remote.attach.clusters import RLMM, remove
from tests.conftest import Ran
from tests.support import tiers
from tests.support.power import MODELS, cut_everywhere, tree
from tests.support.samples import some_or_all

Klog = Callable[..., Ran]
NOW_MS = 1_795_000_000_000
LOST: dict[str, tuple[str, ...]] = {
    "topic": (),
    "log": ("fine-0",),
    "metadata": (f"{RLMM}-*",),
    "both": ("fine-0", f"{RLMM}-1"),
}


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, Path]:
    """A log dir that lost something, and its tier."""
    data, tier = tiers.unpack(tmp_path / "tiered")
    remove(data, *LOST[request.param], "remote-log-index-cache")
    return data, tier


@pytest.mark.parametrize("place", list(LOST), indirect=True)
@some_or_all
def test_power_cuts_leave_what_can_be_finished_and_taken_back(
    every: int, place: tuple[Path, Path], tmp_path: Path
) -> None:
    """Before any call, under any model of a disk; the undo is cut as well; the tier is as before."""
    data, tier = place
    before = tree(tier)

    def run(target: Path, disk: Disk) -> None:
        request, options = AttachRequest(open_tier(str(tier)), [str(target)]), AttachOptions(NOW_MS)
        result = attach(request, options, PlanOptions("attach", apply=True), disk=disk)
        assert not result.refused, result.refused

    sparse = every * 3 if every > 1 else every
    assert cut_everywhere(data, tmp_path / "cuts", run, every=sparse, models=MODELS) > 10
    assert tree(tier) == before


@pytest.mark.parametrize("place", ["topic", "both"], indirect=True)
def test_a_kill_at_any_call(place: tuple[Path, Path], tmp_path: Path, klog: Klog) -> None:
    """`klog apply` again finishes it; until the end a broker does what it would have done without it."""
    data, tier = place
    plan, original, backup = tmp_path / "plan.json", tmp_path / "original", data.parent / "klog-backup"
    words = ("remote", "attach", "--remote", tier, "--to", data, "--now", str(NOW_MS))
    assert klog(*words, "--save-plan", plan).exit_code == 0
    subprocess.run(["cp", "-a", data, original], check=True)
    outcomes = set()
    for at in range(1, 600, 23):
        shutil.rmtree(data)
        subprocess.run(["cp", "-a", original, data], check=True)
        shutil.rmtree(backup, ignore_errors=True)
        command = [sys.executable, "-c", DEADLY, str(plan), str(at)]
        died = subprocess.run(command, check=False, capture_output=True, timeout=120)
        outcomes.add(died.returncode)
        assert klog("apply", plan).exit_code == 0, at
        done = klog(*words, "-o", "json")
        assert done.exit_code == 0, done
        assert b'"actions": []' in done.stdout or b'"actions":[]' in done.stdout, done
        if not died.returncode:
            break
    assert outcomes == {-9, 0}
