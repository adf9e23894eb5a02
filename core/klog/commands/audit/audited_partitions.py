"""The partitions of an audit: copies put together, and the logs to read.

Replicas on several disks, `-future`, `-stray` and `-delete` directories are copies of one partition, if their topic ids
are the same; without an id the name decides.  The longest copy is read, and of the others the parts that it lacks at
either end: otherwise every batch would be a twin of itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from klog.base.errors import UsageError
from klog.base.unusable import UNUSABLE, Unusable
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.data_dir.replicas import find_partitions, log_end
from klog.data_dir.selection import PartitionChoice, select
from klog.formats.names import PartitionState

INTERNAL: Final = "__"
_IN_USE: Final = (PartitionState.CURRENT, PartitionState.FUTURE)


class AuditQuery(NamedTuple):
    """The input: *paths* are judged, *others* (log dirs of the same cluster) are only read for twins and homes.

    *topics*: names or globs; *numbers*: of partitions; empty: all.  *internal*: topics that brokers write, too.
    """

    paths: Sequence[str]
    others: Sequence[str] = ()
    topics: Sequence[str] = ()
    numbers: Sequence[PartitionChoice] = ()
    internal: bool = False


class AuditPartition(NamedTuple):
    """A partition with its *copies*, the longest first.  *is_judged*: findings about it are reported."""

    topic: str
    number: int
    topic_id: str | None
    is_judged: bool
    copies: tuple[Partition, ...]

    @property
    def name(self) -> str:
        """Topic and number, as the directory is called."""
        return f"{self.topic}-{self.number}"

    @property
    def log_start(self) -> int:
        """The first offset that can be read: consumers do not see lower ones."""
        return self.copies[0].log_start_offset or 0

    @property
    def directory(self) -> Partition:
        """The copy that is read as a whole."""
        return self.copies[0]


class AuditLog(NamedTuple):
    """A `.log` to read, and its *number* among all.  *partition*: place among the partitions of the audit.

    *is_last*: no other segment of its directory follows, and its end may be unfinished.  Batches with a base offset of
    *skip_from* up to, not including, *skip_to* are read in another copy; below *log_start* nothing is read.
    """

    number: int
    partition: int
    path: str
    size: int
    is_last: bool
    skip_from: int = 0
    skip_to: int = 0
    log_start: int = 0


def audit_partitions(query: AuditQuery) -> tuple[list[AuditPartition], list[LogDir]]:
    """Return the partitions of an audit, by topic, number and topic id, and the log dirs around them.

    Raises UsageError, UnreadableError.
    """
    judged, others = (find_partitions(paths, tuple(PartitionState)) if paths else [] for paths in query[:2])
    log_dirs = [LogDir(path) for path in dict.fromkeys(one.log_dir for one in (*judged, *others))]
    judged, others = ([one for one in some if query.internal or not is_internal(one)] for some in (judged, others))
    if query.topics or query.numbers:
        wanted = set(select([*judged, *others], query.topics, query.numbers))
        judged, others = ([one for one in some if one in wanted] for some in (judged, others))
    first = {os.path.realpath(one.path) for one in judged}
    given = [(one, True) for one in judged]
    given += [(one, False) for one in others if os.path.realpath(one.path) not in first]
    by_name: dict[tuple[str, int], list[tuple[Partition, bool]]] = {}
    for partition, is_judged in given:
        by_name.setdefault(_name(partition), []).append((partition, is_judged))
    found = [_together(name, copies) for name in sorted(by_name) for copies in _copies(by_name[name])]
    if not any(one.is_judged for one in found):
        hint = "" if query.internal else "; --internal includes the topics that brokers write"
        raise UsageError(f"{' '.join(query.paths)}: no partitions to audit{hint}")
    for one in found:
        if one.is_judged and (hides := one.directory.raised_start) is not None:  # nothing below it is reported
            UNUSABLE.note(Unusable(one.directory.path, hides, is_unreadable=False))
    return found, log_dirs


def is_internal(partition: Partition) -> bool:
    """Whether brokers write the partition's topic themselves."""
    return (partition.topic or "").startswith(INTERNAL)


def _name(partition: Partition) -> tuple[str, int]:
    """Return the name of a partition; a directory with another name is a partition of its own."""
    name = partition.name
    return (partition.directory, -1) if name is None else (name.topic, name.partition)


def _copies(found: Sequence[tuple[Partition, bool]]) -> list[list[tuple[Partition, bool]]]:
    """Return the copies of each partition that has the name; those without an id belong to the first that has one."""
    ids = sorted({one.topic_id for one, _ in found if one.topic_id is not None})
    groups: dict[str | None, list[tuple[Partition, bool]]] = {}
    for one, is_judged in found:
        groups.setdefault(one.topic_id or (ids[0] if ids else None), []).append((one, is_judged))
    return [groups[key] for key in sorted(groups, key=lambda key: key or "")]


def _together(name: tuple[str, int], found: list[tuple[Partition, bool]]) -> AuditPartition:
    """Return a partition; copies on their way out count only where there is no other."""
    in_use = [(one, is_judged) for one, is_judged in found if one.state in _IN_USE]
    kept = in_use or found
    if len(kept) > 1:
        kept.sort(key=lambda copy: (not copy[1], -log_end(copy[0]), copy[0].log_start_offset or 0, copy[0].path))
    ids = [one.topic_id for one, _ in kept if one.topic_id is not None]
    is_judged = any(is_judged for _, is_judged in kept)
    return AuditPartition(*name, ids[0] if ids else None, is_judged, tuple(one for one, _ in kept))


def audit_logs(partitions: Sequence[AuditPartition]) -> list[AuditLog]:
    """Return the logs to read, by partition and offset."""
    found: list[AuditLog] = []
    for at, partition in enumerate(partitions):
        logs = sorted(_logs(at, partition), key=lambda log: log[0])
        found += [log._replace(number=len(found) + i) for i, (_, log) in enumerate(logs)]
    return found


def _logs(at: int, partition: AuditPartition) -> Iterable[tuple[int, AuditLog]]:
    low = high = 0
    for copy in partition.copies:
        if not copy.segments:
            continue
        bases = [files.base_offset for files in copy.segments]
        end = max(log_end(copy), bases[-1]) if len(partition.copies) > 1 else bases[-1]
        for files, following in pairwise([*copy.segments, None]):
            assert files is not None
            behind = end if following is None else following.base_offset
            if low < high and low <= files.base_offset and behind <= high:
                continue
            path, is_last = copy.file(files.log), following is None
            log = AuditLog(0, at, path, files.size, is_last, low, high, partition.log_start)
            yield files.base_offset, log
        low, high = (min(low, bases[0]), max(high, end)) if low < high else (bases[0], end)
