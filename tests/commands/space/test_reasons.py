"""The rules of retention as a table: values in, reason and date out."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from klog.commands.space.kept_reasons import Reason, SegmentFate, judge_segments
from klog.partition.retention.first_pass import RetentionLimits, SegmentAge

HOUR = 3_600_000
NOW = 1_763_000_000_000
TIME = RetentionLimits(deletes=True, retention_ms=HOUR, retention_bytes=-1)
SIZE = RetentionLimits(deletes=True, retention_ms=-1, retention_bytes=250)
BOTH = RetentionLimits(deletes=True, retention_ms=HOUR, retention_bytes=250)
NONE = RetentionLimits(deletes=True, retention_ms=-1, retention_bytes=-1)
COMPACT = RetentionLimits(deletes=False, retention_ms=HOUR, retention_bytes=100)


def log(*ages_ms: int, size: int = 100) -> list[SegmentAge]:
    """Segments of ten records and *size* bytes each, the largest timestamp of each so long ago."""
    return [SegmentAge(10 * at, size, NOW - age) for at, age in enumerate(ages_ms)]


def reasons(segments: Sequence[SegmentAge], limits: RetentionLimits, log_start: int = 0) -> list[Reason | None]:
    return [None if fate is None else fate.reason for fate in judge_segments(segments, limits, log_start, NOW)]


def test_by_time_segments_go_once_they_are_older_and_not_before() -> None:
    """A broker deletes segments older than the limit; at the limit itself one stays."""
    found = judge_segments(log(HOUR + 1, HOUR, 1, 0), TIME, 0, NOW)
    assert [fate and fate.reason for fate in found] == [
        *(Reason.RETENTION_DUE, Reason.RETENTION_TIME, Reason.RETENTION_TIME, Reason.ACTIVE)
    ]
    assert [fate and fate.due for fate in found] == [NOW - 1, NOW, NOW + HOUR - 1, NOW + HOUR]


def test_a_record_from_the_future_holds_what_is_behind_it() -> None:
    """Deletion goes in order: the segment with the record stays until that is old, and all others with it."""
    fates = judge_segments(log(2 * HOUR, -40 * HOUR, 2 * HOUR, 2 * HOUR), TIME, 0, NOW)
    assert fates == [
        SegmentFate(Reason.RETENTION_DUE, NOW - HOUR, "retention.ms"),
        SegmentFate(Reason.FUTURE_TIMESTAMP, NOW + 41 * HOUR),
        SegmentFate(Reason.BEHIND, NOW + 41 * HOUR, "segment 10"),
        SegmentFate(Reason.ACTIVE, NOW + 41 * HOUR, "segment 10 is deleted later"),
    ]


def test_a_date_that_another_segment_puts_off_says_so() -> None:
    """The second segment is as young as its timestamp, and is still deleted only after the first."""
    first, second, _ = judge_segments(log(1, 1000, 1000), TIME, 0, NOW)
    assert first == SegmentFate(Reason.RETENTION_TIME, NOW + HOUR - 1)
    assert second == SegmentFate(Reason.RETENTION_TIME, NOW + HOUR - 1000, "segment 0 is deleted later")


def test_by_size_the_rest_stays_at_or_above_the_limit() -> None:
    """A broker never deletes below the limit: of 250 wanted bytes in segments of 100 it keeps 300."""
    assert reasons(log(0, 0, 0, 0, 0), SIZE) == [
        *(Reason.RETENTION_DUE, Reason.RETENTION_DUE, Reason.RETENTION_SIZE, Reason.RETENTION_SIZE, Reason.ACTIVE)
    ]
    exact = [SegmentAge(0, 50, NOW), *log(0, 0, 0)[1:], SegmentAge(90, 50, NOW)]
    assert reasons(exact, SIZE)[0] is Reason.RETENTION_DUE, "the rest is exactly the limit"


def test_time_counts_where_size_is_content_and_the_other_way_round() -> None:
    """Either rule is enough; time takes up where size has stopped."""
    assert reasons(log(0, 2 * HOUR, 0, 0, 0), BOTH) == [
        *(Reason.RETENTION_DUE, Reason.RETENTION_DUE, Reason.RETENTION_TIME, Reason.RETENTION_TIME, Reason.ACTIVE)
    ]
    assert reasons(log(2 * HOUR, 0), BOTH) == [Reason.RETENTION_DUE, Reason.ACTIVE]


def test_deleted_records_go_whatever_their_age_and_their_policy() -> None:
    """`kafka-delete-records` moves the log start: a segment wholly below it is deleted, also of a compacted topic."""
    for limits in (TIME, NONE, COMPACT):
        found = reasons(log(1, 1, 1, 1), limits, log_start=29)
        assert found[:2] == [Reason.BELOW_LOG_START, Reason.BELOW_LOG_START]
        assert found[2] is not Reason.BELOW_LOG_START, "offset 29 can still be read"
    assert reasons(log(1, 1), TIME, log_start=99) == [Reason.BELOW_LOG_START, Reason.ACTIVE], "never the active one"
    assert reasons(log(2 * HOUR, 1), TIME, log_start=10)[0] is Reason.RETENTION_DUE, "the first that holds"


def test_no_retention_leaves_it_to_others() -> None:
    """Retention does not depend on a cleaner's work there."""
    assert reasons(log(1, 1), NONE) == [None, Reason.ACTIVE]
    assert reasons(log(9 * HOUR, 9 * HOUR), COMPACT) == [None, Reason.ACTIVE]


def test_the_active_segment_says_when_it_would_go() -> None:
    """It is rolled and deleted only when all of the log is due; an empty one never."""
    (fate,) = judge_segments(log(2 * HOUR), TIME, 0, NOW)
    assert fate is not None
    assert (fate.reason, fate.due) == (Reason.ACTIVE, NOW - HOUR)
    assert "rolls it" in str(fate.because)
    (empty,) = judge_segments(log(2 * HOUR, size=0), TIME, 0, NOW)
    assert empty == SegmentFate(Reason.ACTIVE)


@pytest.mark.parametrize("limits", [TIME, SIZE, BOTH, NONE, COMPACT])
def test_absurd_values_are_answered(limits: RetentionLimits) -> None:
    """Timestamps are written by producers, and sizes are those of directories."""
    top = 2**63 - 1
    segments = [SegmentAge(0, top, top), SegmentAge(1, 0, -(2**63)), SegmentAge(top, top, top)]
    found = judge_segments(segments, limits, top, NOW)
    assert len(found) == 3
    assert all(fate is None or fate.due is None or fate.due <= top for fate in found)


def test_a_segment_that_ends_at_the_log_start_is_below_it() -> None:
    """The next one begins there."""
    assert reasons(log(0, 0, 0), NONE, log_start=9) == [None, None, Reason.ACTIVE]
    assert reasons(log(0, 0, 0), NONE, log_start=10) == [Reason.BELOW_LOG_START, None, Reason.ACTIVE]
