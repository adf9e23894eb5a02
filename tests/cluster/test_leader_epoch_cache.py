"""Leader epochs: the worked examples of Kafka's cache, and its laws."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from klog.cluster.leader_epoch_cache import LeaderEpochCache
from klog.formats.checkpoint import EpochEntry


def cache(entries: dict[int, int]) -> LeaderEpochCache:
    return LeaderEpochCache(EpochEntry(epoch, start) for epoch, start in entries.items())


def as_dict(epochs: LeaderEpochCache) -> dict[int, int]:
    return {entry.epoch: entry.start_offset for entry in epochs.entries}


@pytest.mark.parametrize(
    ("entries", "log_end", "ends"),
    [
        (
            {0: 0, 1: 10, 4: 15},
            20,
            {-1: (-1, -1), 0: (0, 10), 1: (1, 15), 2: (1, 15), 3: (1, 15), 4: (4, 20), 5: (-1, -1)},
        ),
        ({3: 40, 5: 60}, 80, {1: (1, 40), 2: (2, 40), 3: (3, 60), 4: (3, 60), 5: (5, 80), 6: (-1, -1)}),
        ({}, 7, {-1: (-1, -1), 0: (-1, -1)}),
    ],
)
def test_where_an_epoch_ends(entries: dict[int, int], log_end: int, ends: dict[int, tuple[int, int]]) -> None:
    """A follower truncates to this; below the first epoch the requested epoch is returned."""
    assert {epoch: cache(entries).end_offset_for(epoch, log_end) for epoch in ends} == ends


@pytest.mark.parametrize(
    ("epoch", "start", "after"),
    [
        (1, 12, {0: 0, 1: 10}),
        (1, 8, {0: 0, 1: 8}),
        (2, 5, {0: 0, 2: 5}),
        (2, 10, {0: 0, 2: 10}),
        (2, 12, {0: 0, 1: 10, 2: 12}),
        (0, 20, {0: 20}),
    ],
)
def test_what_a_new_epoch_leaves(epoch: int, start: int, after: dict[int, int]) -> None:
    epochs = cache({0: 0, 1: 10})
    epochs.assign(epoch, start)
    assert as_dict(epochs) == after


@pytest.mark.parametrize(
    ("end", "offset", "after"),
    [
        ("start", 12, {1: 12, 4: 15}),
        ("start", 15, {4: 15}),
        ("end", 15, {0: 0, 1: 10}),
        ("end", 16, {0: 0, 1: 10, 4: 15}),
        ("end", 10, {0: 0}),
    ],
)
def test_truncation(end: str, offset: int, after: dict[int, int]) -> None:
    epochs = cache({0: 0, 1: 10, 4: 15})
    (epochs.truncate_start if end == "start" else epochs.truncate_end)(offset)
    assert as_dict(epochs) == after


ENTRIES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 50)), max_size=9)


@given(ENTRIES, st.integers(-1, 12), st.integers(0, 60))
def test_an_epoch_never_ends_before_it_starts(entries: list[tuple[int, int]], epoch: int, beyond: int) -> None:
    epochs = LeaderEpochCache()
    for each, start in entries:
        epochs.assign(each, start)
    starts = [entry.start_offset for entry in epochs.entries]
    assert starts == sorted(set(starts))
    log_end = max([*starts, 0]) + beyond
    known, end = epochs.end_offset_for(epoch, log_end)
    if known == -1:
        assert end == -1
        assert epoch == -1 or epoch > epochs.latest
    else:
        assert known <= epoch
        assert all(epochs.epoch_at(offset) <= epoch for offset in (start for start in starts if start < end))
        assert known == epochs.latest or all(epochs.epoch_at(start) > epoch for start in starts if start >= end)
