"""Reads `__remote_log_metadata` from log dirs: for each partition the segments that its leader knows.

    remote_log = read_remote_log([LogDir("b1/data"), LogDir("b2/data")])
    for partition, cache in remote_log.caches.items():
        print(partition, len(cache.segments), cache.deleted)

A broker builds the same from the beginning of the topic at each start; no file has it.  Kafka: ConsumerTask,
RemotePartitionMetadataStore.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from functools import cached_property
from heapq import merge
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from klog.base.errors import KlogError
from klog.cluster.coordinator.coordinator_records import CoordinatorEntry, entries
from klog.cluster.remote_log.cache import EventOutcome, RemoteLogCache
from klog.cluster.remote_log.events import (
    DELETE_PARTITION_FINISHED,
    RemoteLogEvent,
    TopicIdPartition,
    metadata_partition,
    read_event,
)
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.data_dir.partition_identity import group_copies
from klog.data_dir.replicas import log_end
from klog.formats.internal_topics import REMOTE_LOG_METADATA, Undecodable
from klog.formats.names import PartitionState
from klog.formats.remote_log import SegmentState

if TYPE_CHECKING:
    from klog.cluster.metadata.metadata_loader import ClusterMetadata

MOST_NAMED: Final = 10_000
"""The most events of each kind without an effect that are kept; the others are counted."""


class EventPlace(NamedTuple):
    """The place of an event: the partition of `__remote_log_metadata`, the record's offset and its timestamp (ms)."""

    metadata_partition: int
    offset: int
    timestamp: int


class IdleEvent(NamedTuple):
    """An event that changes nothing for a broker.  *event*: None if the record cannot be decoded; *reason*: why not."""

    place: EventPlace
    event: RemoteLogEvent | None
    reason: str = ""


class LogFault(NamedTuple):
    """An unreadable part of a copy of a partition of `__remote_log_metadata`, in words."""

    metadata_partition: int
    message: str


class IdleEvents:
    """Events of one kind that change nothing: the first ones with their places, and how many there are."""

    def __init__(self) -> None:
        self.count = 0
        self.named: list[IdleEvent] = []

    def add(self, event: IdleEvent) -> None:
        """Count *event*, and keep it if there are not too many."""
        self.count += 1
        if len(self.named) < MOST_NAMED:
            self.named.append(event)


class RemoteLog:
    """The content of `__remote_log_metadata`.  *read*: the numbers of the partitions that were read, with their paths.

    *starts*: for each of these the offset from which every record is there, above 0 if older ones were deleted
    (retention, DeleteRecords); a broker does not read those either.  *gaps*: the first offset of each partition whose
    record is missing behind that: compaction deletes records without a key, as all events are.  *ends*: the offset at
    which a log ends below the high watermark or the recovery point of its log dir, or has no segment.

    *count*: how many partitions the topic has; None without a metadata log that has it: those that were read need not
    be all, and another count puts each event into another partition.  *newest_ms*: the time of the latest event, -1
    without one.  *dropped*: events that a broker ignores;
    *refused*: those that end its consumer of the topic, *misplaced*: those in a partition in which it does not look for
    them, none if the count is unknown.  *faults*: unreadable parts of the logs.  *deleted_ids*: of the ids asked for,
    those of deleted segments, also where the events before that one are gone.
    """

    def __init__(self) -> None:
        self.read: dict[int, list[str]] = {}
        self.starts: dict[int, int] = {}
        self.gaps: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self.count: int | None = None
        self.events = 0
        self.newest_ms = -1
        self.caches: dict[TopicIdPartition, RemoteLogCache] = {}
        self.dropped, self.refused, self.misplaced = IdleEvents(), IdleEvents(), IdleEvents()
        self.faults: list[LogFault] = []
        self.deleted_ids: set[str] = set()

    def cache(self, whose: TopicIdPartition) -> RemoteLogCache | None:
        """Return the segments of a partition; None if the partition of the topic with its events was not read."""
        if whose in self.caches:
            return self.caches[whose]
        number = metadata_partition(whose.topic_id, whose.number, self.count) if self.count else None
        return RemoteLogCache() if number in self.read else None

    @cached_property
    def _lacking(self) -> set[int]:
        """The numbers of the partitions that were read, but not all of their records."""
        found = {number for number, start in self.starts.items() if start} | self.gaps.keys()
        found |= {one.metadata_partition for one in self.faults}
        return found | {one.place.metadata_partition for one in self.refused.named if one.event is None}

    def lacks_events(self, whose: TopicIdPartition, *, at_end: bool = True) -> bool:
        """Whether a partition may have had more events: some were deleted, or cannot be read.

        *at_end*: also because a log ends too early.
        """
        lacking = self._lacking | self.ends.keys() if at_end else self._lacking
        if not self.count or not lacking:
            return bool(lacking)
        return metadata_partition(whose.topic_id, whose.number, self.count) in lacking

    def lost_entries(self, whose: TopicIdPartition, stored: Iterable[str]) -> frozenset[str]:
        """Return those of the segments with objects whose events may be deleted or unreadable.

        *stored*: the ids of the partition's segments with objects, all of which were asked for.
        """
        cache = self.cache(whose)
        if cache is None or not self.lacks_events(whose):
            return frozenset()
        return frozenset(one for one in stored if one not in cache.segments and one not in self.deleted_ids)

    def take(self, place: EventPlace, value: bytes, watched: Container[str]) -> None:
        """Take the value of a record."""
        self.events += 1
        self.newest_ms = max(self.newest_ms, place.timestamp)
        event = read_event(value)
        if isinstance(event, Undecodable):
            self.refused.add(IdleEvent(place, None, event.message or "null"))
            return
        whose = event.partition
        if self.count and metadata_partition(whose.topic_id, whose.number, self.count) != place.metadata_partition:
            self.misplaced.add(IdleEvent(place, event))
        elif event.segment_id is None:
            if event.state == DELETE_PARTITION_FINISHED:
                self.caches.pop(whose, None)
        else:
            self._apply(place, event, watched)

    def _apply(self, place: EventPlace, event: RemoteLogEvent, watched: Container[str]) -> None:
        assert event.segment_id is not None
        cache = self.caches.setdefault(event.partition, RemoteLogCache())
        outcome = cache.apply(event)
        if outcome is EventOutcome.DROPPED:
            self.dropped.add(IdleEvent(place, event))
        elif outcome is EventOutcome.REFUSED:
            self.refused.add(IdleEvent(place, event, "an update cannot begin a copy"))
        is_deleted = event.state == SegmentState.DELETE_SEGMENT_FINISHED and event.segment_id not in cache.segments
        if is_deleted and event.segment_id in watched:
            self.deleted_ids.add(event.segment_id)


def metadata_of(log_dirs: Sequence[LogDir]) -> ClusterMetadata | None:
    """Return the cluster's metadata from the first log dir that has its log; None if none has."""
    if all(one.metadata_log is None for one in log_dirs):
        return None
    from klog.cluster.metadata.metadata_loader import read_metadata

    return next((found for found in map(read_metadata, log_dirs) if found is not None), None)


def read_remote_log(
    log_dirs: Sequence[LogDir],
    until_ms: int | None = None,
    watched: Container[str] = (),
    cluster: ClusterMetadata | None = None,
) -> RemoteLog:
    """Return what the log dirs of one cluster have of the topic: each of its partitions once, from all copies together.

    *until_ms*: records with later timestamps are left out.  *watched*: ids of segments, to know which of them were
    deleted.  *cluster*: the content of the metadata log.  Raises KlogError if two copies have different records at
    one offset, IdentityError for log dirs of several clusters.
    """
    every = [one for log_dir in log_dirs for one in log_dir.partitions if one.topic == REMOTE_LOG_METADATA]
    copies = group_copies([one for one in every if one.state is PartitionState.CURRENT])
    found = RemoteLog()
    for group in copies:
        assert group[0].number is not None
        found.read[group[0].number] = [one.path for one in group]
        found.starts[group[0].number] = _first_kept(group)
    found.count = _partition_count(cluster)
    for group in copies:
        number = group[0].number or 0
        following = found.starts[number]
        known = _known_end(group)  # before the log is read, because a running broker goes on
        for entry in _entries(group, found):
            if entry.offset > following:
                found.gaps.setdefault(number, following)
            following = max(following, entry.offset + 1)
            is_kept = entry.offset >= found.starts[number] and (until_ms is None or entry.timestamp <= until_ms)
            if entry.value is not None and is_kept:
                place = EventPlace(number, entry.offset, entry.timestamp)
                found.take(place, entry.value, watched)
        following = max(following, *map(log_end, group))
        if following < known or not any(one.segments for one in group):
            found.ends[number] = following
    return found


def _known_end(copies: Sequence[Partition]) -> int:
    """Return the offset up to which the checkpoints of the log dirs show records."""
    return max(one or 0 for copy in copies for one in (copy.high_watermark, copy.recovery_point))


def _first_kept(copies: Sequence[Partition]) -> int:
    """Return the offset from which the copies of a partition together have every record."""
    starts = {one.path: one.log_start_offset or 0 for one in copies}
    if not any(starts.values()):
        return 0
    longest, *others = sorted(((log_end(one), starts[one.path]) for one in copies), reverse=True)
    first = longest[1]
    for end, start in others:
        first = min(first, start) if end >= first else first
    return first


def _partition_count(cluster: ClusterMetadata | None) -> int | None:
    """Return the number of the topic's partitions in the metadata log; None if it does not show that."""
    known = {} if cluster is None else cluster.partitions.get(cluster.topic_ids.get(REMOTE_LOG_METADATA, ""), {})
    return len(known) or None


def _entries(copies: Sequence[Partition], found: RemoteLog) -> Iterator[CoordinatorEntry]:
    """Yield the data records of a partition in the order of their offsets, from whichever copies have them."""
    number = copies[0].number or 0

    def note(sentence: str) -> None:
        found.faults.append(LogFault(number, sentence))

    logs = [((entry, copy.path) for entry in entries(copy, note)) for copy in copies]
    for offset, same in groupby(merge(*logs, key=lambda one: one[0].offset), key=lambda one: one[0].offset):
        (entry, path), *others = same
        for other, where in others:
            if other.value != entry.value:
                raise KlogError(f"{path} and {where} have different records at offset {offset}; name one of the two")
        if entry.commits is None:
            yield entry
