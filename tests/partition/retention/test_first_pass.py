"""The removals of the first retention pass, as a table: values in, segments and rules out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from klog.commands.space.kept_reasons import Reason, judge_segments
from klog.partition.retention.first_pass import BY_BYTES, BY_MS, BY_START, RetentionLimits, SegmentAge, due_segments

HOUR = 3_600_000
NOW = 1_763_000_000_000


def log(*ages_ms: int, size: int = 100) -> list[SegmentAge]:
    """Segments of ten records and *size* bytes each, the largest timestamp of each so long ago."""
    return [SegmentAge(10 * at, size, NOW - age) for at, age in enumerate(ages_ms)]


def limits(ms: int = -1, size: int = -1, deletes: bool = True) -> RetentionLimits:
    return RetentionLimits(deletes, ms, size)


def removed(segments: list[SegmentAge], by: RetentionLimits, log_start: int = 0) -> list[tuple[int, str]]:
    return [(one.base_offset, one.rule) for one in due_segments(segments, by, log_start, NOW)]


OLD = 2 * HOUR


@pytest.mark.parametrize(
    ("segments", "by", "log_start", "expected"),
    [
        (log(OLD, OLD, 1), limits(HOUR), 0, [(0, BY_MS), (10, BY_MS)]),
        (log(OLD, OLD), limits(HOUR), 0, [(0, BY_MS), (10, BY_MS)]),  # the active one is rolled
        (log(HOUR, HOUR), limits(HOUR), 0, []),
        (log(HOUR + 1), limits(HOUR), 0, [(0, BY_MS)]),
        (log(OLD, 1, OLD), limits(HOUR), 0, [(0, BY_MS)]),  # whole segments, from the front
        (log(OLD, -HOUR, OLD), limits(HOUR), 0, [(0, BY_MS)]),  # a timestamp in the future
        (log(OLD, OLD), limits(), 0, []),
        (log(OLD, OLD), limits(HOUR, 0, deletes=False), 0, []),
        (log(OLD, OLD), limits(HOUR, 0, deletes=False), 10, [(0, BY_START)]),
        (log(1, 1, 1), limits(size=100), 0, [(0, BY_BYTES), (10, BY_BYTES)]),
        (log(1, 1, 1), limits(size=101), 0, [(0, BY_BYTES)]),
        (log(1, 1, 1), limits(size=300), 0, []),
        (log(1, 1, 1), limits(size=301), 0, []),
        (log(1, 1), limits(size=0), 0, [(0, BY_BYTES), (10, BY_BYTES)]),
        (log(OLD, OLD, OLD), limits(HOUR, 200), 0, [(0, BY_BYTES), (10, BY_MS), (20, BY_MS)]),
        (log(1, 1, 1, 1), limits(size=200), 15, [(0, BY_START), (10, BY_BYTES)]),
        ([*log(OLD), SegmentAge(10, 0, NOW - OLD)], limits(HOUR), 0, [(0, BY_MS)]),  # empty and active: stays
        ([SegmentAge(0, 0, NOW - OLD)], limits(0, 0), 0, []),
        ([], limits(0, 0), 0, []),
    ],
)
def test_segments_go_from_the_front_by_start_size_and_time(
    segments: list[SegmentAge], by: RetentionLimits, log_start: int, expected: list[tuple[int, str]]
) -> None:
    """Each rule stops at the first segment that it keeps, and counts only the rest of the rules before it."""
    assert removed(segments, by, log_start) == expected


segment_lists = st.lists(st.tuples(st.integers(0, 300), st.integers(-HOUR, 2 * HOUR)), min_size=1, max_size=8)


@given(segment_lists, st.integers(-1, 2 * HOUR), st.integers(-1, 900), st.booleans(), st.integers(0, 80))
def test_space_calls_the_same_segments_due(
    rows: list[tuple[int, int]], ms: int, size: int, deletes: bool, log_start: int
) -> None:
    """`klog space` and the commands that plan a change never differ about what retention takes."""
    segments = [SegmentAge(10 * at, bytes_, NOW - age) for at, (bytes_, age) in enumerate(rows)]
    by = limits(ms, size, deletes)
    due = {one.base_offset for one in due_segments(segments, by, log_start, NOW)}
    fates = judge_segments(segments, by, log_start, NOW)
    for one, fate in zip(segments[:-1], fates, strict=False):
        is_due = fate is not None and fate.reason in (Reason.RETENTION_DUE, Reason.BELOW_LOG_START)
        assert (one.base_offset in due) == is_due
    last = fates[-1]
    assert (segments[-1].base_offset in due) == ("rolls it" in str(last and last.because))
