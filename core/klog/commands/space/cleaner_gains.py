"""The result of a cleaner for compacted logs if it cleaned them now, dirty enough or not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from klog.base.errors import KlogError
from klog.commands.compact.log_cleaner import CleanerOptions, PartitionCompaction
from klog.commands.space.disk_usage import DiskUsage
from klog.data_dir.partition import Partition

_MAP_BYTES: Final = 64 << 20
"""The memory for 2.5 million keys at a time, half of a broker's cleaner's."""


class CleanerGain(NamedTuple):
    """A partition whose logs have *bytes_before*, and would have about *bytes_after*.

    *sampled*: the part of the cleaner's input that was read.  *is_locked*: a broker runs on its log dir.
    """

    partition: Partition
    bytes_before: int
    bytes_after: int
    sampled: float
    is_locked: bool

    @property
    def bytes(self) -> int:
        """How many bytes that would free."""
        return self.bytes_before - self.bytes_after


def find_gains(usage: DiskUsage, fraction: float) -> Iterator[CleanerGain]:
    """Yield the remaining size of each compacted log after the cleaner; a *fraction* of the segments is rewritten for
    that.

    A log that it would not clean is unchanged.  `usage.problems` receives the unreadable parts.
    """
    for log_dir in usage.log_dirs:
        is_locked = bool(log_dir.log_dir.lock.held)
        for one in log_dir.partitions:
            partition = one.partition
            rules = usage.rules_of(log_dir, partition.topic)
            if one.state_reason is not None or not rules.compacts or len(one.found.segments) < 2:
                continue
            sections = usage.cleaning(log_dir, partition)
            size = sum(segment.log_bytes for segment in one.found.segments)
            if isinstance(sections, str) or not sections.dirty.bytes:
                yield CleanerGain(partition, size, size, 1.0, is_locked)
                continue
            try:
                expected = PartitionCompaction(sections, CleanerOptions(_MAP_BYTES)).expect(fraction)
            except KlogError as error:
                usage.note(str(error))
                continue
            yield CleanerGain(partition, size, expected.bytes_after, expected.sampled, is_locked)
