"""The epoch history of a partition, and the remote segments that belong to it: those that a broker reads, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from klog.cluster.remote_log.cache import RemoteLogCache
from klog.cluster.remote_log.events import RemoteSegment
from klog.formats.checkpoint import EpochEntry
from klog.formats.java_integers import LONG_MAX


def epochs_with_data(epochs: Sequence[EpochEntry]) -> list[EpochEntry]:
    """Return *epochs*, which ascend, without those that have no offset.  Kafka: buildFilteredLeaderEpochMap."""
    return [one for one, after in pairwise(epochs) if one.start_offset != after.start_offset] + list(epochs[-1:])


def is_within_lineage(segment: RemoteSegment, epochs: Sequence[EpochEntry], log_end: int) -> bool:
    """Whether all of *segment* is of the history *epochs* (those with data, ascending) of a log that ends at *log_end*.

    Retention counts and deletes such segments alone, and times are looked up in them.  Kafka:
    isRemoteSegmentWithinLeaderEpochs.
    """
    own = epochs_with_data(segment.epochs)
    starts = dict(epochs)
    after = dict(pairwise(epochs))
    first = next((one.epoch for one in own if epochs and one.epoch >= epochs[0].epoch), None)
    if first is None or not epochs[0].epoch <= own[-1].epoch <= epochs[-1].epoch:
        return False
    for one, following in zip(own, [*own[1:], None], strict=True):
        if one.epoch < first:
            continue
        if one.epoch not in starts:
            return False
        is_first_of_log = one.epoch == epochs[0].epoch
        if one.epoch == first and not is_first_of_log and one.start_offset < starts[one.epoch]:
            return False
        known = after.get(EpochEntry(one.epoch, starts[one.epoch]))
        if following is not None and known != following:
            return False
        if following is None and known is not None and segment.end_offset >= known.start_offset:
            return False
    return segment.end_offset < log_end


class ChainLink(NamedTuple):
    """The offsets *first* to *last* of the log, and the remote segment in which a broker finds them.

    *is_dead_tail*: the segment has more offsets behind *last*, which are not in the history of the partition.
    """

    first: int
    last: int
    segment: RemoteSegment
    is_dead_tail: bool = False


class _EpochRange(NamedTuple):
    """The offsets of an epoch in a history; *end* is exclusive."""

    epoch: int
    start: int
    end: int


def _ranges(epochs: Sequence[EpochEntry], log_end: int) -> list[_EpochRange]:
    known = epochs_with_data(epochs)
    ends = [*(one.start_offset for one in known[1:]), log_end]
    return [_EpochRange(*one, end) for one, end in zip(known, ends, strict=True) if one.start_offset < end]


def chain(cache: RemoteLogCache, epochs: Sequence[EpochEntry], first: int, end: int = LONG_MAX) -> Iterator[ChainLink]:
    """Yield the segments in which a broker finds the offsets from *first* to below *end*, by the history *epochs*.

    Offsets that no segment has are skipped.  A segment of which only the beginning belongs to the history is cut, and
    the offsets behind are looked up anew; a broker hands out its rest as well.  Kafka: RemoteLogManager.read.
    """
    offset, ranges = first, _ranges(epochs, LONG_MAX)
    for number, one in enumerate(ranges):
        offset = max(offset, one.start)
        while offset < min(one.end, end):
            segment = cache.find(one.epoch, offset)
            if segment is None:
                starts = cache.epochs.get(one.epoch)
                later = None if starts is None else starts.next_start(offset)
                if later is None:
                    break
                offset = later
                continue
            last = min(_last_shared(segment, ranges, number), end - 1)
            yield ChainLink(offset, last, segment, last < min(segment.end_offset, end - 1))
            offset = last + 1


def _last_shared(segment: RemoteSegment, ranges: Sequence[_EpochRange], number: int) -> int:
    """Return the last offset that *segment*, from the epoch of range *number* on, shares with the history."""
    own = epochs_with_data(segment.epochs)
    at = [one.epoch for one in own].index(ranges[number].epoch)
    while True:
        here, last = ranges[number], segment.end_of(own[at].epoch)
        is_end = last != here.end - 1 or at + 1 == len(own) or number + 1 == len(ranges)
        if is_end or own[at + 1] != ranges[number + 1][:2]:
            return min(last, here.end - 1)
        at, number = at + 1, number + 1


def holes(links: Iterable[ChainLink], first: int, end: int) -> list[tuple[int, int]]:
    """Return the ranges, both ends inclusive, of the offsets from *first* to below *end* that *links* lack."""
    found, offset = [], first
    for link in links:
        if link.first > offset:
            found.append((offset, min(link.first, end) - 1))
        offset = max(offset, link.last + 1)
        if offset >= end:
            return found
    if offset < end:
        found.append((offset, end - 1))
    return found


def history_of(segments: Iterable[RemoteSegment]) -> list[EpochEntry]:
    """Return the epochs that segments show themselves, for a partition whose own epochs are unknown.

    The segment with the latest epoch and the latest end is of the newest history; earlier epochs are those of segments
    that do not contradict it.
    """
    history: list[EpochEntry] = []
    for segment in sorted(segments, key=lambda one: (one.epochs[-1].epoch, one.end_offset), reverse=True):
        for one in reversed(epochs_with_data(segment.epochs)):
            if not history or (one.epoch < history[0].epoch and one.start_offset < history[0].start_offset):
                history.insert(0, one)
            elif one.epoch == history[0].epoch:
                history[0] = min(history[0], one)
    return history
