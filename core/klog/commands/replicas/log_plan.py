"""The plan that gives several disks one and the same metadata log: the base, and batches behind it.

Kafka appends to a log of any length without a comparison with the others at that offset: every log is therefore first
made equal to the base, and then receives the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from klog.base.errors import KlogError, UsageError
from klog.change.plan.draft import Draft
from klog.change.plan.staging import Staging
from klog.cluster.leader_epoch_cache import LeaderEpochCache
from klog.commands.replicas.catch_up import CatchUp, CatchUpPlan, CatchUpSource, CatchUpTarget
from klog.commands.replicas.copy_state import CopyState
from klog.commands.replicas.disks import BrokerCopy, BrokerDisk
from klog.commands.replicas.metadata_copies import IntactLog, MetadataCopy
from klog.commands.replicas.new_batches import NewBatches
from klog.data_dir.disk.directory_tree import remove_tree
from klog.data_dir.disk.disk import Disk
from klog.data_dir.partition import Partition
from klog.formats.checkpoint import EpochEntry, write_epochs
from klog.formats.names import CLUSTER_METADATA, FileKind, FileName, Stage, file_name
from klog.partition import truncate
from klog.partition.start.kept_log import KeptLog
from klog.partition.start.metadata_log import metadata_bounds

DIRECTORY = f"{CLUSTER_METADATA}-0"
_COPIED = (FileKind.LOG, FileKind.KRAFT_SNAPSHOT, FileKind.PARTITION_METADATA)


@contextmanager
def future_log(base: MetadataCopy, intact: IntactLog, new: NewBatches, disk: Disk) -> Iterator[Partition]:
    """Yield the future log of all disks, in a directory of its own, which is deleted afterwards.

    Raises UnreadableError, OSError.
    """
    place = disk.private_directory()
    try:
        folder = os.path.join(place, DIRECTORY)
        disk.make_directory(folder)
        last = file_name(intact.last, FileKind.LOG)
        behind = file_name(intact.end, FileKind.LOG)
        for file in base.partition.files:
            is_over = file.kind is FileKind.LOG and (file.offset or 0) > intact.last
            if file.stage is Stage.IN_USE and file.kind in _COPIED and file.name != behind and not is_over:
                _copy(
                    disk,
                    base.partition,
                    file,
                    os.path.join(folder, file.name),
                    intact.size if file.name == last else None,
                )
        epochs = [*intact.epochs, EpochEntry(new.batches[0].epoch, intact.end)]
        for name, content in ((behind, new.content), (FileKind.LEADER_EPOCHS.value, write_epochs(epochs))):
            created = disk.create(os.path.join(folder, name))
            disk.write(created, content)
            disk.set_metadata(created, 0o600, os.geteuid(), os.getegid(), new.now_ms * 1_000_000)
            disk.close(created)
        yield Partition(folder)
    finally:
        remove_tree(place, disk)


def _copy(disk: Disk, partition: Partition, name: FileName, target: str, size: int | None) -> None:
    source = partition.file(name.name)
    status = os.stat(source)
    file = disk.create(target)
    disk.copy(source, 0, status.st_size if size is None else size, file)
    disk.set_metadata(file, 0o600, os.geteuid(), os.getegid(), status.st_mtime_ns)
    disk.close(file)


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
                f"the logs of nodes {base.node} and {copy.node} end alike and differ from offset {change.cut_to} on:"
                " --base says which one counts"
            )
        if copy is not None and copy.snapshot is not None and change.cut_to < (copy.snapshot.offset or 0):
            raise KlogError(
                f"{copy.partition.path}: it parts from the base at offset {change.cut_to}, below its snapshot"
                f" {copy.snapshot.name}; it is not cut there: this disk can only be left out (--without {disk.node})"
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
