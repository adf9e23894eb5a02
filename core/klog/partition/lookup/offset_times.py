"""Offsets of times in a partition: the first record at or after a time, the largest timestamp, the end at a time."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from klog.base.read_only import ReadOnlyFile
from klog.data_dir.partition import Partition, SegmentFiles
from klog.formats.java_integers import LONG_MAX
from klog.kernel import Window
from klog.log.segment import Segment

if TYPE_CHECKING:
    from klog.partition.lookup import Trail


def begins_at(partition: Partition, timestamp: int) -> int:
    """Return the start of the first batch that has a record with *timestamp* (ms) or a later one.  Raises KlogError."""
    trail = as_late(partition, timestamp)
    return LONG_MAX if trail is None or trail.batch is None else trail.batch.base_offset


def as_late(partition: Partition, timestamp: int) -> Trail | None:
    """Return the first record with *timestamp* (ms) or a later one; in later segments too, unlike a broker.

    Raises KlogError.
    """
    from klog.partition.lookup import Lookup
    from klog.partition.lookup.lookup_trail import TrailDetail

    segments: tuple[SegmentFiles, ...] | None = None
    while partition.segments and segments != ():
        with Lookup(partition, segments, TrailDetail(explains=False)) as lookup:
            lookup.segments.log_start_offset = partition.log_start_offset or 0
            trail = lookup.timestamp(timestamp)
        if trail.found or trail.segment is None:
            return trail if trail.found else None
        base = trail.segment.base_offset
        segments = tuple(each for each in partition.segments if each.base_offset > base)
    return None


def largest_below(partition: Partition, end: int) -> int:
    """Return the largest timestamp (ms) of the batches that end below offset *end*, -1 for none.  Raises KlogError."""
    from klog.partition.lookup import Lookup
    from klog.partition.lookup.lookup_trail import TrailDetail
    from klog.partition.lookup.time_search import TimeSearch

    largest, segments = -1, partition.segments
    with Lookup(partition) as lookup, closing(TimeSearch(lookup.segments, TrailDetail())) as times:
        for number, files in enumerate(segments):
            following = segments[number + 1].base_offset if number + 1 < len(segments) else LONG_MAX
            if following <= end or end == LONG_MAX:
                largest = max(largest, times.largest(number).timestamp)
            elif files.base_offset < end:
                largest = max(largest, _largest_in(partition.file(files.log), end))
    return largest


def _largest_in(path: str, end: int) -> int:
    largest, segment, window = -1, Segment(path), Window(output=0)
    with ReadOnlyFile(path) as source:
        reader = segment.reader(source)
        while reader.next(window):
            below = window.first_reaching(end)
            is_last = below < window.count
            window.drop(below)
            largest = max(largest, window.latest(0))
            if is_last:
                break
    return largest
