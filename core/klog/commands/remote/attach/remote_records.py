"""The records that are appended to `__remote_log_metadata`, each partition of it in a new segment behind its end.

The segment's log is put in place in one step, so that a broker finds all of the records or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from klog.base.errors import DamagedError
from klog.change.plan.draft import Draft
from klog.change.plan.staging import Staging
from klog.cluster.remote_log.events import RemoteSegment, TopicIdPartition, copy_events, metadata_partition
from klog.commands.remote.attach.files_in_memory import FilesInMemory
from klog.commands.remote.attach.target import PartitionPlace, TargetBroker
from klog.formats.batch import BatchHead, write_batch
from klog.formats.checkpoint import write_partition_metadata
from klog.formats.internal_topics import REMOTE_LOG_METADATA
from klog.formats.names import FileKind
from klog.formats.record import write_record
from klog.kernel import DONE, Window, crc32c
from klog.log.header_walk import window_of
from klog.partition.append.appender import Appender, AppendSettings, LogState, empty_log
from klog.partition.append.log_resumption import open_log

_MOST_RECORDS = 500
"""The records of a batch: far below 1 MiB."""
CheckpointLines = dict[tuple[str, int], dict[FileKind, int | None]]


class RemoteRecords:
    """Collects records by partition of the topic; *lines*: the checkpoint lines of the log dirs, by number."""

    def __init__(self, target: TargetBroker, stagings: Sequence[Staging], now_ms: int) -> None:
        self._target, self._stagings, self._now_ms = target, stagings, now_ms
        self._values: dict[int, list[bytes]] = {}
        self.lines: list[CheckpointLines] = [{} for _ in target.log_dirs]

    def add(self, whose: TopicIdPartition, segments: Iterable[RemoteSegment]) -> tuple[int, int]:
        """Add the records about segments; return the partition of the topic, and the number of records."""
        number = metadata_partition(whose.topic_id, whose.number, self._target.count)
        values = [value for one in segments for value in copy_events(whose, one)]
        if values:
            self._values.setdefault(number, []).extend(values)
        return number, len(values)

    def drafts(self) -> list[Draft]:
        """Return the changes.  Raises OSError (staging), KlogError for a partition of the topic that is damaged."""
        return [self._draft(number, values) for number, values in sorted(self._values.items())]

    def _draft(self, number: int, values: Sequence[bytes]) -> Draft:
        target, cluster = self._target, self._target.cluster
        topic_id = cluster.topic_ids[REMOTE_LOG_METADATA]
        known = cluster.partitions[topic_id][number]
        place = target.place(REMOTE_LOG_METADATA, number, known)
        log, files = self._resumed(place, topic_id), FilesInMemory()
        content = _batches(values, log.end, max(known.leader_epoch, log.epochs.latest), self._now_ms)
        window = window_of(content, 0)
        assert window.scan(0) == DONE
        assert not window.check(0, window.count)
        appender = Appender(log, files)
        appender.append(window, 0, window.count)
        appender.close()
        draft = Draft(target.log_dirs[place.number].path, place.number, self._stagings[place.number])
        now_ns = self._now_ms * 1_000_000
        files.draft(draft, place.directory, now_ns)
        if place.partition is None or place.partition.metadata is None:
            name = f"{place.directory}/{FileKind.PARTITION_METADATA.value}"
            draft.put(name, [write_partition_metadata(topic_id)], modified_ns=now_ns)
        if place.partition is not None:
            draft.rely_on_directory(place.directory)
        ends = {FileKind.RECOVERY_POINTS: appender.end, FileKind.HIGH_WATERMARKS: appender.end}
        self.lines[place.number][REMOTE_LOG_METADATA, number] = {**ends}
        return draft

    def _resumed(self, place: PartitionPlace, topic_id: str) -> LogState:
        """Return the state of a log of the topic, with a new segment at its end."""
        partition, settings = place.partition, AppendSettings()
        if partition is None or not partition.segments:
            return empty_log(settings)
        if partition.topic_id not in (None, topic_id):
            raise DamagedError(f"{partition.path}: of topic {partition.topic_id}, the cluster's is {topic_id}")
        is_closed = self._target.log_dirs[place.number].clean_shutdown is not None
        found = open_log(partition, settings, Window(output=0), is_closed=is_closed).log
        segment = settings.segment(found.end, found.epochs.latest)
        return LogState(settings, segment, found.start, found.end, found.producers, found.epochs)


def _batches(values: Sequence[bytes], offset: int, epoch: int, now_ms: int) -> bytes:
    left, content = iter(values), b""
    while some := list(islice(left, _MOST_RECORDS)):
        records = b"".join(write_record(0, i, None, value) for i, value in enumerate(some))
        head = BatchHead(offset, epoch, 0, len(some) - 1, now_ms, now_ms, len(some))
        content += write_batch(head, records, crc32c)
        offset += len(some)
    return content
