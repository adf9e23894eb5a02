"""The limits of a topic, and the segments that a broker's first retention pass removes, half a minute after its start.

    limits = RetentionLimits(deletes=True, retention_ms=3_600_000, retention_bytes=-1)
    due_segments([SegmentAge(0, 2500, 1_763_000_000_000), …], limits, log_start=0, now_ms=1_763_003_600_001)

Segments are checked from the front: first by the log start, then by size, then by time; each rule stops at the first
segment that it keeps.  The active segment is removed as well if all before it are due and it is: the broker rolls it
first.  Kafka: UnifiedLog.deleteOldSegments, deletableSegments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

from klog.cluster.metadata.topic_config import Setting, TopicConfig

_SETTINGS: Final = ("cleanup.policy", "retention.ms", "retention.bytes", "remote.storage.enable")
_LOCAL_SETTINGS: Final = ("local.retention.ms", "local.retention.bytes")


class RetentionLimits(NamedTuple):
    """The limits of a topic: ms and bytes, -1 for none.  *deletes*: its cleanup.policy has `delete`."""

    deletes: bool
    retention_ms: int
    retention_bytes: int


class TopicRetention(NamedTuple):
    """The settings that decide about a topic's segments.  *settings*: by name, with their origins.

    *is_known*: the settings of the topic itself are known.  *knows_file*: the broker's `server.properties` is known,
    too.
    """

    limits: RetentionLimits
    compacts: bool
    is_remote: bool
    settings: Mapping[str, Setting]
    is_known: bool = True
    knows_file: bool = False


def topic_retention(topics: TopicConfig, topic: str | None) -> TopicRetention:
    """Return the settings that apply to the segments of *topic*; None: a directory whose name has no topic."""
    settings = {name: topics.value(topic, name) for name in _SETTINGS}
    policy, retention_ms, retention_bytes, remote = settings.values()
    is_remote = remote.flag
    if is_remote:
        local = {name: topics.value(topic, name) for name in _LOCAL_SETTINGS}
        settings |= local
        # -2: the topic's own.  Kafka: UnifiedLog.localRetentionMs, localRetentionSize.
        retention_ms, retention_bytes = (
            whole if part.number == -2 else part
            for whole, part in zip((retention_ms, retention_bytes), local.values(), strict=True)
        )
    limits = RetentionLimits("delete" in policy.words, retention_ms.number, retention_bytes.number)
    compacts = "compact" in policy.words
    return TopicRetention(limits, compacts, is_remote, settings, topics.is_known(topic), topics.knows_file)


BY_START, BY_BYTES, BY_MS, BY_POLICY = "log start", "retention.bytes", "retention.ms", "cleanup.policy"


class AgedSegment(Protocol):
    """The facts about a segment that decide.  *bytes*: of its log.  *largest_timestamp*: ms, as in a broker."""

    @property
    def base_offset(self) -> int:
        """The first offset that it may have."""

    @property
    def bytes(self) -> int:
        """The bytes of its log."""

    @property
    def largest_timestamp(self) -> int:
        """Its largest timestamp, ms, as a broker takes it.  Raises UnreadableError."""


class SegmentAge(NamedTuple):
    """An `AgedSegment` whose values are known."""

    base_offset: int
    bytes: int
    largest_timestamp: int


class DueSegment(NamedTuple):
    """A segment that the first pass removes.  *rule*: BY_START, BY_BYTES or BY_MS."""

    base_offset: int
    bytes: int
    rule: str


def due_segments(
    segments: Sequence[AgedSegment], limits: RetentionLimits, log_start: int, now_ms: int
) -> list[DueSegment]:
    """Return those of *segments*, base offsets ascending, that the first pass removes, in their order.

    A segment's timestamp is read only if it decides.  Raises UnreadableError.
    """
    below = [one for one, behind in pairwise(segments) if behind.base_offset <= log_start]
    due = [DueSegment(one.base_offset, one.bytes, BY_START) for one in below]
    if limits.deletes and limits.retention_bytes >= 0:
        due += _by_size(_left(segments, due), limits.retention_bytes)
    if limits.deletes and limits.retention_ms >= 0:
        due += _by_time(_left(segments, due), now_ms - limits.retention_ms)
    return due


def _left(segments: Sequence[AgedSegment], due: Sequence[DueSegment]) -> Sequence[AgedSegment]:
    """Return the segments behind *due*; without an active one that has no batches, which always stays."""
    left = segments[len(due) :]
    return left if not left or left[-1].bytes else left[:-1]


def _by_size(segments: Sequence[AgedSegment], most_bytes: int) -> Iterator[DueSegment]:
    """Yield the segments without which the others still have *most_bytes*."""
    excess = sum(one.bytes for one in segments) - most_bytes
    for one in segments if excess >= 0 else ():
        excess -= one.bytes
        if excess < 0:
            return
        yield DueSegment(one.base_offset, one.bytes, BY_BYTES)


def _by_time(segments: Sequence[AgedSegment], oldest_ms: int) -> Iterator[DueSegment]:
    """Yield the segments all of whose records are older than *oldest_ms*, up to the first that is not."""
    for one in segments:
        if one.largest_timestamp >= oldest_ms:
            return
        yield DueSegment(one.base_offset, one.bytes, BY_MS)
