"""Which segments of both tiers become the log of one directory: `klog remote fetch` before it writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from klog.base.errors import KlogError, UsageError
from klog.cluster.remote_log.cache import RemoteLogCache
from klog.cluster.remote_log.events import RemoteSegment, TopicIdPartition
from klog.cluster.remote_log.lineage import history_of
from klog.cluster.remote_log.object_facts import cache_of, epoch_history, remote_segment
from klog.commands.remote.fetch_options import FetchOptions
from klog.commands.remote.partition_listing import RemoteFacts
from klog.commands.remote.sources import KAFKA_4, RemoteSources
from klog.data_dir.partition import Partition, SegmentFiles
from klog.formats.checkpoint import EpochEntry
from klog.formats.java_integers import LONG_MAX
from klog.formats.names import topic_is_legal
from klog.formats.remote_log import SegmentState
from klog.log.index import largest_timestamp
from klog.partition.tiered.tiered_log import RemoteSegmentPart, TieredLog
from klog.tier.tier import Tier
from klog.tier.tier_layout import TierSegment


class SegmentToFetch(NamedTuple):
    """A segment with the offsets *base* to below *end*, *size* bytes.

    *part*: of a remote one, with its *objects*, None if the tier has none.  *files*: of a local one.
    """

    base: int
    end: int
    size: int
    part: RemoteSegmentPart | None = None
    objects: TierSegment | None = None
    files: SegmentFiles | None = None


@dataclass(frozen=True)
class PartitionToFetch:
    """A partition, and its segments by base offset.  *root*: the log dir below the directory, "" for itself.

    *epochs*: its history.  *log_start*: its first offset.  *local*: its local log, None without one or if that is left
    out.  *holes*: the ranges that neither tier has.  *lost_entries*: sentences about those whose segments are there
    without entries.  *tells_txns*: the metadata show whether a segment has aborted transactions.
    """

    whose: TopicIdPartition
    root: str
    epochs: tuple[EpochEntry, ...]
    log_start: int
    segments: tuple[SegmentToFetch, ...]
    local: Partition | None = None
    holes: tuple[tuple[int, int], ...] = ()
    lost_entries: tuple[str, ...] = ()
    tells_txns: bool = True

    @cached_property
    def folder(self) -> str:
        """The directory of the partition below the directory."""
        return f"{self.root}/{self.whose}" if self.root else str(self.whose)


def plan_fetch(sources: RemoteSources, tier: Tier, options: FetchOptions) -> list[PartitionToFetch]:
    """Return the partitions with something to fetch.

    Raises UsageError for a segment that is not there, KlogError for two topics of one name, or a name that is none.
    """
    planned: list[PartitionToFetch] = []
    for whose in sources.partitions():
        if not topic_is_legal(whose.topic) or not 0 <= whose.number < 1 << 31:
            raise KlogError(f"{str(whose)[:80]!r}: no partition can have this name; choose others with --topic")
        facts = sources.facts(whose)
        if options.segment_ids:
            planned += _named(facts, tier, options.segment_ids)
        elif (one := _Plan(sources, facts, options).partition()) is not None:
            planned.append(one)
    _check(planned, options)
    return planned


def _check(planned: Sequence[PartitionToFetch], options: FetchOptions) -> None:
    known = {segment.part.segment.segment_id for one in planned for segment in one.segments if segment.part}
    for segment_id in options.segment_ids:
        if segment_id not in known:
            raise UsageError(f"--segment {segment_id}: no such segment; klog remote ls --segments lists them")
    seen: dict[str, PartitionToFetch] = {}
    for one in planned:
        other = seen.setdefault(one.folder, one)
        if other is not one:
            ids = f"{other.whose.topic_id} and {one.whose.topic_id}"
            raise KlogError(f"{one.whose} is two things: topics {ids}; --topic-id ID chooses one")


def _finished(cache: RemoteLogCache) -> list[RemoteSegment]:
    return [one for one in cache.segments.values() if one.state is SegmentState.COPY_SEGMENT_FINISHED]


class _Plan:
    """The segments of one partition that serve."""

    def __init__(self, sources: RemoteSources, facts: RemoteFacts, options: FetchOptions) -> None:
        self._sources, self._facts, self._options = sources, facts, options
        self._cache = facts.cache if facts.cache is not None else cache_of(facts.known or {})
        self._local = None if options.remote_only else sources.local_log(facts.whose)

    def partition(self) -> PartitionToFetch | None:
        """Return the plan; None without any segment."""
        log = self._log()
        remote = [self._remote(part) for part in log.parts()]
        every = [*remote, *self._local_segments()]
        asked = self._asked(every)
        chosen = tuple(one for one in every if asked is None or (one.base < asked[1] and one.end > asked[0]))
        if not chosen:
            return None
        first, end = (0, every[-1].end) if asked is None else asked
        first = max(log.log_start, min(first, chosen[0].base))
        end = max(chosen[-1].end, min(end, every[-1].end))
        cut = ((max(low, first), min(high, end - 1)) for low, high in log.holes())
        holes = tuple((low, high) for low, high in cut if low <= high)
        is_local_used = any(one.files is not None for one in chosen)
        return PartitionToFetch(
            self._facts.whose,
            "",
            log.epochs,
            first,
            chosen,
            self._local if is_local_used else None,
            holes,
            tuple(text for low, high in holes if (text := log.lost_entries_text(low, high)) is not None),
            self._sources.is_of_kafka_4(KAFKA_4),
        )

    def _log(self) -> TieredLog:
        local = self._facts.local
        finished = _finished(self._cache)
        epochs = (local.epochs if local else self._facts.history) or history_of(finished)
        start = local.log_start_offset if local else min((one.start_offset for one in finished), default=0)
        is_both = local is not None and self._local is not None
        local_start = local.local_log_start_offset if is_both and local else None
        lost = (self._facts.objects[one].start_offset for one in self._facts.lost) if self._facts.objects else ()
        return TieredLog(self._cache, tuple(epochs), start, local_start, lost)

    def _remote(self, part: RemoteSegmentPart) -> SegmentToFetch:
        segment = part.segment
        objects = (self._facts.objects or {}).get(segment.segment_id)
        return SegmentToFetch(segment.start_offset, min(part.end, segment.end_offset + 1), segment.size, part, objects)

    def _local_segments(self) -> Iterator[SegmentToFetch]:
        log = self._local
        if log is None:
            return
        end = log.log_end
        ends = [*(files.base_offset for files in log.segments[1:]), end.offset if end else LONG_MAX]
        for files, after in zip(log.segments, ends, strict=True):
            is_last = files is log.segments[-1]
            size = end.position if is_last and end is not None else files.size
            yield SegmentToFetch(files.base_offset, max(after, files.base_offset), size, files=files)

    def _asked(self, every: Sequence[SegmentToFetch]) -> tuple[int, int] | None:
        """Return the range of offsets that the options name, the end exclusive; None without one."""
        options = self._options
        log_end = every[-1].end if every else 0
        first, end = options.from_offset, options.to_offset
        first = first + log_end if first is not None and first < 0 else first
        end = end + log_end if end is not None and end < 0 else end
        if options.from_time is not None:
            time = options.from_time
            first = max(first or 0, next((one.base for one in every if self._largest(one) >= time), LONG_MAX))
        if options.to_time is not None:
            time = options.to_time
            end = min(
                LONG_MAX if end is None else end,
                next((one.end for one in every if self._largest(one) >= time), LONG_MAX),
            )
        return None if first is None and end is None else (first or 0, LONG_MAX if end is None else end)

    def _largest(self, one: SegmentToFetch) -> int:
        if one.part is not None:
            return one.part.segment.max_timestamp
        assert one.files is not None
        assert self._local is not None
        names = [None if name is None else self._local.file(name) for name in (one.files.log, one.files.time_index)]
        return largest_timestamp(names[0] or "", names[1])


def _named(facts: RemoteFacts, tier: Tier, segment_ids: Sequence[str]) -> Iterator[PartitionToFetch]:
    """Yield a plan for each named segment of the partition, whatever part it plays."""
    for segment_id in dict.fromkeys(segment_ids):
        objects = (facts.objects or {}).get(segment_id)
        entry = facts.cache.segments.get(segment_id) if facts.cache is not None else None
        if entry is None and objects is not None:
            entry = (facts.known or {}).get(segment_id) or remote_segment(tier, objects)
            if entry is None:
                raise KlogError(f"segment {segment_id}: its objects are not all there, and no entry has its offsets")
        if entry is not None:
            yield _alone(facts.whose, tier, entry, objects)


def _alone(whose: TopicIdPartition, tier: Tier, entry: RemoteSegment, objects: TierSegment | None) -> PartitionToFetch:
    stored = [] if objects is None else epoch_history(tier, [objects], {entry.segment_id: entry})
    part = RemoteSegmentPart(entry, LONG_MAX)
    segment = SegmentToFetch(entry.start_offset, entry.end_offset + 1, entry.size, part, objects)
    epochs = tuple(one for one in stored if one.start_offset <= entry.end_offset) or entry.epochs
    return PartitionToFetch(whose, entry.segment_id, epochs, entry.start_offset, (segment,))


def epochs_between(epochs: Sequence[EpochEntry], first: int, end: int) -> list[EpochEntry]:
    """Return the epochs of a log with the offsets *first* to below *end*.  Kafka: LeaderEpochFileCache."""
    own = [EpochEntry(one.epoch, first) for one in epochs if one.start_offset <= first][-1:]
    return own + [one for one in epochs if first < one.start_offset < end]
