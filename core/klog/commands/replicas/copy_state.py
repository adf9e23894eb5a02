"""A broker's copy of a partition, and its relation to the other copies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from klog.cluster.election import ReplicaSet
from klog.cluster.leader_epoch_cache import LeaderEpochCache
from klog.cluster.metadata.topic_config import TopicConfig
from klog.cluster.truncation import epoch_rounds
from klog.commands.replicas.comparison import ComparedCopy, Comparison, CopyFacts
from klog.commands.replicas.disks import BrokerCopy
from klog.data_dir.partition import Partition
from klog.formats.checkpoint import EpochEntry
from klog.partition.start.kept_log import KeptLog, NextStarts
from klog.partition.start.start_files import ReadSettings
from klog.partition.transactions.isolation import open_at


class CopyState(NamedTuple):
    """A copy.  *kept*: the broker's log after its next start.

    *facts*: None if the copies are not compared.  *first_difference*, *shared_end* (see Comparison), *cut_if_leads*: by
    the other copy's node.  *directory_known*: whether the assignment names its log dir; None if it names none.
    *expected_from*: see `ComparedCopy`.
    """

    disk_copy: BrokerCopy
    kept: KeptLog
    facts: CopyFacts | None
    epochs: LeaderEpochCache
    open_transactions: int
    directory_known: bool | None
    first_difference: Mapping[int, int]
    cut_if_leads: Mapping[int, int]
    shared_end: Mapping[int, int] = {}
    expected_from: int = 0

    @property
    def node(self) -> int:
        """The broker's id."""
        return self.disk_copy.disk.node

    @property
    def partition(self) -> Partition:
        """The directory."""
        return self.disk_copy.partition

    @property
    def log_start(self) -> int:
        """The first offset after the next start."""
        return self.kept.log_start

    @property
    def log_end(self) -> int:
        """The log end offset after the next start."""
        return self.kept.log_end

    @property
    def lost_head(self) -> tuple[int, int] | None:
        """The offsets, from and up to, of the first records that it lacks, and nothing explains that; None for none."""
        ranges = self.facts.lost.ranges if self.facts is not None else []
        if not ranges or ranges[0][0] >= self.log_start:
            return None
        return ranges[0][0], self.log_start

    @property
    def is_cut(self) -> bool:
        """Whether the next start removes intact batches."""
        return self.facts is not None and self.facts.leaving > 0

    @property
    def is_clean(self) -> bool:
        """Whether its log dir has the clean-shutdown marker."""
        return self.disk_copy.disk.log_dir.clean_shutdown is not None

    def epoch_below(self, offset: int) -> int:
        """Return the leader epoch of its last batch that begins below *offset*; -1 without one."""
        runs = self.facts.epochs if self.facts is not None else []
        return max((run.epoch for run in runs if run.first < offset), default=-1)

    @property
    def last_epoch(self) -> int:
        """The leader epoch of its last batch; -1 without one."""
        return self.facts.epochs[-1].epoch if self.facts is not None and self.facts.epochs else -1


def compared_copy(copy: BrokerCopy, starts: NextStarts, config: TopicConfig, is_in_use: bool = False) -> ComparedCopy:
    """Return the input of a comparison for a copy: the log of its broker after the next start.

    *config*: of topics.  *is_in_use*: the broker runs, and appends while the copy is read: its log is the one on disk,
    without a future cut.  Raises UnreadableError.
    """
    topic, clean = copy.partition.topic, copy.disk.log_dir.clean_shutdown is not None
    settings = ReadSettings(
        config.value(topic, "index.interval.bytes").number,
        config.value(topic, "segment.index.bytes").number,
        with_files=False,
    )
    kept = starts.kept(copy.partition, clean or is_in_use, settings)
    return ComparedCopy(copy.disk.node, copy.partition, kept.log_start, kept.log_end, kept=None if is_in_use else kept)


def copy_states(
    copies: Mapping[int, BrokerCopy],
    bounds: Mapping[int, ComparedCopy],
    comparison: Comparison | None,
    registration: ReplicaSet | None,
    leader_epoch: int | None,
) -> dict[int, CopyState]:
    """Return the states by node; *comparison* None: they are no copies of one partition.

    *leader_epoch*: of the last leader, None if unknown.
    """
    caches = {node: _epoch_cache(bounds[node], comparison) for node in copies}
    newest = max((cache.latest for cache in caches.values()), default=-1) if leader_epoch is None else leader_epoch
    found = {}
    for node, copy in sorted(copies.items()):
        others = [other for other in copies if other != node] if comparison is not None else []
        watermark = copy.partition.high_watermark or 0
        found[node] = CopyState(
            copy,
            bounds[node].kept or KeptLog(bounds[node].log_start, bounds[node].log_end),
            comparison.facts[node] if comparison is not None else None,
            caches[node],
            _open_transactions(bounds[node], comparison),
            _knows_directory(copy, registration),
            {other: comparison.first_difference(node, other) for other in others} if comparison is not None else {},
            {
                other: _cut(caches[node], bounds[node].log_end, caches[other], bounds[other].log_end, newest, watermark)
                for other in others
            },
            {other: comparison.shared_end(node, other) for other in others} if comparison is not None else {},
            bounds[node].due_from,
        )
    return found


def _open_transactions(copy: ComparedCopy, comparison: Comparison | None) -> int:
    if copy.partition is None or (comparison is not None and not comparison.facts[copy.node].has_transactions):
        return 0
    return len(open_at(copy.partition, copy.log_end))


def _epoch_cache(copy: ComparedCopy, comparison: Comparison | None) -> LeaderEpochCache:
    """Return the epochs of a broker that has loaded the log; from batches if the file has none."""
    file = copy.partition.epochs if copy.partition is not None else None
    entries = file.entries if file is not None and not file.malformed else ()
    if copy.kept is not None and copy.kept.epochs is not None:
        entries = copy.kept.epochs
    if not entries and comparison is not None:
        entries = tuple(
            EpochEntry(run.epoch, run.first) for run in comparison.facts[copy.node].epochs if run.epoch >= 0
        )
    cache = LeaderEpochCache(entries)
    cache.truncate_end(copy.log_end)
    cache.truncate_start(copy.log_start)
    return cache


def _cut(
    follower: LeaderEpochCache,
    log_end: int,
    leader: LeaderEpochCache,
    leader_end: int,
    newest: int,
    high_watermark: int,
) -> int:
    """Return the cut of a follower once the other one has been elected, with a new epoch."""
    elected = LeaderEpochCache(leader.entries)
    elected.assign(max(newest, leader.latest) + 1, leader_end)
    return epoch_rounds(follower, log_end, elected, leader_end, high_watermark)[-1].to


def _knows_directory(copy: BrokerCopy, registration: ReplicaSet | None) -> bool | None:
    assigned = registration.directory_of(copy.disk.node) if registration is not None else None
    return None if assigned is None else assigned == copy.disk.log_dir.directory_id
