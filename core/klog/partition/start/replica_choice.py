"""The choice of one replica if several log dirs have the same partition.

    longest         the copy whose log ends last: what a broker would have served that led with all it had
    leader-epoch    the copy that followed the newest leader, then the longest: as an unclean election should choose
    all             every copy, for comparing them

The end of a log is its end after the next start of its broker.  Copies are compared only if their ids prove that they
are copies: `klog.data_dir.replicas`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

from klog.base.errors import KlogError
from klog.data_dir.log_dir import lock_state
from klog.data_dir.partition import Partition
from klog.data_dir.partition_identity import IdentityChoice, choose_identity, group_copies
from klog.data_dir.replicas import UNKNOWN, epoch_at, find_partitions, last_leader_epoch, log_end
from klog.data_dir.selection import PartitionChoice, select
from klog.formats.checkpoint import epochs_in_force
from klog.formats.names import FileKind


def select_replicas(
    paths: Iterable[str],
    topics: Sequence[str],
    numbers: Sequence[PartitionChoice],
    replicas: str = "longest",
    choice: IdentityChoice = IdentityChoice(),  # noqa: B008
    note: Callable[[str], object] = len,
    choose: Callable[[Sequence[Partition], IdentityChoice], tuple[list[Partition], str | None]] = choose_identity,
) -> list[Partition]:
    """Return the partitions of *paths* that *topics* and *numbers* select; *replicas* is the rule that chooses a
    replica of each.

    *note*: receives the sentence about copies that *choice* leaves out; *choose* applies it.  Raises UsageError,
    UnreadableError; IdentityError if directories of one name are not copies, even if all are requested.
    """
    found, sentence = choose(find_partitions(paths), choice)
    if topics or numbers:
        found = select(found, topics, numbers)
    group_copies(found, choice)
    if sentence is not None:
        note(sentence)
    return choose_replicas(found, replicas, choice)


def choose_replicas(
    partitions: Iterable[Partition],
    rule: str,
    choice: IdentityChoice = IdentityChoice(),  # noqa: B008
) -> list[Partition]:
    """Return the partitions to read, by topic and number, one copy of each unless *rule* is "all".

    Raises IdentityError if one would have to be chosen of directories that are not copies.
    """
    kept = (
        list(partitions)
        if rule == "all"
        else [best_replica(copies, rule) for copies in group_copies(partitions, choice)]
    )
    return sorted(kept, key=lambda partition: (partition.topic or "", partition.number or 0, partition.path))


def best_replica(copies: Sequence[Partition], rule: str) -> Partition:
    """Return the one of *copies* to read.

    If two are equal by the rule, the first is kept.  An unreadable copy counts as empty.
    """
    if len(copies) == 1:
        return copies[0]
    on_disk = [_rank(copy, log_end(copy), rule) for copy in copies]
    best, best_rank = 0, (UNKNOWN - 1, UNKNOWN - 1)
    # A start only truncates: a copy whose log on disk does not reach further than the best one is not played.
    for number in sorted(range(len(copies)), key=lambda number: on_disk[number], reverse=True):
        if (on_disk[number], -number) <= (best_rank, -best):
            continue
        rank = _rank(copies[number], _end_after_start(copies[number]), rule)
        if (rank, -number) > (best_rank, -best):
            best, best_rank = number, rank
    return copies[best]


def _rank(copy: Partition, end: int, rule: str) -> tuple[int, int]:
    """Return the sort key of a copy that ends at *end*: the greatest copy is the best."""
    if rule != "leader-epoch":
        return end, 0
    if end == log_end(copy):
        return last_leader_epoch(copy), end
    checkpointed = copy.epochs.entries if copy.epochs is not None and not copy.epochs.malformed else ()
    kept = [entry.epoch for entry in epochs_in_force(checkpointed) if entry.start_offset < end]
    return max([epoch_at(copy, end - 1), *kept]), end


def _end_after_start(copy: Partition) -> int:
    """Return the log end offset after the broker's next start, UNKNOWN if there is no log or it cannot be read.

    A directory outside of a log dir is used unchanged: no file shows how its broker stopped.
    """
    from klog.partition.start.kept_log import NextStarts

    on_disk = log_end(copy)
    if on_disk == UNKNOWN or not _was_unclean(copy.log_dir):
        return on_disk
    try:
        return NextStarts().kept(copy, clean=False).log_end
    except KlogError:
        return UNKNOWN


def _was_unclean(log_dir: str) -> bool:
    names = (FileKind.META_PROPERTIES.value, FileKind.CLEAN_SHUTDOWN.value)
    is_log_dir, has_marker = (os.path.lexists(os.path.join(log_dir, name)) for name in names)
    # A broker that runs has no marker either, and is about to cut nothing.
    return is_log_dir and not has_marker and not lock_state(os.path.join(log_dir, FileKind.LOCK.value)).held
