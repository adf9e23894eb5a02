"""Whole repairs, from the first look to the last sync, that are interrupted by the power or the disk."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import klog.change.plan.session
import pytest
from klog.change.plan.draft import backup_places, make_plan, plan_id
from klog.change.plan.executor import apply
from klog.change.plan.model import STAGED
from klog.change.plan.staging import Staging
from klog.commands.recover.recovery import recover_log_dirs
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.log_dir import LogDir
from klog.data_dir.selection import Selection
from klog.partition.repair.recover_outcome import RecoverMode, RecoverOptions

from tests.conftest import FIXTURES, Ran, writable_copy
from tests.partition.verify.images import CRASHES, unpacked
from tests.support.damage import Source, case, corpora_sources, sources
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

NOW = 1_750_000_000_000
OPTIONS = {"segment.index.bytes": "16384"}
modes = pytest.mark.parametrize("mode", list(RecoverMode), ids=[mode.value for mode in RecoverMode])
WAYS = {RecoverMode.DEFAULT: (), RecoverMode.LIKE_BROKER: ("--like-broker",), RecoverMode.SALVAGE: ("--salvage",)}


def repair_in(mode: RecoverMode) -> Callable[[Path, Disk], None]:
    """Return a function that looks, plans and applies, as the command does, all through one disk."""

    def repair(data: Path, disk: Disk) -> None:
        log_dir, number = LogDir(str(data)), plan_id("recover", NOW)
        backups = backup_places(number, [str(data)])
        targets = [Selection(log_dir, list(log_dir.partitions))]
        staging = [Staging(os.path.join(backups[0], STAGED), disk)]
        found = recover_log_dirs(targets, RecoverOptions(mode, NOW), staging, OPTIONS)
        plan = make_plan(number, "klog recover", [str(data)], backups, found.drafts, NOW, losses=found.losses)
        if plan.actions:
            apply(plan, disk)

    return repair


def damaged(folder: Path) -> Path:
    """A wreck with everything that repairs of all ways do: cuts, holes, an index, a snapshot and epochs anew."""
    data = writable_copy(FIXTURES / "crash/torn-in-batch", folder / "original")
    partition = data / "torn-0"
    hole = partition / "00000000000000000296.log"
    content = bytearray(hole.read_bytes())
    content[6000] ^= 0xFF
    hole.write_bytes(content)
    (partition / "00000000000000000090.index").unlink()
    (partition / "00000000000000000168.snapshot").write_bytes(b"?" * 60)
    (data / "calm-0/leader-epoch-checkpoint").write_text("0\n0\n")
    for path in (partition / "00000000000000000000.log", partition / "00000000000000000000.index"):
        shutil.copy(path, f"{path}.swap")
    return data


@pytest.mark.parametrize("model", MODELS)
@modes
def test_power_cut_in_the_middle_of_a_repair(mode: RecoverMode, model: str, tmp_path: Path) -> None:
    """Always the planned result in the end, or the original untouched; and undo, which is cut as well, restores it."""
    # Each call in its turn: an eleventh of them in one run, all of them in the next test.
    assert cut_everywhere(damaged(tmp_path), tmp_path, repair_in(mode), models=(model,), every=11) > 10


@pytest.mark.long
@modes
def test_power_cut_before_any_call_of_a_repair(mode: RecoverMode, tmp_path: Path) -> None:
    assert cut_everywhere(damaged(tmp_path), tmp_path, repair_in(mode)) > 400


@pytest.mark.long
@pytest.mark.corpora
@modes
@pytest.mark.parametrize("name", ["v4.3.1-zeroed-segment", "v4.3.1-swap-and-cleaned-left", "v3.9.1-flip-middle"])
def test_power_cut_in_the_repair_of_a_crash(name: str, mode: RecoverMode, tmp_path: Path) -> None:
    (image,) = [image for image in CRASHES if image.name == name]
    original = unpacked(image, tmp_path / "original")
    repaired = copy_of(original, tmp_path / "once")
    repair_in(mode)(repaired, HastyDisk())
    if tree(repaired) != tree(original):
        assert cut_everywhere(original, tmp_path, repair_in(mode), every=5) > 10


@pytest.fixture(scope="module")
def wrecks(image: Callable[[str], Path], corpora: Path) -> list[Source]:
    return [*sources(), *corpora_sources(image, corpora)]


@pytest.mark.long
@pytest.mark.corpora
@modes
@pytest.mark.parametrize("number", range(12))
def test_power_cut_in_the_repair_of_random_damage(
    number: int, mode: RecoverMode, wrecks: list[Source], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Orders of actions without a test of their own."""
    # A log that has no other to take after is of now.
    monkeypatch.setattr(time, "time_ns", lambda: NOW * 1_000_000)
    one = case(11, number, wrecks)
    one.make(tmp_path / "original")
    (tmp_path / "original/.kafka_cleanshutdown").unlink(missing_ok=True)
    repaired = copy_of(tmp_path / "original", tmp_path / "once")
    before = tree(repaired, directory_times=False)
    repair_in(mode)(repaired, HastyDisk())
    if {**tree(repaired, directory_times=False), ".lock": 0} != {**before, ".lock": 0}:
        assert cut_everywhere(tmp_path / "original", tmp_path, repair_in(mode), every=9) > 5, one.name


# refusals of the system


@pytest.fixture
def disks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Disk], None]]:
    """Return a function that gives the command line another disk."""

    def use(disk: Disk) -> None:
        monkeypatch.setattr(klog.change.plan.session, "Disk", lambda: disk)

    return use


def state_of(data: Path) -> Tree:
    """Return the content of a log dir, without the lock file, whose removal the system may have refused."""
    return {name: entry for name, entry in tree(data, directory_times=False).items() if name != ".lock"}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO], ids=errno.errorcode.get)
@pytest.mark.parametrize("every", [13, pytest.param(5, marks=pytest.mark.long)])
@modes
def test_whatever_the_system_refuses_the_command_says_it_in_a_line(
    mode: RecoverMode, every: int, number: int, disks: Callable[[Disk], None], tmp_path: Path, klog: Callable[..., Ran]
) -> None:
    """From the first byte that is staged: exit code 8, nothing has changed or the next run finishes it."""
    original = damaged(tmp_path)
    command = ("recover", *WAYS[mode], f"--now={NOW}", "--segment-index-bytes=16384", "--apply")
    data = copy_of(original, tmp_path / "run")
    before, counting = state_of(data), SteppedDisk(data.parent)
    disks(counting)
    assert klog(*command, data).exit_code in (1, 5)
    after = state_of(data)
    outcomes = Counter[str]()
    for at in range(0, len(counting.calls), every):
        data = copy_of(original, tmp_path / "run")
        disks(FaultyDisk(data.parent, at, number))
        ran = klog(*command, data)
        assert ran.stderr.count(b"klog: error") <= 1
        if ran.exit_code in (1, 5):
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
            assert klog(*command, data).exit_code in (0, 1, 4, 5)
        assert state_of(data) == after, (at, counting.calls[at])
    assert outcomes["half done"] >= 2, outcomes
    assert outcomes["nothing done"] > 2, outcomes
