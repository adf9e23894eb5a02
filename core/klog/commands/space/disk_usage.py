"""The log dirs of a command line: the size of each partition, and the reason why each segment is still there.

    usage = DiskUsage(PartitionQuery(["data", "data1"]), SpaceSettings({}, None, {}), now_ms)
    for segment in usage.segments():
        print(segment.topic, segment.partition, segment.base_offset, segment.bytes, segment.reason, segment.due)

The first answer is computed from names, sizes and the ends of indexes.  The cleaner's own rules decide for compacted
topics (`klog.commands.compact.log_to_clean`), and read headers.  A segment's row is built at each request.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from klog.base.errors import KlogError
from klog.cluster.metadata.topic_config import TopicConfig, topic_configs
from klog.commands.space.file_sizes import DirectorySizes, SegmentSizes, file_sizes, read_sizes, tree_size
from klog.commands.space.kept_reasons import Reason, SegmentFate, judge_segments
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.data_dir.selection import PartitionQuery, Selection
from klog.formats.names import CLUSTER_METADATA, FileKind, PartitionState, Stage, parse_file
from klog.log.index import largest_timestamp, largest_timestamp_ahead
from klog.partition.retention.first_pass import SegmentAge, TopicRetention, topic_retention

if TYPE_CHECKING:
    from klog.commands.compact.log_to_clean import LogSections

_OF_STATE: Final = {
    PartitionState.DELETE: Reason.DELETING,
    PartitionState.STRAY: Reason.STRAY,
    PartitionState.FUTURE: Reason.FUTURE,
}
_ORDINARY: Final = (f".{FileKind.SNAPSHOT.value}", FileKind.PARTITION_METADATA.value, FileKind.LEADER_EPOCHS.value)


class SpaceSettings(NamedTuple):
    """The sources of topics' settings: options by name, the log dir with the metadata log, the broker's own file."""

    options: Mapping[str, str]
    metadata: str | None
    file: Mapping[str, str]


class ContentQuery(NamedTuple):
    """Questions about the content of logs.  *compaction*: also the result of the cleaner.  *free*: bytes."""

    top_keys: int
    codecs: tuple[str, ...]
    fraction: float
    compaction: bool
    free: int | None

    @property
    def is_asked(self) -> bool:
        """Whether there is any question."""
        return bool(self.top_keys or self.codecs or self.compaction or self.free is not None)


class SegmentUsage(NamedTuple):
    """A segment: bytes of its log and of its indexes, and the size of both on the disk.

    *last_timestamp*: the largest, ms, as in a broker; None for an empty log.
    """

    topic: str | None
    partition: int | None
    log_dir: str
    directory: str
    base_offset: int
    bytes: int
    index_bytes: int
    disk_bytes: int
    last_timestamp: int | None
    reason: Reason
    due: int | None
    because: str | None


class OtherUsage(NamedTuple):
    """A file, or a directory of such, outside of segments.  *reason*: None for a broker's own file."""

    file: str
    bytes: int
    disk_bytes: int
    reason: Reason | None


class FileSystem(NamedTuple):
    """The free space on the file system of a log dir, and its size, in bytes; *device* distinguishes two of them."""

    device: int
    free: int
    capacity: int


@dataclass
class PartitionUsage:
    """A partition directory.  *found*: its files.  *largest*: the largest timestamps of its segments, once read."""

    partition: Partition
    found: DirectorySizes
    largest: list[int] | None = None

    @property
    def state_reason(self) -> Reason | None:
        """The reason of everything in a directory that is no log in use; None for one that is."""
        if self.partition.state is not PartitionState.CURRENT:
            return _OF_STATE[self.partition.state]
        return Reason.METADATA if self.partition.topic == CLUSTER_METADATA else None

    def others(self) -> Iterator[OtherUsage]:
        """Yield the files that are of no segment, by their paths."""
        return (one._replace(file=self.partition.file(one.file)) for one in self.names())

    def names(self) -> Iterator[OtherUsage]:
        """Yield the same by their names."""
        of_state = self.state_reason
        return (OtherUsage(*one[:3], of_state or _reason_of(one.name)) for one in self.found.others)


@dataclass
class LogDirUsage:
    """A log dir.  *others*: its own files, and directories that are no partitions, if the *whole* was requested."""

    log_dir: LogDir
    topics: TopicConfig
    whole: bool
    partitions: list[PartitionUsage] = field(default_factory=list)
    others: list[OtherUsage] = field(default_factory=list)
    file_system: FileSystem | None = None


def _reason_of(file: str) -> Reason | None:
    if file.endswith(_ORDINARY):
        return None  # nearly all of thousands, so their names are not parsed
    name = parse_file(file)
    is_index = name.kind in (FileKind.INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)
    # An index in use without a log: a broker removes it at its start.
    return Reason.LEFTOVER if name.stage is not Stage.IN_USE or is_index else None


def _tiered(fate: SegmentFate | None) -> SegmentFate:
    """Return the fate of a segment of a topic with remote storage: local limits apply once it has been copied."""
    if fate is None:
        return SegmentFate(Reason.REMOTE)
    if fate.reason in (Reason.ACTIVE, Reason.BELOW_LOG_START):
        return fate
    is_due = fate.reason is Reason.RETENTION_DUE
    return fate._replace(reason=Reason.REMOTE, because="due once it has been copied" if is_due else fate.because)


def _of_cleaner(cleaning: LogSections | str | None, bases: Sequence[int]) -> Iterator[SegmentFate]:
    """Yield the cleaner's treatment of the closed segments of a log; *bases*: of all of them, and of the active one."""
    if cleaning is None or isinstance(cleaning, str):
        reason = Reason.UNLIMITED if cleaning is None else Reason.UNCLEANABLE
        yield from [SegmentFate(reason, None, cleaning)] * (len(bases) - 1)
        return
    from klog.commands.compact.log_to_clean import CleaningLimit

    bound, first_dirty, end_dirty = cleaning.bounds[0], cleaning.first_dirty, cleaning.first_uncleanable
    is_open = bound.limit is CleaningLimit.TRANSACTION
    held = SegmentFate(Reason.OPEN_TRANSACTION if is_open else Reason.UNCLEANABLE, None, str(bound))
    dirty, clean = SegmentFate(Reason.DIRTY, None, cleaning.reason), SegmentFate(Reason.COMPACTED)
    for first, end in pairwise(bases):
        yield clean if end <= first_dirty else dirty if first < end_dirty else held


class DiskUsage:
    """The size of the partitions of *query* at *now_ms*.

    Raises UsageError, UnreadableError for the paths themselves.
    """

    def __init__(self, query: PartitionQuery, settings: SpaceSettings, now_ms: int) -> None:
        self.now_ms = now_ms
        self._problems: dict[str, None] = {}
        selections = query.selections()
        configs = topic_configs([one.log_dir for one in selections], settings.options, settings.metadata, settings.file)
        self.log_dirs = [self._look(one, topics) for one, topics in zip(selections, configs, strict=True)]
        self._retention: dict[tuple[int, str | None], TopicRetention] = {}
        self._cleaning: dict[str, LogSections | str] = {}

    def _look(self, selection: Selection, topics: TopicConfig) -> LogDirUsage:
        log_dir = selection.log_dir
        found = LogDirUsage(log_dir, topics, selection.whole)
        for partition in selection.partitions:
            sizes = read_sizes(partition.path)
            if sizes.unreadable and not os.path.lexists(partition.path):
                continue
            self.note(*sizes.unreadable)
            found.partitions.append(PartitionUsage(partition, sizes))
        if selection.whole:
            unreadable: list[str] = []
            for one in sorted(file_sizes(log_dir.path, [], unreadable)):
                reason = Reason.LEFTOVER if parse_file(one.name).stage is not Stage.IN_USE else None
                found.others.append(OtherUsage(f"{log_dir.path}/{one.name}", one.bytes, one.disk_bytes, reason))
            links = {one.file for one in found.others}
            for name in log_dir.other_directories:
                if f"{log_dir.path}/{name}" in links:
                    continue
                one = tree_size(log_dir.path, name, unreadable)
                found.others.append(OtherUsage(f"{log_dir.path}/{one.name}", one.bytes, one.disk_bytes, None))
            self.note(*unreadable)
        try:
            system = os.statvfs(log_dir.path)
            device = os.stat(log_dir.path).st_dev
            found.file_system = FileSystem(device, system.f_bavail * system.f_frsize, system.f_blocks * system.f_frsize)
        except OSError as error:
            self.note(f"{log_dir.path}: {error.strerror}")
        return found

    # the rows

    def segments(self) -> Iterator[SegmentUsage]:
        """Yield the segments of all partitions."""
        for log_dir in self.log_dirs:
            for partition in log_dir.partitions:
                yield from self.segments_of(log_dir, partition)

    def others(self) -> Iterator[OtherUsage]:
        """Yield the files that are of no segment."""
        for log_dir in self.log_dirs:
            yield from log_dir.others
            for partition in log_dir.partitions:
                yield from partition.others()

    def segments_of(self, log_dir: LogDirUsage, usage: PartitionUsage) -> Iterator[SegmentUsage]:
        """Yield the segments of a partition."""
        sizes = usage.found.segments
        if not sizes:
            return
        partition, path = usage.partition, log_dir.log_dir.path
        largest = self._largest_of(log_dir.log_dir, usage)
        ages = [SegmentAge(one.base_offset, one.log_bytes, age) for one, age in zip(sizes, largest, strict=True)]
        reason = usage.state_reason
        rules = self.rules_of(log_dir, partition.topic)  # always: faults of the metadata log count
        fates = [SegmentFate(reason)] * len(sizes) if reason else self._judge(log_dir, usage, ages, rules)
        topic, number, directory = partition.topic, partition.number, partition.directory
        for one, timestamp, fate in zip(sizes, largest, fates, strict=True):
            yield SegmentUsage(
                topic, number, path, directory, *one[:3], one.log_disk + one.index_disk,
                timestamp if one.log_bytes else None, *fate,
            )  # fmt: skip

    def _largest_of(self, log_dir: LogDir, usage: PartitionUsage) -> list[int]:
        """Return the largest timestamps of the segments of a partition; they are read once."""
        if usage.largest is None:
            is_stopped, active = log_dir.clean_shutdown is not None, usage.found.segments[-1]
            is_live = bool(log_dir.lock.held)
            usage.largest = [
                self._largest(usage.partition, one, is_live, is_stopped, is_stopped or one is not active)
                for one in usage.found.segments
            ]
        return usage.largest

    def _largest(
        self, partition: Partition, one: SegmentSizes, is_live: bool, is_stopped: bool, is_indexed: bool
    ) -> int:
        """Return a segment's largest timestamp in a broker after its next start.

        It is that of its time index; without an entry there, that of its file.  If the time index is missing a broker
        makes an empty one, unless it recovers the segment: after an unclean stop, or if the offset index is missing as
        well.  *is_indexed*: the indexes are not behind the log.  *is_live*: a broker is running, and may have deleted
        the segment since it was listed.  Kafka: LogSegment.largestTimestamp, sanityCheck.
        """
        if not one.log_bytes or (one.time_index is None and one.offset_index is not None and is_stopped):
            return one.modified_ms
        log, time_index = partition.file(one.log), one.time_index and partition.file(one.time_index)
        offset_index = one.offset_index and partition.file(one.offset_index)
        try:
            if is_indexed:
                return largest_timestamp(log, time_index)
            return largest_timestamp_ahead(log, time_index, offset_index)
        except KlogError as error:
            if not (is_live and any(path and not os.path.lexists(path) for path in (log, time_index, offset_index))):
                self.note(str(error))
            return one.modified_ms

    def _judge(
        self, log_dir: LogDirUsage, usage: PartitionUsage, ages: list[SegmentAge], topic: TopicRetention
    ) -> list[SegmentFate]:
        """Return why the segments of a log in use are there."""
        partition = usage.partition
        found = judge_segments(ages, topic.limits, self._log_start(log_dir, partition), self.now_ms)
        if topic.is_remote:
            return [_tiered(fate) for fate in found]
        if None not in found:
            return [fate for fate in found if fate is not None]
        cleaning = self.cleaning(log_dir, partition) if topic.compacts else None
        of_cleaner = _of_cleaner(cleaning, [one.base_offset for one in ages])
        active = SegmentFate(Reason.ACTIVE)
        return [fate or other for fate, other in zip(found, [*of_cleaner, active], strict=True)]

    @staticmethod
    def _log_start(log_dir: LogDirUsage, partition: Partition) -> int:
        number = -1 if partition.number is None else partition.number
        start = log_dir.log_dir.checkpoints.offset(FileKind.LOG_STARTS, partition.topic or "", number)
        return 0 if start is None else start

    def rules_of(self, log_dir: LogDirUsage, topic: str | None) -> TopicRetention:
        """Return the settings that apply to the segments of *topic*."""
        key = id(log_dir), topic
        if key not in self._retention:
            self._retention[key] = topic_retention(log_dir.topics, topic)
        return self._retention[key]

    def cleaning(self, log_dir: LogDirUsage, partition: Partition) -> LogSections | str:
        """Return the sections of a partition of a compacted topic for the cleaner, or why it would not clean it."""
        if partition.path not in self._cleaning:
            from klog.commands.compact.log_to_clean import examine
            from klog.commands.compact.topic_rules import Refusal, TopicRules

            found: LogSections | Refusal | str
            try:
                found = examine(partition, TopicRules.of(log_dir.topics, partition.topic), self.now_ms)
            except KlogError as error:
                self.note(str(error))
                found = str(error)
            self._cleaning[partition.path] = found.what if isinstance(found, Refusal) else found
        return self._cleaning[partition.path]

    def note(self, *problems: str) -> None:
        """Keep *problems*, each once: rows may be made several times."""
        self._problems.update(dict.fromkeys(problems))

    @property
    def problems(self) -> tuple[str, ...]:
        """The unreadable parts so far, a sentence each; the rest is right."""
        return tuple(self._problems)

    @property
    def damage(self) -> tuple[str, ...]:
        """The faults of metadata logs, as far as they have been read: settings may be missing."""
        return tuple(dict.fromkeys(sentence for one in self.log_dirs for sentence in one.topics.damage))
