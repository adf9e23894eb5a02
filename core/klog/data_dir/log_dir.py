"""A log dir, one directory of `log.dirs`: its partitions, checkpoints, owner, last shutdown and lock.

    log_dir = LogDir("data")
    print(log_dir.cluster_id, log_dir.lock.held, len(log_dir.partitions))

Everything is read when it is first needed; nothing is created, locked or kept open.
"""

from __future__ import annotations

import os
import sys
from functools import cached_property
from typing import NamedTuple

from klog.base.errors import UnreadableError, UsageError, near_misses
from klog.base.read_only import inode_of
from klog.data_dir.partition import BrokerDirectory, BrokerFiles, Partition, list_broker_files
from klog.data_dir.root_files import RootFiles, read_small
from klog.formats.checkpoint import Malformed
from klog.formats.names import (
    CLUSTER_METADATA,
    REMOTE_INDEX_CACHE,
    FileKind,
    PartitionName,
    parse_partition,
)
from klog.formats.properties import CleanShutdown, MetaProperties, read_clean_shutdown


class Lock(NamedTuple):
    """Whether another process holds a log dir's `.lock`, as a broker does from start to stop.

    *held*: None when it is unknown; *reason* is then the cause.  *pid* is the holder's if the system reports it, 0 for
    a process in another container.
    """

    held: bool | None
    pid: int | None = None
    reason: str | None = None

    @property
    def is_klog(self) -> bool:
        """Whether the holder is another klog, as far as the system shows: a Python that runs klog."""
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


HELD_HERE: set[tuple[int, int]] = set()
"""The lock files, by device and inode, that this process holds itself; `klog.data_dir.locks` adds and removes them.

It is a property of the process, as the locks are: POSIX drops a lock as soon as its process closes any descriptor of
the file. A caller must first check that a lock is not this process's own.
"""


def lock_state(path: str) -> Lock:
    """Return whether another process holds a POSIX lock on the file at *path*, as a JVM's FileLock is one."""
    try:
        if HELD_HERE and inode_of(os.stat(path)) in HELD_HERE:
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
        return Lock(None, reason=f"locks cannot be checked on {sys.platform}")
    question = [0] * 5
    question[order[0]] = fcntl.F_WRLCK
    answer = struct.unpack(layout, fcntl.fcntl(descriptor, fcntl.F_GETLK, struct.pack(layout, *question)))
    held = answer[order[0]] != fcntl.F_UNLCK
    return Lock(held, answer[order[1]] if held else None)


class LogDir(BrokerDirectory):
    """A log dir.  Partitions are sorted; one with two directories (moving, deleted) occurs twice."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.checkpoints = RootFiles(path)

    @cached_property
    def _listing(self) -> BrokerFiles:
        found = list_broker_files(self.path)
        if found.unreadable is not None:
            raise UnreadableError(f"{self.path}: {found.unreadable}")
        return found

    @cached_property
    def _directories(self) -> dict[str, PartitionName | None]:
        return {name: parse_partition(name) for name in self._listing.directories if name != REMOTE_INDEX_CACHE}

    @cached_property
    def partitions(self) -> tuple[Partition, ...]:
        """Every partition directory, whatever its state; `__cluster_metadata-0` as well.

        Raises UnreadableError when the log dir cannot be listed.
        """
        found = [name for name in self._directories.values() if name is not None]
        names = sorted(found, key=lambda name: (name.topic, name.partition, name.name))
        within = os.path.join(self.path, "")
        return tuple(Partition(within + name.name, self.checkpoints, name) for name in names)

    @cached_property
    def _by_directory(self) -> dict[str, Partition]:
        return {partition.directory: partition for partition in self.partitions}

    def partition(self, directory: str) -> Partition:
        """Return the partition in *directory*, `orders-3`.  Raises UsageError when there is none, with near misses."""
        found = self._by_directory.get(directory)
        if found is None:
            near = near_misses(directory, (partition.directory for partition in self.partitions))
            raise UsageError(f"{self.path}: no partition {directory}{near}")
        return found

    @property
    def metadata_log(self) -> Partition | None:
        """The KRaft metadata log, which contains topics, settings and feature levels; None when it is not here."""
        return next((partition for partition in self.partitions if partition.topic == CLUSTER_METADATA), None)

    @property
    def foreign_directories(self) -> tuple[str, ...]:
        """Directories whose names are no partition's: a broker does not start over them."""
        return tuple(directory for directory, name in self._directories.items() if name is None)

    @property
    def other_directories(self) -> tuple[str, ...]:
        """All directories that are not a partition's: foreign ones, and copies of the indexes of tiered segments."""
        return tuple(name for name in self._listing.directories if self._directories.get(name) is None)

    def _has(self, kind: FileKind) -> bool:
        if "_listing" not in self.__dict__ and os.access(self.path, os.R_OK | os.X_OK):
            # callers may need a single file of a directory of thousands
            return os.path.isfile(os.path.join(self.path, kind.value))
        return any(file.name == kind.value for file in self.files)

    # the owner

    @property
    def meta(self) -> MetaProperties | Malformed | None:
        """The content of `meta.properties`; None when there is none: the directory was never formatted."""
        return self.checkpoints.meta if self._has(FileKind.META_PROPERTIES) else None

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
        """The oldest Kafka that writes such files, according to names and small files; None if they do not show it.

        The metadata version itself is in the metadata log.
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
        """Whether a KRaft node formatted the directory; None if it was never formatted."""
        return self.meta.version == 1 if isinstance(self.meta, MetaProperties) else None

    # its last shutdown, its lock

    @cached_property
    def clean_shutdown(self) -> CleanShutdown | None:
        """The clean-shutdown marker; None when there is none: a broker runs here, or it was not stopped cleanly."""
        if not self._has(FileKind.CLEAN_SHUTDOWN):
            return None
        content = read_small(os.path.join(self.path, FileKind.CLEAN_SHUTDOWN.value))
        return CleanShutdown(None) if isinstance(content, Malformed) else read_clean_shutdown(content)

    @cached_property
    def lock(self) -> Lock:
        """Whether a broker, or another klog that repairs, has the lock of the log dir."""
        return lock_state(os.path.join(self.path, FileKind.LOCK.value))
