"""From the requested bounds, and the filters that Spark pushes down, to offsets in each partition.

Filters on topic and partition are applied completely.  Offsets and times only limit the reading: Spark filters the rows
again, which costs nothing and treats damage, a row without an offset, the same with and without pushdown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

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

from klog.base.errors import UsageError
from klog.data_dir.partition import Partition
from klog.data_dir.replicas import log_end
from klog.formats.java_integers import LONG_MAX, LONG_MIN
from klog.partition.lookup import Lookup
from klog.spark.read_bounds import EARLIEST, LATEST, OffsetBound, TopicPartition
from klog.spark.source_options import SourceOptions

NAMELESS: TopicPartition = ("", -1)


class Range(NamedTuple):
    """The range to read of a partition: first offset and end offset (exclusive); `LONG_MAX`: to its end."""

    partition: Partition
    from_offset: int
    to_offset: int


def name_of(partition: Partition) -> TopicPartition:
    """Return topic and number, `NAMELESS` for a directory whose name does not contain them."""
    return (partition.topic or "", partition.number or 0) if partition.name else NAMELESS


def batch_ranges(partitions: Sequence[Partition], options: SourceOptions) -> list[Range]:
    """Return the range to read of each partition: nothing of one without a segment, all of one that cannot be listed.

    Raises UsageError for a partition that a bound should name, for a timestamp later than all records, and for offsets
    that are deleted or not yet written, unless failOnDataLoss is false; UnreadableError from looking up times.
    """
    return [_range(partition, options) for partition in partitions if partition.segments or partition.unreadable]


def hold_names_against(bounds: Iterable[OffsetBound], partitions: Iterable[Partition]) -> None:
    """Raise UsageError when a bound names a partition that is not among *partitions*."""
    known = {name_of(partition) for partition in partitions}
    for bound in bounds:
        for topic, number in sorted(bound.named - known):
            raise UsageError(f"{bound.option}: no partition {topic}-{number} is read here")


def _range(partition: Partition, options: SourceOptions) -> Range:
    if partition.unreadable:
        return Range(partition, LONG_MIN, LONG_MAX)  # reading it reports the error
    return Range(partition, start_offset(partition, options), _end_offset(partition, options))


def start_offset(partition: Partition, options: SourceOptions) -> int:
    """Return the offset at which reading begins.  Raises as `batch_ranges` does."""
    bound, first = options.starting, partition.log_start_offset or 0
    wanted = bound.of(name_of(partition))
    if bound.by_time:
        found = _offset_at(partition, wanted)
        if found is not None:
            return found
        if options.late == "latest":
            return _last(partition)
        raise UsageError(
            f"{bound.option}: nothing in {partition.directory} is as late as {wanted} "
            "(startingOffsetsByTimestampStrategy=latest begins at its end then)"
        )
    if wanted == EARLIEST:
        return first
    if wanted == LATEST:
        return _last(partition)
    return _in_log(bound, partition, wanted, options)


def _end_offset(partition: Partition, options: SourceOptions) -> int:
    bound = options.ending
    wanted = bound.of(name_of(partition))
    if bound.by_time:
        found = _offset_at(partition, wanted)
        return LONG_MAX if found is None else found
    return LONG_MAX if wanted == LATEST else _in_log(bound, partition, wanted, options)


def _last(partition: Partition) -> int:
    return max(log_end(partition), partition.log_start_offset or 0)


def _offset_at(partition: Partition, timestamp: int) -> int | None:
    """Return the offset of the first record at or after *timestamp* (ms), as a broker answers ListOffsets."""
    with Lookup(partition) as lookup:
        trail = lookup.timestamp(timestamp)
        return trail.offset if trail.found else None


def _in_log(bound: OffsetBound, partition: Partition, wanted: int, options: SourceOptions) -> int:
    first, end = partition.log_start_offset or 0, _last(partition)
    if options.fail_on_data_loss and not first <= wanted <= end:
        raise UsageError(
            f"{bound.option}: offset {wanted} of {partition.directory} is not there: its log is from {first} to {end} "
            "(failOnDataLoss=false reads what is there)"
        )
    return max(wanted, first)


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
