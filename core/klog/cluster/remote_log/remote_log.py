"""Reads `__remote_log_metadata` from log dirs: for each partition the segments that its leader knows.

    remote_log = read_remote_log([LogDir("b1/data"), LogDir("b2/data")])
    for partition, cache in remote_log.caches.items():
        print(partition, len(cache.segments), cache.deleted)

A broker builds the same from the beginning of the topic at each start; no file has it.  Kafka: ConsumerTask,
RemotePartitionMetadataStore.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
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
from klog.data_dir.replicas import group_copies
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

    *count*: how many partitions the topic has; None if that is unknown.  *dropped*: events that a broker ignores;
    *refused*: those that end its consumer of the topic, *misplaced*: those in a partition in which it does not look for
    them.  *faults*: unreadable parts of the logs.  *deleted_ids*: of the ids asked for, those of deleted segments.
    """

    def __init__(self) -> None:
        self.read: dict[int, list[str]] = {}
        self.count: int | None = None
        self.events = 0
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

    def take(self, place: EventPlace, value: bytes, watched: Container[str]) -> None:
        """Take the value of a record."""
        self.events += 1
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
        outcome = self.caches.setdefault(event.partition, RemoteLogCache()).apply(event)
        if outcome is EventOutcome.DROPPED:
            self.dropped.add(IdleEvent(place, event))
        elif outcome is EventOutcome.REFUSED:
            self.refused.add(IdleEvent(place, event, "an update cannot begin a copy"))
        elif event.state == SegmentState.DELETE_SEGMENT_FINISHED and event.segment_id in watched:
            assert event.segment_id is not None
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
    found.count = _partition_count(found.read, cluster)
    for group in copies:
        for entry in _entries(group, found):
            if entry.value is not None and (until_ms is None or entry.timestamp <= until_ms):
                place = EventPlace(group[0].number or 0, entry.offset, entry.timestamp)
                found.take(place, entry.value, watched)
    return found


def _partition_count(read: Iterable[int], cluster: ClusterMetadata | None) -> int | None:
    """Return the number of the topic's partitions: that in the metadata log, else of those read if none is missing."""
    known = {} if cluster is None else cluster.partitions.get(cluster.topic_ids.get(REMOTE_LOG_METADATA, ""), {})
    numbers = set(read)
    return len(known) or (len(numbers) if numbers == set(range(len(numbers))) else None)


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
