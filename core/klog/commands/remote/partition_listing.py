"""One partition in remote storage: its segments with the part that each plays, its offsets, and a verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final

from klog.base.errors import offsets_text
from klog.cluster.remote_log.cache import RemoteLogCache
from klog.cluster.remote_log.events import RemoteSegment, TopicIdPartition
from klog.cluster.remote_log.lineage import ChainLink, chain, history_of, holes, is_within_lineage
from klog.cluster.remote_log.object_facts import cache_of
from klog.formats.checkpoint import EpochEntry
from klog.formats.java_integers import LONG_MAX
from klog.formats.remote_log import SegmentState
from klog.partition.tiered.lost_entries import lost_entries_text
from klog.tier.local_layout import LocalLayout
from klog.tier.tier_layout import LOG, TierLayout, TierSegment


class RemoteVerdict(StrEnum):
    """The state of a partition in remote storage, the worst first."""

    DAMAGED = "damaged"
    HOLE = "hole"
    ORPHANS = "orphans"
    UNKNOWN = "unknown"
    WHOLE = "whole"
    LOCAL_ONLY = "local-only"
    REMOTE_ONLY = "remote-only"

    @property
    def is_problem(self) -> bool:
        """Whether it is one for the exit code."""
        return self in _PROBLEMS


ENTRY_LOST: Final = "entry-lost"
"""The role of a segment with objects, whose entry may be among events that are deleted or unreadable."""
_PROBLEMS = (RemoteVerdict.DAMAGED, RemoteVerdict.HOLE, RemoteVerdict.ORPHANS, RemoteVerdict.UNKNOWN)


@dataclass(frozen=True)
class SegmentListing:
    """A segment.  *state*, *size* and other facts of the metadata are None without an entry there.

    *objects*: sizes by kind as they are stored; None without a tier.
    """

    segment_id: str
    start_offset: int
    end_offset: int | None
    state: str | None
    bytes: int | None
    max_timestamp: int | None
    epochs: tuple[tuple[int, int], ...]
    txn_index_empty: bool | None
    custom_metadata: str | None
    broker: int | None
    role: str
    objects: Mapping[str, int] | None


@dataclass(frozen=True)
class PartitionListing:
    """A partition; offsets are None where no part of it shows them.  *remote_end_offset* is inclusive.

    *log_start_offset* … *log_end_offset*: of the local log.  *segments*: how many are not deleted; *deleted*: how many
    were.  *orphans*: segments with objects, but without an entry in the metadata; *entries_lost*: such ones whose entry
    may have been deleted or be unreadable, which are no orphans.  *holes*: ranges, with both ends.
    *damaged*: the ids of segments that are read, and lack an object or have a log of another size.
    """

    topic: str
    partition: int
    topic_id: str
    log_start_offset: int | None
    local_log_start_offset: int | None
    log_end_offset: int | None
    remote_start_offset: int | None
    remote_end_offset: int | None
    remote_bytes: int
    segments: int
    states: Mapping[str, int]
    deleted: int
    orphans: int
    entries_lost: int
    holes: tuple[tuple[int, int], ...]
    damaged: tuple[str, ...]
    verdict: RemoteVerdict
    segment_list: tuple[SegmentListing, ...]

    def hole_text(self, first: int, last: int) -> str:
        """Return a sentence about a hole: whether its offsets are gone, or in segments whose entries are lost."""
        starts = [(one.start_offset, one.role == ENTRY_LOST) for one in self.segment_list]
        return lost_entries_text(first, last, starts) or f"no segment has {offsets_text(first, last)}"


@dataclass(frozen=True)
class LocalLog:
    """The local log of a partition: its offsets, and the history of its leader epochs."""

    log_start_offset: int
    local_log_start_offset: int
    log_end_offset: int
    epochs: tuple[EpochEntry, ...]


@dataclass(frozen=True)
class RemoteFacts:
    """All that is known of a partition.

    *cache*: None if the metadata of the partition are not there; *known*: segments as their objects show them, for
    then.  *history*: epochs in the tier, for a partition without a local log.  *objects*: None without a tier.
    *is_unknown*: neither its events nor its objects are there to show what is remote.  *until_ms*: the cache is that
    of an earlier time, when the local log began earlier, and later objects were not there.  *lost*: the ids of segments
    without an entry that may have had one.
    """

    whose: TopicIdPartition
    cache: RemoteLogCache | None
    local: LocalLog | None
    objects: Mapping[str, TierSegment] | None
    layout: TierLayout | None = None
    known: Mapping[str, RemoteSegment] | None = None
    history: Sequence[EpochEntry] = ()
    is_unknown: bool = False
    until_ms: int | None = None
    lost: Collection[str] = ()

    def stored(self) -> list[TierSegment]:
        """Return the segments with objects; of an earlier time those whose objects were there."""
        every, until = (self.objects or {}).values(), self.until_ms
        return [one for one in every if until is None or one.modified_ms <= until]


def list_partition(facts: RemoteFacts) -> PartitionListing:
    """Return the listing of a partition."""
    cache = cache_of(facts.known or {}) if facts.cache is None else facts.cache
    local = facts.local
    epochs = local.epochs if local else facts.history or history_of(_finished(cache))
    links = list(chain(cache, epochs, local.log_start_offset if local else 0)) if epochs else []
    roles = _Roles(links, epochs, local)
    entries = [_entry(one, roles.of(one), facts) for one in cache.ordered()]
    unknown = [one for one in facts.stored() if one.segment_id not in cache.segments]
    entries += [_without_entry(one, facts) for one in unknown]
    missing = [] if facts.is_unknown else _holes(links, local if facts.until_ms is None else None)
    lost = sum(one.segment_id in facts.lost for one in unknown)
    orphans = len(unknown) - lost if facts.cache is not None else 0
    damaged = tuple(dict.fromkeys(one.segment.segment_id for one in links if _is_damaged(one.segment, facts)))
    states = Counter(one.state for one in entries if one.state is not None)
    return PartitionListing(
        *facts.whose,
        log_start_offset=local.log_start_offset if local else None,
        local_log_start_offset=local.local_log_start_offset if local else None,
        log_end_offset=local.log_end_offset if local else None,
        remote_start_offset=links[0].first if links else None,
        remote_end_offset=links[-1].last if links else None,
        remote_bytes=sum(one.size for one in _finished(cache)),
        segments=len(cache.segments) if facts.cache is not None else len(facts.objects or ()),
        states=dict(sorted(states.items())),
        deleted=cache.deleted,
        orphans=orphans,
        entries_lost=lost,
        holes=tuple(missing),
        damaged=damaged,
        verdict=_verdict(facts, (damaged, missing, orphans, lost or facts.is_unknown), is_remote=bool(links)),
        segment_list=tuple(sorted(entries, key=lambda one: (one.start_offset, one.segment_id))),
    )


def _finished(cache: RemoteLogCache) -> Iterable[RemoteSegment]:
    return [one for one in cache.segments.values() if one.state is SegmentState.COPY_SEGMENT_FINISHED]


class _Roles:
    """The part that each segment plays for readers of the partition."""

    def __init__(self, links: Sequence[ChainLink], epochs: Sequence[EpochEntry], local: LocalLog | None) -> None:
        self._serving = {one.segment.segment_id for one in links}
        self._epochs = epochs
        self._log_start = local.log_start_offset if local else 0
        self._log_end = local.log_end_offset if local else LONG_MAX

    def of(self, segment: RemoteSegment) -> str:
        """Return the role of a segment."""
        if segment.state is SegmentState.COPY_SEGMENT_STARTED:
            return "unfinished"
        if segment.state is SegmentState.DELETE_SEGMENT_STARTED:
            return "deleting"
        if segment.segment_id in self._serving:
            return "serves"
        if segment.end_offset < self._log_start:
            return "below-start"
        return "overlapped" if is_within_lineage(segment, self._epochs, self._log_end) else "dead"


def _entry(segment: RemoteSegment, role: str, facts: RemoteFacts) -> SegmentListing:
    found = None if facts.objects is None else facts.objects.get(segment.segment_id)
    has_entry = facts.cache is not None
    return SegmentListing(
        segment_id=segment.segment_id,
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        state=segment.state.name if has_entry else None,
        bytes=segment.size,
        max_timestamp=segment.max_timestamp,
        epochs=tuple((epoch, start) for epoch, start in segment.epochs),
        txn_index_empty=segment.txn_index_empty,
        custom_metadata=None if segment.custom_metadata is None else segment.custom_metadata.hex(),
        broker=segment.broker if has_entry else None,
        role=role,
        objects=None if facts.objects is None else _sizes(found),
    )


def _sizes(found: TierSegment | None) -> dict[str, int]:
    return {} if found is None else dict(sorted(found.sizes.items()))


def _without_entry(found: TierSegment, facts: RemoteFacts) -> SegmentListing:
    without = ENTRY_LOST if found.segment_id in facts.lost else "orphan"
    role = "unfinished" if facts.cache is None else without
    return SegmentListing(
        *(found.segment_id, found.start_offset, None, None, None, None, (), None, None, None, role, _sizes(found))
    )


def _holes(links: Sequence[ChainLink], local: LocalLog | None) -> list[tuple[int, int]]:
    """Return the offsets that neither tier has; without a local log only those between segments are known to lack."""
    if local is not None:
        return holes(links, local.log_start_offset, local.local_log_start_offset)
    return [(one.last + 1, after.first - 1) for one, after in pairwise(links) if after.first > one.last + 1]


def _verdict(facts: RemoteFacts, problems: Sequence[object], *, is_remote: bool) -> RemoteVerdict:
    for verdict, problem in zip(_PROBLEMS, problems, strict=True):
        if problem:
            return verdict
    if is_remote:
        return RemoteVerdict.REMOTE_ONLY if facts.local is None else RemoteVerdict.WHOLE
    return RemoteVerdict.WHOLE if facts.local is None else RemoteVerdict.LOCAL_ONLY


def _is_damaged(segment: RemoteSegment, facts: RemoteFacts) -> bool:
    """Whether a segment that serves lacks an object without which it is not read, or its log has another size."""
    if facts.objects is None:
        return False
    found = facts.objects.get(segment.segment_id)
    if found is None or facts.layout is None:
        return True
    if any(kind not in found.sizes for kind in facts.layout.needed):
        return True
    return facts.layout.name == LocalLayout.name and found.sizes[LOG] != segment.size
