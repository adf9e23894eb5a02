"""The segments of a partition directory with the timestamps that a broker has for them after its next start.

A broker takes the last entry of a segment's time index, and the modification time of the log if that has none.  The
time index of a segment that it recovers is rebuilt from the batches.  Kafka: LogSegment.largestTimestamp, sanityCheck.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from functools import cached_property

from klog.base.read_only import ReadOnlyFile
from klog.data_dir.partition import Partition, SegmentFiles
from klog.formats.damage import Damage
from klog.formats.index import TIME_ENTRY
from klog.log.header_walk import walk_headers
from klog.log.index import largest_timestamp, modified_ms


class StoredSegment:
    """An `AgedSegment` in a directory; its timestamp is read at the first access.

    *size*: the size of the log in bytes after the start.  *is_recovered*: whether the start rebuilds the indexes.
    """

    def __init__(self, partition: Partition, files: SegmentFiles, size: int, is_recovered: bool) -> None:
        self.base_offset, self.bytes = files.base_offset, size
        self._is_cut = size < files.size
        self._log = partition.file(files.log)
        self._time_index = None if files.time_index is None else partition.file(files.time_index)
        # Kafka: LogSegment.sanityCheck, which recovers a segment without an offset index.
        self._is_recovered = is_recovered or files.offset_index is None

    @cached_property
    def largest_timestamp(self) -> int:
        """The largest timestamp, ms, as a broker takes it.  Raises UnreadableError."""
        if self._is_recovered and not self._is_cut:
            return largest_timestamp(self._log, None)
        if self._is_recovered:
            largest = self._of_kept_batches()
        else:
            largest = -1 if self._time_index is None else _last_entry(self._time_index)
        return largest if largest >= 0 else modified_ms(self._log)

    def _of_kept_batches(self) -> int:
        with ReadOnlyFile(self._log) as log:
            kept = (one for one in walk_headers(log, 0) if not isinstance(one, Damage) and one.position < self.bytes)
            return max((one.max_timestamp for one in kept), default=-1)


def _last_entry(time_index: str) -> int:
    """Return the timestamp of the last entry, even one of zeros as in a broker; -1 without one."""
    with ReadOnlyFile(time_index) as index:
        whole = index.size - index.size % TIME_ENTRY.size
        return TIME_ENTRY.read(index.read(whole - TIME_ENTRY.size, TIME_ENTRY.size))[0] if whole else -1


def stored_segments(
    partition: Partition, is_clean: bool, sizes: Mapping[str, int] | None = None
) -> list[StoredSegment]:
    """Return the segments of *partition* as a start leaves them.

    *is_clean*: the log dir has the clean-shutdown marker; without it a broker recovers the segment of the recovery
    point and those behind it.  *sizes*: the bytes that the start leaves of each log, by name; None: all.
    """
    files = partition.segments
    bases = [one.base_offset for one in files]
    first = len(bases) if is_clean else max(bisect_right(bases, partition.recovery_point or 0) - 1, 0)
    return [
        StoredSegment(partition, one, one.size if sizes is None else sizes[one.log], number >= first)
        for number, one in enumerate(files)
        if sizes is None or one.log in sizes
    ]
