"""Metadata logs of several nodes compared: which one is ahead, and where two are not one history."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from klog.base.errors import KlogError
from klog.cluster.metadata.metadata_directory import MetadataDirectory, open_metadata
from klog.cluster.metadata.metadata_loader import ClusterMetadata, LogPoint
from klog.commands.replicas.batch_comparison import ComparedCopy, Comparison
from klog.commands.replicas.disks import node_at, split_node
from klog.data_dir.partition import Partition
from klog.data_dir.partition_identity import IdentityChoice, are_all_copies, choose_identity, identity_of
from klog.data_dir.replicas import epoch_at
from klog.partition.start.metadata_behind import MetadataLag, lag_behind
from klog.partition.start.metadata_log import metadata_bounds, snapshot_fault


class ComparedLog(NamedTuple):
    """A metadata log in a comparison.

    *path*: as given.  *node*: None if unknown.  *start*, *end*: those of the log itself after recovery by its node.
    *behind*: the number of offsets of the best log that it lacks.  *bad_batches*: base offsets of unreadable ones.
    *roles*: the node's, according to the best log.  *gone*: the number of offsets that recovery cuts.  *stops*: why its
    node stops on its newest snapshot, None if it does not.
    """

    path: str
    node: int | None
    directory: MetadataDirectory
    start: int
    end: LogPoint
    behind: int
    bad_batches: tuple[int, ...]
    roles: tuple[str, ...]
    gone: int = 0
    stops: str | None = None

    @property
    def name(self) -> str:
        """The name of the log in messages."""
        return self.path if self.node is None else f"node {self.node}"


class Divergence(NamedTuple):
    """Two logs, by their numbers in the comparison, that have different batches from *offset* on.

    *epochs*: of each there.  If they are the same epoch, no node notices the divergence: it compares epochs alone.
    """

    logs: tuple[int, int]
    offset: int
    epochs: tuple[int, int]


class LogComparison(NamedTuple):
    """*best*: the number of the log that is ahead: of the latest epoch, then the longest.

    *lag*: how far that is behind the logs of partitions beside all of them.
    """

    cluster_id: str | None
    logs: tuple[ComparedLog, ...]
    best: int
    diverged: tuple[Divergence, ...]
    lag: MetadataLag
    left_out: str | None = None


def compare_logs(paths: Sequence[str], choice: IdentityChoice = IdentityChoice()) -> LogComparison:  # noqa: B008
    """Compare the metadata logs at *paths*; `N=PATH` if no file identifies node N.

    Raises UsageError, UnreadableError; KlogError if they are not of one cluster.
    """
    given = [_open(path) for path in paths]
    partitions, left_out = choose_identity([directory.partition for _, directory in given], choice)
    _check_clusters(partitions, choice)
    kept = [(path, node, directory) for path, (node, directory) in zip(paths, given, strict=True)]
    kept = [one for one in kept if one[2].partition in partitions]
    bounds = [metadata_bounds(directory.partition) for _, _, directory in kept]
    copies = [
        ComparedCopy(i, one[2].partition, at.log_start, at.log_end)
        for i, (one, at) in enumerate(zip(kept, bounds, strict=True))
    ]
    comparison = Comparison(copies).run()
    ends = [at.end for at in bounds]
    best = max(range(len(kept)), key=lambda i: ((ends[i].epoch, ends[i].offset), -i))
    state = kept[best][2].read(ends[best].offset if bounds[best].gone else None)
    logs = tuple(
        ComparedLog(
            path,
            node,
            directory,
            bounds[i].log_start,
            ends[i],
            0 if i == best else ends[best].offset - _common(comparison, ends, i, best),
            tuple(comparison.facts[i].bad_batches),
            _roles(node, state),
            bounds[i].gone,
            snapshot_fault(directory.partition),
        )
        for i, (path, node, directory) in enumerate(kept)
    )
    cluster_ids = [directory.log_dir.cluster_id for _, _, directory in kept if directory.log_dir is not None]
    log_dirs = [directory.log_dir for _, _, directory in kept if directory.log_dir is not None]
    lag = lag_behind(state, (one for log_dir in log_dirs for one in log_dir.partitions), int(time.time() * 1000))
    diverged = tuple(_divergences(comparison, logs))
    return LogComparison(next(filter(None, cluster_ids), None), logs, best, diverged, lag, left_out)


def _open(path: str) -> tuple[int | None, MetadataDirectory]:
    given, place = split_node(path)
    directory = open_metadata(place)
    directory.check_content()
    return node_at(path, given, None if directory.log_dir is None else directory.log_dir.node_id), directory


def _check_clusters(partitions: Sequence[Partition], choice: IdentityChoice) -> None:
    identities = [identity_of(partition) for partition in partitions]
    if len(identities) == 1 or are_all_copies(identities, choice.by_name):
        return
    found = [
        f"{one.path} of {f'cluster {identity.cluster_id}' if identity.cluster_id else 'an unknown cluster'}"
        for one, identity in zip(partitions, identities, strict=True)
    ]
    unknown = ", --by-name treats unknown ones as the same" if any(not one.cluster_id for one in identities) else ""
    raise KlogError(f"not logs of one cluster: {', '.join(found)}; --cluster ID chooses{unknown}")


def _common(comparison: Comparison, ends: Sequence[LogPoint], one: int, other: int) -> int:
    """Return the offset up to which two logs agree; a snapshot beyond a log's end counts as part of it."""
    part = comparison.first_difference(one, other)
    log_ends = [copy.log_end for copy in (comparison.copies[one], comparison.copies[other])]
    return part if part < min(log_ends) else min(ends[one].offset, ends[other].offset)


def _divergences(comparison: Comparison, logs: Sequence[ComparedLog]) -> list[Divergence]:
    found = []
    for one, other in combinations(range(len(logs)), 2):
        part = comparison.first_difference(one, other)
        pair = (logs[one], logs[other])
        # If a batch of one is unreadable, it is unknown whether they differ.
        if part < min(comparison.copies[i].log_end for i in (one, other)) and not any(
            part in log.bad_batches for log in pair
        ):
            epochs = [epoch_at(log.directory.partition, part) for log in pair]
            found.append(Divergence((one, other), part, (epochs[0], epochs[1])))
    return found


def _roles(node: int | None, metadata: ClusterMetadata) -> tuple[str, ...]:
    voters = {voter.id for voter in metadata.quorum.voters or ()} | set(metadata.state.cluster.controllers)
    broker = None if node is None else metadata.brokers.get(node)
    is_broker = broker is not None and broker.registered
    return (*(("broker",) if is_broker else ()), *(("controller",) if node in voters else ()))
