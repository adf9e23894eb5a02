"""How long a broker recovers logs that were not closed cleanly, from measured rates.

Measured with brokers 4.3.1 and 3.9.1, one recovery thread, files in the page cache: 1.6 GB/s with batches of 16 KiB,
0.05 GB/s with batches of one record; a segment or a log costs some milliseconds however small it is.  A disk that is
slower than the processor adds to that, so the upper end counts on 50 MB/s.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from klog.commands.doctor.diagnosis import RecoveryWork
from klog.commands.doctor.partition_loader import LoadedPartition

_BEST_RATE: Final = 1.6e9
_WORST_RATE: Final = 50e6
_LOG_SECONDS: Final = (0.0005, 0.02)
"""The time for opening a log, and for each segment of it."""
WORTH_MARKING_SECONDS: Final = 60.0
"""The upper bound from which on recovery in advance is worth a step."""


def recovery_work(loaded: Iterable[LoadedPartition]) -> RecoveryWork:
    """Return the data that recovery reads.  Log dirs are recovered in parallel, each by one thread."""
    partitions = segments = size = 0
    by_dir: dict[str, tuple[int, int]] = {}
    for one in loaded:
        count, read = one.recovered
        if not count:
            continue
        partitions, segments, size = partitions + 1, segments + count, size + read
        before = by_dir.get(one.log_dir, (0, 0))
        by_dir[one.log_dir] = before[0] + count + 1, before[1] + read
    low = max((count * _LOG_SECONDS[0] + read / _BEST_RATE for count, read in by_dir.values()), default=0.0)
    high = sum(count * _LOG_SECONDS[1] + read / _WORST_RATE for count, read in by_dir.values())
    return RecoveryWork(partitions, segments, size, (round(low, 1), round(high, 1)))
