"""Filters that Spark passes down: the rows to read, and those that Spark has to filter all the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from klog.formats.java_integers import LONG_MAX, LONG_MIN
from klog.spark.filter_pushdown import FilterPushdown, push
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

TOPIC, PARTITION, OFFSET, TIME = ("topic",), ("partition",), ("offset",), ("timestamp",)
T = datetime(2025, 6, 15, 12, tzinfo=UTC)
T_MS = int(T.timestamp()) * 1000
HALF = timedelta(microseconds=500)


def test_topics_and_partitions_are_dealt_with_for_good() -> None:
    """A topic that cannot match is not even planned, and there is nothing left to look at."""
    pushed, left = push([In(TOPIC, ["a", "b", None]), EqualTo(TOPIC, "b"), EqualNullSafe(PARTITION, 3)])  # type: ignore[arg-type]
    assert left == []
    assert (pushed.topics, pushed.partitions) == ({"b"}, {3})
    assert pushed.means("b", 3)
    assert not pushed.means("b", 4)
    assert not pushed.means("a", 3)
    assert not pushed.means(None, None)


def test_nothing_pushed_means_everything() -> None:
    assert FilterPushdown().means(None, None)


def test_what_contradicts_itself_leaves_nothing() -> None:
    pushed, _ = push([EqualTo(TOPIC, "a"), EqualTo(TOPIC, "b")])
    assert not pushed.means("a", 0)
    assert not pushed.means("b", 0)


@pytest.mark.parametrize(
    ("given", "bounds"),
    [
        (EqualTo(OFFSET, 5), (5, 6)),
        (EqualNullSafe(OFFSET, 5), (5, 6)),
        (In(OFFSET, [9, 5, 7]), (5, 10)),  # type: ignore[arg-type]  # Spark gives a list
        (GreaterThan(OFFSET, 5), (6, LONG_MAX)),
        (GreaterThanOrEqual(OFFSET, 5), (5, LONG_MAX)),
        (LessThan(OFFSET, 5), (LONG_MIN, 5)),
        (LessThanOrEqual(OFFSET, 5), (LONG_MIN, 6)),
        (GreaterThan(OFFSET, LONG_MAX), (LONG_MAX, LONG_MAX)),
        (LessThanOrEqual(OFFSET, LONG_MAX), (LONG_MIN, LONG_MAX)),
        (EqualTo(OFFSET, None), (LONG_MIN, LONG_MAX)),
        (In(OFFSET, [5, None]), (LONG_MIN, LONG_MAX)),  # type: ignore[arg-type]
        (Not(EqualTo(OFFSET, 5)), (LONG_MIN, LONG_MAX)),
    ],
)
def test_offsets_bound_what_is_read(given: Filter, bounds: tuple[int, int]) -> None:
    """Spark filters again: rows about damage have no offset, and only Spark decides about them."""
    pushed, left = push([given])
    assert (pushed.from_offset, pushed.to_offset) == bounds
    assert left == [given]


@pytest.mark.parametrize(
    ("given", "bounds"),
    [
        (GreaterThanOrEqual(TIME, T), (T_MS, LONG_MAX)),
        (GreaterThanOrEqual(TIME, T + HALF), (T_MS + 1, LONG_MAX)),
        (GreaterThan(TIME, T), (T_MS + 1, LONG_MAX)),
        (GreaterThan(TIME, T - HALF), (T_MS, LONG_MAX)),
        (LessThan(TIME, T), (LONG_MIN, T_MS)),
        (LessThan(TIME, T + HALF), (LONG_MIN, T_MS + 1)),
        (LessThanOrEqual(TIME, T), (LONG_MIN, T_MS + 1)),
        (LessThanOrEqual(TIME, T - HALF), (LONG_MIN, T_MS)),
        (EqualTo(TIME, T), (T_MS, T_MS + 1)),
        (EqualTo(TIME, T + HALF), (T_MS + 1, T_MS + 1)),
        (GreaterThan(TIME, T.replace(tzinfo=None)), (LONG_MIN, LONG_MAX)),
    ],
)
def test_times_between_milliseconds_cut_where_they_should(given: Filter, bounds: tuple[int, int]) -> None:
    """Spark counts microseconds, Kafka milliseconds: rounded the wrong way a record at the edge is lost."""
    pushed, left = push([given])
    assert (pushed.from_time, pushed.to_time) == bounds
    assert left == [given]


def test_several_bounds_are_all_kept() -> None:
    pushed, _ = push([GreaterThan(OFFSET, 5), LessThan(OFFSET, 9), GreaterThan(OFFSET, 3), LessThan(OFFSET, 20)])
    assert (pushed.from_offset, pushed.to_offset) == (6, 9)


@pytest.mark.parametrize(
    "given", [IsNotNull(TOPIC), StringStartsWith(TOPIC, "a"), EqualTo(("key",), b"k"), EqualNullSafe(TOPIC, None)]
)
def test_what_is_not_understood_is_left_to_spark(given: Filter) -> None:
    assert push([given]) == (FilterPushdown(), [given])
