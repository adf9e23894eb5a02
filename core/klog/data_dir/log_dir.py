"""A log dir, one directory of `log.dirs`: its partitions, checkpoints, owner, last shutdown and lock.

    log_dir = LogDir("data")
    print(log_dir.cluster_id, log_dir.lock.held, len(log_dir.partitions))

Everything is read when it is first needed; nothing is created, locked or kept open.
"""

from __future__ import annotations

import os
from functools import cached_property

from klog.base.errors import UnreadableError, UsageError, near_misses
from klog.data_dir.listing import BrokerDirectory, BrokerFiles, list_broker_files
from klog.data_dir.lock_state import Lock, lock_state
from klog.data_dir.partition import Partition
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
