"""Committed offsets that coordinators remove after a start, because they have expired meanwhile.

    due = due_offsets(group_images(partitions, names), topics, now_ms)
    due_offset_notes(due, topics)

A classic group without members loses its offsets so long after its last member has left, a group of offsets alone, and
one of the new protocols, each offset so long after its commit.  A classic group with members in the log loses none: its
coordinator waits for their sessions to end, and counts from then on.  Members of the new protocols keep the offsets of
the topics to which they subscribe; when their sessions have ended, the times of the commits count.  A client of an old
version may have set a time of its own.
Kafka: OffsetMetadataManager.cleanupExpiredOffsets, ClassicGroup.offsetExpirationCondition; before 4.0
GroupMetadata.removeExpiredOffsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from klog.base.errors import counted
from klog.cluster.coordinator.consumer_groups import GroupImage, GroupType, OffsetImage
from klog.cluster.metadata.topic_config import TopicConfig
from klog.formats.java_integers import INT_MAX

_RETENTION: Final = "offsets.retention.minutes"
_INTERVAL: Final = "offsets.retention.check.interval.ms"
KEEP_OFFSETS: Final = f"set {_RETENTION}={INT_MAX} in server.properties"
"""The step after which none are removed that have aged."""
_MINUTE_MS: Final = 60_000
_MOST_NAMES: Final = 3


class DueOffsets(NamedTuple):
    """The offsets of a group that are removed.

    *offsets*: how many.  *since*: ms, the earliest of the times from which the retention counts; None if their client
    has set the end for all of them.  *has_members*: members are in the log, and these offsets stay if they return.
    *has_replicas*: other nodes may have a newer log of the group.
    """

    group: str
    type: GroupType
    partition: int | None
    offsets: int
    since: int | None
    has_members: bool = False
    has_replicas: bool = False


def due_offsets(groups: Iterable[GroupImage], topics: TopicConfig, now_ms: int) -> list[DueOffsets]:
    """Return the offsets of *groups* that a coordinator removes that starts at *now_ms*.

    *topics*: has the settings of its broker.
    """
    retention_ms = topics.value(None, _RETENTION).number * _MINUTE_MS
    found = []
    for group in groups:
        if group.type == "share" or (group.type == "classic" and group.members):
            continue
        due = [one for one in group.offsets if _is_due(one, group, retention_ms, now_ms)]
        if due:
            since = min((_since(one, group) for one in due if one.expires_at is None), default=None)
            place = group.group, group.type, group.coordinator_partition
            found.append(DueOffsets(*place, len(due), since, bool(group.members)))
    return found


def _since(offset: OffsetImage, group: GroupImage) -> int:
    """Return the time from which the retention of an offset counts, ms."""
    return group.empty_since if group.empty_since is not None else offset.committed_at or 0


def _is_due(offset: OffsetImage, group: GroupImage, retention_ms: int, now_ms: int) -> bool:
    if offset.expires_at is not None:
        return now_ms >= offset.expires_at
    return now_ms - _since(offset, group) >= retention_ms


def due_offset_notes(due: Sequence[DueOffsets], topics: TopicConfig) -> Iterator[str]:
    """Yield a sentence for the offsets that a setting keeps, and one for those of which clients have set the end."""
    start = f"{topics.value(None, _INTERVAL).number / _MINUTE_MS:g} minutes after the start, the coordinators remove"
    if aged := [one for one in due if one.since is not None]:
        why = topics.value(None, _RETENTION).told(topics.knows_file)
        yield f"{start} {_counts(aged)}, by {why}; to keep them, first: {KEEP_OFFSETS}"
    if ended := [one for one in due if one.since is None]:
        cure = "klog groups LOG_DIR --output reset-offsets --to offsets.csv"
        yield f"{start} {_counts(ended)}, whose clients have set that time; to restore them later, first: {cure}"


def _counts(due: Sequence[DueOffsets]) -> str:
    """Return how many offsets they are, those with a condition behind the others."""

    def condition(one: DueOffsets) -> tuple[bool, bool]:
        return one.has_replicas, one.has_members

    parts = []
    for (has_replicas, has_members), same in groupby(sorted(due, key=condition), condition):
        rows = list(same)
        names = ", ".join(one.group for one in rows[:_MOST_NAMES])
        names += f", … {len(rows) - _MOST_NAMES} more" if len(rows) > _MOST_NAMES else ""
        count = counted(sum(one.offsets for one in rows), "committed offset")
        when = " unless another node has a newer log of it" if has_replicas else ""
        when += " if no member in the log is back by then" if has_members else ""
        parts.append(f"{count} of {counted(len(rows), 'group')} ({names}){when}")
    return ", and ".join(parts)
