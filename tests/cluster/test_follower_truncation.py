"""The truncation of a follower: the rows of Kafka's table, rounds, and their end at the first difference."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from klog.cluster.follower_truncation import TruncationRound, answer_round, epoch_rounds

from tests.cluster.test_leader_epoch_cache import as_dict, cache


@pytest.mark.parametrize(
    ("answer", "to", "complete"),
    [
        ((-1, -1), 7, True),
        ((-1, 13), 13, True),
        ((9, 13), 13, True),
        ((1, 15), 12, False),
        ((0, 10), 10, True),
        ((3, 15), 15, True),
        ((3, 99), 16, True),
    ],
    ids=[
        "leader knows nothing",
        "old protocol",
        "unknown here",
        "other epoch",
        "same epoch, ends before",
        "latest",
        "latest, ends later",
    ],
)
def test_what_each_answer_leads_to(answer: tuple[int, int], to: int, complete: bool) -> None:
    """After a cut too short the copies differ for ever; after one too long, committed records are fetched again or
    lost."""
    one = answer_round(cache({0: 0, 2: 12, 3: 14}), 16, answer, otherwise=7)
    assert (one.to, one.complete, one.leader) == (to, complete, answer)


def test_interleaved_epochs_take_two_rounds() -> None:
    """Each of both led records that the other never had: one question does not find the divergence."""
    local, leader = cache({0: 0, 2: 12, 3: 14}), cache({0: 0, 1: 10, 4: 15})
    assert [one.as_row() for one in epoch_rounds(local, 16, leader, 20, 5)] == [
        {"asks": 3, "leader": [1, 15], "local": [0, 12], "to": 12, "complete": False},
        {"asks": 0, "leader": [0, 10], "local": [0, 12], "to": 10, "complete": True},
    ]
    assert as_dict(local) == {0: 0, 2: 12, 3: 14}


def test_without_epochs_the_high_watermark_is_all_there_is() -> None:
    assert epoch_rounds(cache({}), 9, cache({0: 0}), 20, 4) == [TruncationRound(4)]


HISTORY = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 4), st.integers(0, 12)), max_size=8)


@given(HISTORY)
def test_the_rounds_end_at_the_first_difference(history: list[tuple[int, int, int]]) -> None:
    """Two logs that led one after another, each cut anywhere before it led: epochs find where they part, exactly."""
    logs: tuple[list[int], list[int]] = ([], [])  # the epoch of each offset
    epochs = cache({}), cache({})
    for epoch, (leads, records, cut) in enumerate(history):
        log, known = logs[leads], epochs[leads]
        del log[cut:]
        known.truncate_end(len(log))
        known.assign(epoch, len(log))
        log += [epoch] * records
    leader, local = (1, 0) if history and history[-1][0] else (0, 1)
    rounds = epoch_rounds(epochs[local], len(logs[local]), epochs[leader], len(logs[leader]), 0)
    shared = min(len(logs[0]), len(logs[1]))
    same = next((offset for offset in range(shared) if logs[0][offset] != logs[1][offset]), shared)
    assert min(rounds[-1].to, len(logs[local])) == same
