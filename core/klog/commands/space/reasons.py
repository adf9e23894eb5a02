"""Why a segment is still there, and when it goes: a function of values, without a disk.

    limits = RetentionLimits(deletes=True, retention_ms=3_600_000, retention_bytes=-1)
    judge_segments([SegmentAge(0, 2500, 1_763_000_000_000), …], limits, log_start=0, now_ms=1_763_003_600_001)

A broker looks at the segments from the front and stops at the first that is not due.  The high watermark, which a
leader also waits for, is not on the disk.  Kafka: UnifiedLog.deleteOldSegments, deletableSegments,
deleteRetentionMsBreachedSegments, deleteRetentionSizeBreachedSegments, deleteLogStartOffsetBreachedSegments.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from klog import kernel
from klog.formats.java_integers import LONG_MAX, LONG_MIN
from klog.partition.retention.first_pass import SegmentAge
from klog.partition.retention.policy import RetentionLimits


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
"""What a broker removes by itself, and what is not needed."""


class SegmentFate(NamedTuple):
    """Why a segment is there.  *due*: ms since the epoch when retention may take it, None: never, or not known.

    *because*: what else decides, such as the segment before it that is not due.
    """

    reason: Reason
    due: int | None = None
    because: str | None = None


_REASONS: Final = (
    Reason.ACTIVE,
    Reason.RETENTION_TIME,
    Reason.RETENTION_SIZE,
    Reason.RETENTION_DUE,
    Reason.BEHIND,
    Reason.FUTURE_TIMESTAMP,
    Reason.BELOW_LOG_START,
)
"""By the numbers of the kernel; the next one says that no retention decides."""
_CAUSES: Final = (
    None,
    "the log starts at offset {}",
    "retention.ms",
    "retention.bytes",
    "all of it is due: a broker rolls it, and deletes it at its next check",
    "segment {}",
    "segment {} goes later",
)


def judge_segments(
    segments: Sequence[SegmentAge], limits: RetentionLimits, log_start: int, now_ms: int
) -> list[SegmentFate | None]:
    """Return why each segment of a log is still there; None for one that no retention decides about.

    The last is the active one.  Without a limit by time or size, only the cleaner may remove it.
    """
    return [
        SegmentFate(_REASONS[reason], due, because and because.format(before)) if reason < len(_REASONS) else None
        for reason, due, cause, before in kernel.judge_segments(list(segments), _in_longs(limits, log_start, now_ms))
        for because in (_CAUSES[cause],)
    ]


def add_segments(
    rows: bytes, limits: RetentionLimits, log_start: int, now_ms: int
) -> tuple[int, int, int | None, int | None, dict[Reason, int]] | None:
    """Return what segments (rows of `DirectorySizes`) add up to, by what `judge_segments` says of them.

    Bytes, bytes occupied, oldest timestamp, when the first goes, bytes by reason.  None where the rows do not say it.
    """
    found = kernel.segment_sums(rows, _in_longs(limits, log_start, now_ms))
    if found is None:
        return None
    return *found[:4], {reason: size for reason, size in zip(_REASONS, found[4], strict=False) if size >= 0}


def _in_longs(limits: RetentionLimits, log_start: int, now_ms: int) -> tuple[bool, int, int, int, int]:
    return *limits, max(LONG_MIN, min(log_start, LONG_MAX)), max(LONG_MIN, min(now_ms, LONG_MAX))
