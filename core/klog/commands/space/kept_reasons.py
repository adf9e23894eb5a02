"""The reason why a segment is still there, and the time of its removal: a function of values, without a disk.

    limits = RetentionLimits(deletes=True, retention_ms=3_600_000, retention_bytes=-1)
    judge_segments([SegmentAge(0, 2500, 1_763_000_000_000), …], limits, log_start=0, now_ms=1_763_003_600_001)

A broker checks the segments from the front and stops at the first that is not due.  The high watermark, which a leader
also waits for, is not on the disk.  Kafka: UnifiedLog.deleteOldSegments, deletableSegments,
deleteRetentionMsBreachedSegments, deleteRetentionSizeBreachedSegments, deleteLogStartOffsetBreachedSegments.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from klog.formats.java_integers import LONG_MAX
from klog.partition.retention.first_pass import (
    BY_BYTES,
    BY_MS,
    BY_START,
    DueSegment,
    RetentionLimits,
    SegmentAge,
    due_segments,
)


class Reason(StrEnum):
    """Why bytes are still there: the closed set.  A segment has the first that holds."""

    ACTIVE = "active"
    RETENTION_TIME = "retention-time"
    RETENTION_SIZE = "retention-size"
    RETENTION_DUE = "retention-due"
    BEHIND = "behind"
    FUTURE_TIMESTAMP = "future-timestamp"
    UNLIMITED = "unlimited"
    COMPACTED = "compacted"
    DIRTY = "dirty"
    UNCLEANABLE = "uncleanable"
    OPEN_TRANSACTION = "open-transaction"
    BELOW_LOG_START = "below-log-start"
    DELETING = "deleting"
    STRAY = "stray"
    FUTURE = "future"
    LEFTOVER = "leftover"
    METADATA = "metadata"
    REMOTE = "remote"


RECLAIMABLE = (Reason.RETENTION_DUE, Reason.BELOW_LOG_START, Reason.DELETING, Reason.STRAY, Reason.LEFTOVER)
"""The parts that a broker removes without a command, and unneeded ones."""


class SegmentFate(NamedTuple):
    """The reason of a segment.  *due*: ms since the epoch when retention may take it, None: never, or unknown.

    *because*: the other fact that decides, such as the segment before it that is not due.
    """

    reason: Reason
    due: int | None = None
    because: str | None = None


def judge_segments(
    segments: Sequence[SegmentAge], limits: RetentionLimits, log_start: int, now_ms: int
) -> list[SegmentFate | None]:
    """Return why each segment of a log is still there; None for one that no retention decides about.

    The last is the active one.  Without a limit by time or size, only the cleaner may remove it.
    """
    by_time = limits.deletes and limits.retention_ms >= 0
    by_size = limits.deletes and limits.retention_bytes >= 0
    due = due_segments(segments, limits, log_start, now_ms)
    fates: list[SegmentFate | None] = []
    last: SegmentAge | None = None  # of the segments so far that are not due, the one that is deleted last
    for at, one in enumerate(segments):
        date = min(one.largest_timestamp + limits.retention_ms, LONG_MAX) if by_time else None
        if at == len(segments) - 1:
            fates.append(_of_active(one, date, last, len(due) == len(segments)))
        elif at < len(due):
            fates.append(_of_due(due[at], date, log_start, now_ms))
        elif date is not None:
            fates.append(_by_time(one, date, now_ms, last))
        else:
            fates.append(SegmentFate(Reason.RETENTION_SIZE) if by_size else None)
        if at >= len(due) and (last is None or one.largest_timestamp > last.largest_timestamp):
            last = one
    return fates


def _of_due(one: DueSegment, date: int | None, log_start: int, now_ms: int) -> SegmentFate:
    """Return the first reason that holds: an old segment has its age as reason, whatever else deletes it."""
    is_old = date is not None and now_ms > date
    if one.rule == BY_START and not is_old:
        return SegmentFate(Reason.BELOW_LOG_START, None, f"the log starts at offset {log_start}")
    return SegmentFate(Reason.RETENTION_DUE, date, BY_MS if is_old else BY_BYTES)


def _of_active(one: SegmentAge, date: int | None, last: SegmentAge | None, all_due: bool) -> SegmentFate:
    if not one.bytes:
        return SegmentFate(Reason.ACTIVE)
    if all_due:
        return SegmentFate(Reason.ACTIVE, date, "all of it is due: a broker rolls it, and deletes it at its next check")
    if date is None or last is None or last.largest_timestamp <= one.largest_timestamp:
        return SegmentFate(Reason.ACTIVE, date)
    return SegmentFate(Reason.ACTIVE, _date_of(last, one, date), f"segment {last.base_offset} is deleted later")


def _by_time(one: SegmentAge, date: int, now_ms: int, last: SegmentAge | None) -> SegmentFate:
    """Judge a segment that stays, by its *date* and the *last* one before it that stays."""
    if last is not None and now_ms > date:
        return SegmentFate(Reason.BEHIND, _date_of(last, one, date), f"segment {last.base_offset}")
    reason = Reason.FUTURE_TIMESTAMP if one.largest_timestamp > now_ms else Reason.RETENTION_TIME
    if last is None or last.largest_timestamp <= one.largest_timestamp:
        return SegmentFate(reason, date)
    return SegmentFate(reason, date, f"segment {last.base_offset} is deleted later")


def _date_of(last: SegmentAge, one: SegmentAge, date: int) -> int:
    """Return when *last* is deleted, by the *date* of *one*."""
    return min(date - one.largest_timestamp + last.largest_timestamp, LONG_MAX)
