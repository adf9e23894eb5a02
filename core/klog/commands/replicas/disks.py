"""The given disks of brokers: log dirs with their nodes, and the partitions on each."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from klog.base.errors import KlogError, UsageError
from klog.cluster.election import BrokerDisks
from klog.cluster.metadata.metadata_loader import ClusterMetadata, read_metadata
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.data_dir.partition_identity import IdentityChoice, are_all_copies, choose_identity, identity_of
from klog.data_dir.selection import PartitionChoice, open_path, select
from klog.formats.checkpoint import Malformed
from klog.formats.names import CLUSTER_METADATA, PartitionState
from klog.partition.start.metadata_log import metadata_bounds

Note = Callable[[str], None]
_NODE_OF: Final = re.compile(r"([0-9]{1,10})=(.+)", re.DOTALL)


class BrokerDisk(NamedTuple):
    """A log dir and the node whose it is."""

    node: int
    log_dir: LogDir


class BrokerCopy(NamedTuple):
    """A broker's directory of a partition, and the disk that has it."""

    disk: BrokerDisk
    partition: Partition


class BrokerCopies(NamedTuple):
    """The copies of one partition on the given brokers, by node; a node without a directory is absent.

    *is_one_thing*: the directories are copies of one partition, by their topic and cluster ids.
    """

    topic: str
    number: int
    copies: Mapping[int, BrokerCopy]
    is_one_thing: bool = True


class MetadataLog(NamedTuple):
    """The metadata log that is used: its place, its node (None: unknown), its last epoch, and its state."""

    path: str
    node: int | None
    epoch: int
    state: ClusterMetadata


def _say_nothing(_: str) -> None:
    pass


def open_disks(
    paths: Sequence[str],
    choice: IdentityChoice = IdentityChoice(),  # noqa: B008
    note: Note = _say_nothing,
) -> list[BrokerDisk]:
    """Return the disks at *paths*: log dirs, `N=DIR` if no file identifies node N.

    *note* receives the number of those that *choice* leaves out.  Raises UsageError, UnreadableError; KlogError for
    disks of two clusters, and for one that is given twice.
    """
    disks = [_open_disk(path) for path in paths]
    chosen = [disk for disk in disks if not choice.cluster_ids or disk.log_dir.cluster_id in choice.cluster_ids]
    if not chosen:
        raise UsageError(f"no disk is of cluster {' or '.join(choice.cluster_ids)}")
    if len(chosen) < len(disks):
        note(f"{len(disks) - len(chosen)} of {len(disks)} disks are of other clusters: left out")
    _check_clusters(chosen)
    _check_once(chosen)
    return chosen


def split_node(path: str) -> tuple[int | None, str]:
    """Return the node and the place that `N=PATH` names; None and *path* itself if that has another form, or exists."""
    given = _NODE_OF.fullmatch(path) if not os.path.lexists(path) else None
    return (None, path) if given is None else (int(given[1]), given[2])


def node_at(path: str, given: int | None, found: int | None) -> int | None:
    """Return the node whose *path* is: *given* with it, or *found* in a file.  Raises UsageError if they differ."""
    if None not in (given, found) and given != found:
        raise UsageError(f"{path}: its meta.properties has node.id {found}")
    return found if given is None else given


def _open_disk(path: str) -> BrokerDisk:
    given, place = split_node(path)
    opened = open_path(place)
    if not isinstance(opened, LogDir):
        raise UsageError(f"{place}: a DISK is a log dir, a directory in a broker's log.dirs")
    node = node_at(path, given, opened.node_id)
    if node is None and isinstance(opened.meta, Malformed):
        raise KlogError(f"{place}: its meta.properties cannot be used: {opened.meta}; N={place} gives it to node N")
    if node is None:
        raise UsageError(f"{place}: no meta.properties names its node; N={place} gives it to node N")
    return BrokerDisk(node, opened)


def _check_clusters(disks: Sequence[BrokerDisk]) -> None:
    clusters: dict[str, list[str]] = {}
    for disk in disks:
        if disk.log_dir.cluster_id is not None:
            clusters.setdefault(disk.log_dir.cluster_id, []).append(disk.log_dir.path)
    if len(clusters) > 1:
        found = ", ".join(f"{' and '.join(paths)} of cluster {cluster}" for cluster, paths in clusters.items())
        raise KlogError(f"disks of {len(clusters)} clusters: {found}; --cluster ID chooses")


def _check_once(disks: Sequence[BrokerDisk]) -> None:
    places: dict[str, str] = {}
    directory_ids: dict[str, str] = {}
    for disk in disks:
        path, real = disk.log_dir.path, os.path.realpath(disk.log_dir.path)
        if real in places:
            raise KlogError(f"{path} and {places[real]} are the same directory: a DISK is given once")
        places[real] = path
        directory_id = disk.log_dir.directory_id
        if directory_id is not None:
            if directory_id in directory_ids:
                other = directory_ids[directory_id]
                raise KlogError(f"{path} and {other} both have directory id {directory_id}: one disk, twice")
            directory_ids[directory_id] = path


def broker_disks(disks: Iterable[BrokerDisk]) -> dict[int, BrokerDisks]:
    """Return, by node, the identity of its disks at the registration of the broker.

    Several log dirs must all have a marker with the same broker epoch.
    Kafka: LogManager.readBrokerEpochFromCleanShutdownFiles.
    """
    found: dict[int, BrokerDisks] = {}
    for disk in disks:
        marker = disk.log_dir.clean_shutdown
        epoch = marker.broker_epoch if marker is not None else None
        ids = frozenset(filter(None, [disk.log_dir.directory_id]))
        before = found.get(disk.node)
        if before is not None:
            epoch = epoch if epoch == before.epoch else None
            ids |= before.directory_ids
        found[disk.node] = BrokerDisks(epoch, ids)
    return found


def copies_on(
    disks: Sequence[BrokerDisk],
    topics: Sequence[str] = (),
    numbers: Sequence[PartitionChoice] = (),
    choice: IdentityChoice = IdentityChoice(),  # noqa: B008
    note: Note = _say_nothing,
) -> list[BrokerCopies]:
    """Return the partitions on *disks* that *topics* and *numbers* select, by topic and number.

    *note* receives a sentence about those that *choice* leaves out.  Raises UsageError, UnreadableError; KlogError if
    one node has a partition in two log dirs.
    """
    found: dict[tuple[str, int], dict[int, BrokerCopy]] = {}
    every = [
        BrokerCopy(disk, partition)
        for disk in disks
        for partition in disk.log_dir.partitions
        if partition.state is PartitionState.CURRENT and partition.topic != CLUSTER_METADATA
    ]
    if topics or numbers:
        wanted = set(select([copy.partition for copy in every], topics, numbers))
        every = [copy for copy in every if copy.partition in wanted]
    chosen, others = choose_identity([copy.partition for copy in every], choice._replace(cluster_ids=()))
    if others is not None:
        note(others)
    kept = set(chosen)
    for copy in every:
        name = copy.partition.name
        if name is None or copy.partition not in kept:
            continue
        copies = found.setdefault((name.topic, name.partition), {})
        other = copies.setdefault(copy.disk.node, copy)
        if other is not copy:
            both = f"{other.partition.path} and {copy.partition.path}"
            raise KlogError(f"node {copy.disk.node} has {name.name} twice: {both}; a broker does not start with this")
    return [
        BrokerCopies(
            *name, copies, are_all_copies([identity_of(one.partition) for one in copies.values()], choice.by_name)
        )
        for name, copies in sorted(found.items())
    ]


def find_metadata(disks: Sequence[BrokerDisk], path: str | None = None) -> MetadataLog | None:
    """Return the metadata log at *path*, else the best one on *disks*: of the latest epoch, then the longest.

    Each as its node has it once it has recovered it.  None without one.  Raises UsageError for a *path* without one, or
    of another cluster; KlogError for one that a node refuses; UnreadableError.
    """
    if path is not None:
        log_dir = _metadata_dir(path)
        clusters = {disk.log_dir.cluster_id for disk in disks} - {None}
        if log_dir.cluster_id is not None and clusters and log_dir.cluster_id not in clusters:
            raise UsageError(f"--metadata {path}: of cluster {log_dir.cluster_id}, the disks are of {clusters.pop()}")
        candidates = [log_dir]
    else:
        candidates = [disk.log_dir for disk in disks if disk.log_dir.metadata_log is not None]
    ranked = [(metadata_bounds(log), log_dir) for log_dir in candidates if (log := log_dir.metadata_log) is not None]
    if not ranked:
        return None
    bounds, best = max(ranked, key=lambda one: (one[0].end.epoch, one[0].end.offset))
    state = read_metadata(best, bounds.end.offset if bounds.gone else None)
    return None if state is None else MetadataLog(best.path, best.node_id, bounds.end.epoch, state)


def _metadata_dir(path: str) -> LogDir:
    opened = open_path(path)
    if isinstance(opened, Partition) and opened.topic == CLUSTER_METADATA:
        return LogDir(opened.log_dir)
    if not isinstance(opened, LogDir) or opened.metadata_log is None:
        raise UsageError(f"--metadata {path}: no {CLUSTER_METADATA}-0 here; expected a log dir that has it")
    return opened
