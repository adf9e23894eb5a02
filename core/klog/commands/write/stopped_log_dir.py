"""An existing log dir, whose broker does not run: the changes become a plan.

If there is a metadata log, the topic must exist in it, with that partition, on this node and in this directory: a
broker renames any other directory to `…-stray`, and does not serve it.  Each intermediate state of a partition is a log
that a broker recovers.  The order is that of a growing log: the appended part of the active segment, then each new
segment with its indexes; snapshots, each old one deleted once its successor exists; leader epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from shlex import quote
from typing import Final

from klog.base.errors import KlogError, counted, near_misses
from klog.base.read_only import ReadOnlyFile
from klog.change.partition_plan import checkpoints
from klog.change.plan.draft import Draft
from klog.change.plan.model import APPEND, PUT, REMOVE, SHA256_BELOW, Action, Digest, FileState
from klog.change.plan.staging import Staging
from klog.cluster.election import UNASSIGNED_DIRECTORY
from klog.cluster.metadata.topic_config import TopicConfig
from klog.cluster.metadata.topics_image import PartitionRegistration
from klog.commands.write.write_destination import OpenPartition, TopicPlace, WriteOptions
from klog.data_dir.disk.directory_tree import GrowingFiles
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.formats.checkpoint import Malformed
from klog.formats.names import CLUSTER_METADATA, SEGMENT_KINDS, FileKind, PartitionState, parse_file, topic_is_legal
from klog.formats.properties import NO_NODE
from klog.kernel import Window
from klog.partition.append.appender import Appender
from klog.partition.append.log_resumption import Resumption, open_log
from klog.partition.retention.due_records import DueRecords, RetainedPartition, due_records, stored_segments
from klog.partition.start.record_tally import OffsetSpan

_END_BYTES = 1 << 20


def _digest_of_end(source: ReadOnlyFile) -> Digest:
    """Return the digest of a file before an append; of a large one, of its last MiB.

    To read all of it would take longer than to append, and the appended part does not depend on it.  Raises
    UnreadableError.
    """
    start = source.size - _END_BYTES if source.size >= SHA256_BELOW else 0
    digest = Digest(source.size, start)
    while digest.size < source.size and (piece := source.read(digest.size, min(_END_BYTES, source.size - digest.size))):
        digest.update(piece)
    return digest


class _StagedLog:
    """The staged part of a log.  *whole*: the digest of the existing part, None for a new log."""

    def __init__(self, path: str | None, files: GrowingFiles, whole: Digest | None) -> None:
        self._path, self._files = path, files
        self.added, self.whole = Digest(), whole

    def write(self, data: bytes | memoryview) -> None:
        self.added.update(data)
        if self.whole is not None:
            self.whole.update(data)
        if self._path is not None:
            self._files.write(self._path, data)

    def close(self) -> None:
        if self._path is not None:
            self._files.close(self._path)


class PlannedPartition:
    """An `AppendTarget` whose files become changes in *draft*, when `finish` is called.

    *found*: the state of the log before.  *now_ns*: the modification time of changed logs.  Raises UnreadableError.
    """

    def __init__(self, draft: Draft, partition: Partition, found: Resumption, files: GrowingFiles, now_ns: int) -> None:
        self._now_ns = now_ns
        self._draft, self._partition, self._files = draft, partition, files
        self._log, self._found = partition.segments[-1].log, found
        with ReadOnlyFile(partition.file(self._log)) as source:
            self._digest = _digest_of_end(source)
        self._logs: dict[str, _StagedLog] = {}
        self._small: dict[str, bytes] = {}
        self._removed: list[str] = []
        draft.read_through(self._file(self._log), self._digest.copy())

    def _file(self, name: str) -> str:
        return f"{self._partition.directory}/{name}"

    def write(self, name: str, data: bytes | memoryview) -> None:
        """Append to a log; another name than before ends the log before."""
        if name not in self._logs:
            for other in self._logs.values():
                other.close()
            whole = self._digest if name == self._log and name not in self._removed else None
            self._logs[name] = _StagedLog(self._draft.staging.begin(self._file(name), self._files), self._files, whole)
        if len(data):
            self._logs[name].write(data)

    def put(self, name: str, content: bytes) -> None:
        """Give a small file this *content*, or append it to the existing part of the active segment's index."""
        before = self._found.entries.get(name, b"")
        if size := self._found.sizes.get(name):
            with ReadOnlyFile(self._partition.file(name)) as index:
                before = index.read(0, size) + before
        self._small[name] = before + content

    def remove(self, name: str) -> None:
        """Delete a file, if it exists."""
        self._removed.append(name)

    def finish(self, bases: Collection[int]) -> None:
        """Record the changes in the draft.  *bases*: base offsets of the final segments.

        Raises OSError, UnreadableError.
        """
        there = {file.name for file in self._partition.files}
        for name, log in self._logs.items():
            log.close()
            self._say_log(name, log)
            stem = name.removesuffix(FileKind.LOG.value)
            for kind in SEGMENT_KINDS[1:]:
                self._say_small(f"{stem}{kind.value}")
        for name in [name for name in self._small if parse_file(name).kind is FileKind.SNAPSHOT]:
            self._say_small(name)
        gone = [name for name in self._removed if name in there]
        for name in [*gone, *self._outdated(bases)]:
            self._draft.remove(self._file(name))
        for name in sorted(self._small):
            self._say_small(name)

    def _outdated(self, bases: Collection[int]) -> list[str]:
        """Return the snapshots that a broker removes at its next start: of no segment, and not of the log's end."""
        kept = [parse_file(name).offset for name in self._small if parse_file(name).kind is FileKind.SNAPSHOT]
        files = [file for file in self._partition.snapshots if file.offset not in bases and file.offset not in kept]
        return [file.name for file in files] if kept else []

    def _say_log(self, name: str, log: _StagedLog) -> None:
        file = self._file(name)
        self._draft.staging.know(file, log.added)
        if log.whole is None:
            after = self._new_state(file, log.added)
            self._draft.add(Action(PUT, file, self._draft.state(file), after, file, self._draft.number))
            return
        if not log.added.size:
            self._draft.staging.drop(file)
            return
        before = self._draft.state(file)
        assert before is not None, "the log that is appended to is there"
        size, digest = log.whole.size, log.whole.text()
        after = before._replace(size=size, digest=digest, modified_ns=self._now_ns)
        part = after._replace(size=log.added.size, digest=log.added.text())
        self._draft.add(Action(APPEND, file, before, after, file, self._draft.number, part))

    def _new_state(self, file: str, digest: Digest) -> FileState:
        """Return the future state of a new log: its mode and owner are those of the active segment."""
        self._draft.state(file)
        like = self._draft.state(self._file(self._log))
        assert like is not None, "the active segment's log is there"
        return like._replace(size=digest.size, digest=digest.text(), modified_ns=self._now_ns)

    def _say_small(self, name: str) -> None:
        if name in self._small:
            self._draft.put(self._file(name), [self._small.pop(name)], like=self._file(self._log))


def delete_until_end(draft: Draft, file: str) -> Callable[[Draft], None]:
    """Delete *file* first; return a function that restores it, unchanged, at the end."""
    before = draft.state(file)
    assert before is not None, "there is no such file"
    with ReadOnlyFile(f"{draft.log_dir}/{file}") as source:
        content = source.read(0, source.size)
    draft.add(Action(REMOVE, file, before, None, None, draft.number))

    def restore(last: Draft) -> None:
        last.staging.store(file, [content])
        last.state(file)
        last.add(Action(PUT, file, None, before, file, last.number))

    return restore


_FIRST: Final = "create it on a broker first"


class StoppedLogDir:
    """A `Destination`: *log_dir*; `drafts` returns its changes."""

    def __init__(
        self, log_dir: LogDir, staging: Staging, config: TopicConfig, options: WriteOptions, disk: Disk
    ) -> None:
        if isinstance(log_dir.meta, Malformed):
            raise KlogError(f"{log_dir.path}: {FileKind.META_PROPERTIES.value}: {log_dir.meta.reason}")
        if config.metadata is not None and not config.metadata.complete:
            raise KlogError(
                f"the metadata log is damaged: {config.metadata.problems[0]}; --metadata DIR names another node's"
            )
        self._log_dir, self._staging, self._config, self._options = log_dir, staging, config, options
        self._files, self._window = GrowingFiles(disk), Window(output=0)
        self._open: dict[tuple[str, int], tuple[Partition, PlannedPartition, Draft]] = {}
        self._marker = Draft(log_dir.path, 0, staging)

    # the existing state

    def topic(self, name: str) -> TopicPlace | None:
        """Return a topic of the cluster; None for an impossible name.

        Raises KlogError for a missing topic, one with another id than requested, or one with replicas elsewhere.
        """
        place = self._find_topic(name)
        if place is not None:
            count, topic_id = self._options.partitions, self._options.topic_id
            if count not in (None, place.count):
                raise KlogError(f"--partitions {count}: {name} is there, and has {counted(place.count, 'partition')}")
            if topic_id is not None and topic_id != (place.topic_id or topic_id):
                raise KlogError(f"--topic-id {topic_id}: {name} is there, and is {place.topic_id}")
        return place

    def _find_topic(self, name: str) -> TopicPlace | None:
        if not topic_is_legal(name):
            return None
        if name == CLUSTER_METADATA:
            raise KlogError(f"{name}: only controllers write the metadata log")
        metadata = self._config.metadata
        if metadata is None:
            return self._topic_without_metadata(name)
        if name not in metadata.topic_ids:
            near = near_misses(name, metadata.topic_ids)
            raise KlogError(f"{self._log_dir.path}: the cluster has no topic {name}: {_FIRST}{near}")
        topic_id = metadata.topic_ids[name]
        found = metadata.partitions[topic_id]
        replicas = max((len(one.replicas) for one in found.values()), default=1)
        self._check_replicas(name, replicas)
        epochs = {number: one.leader_epoch for number, one in found.items()}
        return TopicPlace(name, topic_id, max(found, default=-1) + 1, self._config, True, epochs)

    def _check_replicas(self, name: str, replicas: int) -> None:
        if replicas > 1 and not self._options.one_replica:
            raise KlogError(
                f"{name} has {replicas} replicas, and the first leader decides: with --one-replica, write"
                " the same to the log dir of each before any of their brokers starts"
            )

    def _topic_without_metadata(self, name: str) -> TopicPlace:
        """Return a topic of a log dir without a controller, or of a cluster with ZooKeeper."""
        node = self._log_dir.node_id
        is_broker = node is not None and node >= 0
        if is_broker and self._log_dir.is_kraft:
            raise KlogError(
                f"{self._log_dir.path}: no {CLUSTER_METADATA}-0 here; --metadata DIR names the log dir that has it"
            )
        found = {one.number: one for one in self._log_dir.partitions if self._is_current(one) and one.topic == name}
        numbers = [number for number in found if number is not None]
        if not numbers:
            first = _FIRST if is_broker else "klog adds topics only to a log dir that it creates"
            raise KlogError(f"{self._log_dir.path}: there is no topic {name}: {first}")
        if is_broker:
            self._check_replicas(name, 2)
        epochs = {}
        if is_broker:
            epochs = {n: found[n].leader_epoch or 0 for n in numbers}
        topic_id = next((one.topic_id for one in found.values() if one.topic_id), None)
        return TopicPlace(name, topic_id, max(numbers) + 1, self._config, is_broker, epochs)

    @staticmethod
    def _is_current(partition: Partition) -> bool:
        return partition.state is PartitionState.CURRENT

    def open(self, place: TopicPlace, number: int) -> OpenPartition:
        """Return a partition.

        Raises KlogError if the metadata contradict it, DamagedError where it must be recovered first.
        """
        directory = f"{place.name}-{number}"
        metadata = self._config.metadata
        if metadata is not None:
            self._check_place(directory, metadata.partition(place.name, number))
        partition = next(
            (one for one in self._log_dir.partitions if one.directory == directory and self._is_current(one)), None
        )
        if partition is None:
            raise KlogError(f"{self._log_dir.path}: there is no {directory}: {_FIRST}")
        if metadata is not None and partition.metadata is None:
            raise KlogError(
                f"{partition.path}: no partition.metadata: the broker sets the directory aside, and serves none of it;"
                f" first: klog doctor {quote(self._log_dir.path)} names the step"
            )
        if None not in (ids := (partition.topic_id, place.topic_id)) and ids[0] != ids[1]:
            raise KlogError(f"{partition.path}: of topic {ids[0]}, but the cluster's {place.name} is {ids[1]}")
        partition.check_listed()
        if not partition.segments:
            raise KlogError(f"{partition.path}: there is no segment; first: start and stop its broker")
        # A directory that no broker uses was written by klog, which moves a recovery point only over synced data.
        is_closed = self._log_dir.clean_shutdown is not None or self._log_dir.node_id == NO_NODE
        found = open_log(partition, place.settings, self._window, is_closed=is_closed)
        draft = Draft(self._log_dir.path, 0, self._staging)
        target = PlannedPartition(draft, partition, found, self._files, self._options.now_ms * 1_000_000)
        self._open[place.name, number] = partition, target, draft
        return OpenPartition(found.log, target)

    def _check_place(self, directory: str, found: PartitionRegistration | None) -> None:
        node, own = self._log_dir.node_id, self._log_dir.directory_id
        if found is None:
            raise KlogError(f"{directory}: the cluster has no such partition")
        if node is None or node not in found.replicas:
            replicas = ", ".join(map(str, found.replicas))
            raise KlogError(f"{directory}: its replicas are on {replicas}, and this is the log dir of node {node}")
        assigned = found.directories[found.replicas.index(node)] if found.directories else UNASSIGNED_DIRECTORY
        if own is not None and assigned not in (own, UNASSIGNED_DIRECTORY):
            raise KlogError(f"{directory}: assigned to another log dir of node {node} ({assigned}); this one is {own}")

    # the changes

    def drafts(self, appenders: Collection[tuple[TopicPlace, int, Appender]]) -> list[Draft]:
        """Return all changes in their order: the marker is deleted, partitions grow, checkpoints are written, the
        marker is restored.

        Raises OSError, UnreadableError.
        """
        self._files.close_all()
        written = [one for one in appenders if one[2].batches]
        if not written:
            return []
        is_marked = self._log_dir.clean_shutdown is not None
        restore = delete_until_end(self._marker, FileKind.CLEAN_SHUTDOWN.value) if is_marked else None
        found = [self._marker]
        for place, number, appender in written:
            partition, target, draft = self._open[place.name, number]
            target.finish({*(files.base_offset for files in partition.segments), *appender.segments})
            draft.rely_on_directory(partition.directory)
            found.append(draft)
        ends = {(place.name, number): appender.end for place, number, appender in written}
        last = Draft(self._log_dir.path, 0, self._staging)
        changed = {FileKind.RECOVERY_POINTS: ends, FileKind.HIGH_WATERMARKS: ends}
        checkpoints.plan(self._log_dir, changed, last, mend=False)
        if restore is not None:
            restore(last)
        return [*found, last]

    def due(self, appenders: Collection[tuple[TopicPlace, int, Appender]]) -> list[DueRecords]:
        """Return which of the records that were appended the broker's first retention pass removes.

        Raises UnreadableError.
        """
        found = [self._due(*one) for one in appenders if one[0].is_broker and one[2].batches]
        return [one for one in found if one is not None]

    def _due(self, place: TopicPlace, number: int, appender: Appender) -> DueRecords | None:
        partition, now_ms = self._open[place.name, number][0], self._options.now_ms
        first = appender.ended[0].base_offset
        kept = [one for one in stored_segments(partition, is_clean=True) if one.base_offset < first]
        if kept and kept[-1].base_offset == partition.segments[-1].base_offset:
            del kept[-1]  # it was empty, and is named after its first batch now
        # A log without timestamps is as old as its file, which is changed now.
        added = [
            one if one.largest_timestamp >= 0 else one._replace(largest_timestamp=now_ms) for one in appender.ended
        ]
        offsets = OffsetSpan(appender.log.start, appender.end)
        found = RetainedPartition(place.name, number, partition.path, [*kept, *added], offsets)

        def count(due: OffsetSpan) -> int:
            return sum(one.records for one in added if one.base_offset < due.end)

        return due_records(found, place.config, now_ms, count)

    def abandon(self) -> None:
        """Close all files."""
        self._files.close_all()
