"""A copy that is filled up has the aborted transactions, from its first segment on.

A broker believes its transaction indexes: without an entry consumers get aborted records as committed ones, and the
cleaner takes an aborted record for the newest of its key, and removes the committed one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands.replicas.test_lost_head import BASES, Disks
from tests.oracles.plain.encode import Record, batch, marker
from tests.support.rolled_back import NOW_MS

Run = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("hasty")
FIRST_ID = 1 << 62


def transaction(first: int, producer: int, *, end: int, commit: bool) -> dict[int, bytes]:
    """Return batches by offset: two records, and at *end* the marker."""
    records = [Record(first + at, NOW_MS, b"k%d" % at, b"v") for at in range(2)]
    ended = marker(end, commit=commit, timestamp=NOW_MS, producer_id=producer, producer_epoch=0, coordinator_epoch=0)
    return {first: batch(records, transactional=True, producer=(producer, 0, 0)), end: ended}


BATCHES = {
    offset: content
    for part in (  # ids that no metadata log assigns
        transaction(2, FIRST_ID + 0, end=5, commit=False),
        transaction(8, FIRST_ID + 1, end=12, commit=True),
        transaction(15, FIRST_ID + 2, end=25, commit=False),  # into the next segment
        transaction(30, FIRST_ID + 3, end=32, commit=False),
        transaction(50, FIRST_ID + 4, end=55, commit=False),
    )
    for offset, content in part.items()
}


@pytest.fixture
def disks(tmp_path: Path, klog: Run) -> Disks:
    """Three equal copies, with the indexes and snapshots that a broker has."""
    made = Disks(tmp_path)
    for node in (1, 2, 3):
        for base in BASES:
            content, at = b"", base
            while at < base + 20:
                one = BATCHES.get(at) or batch([Record(at, NOW_MS, b"k", b"v")])
                content, at = content + one, at + 1 + int.from_bytes(one[23:27], "big")
            (made.place(node) / f"{base:020}.log").write_bytes(content)
        assert klog("recover", made.place(node).parent, "--apply").exit_code == 1
    return made


def indexes(disks: Disks, node: int) -> dict[str, bytes]:
    found = {path.name: path.read_bytes() for path in disks.place(node).glob("*.txnindex")}
    return {name: content for name, content in found.items() if content}


@pytest.mark.parametrize("lost", [(), BASES, (0,), (0, 20), (40,)])
def test_a_filled_copy_knows_all_aborted_transactions(disks: Disks, klog: Run, lost: tuple[int, ...]) -> None:
    """The copy is missing, has an empty directory, or has lost its beginning or its end."""
    wanted = indexes(disks, 1)
    assert {int(name[:20]): len(content) // 34 for name, content in wanted.items()} == {0: 1, 20: 2, 40: 1}
    if lost:
        disks.lose(2, *lost)
    else:
        shutil.rmtree(disks.place(2))
    disks.plan(klog)
    assert indexes(disks, 2) == wanted


def test_below_the_log_start_nothing_is_known(disks: Disks, klog: Run) -> None:
    """The records that DeleteRecords has removed are not read; the transaction that reaches over them counts."""
    disks.checkpoint(1, "log-start", 6)
    shutil.rmtree(disks.place(2))
    disks.checkpoint(3, "log-start", 6)
    disks.plan(klog)
    assert sorted(int(name[:20]) for name in indexes(disks, 2)) == [20, 40]
    assert indexes(disks, 2)[f"{20:020}.txnindex"] == indexes(disks, 1)[f"{20:020}.txnindex"]
