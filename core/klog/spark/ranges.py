"""From the requested bounds to offsets in each partition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

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
