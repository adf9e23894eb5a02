"""Which partitions a command line, or a program, means: paths, narrowed to topics and partition numbers."""

from __future__ import annotations

from collections.abc import Sequence

from klog.data_dir.partition import Partition
from klog.errors import UsageError, near_misses


def select(partitions: Sequence[Partition], topics: Sequence[str], numbers: Sequence[int]) -> list[Partition]:
    """Return the partitions of *topics* (names or globs; none: all) with one of *numbers* (none: all).

    Raises UsageError for a topic or number that nothing matches, with near misses.
    """
    from fnmatch import fnmatchcase

    found = [
        partition
        for partition in partitions
        if not topics or (partition.topic is not None and any(fnmatchcase(partition.topic, glob) for glob in topics))
    ]
    known = {partition.topic for partition in partitions if partition.topic is not None}
    for glob in topics:
        if not any(fnmatchcase(topic, glob) for topic in known):
            raise UsageError(f"no topic {glob}{near_misses(glob, known)}")
    for number in numbers:
        if all(partition.number != number for partition in found):
            raise UsageError(f"no partition {number} of {', '.join(topics) or 'any topic'}")
    return [partition for partition in found if not numbers or partition.number in numbers]
