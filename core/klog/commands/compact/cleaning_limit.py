"""The first offset of a log that cannot be cleaned yet, and the producers at its end.

Kafka: LogCleanerManager.cleanableOffsets, findFirstUncleanableSegment, maxCompactionDelay; UnifiedLog.lastStableOffset,
lastRecordsOfActiveProducers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from klog.base.read_only import ReadOnlyFile
from klog.commands.compact.rules import Refusal, damaged
from klog.data_dir.partition import Partition, SegmentFiles
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
