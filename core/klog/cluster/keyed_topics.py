"""The topics whose keys are checked, and how many partitions each has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from klog.base.errors import UnsupportedError
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.data_dir.replicas import last_leader_epoch, log_end
from klog.formats.internal_topics import REMOTE_LOG_METADATA
from klog.formats.names import CLUSTER_METADATA, INTERNAL, PartitionState

if TYPE_CHECKING:
    from klog.cluster.metadata.metadata_loader import ClusterMetadata

NO_PARTITIONER: Final = frozenset((CLUSTER_METADATA, REMOTE_LOG_METADATA, *INTERNAL))
"""Topics whose records no producer's partitioner places: brokers write them."""
MOST_PARTITIONS: Final = 1 << 16

CountedBy = Literal["option", "metadata", "directories"]


class KeyTopic(NamedTuple):
    """A topic: *partitions*, a directory of each one found; *partition_count* of all, with its source *counted_by*.

    *missing*: numbers below the count without a directory, if directories were counted.
    """

    name: str
    topic_id: str | None
    partitions: tuple[Partition, ...]
    partition_count: int
    counted_by: CountedBy
    missing: tuple[int, ...] = ()


def key_topics(partitions: Iterable[Partition], log_dirs: Sequence[LogDir], given: int | None) -> list[KeyTopic]:
    """Return the topics of *partitions*, a directory of each, by name.

    *log_dirs*: other places of their directories and of the metadata log.  *given*: the number of partitions of every
    topic, None if unknown.  Raises UnsupportedError for a topic with more than `MOST_PARTITIONS`.
    """
    return topics_by(partitions, log_dirs, given, None if given is not None else newest_metadata(log_dirs))


def topics_by(
    partitions: Iterable[Partition], log_dirs: Sequence[LogDir], given: int | None, state: ClusterMetadata | None
) -> list[KeyTopic]:
    """Return the topics with the facts of a metadata log, None without one."""
    groups: dict[tuple[str, str | None], list[Partition]] = {}
    for partition in partitions:
        if partition.topic is not None:
            groups.setdefault((partition.topic, partition.topic_id), []).append(partition)
    numbers = _numbers(log_dirs)
    found = []
    for (name, topic_id), members in sorted(groups.items(), key=lambda group: (group[0][0], group[0][1] or "")):
        there = {one.number for one in members if one.number is not None} | numbers.get((name, topic_id), set())
        count, counted_by = _count(name, topic_id, there, state, given)
        if max(count, *there) > MOST_PARTITIONS:
            raise UnsupportedError(f"{name}: more than {MOST_PARTITIONS} partitions; keys check takes no more")
        missing = () if counted_by != "directories" else tuple(sorted(set(range(count)) - there))
        found.append(KeyTopic(name, topic_id, tuple(members), count, counted_by, missing))
    return found


def _numbers(log_dirs: Sequence[LogDir]) -> dict[tuple[str, str | None], set[int]]:
    """Return the partition numbers that *log_dirs* have, by topic."""
    found: dict[tuple[str, str | None], set[int]] = {}
    for log_dir in log_dirs:
        for one in log_dir.partitions:
            if one.state is PartitionState.CURRENT and one.name is not None and one.topic not in NO_PARTITIONER:
                found.setdefault((one.name.topic, one.topic_id), set()).add(one.name.partition)
    return found


def newest_metadata(log_dirs: Sequence[LogDir]) -> ClusterMetadata | None:
    """Return the state of the best metadata log: of the latest epoch, then the longest; None without one."""
    ranked = [
        ((last_leader_epoch(log), log_end(log)), log_dir)
        for log_dir in log_dirs
        if (log := log_dir.metadata_log) is not None
    ]
    if not ranked:
        return None
    # It takes longer to import than it takes to check a small topic.
    from klog.cluster.metadata.metadata_loader import read_metadata

    return read_metadata(max(ranked, key=lambda one: one[0])[1])


def _count(
    name: str, topic_id: str | None, there: set[int], state: ClusterMetadata | None, given: int | None
) -> tuple[int, CountedBy]:
    """Return the number of a topic's partitions, and the source of that number.

    Metadata counts only for the topic with this id, and only when no directory has a number that is too high for it:
    the metadata is then older than the directory.
    """
    if given is not None:
        return given, "option"
    highest = max(there)
    if state is not None and (known := state.topic_ids.get(name)) is not None and topic_id in (known, None):
        count = len(state.partitions.get(known, ()))
        if count > highest:
            return count, "metadata"
    return highest + 1, "directories"
