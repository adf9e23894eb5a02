"""A log dir, what `log.dirs` names: its partitions, its checkpoints, whose it is, how it was left, who holds it.

    log_dir = LogDir("data")
    print(log_dir.cluster_id, log_dir.lock.held, len(log_dir.partitions))

Everything is read when it is first asked for; nothing is created, locked or kept open.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

from klog.data_dir.partition import Partition, RootCheckpoints, read_small, scan_directory
from klog.errors import UnreadableError, UsageError
from klog.formats.checkpoint import Malformed
from klog.formats.names import (
    CLUSTER_METADATA,
    REMOTE_INDEX_CACHE,
    ROOT_KINDS,
    SEGMENT_KINDS,
    FileKind,
    FileName,
    PartitionName,
    Stage,
    parse_file,
    parse_partition,
)
from klog.formats.properties import CleanShutdown, MetaProperties, read_clean_shutdown, read_meta_properties


class Lock(NamedTuple):
    """Whether another process holds a log dir's `.lock`, as a broker does from start to stop.

    *held*: None when that cannot be known; then *reason* says why.  *pid* is the holder's where the system tells, 0
    when it lives in another container.
    """

    held: bool | None
    pid: int | None = None
    reason: str | None = None

    @property
    def is_klog(self) -> bool:
        """Whether the holder is another klog, as far as the system tells: a Python that runs klog."""
        try:
            with open(f"/proc/{self.pid}/cmdline", "rb") as file:
                program, *arguments = os.fsdecode(file.read(1 << 16)).split("\0")
        except OSError:
            return False
        for number, argument in enumerate(arguments[:8]):
            before = arguments[number - 1] if number else ""
            is_script = before != "-c" and os.path.basename(argument) == "klog"
            if is_script or (before == "-m" and argument.startswith("klog")) or (before == "-c" and "klog" in argument):
                return os.path.basename(program).startswith("python")
        return os.path.basename(program).startswith("klog")

    def of(self, log_dir: str, *, with_pid: bool = True) -> str:
        """Return who holds *log_dir*, in words."""
        who = f" (pid {self.pid})" if self.pid and with_pid else ""
        return f"another klog is changing {log_dir}{who}" if self.is_klog else f"a broker is running on {log_dir}{who}"


class LogDir:
    """A log dir.  Partitions come by topic and number; one that is there twice (moving, deleted) comes twice."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.checkpoints = RootCheckpoints(path)

    @cached_property
    def _listing(self) -> _Listing:
        return _list(self.path)

    @cached_property
    def partitions(self) -> tuple[Partition, ...]:
        """Every partition directory, whatever its state; `__cluster_metadata-0` as well.

        Raises UnreadableError when the log dir cannot be listed.
        """
        names = sorted(self._listing.partitions, key=lambda name: (name.topic, name.partition, name.name))
        within = os.path.join(self.path, "")
        return tuple(Partition(within + name.name, self.checkpoints, name) for name in names)

    def partition(self, directory: str) -> Partition:
        """Return the partition in *directory*, `orders-3`.  Raises UsageError when there is none, with near misses."""
        found = next((partition for partition in self.partitions if partition.directory == directory), None)
        if found is None:
            near = near_misses(directory, (partition.directory for partition in self.partitions))
            raise UsageError(f"{self.path}: no partition {directory}{near}")
        return found

    @property
    def metadata_log(self) -> Partition | None:
        """The KRaft metadata log, which knows topics, settings and feature levels; None when it is not here."""
        return next((partition for partition in self.partitions if partition.topic == CLUSTER_METADATA), None)

    @property
    def foreign_directories(self) -> tuple[str, ...]:
        """Directories whose names are no partition's: a broker does not start over them."""
        return self._listing.foreign

    @property
    def files(self) -> tuple[FileName, ...]:
        """The regular files of the log dir itself, by name."""
        return self._listing.files

    @property
    def others(self) -> tuple[str, ...]:
        """What is neither a regular file nor a directory, by name."""
        return self._listing.others

    @property
    def leftovers(self) -> tuple[FileName, ...]:
        """Files of interrupted writes: `….tmp`."""
        return tuple(file for file in self.files if file.stage is not Stage.IN_USE)

    def _has(self, kind: FileKind) -> bool:
        if "_listing" not in self.__dict__ and os.access(self.path, os.R_OK | os.X_OK):
            # of a dir of thousands a single file may be all that is asked for
            return os.path.isfile(os.path.join(self.path, kind.value))
        return any(file.name == kind.value for file in self.files)

    # whose it is

    @cached_property
    def meta(self) -> MetaProperties | Malformed | None:
        """The content of `meta.properties`; None when there is none: the directory was never formatted."""
        if not self._has(FileKind.META_PROPERTIES):
            return None
        content = read_small(os.path.join(self.path, FileKind.META_PROPERTIES.value))
        return content if isinstance(content, Malformed) else read_meta_properties(content)

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id; None when `meta.properties` does not give it."""
        return self.meta.cluster_id if isinstance(self.meta, MetaProperties) else None

    @property
    def node_id(self) -> int | None:
        """The broker's or node's id; None when `meta.properties` does not give it."""
        return self.meta.node_id if isinstance(self.meta, MetaProperties) else None

    @property
    def directory_id(self) -> str | None:
        """The directory's own id, from 3.7 on; None when `meta.properties` does not give it."""
        return self.meta.directory_id if isinstance(self.meta, MetaProperties) else None

    @cached_property
    def oldest_version(self) -> str | None:
        """The oldest Kafka that writes what is here, as far as names and small files tell; None when they tell nothing.

        The metadata version itself stands in the metadata log.
        """
        shutdown = self.clean_shutdown
        signs = (
            ("4.0", any(partition.topic == "__share_group_state" for partition in self.partitions)),
            ("3.7", self.directory_id is not None or (shutdown is not None and shutdown.broker_epoch is not None)),
            ("3.3", self._has(FileKind.BOOTSTRAP)),
            ("2.8", any(partition.topic_id for partition in self.partitions[:1])),
            ("0.11", any(partition.epochs is not None for partition in self.partitions[:1])),
        )
        return next((version for version, seen in signs if seen), None)

    @property
    def is_kraft(self) -> bool | None:
        """Whether a KRaft node formatted the directory; None when nobody did."""
        return self.meta.version == 1 if isinstance(self.meta, MetaProperties) else None

    # how it was left, who holds it

    @cached_property
    def clean_shutdown(self) -> CleanShutdown | None:
        """The marker of a clean stop; None when there is none: a broker runs here, or it was not stopped cleanly."""
        if not self._has(FileKind.CLEAN_SHUTDOWN):
            return None
        content = read_small(os.path.join(self.path, FileKind.CLEAN_SHUTDOWN.value))
        return CleanShutdown(None) if isinstance(content, Malformed) else read_clean_shutdown(content)

    @cached_property
    def lock(self) -> Lock:
        """Whether a broker, or another klog that repairs, holds the log dir."""
        return lock_state(os.path.join(self.path, FileKind.LOCK.value))


class _Listing(NamedTuple):
    partitions: tuple[PartitionName, ...]
    foreign: tuple[str, ...]
    files: tuple[FileName, ...]
    others: tuple[str, ...]


def _list(path: str) -> _Listing:
    """List a log dir.  Raises UnreadableError."""
    partitions: list[PartitionName] = []
    foreign: list[str] = []
    files: list[FileName] = []
    others: list[str] = []
    try:
        with scan_directory(path) as entries:
            for entry in entries:
                if entry.is_dir():
                    name = parse_partition(entry.name)
                    if name is not None:
                        partitions.append(name)
                    elif entry.name != REMOTE_INDEX_CACHE:
                        foreign.append(entry.name)
                elif entry.is_file():
                    files.append(parse_file(entry.name))
                else:
                    others.append(entry.name)
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be listed: {error.strerror}") from error
    return _Listing(tuple(partitions), tuple(sorted(foreign)), tuple(sorted(files)), tuple(sorted(others)))


HELD_HERE: set[tuple[int, int]] = set()
"""The lock files, by device and inode, that this process holds itself: `klog.plan.locks` says so.

To open one and close it again would drop the lock.
"""


def lock_state(path: str) -> Lock:
    """Return whether another process holds a POSIX lock on the file at *path*, as a JVM's FileLock is one."""
    try:
        if HELD_HERE:
            status = os.stat(path)
            if (status.st_dev, status.st_ino) in HELD_HERE:
                return Lock(False)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except FileNotFoundError:
        return Lock(False)
    except OSError as error:
        return Lock(None, reason=f"{path}: {error.strerror}")
    try:
        return lock_holder(descriptor)
    except OSError as error:
        return Lock(None, reason=f"{path}: {error.strerror}")
    finally:
        os.close(descriptor)


def lock_holder(descriptor: int) -> Lock:
    """Return whether another process holds a POSIX lock on an open file.  Raises OSError."""
    import fcntl
    import struct

    # struct flock: Linux has type, whence, start, length, pid; the BSDs and macOS start, length, pid, type, whence.
    if sys.platform == "linux" and sys.maxsize > 2**32:
        layout, order = "hhqqi4x", (0, 4)
    elif sys.platform == "darwin":
        layout, order = "qqihh", (3, 2)
    else:
        return Lock(None, reason=f"locks are not looked at on {sys.platform}")
    question = [0] * 5
    question[order[0]] = fcntl.F_WRLCK
    answer = struct.unpack(layout, fcntl.fcntl(descriptor, fcntl.F_GETLK, struct.pack(layout, *question)))
    held = answer[order[0]] != fcntl.F_UNLCK
    return Lock(held, answer[order[1]] if held else None)


# what a path names


class KafkaFile(NamedTuple):
    """A single file that a path names."""

    path: str
    name: FileName


def open_path(path: str) -> LogDir | Partition | KafkaFile:
    """Return what *path* names, by its content and its name; nothing is read yet but the directory's list.

    Raises UsageError when it is none of the three, UnreadableError when that cannot be seen.
    """
    try:
        is_directory, is_file = os.path.isdir(path), os.path.isfile(path)
        if not is_directory:
            os.stat(path)
    except OSError as error:
        if isinstance(error, PermissionError):
            raise UnreadableError(f"{path}: {error.strerror}") from error
        raise UsageError(f"{path}: {error.strerror}; {EXPECTED}") from error
    if is_file:
        name = parse_file(os.path.basename(os.path.abspath(path)))
        if name.kind is FileKind.OTHER:
            raise UsageError(f"{path}: this is no name of a Kafka file; {EXPECTED}")
        return KafkaFile(path, name)
    if not is_directory:
        raise UsageError(f"{path}: neither a file nor a directory; {EXPECTED}")
    return _open_directory(path)


EXPECTED = (
    "expected a log dir (what log.dirs names), a partition directory (orders-3) or a Kafka file "
    "(00000000000000000000.log, .index, .timeindex, .txnindex, .snapshot, a checkpoint, meta.properties)"
)


def _open_directory(path: str) -> LogDir | Partition:
    # Log dirs are often called kafka-logs-1, as if they were partitions: what they hold tells more than the name.
    partition = Partition(path)
    if partition.unreadable is not None:
        raise UnreadableError(f"{path}: {partition.unreadable}")
    kinds = {file.kind for file in partition.files}
    if kinds & ROOT_KINDS:
        return LogDir(path)
    # Many programs call their files .log, but with an offset for a name only Kafka.
    numbered = {file.kind for file in partition.files if file.offset is not None}
    if numbered & {*SEGMENT_KINDS, FileKind.SNAPSHOT} or kinds & {FileKind.LEADER_EPOCHS, FileKind.PARTITION_METADATA}:
        return partition
    log_dir = LogDir(path)
    if log_dir.partitions:
        return log_dir
    beside = Partition(os.path.dirname(os.path.abspath(path)))
    if partition.name is not None and ROOT_KINDS & {file.kind for file in beside.files}:
        return partition
    raise UsageError(f"{path}: no Kafka data in this directory; {EXPECTED}")


def select(partitions: Sequence[Partition], topics: Sequence[str], numbers: Sequence[int]) -> list[Partition]:
    """Return the partitions of *topics* (names or globs; none: all) with one of *numbers* (none: all).

    Raises UsageError for a topic or number that nothing matches, with near misses.
    """
    from fnmatch import fnmatchcase

    found = [
        partition
        for partition in partitions
        if not topics or (partition.topic is not None and any(fnmatchcase(partition.topic, glob) for glob in topics))
    ]
    known = {partition.topic for partition in partitions if partition.topic is not None}
    for glob in topics:
        if not any(fnmatchcase(topic, glob) for topic in known):
            raise UsageError(f"no topic {glob}{near_misses(glob, known)}")
    for number in numbers:
        if all(partition.number != number for partition in found):
            raise UsageError(f"no partition {number} of {', '.join(topics) or 'any topic'}")
    return [partition for partition in found if not numbers or partition.number in numbers]


def near_misses(name: str, known: Iterable[str]) -> str:
    """Return what to append to a message about an unknown *name*: the nearest of those that are known."""
    from difflib import get_close_matches

    near = get_close_matches(name, sorted(set(known)), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""
