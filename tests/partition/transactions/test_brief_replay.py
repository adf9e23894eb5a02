"""Batches of producers that leave no trace in a partition's state, and are left out where only that counts."""

from __future__ import annotations

import pytest
from klog.kernel import Window
from klog.partition.transactions.producer_replay import apply_window
from klog.partition.transactions.producer_state import ProducerState

from tests.oracles.plain.encode import Record, batch


def data_of(producers: list[tuple[int, int, int]], transactional: bool = False) -> bytes:
    """Return a batch of two records for each (producer, epoch, first sequence)."""
    return b"".join(
        batch(
            [Record(2 * at, 1000 + at, None, b"x"), Record(2 * at + 1, 1000 + at, None, b"y")],
            producer=one,
            transactional=transactional,
        )
        for at, one in enumerate(producers)
    )


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize(
    "producers",
    [
        [(7, 0, 2 * n) for n in range(20)],
        [(7, n // 9, 2 * (n % 9)) for n in range(20)],
        [(7 + n // 8, 0, 2 * (n % 8)) for n in range(20)],
        [(7 + n % 2, 0, 2 * (n // 2)) for n in range(20)],
        [(7, 0, 0), *[(-1, -1, -1)] * 9, *[(7, 0, 2 + 2 * n) for n in range(9)]],
    ],
)
def test_batches_that_leave_no_trace_may_be_left_out(
    producers: list[tuple[int, int, int]], transactional: bool
) -> None:
    """The state at the end is the same: the first of a run begins a transaction, the last five are remembered."""
    data = data_of(producers, transactional)
    window = Window(1, 1, 1)
    states = []
    for briefly in (False, True):
        window.lend(data)
        window.scan(0, check=True)
        state = ProducerState()
        apply_window(state, window, briefly=briefly)
        entries = {key: (one.batches, one.producer(), one.epoch_began) for key, one in state.producers.items()}
        states.append((state.end, entries, state.ongoing.all()))
    assert states[0] == states[1]
    assert len(window.produced(0, window.count, most=5)) <= len(window.produced(0, window.count))
