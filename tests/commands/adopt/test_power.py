"""Power cuts and kills in the middle of an adoption: it can be finished and taken back, and is never served half."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.change.plan.session import PlanOptions
from klog.commands.adopt.adopt import AdoptRequest, adopt
from klog.commands.adopt.adopted_content import AdoptOptions
from klog.data_dir.disk.disk_changes import Disk

from tests.commands.adopt.disks import NOW, fates, foreign, home, records, set_epochs
from tests.conftest import Ran
from tests.support.power import MODELS, cut_everywhere, tree
from tests.support.samples import some_or_all

Klog = Callable[..., Ran]
NOW_MS = 1_795_000_000_000


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A foreign disk: aborted and open transactions, several segments, epochs above the cluster's."""
    data = foreign(tmp_path_factory.mktemp("source") / "other")
    set_epochs(data / "tx-0", 50)
    return data


def adopt_through(source: Path, *names: str, replace: bool = False) -> Callable[[Path, Disk], None]:
    """Return what adopts, as the command does, all through one disk."""

    def run(data: Path, disk: Disk) -> None:
        request = AdoptRequest([str(source / name) for name in names], [str(data)])
        options = AdoptOptions(NOW_MS, replace)
        result = adopt(request, options, PlanOptions("adopt", apply=True), disk=disk)
        assert not result.refused, result.refused

    return run


CASES = {"new": (("tx-0", "tx-open-0"), False), "replaced": (("tx-0",), True)}


@pytest.fixture
def target(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A disk where the partition is not there, or has another log, with other segments."""
    data = home(tmp_path / "home", "trimmed-0")
    for path in (data / "__cluster_metadata-0").glob("*.checkpoint.deleted"):
        path.unlink()
    if request.param == "replaced":
        (data / "trimmed-0").rename(data / "tx-0")
        (data / "tx-0/partition.metadata").write_text("version: 0\ntopic_id: 8kvIP8qpQlSlTHGWq6Hd1Q")
        (data / "log-start-offset-checkpoint").write_text("0\n1\ntx 0 137\n")
    else:
        shutil.rmtree(data / "trimmed-0")
    return data


@pytest.mark.parametrize("target", list(CASES), indirect=True)
@some_or_all
def test_power_cuts_leave_what_can_be_finished_and_taken_back(
    every: int, target: Path, source: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Before any call, under any model of a disk; the undo is cut as well."""
    names, replace = CASES[request.node.callspec.params["target"]]
    before = tree(source)
    run = adopt_through(source, *names, replace=replace)
    # Each cut replays whole adoptions: a sample of a sample.
    sparse = every * 3 if every > 1 else every
    assert cut_everywhere(target, tmp_path / "cuts", run, every=sparse, models=MODELS) > 10
    assert tree(source) == before


DEADLY = """
import os, signal, sys
from klog.data_dir.disk.disk_changes import Disk
from klog.change.plan import session
left = [int(sys.argv[2])]
class Deadly(Disk):
    def step(self):
        left[0] -= 1
        if left[0] < 0: os.kill(os.getpid(), signal.SIGKILL)
for name in ("create", "copy", "rename", "unlink", "set_metadata", "sync", "make_directory", "link"):
    def call(self, *args, _real=getattr(Disk, name), **more):
        self.step()
        return _real(self, *args, **more)
    setattr(Deadly, name, call)
session.apply_plan(sys.argv[1], disk=Deadly())
"""


@pytest.mark.parametrize("target", ["new"], indirect=True)
def test_a_kill_at_any_call_leaves_the_old_or_the_new(target: Path, source: Path, tmp_path: Path, klog: Klog) -> None:
    """A broker sets a half-written partition aside and creates an empty one, as before; `klog apply` again finishes
    it."""
    plan = tmp_path / "plan.json"
    assert klog("adopt", source / "tx-0", "--to", target, NOW, "--save-plan", plan).exit_code == 0
    original, backup = tmp_path / "original", target.parent / "klog-backup"
    subprocess.run(["cp", "-a", target, original], check=True)
    outcomes, seen = set(), set()
    for at in range(1, 600, 23):
        shutil.rmtree(target)
        subprocess.run(["cp", "-a", original, target], check=True)
        shutil.rmtree(backup, ignore_errors=True)
        command = [sys.executable, "-c", DEADLY, str(plan), str(at)]
        died = subprocess.run(command, check=False, capture_output=True, timeout=120)
        outcomes.add(died.returncode)
        fate = fates(target).get("tx-0")
        seen.add(fate)
        if fate == "serves":
            assert records(target / "tx-0") == records(source / "tx-0")
        again = klog("apply", plan)
        assert again.exit_code == 0, (at, again.stderr)
        assert records(target / "tx-0") == records(source / "tx-0")
        if not died.returncode:
            break
    assert outcomes == {-9, 0}
    assert seen == {None, "strays", "serves"}
