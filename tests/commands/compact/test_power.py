"""Whole compactions, from the first look to the last sync, that are interrupted by the power, the disk or a kill."""

from __future__ import annotations

import errno
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import klog.change.plan.session
import klog_cli.views.compact.compact
import pytest
from klog.change.plan.model import PUT, REMOVE
from klog.data_dir.disk.disk_changes import Disk

from tests.commands.compact.compacting import NOW_MS, OPTIONS, compact, planned, some
from tests.conftest import Ran
from tests.support.power import (
    MODELS,
    FaultyDisk,
    HastyDisk,
    SteppedDisk,
    Tree,
    copy_of,
    cut_everywhere,
    tree,
    unfinished,
)

PARTITIONS = ("grouping-0", "idempotent-0", "tx-later-0")


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint that has no other to take after is of now."""
    monkeypatch.setattr(time, "time_ns", lambda: NOW_MS * 1_000_000)


def dirty(folder: Path) -> Path:
    """Three partitions with all that a compaction changes: the next test names it."""
    return some(folder / "original", *PARTITIONS)


def test_the_log_dir_of_these_tests_has_all_that_a_compaction_changes(tmp_path: Path) -> None:
    """Segments become one, one becomes empty, a snapshot and a transaction index are deleted, rounds are written
    twice."""
    data = dirty(tmp_path)
    plan, outcomes = planned(data, HastyDisk())
    groups = [group for one in outcomes if one.compacted for group in one.compacted.rounds[-1].groups]
    assert len([group for group in groups if len(group.bases) > 1]) >= 4
    assert any(group.bytes_out == 0 for group in groups)
    assert any(one.compacted and len(one.compacted.rounds) > 2 for one in outcomes)
    done = Counter((action.do, action.file.partition(".")[2]) for action in plan.actions)
    assert done[PUT, "log.swap"] >= 4
    assert done[PUT, "txnindex"]
    assert done[REMOVE, "txnindex"]
    assert done[REMOVE, "snapshot"] >= 4
    assert plan.actions[-1].file == "cleaner-offset-checkpoint"


# the power


@pytest.mark.parametrize("model", MODELS)
def test_power_cut_in_the_middle_of_a_compaction(model: str, tmp_path: Path) -> None:
    """Always the planned result in the end, or the original untouched; and undo, which is cut as well, restores it."""
    assert cut_everywhere(dirty(tmp_path), tmp_path, compact, models=(model,), every=83) > 10


@pytest.mark.long
@pytest.mark.parametrize("model", MODELS)
def test_power_cut_before_any_call_of_a_compaction(model: str, tmp_path: Path) -> None:
    assert cut_everywhere(dirty(tmp_path), tmp_path, compact, models=(model,)) > 600


# refusals of the system


@pytest.fixture
def disks(monkeypatch: pytest.MonkeyPatch) -> Callable[[Disk], None]:
    """Return a function that gives the command line another disk."""

    def use(disk: Disk) -> None:
        monkeypatch.setattr(klog.change.plan.session, "Disk", lambda: disk)
        monkeypatch.setattr(klog_cli.views.compact.compact, "Disk", lambda: disk)

    return use


def state_of(data: Path) -> Tree:
    """Return the content of a log dir, without the lock file, whose removal the system may have refused."""
    return {name: entry for name, entry in tree(data, directory_times=False).items() if name != ".lock"}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO], ids=errno.errorcode.get)
def test_whatever_the_system_refuses_the_command_says_it_in_a_line(
    number: int, disks: Callable[[Disk], None], memory: Path, klog: Callable[..., Ran]
) -> None:
    """From the first byte that is staged: exit code 8, and nothing has changed or the next run finishes it."""
    _refused(number, 113, disks, memory, klog)


@pytest.mark.long
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO], ids=errno.errorcode.get)
def test_whichever_call_the_system_refuses(
    number: int, disks: Callable[[Disk], None], memory: Path, klog: Callable[..., Ran]
) -> None:
    _refused(number, 1, disks, memory, klog)


def _refused(number: int, every: int, disks: Callable[[Disk], None], memory: Path, klog: Callable[..., Ran]) -> None:
    original = dirty(memory)
    command = ("compact", *OPTIONS, "--apply", "--jobs=1")
    data = copy_of(original, memory / "run")
    before, counting = state_of(data), SteppedDisk(data.parent)
    disks(counting)
    assert klog(*command, data).exit_code == 0
    after = state_of(data)
    assert after != before
    outcomes = Counter[str]()
    for at in range(0, len(counting.calls), every):
        data = copy_of(original, memory / "run")
        disks(FaultyDisk(data.parent, at, number))
        ran = klog(*command, data)
        assert ran.stderr.count(b"klog: error") <= 1, (at, counting.calls[at], ran)
        if ran.exit_code == 0:
            outcomes["went on"] += 1
        else:
            assert ran.exit_code == 8, (at, counting.calls[at], ran)
            assert os.strerror(number).encode() in ran.stderr, (at, counting.calls[at], ran)
            state = state_of(data)
            if unfinished(str(data)):
                outcomes["half done"] += 1
            elif state == after:  # only staged files are left
                outcomes["done"] += 1
            else:
                outcomes["nothing done"] += 1
                assert state == before, (at, counting.calls[at])
            disks(HastyDisk())
            assert klog(*command, data).exit_code == 0
        assert state_of(data) == after, (at, counting.calls[at])
    assert outcomes["half done"] >= 2, outcomes
    assert outcomes["nothing done"] > 2, outcomes
