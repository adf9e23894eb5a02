"""Opens the object that a path names, and selects partitions: paths, narrowed by topic and partition number.

    for log_dir, partitions, *_ in PartitionQuery(["data"], topics=["orders-*"]).selections():
        ...

`select_one` returns one partition; `klog.partition.start.replica_choice` chooses the best replicas from several log
dirs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from klog.base.errors import NotKafkaError, UnreadableError, UsageError, near_misses
from klog.base.overlays import overlay_at
from klog.base.read_only import is_directory, normalized
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.formats.names import ROOT_KINDS, SEGMENT_KINDS, FileKind, FileName, parse_file

_NUMBERED_KINDS = {*SEGMENT_KINDS, FileKind.SNAPSHOT, FileKind.KRAFT_SNAPSHOT}


class KafkaFile(NamedTuple):
    """A single file that a path names."""

    path: str
    name: FileName


def open_path(path: str) -> LogDir | Partition | KafkaFile:
    """Return the object at *path*, by its content and its name; only the directory is read.

    Raises UsageError when it is none of the three, NotKafkaError for a directory of another program, UnreadableError
    when it cannot be read.
    """
    try:
        is_folder, is_file = is_directory(path), os.path.isfile(path)
        if not is_folder:
            os.stat(path)
    except OSError as error:
        if isinstance(error, PermissionError):
            raise UnreadableError(f"{path}: {error.strerror}") from error
        raise UsageError(f"{path}: {error.strerror}; {EXPECTED}") from error
    if is_file:
        name = parse_file(os.path.basename(os.path.abspath(path)))
        if name.kind is FileKind.OTHER:
            raise UsageError(f"{path}: not a name of a Kafka file; {EXPECTED}")
        return KafkaFile(path, name)
    if not is_folder:
        raise UsageError(f"{path}: neither a file nor a directory; {EXPECTED}")
    return _open_directory(path)


EXPECTED = (
    "expected a log dir (what log.dirs names), a partition directory (orders-3) or a Kafka file "
    "(00000000000000000000.log, .index, .timeindex, .txnindex, .snapshot, a checkpoint, meta.properties)"
)


def _open_directory(path: str) -> LogDir | Partition:
    # Log dirs are often called kafka-logs-1, as if they were partitions: their content counts, not the name.
    partition = Partition(path)
    partition.check_listed()
    kinds = {file.kind for file in partition.files}
    if kinds & ROOT_KINDS:
        return LogDir(path)
    if _holds_partition_files(partition):
        return partition
    log_dir = LogDir(path)
    if _holds_partitions(log_dir):
        return log_dir
    beside = Partition(os.path.dirname(os.path.abspath(path)))
    if partition.name is not None and ROOT_KINDS & {file.kind for file in beside.files}:
        return partition
    raise NotKafkaError(f"{path} is not a Kafka log dir (no meta.properties, no checkpoints, no partitions)")


def _holds_partition_files(partition: Partition) -> bool:
    """Whether a file is one of a partition: many programs have files called .log, only Kafka has offsets for names."""
    kinds = {file.kind for file in partition.files}
    numbered = {file.kind for file in partition.files if file.offset is not None}
    return bool(numbered & _NUMBERED_KINDS or kinds & {FileKind.LEADER_EPOCHS, FileKind.PARTITION_METADATA})


def _holds_partitions(log_dir: LogDir) -> bool:
    """Whether a directory without files of a log dir has partitions: /etc/dbus-1 has the name of one, and no file.

    An empty partition counts if there is nothing else, and one that cannot be listed is not known to be none.
    """
    found = log_dir.partitions
    if any(_holds_partition_files(one) or one.unreadable is not None for one in found):
        return True
    is_alone = not (log_dir.files or log_dir.foreign_directories)
    return bool(found) and is_alone and all(one.is_empty for one in found)


def _around(path: str) -> str:
    """Return the log dir around a partition directory: the tier, as it was named, if the disk has neither."""
    tier = os.path.dirname(path)
    return tier if overlay_at(tier) is not None else os.path.dirname(os.path.abspath(path))


PartitionChoice = int | tuple[str, int]
"""A partition number of any topic, or a topic and a number."""


class Selection(NamedTuple):
    """A log dir, and which of its partitions are meant; *whole*: all of them, and its own files too.

    *named*: the directories of partitions that a path names, rather than a log dir or a topic.
    """

    log_dir: LogDir
    partitions: Sequence[Partition]
    whole: bool = True
    named: frozenset[str] = frozenset()


class PartitionQuery(NamedTuple):
    """*paths* of log dirs and partition directories, narrowed to *topics* (names or globs) and partition *numbers*."""

    paths: Sequence[str]
    topics: Sequence[str] = ()
    numbers: Sequence[PartitionChoice] = ()

    def selections(self) -> list[Selection]:
        """Return the selected log dirs, each once, with their partitions; everything is looked up again.

        Raises UsageError, UnreadableError.
        """
        log_dirs: dict[str, LogDir] = {}
        named: dict[str, dict[str, None]] = {}
        whole: set[str] = set()
        for path in map(normalized, self.paths):
            opened = open_path(path)
            if isinstance(opened, KafkaFile):
                raise UsageError(f"{path}: a file; name its partition directory or its log dir")
            log_dir = opened if isinstance(opened, LogDir) else LogDir(_around(path))
            place = os.path.realpath(log_dir.path)
            directories = named.setdefault(place, {})
            if isinstance(opened, LogDir):
                log_dirs[place] = opened
                whole.add(place)
            else:
                directories[log_dirs.setdefault(place, log_dir).partition(opened.directory).directory] = None
        found = []
        for place, log_dir in log_dirs.items():
            is_whole = place in whole
            partitions = log_dir.partitions if is_whole else list(map(log_dir.partition, named[place]))
            found.append(Selection(log_dir, partitions, is_whole, frozenset(named[place])))
        return self._narrowed(found)

    def _narrowed(self, selections: list[Selection]) -> list[Selection]:
        if not (self.topics or self.numbers):
            return selections
        every = [partition for one in selections for partition in one.partitions]
        wanted = set(select(every, self.topics, self.numbers))
        narrowed = [
            one._replace(partitions=[part for part in one.partitions if part in wanted], whole=False)
            for one in selections
        ]
        return [one for one in narrowed if one.partitions]


def is_selected(
    topic: str | None, number: int | None, topics: Sequence[str], numbers: Sequence[PartitionChoice]
) -> bool:
    """Whether a partition is one of *topics* (names or globs; none: all) and of *numbers* (none: all)."""
    from fnmatch import fnmatchcase

    if topics and (topic is None or not any(fnmatchcase(topic, glob) for glob in topics)):
        return False
    return not numbers or number in numbers or (topic, number) in numbers


def select(
    partitions: Sequence[Partition], topics: Sequence[str], numbers: Sequence[PartitionChoice]
) -> list[Partition]:
    """Return the partitions of *topics* (names or globs; none: all) with one of *numbers* (none: all).

    Raises UsageError for a topic or number that nothing matches, with near misses.
    """
    known = {partition.topic for partition in partitions if partition.topic is not None}
    for glob in topics:
        if not any(is_selected(topic, None, (glob,), ()) for topic in known):
            raise UsageError(f"no topic {glob}{near_misses(glob, known)}")
    found = [one for one in partitions if is_selected(one.topic, one.number, topics, ())]
    for number in numbers:
        if not any(is_selected(one.topic, one.number, (), (number,)) for one in found):
            if not isinstance(number, int):
                raise UsageError(f"no partition {number[0]}-{number[1]}")
            raise UsageError(f"no partition {number} of {', '.join(topics) or 'any topic'}")
    return [one for one in found if is_selected(one.topic, one.number, (), numbers)]


def partitions_of(opened: Iterable[LogDir | Partition | KafkaFile]) -> list[Partition]:
    """Return the partitions of log dirs, and those that were opened themselves."""
    every: list[Partition] = []
    for one in opened:
        if not isinstance(one, KafkaFile):
            every += one.partitions if isinstance(one, LogDir) else [one]
    return every


def select_one(path: str, topics: Sequence[str] = (), numbers: Sequence[PartitionChoice] = ()) -> Partition | KafkaFile:
    """Return the file at *path*, or its one partition, of a log dir after narrowing.

    Raises UsageError when that is none, or several; UnreadableError.
    """
    opened = open_path(path)
    if isinstance(opened, KafkaFile):
        return opened
    return only(path, select(partitions_of([opened]), topics, numbers))


def only(path: str, partitions: Sequence[Partition]) -> Partition:
    """Return the one partition.  Raises UsageError if *path* means none, or several."""
    if len(partitions) == 1:
        return partitions[0]
    some = ", ".join([*(one.directory for one in partitions[:5]), *["…"][: len(partitions) > 5]])
    listed = f" ({some})" if some else ""
    raise UsageError(f"{path}: {len(partitions)} partitions{listed}; name one, or narrow with --topic and --partition")
