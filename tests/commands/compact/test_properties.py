"""Laws of every compaction, for any log and any way of doing it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from hypothesis import Phase, event, given
from hypothesis import strategies as st
from klog.change.plan.executor import apply
from klog.commands.compact.compaction import PartitionOutcome
from klog.commands.compact.log_cleaner import CleanerOptions
from klog.partition.verify.findings import Severity

from tests.commands.compact.compacting import NOW_MS, planned, table
from tests.commands.compact.logs import RETENTION_MS, Log, Row, expected, fresh, log_of, logs, old_logs, row_of, rows
from tests.oracles.plain.decode import Batch, scan
from tests.partition.verify.partitions import findings_in
from tests.support.examples import examples
from tests.support.power import HastyDisk, tree

EVERY = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": str(RETENTION_MS),
    "index.interval.bytes": "100",
}
# A smallest case takes minutes to find.
quickly = examples(60, phases=(Phase.explicit, Phase.reuse, Phase.generate))
maps = st.sampled_from((48, 60, 100, 200, 1000, 1 << 20))
sizes = st.sampled_from((100, 600, 2000, 1 << 30))


def compacted(
    data: Path, choices: CleanerOptions | None = None, segment_bytes: int = 1 << 30, *, everything: bool = False
) -> PartitionOutcome:
    """Compact the only partition; return the outcome."""
    given_ = {**EVERY, "segment.bytes": str(segment_bytes)}
    plan, outcomes = planned(data, HastyDisk(), given_, choices or CleanerOptions(1 << 20), everything=everything)
    if plan.actions:
        apply(plan, HastyDisk())
    (outcome,) = outcomes
    assert outcome.failed is None, outcome.failed
    assert outcome.refused is None, outcome.refused
    return outcome


def raw_logs(data: Path, directory: str = "t-0") -> bytes:
    return b"".join(path.read_bytes() for path in sorted((data / directory).glob("*.log")))


@quickly
@given(log=logs(), memory_of_map=maps, segment_bytes=sizes, like_broker=st.booleans(), checkpoint=st.integers(0, 40))
def test_it_leaves_what_the_model_leaves(
    log: Log, memory_of_map: int, segment_bytes: int, like_broker: bool, checkpoint: int, memory: Path
) -> None:
    """The last value of each key, in the order and at the offsets that were; all above where it had to stop."""
    end = log.segments[-1].base
    data = fresh(memory, lambda place: log.write(place, cleaner_offset=min(checkpoint, end)))
    before, known = log_of(data), {one.id for one in findings_in(data)} | {"offset-gap", "sequence-gap"}
    done = compacted(data, CleanerOptions(memory_of_map, like_broker), segment_bytes)
    assert done.sections is not None
    first, limit = done.sections.first_dirty, done.sections.first_uncleanable
    if done.compacted is None:
        assert log_of(data) == before
        return
    event(f"rounds: {min(len(done.compacted.rounds), 4)}")
    after = log_of(data)
    assert done.compacted.cleaner_offset == limit
    assert rows(after) == expected(before, first, limit)
    # The remaining part of a batch keeps its place, an empty one too; markers are never written anew.
    assert set(map(_place, after)) <= set(map(_place, before))
    assert all(_latest(batch) == batch.max_timestamp for batch in after if batch.records)
    assert markers(after) == [one for one in markers(before) if one in set(markers(after))]
    # Below a checkpoint that was made up there are values that their own tombstones have not taken away yet.
    if first == 0:
        assert table(after) == table(before)
    new = [one for one in findings_in(data) if one.severity is not Severity.NOTE and one.id not in known]
    assert new == []


def _place(batch: Batch) -> tuple[object, ...]:
    numbered = (batch.producer_id, batch.producer_epoch, batch.base_sequence)
    return batch.base_offset, batch.last_offset, batch.leader_epoch, numbered, batch.timestamp_type, batch.transactional


def _latest(batch: Batch) -> int:
    """Return the times of a batch, which retention and searches use."""
    if batch.timestamp_type == "LogAppendTime":
        return batch.records[0].timestamp
    return max(record.timestamp for record in batch.records)


def markers(found: Sequence[Batch]) -> list[Row]:
    return [row_of(batch, at) for batch in found if batch.control for at in range(len(batch.records))]


@quickly
@given(log=logs(), memory_of_map=maps, segment_bytes=sizes, like_broker=st.booleans())
def test_a_second_time_changes_nothing(
    log: Log, memory_of_map: int, segment_bytes: int, like_broker: bool, memory: Path
) -> None:
    """Nothing is dirty then; and when all of it is done again, no byte of a batch changes.

    Except for transactions: a marker without data receives its horizon only then.
    """
    data = fresh(memory, log.write)
    choices = CleanerOptions(memory_of_map, like_broker)
    compacted(data, choices, segment_bytes)
    once, state = raw_logs(data), tree(data)
    again = compacted(data, choices, segment_bytes)
    assert again.compacted is None
    assert tree(data) == state
    compacted(data, choices, segment_bytes, everything=True)
    if any(batch.transactional for batch in log_of(data)):
        assert without_markers(raw_logs(data)) == without_markers(once)
    else:
        assert raw_logs(data) == once


def without_markers(content: bytes) -> list[bytes]:
    found = [batch for batch in scan(content) if isinstance(batch, Batch) and not batch.control]
    return [content[batch.position : batch.position + batch.size] for batch in found]


@quickly
@given(log=old_logs(), memory_of_map=maps, segment_bytes=sizes, like_broker=st.booleans())
def test_message_sets_are_compacted_too(
    log: Log, memory_of_map: int, segment_bytes: int, like_broker: bool, memory: Path
) -> None:
    """In their own format, or like a broker of today as record batches; and a second time nothing changes."""
    data = fresh(memory, log.write)
    before, end = log_of(data), log.segments[-1].base
    choices = CleanerOptions(memory_of_map, like_broker)
    compacted(data, choices, segment_bytes)
    after = log_of(data)
    assert [row[:2] + row[3:] for row in rows(after)] == [row[:2] + row[3:] for row in expected(before, 0, end)]
    assert all(_latest(batch) == batch.max_timestamp for batch in after if batch.magic and batch.records)
    old = [batch for batch in after if batch.base_offset < end]
    assert {batch.magic for batch in old} <= ({2} if like_broker else {batch.magic for batch in before[:-1]})
    once, state = raw_logs(data), tree(data)
    assert compacted(data, choices, segment_bytes).compacted is None
    assert tree(data) == state
    compacted(data, choices, segment_bytes, everything=True)
    assert raw_logs(data) == once


@quickly
@given(
    log=old_logs(),
    ages=st.lists(
        st.sampled_from((0, RETENTION_MS - 1, RETENTION_MS, RETENTION_MS + 1, 3 * RETENTION_MS)), min_size=12
    ),
    checkpoint=st.integers(0, 20),
    like_broker=st.booleans(),
)
def test_tombstones_of_message_sets_go_by_the_age_of_their_segment(
    log: Log, ages: list[int], checkpoint: int, like_broker: bool, memory: Path
) -> None:
    """They have no horizon: those go that are older, by delete.retention.ms, than the last segment that was clean."""
    end = log.segments[-1].base
    data = fresh(memory, lambda place: log.write(place, cleaner_offset=min(checkpoint, end)))
    times_ms = [NOW_MS - age for age, _ in zip(ages, log.segments, strict=False)]
    for segment, time_ms in zip(log.segments, times_ms, strict=False):
        os.utime(data / "t-0" / f"{segment.base:020}.log", ns=(time_ms * 1_000_000,) * 2)
    before = log_of(data)
    done = compacted(data, CleanerOptions(1 << 20, like_broker))
    assert done.sections is not None
    first = done.sections.first_dirty
    clean = [time_ms for segment, time_ms in zip(log.segments, times_ms, strict=False) if segment.base < first]
    horizon = clean[-1] - RETENTION_MS if clean else 0
    expired = set[int]()
    for segment, time_ms in zip(log.segments, times_ms, strict=False):
        if time_ms <= horizon:
            found = [batch for batch in scan(b"".join(segment.content)) if isinstance(batch, Batch)]
            expired |= {one.offset for batch in found for one in batch.records if one.value is None}
    if done.compacted is not None:
        assert [row[:2] + row[3:] for row in rows(log_of(data))] == [
            row[:2] + row[3:] for row in expected(before, first, end, expired)
        ]
