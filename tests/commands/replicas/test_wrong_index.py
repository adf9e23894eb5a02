"""`klog replicas diff` if the index of a copy contradicts its log: as leader its broker skips records."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands.replicas.test_lost_head import BASES, Disks

Run = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("hasty")


@pytest.fixture
def disks(tmp_path: Path) -> Disks:
    return Disks(tmp_path)


def index(disks: Disks, node: int, base: int, *entries: tuple[int, int]) -> None:
    content = b"".join(struct.pack(">ii", number, batch * _batch_bytes(disks)) for number, batch in entries)
    (disks.place(node) / f"{base:020}.index").write_bytes(content)


def _batch_bytes(disks: Disks) -> int:
    """Return the size of a batch in a segment whose offsets all have two digits."""
    return (disks.place(1) / f"{BASES[1]:020}.log").stat().st_size // 20


def test_equal_copies_are_not_all(disks: Disks, klog: Run) -> None:
    """Record 29 is before the position to which the entry for it leads."""
    index(disks, 2, BASES[1], (9, 14))
    assert disks.compared(klog, 4)["verdict"] == "same"
    text = klog("replicas", "diff", *disks.paths).stdout.decode()
    assert "a leader skips records over a wrong index" in text
    assert f"klog recover {disks.place(2)} --indexes-only" in text
    assert "2 serves with a wrong index, if it leads" in text
    (left,) = disks.plan(klog, code=4)["left"]
    assert left["reason"] == "a wrong index skips records on 2: klog recover --indexes-only"
    klog("recover", disks.place(2), "--indexes-only", "--apply")
    assert disks.compared(klog, 0)["verdict"] == "same"


def test_right_indexes(disks: Disks, klog: Run) -> None:
    index(disks, 1, BASES[1], (4, 4), (14, 14))
    index(disks, 2, BASES[1], (9, 7))
    assert disks.compared(klog, 0)["verdict"] == "same"


@pytest.mark.parametrize(("recovery_point", "code"), [(20, 0), (60, 4)])
def test_a_start_that_recovers_the_segment_makes_it_again(
    recovery_point: int, code: int, disks: Disks, klog: Run
) -> None:
    index(disks, 2, BASES[1], (9, 14))
    (disks.place(2).parent / ".kafka_cleanshutdown").unlink()
    disks.checkpoint(2, "recovery-point", recovery_point)
    disks.compared(klog, code)


def test_an_entry_of_a_damaged_batch(disks: Disks, klog: Run) -> None:
    """The batch is damaged, and the entry that leads to it is right."""
    index(disks, 2, BASES[1], (4, 4), (14, 14))
    log = disks.place(2) / f"{BASES[1]:020}.log"
    content = bytearray(log.read_bytes())
    content[14 * _batch_bytes(disks) + 65] ^= 1
    log.write_bytes(content)
    done = klog("replicas", "diff", *disks.paths)
    assert b"damaged copies" in done.stdout
    assert b"wrong index" not in done.stdout
