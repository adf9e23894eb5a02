"""Cuts a partition of a copy, or empties it, by a plan that `klog plans` lists and `klog undo` takes back.

The lock of the log dir is held already, and no file of the partition is open.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from klog.change.partition_plan import checkpoints
from klog.change.partition_plan.desired_files import whole_losses
from klog.change.plan.draft import Draft
from klog.change.plan.model import NOTHING, Amount, Loss
from klog.change.plan.session import PlanOptions, PlanSession
from klog.commands.follow.live_directory import CopyDisk
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.data_dir.selection import PartitionQuery
from klog.formats.checkpoint import write_partition_metadata
from klog.formats.java_integers import LONG_MAX
from klog.formats.names import ROOT_CHECKPOINTS, SEGMENT_KINDS, FileKind, file_name

_Change = Callable[[LogDir, Partition, Draft, Draft], "tuple[tuple[Loss, ...], Amount]"]
"""Drafts changes of a partition and, in the second draft, of checkpoints; returns the losses, and the kept amount."""


def cut_log(copy: CopyDisk, path: str, offset: int, index_interval: int) -> str | None:
    """Cut the partition at *path* as `klog truncate` does; return the backup, None if nothing was to cut.

    Raises KlogError, OSError.
    """
    # Few runs cut anything, and imports delay each start.
    from klog.partition.truncate import TruncateOptions, cut

    def draft_cut(log_dir: LogDir, found: Partition, draft: Draft, last: Draft) -> tuple[tuple[Loss, ...], Amount]:
        # A copy forgets no producer.
        done = cut(found, offset, TruncateOptions(0, LONG_MAX, index_interval), draft)
        changes = {kind: {_key(found): at} for kind, at in done.offsets.items()}
        checkpoints.plan(log_dir, changes, last, mend=False)
        return done.losses, done.kept

    return _carry_out(copy, path, draft_cut)


def empty(copy: CopyDisk, path: str, topic_id: str | None) -> str | None:
    """Replace the partition at *path* by an empty one, of topic *topic_id*, as a broker leaves it; return the backup.

    Raises KlogError, OSError.
    """

    def draft_removal(log_dir: LogDir, found: Partition, draft: Draft, last: Draft) -> tuple[tuple[Loss, ...], Amount]:
        losses = whole_losses(found, [files.log for files in found.segments], "replaced")
        wanted = {file_name(0, kind): b"" for kind in SEGMENT_KINDS[:3]}
        if topic_id is not None:
            wanted[FileKind.PARTITION_METADATA.value] = write_partition_metadata(topic_id)
        for name in sorted((file.name for file in found.files if file.name not in wanted), reverse=True):
            draft.remove(f"{found.directory}/{name}")
        for name, content in wanted.items():
            draft.put(f"{found.directory}/{name}", [content])
        lines: dict[FileKind, checkpoints.Changes] = {kind: {_key(found): None} for kind in ROOT_CHECKPOINTS}
        lines[FileKind.RECOVERY_POINTS] = {_key(found): 0}
        checkpoints.plan(log_dir, lines, last, mend=False)
        return tuple(losses), NOTHING

    return _carry_out(copy, path, draft_removal)


def needed_from(partition: Partition, log_start: int) -> int:
    """Return the base offset of the segment with *log_start*: everything below it is below the log start."""
    bases = [files.base_offset for files in partition.segments]
    return max((base for base in bases if base <= log_start), default=min(bases, default=0))


def names_below(partition: Partition, offset: int) -> list[str]:
    """Return the files of segments older than the one with that base offset, in the order of their removal.

    After an interruption the rest is the end of the log.
    """
    kinds = (*SEGMENT_KINDS, FileKind.SNAPSHOT)
    named = [file for file in partition.files if file.kind in kinds and file.offset is not None]
    named.sort(key=lambda file: (file.offset or 0, file.kind is not FileKind.LOG))
    return [file.name for file in named if (file.offset or 0) < offset]


def put_aside(copy: CopyDisk, path: str, kept: int) -> str | None:
    """Move the segments of the partition at *path* that are older than the one at *kept* to the backup; return that.

    The partition may be open: none of these files is.  Raises KlogError, OSError.
    """

    def draft_removal(_log_dir: LogDir, found: Partition, draft: Draft, _: Draft) -> tuple[tuple[Loss, ...], Amount]:
        losses = whole_losses(found, [files.log for files in found.segments if files.base_offset < kept], "pruned")
        for name in names_below(found, kept):
            draft.remove(f"{found.directory}/{name}")
        return tuple(losses), NOTHING

    return _carry_out(copy, path, draft_removal)


def remove(copy: CopyDisk, path: str) -> str | None:
    """Take the partition at *path* out of the copy, with its directory; return the backup, None for an empty directory.

    Raises KlogError, OSError.
    """

    def draft_removal(log_dir: LogDir, found: Partition, draft: Draft, last: Draft) -> tuple[tuple[Loss, ...], Amount]:
        losses = whole_losses(found, [files.log for files in found.segments], "replaced")
        for name in sorted((file.name for file in found.files), reverse=True):
            draft.remove(f"{found.directory}/{name}")
        draft.emptied.add(found.directory)
        lines: dict[FileKind, checkpoints.Changes] = {kind: {_key(found): None} for kind in ROOT_CHECKPOINTS}
        checkpoints.plan(log_dir, lines, last, mend=False)
        return tuple(losses), NOTHING

    backup = _carry_out(copy, path, draft_removal)
    with copy.writing():
        if os.path.lexists(path):  # it was empty
            copy.disk.remove_directory(path)
        copy.disk.sync([copy.path])
    return backup


def _key(partition: Partition) -> tuple[str, int]:
    return partition.topic or "", partition.number or 0


def _carry_out(copy: CopyDisk, path: str, draft_changes: _Change) -> str | None:
    """Draft changes of one partition and apply them; return the backup of the originals."""
    copy.flush()
    options = PlanOptions("follow", apply=True, command=f"klog follow --to {copy.path}")
    query = PartitionQuery([path])
    with copy.writing(), PlanSession(query, options, copy.disk, copy.reporter, copy.locks) as session:
        selection, staging = session.selections[0], session.staging[0]
        drafts = [Draft(copy.path, 0, staging), Draft(copy.path, 0, staging)]
        losses, kept = draft_changes(selection.log_dir, selection.partitions[0], *drafts)
        result = session.finish(drafts, losses=losses, kept=kept)
    copy.load()
    return result.plan.backups[0] if result.plan is not None else None
