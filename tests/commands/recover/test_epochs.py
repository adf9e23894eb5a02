"""Leader epochs made anew: batches decide, and entries of the checkpoint alone are kept if no batch contradicts
them."""

from __future__ import annotations

import pytest
from klog.change.partition_plan.desired_files import rebuilt
from klog.formats.checkpoint import Checkpoint, EpochEntry

SEEN = [(1, 10), (3, 50)]
"""Epoch 1 begins with the batch at offset 10, epoch 3 with the one at 50; the log ends at 90."""


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ([], [(1, 10), (3, 50)]),
        ([(1, 10), (3, 50)], [(1, 10), (3, 50)]),
        # Nothing was written in epochs 0, 2 and 4; they are between the batches.
        ([(0, 5), (2, 30), (4, 70)], [(0, 5), (1, 10), (2, 30), (3, 50), (4, 70)]),
        ([(2, 11)], [(1, 10), (2, 11), (3, 50)]),
        ([(4, 89)], [(1, 10), (3, 50), (4, 89)]),
        # A leader of epoch 3 that wrote its first batch later than it became leader.
        ([(1, 8), (3, 41)], [(1, 8), (3, 41)]),
        # The entry that a batch contradicts: its epoch began before, or an earlier one was written there, or behind.
        ([(1, 11), (3, 51)], [(1, 10), (3, 50)]),
        ([(2, 10)], [(1, 10), (3, 50)]),
        ([(2, 51)], [(1, 10), (3, 50)]),
        ([(3, 10)], [(1, 10), (3, 50)]),
        # At the end of the log nothing begins, nor behind it.
        ([(4, 90)], [(1, 10), (3, 50)]),
        ([(4, 91)], [(1, 10), (3, 50)]),
    ],
)
def test_batches_decide(said: list[tuple[int, int]], wanted: list[tuple[int, int]]) -> None:
    found = Checkpoint(tuple(EpochEntry(*entry) for entry in said)) if said else None
    assert [tuple(entry) for entry in rebuilt(found, SEEN, 90)] == wanted


def test_an_epoch_begins_with_its_first_batch() -> None:
    """It is seen again in each segment."""
    assert [tuple(entry) for entry in rebuilt(None, [(1, 0), (1, 20), (2, 40), (2, 60)], 80)] == [(1, 0), (2, 40)]


def test_batches_that_will_be_gone_begin_nothing() -> None:
    assert [tuple(entry) for entry in rebuilt(None, SEEN, 50)] == [(1, 10)]
    assert rebuilt(None, SEEN, 0) == []
