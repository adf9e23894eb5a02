"""The copies of partitions below some paths, and how far a log reaches on its disk.

Directories on their way out (`-delete`, `-stray`) or in (`-future`) are no copies, unless a path names one.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import Final

from klog.base.errors import KlogError, NotKafkaError, UsageError
from klog.base.read_only import ReadOnlyFile
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition, SegmentFiles
from klog.data_dir.selection import EXPECTED, open_path
from klog.formats.batch import BatchFacts
from klog.formats.checkpoint import epochs_in_force
from klog.formats.damage import Damage
from klog.formats.names import PartitionState
from klog.log.header_walk import walk_headers
from klog.log.index import position_of_offset

_NO_NAMES: Final = ("", os.curdir, os.pardir)
UNKNOWN: Final = -1
"""The end of an unreadable log, and an unknown epoch."""


def find_partitions(
    paths: Iterable[str], states: Collection[PartitionState] = (PartitionState.CURRENT,)
) -> list[Partition]:
    """Return the partitions in *paths*: log dirs, partition directories, globs of both; each directory once.

    *states*: the directories of a log dir that count.  Raises UsageError for a path that holds none, UnreadableError
    for an unreadable one.  Matches of a glob that are not Kafka's data are ignored.
    """
    found: dict[str, Partition] = {}
    around: dict[str, str] = {}  # of thousands of directories only the links are followed one by one
    for path in paths:
        for partition in _in_path(path, states):
            parent, name = os.path.split(partition.path)
            if name in _NO_NAMES:
                parent, name = os.path.split(os.path.abspath(partition.path))
            if parent not in around:
                around[parent] = os.path.realpath(parent)
            where = os.path.join(around[parent], name)
            found.setdefault(os.path.realpath(where) if os.path.islink(where) else where, partition)
    return list(found.values())


def _in_path(path: str, states: Collection[PartitionState]) -> list[Partition]:
    import glob

    if os.path.lexists(path) or not glob.has_magic(path):
        return _in_directory(path, states)
    matched = sorted(glob.glob(path))
    found: list[Partition] = []
    kafka = False
    for each in matched:
        try:
            found += _in_directory(each, states)
            kafka = True
        except (UsageError, NotKafkaError):
            continue  # lost+found, a file: a star on the command line matches those, too
    if not kafka:
        raise UsageError(f"{path}: {'no Kafka data in what' if matched else 'nothing'} this matches; {EXPECTED}")
    return found


def _in_directory(path: str, states: Collection[PartitionState]) -> list[Partition]:
    opened = open_path(path)
    if isinstance(opened, Partition):
        return [opened]
    if isinstance(opened, LogDir):
        return [partition for partition in opened.partitions if partition.state in states]
    raise UsageError(f"{path}: a single file; expected a log dir (what log.dirs names) or a partition's directory")


def log_end(partition: Partition) -> int:
    """Return the next offset of the log, −1 where there is no log or it cannot be read."""
    try:
        end = partition.log_end
    except KlogError:
        return UNKNOWN
    return end.offset if end is not None else UNKNOWN


def last_leader_epoch(partition: Partition) -> int:
    """Return the greatest leader epoch of a copy, from its checkpoint and its last batch; −1 without one.

    The checkpoint may be missing, and out of date after a crash.
    """
    checkpointed = partition.leader_epoch
    return max(epoch_at(partition, log_end(partition) - 1), UNKNOWN if checkpointed is None else checkpointed)


def epoch_at(partition: Partition, offset: int) -> int:
    """Return the leader epoch in which *offset* was written; −1 if unknown.

    It is taken from the batch of the offset, or, if compaction deleted that, from the epoch checkpoint.
    """
    segment = next((each for each in reversed(partition.segments) if each.base_offset <= offset), None)
    header = None if segment is None else _header_with(partition, segment, offset)
    if header is not None:
        return header.leader_epoch
    epochs = partition.epochs
    kept = epochs_in_force(epochs.entries) if epochs is not None and not epochs.malformed else []
    return next((entry.epoch for entry in reversed(kept) if entry.start_offset <= offset), UNKNOWN)


def _header_with(partition: Partition, segment: SegmentFiles, offset: int) -> BatchFacts | None:
    try:
        with ReadOnlyFile(partition.file(segment.log)) as log:
            start = 0
            if segment.offset_index:
                index = partition.file(segment.offset_index)
                start = position_of_offset(log, index, segment.base_offset, offset)
            for found in walk_headers(log, start):
                if isinstance(found, Damage) or found.base_offset > offset:
                    return None
                if found.last_offset >= offset:
                    return found
    except KlogError:
        pass  # an unreadable copy gives no answer
    return None
