"""The log of a simulated replica beside a plain list that holds the epoch of every offset."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from klog.commands.simulate.replica_log import EpochBatch, ReplicaLog, first_difference

SIZE = 10
ACTS = st.lists(st.tuples(st.sampled_from(["append", "append", "truncate", "start"]), st.integers(1, 40)), max_size=20)


def build(acts: list[tuple[str, int]], first_epoch: int) -> tuple[ReplicaLog, dict[int, int]]:
    """Return a log after *acts*, and the epoch of each of its offsets."""
    log, epochs = ReplicaLog(), dict[int, int]()
    for number, (act, value) in enumerate(acts):
        if act == "append":
            batch = EpochBatch(first_epoch + number, log.log_end, 1 + value % 5, SIZE)
            log.append(batch)
            epochs |= dict.fromkeys(range(batch.base_offset, batch.next_offset), batch.epoch)
        elif act == "truncate":
            log.truncate(value)
            epochs = {offset: epoch for offset, epoch in epochs.items() if offset < log.log_end}
        else:
            log.raise_log_start(min(value, log.log_end))
        epochs = {offset: epoch for offset, epoch in epochs.items() if offset >= log.log_start}
    return log, epochs


@settings(deadline=None, max_examples=80)
@given(ACTS, st.integers(0, 40), st.integers(1, 200), st.integers(0, 40))
def test_it_holds_what_the_list_holds(acts: list[tuple[str, int]], offset: int, room: int, mark: int) -> None:
    """Reads, sizes, epochs and the content, after any appends and truncations."""
    log, epochs = build(acts, 0)
    log.set_high_watermark(mark)
    assert log.log_start <= log.high_watermark <= log.log_end
    assert sorted(epochs) == list(range(log.log_start, log.log_end))
    assert all(log.epochs.epoch_at(one) == epoch for one, epoch in epochs.items())
    offset = max(offset, log.log_start)
    assert log.size_from(offset) == SIZE * sum(one >= offset for one in epochs)
    whole = [(one, batch.epoch) for batch in log.read(offset) for one in range(batch.base_offset, batch.next_offset)]
    assert whole == [(one, epoch) for one, epoch in sorted(epochs.items()) if one >= offset]
    some = log.read(offset, room)
    assert some == log.read(offset)[: len(some)]
    assert sum(batch.size for batch in some[1:]) <= max(0, room - (some[0].size if some else 0))
    if len(some) < len(log.read(offset)):
        assert some
        assert sum(batch.size for batch in log.read(offset)[: len(some) + 1]) > room
    for epoch in range(len(acts)):
        held = epochs.get(offset) == epoch and epochs.get(offset + 1) == epoch
        assert log.holds(EpochBatch(epoch, offset, 2, SIZE)) == held
    assert log.holds(EpochBatch(0, 0, log.log_start, SIZE)) or not log.log_start


@settings(deadline=None, max_examples=80)
@given(ACTS, ACTS, ACTS)
def test_the_first_difference_is_that_of_the_lists(
    shared: list[tuple[str, int]], ones: list[tuple[str, int]], others: list[tuple[str, int]]
) -> None:
    a, b = build([*shared, *ones], 0), build([*shared, *others], 0)
    if ones != others:
        # From here on both wrote for themselves: the same epoch would make the same records.
        b = build([*shared, *others], 100)
        a = build([*shared, *ones], 0)
    offsets = sorted(a[1].keys() & b[1].keys())
    assert first_difference(a[0], b[0]) == next((one for one in offsets if a[1][one] != b[1][one]), None)
