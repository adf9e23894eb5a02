"""The metadata logs on disks: the end of each, the one that is the base of a plan, and the content of the base."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from klog.base.errors import KlogError, UsageError
from klog.change.partition_plan.epochs import rebuilt
from klog.cluster.metadata.metadata_directory import MetadataDirectory
from klog.cluster.metadata.metadata_loader import snapshot_files
from klog.commands.replicas.disks import BrokerDisk
from klog.data_dir.partition import Partition
from klog.formats.checkpoint import EpochEntry, Malformed
from klog.formats.damage import Damage
from klog.formats.names import FileKind, FileName
from klog.kernel import IndexBuilder
from klog.log.segment import Segment
from klog.partition.start.metadata_log import metadata_bounds


class MetadataCopy(NamedTuple):
    """The metadata log on a disk, in the state after recovery by its node.

    *gone*: the number of offsets that recovery cuts.  *epoch*: of its last record.  *snapshot*: the newest one, None
    without one.  *latest_epoch*: the greatest one in any file here; `quorum-state` may have one in which nothing was
    written.  *has_rest*: there are bytes behind its last whole batch.
    """

    disk: BrokerDisk
    partition: Partition
    log_start: int
    log_end: int
    epoch: int
    snapshot: FileName | None
    latest_epoch: int
    gone: int = 0
    has_rest: bool = False

    @property
    def node(self) -> int:
        """The node whose disk it is."""
        return self.disk.node

    @property
    def rank(self) -> tuple[int, int]:
        """Orders logs: the greater one is ahead.  Kafka: OffsetAndEpoch."""
        return self.epoch, self.log_end


class IntactLog(NamedTuple):
    """The log that a plan builds on: *size* bytes of the segment that counts last, up to *end*, and the log's *epochs*.

    *last*: that segment's base offset.
    """

    end: int
    size: int
    epochs: tuple[EpochEntry, ...]
    last: int


def metadata_copies(disks: Sequence[BrokerDisk]) -> list[MetadataCopy]:
    """Return the metadata logs on *disks*, in their order.  Raises UnreadableError; KlogError for a node with two."""
    found: dict[int, MetadataCopy] = {}
    for disk in disks:
        partition = disk.log_dir.metadata_log
        if partition is not None and (partition.segments or partition.files):
            other = found.setdefault(disk.node, _copy(disk, partition))
            if other.partition is not partition:
                both = f"{other.partition.path} and {partition.path}"
                raise KlogError(f"node {disk.node} has the metadata log twice: {both}")
    return list(found.values())


def _copy(disk: BrokerDisk, partition: Partition) -> MetadataCopy:
    directory = MetadataDirectory(partition, disk.log_dir)
    bounds = metadata_bounds(partition)
    epoch, state = bounds.end.epoch, directory.quorum_state
    if isinstance(state, Malformed):
        raise KlogError(f"{partition.file(FileKind.QUORUM_STATE.value)}: {state}; its epoch must be known")
    known = (epoch, partition.leader_epoch or 0, state.leader_epoch if state is not None else 0)
    newest = next(iter(snapshot_files(partition)), None)
    end = partition.log_end
    has_rest = bounds.gone > 0 or (end is not None and end.damage is not None)
    return MetadataCopy(
        disk, partition, bounds.log_start, bounds.log_end, epoch, newest, max(known), bounds.gone, has_rest
    )


def choose_base(copies: Sequence[MetadataCopy], node: int | None) -> MetadataCopy:
    """Return the log that is ahead, or that of *node*.  Raises UsageError, KlogError if there is none."""
    if not copies:
        raise KlogError("no disk has a metadata log (__cluster_metadata-0)")
    if node is None:
        return max(copies, key=lambda copy: (*copy.rank, -copy.node))
    chosen = next((copy for copy in copies if copy.node == node), None)
    if chosen is None:
        raise UsageError(f"--base {node}: no disk of node {node} with a metadata log is given")
    return chosen


def unused_epoch(copies: Sequence[MetadataCopy]) -> int:
    """Return an epoch that no leader and no vote has used, as far as these disks show."""
    return 1 + max(copy.latest_epoch for copy in copies)


def intact_log(copy: MetadataCopy, up_to_damage: bool = False) -> IntactLog:
    """Read the whole log.  Raises KlogError for damage; an unfinished last batch is none, and left out.

    *up_to_damage*: read as far as its node has it once it has recovered it, if no snapshot reaches beyond that.
    """
    seen: list[tuple[int, int]] = []
    end, size, expected, last = copy.log_start, 0, copy.log_start, 0
    up_to_damage &= copy.snapshot is None or (copy.snapshot.offset or 0) <= copy.log_end
    segments = copy.partition.segments
    for number, files in enumerate(segments):
        is_last = number + 1 == len(segments)
        builder = IndexBuilder(files.base_offset, 2**31 - 1, latest_epoch=seen[-1][0] if seen else -1)
        path, is_over = copy.partition.file(files.log), False
        if files.base_offset != expected:
            raise KlogError(f"{path}: the segment begins at {files.base_offset}, {expected} was expected")
        for run in Segment(path, bounded=False).runs():
            if isinstance(run, Damage):
                is_over = up_to_damage
                if is_over or (is_last and run.is_unfinished):
                    break
                raise KlogError(
                    f"{run.place}: {run.detail}; nothing is built on a damaged log (--base chooses another, or this one"
                    " as far as its node will have it)"
                )
            if builder.walk(run.window, run.first, run.end) < run.end:
                raise KlogError(f"{path}: batches are not in order; nothing is built on a damaged log")
        seen += builder.epochs
        end, size = max(builder.last_offset + 1, files.base_offset), builder.size
        expected, last = end, files.base_offset
        if is_over:
            break
    entries = rebuilt(copy.partition.epochs, list(seen), end)
    return IntactLog(end, size, tuple(entries), last)
