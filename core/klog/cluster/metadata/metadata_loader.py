"""Loads the state of a cluster from the metadata log in a log dir.

    metadata = read_metadata(LogDir("data"))
    if metadata is not None and metadata.complete:
        print(metadata.topic_config("orders"), metadata.brokers[1].epoch)

The state is the newest intact snapshot (`….checkpoint`), then the records of the log from its end offset on.  Torn or
corrupt parts are skipped and reported.  A record at the end of the log may be uncommitted: no file contains that fact.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from types import MappingProxyType
from typing import Final, NamedTuple

from klog.base.errors import ExitCode, KlogError
from klog.cluster.metadata.cluster_image import BrokerRegistration, QuorumImage
from klog.cluster.metadata.metadata_image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from klog.cluster.metadata.metadata_replay import LoggedRecord, Problems, Replay, read_records
from klog.cluster.metadata.topics_image import PartitionRegistration
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.formats.checkpoint import epochs_in_force
from klog.formats.control import control_record
from klog.formats.damage import Damage
from klog.formats.java_integers import LONG_MAX
from klog.formats.names import CLUSTER_METADATA, FileKind, FileName, Stage

_SNAPSHOT_HEADER, _SNAPSHOT_FOOTER = 3, 4
_LEADER_CHANGE: Final = 2
_MORE_TRIES: Final = 2
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class LogPoint(NamedTuple):
    """A place in the metadata log: *offset* is the next one, *epoch* the leader epoch of the record before it."""

    offset: int
    epoch: int


class MetadataOffsetError(KlogError):
    """The requested offset is outside of the log and its snapshots."""

    exit_code = ExitCode.PROBLEMS_LEFT


@dataclass(frozen=True)
class ClusterMetadata:
    """The cluster as of *end_offset*, the offset after the last record that was read; *epoch*: of that record.

    *state*: all of it; most callers need only the properties.  *snapshot*: the end of the snapshot from which it was
    read.  *complete*: nothing below *end_offset* is missing; a torn tail lies above it.  *problems*: a sentence for
    each part that was skipped; *damage*: those of them that a sound log does not have.  *gap*: the log begins behind
    the end of the snapshot.  *open_transaction*: the log ends inside of one, whose changes do not count.
    """

    state: MetadataImage
    end_offset: int
    complete: bool
    problems: tuple[str, ...]
    damage: tuple[str, ...] = ()
    epoch: int = 0
    snapshot: LogPoint | None = field(default=None, compare=False)  # two ways to one state
    gap: bool = False
    open_transaction: bool = False

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """The ids of the topics, by name."""
        return self.state.topics.ids

    @property
    def partitions(self) -> Mapping[str, Mapping[int, PartitionRegistration]]:
        """The partitions, by topic id, then number."""
        return self.state.topics.partitions

    @property
    def configs(self) -> Mapping[tuple[int, str], Mapping[str, str]]:
        """The settings, by resource type (`TOPIC_RESOURCE`, `BROKER_RESOURCE` …) and name."""
        return self.state.settings.configs

    @property
    def features(self) -> Mapping[str, int]:
        """The finalized levels, `metadata.version` among them, `kraft.version` not."""
        return self.state.settings.features

    @property
    def brokers(self) -> Mapping[int, BrokerRegistration]:
        """The brokers, by node id; also those that were unregistered."""
        return self.state.cluster.brokers

    @property
    def quorum(self) -> QuorumImage:
        """The voters, and who led."""
        return self.state.quorum

    def partition(self, topic: str, number: int) -> PartitionRegistration | None:
        """Return a partition's registration; None if the cluster has no such partition."""
        return self.partitions.get(self.topic_ids.get(topic, ""), {}).get(number)

    def topic_config(self, topic: str) -> Mapping[str, str]:
        """Return the settings that were set for *topic*."""
        return self.configs.get((TOPIC_RESOURCE, topic), _NOTHING)

    def is_tiered(self, topic: str) -> bool:
        """Whether a part of *topic* may be in remote storage."""
        return self.topic_config(topic).get("remote.storage.enable") == "true"

    def broker_config(self, node_id: int | None) -> Mapping[str, str]:
        """Return the settings that were set dynamically for a broker, or for all of them, by the broker's names.

        *node_id* None: only those for all brokers.  A broker's own file (`server.properties`) is not included.
        """
        for_all = self.configs.get((BROKER_RESOURCE, ""), _NOTHING)
        own = _NOTHING if node_id is None else self.configs.get((BROKER_RESOURCE, str(node_id)), _NOTHING)
        return {**for_all, **own}


def read_metadata(log_dir: LogDir, at: int | None = None) -> ClusterMetadata | None:
    """Return the cluster of the metadata log in *log_dir*; None without one (ZooKeeper, or another log dir has it).

    *at*: the state after the records below this offset.  Neither content nor an unreadable file raises: see `problems`.
    A running node creates and deletes files, and a file that seems to be missing is therefore looked up again. Raises
    MetadataOffsetError for an *at* that the log does not reach, or that precedes its oldest state.
    """
    path = os.path.join(log_dir.path, f"{CLUSTER_METADATA}-0")
    if not os.path.isdir(path):
        return None
    is_in_use = bool(log_dir.lock.held)
    found = read_log(Partition(path), at, is_in_use)
    for _ in range(_MORE_TRIES if is_in_use else 0):
        if not found.complete:
            found = read_log(Partition(path), at, is_in_use)
    return found


def read_log(partition: Partition, at: int | None = None, is_in_use: bool = False) -> ClusterMetadata:
    """Return the cluster of the metadata log in the directory of *partition*: see `read_metadata`.

    *is_in_use*: a node is running on it.
    """
    problems = Problems()
    base = newest_snapshot(partition, problems, LONG_MAX if at is None else at)
    if base is None and not partition.segments:
        problems.add(f"{partition.path}: {partition.unreadable or 'neither a log nor a snapshot'}")
    if at is not None and base is None and not begins_at_zero(partition):
        raise MetadataOffsetError(f"{partition.path}: no state as of offset {at}: {_oldest(partition)}")
    replay = Replay(MetadataImage(), problems)
    if base is not None:
        replay = Replay(base.state, problems, base.end.offset, base.end.epoch)
    for _ in replay_segments(partition, replay, LONG_MAX if at is None else at, is_in_use):
        pass
    if at is not None and replay.expected < at:
        raise MetadataOffsetError(f"{partition.path}: no state as of offset {at}: the log ends at {replay.expected}")
    if replay.state.quorum.leader is None:
        _find_leader(partition, replay)
    return ClusterMetadata(
        replay.state,
        replay.expected,
        not problems.missing,
        problems.sentences(),
        problems.sentences(only_damage=True),
        replay.epoch or 0,
        None if base is None else base.end,
        problems.gap,
        replay.in_transaction,
    )


def begins_at_zero(partition: Partition) -> bool:
    """Whether the log has its first record."""
    return bool(partition.segments) and partition.segments[0].base_offset == 0


def _oldest(partition: Partition) -> str:
    snapshots = snapshot_files(partition)
    if not snapshots:
        start = partition.segments[0].base_offset if partition.segments else 0
        return f"the log begins at {start}, and there is no snapshot"
    return f"the oldest is as of {snapshots[-1].offset}, where a snapshot ends"


def replay_segments(
    partition: Partition, replay: Replay, until: int = LONG_MAX, is_in_use: bool = False
) -> Iterator[None]:
    """Take the log's records from where *replay* is, and below *until*, into its state; a step for each segment."""
    start = replay.expected
    ends: Iterable[int | None] = [files.base_offset for files in partition.segments[1:]]
    for files, next_base in zip_longest(partition.segments, ends):
        if next_base is not None and next_base <= start:
            continue
        path = partition.file(files.log)
        if replay.expected < min(files.base_offset, until):
            replay.problems.gap |= replay.expected == start
            replay.hole(path, files.base_offset)
            replay.expected = min(replay.expected, until)
        if files.base_offset >= until:
            return
        try:
            replay.log(path, start, until, is_in_use)
        except KlogError as error:
            replay.problems.add(str(error))
        yield


def _find_leader(partition: Partition, replay: Replay) -> None:
    """Find the LeaderChange record before the snapshot: it is the first record of its epoch.

    Snapshots do not contain it, and a snapshot may reach the end of the log.
    """
    entries = epochs_in_force(partition.epochs.entries) if partition.epochs is not None else []
    start = max((one.start_offset for one in entries if one.start_offset < replay.expected), default=None)
    if start is None:
        return
    bases = [files for files in partition.segments if files.base_offset <= start]
    try:
        found = next(read_records(partition.file(bases[-1].log), start), None) if bases else None
    except KlogError:
        return
    if isinstance(found, LoggedRecord) and found.offset == start and found.is_control:
        control = control_record(found.key, found.value)
        if control.type_id == _LEADER_CHANGE and not control.failure:
            replay.state.quorum.apply(control.name, control.data, found.epoch)


# ---------------------------------------------------------------- snapshots


class MetadataSnapshot(NamedTuple):
    """The content of a snapshot: the state of everything below its *end*.  *flaw*: why it is not whole, None when it
    is.

    *path*: the file.  *timestamp*: of the last record that it contains (ms).  *is_legible*: a node reads it, although
    its end may be missing.
    """

    path: str
    end: LogPoint
    state: MetadataImage
    problems: Problems
    flaw: str | None
    timestamp: int = -1
    is_legible: bool = True


def newest_snapshot(partition: Partition, problems: Problems, until: int = LONG_MAX) -> MetadataSnapshot | None:
    """Return the newest whole snapshot whose end the log contains, else the newest one; None if there is none.

    None of those that end behind *until*.
    """
    log_start = partition.segments[0].base_offset if partition.segments else None
    newest: MetadataSnapshot | None = None
    for file in snapshot_files(partition):
        if (file.offset or 0) > until:
            continue
        if newest is not None and (log_start is None or (file.offset or 0) < log_start):
            break  # with this one, more would be missing than the newest one lacks
        found = read_snapshot(partition.file(file.name), LogPoint(file.offset or 0, file.epoch or 0))
        if found.flaw is None:
            problems.take(found.problems)
            return found
        problems.add(found.flaw, missing=False)
        newest = newest or found
    if newest is None or log_start == 0:
        return None
    problems.take(newest.problems)
    problems.missing = True
    return newest


def snapshot_files(partition: Partition) -> list[FileName]:
    """Return the snapshots in the directory, the newest first."""
    snapshots = (file for file in partition.files if file.kind is FileKind.KRAFT_SNAPSHOT)
    found = (file for file in snapshots if file.stage is Stage.IN_USE and file.canonical)
    return sorted(found, key=lambda file: (file.offset, file.epoch), reverse=True)


def read_snapshot(path: str, end: LogPoint, replay: Replay | None = None) -> MetadataSnapshot:
    """Return the state after *replay*, a new one, has read the snapshot; one without a footer was never finished.

    Kafka: RecordsSnapshotReader.
    """
    replay = replay or Replay(MetadataImage(), Problems())
    flaw, first, last, timestamp, end_of_last = None, None, None, -1, 0
    try:
        for found in replay.records(path, 0):
            if isinstance(found, Damage):
                flaw = flaw or str(found)
                continue
            if found.offset != replay.expected:
                flaw = flaw or f"{path}: record {found.offset} where {replay.expected} was expected"
            control = control_record(found.key, found.value) if found.is_control else None
            last = None if control is None else control.type_id
            if found.offset == 0:
                first = last
                timestamp = control.data.get("lastContainedLogTimestamp", -1) if control is not None else -1
            replay.record(found, path)
            end_of_last = found.offset + 1
    except KlogError as error:
        flaw = flaw or str(error)
    if replay.expected != end_of_last:
        last = None  # records that needed no attention follow
    is_legible = flaw is None and end_of_last > 0
    if (first, last) != (_SNAPSHOT_HEADER, _SNAPSHOT_FOOTER):
        flaw = flaw or f"{path}: not finished: {'header' if first != _SNAPSHOT_HEADER else 'footer'} missing"
    return MetadataSnapshot(path, end, replay.state, replay.problems, flaw, timestamp, is_legible)
