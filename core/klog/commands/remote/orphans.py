"""Objects in a tier that no entry of `__remote_log_metadata` owns, and that no broker will ever delete."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from klog.base.errors import KlogError, UsageError, counted
from klog.cluster.remote_log.remote_log import RemoteLog
from klog.commands.remote.sources import RemoteQuery, RemoteSources
from klog.formats.internal_topics import REMOTE_LOG_METADATA
from klog.tier.tier_layout import TierSegment

_NEXT = (
    "the entries of some objects may be lost, and nothing is known to be an orphan; name every log dir of the cluster,"
    " and if entries are lost, klog remote attach writes them again"
)


class OrphanReason(StrEnum):
    """The reason why nothing owns the objects of a segment."""

    TOPIC_DELETED = "topic-deleted"
    CALLED_DELETED = "called-deleted"
    NO_ENTRY = "no-entry"


@dataclass(frozen=True)
class Orphan:
    """A segment whose objects nothing owns.  *bytes*: as stored; *keys*: of its objects."""

    topic: str
    partition: int
    topic_id: str
    segment_id: str
    start_offset: int
    bytes: int
    why: OrphanReason
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Orphans:
    """The orphans of a tier, by partition and start offset.

    *foreign*: keys that are not of the layout, of the first ones; *foreign_count*: of all.  *young*: segments left out
    because their objects are too young: a copy may be under way.  *partitions*: how many were looked at.  *later*:
    segments that were stored after the latest event of `__remote_log_metadata` in the log dirs, at *newest_ms*, as in a
    copy of a tier, or if the log dirs are older than the tier.
    """

    segments: list[Orphan] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    foreign_count: int = 0
    young: int = 0
    partitions: int = 0
    later: int = 0
    newest_ms: int = -1


def find_orphans(query: RemoteQuery, newest_ms: int) -> Orphans:
    """Return the segments with objects that nothing owns, and that were all stored by *newest_ms*.

    Everything is looked at twice: a broker may be deleting.  Raises UsageError without a tier or log dirs, KlogError if
    the metadata are not complete: an object whose entry is lost is no orphan.
    """
    if query.tier is None or not query.paths:
        raise UsageError("orphans are objects without an entry: name log dirs and --remote TIER")
    found = _look(query, newest_ms)
    if not found.segments:
        return found
    again = _look(query, newest_ms)
    known = {(one.topic_id, one.partition, one.segment_id) for one in found.segments}
    again.segments[:] = [one for one in again.segments if (one.topic_id, one.partition, one.segment_id) in known]
    return again


def _look(query: RemoteQuery, newest_ms: int) -> Orphans:
    sources = RemoteSources(query)
    metadata = _complete(sources)
    assert sources.objects is not None
    found = Orphans(foreign=sources.objects.foreign, foreign_count=sources.objects.foreign_count)
    young, later, chosen = 0, 0, sources.partitions()
    known = {segment_id for cache in metadata.caches.values() for segment_id in cache.segments}
    for whose in chosen:
        facts = sources.facts(whose)
        for one in (facts.objects or {}).values():
            if one.segment_id in known:
                continue  # also if the entry has another name of the topic
            if one.modified_ms > newest_ms:
                young += 1
                continue
            why = _reason(sources, metadata, whose.topic_id, one)
            later += one.modified_ms > metadata.newest_ms and why is not OrphanReason.CALLED_DELETED
            size, keys = sum(one.sizes.values()), tuple(sorted(one.keys.values()))
            found.segments.append(Orphan(*whose, one.segment_id, one.start_offset, size, why, keys))
    found.segments.sort(key=lambda one: (one.topic, one.partition, one.topic_id, one.start_offset, one.segment_id))
    counts = found.foreign_count, young, len(chosen), later, metadata.newest_ms
    return Orphans(found.segments, found.foreign, *counts)


def _reason(sources: RemoteSources, metadata: RemoteLog, topic_id: str, objects: TierSegment) -> OrphanReason:
    assert sources.cluster is not None
    if topic_id not in sources.cluster.topic_ids.values():
        return OrphanReason.TOPIC_DELETED
    is_deleted = objects.segment_id in metadata.deleted_ids
    return OrphanReason.CALLED_DELETED if is_deleted else OrphanReason.NO_ENTRY


def _complete(sources: RemoteSources) -> RemoteLog:
    """Return the metadata.  Raises KlogError with the first reason why an entry may be lost."""
    if sources.cluster is None:
        raise KlogError("no log dir has a metadata log (__cluster_metadata-0): name the one that has it, too")
    metadata = sources.metadata
    reasons = iter(("the log dirs have no partition of it",)) if metadata is None else _gaps(metadata)
    for reason in reasons:
        raise KlogError(f"{REMOTE_LOG_METADATA}: {reason}; {_NEXT}")
    assert metadata is not None
    return metadata


def _gaps(metadata: RemoteLog) -> Iterator[str]:
    """Yield each thing that is missing or damaged in the topic."""
    if metadata.count is None:
        yield "the metadata log does not tell how many partitions it has"
    missing = sorted(set(range(metadata.count or 0)) - set(metadata.read))
    if missing:
        some = ", ".join(map(str, missing[:10])) + ("…" if len(missing) > 10 else "")
        noun = "partition" if len(missing) == 1 else "partitions"
        yield f"{noun} {some} of {metadata.count} {'is' if len(missing) == 1 else 'are'} not in these log dirs"
    yield from (one.message for one in metadata.faults)
    if metadata.refused.count:
        yield f"{counted(metadata.refused.count, 'record')} that no broker can read"
    yield from (
        f"partition {number} begins at offset {start}" for number, start in sorted(metadata.starts.items()) if start
    )
    yield from (
        f"partition {number} lacks records, from offset {at} on"
        for number, at in sorted((metadata.ends | metadata.gaps).items())
    )
