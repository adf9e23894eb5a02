"""Sums over a `DiskUsage`: by log dir, topic and reason; the imbalance between log dirs.

The bytes of a segment are those of its log and of its indexes.  Segments and other files add up to the whole content.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from klog.commands.space.disk_usage import DiskUsage, FileSystem, LogDirUsage, OtherUsage, PartitionUsage, SegmentUsage
from klog.commands.space.kept_reasons import Reason


@dataclass
class Sum:
    """Segments added up.  *oldest*: the earliest timestamp, ms.  *due*: the time of the first removal; None: never."""

    bytes: int = 0
    disk_bytes: int = 0
    segments: int = 0
    partitions: int = 0
    oldest: int | None = None
    due: int | None = None
    reasons: dict[Reason, int] = field(default_factory=dict)

    def take(self, one: SegmentUsage) -> None:
        """Add a segment."""
        size, reason, reasons = one.bytes + one.index_bytes, one.reason, self.reasons
        self.bytes += size
        self.disk_bytes += one.disk_bytes
        self.segments += 1
        reasons[reason] = reasons.get(reason, 0) + size
        timestamp, due = one.last_timestamp, one.due
        if timestamp is not None and (self.oldest is None or timestamp < self.oldest):
            self.oldest = timestamp
        waits = one.because is not None and reason in (Reason.RETENTION_TIME, Reason.FUTURE_TIMESTAMP)
        if due is not None and not waits and (self.due is None or due < self.due):
            self.due = due

    def take_other(self, one: OtherUsage) -> None:
        """Add a file that is of no segment."""
        self.bytes += one.bytes
        self.disk_bytes += one.disk_bytes
        if one.reason is not None:
            self.reasons[one.reason] = self.reasons.get(one.reason, 0) + one.bytes

    def take_partition(self, usage: DiskUsage, log_dir: LogDirUsage, partition: PartitionUsage) -> None:
        """Add the segments of a partition."""
        self.partitions += 1
        for segment in usage.segments_of(log_dir, partition):
            self.take(segment)

    def add(self, other: Sum) -> None:
        """Add another sum."""
        self.bytes, self.disk_bytes = self.bytes + other.bytes, self.disk_bytes + other.disk_bytes
        self.segments, self.partitions = self.segments + other.segments, self.partitions + other.partitions
        self.oldest, self.due = _earlier(self.oldest, other.oldest), _earlier(self.due, other.due)
        for reason, size in other.reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + size


class Imbalance(NamedTuple):
    """How unevenly log dirs are filled: paths and bytes of the fullest and the emptiest, and the mean.

    *spread*: the difference of the two as a part of the mean.  *shared*: they are on one file system, so that moving
    partitions would gain nothing.
    """

    fullest: str
    fullest_bytes: int
    emptiest: str
    emptiest_bytes: int
    mean_bytes: int
    spread: float
    shared: bool


class SpaceTotals(NamedTuple):
    """All sums.  *log_dirs*: by path.  *topics*: by path and topic.  *others*: the bytes outside of segments."""

    all: Sum
    log_dirs: dict[str, Sum]
    file_systems: dict[str, FileSystem | None]
    topics: dict[tuple[str, str | None], Sum]
    others: int

    @property
    def by_topic(self) -> dict[str | None, Sum]:
        """The sums of topics over all log dirs."""
        found: dict[str | None, Sum] = {}
        for (_, topic), one in self.topics.items():
            found.setdefault(topic, Sum()).add(one)
        return found

    @property
    def imbalance(self) -> Imbalance | None:
        """The imbalance between the log dirs; None if there is only one."""
        if len(self.log_dirs) < 2:
            return None
        sizes = sorted((one.bytes, path) for path, one in self.log_dirs.items())
        mean = self.all.bytes // len(sizes)
        (least, emptiest), (most, fullest) = sizes[0], sizes[-1]
        devices = {None if one is None else one.device for one in self.file_systems.values()}
        return Imbalance(
            fullest, most, emptiest, least, mean, (most - least) / mean if mean else 0.0, len(devices) == 1
        )


def add_up(usage: DiskUsage) -> SpaceTotals:
    """Return all sums."""
    totals = SpaceTotals(Sum(), {}, {}, {}, 0)
    others = 0
    for log_dir in usage.log_dirs:
        path = log_dir.log_dir.path
        here = totals.log_dirs.setdefault(path, Sum())
        totals.file_systems[path] = log_dir.file_system
        files: Iterable[OtherUsage] = log_dir.others
        others += _take_others(here, files)
        for partition in log_dir.partitions:
            key = path, partition.partition.topic
            if key not in totals.topics:
                totals.topics[key] = Sum()
            totals.topics[key].take_partition(usage, log_dir, partition)
            others += _take_others(here, partition.names())
    for (path, _), one in totals.topics.items():
        totals.log_dirs[path].add(one)
    for one in totals.log_dirs.values():
        totals.all.add(one)
    return totals._replace(others=others)


def sum_of(usage: DiskUsage, log_dir: LogDirUsage, partition: PartitionUsage) -> Sum:
    """Return the segments of a partition, added up."""
    total = Sum()
    total.take_partition(usage, log_dir, partition)
    return total


def _earlier(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def _take_others(total: Sum, files: Iterable[OtherUsage]) -> int:
    size = 0
    for one in files:
        total.take_other(one)
        size += one.bytes
    return size
