"""The cluster of a node that has recovered its metadata log: the state by which partitions are judged.

The metadata log is recovered from its beginning at each start, however the node was stopped, and ends at the first
damage: the rest is lost, silently.  Kafka: KafkaMetadataLog.apply.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from klog.base.errors import KlogError
from klog.base.read_only import ReadOnlyFile, is_missing
from klog.cluster.metadata.metadata_directory import METADATA_TOPIC_ID
from klog.cluster.metadata.metadata_loader import (
    ClusterMetadata,
    LogPoint,
    MetadataOffsetError,
    MetadataSnapshot,
    newest_snapshot,
    read_log,
    read_snapshot,
    snapshot_files,
)
from klog.cluster.metadata.metadata_replay import Problems
from klog.data_dir.partition import Partition
from klog.data_dir.replicas import epoch_at, log_end
from klog.data_dir.root_files import read_small
from klog.formats.batch import CONTROL_BIT
from klog.formats.checkpoint import Malformed
from klog.formats.java_integers import INT_MAX
from klog.formats.names import CLUSTER_METADATA, FileKind
from klog.formats.properties import read_quorum_state
from klog.kernel import Window
from klog.log.reader import LogReader
from klog.partition.start.log_loader import load
from klog.partition.start.producer_recovery import BrokerClock
from klog.partition.start.start_files import ReadSettings, StartOutcome, StartState
from klog.partition.start.start_reasons import StartFailure, StartNote

DIRECTORY = f"{CLUSTER_METADATA}-0"
_CLOCK = BrokerClock(0, INT_MAX)


class RecoveredMetadata(NamedTuple):
    """The result of a start for the metadata log.

    *cluster*: None if the node begins with an empty one.  *end*: of the log afterwards.  *failure*: why it does not
    start; *cluster* is then the one that the rest of the files has, None if that lacks something.
    """

    cluster: ClusterMetadata | None = None
    end: int = 0
    failure: StartFailure | None = None
    notes: tuple[StartNote, ...] = ()


class MetadataBounds(NamedTuple):
    """The begin and the end of a metadata log for a node that has recovered it.

    *end*: of the log, or of its newest snapshot if that ends later.  *gone*: the number of offsets that recovery cuts.
    """

    log_start: int
    log_end: int
    end: LogPoint
    gone: int


def metadata_bounds(partition: Partition) -> MetadataBounds:
    """Return the bounds of a metadata log.  Raises UnreadableError; KlogError for one that a node refuses."""
    if not partition.segments:
        newest = max((LogPoint(one.offset or 0, one.epoch or 0) for one in snapshot_files(partition)), default=None)
        return MetadataBounds(0, 0, newest or LogPoint(0, -1), 0)
    outcome = _load(partition)
    if outcome.fails is not None:
        raise KlogError(
            f"{partition.path}: a node refuses this metadata log: {outcome.fails}; leave this disk out where others"
            " have the log, and move the directory out of it: the node fetches it again; else restore it from a backup"
        )
    points = [LogPoint(one.offset or 0, one.epoch or 0) for one in snapshot_files(partition)]
    end = outcome.log_end
    return MetadataBounds(
        outcome.log_start,
        end,
        max([LogPoint(end, epoch_at(partition, end - 1)), *points]),
        max(log_end(partition) - end, 0) if outcome.cuts or outcome.dropped else 0,
    )


def snapshot_fault(partition: Partition) -> str | None:
    """Return why a node stops on the newest snapshot of its metadata log; None if it does not, or has none."""
    for newest in snapshot_files(partition)[:1]:
        path = partition.file(newest.name)
        found = read_snapshot(path, LogPoint(newest.offset or 0, newest.epoch or 0))
        if not found.is_legible:
            return found.flaw or f"{path}: it is empty"
    return None


def _load(partition: Partition) -> StartOutcome:
    return load(partition, StartState(), ReadSettings(with_files=False), _CLOCK)


def recover_metadata(log_dir: str, without_quorum_state: bool = False) -> RecoveredMetadata:
    """Return the result of a start for the metadata log in *log_dir*.  Raises UnreadableError.

    *without_quorum_state*: that file counts as absent.
    """
    if (failure := _check_bootstrap(log_dir)) is not None:
        return RecoveredMetadata(failure=failure)
    path = os.path.join(log_dir, DIRECTORY)
    partition = Partition(path)
    if os.path.isdir(path):
        partition.check_listed()
    if not os.path.isdir(path) or not (partition.size or snapshot_files(partition)):
        what = "is not there" if not os.path.isdir(path) else "is empty"
        message = (
            f"{path} {what}: a lone controller starts as an empty cluster and renames every partition to -stray; "
            "with other live voters it would be fetched again"
        )
        return RecoveredMetadata(notes=(StartNote("metadata-log-missing", message),))
    if not without_quorum_state and (failure := _check_quorum_state(partition, log_dir)):
        return RecoveredMetadata(failure=failure)
    return _recover(partition, log_dir)


def _check_bootstrap(log_dir: str) -> StartFailure | None:
    """Return why a node stops on `bootstrap.checkpoint`, which it reads at each start if it exists.

    It looks for a record in complete batches, and computes no checksum.  Kafka: BootstrapDirectory, BatchFileReader.
    """
    path = os.path.join(log_dir, FileKind.BOOTSTRAP.value)
    if is_missing(path):
        return None
    with ReadOnlyFile(path) as file:
        reader, window = LogReader(file, 0, file.size, like_kafka=True), Window(output=0)
        while reader.next(window):
            if any(not window.batch(i).attributes & CONTROL_BIT for i in range(window.count)):
                return None
    message = f"No FeatureLevelRecord for metadata.version was found in the bootstrap metadata: {path} is cut short"
    return StartFailure("bootstrap-malformed", message, log_dir)


def _check_topic_id(partition: Partition, log_dir: str) -> StartFailure | None:
    """Kafka: UnifiedLog.initializeTopicId."""
    if partition.topic_id in (None, METADATA_TOPIC_ID):
        return None
    message = (
        f"{partition.file(FileKind.PARTITION_METADATA.value)} has the topic id {partition.topic_id}, and that of every"
        f" metadata log is {METADATA_TOPIC_ID}: InconsistentTopicIdException"
    )
    return StartFailure("metadata-log-refused", message, log_dir, DIRECTORY)


def _check_quorum_state(partition: Partition, log_dir: str) -> StartFailure | None:
    """Kafka: FileQuorumStateStore.readElectionState."""
    name = FileKind.QUORUM_STATE.value
    if all(file.name != name for file in partition.files):
        return None
    content = read_small(partition.file(name))
    found = content if isinstance(content, Malformed) else read_quorum_state(content)
    if not isinstance(found, Malformed):
        return None
    message = f"Error while reading the Quorum status from the file {partition.file(name)}: {found}"
    return StartFailure("quorum-state-malformed", message, log_dir, DIRECTORY)


def _recover(partition: Partition, log_dir: str) -> RecoveredMetadata:
    if (failure := _check_topic_id(partition, log_dir)) is not None:
        return RecoveredMetadata(failure=failure)
    outcome = _load(partition)
    if outcome.fails is not None:
        message = f"the metadata log cannot be loaded: {outcome.fails}"
        return RecoveredMetadata(failure=StartFailure("metadata-log-refused", message, log_dir, DIRECTORY))
    newest = snapshot_files(partition)[:1]
    snapshot_end = (newest[0].offset or 0) if newest else 0
    if outcome.log_start > snapshot_end:
        message = f"the log begins at {outcome.log_start}, and no snapshot reaches there: Inconsistent snapshot state"
        return RecoveredMetadata(failure=StartFailure("metadata-log-refused", message, log_dir, DIRECTORY))
    cluster = _cluster(partition, outcome, snapshot_end)
    notes = []
    flawed = _flawed_snapshot(partition, cluster)
    if flawed is not None and not flawed.is_legible:
        message = f"the node stops on its newest snapshot: {flawed.flaw or 'it is empty'}"
        failure = StartFailure("metadata-snapshot-damaged", message, log_dir, DIRECTORY)
        return RecoveredMetadata(cluster if cluster.complete else None, outcome.log_end, failure)
    if flawed is not None:
        message = f"{flawed.flaw}: the node takes it for complete, and so has no topics that may be missing in it"
        notes.append(StartNote("metadata-log-damaged", message))
    if outcome.cuts or outcome.dropped:
        whole = read_log(partition)
        behind = max(whole.end_offset - outcome.log_end, 0)
        end = max(cluster.end_offset, outcome.log_end)
        message = (
            f"{partition.path}: recovery truncates it at offset {outcome.log_end}"
            f"{f', and {behind} records behind that are gone' if behind else ''}: the cluster is as of offset {end}"
        )
        if behind or not whole.complete:
            notes.append(StartNote("metadata-log-damaged", message))
    return RecoveredMetadata(cluster, outcome.log_end, None, tuple(notes))


def _flawed_snapshot(partition: Partition, cluster: ClusterMetadata) -> MetadataSnapshot | None:
    """Return the newest snapshot if it is not complete: a node reads that one, whatever older ones and the log have."""
    for newest in snapshot_files(partition)[:1]:
        end = LogPoint(newest.offset or 0, newest.epoch or 0)
        if cluster.snapshot != end or not cluster.complete:
            found = read_snapshot(partition.file(newest.name), end)
            return None if found.flaw is None else found
    return None


def _cluster(partition: Partition, outcome: StartOutcome, snapshot_end: int) -> ClusterMetadata:
    """Return the cluster as of the log's end; as of the newest snapshot if that ends later.

    Kafka: KafkaMetadataLog.truncateToLatestSnapshot.
    """
    if snapshot_end <= outcome.log_end:
        try:
            return read_log(partition, outcome.log_end)
        except MetadataOffsetError:  # a gap at the end, which only a reader sees
            return read_log(partition)
    problems = Problems()
    found = newest_snapshot(partition, problems)
    if found is None:
        newest = snapshot_files(partition)[0]
        found = read_snapshot(partition.file(newest.name), LogPoint(newest.offset or 0, newest.epoch or 0))
    return ClusterMetadata(
        found.state,
        found.end.offset,
        not problems.missing,
        problems.sentences(),
        problems.sentences(True),
        found.end.epoch,
        found.end,
    )
