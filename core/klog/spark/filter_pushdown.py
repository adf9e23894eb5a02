"""The filters that Spark pushes down, as bounds of topics, partitions, offsets and times.

Filters on topic and partition are applied completely.  Offsets and times only limit the reading: Spark filters the rows
again, which costs nothing and treats damage, a row without an offset, the same with and without pushdown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from klog.formats.java_integers import LONG_MAX, LONG_MIN

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class FilterPushdown:
    """The bounds of the filters: topics, partitions (None: all), offsets, times (ms) from … up to, excluding, to."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    from_offset: int = LONG_MIN
    to_offset: int = LONG_MAX
    from_time: int = LONG_MIN
    to_time: int = LONG_MAX

    def means(self, topic: str | None, number: int | None) -> bool:
        """Whether rows of a partition can pass; None, which a row shows as null, equals nothing."""
        return (self.topics is None or topic in self.topics) and (self.partitions is None or number in self.partitions)


def push(filters: Iterable[Filter]) -> tuple[FilterPushdown, list[Filter]]:
    """Return the bounds that *filters*, combined, leave to read, and the filters that Spark must apply itself."""
    pushed, left = FilterPushdown(), []
    for each in filters:
        pushed, done = _narrowed(pushed, each)
        if not done:
            left.append(each)
    return pushed, left


def _narrowed(pushed: FilterPushdown, each: Filter) -> tuple[FilterPushdown, bool]:
    """Return the bounds with one filter more, and whether it is dealt with for good."""
    column = getattr(each, "attribute", None)
    if column in (("topic",), ("partition",)):
        values = _values(each)
        if values is None:
            return pushed, False
        if column == ("topic",):
            topics = frozenset(value for value in values if isinstance(value, str))
            return replace(pushed, topics=topics if pushed.topics is None else pushed.topics & topics), True
        numbers = frozenset(value for value in values if isinstance(value, int))
        return replace(pushed, partitions=numbers if pushed.partitions is None else pushed.partitions & numbers), True
    if column == ("offset",):
        first, end = _filter_range(each, 1)
        return replace(pushed, from_offset=max(pushed.from_offset, first), to_offset=min(pushed.to_offset, end)), False
    if column == ("timestamp",):
        first, end = _filter_range(each, 1000)
        return replace(pushed, from_time=max(pushed.from_time, first), to_time=min(pushed.to_time, end)), False
    return pushed, False


def _values(each: Filter) -> list[object] | None:
    """Return the values that a filter accepts; None when it is of another kind."""
    if isinstance(each, EqualTo) or (isinstance(each, EqualNullSafe) and each.value is not None):
        return [each.value]
    return list(each.value) if isinstance(each, In) else None


def _filter_range(each: Filter, unit: int) -> tuple[int, int]:
    """Return from … up to, not including, to, for numbers of which *unit* make one of ours: a time in µs is 1000."""
    numbers = [_number(value) for value in _values(each) or [getattr(each, "value", None)]]
    known = [number for number in numbers if number is not None]
    if not known or len(known) < len(numbers):
        return LONG_MIN, LONG_MAX
    first, last = -(-min(known) // unit), max(known) // unit
    first = min(first, LONG_MAX)  # no offset is that high, and an int64 is no higher
    if isinstance(each, (EqualTo, EqualNullSafe, In)):
        return first, last + 1
    if isinstance(each, GreaterThanOrEqual):
        return first, LONG_MAX
    if isinstance(each, GreaterThan):
        return min(last + 1, LONG_MAX), LONG_MAX
    if isinstance(each, LessThan):
        return LONG_MIN, first
    return LONG_MIN, last + 1 if isinstance(each, LessThanOrEqual) else LONG_MAX


def _number(value: object) -> int | None:
    """Return an offset, or a time in µs; None for anything else."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return (value - _EPOCH) // timedelta(microseconds=1)
    return value if type(value) is int else None
