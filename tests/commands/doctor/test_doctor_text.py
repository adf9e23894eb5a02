"""The text of `klog doctor`: the verdict first, the price of each repair, and nothing twice."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.change.plan.model import StaleError
from klog_cli.views import repair_costs

from tests.conftest import FIXTURES, Ran
from tests.partition.verify.partitions import flipped

Klog = Callable[..., Ran]
LOG = f"plain-1/{0:020}.log"


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURES / "modern", tmp_path / "disk"))


def torn(disk: Path) -> None:
    """Leave a disk as after a power loss, with a checkpoint that stops the broker."""
    (disk / ".kafka_cleanshutdown").unlink()
    (disk / LOG).write_bytes((disk / LOG).read_bytes()[:-10])
    (disk / "recovery-point-offset-checkpoint").write_text("x\n")


def text(klog: Klog, *arguments: str | Path) -> str:
    done = klog("doctor", *arguments)
    assert done.stderr == b""
    return done.stdout.decode()


def test_the_repair_has_its_price_and_the_preview_comes_before_it_is_carried_out(klog: Klog, disk: Path) -> None:
    """An operator has to know the loss before the repair."""
    torn(disk)
    lines = text(klog, disk).splitlines()
    assert lines[0] == (
        f"WILL NOT START: {disk}/recovery-point-offset-checkpoint: line 1: 'x' is not a version (checkpoint-malformed)"
    )
    at = lines.index("Fix")
    assert lines[at + 1 : at + 7] == [
        "  1. Preview: a checkpoint that the broker refuses takes the log dir offline. The repair loses 20 records"
        " (plain-1, offsets 93–112, 1.9 KiB); a broker would keep no more.",
        f"       klog recover {disk}",
        "  2. Carry it out.",
        f"       klog recover {disk} --apply",
        "  3. Check. It should report: starts, loses nothing.",
        f"       klog doctor {disk}",
    ]
    shown = klog("recover", disk).stdout.decode()
    assert "20 records" in shown
    assert klog("recover", disk, "--apply").exit_code == 1
    assert text(klog, disk).startswith("STARTS, LOSES NOTHING after a recovery of ")


def test_a_repair_that_loses_nothing_says_so(klog: Klog, disk: Path) -> None:
    (disk / "recovery-point-offset-checkpoint").write_text("x\n")
    assert "The repair loses nothing." in text(klog, disk)


def test_a_repair_that_leaves_damage_says_so(klog: Klog, disk: Path) -> None:
    torn(disk)
    path = disk / f"idempotent-0/{375:020}.log"
    path.write_bytes(flipped(100)(bytearray(path.read_bytes())))
    assert "; it leaves 1 partition damaged, for which it shows the choices." in text(klog, disk)


def test_large_logs_are_not_read_for_a_price_unless_asked(
    klog: Klog, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair_costs, "MOST_BYTES", 1000)
    torn(disk)
    shown = text(klog, disk)
    assert re.search(r"offline\. It reads \d+\.\d KiB, and shows what the repair loses\.\n", shown)
    assert "loses 20 records" not in shown
    assert "loses 20 records" in text(klog, disk, "--records")


def test_a_price_that_cannot_be_known_keeps_no_answer_back(
    klog: Klog, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan that is half done stops every other plan, and not the answer about the next start."""

    class Blocked(repair_costs.PlanSession):
        def __enter__(self) -> repair_costs.PlanSession:
            raise StaleError("20261121-051019-recover-7f3a is half done")

    monkeypatch.setattr(repair_costs, "PlanSession", Blocked)
    torn(disk)
    shown = text(klog, disk)
    assert shown.startswith("WILL NOT START: ")
    assert "It is not known what the repair loses: 20261121-051019-recover-7f3a is half done.\n" in shown


def test_partitions_that_fare_alike_are_one_line_unless_all_are_asked_for(klog: Klog, disk: Path) -> None:
    shown = text(klog, disk)
    assert shown.count("not on this disk") == 1
    assert "14 partitions  not on this disk" in shown
    assert "empty-1, empty-2, gzip-broker-0, … 11 more (--all lists them)" in shown
    every = text(klog, disk, "--all")
    assert every.count("not on this disk") == 14
    assert every.count("--add-config retention.ms=-1\n") == 10


@pytest.mark.parametrize("fault", ["foreign", "no metadata log"])
def test_no_sentence_is_there_twice(klog: Klog, disk: Path, fault: str) -> None:
    if fault == "foreign":
        (disk / "lost+found").mkdir()
    else:
        shutil.rmtree(disk / "__cluster_metadata-0")
    shown = text(klog, disk)
    assert shown.count("is not in the form of" if fault == "foreign" else "starts as an empty cluster and") == 1


def test_the_ids_can_be_explained(klog: Klog, disk: Path) -> None:
    (disk / "plain-1/partition.metadata").unlink()
    shown = text(klog, disk)
    command = next(line for line in shown.splitlines() if line.startswith("klog explain "))
    assert "topic-id-missing" in command
    assert klog(*command.split()[1:]).exit_code == 0
