"""The sources of an adoption: partition directories in any state, or those of a log dir; only read."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from functools import cached_property

from klog.base.errors import KlogError, UnreadableError, UsageError, are, offsets_text
from klog.base.overlays import overlay_at, overlay_file
from klog.base.read_only import ReadOnlyFile, normalized
from klog.cluster.metadata.metadata_loader import ClusterMetadata
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.data_dir.partition_identity import check_one_topic
from klog.data_dir.root_files import RootFiles
from klog.data_dir.selection import KafkaFile, PartitionChoice, open_path, select
from klog.formats.names import CLUSTER_METADATA, PartitionName, PartitionState, parse_partition
from klog.partition.tiered.tiered_log import TieredLog
from klog.partition.verify.findings import LogDirFacts
from klog.partition.verify.verify import facts_around

Key = tuple[str, int]
_Stamp = tuple[str, int, int]


class AdoptSource:
    """A partition directory to adopt, as partition *number* of *topic*."""

    def __init__(self, partition: Partition, key: Key) -> None:
        self.partition = _as_current(partition, key)
        self.topic, self.number = key
        self._stamps = self._look()

    @property
    def path(self) -> str:
        """The path, as it was given."""
        return self.partition.path

    @cached_property
    def log_dir(self) -> LogDir:
        """The directory around it, which need be no log dir."""
        return LogDir(self.partition.log_dir)

    @cached_property
    def cluster_id(self) -> str | None:
        """The cluster it was in; None if unknown."""
        try:
            return self.log_dir.cluster_id
        except UnreadableError:
            return None

    @cached_property
    def around(self) -> LogDirFacts:
        """The facts about its log dir that checks need; as if that was stopped cleanly, as the copy will be."""
        return facts_around(self.partition)._replace(clean=True)

    @cached_property
    def metadata(self) -> ClusterMetadata | None:
        """The cluster by the metadata log beside it; None without one."""
        return self.around.settings.metadata

    @property
    def is_in_use(self) -> bool:
        """Whether a broker has the log dir around it."""
        return self.around.live

    @property
    def is_tiered(self) -> bool:
        """Whether its beginning is in remote storage: its log start is below its first segment.

        Kafka: LogManager.checkpointLogStartOffsetsInDir, which keeps such a line for logs with remote storage alone.
        """
        if overlay_at(self.path) is not None:
            return False
        first = self.partition.segments[0].base_offset if self.partition.segments else 0
        checkpointed = self.partition.log_start_checkpoint
        below = checkpointed is not None and checkpointed < first
        return below or self.around.settings.value(self.partition.topic, "remote.storage.enable").value is True

    @property
    def remote_check(self) -> list[str]:
        """The command that checks its segments in remote storage."""
        from klog.partition.tiered.mounts import tier_words

        return ["klog", "remote", "verify", self.log_dir.path, *tier_words()]

    def remote_fault(self, log: TieredLog) -> str | None:
        """Return the reason why not all of the segments in remote storage can be adopted; None if they can.

        *log*: the partition over two tiers.
        """
        for first, last in log.holes():
            lost = log.lost_entries_text(first, last)
            return lost or f"{offsets_text(first, last)} {are(first, last)} in neither tier"
        for file in self.partition.files:
            if overlay_file(self.partition.file(file.name)) is None:
                continue
            try:
                with ReadOnlyFile(self.partition.file(file.name)) as found:
                    if found.missing_bytes:
                        return f"{found.path}: the metadata have {found.missing_bytes} more bytes"
            except KlogError as error:
                return str(error)
        return None

    def _look(self) -> tuple[_Stamp, ...]:
        found = []
        for file in self.partition.files:
            try:
                status = os.stat(self.partition.file(file.name))
            except OSError:
                status = None
            if status is not None and stat.S_ISREG(status.st_mode):
                found.append((file.name, status.st_size, status.st_mtime_ns))
        return tuple(found)

    @property
    def files(self) -> list[str]:
        """The absolute paths of its files."""
        return [os.path.abspath(self.partition.file(name)) for name, _, _ in self._stamps]

    def check_unchanged(self) -> None:
        """Raise KlogError if a file has changed since it was first looked at."""
        other = AdoptSource(Partition(self.path), (self.topic, self.number))
        changed = {*self._stamps} ^ {*other._stamps}
        if changed:
            name = min(changed)[0]
            raise KlogError(f"{self.partition.file(name)}: it has changed while it was read; run this again")


def _as_current(partition: Partition, key: Key) -> Partition:
    """Return a partition as if it was in use, to check all of it.

    The log dir's checkpoints do not apply to one that is set aside: they belong to the one that is in use.
    """
    name = partition.name
    is_aside = name is None or name.state in (PartitionState.DELETE, PartitionState.STRAY)
    checkpoints = RootFiles(partition.path) if is_aside else partition.checkpoints
    topic, number = key if name is None else (name.topic, name.partition)
    current = PartitionName(partition.directory, topic, number, PartitionState.CURRENT, None, True)
    return Partition(partition.path, checkpoints, current)


def open_sources(
    paths: Sequence[str],
    topics: Sequence[str],
    numbers: Sequence[PartitionChoice],
    name: str | None,
    into: Sequence[str],
) -> list[AdoptSource]:
    """Return the sources at *paths*, narrowed to *topics* and *numbers* if a path is a log dir.

    *name*: the target partition of a lone source.  *into*: the log dirs of the target broker, in which only directories
    set aside are sources, unless they are named.  Raises UsageError, UnreadableError; IdentityError if log dirs have
    partitions of two topics of one name in use.
    """
    homes = {os.path.realpath(path) for path in into}
    found: dict[str, AdoptSource] = {}
    log_dirs: list[Partition] = []
    for path in map(normalized, paths):
        opened = open_path(path)
        if isinstance(opened, KafkaFile):
            raise UsageError(f"{path}: a file; name its partition directory or its log dir")
        if isinstance(opened, LogDir):
            is_home = os.path.realpath(path) in homes
            log_dirs += [one for one in opened.partitions if _is_meant(one, is_home)]
        else:
            found.setdefault(os.path.realpath(path), AdoptSource(opened, _key(opened, name)))
    chosen = select(log_dirs, topics, numbers) if topics or numbers else log_dirs
    in_use = (one for one in chosen if one.state is PartitionState.CURRENT)
    check_one_topic(in_use, "name the partition directories of one of them")
    for one in chosen:
        found.setdefault(os.path.realpath(one.path), AdoptSource(one, _key(one, name)))
    if name is not None and len(found) != 1:
        raise UsageError(f"--as {name}: names one partition, and there are {len(found)} sources")
    return list(found.values())


def _is_meant(partition: Partition, is_home: bool) -> bool:
    if partition.topic == CLUSTER_METADATA:
        return False
    return not is_home or partition.state in (PartitionState.DELETE, PartitionState.STRAY)


def _key(partition: Partition, name: str | None) -> Key:
    if name is not None:
        parsed = parse_partition(name)
        if parsed is None or parsed.state is not PartitionState.CURRENT or not parsed.canonical:
            raise UsageError(f"--as {name}: expected a topic and a partition number, such as orders-3")
        return parsed.topic, parsed.partition
    if partition.topic is None or partition.number is None:
        raise UsageError(f"{partition.path}: its name is not a partition's; --as TOPIC-N gives it one")
    return partition.topic, partition.number
