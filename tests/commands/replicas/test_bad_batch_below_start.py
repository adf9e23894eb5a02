"""A bad batch below the log start of the kept copy: a comparison from there on does not meet it, and it is repaired."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from klog.commands.replicas.copy_reader import keeps_bad_batch
from klog.data_dir.partition import Partition
from klog.partition.start.kept_log import KeptLog

from tests.commands.replicas.test_lost_head import END, MINUTE, Disks

Run = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("hasty")


def flip(disks: Disks, node: int, offset: int, at: int = 70) -> None:
    """Flip a bit of the batch at *offset*, whose segment is that of *offset*; *at*: where, within the batch."""
    base = offset // 20 * 20
    path = disks.place(node) / f"{base:020}.log"
    content, position = bytearray(path.read_bytes()), 0
    for _ in range(offset - base):
        position += 12 + int.from_bytes(content[position + 8 : position + 12], "big")
    content[position + at] ^= 16
    path.write_bytes(content)


@pytest.mark.parametrize("at", [70, 7], ids=["content", "base offset"])
@pytest.mark.parametrize("is_behind", [False, True])
def test_a_copy_with_a_bad_batch_below_the_log_start_that_is_kept_is_replaced(
    at: int, is_behind: bool, klog: Run, tmp_path: Path
) -> None:
    """DeleteRecords has raised one log start only; that of a copy with damage below it is raised as well."""
    disks = Disks(tmp_path)
    disks.checkpoint(1, "log-start", 23)
    flip(disks, 2, 5, at)
    if is_behind:
        disks.write(2, 40, 50)
        disks.write(3, 40, 50)
    given = {path.name: path.read_bytes() for path in disks.place(2).glob("*.log")}
    assert disks.compared(klog, 4)["verdict"] == "damaged"
    plan = disks.plan(klog, "--keep", "1", "--repair")
    changed = [2, 3] if is_behind else [2]
    assert (plan["losses"], [one["node"] for one in plan["copies"][0]["targets"]]) == ([], changed)
    found = disks.compared(klog, 0)
    assert (found["verdict"], found["copies"]["2"]["log_start"]) == ("same", 23)
    assert disks.names(2) == disks.names(1)[1:]
    assert disks.plan(klog, "--keep", "1", "--repair")["copies"] == []
    assert klog("undo", plan["backup"], "--apply").exit_code == 0
    assert {path.name: path.read_bytes() for path in disks.place(2).glob("*.log")} == given


def test_retention_explains_the_log_start(klog: Run, tmp_path: Path) -> None:
    disks = Disks(tmp_path, {"retention.ms": "3600000"}, {0: 120 * MINUTE, 20: 90 * MINUTE, 40: MINUTE})
    disks.lose(1, 0, 20)
    flip(disks, 2, 25)
    plan = disks.plan(klog, "--keep", "1", "--repair")
    assert (plan["losses"], [one["node"] for one in plan["copies"][0]["targets"]]) == ([], [2])
    assert disks.names(2) == disks.names(1)
    assert disks.compared(klog, 0)["verdict"] == "same"


def test_records_that_nothing_explains_are_named(klog: Run, tmp_path: Path) -> None:
    disks = Disks(tmp_path)
    disks.lose(1, 0, 20)
    flip(disks, 2, 25)
    plan = disks.plan(klog, "--keep", "1", "--repair")
    losses = [(one["first_offset"], one["last_offset"], one["reason"]) for one in plan["losses"]]
    assert losses == [(0, 39, "log start raised")] * 2
    assert [one["records"] for one in plan["losses"]] == [39, 40]
    assert disks.compared(klog, 0)["verdict"] == "same"


@pytest.mark.parametrize("node", [1, 2])
def test_a_bad_batch_below_its_own_log_start_is_repaired(node: int, klog: Run, tmp_path: Path) -> None:
    """It is in the segment that contains the log start, and `klog replicas diff` reports it there."""
    disks = Disks(tmp_path)
    for each in (1, 2, 3):
        disks.checkpoint(each, "log-start", 23)
    flip(disks, node, 21)
    assert disks.compared(klog, 4)["verdict"] == "damaged"
    plan = disks.plan(klog, "--keep", "1", "--repair")
    assert (plan["losses"], [one["node"] for one in plan["copies"][0]["targets"]]) == ([], [node])
    assert disks.compared(klog, 0)["verdict"] == "same"


@pytest.mark.parametrize("is_rolled", [False, True])
def test_deleted_records_do_not_return_with_a_repair(is_rolled: bool, klog: Run, tmp_path: Path) -> None:
    """The log start that DeleteRecords has left explains the beginning of the third copy."""
    disks = Disks(tmp_path)
    disks.checkpoint(2, "log-start", 23)
    disks.lose(3, 0)
    flip(disks, 2, 21)
    if is_rolled:  # where the log start is, which needs no checkpoint
        disks.write(1, 20, 23)
        disks.write(1, 23, 40)
    plan = disks.plan(klog, "--keep", "1", "--repair")
    assert (plan["losses"], [one["node"] for one in plan["copies"][0]["targets"]]) == ([], [2])
    found = disks.compared(klog, 0)
    assert (found["verdict"], [found["copies"][node]["log_start"] for node in "123"]) == ("same", [0, 23, 20])
    assert disks.names(2) == disks.names(1)[2 if is_rolled else 1 :]


def test_a_cut_leaves_a_bad_batch_only_if_that_begins_below_it(tmp_path: Path) -> None:
    disks = Disks(tmp_path)
    partition, kept = Partition(str(disks.place(1))), KeptLog(0, END)
    assert not keeps_bad_batch(partition, kept, END)
    for offset in (30, 31):
        flip(disks, 1, offset)
    assert [keeps_bad_batch(partition, kept, cut) for cut in (29, 30, 31, 32, END)] == [False, False, True, True, True]
    assert [keeps_bad_batch(partition, KeptLog(start, END), END) for start in (35, 40)] == [True, False]
    flip(disks, 1, 10, at=7)
    assert [keeps_bad_batch(partition, kept, cut) for cut in (10, 11)] == [False, True]
