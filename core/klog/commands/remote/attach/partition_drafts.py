"""The changes of a partition's directory, in an order that may stop anywhere.

`partition.metadata` is written last: until then a broker sets the directory aside, and does what it would have done
without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from klog.change.plan.draft import Draft
from klog.change.plan.staging import Staging
from klog.commands.remote.attach.local_log import EmptyLog
from klog.commands.remote.attach.target import PartitionPlace, TargetBroker
from klog.data_dir.partition import Partition
from klog.formats.checkpoint import EpochEntry, write_epochs, write_partition_metadata
from klog.formats.names import SEGMENT_KINDS, FileKind, FileName


class PartitionDrafts(NamedTuple):
    """The changes of a directory: before the log dir's checkpoints, and behind them."""

    files: Draft
    last: Draft


def new_drafts(target: TargetBroker, stagings: Sequence[Staging], number: int) -> PartitionDrafts:
    """Return empty drafts for a log dir, by its number."""
    path = target.log_dirs[number].path
    return PartitionDrafts(Draft(path, number, stagings[number]), Draft(path, number, stagings[number]))


def draft_log(drafts: PartitionDrafts, place: PartitionPlace, topic_id: str, log: EmptyLog, now_ms: int) -> None:
    """Give a directory the files of *log*, and no others.  Raises OSError (staging), UnreadableError."""
    identity = FileKind.PARTITION_METADATA.value
    if place.partition is not None:
        drafts.files.rely_on_directory(place.directory)
        remove_files(drafts.files, place.partition, {*log.files.content, identity})
    now_ns = now_ms * 1_000_000
    log.files.draft(drafts.files, place.directory, now_ns)
    drafts.last.put(f"{place.directory}/{identity}", [write_partition_metadata(topic_id)], modified_ns=now_ns)


def draft_epochs(drafts: PartitionDrafts, place: PartitionPlace, epochs: Sequence[EpochEntry]) -> None:
    """Give a local log that stays the history *epochs*.  Raises OSError (staging), UnreadableError."""
    drafts.files.put(f"{place.directory}/{FileKind.LEADER_EPOCHS.value}", [write_epochs(epochs)])
    drafts.files.rely_on_directory(place.directory)


def remove_files(draft: Draft, partition: Partition, kept: set[str]) -> None:
    """Remove the files of a directory: segments from the last one back, each log before its indexes."""
    for file in sorted(partition.files, key=_order):
        if file.name not in kept:
            draft.remove(f"{partition.directory}/{file.name}")


def _order(file: FileName) -> tuple[bool, int, int, str]:
    is_other = file.kind not in SEGMENT_KINDS
    return is_other, -(file.offset or 0), 0 if is_other else SEGMENT_KINDS.index(file.kind), file.name
