"""A new log dir: it is built beside its final path, under a name that no broker reads, and then renamed.

A topic of another log has the settings and the number of partitions that the log dir of that log shows.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import NamedTuple

from klog.base.errors import KlogError
from klog.cluster.metadata.topic_config import TopicConfig, topic_configs
from klog.commands.write.write_destination import OpenPartition, TopicPlace, WriteOptions
from klog.data_dir.disk.directory_tree import GrowingFiles, write_file
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.partition import Partition
from klog.data_dir.partition_identity import check_one_topic
from klog.data_dir.selection import PartitionQuery, Selection
from klog.data_dir.whole_directory import whole_directory
from klog.formats.checkpoint import OffsetEntry, write_offsets, write_partition_metadata
from klog.formats.follow_file import FollowFile
from klog.formats.java_text import uuid_text
from klog.formats.names import CLUSTER_METADATA, FileKind, PartitionState, topic_is_legal
from klog.formats.properties import write_meta_properties
from klog.partition.append.appender import Appender, empty_log


class NewDirectory:
    """An `AppendTarget`: the directory at *path*, which it makes.

    *files* has the logs of all directories that are written side by side.  *written*: the paths to sync in the end.
    """

    def __init__(self, path: str, files: GrowingFiles, disk: Disk) -> None:
        self._path, self._files, self._disk = path, files, disk
        self._log = ""
        disk.make_directory(path)
        self.written = [path]

    def write(self, name: str, data: bytes | memoryview) -> None:
        """Append to a log; another name than before ends the log before."""
        path = os.path.join(self._path, name)
        if path != self._log:
            self._files.close(self._log)
            self._files.create(path)
            self._log = path
            self.written.append(path)
        if len(data):
            self._files.write(path, data)

    def put(self, name: str, content: bytes) -> None:
        """Make a small file."""
        self.written.append(write_file(os.path.join(self._path, name), [content], self._disk))

    def remove(self, name: str) -> None:
        """Delete a file: an appender to a new directory never does."""
        raise AssertionError(f"{name}: a new directory has no empty segment")


class SourceTopics(NamedTuple):
    """The settings of topics in their log dirs, and their numbers of partitions, by name."""

    configs: Mapping[str, TopicConfig]
    counts: Mapping[str, int]


def source_topics(paths: Sequence[str], config: Mapping[str, str]) -> SourceTopics:
    """Return the facts about the topics of *paths*: log dirs and partition directories; of settings the first counts.

    *config*: settings of the command line.  Raises IdentityError if directories of one name are of different topics,
    UsageError, DamagedError, UnreadableError.
    """
    selections = PartitionQuery(paths).selections()
    read = [[part for part in one.partitions if _is_read(part, one)] for one in selections]
    check_one_topic(chain.from_iterable(read), "name the partition directories of one of them")
    configs: dict[str, TopicConfig] = {}
    counts: dict[str, int] = {}
    for partitions, topics in zip(read, topic_configs([one.log_dir for one in selections], config), strict=True):
        for partition in partitions:
            topic = partition.topic or ""
            configs.setdefault(topic, topics)
            counts[topic] = max(counts.get(topic, 0), *_counts(partition, topics))
    return SourceTopics(configs, counts)


def _is_read(partition: Partition, selection: Selection) -> bool:
    is_current = partition.state is PartitionState.CURRENT
    return partition.topic != CLUSTER_METADATA and (is_current or partition.directory in selection.named)


def _counts(partition: Partition, topics: TopicConfig) -> Iterator[int]:
    """Yield lower bounds of a topic's partition count: from directory, metadata log and copy."""
    yield (partition.number or 0) + 1
    known, topic = topics.metadata, partition.topic or ""
    if known is not None and partition.topic_id is not None and known.topic_ids.get(topic) == partition.topic_id:
        yield len(known.partitions[partition.topic_id])
    followed = partition.checkpoints.follow_file
    if isinstance(followed, FollowFile) and topic in followed.topics:
        yield followed.topics[topic].partitions


_MOST_PARTITIONS = 100_000
"""Each is a directory; the name of one alone, or one digit too many, must not make a billion of them."""


class NewLogDir:
    """A `Destination` that is written at *path* and is not there before; `finish` completes it.

    *sources*: the topics that the input is from.
    """

    def __init__(self, path: str, options: WriteOptions, sources: SourceTopics, disk: Disk) -> None:
        self._path, self._options, self._sources, self._disk = path, options, sources, disk
        self._files = GrowingFiles(disk)
        self._config = TopicConfig(None, options.config)
        self._topics: dict[str, TopicPlace] = {}
        self._open: dict[tuple[str, int], NewDirectory] = {}

    def topic(self, name: str) -> TopicPlace | None:
        """Return a topic, which is made when it is first named; None for a name that a broker would refuse."""
        if not topic_is_legal(name):
            return None
        if name not in self._topics:
            if self._options.topic_id is not None and self._topics:
                raise KlogError(f"--topic-id: of {next(iter(self._topics))}, but there is also {name}")
            count = self._options.partitions or self._count(name)
            if count > _MOST_PARTITIONS:
                raise KlogError(
                    f"{name}: {count} partitions; a new topic gets at most {_MOST_PARTITIONS} (--partitions N)"
                )
            topic_id = self._options.topic_id or _new_id()
            config = self._sources.configs.get(name, self._config)
            most = 0 if self._options.partitions else _MOST_PARTITIONS
            self._topics[name] = TopicPlace(name, topic_id, count, config, most=most)
        return self._topics[name]

    def _count(self, name: str) -> int:
        """Return the partition count of a new topic: that of the source, 1 for records of files."""
        counts = self._sources.counts
        # With --topic all partitions of all topics are written into this one.
        return max(counts.values(), default=1) if name == self._options.topic else counts.get(name, 1)

    def open(self, place: TopicPlace, number: int) -> OpenPartition:
        """Return a partition, which is made."""
        directory = os.path.join(self._path, f"{place.name}-{number}")
        target = self._open[place.name, number] = NewDirectory(directory, self._files, self._disk)
        assert place.topic_id is not None
        target.put(FileKind.PARTITION_METADATA.value, write_partition_metadata(place.topic_id))
        return OpenPartition(empty_log(place.settings), target)

    def finish(self, appenders: Iterable[tuple[TopicPlace, int, Appender]]) -> None:
        """Write the files of the log dir itself, and partitions without records; return when all is on the disk."""
        ends = {(place.name, number): appender.end for place, number, appender in appenders}
        for place in self._topics.values():
            for number in range(place.count):
                if (place.name, number) not in ends:
                    appender = Appender(*self.open(place, number))
                    appender.close()
                    ends[place.name, number] = appender.end
        self._files.close_all()
        entries = [OffsetEntry(topic, number, end) for (topic, number), end in sorted(ends.items())]
        content = {
            FileKind.META_PROPERTIES: write_meta_properties(_new_id(), self._options.now_ms),
            FileKind.RECOVERY_POINTS: write_offsets(entries),
            FileKind.HIGH_WATERMARKS: write_offsets(entries),
        }
        written = [path for target in self._open.values() for path in target.written]
        for kind, data in content.items():
            written.append(write_file(os.path.join(self._path, kind.value), [data], self._disk))
        self._disk.sync([*written, self._path])

    def abandon(self) -> None:
        """Close all files."""
        self._files.close_all()


def _new_id() -> str:
    """Return a random id; none begins with a dash, as options do.  Kafka: Uuid.randomUuid."""
    while True:
        text = uuid_text(os.urandom(16))
        if not text.startswith("-"):
            return text


@contextmanager
def new_log_dir(path: str, options: WriteOptions, sources: SourceTopics, disk: Disk) -> Iterator[NewLogDir]:
    """Yield a destination that appears at *path* when the block ends; nothing of it remains if the block raises.

    Raises UsageError, LockedError if another klog writes there.
    """
    with whole_directory(path, disk, "nothing was written; make room, or name another place with --to") as building:
        found = NewLogDir(building, options, sources, disk)
        try:
            yield found
        finally:
            found.abandon()
