"""The metadata logs on disks, the base among them, and the plan that gives all of them the base and batches behind it.

Kafka appends to a log of any length without a comparison with the others at that offset: every log is therefore first
made equal to the base, and then receives the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from klog.base.errors import KlogError, UsageError
from klog.change.partition_plan.desired_files import rebuilt
from klog.change.plan.draft import Draft
from klog.change.plan.staging import Staging
from klog.cluster.leader_epoch_cache import LeaderEpochCache
from klog.cluster.metadata.metadata_directory import MetadataDirectory
from klog.cluster.metadata.metadata_loader import snapshot_files
from klog.commands.replicas.catch_up import CatchUp, CatchUpPlan, CatchUpSource, CatchUpTarget
from klog.commands.replicas.copy_state import CopyState
from klog.commands.replicas.disks import BrokerCopy, BrokerDisk
from klog.commands.replicas.metadata_changes import NewBatches
from klog.commands.replicas.source_log import copy_file, scratch_directory
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.partition import Partition
from klog.formats.checkpoint import EpochEntry, Malformed, write_epochs
from klog.formats.damage import Damage
from klog.formats.names import CLUSTER_METADATA, FileKind, FileName, Stage, file_name
from klog.kernel import IndexBuilder
from klog.log.segment import Segment
from klog.partition import truncate
from klog.partition.start.kept_log import KeptLog
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
            other = found.setdefault(disk.node, _metadata_copy(disk, partition))
            if other.partition is not partition:
                both = f"{other.partition.path} and {partition.path}"
                raise KlogError(f"node {disk.node} has the metadata log twice: {both}")
    return list(found.values())


def _metadata_copy(disk: BrokerDisk, partition: Partition) -> MetadataCopy:
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
                    f"{run.place}: {run.detail}; klog does not build on a damaged log (--base chooses another, or the"
                    " part of this one that its node will keep)"
                )
            if builder.walk(run.window, run.first, run.end) < run.end:
                raise KlogError(f"{path}: batches are not in order; klog does not build on a damaged log")
        seen += builder.epochs
        end, size = max(builder.last_offset + 1, files.base_offset), builder.size
        expected, last = end, files.base_offset
        if is_over:
            break
    entries = rebuilt(copy.partition.epochs, list(seen), end)
    return IntactLog(end, size, tuple(entries), last)


DIRECTORY = f"{CLUSTER_METADATA}-0"
_COPIED = (FileKind.LOG, FileKind.KRAFT_SNAPSHOT, FileKind.PARTITION_METADATA)


@contextmanager
def future_log(base: MetadataCopy, intact: IntactLog, new: NewBatches, disk: Disk) -> Iterator[Partition]:
    """Yield the future log of all disks, in a directory of its own, which is deleted afterwards.

    Raises UnreadableError, OSError.
    """
    last, behind = (file_name(offset, FileKind.LOG) for offset in (intact.last, intact.end))
    with scratch_directory(DIRECTORY, disk) as folder:
        for file in base.partition.files:
            is_over = file.kind is FileKind.LOG and (file.offset or 0) > intact.last
            if file.stage is Stage.IN_USE and file.kind in _COPIED and file.name != behind and not is_over:
                source, target = base.partition.file(file.name), os.path.join(folder, file.name)
                copy_file(disk, source, target, size=intact.size if file.name == last else None)
        epochs = [*intact.epochs, EpochEntry(new.batches[0].epoch, intact.end)]
        for name, content in ((behind, new.content), (FileKind.LEADER_EPOCHS.value, write_epochs(epochs))):
            with disk.closing(disk.create(os.path.join(folder, name))) as created:
                disk.write(created, content)
                disk.set_metadata(created, 0o600, os.geteuid(), os.getegid(), new.now_ms * 1_000_000)
        yield Partition(folder)


class LogChange(NamedTuple):
    """The change of one disk's log: *extended*, *cut*: the number of offsets until it equals the base."""

    change: CatchUp
    number: int
    extended: int
    cut: int


class LogPlan:
    """Drafts the changes of the disks that are written.

    *disks* and *stagings* have the same order; their positions are the numbers of the log dirs.  *is_base_chosen*: the
    user has chosen the base between two logs that are equally far ahead.
    """

    def __init__(
        self, disks: Sequence[BrokerDisk], stagings: Sequence[Staging], now_ms: int, is_base_chosen: bool
    ) -> None:
        self._disks, self._stagings, self._now_ms = disks, stagings, now_ms
        self._is_base_chosen = is_base_chosen
        self.drafts: list[Draft] = []
        self.changes: list[LogChange] = []

    def draft(self, number: int) -> Draft:
        """Return a draft for a log dir, by its number."""
        return Draft(self._disks[number].log_dir.path, number, self._stagings[number])

    def write(
        self, number: int, copy: MetadataCopy | None, base: MetadataCopy, intact: IntactLog, log: Partition
    ) -> None:
        """Give a log dir the log *log*, which is *base* and more; *copy*: its present one.

        Raises KlogError for one that would be cut below its newest snapshot, UsageError for one that is as long as the
        base, with another history.
        """
        disk = self._disks[number]
        source = CatchUpSource(CLUSTER_METADATA, 0, _state(base.disk, log))
        state = None if copy is None else _state(disk, copy.partition)
        partition = copy.partition if copy is not None else Partition(os.path.join(disk.log_dir.path, DIRECTORY))
        end = copy.log_end if copy is not None else 0
        needs_snapshot = base.log_start > end
        options = truncate.TruncateOptions(self._now_ms, self._now_ms)
        target = CatchUpTarget(disk.node, partition, state)
        plan = CatchUpPlan(source, target, options, copy.log_start if copy is not None and needs_snapshot else None)
        draft = self.draft(number)
        if needs_snapshot:
            _put_snapshots(draft, log, base.log_start)
        change = plan.draft(draft)
        self.drafts.append(draft)
        if copy is not None and copy.rank == base.rank and change.cut_to < end and not self._is_base_chosen:
            raise UsageError(
                f"the logs of nodes {base.node} and {copy.node} end at the same offset and differ from offset"
                f" {change.cut_to} on: choose one with --base"
            )
        if copy is not None and copy.snapshot is not None and change.cut_to < (copy.snapshot.offset or 0):
            raise KlogError(
                f"{copy.partition.path}: it diverges from the base at offset {change.cut_to}, below its snapshot"
                f" {copy.snapshot.name}; klog does not truncate it there: this disk can only be left out"
                f" (--without {disk.node})"
            )
        kept = min(change.cut_to, end, intact.end)
        self.changes.append(LogChange(change, number, intact.end - kept, end - kept))

    def rely_on(self, number: int, copy: MetadataCopy) -> None:
        """Make the plan invalid if a log on which it is based changes."""
        draft = self.draft(number)
        for file in copy.partition.files:
            if file.kind in (FileKind.LOG, FileKind.LEADER_EPOCHS, FileKind.QUORUM_STATE):
                draft.rely_on(f"{copy.partition.directory}/{file.name}")
        self.drafts.append(draft)


def _put_snapshots(draft: Draft, log: Partition, log_start: int) -> None:
    """Put the snapshots of the state before the start of the log."""
    for file in log.files:
        if file.kind is FileKind.KRAFT_SNAPSHOT and (file.offset or 0) >= log_start:
            path = log.file(file.name)
            with open(path, "rb") as content:
                draft.put(f"{DIRECTORY}/{file.name}", [content.read()], modified_ns=os.stat(path).st_mtime_ns)


def _state(disk: BrokerDisk, partition: Partition) -> CopyState:
    bounds = metadata_bounds(partition)
    cache = LeaderEpochCache(partition.epochs.entries if partition.epochs is not None else ())
    cache.truncate_end(bounds.log_end)
    cache.truncate_start(bounds.log_start)
    return CopyState(
        BrokerCopy(disk, partition), KeptLog(bounds.log_start, bounds.log_end), None, cache, 0, None, {}, {}
    )
