"""Splits a segment whose offsets do not fit into it.  Kafka: LocalLog.splitOverflowedSegment."""

from __future__ import annotations

from collections.abc import Iterator

from klog.change.partition_plan.contents import FileRange
from klog.formats.batch import BatchFacts
from klog.formats.index import OFFSET_ENTRY, TIME_ENTRY
from klog.formats.java_integers import LONG_MIN
from klog.log.segment import MAX_RELATIVE_OFFSET
from klog.partition.start.segment_recovery import PartitionReader, first_offset
from klog.partition.start.start_files import FailsError, StartSegment

_CHUNK_BYTES = 1 << 20


def split(segment: StartSegment, reading: PartitionReader) -> list[StartSegment]:
    """Return the segments that take the place of one with an overflow.  Raises FailsError if a broker gives up."""
    segment.offset_index = None
    batches = list(_batches(segment, reading))
    end = batches[-1].last_offset if batches else segment.base - 1
    if not segment.base < end + 1 or 0 <= end - segment.base <= MAX_RELATIVE_OFFSET:
        raise FailsError(f"{segment.log[0].name}: Split operation is only permitted for segments with overflow")
    if sum(batch.size for batch in batches) != segment.size:
        raise FailsError(f"{segment.log[0].name}: ends in the middle of a batch, and cannot be split")
    parts: list[_Part] = []
    while batches:
        part = _Part(batches[0].base_offset, reading)
        taken = part.fill(batches)
        if not taken:
            raise FailsError(f"{segment.log[0].name} @ {batches[0].position}: Failed to append records")
        del batches[:taken]
        parts.append(part)
    if len({part.base for part in parts}) < len(parts):
        raise FailsError(f"{segment.log[0].name}: two of the segments to split it into have the same base offset")
    return [part.segment(segment.log[0].name) for part in parts]


def _batches(segment: StartSegment, reading: PartitionReader) -> Iterator[BatchFacts]:
    for window in reading.windows(segment, LONG_MIN):
        for i in range(window.count):
            yield window.batch(i)._replace(base_offset=first_offset(window, i, segment.log[0].name))


class _Part:
    """One of the new segments, appended to in chunks.  Kafka: LogSegment.appendFromFile."""

    def __init__(self, base: int, reading: PartitionReader) -> None:
        self.base = base
        self._interval = reading.settings.interval
        self._start = self._end = 0
        self._since = 0
        self._largest, self._largest_offset = -1, base
        self._last_time = -1
        self._entries = self._times = b""

    def fill(self, batches: list[BatchFacts]) -> int:
        """Take as many batches as fit; return how many."""
        self._start = self._end = batches[0].position
        room, taken = _CHUNK_BYTES, 0
        while taken < len(batches):
            chunk: list[BatchFacts] = []
            size = 0
            for batch in batches[taken:]:
                if not 0 <= batch.last_offset - self.base <= MAX_RELATIVE_OFFSET or (
                    chunk and size + batch.size >= room
                ):
                    break
                chunk.append(batch)
                size += batch.size
            if not chunk:
                break
            room = max(room, size)
            self._append(chunk, size)
            taken += len(chunk)
        return taken

    def _append(self, chunk: list[BatchFacts], size: int) -> None:
        largest = max(chunk, key=lambda batch: batch.max_timestamp)
        if largest.max_timestamp > self._largest:
            self._largest, self._largest_offset = largest.max_timestamp, largest.last_offset
        if self._since > self._interval:
            if (
                self._entries
                and chunk[-1].last_offset - self.base <= OFFSET_ENTRY.read(self._entries[-OFFSET_ENTRY.size :])[0]
            ):
                raise FailsError(f"offset {chunk[-1].last_offset} is not above that of the index entry before it")
            self._entries += OFFSET_ENTRY.write(chunk[-1].last_offset - self.base, self._end - self._start)
            self._time_entry()
            self._since = 0
        self._since += size
        self._end += size

    def _time_entry(self) -> None:
        if self._largest > self._last_time:
            self._times += TIME_ENTRY.write(self._largest, self._largest_offset - self.base)
            self._last_time = self._largest

    def segment(self, log: str) -> StartSegment:
        """Return the finished segment, a piece of *log*."""
        self._time_entry()
        made = StartSegment(self.base, (FileRange(log, self._start, self._end),))
        made.offset_index, made.time_index = self._entries, self._times
        return made
