"""Joins the metadata, a tier and local logs by partition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from klog.base.errors import ExitCode, KlogError, UsageError, near_misses
from klog.cluster.assigned_log_dir import assigned_log_dir
from klog.cluster.remote_log.events import TopicIdPartition, metadata_partition
from klog.cluster.remote_log.object_facts import epoch_history, remote_segment
from klog.cluster.remote_log.remote_log import RemoteLog, metadata_of, read_remote_log
from klog.commands.remote.partition_listing import LocalLog, RemoteFacts
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.data_dir.replicas import log_end
from klog.data_dir.selection import PartitionChoice, is_selected, open_path
from klog.formats.checkpoint import epochs_in_force
from klog.formats.internal_topics import REMOTE_LOG_METADATA
from klog.formats.names import PartitionState
from klog.tier.tier import Tier, TierListing
from klog.tier.tier_layout import TierSegment

if TYPE_CHECKING:
    from klog.cluster.metadata.metadata_loader import ClusterMetadata

KAFKA_4: Final = 22
"""The feature level of metadata.version that 4.0 began with; from then on an entry shows aborted transactions."""


class RemoteQuery(NamedTuple):
    """A question about remote storage.

    *paths*: log dirs of one cluster.  *node*: whose local logs count; None: those that reach farthest.  *until_ms*: no
    later records of the metadata.  *clusters*, *topic_ids*: others are left out.
    """

    paths: Sequence[str] = ()
    tier: Tier | None = None
    topics: Sequence[str] = ()
    numbers: Sequence[PartitionChoice] = ()
    clusters: Sequence[str] = ()
    topic_ids: Sequence[str] = ()
    node: int | None = None
    until_ms: int | None = None

    @property
    def narrows(self) -> bool:
        """Whether it names partitions."""
        return bool(self.topics or self.numbers or self.topic_ids)

    def selects(self, whose: TopicIdPartition) -> bool:
        """Whether a partition is one of those that are meant."""
        is_named = is_selected(whose.topic, whose.number, self.topics, self.numbers)
        return is_named and (not self.topic_ids or whose.topic_id in self.topic_ids)


class RemoteSources:
    """The log dirs and the tier of a query, and their content.  The tier is listed first: events precede objects.

    *objects*: None without a tier; *cluster*: None without a metadata log; *metadata*: None without the topic.
    """

    def __init__(self, query: RemoteQuery) -> None:
        self._query = query
        self.log_dirs = _log_dirs(query)
        self.objects: TierListing | None = None if query.tier is None else query.tier.list_segments()
        self.cluster: ClusterMetadata | None = metadata_of(self.log_dirs)
        watched = self.objects.ids() if self.objects is not None else ()
        found = read_remote_log(self.log_dirs, query.until_ms, watched, self.cluster) if self.log_dirs else None
        self.metadata: RemoteLog | None = found if found is not None and found.read else None

    @cached_property
    def _names(self) -> dict[str, str]:
        """The name of each topic by its id; the metadata log counts for more than an event with another name."""
        names = {one.topic_id: one.topic for one in self._in_metadata()}
        return names | {topic_id: name for name, topic_id in (self.cluster.topic_ids if self.cluster else {}).items()}

    def partitions(self) -> list[TopicIdPartition]:
        """Return the partitions that the query selects, by name.  Raises NoSuchTopicError."""
        every = dict.fromkeys((*self._in_metadata(), *self._in_tier(), *self._in_cluster()))
        return sorted(self._selected(list(every)))

    def _in_metadata(self) -> Iterator[TopicIdPartition]:
        yield from self.metadata.caches if self.metadata is not None else ()

    def _in_tier(self) -> Iterator[TopicIdPartition]:
        """Yield the partitions with objects, under the names that the metadata have for the ids."""
        for (topic_id, number), partition in (self.objects.partitions if self.objects else {}).items():
            yield TopicIdPartition(self._names.get(topic_id, partition.topic), number, topic_id)

    def _in_cluster(self) -> Iterator[TopicIdPartition]:
        """Yield the partitions in the log dirs whose topics the metadata log has as tiered."""
        if self.cluster is None:
            return
        for one in self._local_partitions():
            topic, topic_id = one.topic, one.topic_id
            if topic is None or one.number is None or topic_id != self.cluster.topic_ids.get(topic):
                continue
            if topic_id is not None and self._is_tiered(topic):
                yield TopicIdPartition(topic, one.number, topic_id)

    def _is_tiered(self, topic: str) -> bool:
        return self.cluster is not None and self.cluster.topic_config(topic).get("remote.storage.enable") == "true"

    def _local_partitions(self) -> Iterator[Partition]:
        for log_dir in self.log_dirs:
            if self._query.node is None or log_dir.node_id == self._query.node:
                yield from (one for one in log_dir.partitions if one.state is PartitionState.CURRENT)

    @cached_property
    def _logs(self) -> dict[tuple[str, int], list[Partition]]:
        """The local logs of each partition."""
        found: dict[tuple[str, int], list[Partition]] = {}
        for one in self._local_partitions():
            if one.topic is not None and one.number is not None and one.segments:
                found.setdefault((one.topic, one.number), []).append(one)
        return found

    def _selected(self, every: Sequence[TopicIdPartition]) -> list[TopicIdPartition]:
        query = self._query
        names = {one.topic for one in every}
        for glob in query.topics:
            if not any(is_selected(name, None, (glob,), ()) for name in names):
                raise NoSuchTopicError(f"no topic {glob} in remote storage{near_misses(glob, names)}")
        return list(filter(query.selects, every))

    def facts(self, whose: TopicIdPartition) -> RemoteFacts:
        """Return all that is known of a partition."""
        tier, local = self._query.tier, self._local(whose)
        is_named = self._names.get(whose.topic_id, whose.topic) == whose.topic  # others own no objects
        found = None
        if self.objects is not None and is_named:
            found = self.objects.partitions.get((whose.topic_id, whose.number))
        segments = None if self.objects is None else (found.segments if found else {})
        layout = tier.layout if tier else None
        cache = self.metadata.cache(whose) if self.metadata is not None else None
        until, lost = self._query.until_ms, self._lost_entries(whose, segments)
        if cache is not None or tier is None or not segments:
            is_unknown = cache is None and tier is None
            return RemoteFacts(whose, cache, local, segments, layout, is_unknown=is_unknown, until_ms=until, lost=lost)
        shown = (remote_segment(tier, one) for one in segments.values())
        known = {one.segment_id: one for one in shown if one is not None}
        history = [] if local else epoch_history(tier, segments.values(), known)
        return RemoteFacts(whose, None, local, segments, layout, known, history, until_ms=until)

    def _lost_entries(self, whose: TopicIdPartition, segments: Mapping[str, TierSegment] | None) -> frozenset[str]:
        """Return the ids of segments with objects, whose events may be among those that are deleted or unreadable.

        The time at which an object was stored proves nothing: a copy of a bucket has newer times than its events.
        """
        if not segments or self.metadata is None or self.is_deleted(whose):
            return frozenset()
        return self.metadata.lost_entries(whose, segments)

    def is_deleted(self, whose: TopicIdPartition) -> bool:
        """Whether the metadata log has no topic with the id of a partition."""
        return self.cluster is not None and whose.topic_id not in self.cluster.topic_ids.values()

    def is_deleted_with_events(self, whose: TopicIdPartition) -> bool:
        """Whether the topic of a partition was deleted, and the events of its segments may have been, too."""
        metadata = self.metadata
        return metadata is not None and metadata.lacks_events(whose, at_end=False) and self.is_deleted(whose)

    def is_metadata_lost(self, whose: TopicIdPartition) -> bool:
        """Whether the events of a partition are in none of these log dirs, and cannot be in others."""
        if self.cluster is None or (self.metadata is not None and self.metadata.cache(whose) is not None):
            return False
        known = self.cluster.partitions.get(self.cluster.topic_ids.get(REMOTE_LOG_METADATA, ""), {})
        one = known.get(metadata_partition(whose.topic_id, whose.number, len(known))) if known else None
        return one is None or all(map(self._has_log_dir, one.replicas, one.directories or [None] * len(one.replicas)))

    def is_metadata_damaged(self, whose: TopicIdPartition) -> bool:
        """Whether a part of the log with the events of a partition cannot be read, so that some may be unknown."""
        found = self.metadata
        if found is None or not found.faults:
            return False
        if found.count is None:
            return True
        number = metadata_partition(whose.topic_id, whose.number, found.count)
        return any(one.metadata_partition == number for one in found.faults)

    def _has_log_dir(self, node: int, assigned: str | None) -> bool:
        """Whether the log dir in which a node has a partition is given."""
        own = [one for one in self.log_dirs if one.node_id == node]
        broker = self.cluster.brokers.get(node) if self.cluster is not None else None
        return bool(own) and not assigned_log_dir(assigned, own, broker.log_dirs if broker is not None else ()).absent

    def is_of_kafka_4(self, level: int) -> bool:
        """Whether entries tell of aborted transactions: one does, or metadata.version is at least *level*."""
        if self.cluster is not None and self.cluster.features.get("metadata.version", 0) >= level:
            return True
        caches = self.metadata.caches.values() if self.metadata is not None else ()
        return any(one.txn_index_empty for cache in caches for one in cache.segments.values())

    def local_log(self, whose: TopicIdPartition) -> Partition | None:
        """Return the copy of the local log that reaches farthest; None without one."""
        copies = self._logs.get((whose.topic, whose.number), ())
        return max((one for one in copies if one.topic_id in (None, whose.topic_id)), key=log_end, default=None)

    def _local(self, whose: TopicIdPartition) -> LocalLog | None:
        best = self.local_log(whose)
        if best is None:
            return None
        base, start = best.segments[0].base_offset, best.log_start_checkpoint
        if start is None:
            start = 0 if self._is_tiered(whose.topic) else base
        elif not self._is_tiered(whose.topic) and self.cluster is not None:
            start = max(start, base)
        epochs = best.epochs
        kept = epochs_in_force(epochs.entries) if epochs is not None and not epochs.malformed else []
        return LocalLog(start, base, max(log_end(best), base), tuple(kept))


class NoSuchTopicError(KlogError):
    """No topic in remote storage has the name."""

    exit_code = ExitCode.PROBLEMS_LEFT


def _log_dirs(query: RemoteQuery) -> list[LogDir]:
    found = []
    for path in query.paths:
        opened = open_path(path)
        if not isinstance(opened, LogDir):
            raise UsageError(f"{path}: expected a log dir, for __remote_log_metadata is beside the partitions")
        if not query.clusters or opened.cluster_id in query.clusters:
            found.append(opened)
    if query.paths and not found:
        raise UsageError(f"no log dir is of cluster {', '.join(query.clusters)}")
    ids = {one.cluster_id: one.path for one in found if one.cluster_id is not None}
    if len(ids) > 1:
        places = ", ".join(f"{path} is of cluster {cluster_id}" for cluster_id, path in ids.items())
        raise KlogError(f"log dirs of several clusters: {places}; --cluster ID chooses one")
    if query.node is not None and not found:
        raise UsageError(f"--node {query.node}: name the log dirs of that node")
    if query.node is not None and all(one.node_id != query.node for one in found):
        known = ", ".join(sorted({str(one.node_id) for one in found}))
        raise UsageError(f"--node {query.node}: the log dirs are of node {known}")
    return found
