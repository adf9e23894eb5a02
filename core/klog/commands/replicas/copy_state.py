"""A broker's copy of a partition, its relation to the other copies, and the offset from which it should have records.

A copy that begins later than another one has lost its first records, unless there is an explanation: DeleteRecords,
which writes a line in the log start checkpoint of a log dir; retention, which removes them in the other copy as well,
or has left as much as the limit; remote storage, which serves them.  Unknown settings explain nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from klog.base.read_only import ReadOnlyFile
from klog.cluster.election import ReplicaSet
from klog.cluster.follower_truncation import epoch_rounds
from klog.cluster.leader_epoch_cache import LeaderEpochCache
from klog.cluster.metadata.topic_config import TopicConfig
from klog.commands.replicas.batch_comparison import ComparedCopy, Comparison, CopyFacts
from klog.commands.replicas.disks import BrokerCopy
from klog.data_dir.partition import Partition
from klog.formats.checkpoint import EpochEntry
from klog.formats.damage import Damage
from klog.log.header_walk import walk_headers
from klog.partition.retention.due_records import StoredSegment, stored_segments
from klog.partition.retention.first_pass import TopicRetention, due_segments
from klog.partition.start.kept_log import KeptLog, NextStarts
from klog.partition.start.misleading_index import rebuilt_by_recovery
from klog.partition.start.start_files import ReadSettings
from klog.partition.transactions.isolation import open_at


class CopyState(NamedTuple):
    """A copy.  *kept*: the broker's log after its next start.

    *facts*: None if the copies are not compared.  *first_difference*, *shared_end* (see Comparison), *cut_if_leads*: by
    the other copy's node.  *directory_known*: whether the assignment names its log dir; None if it names none.
    *expected_from*: see `ComparedCopy`.  *misleads*: the index entry that makes the broker skip records as a leader, in
    words; None without one.
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
    misleads: str | None = None

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
    def hides_from(self) -> int | None:
        """The first offset that its log start hides, by its leader epochs; None if it hides nothing."""
        return self.partition.start_by_epochs if self.log_start == self.partition.log_start_offset else None

    @property
    def unserved(self) -> str | None:
        """Why a leader with this copy does not serve all of it, though all copies may be equal; None if it does."""
        if self.hides_from is not None:
            return f"its log start hides records on {self.node}: klog doctor"
        if self.misleads is not None:
            return f"a wrong index skips records on {self.node}: klog recover --indexes-only"
        return None

    @property
    def is_cut(self) -> bool:
        """Whether the next start removes intact batches behind damage."""
        return self.facts is not None and self.facts.leaving > 0 and self.kept.aside is None

    @property
    def is_served(self) -> bool:
        """Whether its broker starts with it, and serves all of it."""
        return self.kept.fails is None and self.kept.aside is None and self.unserved is None

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


def compared_copy(
    copy: BrokerCopy, starts: NextStarts, config: TopicConfig, is_in_use: bool = False, aside: str | None = None
) -> ComparedCopy:
    """Return the input of a comparison for a copy: the log of its broker after the next start.

    *config*: of topics.  *is_in_use*: the broker runs, and appends while the copy is read: its log is the one on disk,
    without a future cut.  *aside*: why the start sets the directory aside, None if it does not.  Raises
    UnreadableError.
    """
    topic, clean = copy.partition.topic, copy.disk.log_dir.clean_shutdown is not None
    settings = ReadSettings(
        config.value(topic, "index.interval.bytes").number,
        config.value(topic, "segment.index.bytes").number,
        with_files=False,
    )
    kept = starts.kept(copy.partition, clean or is_in_use, settings)
    if aside is not None and kept.fails is None:
        kept = KeptLog(kept.log_start, kept.log_start, {}, (), aside=aside)
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
            _misleads(bounds[node], copy, comparison.facts[node]) if comparison is not None else None,
        )
    return found


def _misleads(bounds: ComparedCopy, copy: BrokerCopy, facts: CopyFacts) -> str | None:
    is_clean = bounds.kept is None or copy.disk.log_dir.clean_shutdown is not None
    if bounds.partition is None or (bounds.kept is not None and bounds.kept.aside is not None):
        return None
    rebuilt = rebuilt_by_recovery(bounds.partition, is_clean)
    return next((words for base, words in facts.misleading.items() if base not in rebuilt), None)


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


class StartedCopy(NamedTuple):
    """A copy, and the facts about its first segments.  *is_clean*: its log dir has the clean-shutdown marker."""

    compared: ComparedCopy
    retention: TopicRetention
    is_clean: bool


class _Log(NamedTuple):
    """A copy's segments as its next start leaves them."""

    copy: StartedCopy
    partition: Partition
    segments: list[StoredSegment]

    @property
    def start(self) -> int:
        return self.copy.compared.log_start

    @property
    def end(self) -> int:
        return self.copy.compared.log_end


def expected_starts(copies: Mapping[int, StartedCopy], now_ms: int) -> dict[int, int]:
    """Return for each node the offset from which on nothing explains that its copy lacks a record.

    Raises UnreadableError.
    """
    starts = {node: copy.compared.log_start for node, copy in copies.items()}
    if len(set(starts.values())) < 2:
        return starts
    logs = {node: _log(copy) for node, copy in copies.items()}
    deleted = max((_line(log) for log in logs.values() if log is not None), default=0)
    found = {}
    for node, start in starts.items():
        log = logs[node]
        earlier = [other for other in logs.values() if other is not None and other.start < start]
        explained = min((_explained(log, other, now_ms) for other in earlier), default=start)
        found[node] = min(max(explained, deleted), start)
    return found


def _log(copy: StartedCopy) -> _Log | None:
    compared = copy.compared
    if compared.partition is None:
        return None
    sizes = compared.kept.sizes if compared.kept is not None else None
    return _Log(copy, compared.partition, stored_segments(compared.partition, copy.is_clean, sizes))


def _line(log: _Log) -> int:
    """Return up to where records were deleted, by the log start checkpoint.

    A line beyond the log is no evidence, and one above the leader epochs is none of a broker's.
    """
    line, end = log.partition.log_start_checkpoint or 0, log.partition.log_end
    if end is None or not 0 <= line <= end.offset:
        return 0
    by_epochs = log.partition.start_by_epochs
    return line if by_epochs is None else by_epochs


def _explained(log: _Log | None, other: _Log, now_ms: int) -> int:
    """Return up to where retention explains that *log* lacks the first records of *other*."""
    if log is None or not log.copy.retention.is_known:
        return other.start
    retention, start = log.copy.retention, log.start
    limits = retention.limits
    # Retention by size removes segments: it does not raise a log start within one.
    has_limit = limits.deletes and limits.retention_bytes >= 0 and log.partition.start_by_epochs is None
    # The bytes on disk: a start may truncate the log at its end, long after retention has left so much.
    if retention.is_remote or (has_limit and limits.retention_bytes <= log.partition.size):
        return start
    due = due_segments(other.segments, limits, other.start, now_ms)
    explained, left = other.start, other.segments[len(due) :]
    if due:
        explained = left[0].base_offset if left else other.end
    if limits.deletes and limits.retention_ms >= 0:
        explained = _expired(other, left, start, explained, now_ms - limits.retention_ms)
    return max(min(explained, start), other.start)


def _expired(log: _Log, left: Sequence[StoredSegment], start: int, explained: int, oldest_ms: int) -> int:
    """Return the offset below which the batches of *left* are older than *oldest_ms*, below *start*.

    Another broker may have rolled at other offsets, and have other time indexes.
    """
    for number, segment in enumerate(left):
        latest = _latest_below(log, segment, start)
        if explained >= start or latest is None or latest >= oldest_ms:
            break
        explained = left[number + 1].base_offset if number + 1 < len(left) else log.end
    return explained


def _latest_below(log: _Log, segment: StoredSegment, offset: int) -> int | None:
    """Return the largest timestamp of the batches of a segment that begin below *offset*; None: they have none."""
    path = next(log.partition.file(one.log) for one in log.partition.segments if one.base_offset == segment.base_offset)
    latest = -1
    with ReadOnlyFile(path) as file:
        for batch in walk_headers(file):
            if isinstance(batch, Damage) or batch.base_offset >= offset:
                break
            latest = max(latest, batch.max_timestamp)
    return latest if latest >= 0 else None
