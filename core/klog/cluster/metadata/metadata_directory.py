"""The place of a metadata log: in a log dir, or in a directory of its own that was copied."""

from __future__ import annotations

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from klog.base.errors import KlogError, UsageError, near_misses
from klog.cluster.metadata.metadata_loader import ClusterMetadata, LogPoint, read_log, read_metadata, snapshot_files
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.data_dir.replicas import epoch_at, log_end
from klog.data_dir.root_files import read_small
from klog.data_dir.selection import KafkaFile, open_path
from klog.formats.checkpoint import Malformed
from klog.formats.names import CLUSTER_METADATA, FileKind, file_name, parse_partition
from klog.formats.properties import QuorumState, read_quorum_state

METADATA_TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
"""The topic id of the metadata log in every cluster.  Kafka: Uuid.METADATA_TOPIC_ID."""


class MetadataDirectory(NamedTuple):
    """A metadata log: its directory, and the log dir around it, None if it is only a copy."""

    partition: Partition
    log_dir: LogDir | None

    def read(self, at: int | None = None) -> ClusterMetadata:
        """Return the cluster, as of offset *at* if one is given.

        Raises MetadataOffsetError if the log does not reach that, KlogError if it begins behind the end of its
        snapshot, or is empty: the state is then unknown.
        """
        self.check_content()
        found = None if self.log_dir is None else read_metadata(self.log_dir, at)
        if found is None:
            found = read_log(self.partition, at)
        if found.gap:
            raise KlogError(self._problem(f"records are missing: {found.damage[0]}"))
        return found

    def check_content(self) -> None:
        """Raise KlogError if there is neither a log nor a snapshot, UnreadableError if that cannot be known."""
        self.partition.check_listed()
        if not self.partition.segments and not snapshot_files(self.partition):
            raise KlogError(self._problem("neither a log nor a snapshot"))

    def _problem(self, what: str) -> str:
        expected = f"expected {file_name(0, FileKind.LOG)}, or a snapshot (.checkpoint) and the log from its end on"
        return f"{self.partition.path}: {what}; {expected}"

    @property
    def end(self) -> LogPoint:
        """Return the end of the log, or of its newest snapshot if that ends later.  Raises UnreadableError."""
        offset = log_end(self.partition)
        return max([LogPoint(offset, epoch_at(self.partition, offset - 1)), *self.snapshots[:1]])

    @property
    def snapshots(self) -> list[LogPoint]:
        """Return the ends of the snapshots, the newest first, complete or not."""
        return [LogPoint(file.offset or 0, file.epoch or 0) for file in snapshot_files(self.partition)]

    @property
    def quorum_state(self) -> QuorumState | Malformed | None:
        """The content of `quorum-state`, None without one."""
        name = FileKind.QUORUM_STATE.value
        if all(file.name != name for file in self.partition.files):
            return None
        content = read_small(self.partition.file(name))
        return content if isinstance(content, Malformed) else read_quorum_state(content)


def open_metadata(path: str) -> MetadataDirectory:
    """Return the metadata log in *path*: a log dir, `__cluster_metadata-0`, or a copy of that.

    Raises UsageError for a path of another kind, UnreadableError; KlogError for a log dir without a metadata log.
    """
    opened = open_path(path)
    if isinstance(opened, LogDir):
        if opened.metadata_log is None:
            expected = os.path.join(path, f"{CLUSTER_METADATA}-0", file_name(0, FileKind.LOG))
            where = "KRaft nodes have it in metadata.log.dir; ZooKeeper-era brokers have none"
            raise KlogError(f"{path}: no metadata log here: expected {expected}; {where}")
        return MetadataDirectory(opened.metadata_log, opened)
    if isinstance(opened, KafkaFile):
        raise UsageError(f"{path}: a file; name the directory of the metadata log, or its log dir")
    if opened.directory == f"{CLUSTER_METADATA}-0":
        return MetadataDirectory(opened, LogDir(opened.log_dir))
    kinds = {file.kind for file in opened.files}
    if opened.topic_id == METADATA_TOPIC_ID or kinds & {FileKind.KRAFT_SNAPSHOT, FileKind.QUORUM_STATE}:
        return MetadataDirectory(Partition(path, name=parse_partition(f"{CLUSTER_METADATA}-0")), None)
    raise UsageError(f"{path}: not a metadata log; expected {CLUSTER_METADATA}-0, a copy of it, or a log dir with it")


def match_topics(known: Sequence[str], globs: Sequence[str]) -> list[str]:
    """Return those of the topics *known* that one of *globs* matches; without *globs* all.

    Raises UsageError for one that matches nothing, with near misses.
    """
    for glob in globs:
        if not any(fnmatchcase(topic, glob) for topic in known):
            raise UsageError(f"no topic {glob}{near_misses(glob, known)}")
    return [topic for topic in known if not globs or any(fnmatchcase(topic, glob) for glob in globs)]
