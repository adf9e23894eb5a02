"""The part of a log that can be cleaned, the first offset that cannot be cleaned yet, and the order of logs.

    found = examine(partition, Rules.of(settings, partition.topic), now_ms)
    if isinstance(found, Refusal):
        print(found)
    elif found.eligible:
        print(found.first_dirty, found.first_uncleanable, found.reason)

Offline the current high watermark is unknown: the one in the log dir's checkpoint counts, and the end of the log
without one.  Kafka: LogCleanerManager.grabFilthiestCompactedLog, calculateCleanableBytes, cleanableOffsets,
findFirstUncleanableSegment, maxCompactionDelay; LogToClean; UnifiedLog.lastStableOffset, lastRecordsOfActiveProducers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, NamedTuple

from klog.base.read_only import ReadOnlyFile
from klog.commands.compact.topic_rules import Refusal, TopicRules, damaged, refusal
from klog.data_dir.partition import Partition, SegmentFiles, segments_between
from klog.formats.damage import Damage
from klog.log.header_walk import header_at
from klog.log.index import largest_timestamp
from klog.log.log_end import LogEnd
from klog.partition.transactions.producer_replay import nearest_state, replay
from klog.partition.transactions.producer_state import ProducerState


class CleaningLimit(StrEnum):
    """The limits that keep a part of a log from being cleaned."""

    ACTIVE = "active segment"
    HIGH_WATERMARK = "high watermark"
    TRANSACTION = "open transaction"
    MIN_LAG = "min.compaction.lag.ms"


class CleaningBound(NamedTuple):
    """An offset from which on a log is not cleaned.

    *producer_id*: of an open transaction.  *timestamp_ms*: the largest of the segment that is too young, which begins
    at *offset*.
    """

    offset: int
    limit: CleaningLimit
    producer_id: int | None = None
    timestamp_ms: int | None = None

    def __str__(self) -> str:
        if self.limit is CleaningLimit.ACTIVE:
            return f"the active segment, from offset {self.offset}"
        if self.limit is CleaningLimit.HIGH_WATERMARK:
            return f"the high watermark, {self.offset}"
        if self.limit is CleaningLimit.TRANSACTION:
            return f"a transaction of producer {self.producer_id}, open since offset {self.offset}"
        return f"segment {self.offset}, too young by min.compaction.lag.ms"


class LastRecord(NamedTuple):
    """An active producer's last data record: its offset, None if unknown, and its epoch."""

    data_offset: int | None
    epoch: int


class ProducerBounds(NamedTuple):
    """The producers of a log.

    *active*: at its end, by producer id.  *transaction*: first offset and producer id of the earliest transaction that
    is open at the high watermark.
    """

    active: Mapping[int, LastRecord]
    transaction: tuple[int, int] | None


def find_producers(
    partition: Partition, high_watermark: int, now_ms: int, expiration_ms: int
) -> ProducerBounds | Refusal:
    """Follow the producers from the newest snapshot to the end of the log, and from an older one if necessary.

    A transaction whose marker is above the high watermark is open: a follower that is cut there loses the marker.
    Idle producers of the snapshot are forgotten, as a start forgets them; those behind it count, however old.
    Refused if there is damage in between.  Raises UnreadableError.
    """
    log_end = partition.log_end
    assert log_end is not None
    state = nearest_state(partition, log_end.offset)
    state.expire(now_ms, expiration_ms)
    before = state if state.end <= high_watermark else nearest_state(partition, high_watermark)
    damage = _follow(before, partition, high_watermark, log_end)
    open_there = before.ongoing.all()[:1]
    damage = damage or _follow(state, partition, log_end.offset, log_end)
    # One that began below the log's start is known from snapshots alone.
    open_still = tuple(txn for txn in state.ongoing.all()[:1] if txn[0] < high_watermark)
    if damage is not None:
        return damaged(partition, str(damage))
    active = {
        producer_id: LastRecord(entry.batches[-1].last_offset if entry.batches else None, entry.producer_epoch)
        for producer_id, entry in state.producers.items()
    }
    return ProducerBounds(active, min(open_there + open_still, default=None))


def _follow(state: ProducerState, partition: Partition, offset: int, log_end: LogEnd) -> Damage | None:
    """Bring *state* to *offset*; return the first damage on the way, except for a tail behind the log's end."""
    if state.end >= offset:
        return None
    active = partition.file(partition.segments[-1].log)
    for event in replay(state, partition.path, partition.segments, end=offset):
        if isinstance(event, Damage):
            place = event.place
            if place.file != active or place.position is None or place.position < log_end.position:
                return event
    return None


def too_young(
    partition: Partition, segments: Iterable[SegmentFiles], now_ms: int, min_lag_ms: int
) -> CleaningBound | None:
    """Return the first of *segments* that min.compaction.lag.ms keeps from being cleaned.  Raises UnreadableError."""
    if min_lag_ms <= 0:
        return None
    for files in segments:
        time_index = partition.file(files.time_index) if files.time_index is not None else None
        timestamp = largest_timestamp(partition.file(files.log), time_index)
        if timestamp > now_ms - min_lag_ms:
            return CleaningBound(files.base_offset, CleaningLimit.MIN_LAG, timestamp_ms=timestamp)
    return None


def overdue_ms(partition: Partition, segments: Iterable[SegmentFiles], now_ms: int, max_lag_ms: int) -> int:
    """Return by how much the oldest of *segments*, which are dirty, has been so for longer than max.compaction.lag.ms.

    0: not longer.  Raises UnreadableError.
    """
    limit = now_ms - max_lag_ms
    if limit <= 0:
        return 0
    timestamps = []
    for files in segments:
        with ReadOnlyFile(partition.file(files.log)) as source:
            first = header_at(source, 0)
        if first is not None and first.max_timestamp > 0:
            timestamps.append(first.max_timestamp)
    return max(limit - min(timestamps, default=limit), 0)


class DirtyStart(StrEnum):
    """The reason why a log is dirty from an offset on."""

    CHECKPOINT = "checkpoint"
    NO_CHECKPOINT = "no checkpoint"
    BELOW_START = "checkpoint below the log's start"
    BEYOND_END = "checkpoint beyond the log's end"
    ALL = "all"


class Eligibility(StrEnum):
    """Whether a log will be cleaned, and why."""

    DIRTY = "dirty ratio"
    OVERDUE = "max.compaction.lag.ms"
    ALL = "all"
    NOT_DIRTY = "not dirty enough"
    NOTHING = "nothing to clean"


_ELIGIBLE: Final = (Eligibility.DIRTY, Eligibility.OVERDUE, Eligibility.ALL)


class Section(NamedTuple):
    """A part of a log: the offsets from *first_offset* up to, not including, *end_offset*.

    *segments*: those that a broker counts to it.  One in which the cleaner stopped counts to two parts.
    """

    first_offset: int
    end_offset: int
    segments: tuple[SegmentFiles, ...]

    @property
    def bytes(self) -> int:
        """Bytes of the segments' logs."""
        return sum(segment.size for segment in self.segments)


@dataclass(frozen=True)
class LogSections:
    """A log before it is cleaned: clean | dirty | uncleanable | active.

    *first_dirty* may lie inside of a segment, or above the others.  *first_uncleanable* is a segment's base offset, the
    upper limit of the read part.  *checkpoint*: the cleaner's, None without one.  *high_watermark*: the checkpoint's,
    None without one, in which case the end of the log counts.  *bounds*: all of them, the lowest, which counts, first.
    *overdue_ms*: how long the log has been dirty beyond max.compaction.lag.ms, 0: it has not.  *producers*: the active
    ones at the end of the log, by id; none if only the active segment is dirty.
    """

    partition: Partition
    rules: TopicRules
    now_ms: int
    everything: bool
    log_start: int
    log_end: int
    first_dirty: int
    because: DirtyStart
    checkpoint: int | None
    high_watermark: int | None
    bounds: tuple[CleaningBound, ...]
    overdue_ms: int = 0
    producers: Mapping[int, LastRecord] = field(default_factory=dict)

    @property
    def first_uncleanable(self) -> int:
        """The base offset of the segment with the lowest bound, or the first dirty offset if that is above."""
        limit = max(self.first_dirty, self.bounds[0].offset)
        return (segments_between(self.partition.segments, limit, self._active_base) or self._active)[0].base_offset

    @property
    def _active(self) -> tuple[SegmentFiles, ...]:
        return self.partition.segments[-1:]

    @property
    def _active_base(self) -> int:
        return self._active[0].base_offset

    @property
    def clean(self) -> Section:
        """The part that was cleaned before; it is read and written again."""
        below = tuple(files for files in self.partition.segments if files.base_offset < self.first_dirty)
        return Section(self.log_start, self.first_dirty, below)

    @property
    def dirty(self) -> Section:
        """The part that can be cleaned."""
        first, end = self.first_dirty, self.first_uncleanable
        return Section(first, max(first, end), segments_between(self.partition.segments, first, end))

    @property
    def uncleanable(self) -> Section:
        """The part that the lowest bound excludes."""
        first = max(self.first_dirty, self.first_uncleanable)
        held = segments_between(self.partition.segments, self.first_uncleanable, self._active_base)
        return Section(first, max(first, self._active_base), held)

    @property
    def active(self) -> Section:
        """The segment that a broker appends to."""
        return Section(max(self.first_dirty, self._active_base), self.log_end, self._active)

    @property
    def dirty_ratio(self) -> float:
        """The dirty part of the bytes to read; 0 if there are none."""
        dirty = self.dirty.bytes
        return dirty / (self.clean.bytes + dirty) if dirty else 0.0

    @property
    def verdict(self) -> Eligibility:
        """Whether the log will be cleaned."""
        if not self.dirty.bytes:
            return Eligibility.NOTHING
        if self.everything:
            return Eligibility.ALL
        if self.dirty_ratio > self.rules.min_dirty_ratio.ratio:
            return Eligibility.DIRTY
        return Eligibility.OVERDUE if self.overdue_ms > 0 else Eligibility.NOT_DIRTY

    @property
    def eligible(self) -> bool:
        """Whether the log will be cleaned."""
        return self.verdict in _ELIGIBLE

    @property
    def reason(self) -> str:
        """The verdict in words, with its figures."""
        verdict, ratio, least = self.verdict, self.dirty_ratio, self.rules.min_dirty_ratio.ratio
        if verdict is Eligibility.NOTHING:
            return f"nothing is dirty below {self.bounds[0]}"
        if verdict is Eligibility.ALL:
            return "the complete log was requested"
        if verdict is Eligibility.OVERDUE:
            return f"dirty for {self.overdue_ms} ms longer than max.compaction.lag.ms"
        return f"dirty ratio {ratio:.4g}, {'' if verdict is Eligibility.DIRTY else 'not '}above {least:.4g}"


def examine(partition: Partition, rules: TopicRules, now_ms: int, *, everything: bool = False) -> LogSections | Refusal:
    """Return the part of *partition* that may be cleaned at *now_ms* (ms since the epoch).

    *everything*: ignore the cleaner's checkpoint and the dirty ratio, but not the bounds.  Raises UnreadableError.
    """
    refused = refusal(partition, rules)
    if refused is not None:
        return refused
    sections = _without_producers(partition, rules, now_ms, everything)
    if sections.first_dirty >= partition.segments[-1].base_offset:
        return sections  # whatever the producers do
    return _with_producers(sections)


def _without_producers(partition: Partition, rules: TopicRules, now_ms: int, everything: bool) -> LogSections:
    end, start, checkpoint = partition.log_end, partition.log_start_offset, partition.cleaner_offset
    assert end is not None
    assert start is not None
    active = partition.segments[-1].base_offset
    because = _because(checkpoint, start, end.offset, everything)
    first_dirty = checkpoint if because is DirtyStart.CHECKPOINT and checkpoint is not None else start
    known = partition.high_watermark
    above = segments_between(partition.segments, first_dirty, active)
    bounds = _sorted(
        CleaningBound(active, CleaningLimit.ACTIVE),
        None if known is None else CleaningBound(min(max(known, start), end.offset), CleaningLimit.HIGH_WATERMARK),
        too_young(partition, above, now_ms, rules.min_lag_ms.number),
    )
    late_ms = overdue_ms(partition, above, now_ms, rules.max_lag_ms.number)
    return LogSections(
        partition,
        rules,
        now_ms,
        everything,
        start,
        end.offset,
        first_dirty,
        because,
        checkpoint,
        known,
        bounds,
        late_ms,
    )


def _with_producers(sections: LogSections) -> LogSections | Refusal:
    partition, bounds = sections.partition, sections.bounds
    high_watermark = next(
        (bound.offset for bound in bounds if bound.limit is CleaningLimit.HIGH_WATERMARK), sections.log_end
    )
    found = find_producers(partition, high_watermark, sections.now_ms, sections.rules.producer_expiration_ms.number)
    if isinstance(found, Refusal):
        return found
    if found.transaction is not None:
        first, producer_id = found.transaction
        bounds = _sorted(*bounds, CleaningBound(max(first, sections.log_start), CleaningLimit.TRANSACTION, producer_id))
    return replace(sections, bounds=bounds, producers=found.active)


def _because(checkpoint: int | None, start: int, end: int, everything: bool) -> DirtyStart:
    if everything:
        return DirtyStart.ALL
    if checkpoint is None:
        return DirtyStart.NO_CHECKPOINT
    if checkpoint < start:
        return DirtyStart.BELOW_START
    return DirtyStart.BEYOND_END if checkpoint > end else DirtyStart.CHECKPOINT


_LIMITS: Final = tuple(CleaningLimit)


def _sorted(*bounds: CleaningBound | None) -> tuple[CleaningBound, ...]:
    there = [bound for bound in bounds if bound is not None]
    return tuple(sorted(there, key=lambda bound: (bound.offset, _LIMITS.index(bound.limit))))


def filthiest(found: Iterable[LogSections]) -> list[LogSections]:
    """Return the logs to clean, the highest dirty ratio first; equal ones by topic and number.

    A broker takes equal ones in the order of a hash map.
    """
    eligible = [sections for sections in found if sections.eligible]
    return sorted(eligible, key=lambda one: (-one.dirty_ratio, one.partition.topic or "", one.partition.number or 0))
