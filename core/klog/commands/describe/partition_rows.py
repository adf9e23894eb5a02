"""Describes a log dir as rows of partitions, and a partition as rows of segments."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from klog.base.errors import KlogError
from klog.base.overlays import remote_object
from klog.cluster.metadata.topic_config import TopicConfig
from klog.commands.describe.log_facts import entries_in_use, summarize
from klog.commands.describe.remote_facts import TieredTopics
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition, SegmentFiles
from klog.formats.checkpoint import Malformed
from klog.formats.damage import DamageKind
from klog.formats.follow_file import FOLLOW_FILE, FollowFile
from klog.formats.index import ABORTED_TXN, OFFSET_ENTRY, TIME_ENTRY
from klog.formats.layout import Layout
from klog.formats.names import ROOT_CHECKPOINTS, ROOT_KINDS, FileKind, FileName, PartitionState, Stage


@dataclass(frozen=True)
class PartitionRow:
    """One partition of a log dir.  *incomplete*: a part of it could not be read; a note names that part.

    *log_start_offset* of a tiered topic is in remote storage if it is below *local_log_start_offset*, the base of the
    first segment.  *remote_end_offset*, inclusive, and the two behind it: None unless `__remote_log_metadata` is in the
    log dir, too.
    """

    topic: str | None
    partition: int | None
    topic_id: str | None
    segments: int
    bytes: int
    log_start_offset: int | None
    high_watermark: int | None
    log_end_offset: int | None
    recovery_point: int | None
    cleaner_offset: int | None
    leader_epoch: int | None
    local_log_start_offset: int | None
    remote_end_offset: int | None
    remote_segments: int | None
    remote_bytes: int | None
    directory: str
    state: str
    notes: tuple[str, ...]
    incomplete: bool


@dataclass(frozen=True)
class LogDirSummary:
    """A log dir and its partitions.  *locked*: None if unknown.

    *copy*: the facts about the source cluster, if it is a copy.
    """

    path: str
    cluster_id: str | None
    node_id: int | None
    directory_id: str | None
    version: str | None
    metadata_version: str | None
    clean_shutdown: bool
    broker_epoch: int | None
    locked: bool | None
    lock_pid: int | None
    notes: tuple[str, ...]
    partitions: tuple[PartitionRow, ...]
    copy: FollowFile | None = None


@dataclass(frozen=True)
class SegmentRow:
    """One segment.  *records*: None if known only after decompressing.  The index counts: None if there is no file."""

    file: str
    base_offset: int
    last_offset: int | None
    records: int | None
    batches: int | None
    bytes: int
    index_entries: int | None
    time_index_entries: int | None
    aborted_transactions: int | None
    first_timestamp: int | None
    last_timestamp: int | None
    codecs: tuple[str, ...]
    flags: tuple[str, ...]
    notes: tuple[str, ...]
    incomplete: bool


@dataclass(frozen=True)
class PartitionSummary:
    """A partition and its segments."""

    path: str
    row: PartitionRow
    segments: tuple[SegmentRow, ...]


def describe_log_dir(
    log_dir: LogDir,
    partitions: Sequence[Partition] | None = None,
    metadata_version: str | None = None,
    settings: TopicConfig | None = None,
    with_remote: bool = True,
) -> LogDirSummary:
    """Describe *log_dir*, with rows for *partitions* only (None: for all).

    *metadata_version* is the feature level, which the caller has read from the metadata log.  *settings*: of its
    topics; None: as its own metadata log has them.  *with_remote*: also read
    `__remote_log_metadata`.  Raises UnreadableError if the directory cannot be listed.
    """
    unclean = _was_left_unclean(log_dir)
    chosen = log_dir.partitions if partitions is None else partitions
    tiered = TieredTopics(log_dir, settings, with_remote=with_remote)
    rows = tuple(_partition_row(partition, unclean, tiered) for partition in chosen)
    shutdown, followed = log_dir.clean_shutdown, log_dir.checkpoints.follow_file
    return LogDirSummary(
        path=log_dir.path,
        cluster_id=log_dir.cluster_id,
        node_id=log_dir.node_id,
        directory_id=log_dir.directory_id,
        version=_version(log_dir),
        metadata_version=metadata_version,
        clean_shutdown=shutdown is not None,
        broker_epoch=shutdown.broker_epoch if shutdown else None,
        locked=log_dir.lock.held,
        lock_pid=log_dir.lock.pid,
        notes=tuple(_log_dir_notes(log_dir)),
        partitions=rows,
        copy=followed if isinstance(followed, FollowFile) else None,
    )


def describe_partition(partition: Partition, deep: bool = False) -> PartitionSummary:
    """Describe *partition* and each of its segments; with *deep*, records are counted by decoding them."""
    around = LogDir(partition.log_dir)
    row = _partition_row(partition, _was_left_unclean(around), TieredTopics(around))
    last = len(partition.segments) - 1
    rows = [
        _segment_row(partition, files, is_active=number == last, deep=deep)
        for number, files in enumerate(partition.segments)
    ]
    return PartitionSummary(partition.path, row, tuple(rows))


def _was_left_unclean(log_dir: LogDir) -> bool:
    """Whether a broker would recover logs at its next start; a running broker's log dir is not left at all."""
    try:
        is_log_dir = any(file.kind in ROOT_KINDS for file in log_dir.files)
    except KlogError:
        return False
    return is_log_dir and log_dir.clean_shutdown is None and not log_dir.lock.held


def _version(log_dir: LogDir) -> str | None:
    if log_dir.oldest_version is None:
        return None
    kind = {True: " (KRaft)", False: " (ZooKeeper)", None: ""}[log_dir.is_kraft]
    return f"{log_dir.oldest_version} or later{kind}"


def _log_dir_notes(log_dir: LogDir) -> Iterator[str]:
    if log_dir.meta is None:
        yield "no meta.properties: the directory was never formatted"
    elif isinstance(log_dir.meta, Malformed):
        yield f"meta.properties: {log_dir.meta}"
    for kind in ROOT_CHECKPOINTS:
        malformed = log_dir.checkpoints.malformed(kind)
        if malformed is not None:
            yield f"{kind.value}: {malformed}"
    if isinstance(log_dir.checkpoints.follow_file, Malformed):
        yield f"{FOLLOW_FILE}: {log_dir.checkpoints.follow_file}; the cluster's topics and groups are unknown"
    for name in log_dir.foreign_directories:
        yield f"{name}/  is not a partition's directory; a broker does not start with it"
    counts = Counter((partition.topic, partition.number, partition.state) for partition in log_dir.partitions)
    for (topic, number, state), count in counts.items():
        if count > 1 and state in (PartitionState.CURRENT, PartitionState.FUTURE):
            yield f"{count} directories are {topic}-{number}; a broker does not start with them"
    for file in log_dir.leftovers:
        yield f"{file.name} was left by an interrupted write"
    if log_dir.lock.held is None:
        yield f"klog cannot tell whether a broker runs: {log_dir.lock.reason}"


def _partition_row(partition: Partition, unclean: bool, tiered: TieredTopics) -> PartitionRow:
    notes = [] if partition.state is PartitionState.CURRENT else [f"-{partition.state.value}"]
    end = None
    incomplete = False
    try:
        end = partition.log_end
    except KlogError as error:
        notes.append(_why(error))
        incomplete = not _vanished(error)
    if partition.unreadable is not None:
        notes.append(partition.unreadable)
        incomplete = os.path.lexists(partition.path)
    elif not partition.segments:
        notes.append("no segments")
    if unclean and end is not None and end.offset > (partition.recovery_point or 0):
        notes.append("unclean")
    if end is not None and end.damage is not None:
        notes.append(f"{end.damage.kind.value} at {end.damage.place.position}, {end.damage.size} bytes")
    notes += _file_notes(partition)
    remote = tiered.part(partition)
    return PartitionRow(
        topic=partition.topic,
        partition=partition.number,
        topic_id=partition.topic_id,
        segments=len(partition.segments),
        bytes=partition.size,
        log_start_offset=tiered.log_start(partition),
        high_watermark=partition.high_watermark,
        log_end_offset=end.offset if end else None,
        recovery_point=partition.recovery_point,
        cleaner_offset=partition.cleaner_offset,
        leader_epoch=partition.leader_epoch,
        local_log_start_offset=next(
            (one.base_offset for one in partition.segments if not _is_remote(partition, one)), None
        ),
        remote_end_offset=remote.end_offset,
        remote_segments=remote.segments,
        remote_bytes=remote.bytes,
        directory=partition.directory,
        state=partition.state.value,
        notes=tuple(notes),
        incomplete=incomplete,
    )


def _is_remote(partition: Partition, files: SegmentFiles) -> bool:
    """Whether a segment lies over the directory, from remote storage."""
    return remote_object(partition.file(files.log)) is not None


def _file_notes(partition: Partition) -> Iterator[str]:
    """Return notes about the names and the small files of a partition."""
    if partition.name is not None and not partition.name.canonical:
        yield "a broker would write the directory's name differently"
    left = Counter(file.stage.value for file in partition.leftovers)
    if left:
        yield f"{', '.join(f'{count} {suffix}' for suffix, count in sorted(left.items()))} left"
    for file in partition.files:
        if _is_odd(file):
            yield f"{file.name}: {_what_a_broker_makes_of(file)}"
    if isinstance(partition.metadata, Malformed):
        yield f"partition.metadata: {partition.metadata}"
    if partition.epochs is not None and partition.epochs.malformed is not None:
        yield f"leader-epoch-checkpoint: {partition.epochs.malformed}"
    if partition.others:
        yield f"neither files nor directories: {', '.join(partition.others)}"


def _is_odd(file: FileName) -> bool:
    return not file.canonical and file.stage is Stage.IN_USE and file.kind is not FileKind.OTHER


def _what_a_broker_makes_of(file: FileName) -> str:
    if file.offset is None and file.kind in (FileKind.LOG, FileKind.SNAPSHOT):
        return "no offset in its name; a broker does not start with it"
    return "not the name that a broker reads"


def _segment_row(partition: Partition, files: SegmentFiles, is_active: bool, deep: bool) -> SegmentRow:
    counts, notes = _index_counts(partition.path, files)
    path = partition.file(files.log)
    try:
        log = summarize(path, deep)
    except KlogError as error:
        notes.append(_why(error))
        log = None
    if log is not None and log.damage is not None:
        preallocated = log.damage.kind is DamageKind.ZEROED_TAIL and is_active
        what = "preallocated zeros" if preallocated else log.damage.kind.value
        notes.append(f"{what} at {log.damage.place.position}, {log.damage.size} bytes")
    if log is not None and log.damaged:
        notes.append(f"{log.damaged} damaged stretches")
    flags = (["active"] if is_active else []) + list(log.flags if log else ())
    flags += ["remote"] if _is_remote(partition, files) else []
    return SegmentRow(
        file=files.log,
        base_offset=files.base_offset,
        last_offset=log.last.last_offset if log and log.last else None,
        records=log.records if log else None,
        batches=log.batches if log else None,
        bytes=log.size if log else files.size,
        index_entries=counts[0],
        time_index_entries=counts[1],
        aborted_transactions=counts[2],
        first_timestamp=log.first_timestamp if log else None,
        last_timestamp=log.last_timestamp if log else None,
        codecs=log.codecs if log else (),
        flags=tuple(flags),
        notes=tuple(notes),
        incomplete=log is None,
    )


def _index_counts(directory: str, files: SegmentFiles) -> tuple[list[int | None], list[str]]:
    """Return how many entries each index has (None: no such file), and notes about the files."""
    counts: list[int | None] = []
    notes = []
    kinds: tuple[tuple[str | None, Layout, str], ...] = (
        (files.offset_index, OFFSET_ENTRY, "no .index"),
        (files.time_index, TIME_ENTRY, "no .timeindex"),
        (files.txn_index, ABORTED_TXN, ""),  # brokers write none if nothing was aborted
    )
    for name, layout, missing in kinds:
        counts.append(None)
        if name is None:
            notes += [missing] if missing else []
            continue
        try:
            counts[-1] = entries_in_use(os.path.join(directory, name), layout)
        except KlogError as error:
            notes.append(_why(error))
    return counts, notes


def _why(error: KlogError) -> str:
    return "vanished meanwhile" if _vanished(error) else str(error)


def _vanished(error: KlogError) -> bool:
    return isinstance(error.__cause__, FileNotFoundError)
