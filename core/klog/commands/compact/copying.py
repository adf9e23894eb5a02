"""Writes compacted copies of partitions into a new directory, which a broker can use as a log dir."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from typing import NamedTuple

from klog.base.errors import UsageError
from klog.change.plan.draft import Draft
from klog.change.plan.model import PUT, Action, FileState
from klog.change.plan.staging import Staging
from klog.commands.compact.compaction import CompactionRun, PartitionOutcome
from klog.data_dir.disk.directory_tree import remove_tree, write_file
from klog.data_dir.disk.disk import Disk
from klog.data_dir.log_dir import LogDir
from klog.data_dir.whole_directory import whole_directory
from klog.formats.checkpoint import OffsetEntry, write_offsets
from klog.formats.names import FileKind, Stage

_STAGED = ".klog-staged"


def copy(to: str, make: Callable[[Sequence[Staging]], CompactionRun], log_dirs: int, disk: Disk) -> CompactionRun:
    """Write the partitions that *make* returns, compacted, into *to*, which is new or empty; refused ones are skipped.

    Raises UsageError, KlogError, OSError; nothing then remains of it.
    """
    with whole_directory(
        to, disk, "nothing is left of the copy; make room, or name another place with --to"
    ) as building:
        staged = os.path.join(building, _STAGED)
        cleaning = make([Staging(os.path.join(staged, str(number)), disk) for number in range(log_dirs)])
        _check_names(cleaning.outcomes)
        cleaning.run()
        copier = Copier(building, staged, disk)
        copied = [one for one in cleaning.outcomes if one.sections is not None and one.failed is None]
        for outcome in copied:
            copier.partition(outcome, cleaning.draft_of(outcome))
        copier.checkpoints([checkpointed(outcome) for outcome in copied])
        copier.identity(cleaning.log_dirs)
        remove_tree(staged, disk)
        copier.finish()
    return cleaning


def _check_names(outcomes: Sequence[PartitionOutcome]) -> None:
    seen: dict[str, str] = {}
    for outcome in outcomes:
        partition = outcome.partition
        if outcome.sections is not None and seen.setdefault(partition.directory, partition.path) != partition.path:
            raise UsageError(f"{seen[partition.directory]}, {partition.path}: two copies of one partition; name one")


CHECKPOINTS = (FileKind.RECOVERY_POINTS, FileKind.HIGH_WATERMARKS, FileKind.LOG_STARTS, FileKind.CLEANER_OFFSETS)


class CheckpointValues(NamedTuple):
    """The values of `CHECKPOINTS`, in their order, for a copied partition; None without a value."""

    topic: str
    number: int
    offsets: tuple[int | None, ...]


def checkpointed(outcome: PartitionOutcome) -> CheckpointValues:
    """Return the facts about a partition's copy."""
    partition, done = outcome.partition, outcome.compacted
    topic, number = partition.topic or "", partition.number or 0
    log_start = partition.checkpoints.offset(FileKind.LOG_STARTS, topic, number)
    cleaned = partition.cleaner_offset if done is None else done.cleaner_offset
    return CheckpointValues(topic, number, (partition.recovery_point, partition.high_watermark, log_start, cleaned))


class Copier:
    """Writes a log dir at *to*.  *staged*: the staging directories of new content, one for each source."""

    def __init__(self, to: str, staged: str, disk: Disk) -> None:
        self._to, self._staged, self._disk = to, staged, disk
        self.written: list[str] = [to]

    def partition(self, outcome: PartitionOutcome, draft: Draft | None) -> None:
        """Write the files of a partition as they will be."""
        partition = outcome.partition
        directory = os.path.join(self._to, partition.directory)
        self._disk.make_directory(directory)
        last: dict[str, Action] = {}
        for action in draft.actions if draft is not None else ():
            last[os.path.basename(action.file)] = action
        for file in partition.files:
            if file.stage is Stage.IN_USE and file.kind is not FileKind.OTHER and file.name not in last:
                self._copy(partition.file(file.name), os.path.join(directory, file.name), None)
        for name, action in last.items():
            if action.after is None:
                continue
            target = os.path.join(directory, name)
            if action.do == PUT and action.source is not None:
                source = os.path.join(self._staged, str(outcome.number), action.source)
                self._disk.rename(source, target)
                self.written.append(target)
            else:
                self._copy(partition.file(name), target, action.after)
        self.written.append(directory)

    def _copy(self, source: str, target: str, wanted: FileState | None) -> None:
        """Copy a file, or the beginning of it, with its mode and its time."""
        status = os.stat(source)
        size = status.st_size if wanted is None else wanted.size
        file = self._disk.create(target)
        try:
            self._disk.copy(source, 0, size, file)
            mode = stat.S_IMODE(status.st_mode)
            self._disk.set_metadata(file, mode, status.st_uid, status.st_gid, status.st_mtime_ns)
        finally:
            self._disk.close(file)
        self.written.append(target)

    def checkpoints(self, copied: Sequence[CheckpointValues]) -> None:
        """Write the lines of the copied partitions into checkpoints, by topic and number."""
        for at, kind in enumerate(CHECKPOINTS):
            entries = [
                OffsetEntry(one.topic, one.number, offset)
                for one in sorted(copied, key=lambda one: one[:2])
                if (offset := one.offsets[at]) is not None
            ]
            if entries:
                path = os.path.join(self._to, kind.value)
                self.written.append(write_file(path, [write_offsets(entries)], self._disk))

    def identity(self, log_dirs: Sequence[LogDir]) -> None:
        """Copy the files that identify the log dir; none if there are several log dirs."""
        if len(log_dirs) == 1:
            source = os.path.join(log_dirs[0].path, FileKind.META_PROPERTIES.value)
            if os.path.isfile(source):
                self._copy(source, os.path.join(self._to, FileKind.META_PROPERTIES.value), None)

    def finish(self) -> None:
        """Return when all is on the disk."""
        self._disk.sync(self.written)
