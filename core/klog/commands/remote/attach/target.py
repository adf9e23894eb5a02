"""The broker that a partition is attached to: its log dirs, its cluster, and its `__remote_log_metadata`."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import NamedTuple

from klog.base.errors import KlogError, UsageError
from klog.change.partition_plan import checkpoints
from klog.cluster.assigned_log_dir import assigned_log_dir
from klog.cluster.metadata.metadata_directory import MetadataDirectory
from klog.cluster.metadata.metadata_loader import ClusterMetadata
from klog.cluster.metadata.topics_image import PartitionRegistration
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.data_dir.replicas import log_end
from klog.formats.checkpoint import EpochEntry, Malformed, epochs_in_force
from klog.formats.internal_topics import REMOTE_LOG_METADATA
from klog.formats.names import CLUSTER_METADATA, PartitionState
from klog.partition.start.metadata_log import recover_metadata


class LocalState(NamedTuple):
    """The local log of a partition: its log start offset over both tiers, its own first offset and its end."""

    log_start: int
    base: int
    end: int
    epochs: tuple[EpochEntry, ...]

    @property
    def is_empty(self) -> bool:
        """Whether it has no record."""
        return self.base >= self.end


class PartitionPlace(NamedTuple):
    """The place of a partition: *number* is the log dir's among those given; *partition*: its directory, if any."""

    number: int
    directory: str
    partition: Partition | None


def local_state(one: Partition | None) -> LocalState | None:
    """Return the local log in a directory; None without one.  Raises KlogError for epochs that a broker refuses."""
    if one is None or not one.segments:
        return None
    if one.epochs is not None and one.epochs.malformed is not None:
        advice = f"first: klog recover {quote(one.path)}"
        raise KlogError(f"{one.path}: leader-epoch-checkpoint, {one.epochs.malformed}; {advice}")
    epochs = epochs_in_force(one.epochs.entries) if one.epochs is not None else []
    base = one.segments[0].base_offset
    return LocalState(one.tiered_log_start(), base, max(log_end(one), base), tuple(epochs))


class TargetBroker:
    """The log dirs of one broker, one of which has the metadata log.

    *count*: how many partitions `__remote_log_metadata` has.  Raises UsageError for log dirs of several nodes,
    KlogError if the cluster's topics or that topic are not known, or if a broker would refuse a checkpoint.
    """

    def __init__(self, log_dirs: Sequence[LogDir]) -> None:
        self.log_dirs = log_dirs
        nodes = {one.node_id for one in log_dirs}
        if len(nodes) > 1:
            raise UsageError(f"--to: log dirs of different nodes ({', '.join(map(str, nodes))}): one broker at a time")
        clusters = {one.cluster_id for one in log_dirs if one.cluster_id is not None}
        if len(clusters) > 1:
            names = ", ".join(sorted(clusters))
            raise UsageError(f"--to: log dirs of different clusters ({names}): one broker at a time")
        having = [number for number, one in enumerate(log_dirs) if one.metadata_log is not None]
        if not having:
            raise KlogError(
                f"{log_dirs[0].path}: no {CLUSTER_METADATA}-0 here; name the metadata log dir, too, with --to"
            )
        self.metadata_dir = having[0]
        self.node_id = log_dirs[0].node_id if log_dirs[0].node_id is not None else -1
        found = recover_metadata(log_dirs[having[0]].path)
        if found.failure is not None or found.cluster is None or found.notes:
            why = found.failure.message if found.failure is not None else found.notes[0].message
            raise KlogError(f"{why}; first: restore it, see klog doctor {quote(log_dirs[having[0]].path)}")
        self.cluster: ClusterMetadata = found.cluster
        self.count = len(self.cluster.partitions.get(self.cluster.topic_ids.get(REMOTE_LOG_METADATA, ""), {}))
        if not self.count:
            raise KlogError(
                f"{log_dirs[0].path}: the cluster has no topic {REMOTE_LOG_METADATA}: start its broker once with"
                " remote.log.storage.system.enable=true, and stop it"
            )
        for one in log_dirs:
            checkpoints.check_legible(one)

    @property
    def cluster_id(self) -> str | None:
        """The cluster of the broker."""
        return self.log_dirs[self.metadata_dir].cluster_id

    @property
    def other_controllers(self) -> list[int]:
        """The voters beside this node; with them it cannot write the metadata log alone."""
        log_dir = self.log_dirs[self.metadata_dir]
        assert log_dir.metadata_log is not None
        state = MetadataDirectory(log_dir.metadata_log, log_dir).quorum_state
        known = {voter.id for voter in self.cluster.quorum.voters or ()}
        if not known and state is not None and not isinstance(state, Malformed):
            known = {*(state.voters or ())}
        return sorted((known or {*self.cluster.state.cluster.controllers}) - {self.node_id})

    def place(self, topic: str, number: int, known: PartitionRegistration | None) -> PartitionPlace:
        """Return the place of a partition; *known*: its registration, None for a new topic.

        Raises KlogError if it belongs to a log dir that is not given, or to another node.
        """
        directory = f"{topic}-{number}"
        for at, one in enumerate(self.log_dirs):
            for partition in one.partitions:
                if partition.directory == directory and partition.state is PartitionState.CURRENT:
                    return PartitionPlace(at, directory, partition)
        if known is None:
            return PartitionPlace(0, directory, None)
        if self.node_id not in known.replicas:
            replicas = ", ".join(map(str, known.replicas))
            raise KlogError(
                f"{directory}: its replicas are on {replicas}, and these are log dirs of node {self.node_id}"
            )
        assigned = known.directories[known.replicas.index(self.node_id)] if known.directories else None
        broker = self.cluster.brokers.get(self.node_id)
        found = assigned_log_dir(assigned, self.log_dirs, broker.log_dirs if broker is not None else ())
        if found.number is None:
            raise KlogError(
                f"{directory}: it is assigned to directory.id={' or '.join(found.absent)}: name it with --to"
            )
        return PartitionPlace(found.number, directory, None)

    def directories_of(self, topic: str) -> list[tuple[int, Partition]]:
        """Return all directories of a topic, each with its log dir's number."""
        return [
            (at, one)
            for at, log_dir in enumerate(self.log_dirs)
            for one in log_dir.partitions
            if one.topic == topic and one.state is PartitionState.CURRENT
        ]
