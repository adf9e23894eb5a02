"""An existing log dir, whose broker does not run: the changes become a plan.

If there is a metadata log, the topic must exist in it, with that partition, on this node and in this directory: a
broker renames any other directory to `…-stray`, and does not serve it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from klog.base.errors import KlogError, counted, near_misses
from klog.change.partition_plan import checkpoints
from klog.change.plan.draft import Draft
from klog.change.plan.staging import Staging
from klog.cluster.election import UNASSIGNED_DIRECTORY
from klog.cluster.metadata.topic_config import TopicConfig
from klog.cluster.metadata.topics_image import PartitionRegistration
from klog.commands.write.write_destination import OpenPartition, TopicPlace
from klog.commands.write.write_options import WriteOptions
from klog.data_dir.disk.disk import Disk
from klog.data_dir.disk.growing_files import GrowingFiles
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.formats.checkpoint import Malformed
from klog.formats.names import CLUSTER_METADATA, FileKind, PartitionState, topic_is_legal
from klog.formats.properties import NO_NODE
from klog.kernel import Window
from klog.partition.append.appender import Appender
from klog.partition.append.log_resumption import open_log
from klog.partition.append.planned_partition import PlannedPartition, delete_until_end
from klog.partition.retention.due_records import DueRecords, RetainedPartition, due_records
from klog.partition.retention.stored_segments import stored_segments
from klog.partition.start.record_tally import OffsetSpan

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
            raise KlogError(f"{name}: the metadata log is written by controllers alone")
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
                f"{name} has {replicas} replicas, and the first of them that leads decides: with --one-replica, write"
                " the same to the log dir of each before any of their brokers starts"
            )

    def _topic_without_metadata(self, name: str) -> TopicPlace:
        """Return a topic of a log dir without a controller, or of a cluster with ZooKeeper."""
        node = self._log_dir.node_id
        is_broker = node is not None and node >= 0
        if is_broker and self._log_dir.is_kraft:
            raise KlogError(f"{self._log_dir.path}: no {CLUSTER_METADATA}-0 here; --metadata DIR names who has it")
        found = {one.number: one for one in self._log_dir.partitions if self._is_current(one) and one.topic == name}
        numbers = [number for number in found if number is not None]
        if not numbers:
            first = _FIRST if is_broker else "klog adds topics only to a log dir that it makes"
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
