"""The text of `klog recover` about several partitions and log dirs: sums, choices, and each fact once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import FIXTURES, Ran
from tests.partition.verify.partitions import Damageable

Klog = Callable[..., Ran]
pytestmark = pytest.mark.usefixtures("hasty")
FLIPPED = f"idempotent-0/{375:020}.log"


@pytest.fixture
def two_damaged(tmp_path: Path) -> Path:
    """A partition with a flipped bit, and one with a lost block; intact batches follow both."""
    data = Damageable(tmp_path / "data", "idempotent-0")
    data.change(FLIPPED, lambda log: bytes(600) + log[600:])
    shutil.copytree(FIXTURES / "crash/flip-middle/torn-0", data.path / "torn-0")
    (data.path / ".kafka_cleanshutdown").unlink()
    return data.path


def text(klog: Klog, *arguments: str | Path) -> str:
    done = klog("recover", *arguments)
    assert done.stderr == b""
    return done.stdout.decode()


def test_choices_for_several_partitions_are_summed_and_each_has_its_share(klog: Klog, two_damaged: Path) -> None:
    shown = text(klog, two_damaged, "--indexes-only")
    assert "2 partitions are damaged and were left unchanged: choose" in shown.splitlines()[0]
    choices = shown[shown.index("Choose for the 2 damaged partitions\n") :].splitlines()
    assert choices[1].startswith("  1. Repair the flipped bits in 1 of them: loses nothing, keeps 410 records ")
    assert choices[2] == f"       klog recover {two_damaged} --repair-bits"
    assert choices[3].startswith("  2. Cut the damage out, and keep every intact batch: loses ")
    assert "(2 partitions, " in choices[3]
    lines = shown.splitlines()
    torn = lines.index(f"{two_damaged}/torn-0")
    assert any(
        line.startswith("  --salvage loses 3 records (torn-0, offsets 301–303, 721 B), keeps 407 records")
        for line in lines[torn:]
    )
    assert shown.count("If another replica is in sync") == 1


def test_settings_of_rebuilt_indexes_are_told_once(klog: Klog, tmp_path: Path) -> None:
    data = Damageable(tmp_path / "data", "tx-0", "dense-0").path
    for index in data.glob("*/*.index"):
        index.unlink()
    assert text(klog, data).count("index.interval.bytes 4096 (default)") == 1


def test_findings_of_a_log_dir_have_its_path(klog: Klog, tmp_path: Path) -> None:
    """The name of a checkpoint alone does not say in which of several log dirs it is."""
    sound, broken = (Damageable(tmp_path / name, "plain-1").path for name in ("a", "b"))
    (broken / "recovery-point-offset-checkpoint").write_text("x\n")
    lines = klog("recover", sound, broken).stdout.decode().splitlines()
    at = lines.index(str(broken))
    assert lines[at + 1].split()[:3] == ["damage", "checkpoint-malformed", "recovery-point-offset-checkpoint:"]
    assert lines[0] == "would change 1 file in 1 log dir; loses nothing"
