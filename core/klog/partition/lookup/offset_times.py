"""Offsets of times in a partition: the first record at or after a time, the largest timestamp, the end at a time."""

from __future__ import annotations

from collections.abc import Sequence
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


def as_late(partition: Partition, timestamp: int, segments: Sequence[SegmentFiles] | None = None) -> Trail | None:
    """Return the first record with *timestamp* (ms) or a later one; in later segments too, unlike a broker.

    *segments*: those to look in, None for all.  Raises KlogError.
    """
    from klog.partition.lookup import Lookup
    from klog.partition.lookup.lookup_trail import TrailDetail

    if not (partition.segments if segments is None else segments):
        return None
    with Lookup(partition, segments, TrailDetail(explains=False)) as lookup:
        lookup.segments.log_start_offset = partition.log_start_offset or 0
        return lookup.first_record(timestamp)


def as_broker(partition: Partition, timestamp: int) -> Trail | None:
    """Return the record that a broker answers for *timestamp* (ms), None for none.  Raises KlogError.

    In a log over two tiers that may not be the first one that is as late.
    """
    from klog.partition.lookup import Lookup
    from klog.partition.lookup.lookup_trail import TrailDetail

    with Lookup(partition, wanted=TrailDetail(explains=False)) as lookup:
        trail = lookup.timestamp(timestamp)
    return trail if trail.found else None


def largest_below(partition: Partition, end: int, chosen: Sequence[SegmentFiles] | None = None) -> int:
    """Return the largest timestamp (ms) of the batches that end below offset *end*, -1 for none.

    *chosen*: the segments to look in, None for all.  Raises KlogError.
    """
    from klog.partition.lookup import Lookup
    from klog.partition.lookup.lookup_trail import TrailDetail
    from klog.partition.lookup.time_search import TimeSearch

    largest, segments = -1, partition.segments if chosen is None else chosen
    with Lookup(partition, chosen) as lookup, closing(TimeSearch(lookup.segments, TrailDetail())) as times:
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
