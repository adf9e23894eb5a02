"""Lookups done slowly: every byte of every segment read by the plain decoder, no index looked at."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path

from tests.oracles.plain import decode


@dataclass(frozen=True)
class SlowSegment:
    """A segment's intact batches; *modified_ms* is when its log was."""

    base_offset: int
    modified_ms: int
    batches: tuple[decode.Batch, ...]
    is_damaged: bool

    @property
    def largest(self) -> int:
        """The largest timestamp of it in a broker: that of a batch, or else the log's modification time."""
        known = max((batch.max_timestamp for batch in self.batches), default=-1)
        return known if known >= 0 else self.modified_ms


@dataclass(frozen=True)
class Answer:
    """A record and where its batch is."""

    segment: int
    position: int
    record: decode.Record


class SlowPartition:
    """All of a partition; *start* is its log start offset."""

    def __init__(self, folder: Path, start: int = 0) -> None:
        self.start = start
        self.segments = [slow_segment(path) for path in sorted(folder.glob("*.log")) if path.stem.isdigit()]

    @property
    def is_damaged(self) -> bool:
        return any(segment.is_damaged for segment in self.segments)

    @property
    def last(self) -> int:
        """The last offset of any intact batch, that before the first segment for none."""
        ends = [batch.last_offset for segment in self.segments for batch in segment.batches]
        return max(ends, default=self.segments[0].base_offset - 1)

    def batch_of(self, offset: int) -> tuple[int, int] | None:
        """Return segment and position of the first batch that reaches *offset*, from its segment on."""
        floor = max((segment.base_offset for segment in self.segments if segment.base_offset <= offset), default=None)
        if floor is None or offset < self.start:
            return None
        for segment in self.segments:
            for batch in segment.batches if segment.base_offset >= floor else ():
                if batch.last_offset >= offset:
                    return segment.base_offset, batch.position
        return None

    def record(self, offset: int) -> Answer | None:
        """Return the record with *offset*."""
        return next((answer for answer in self._records if answer.record.offset == offset >= self.start), None)

    def following(self, offset: int) -> Answer | None:
        """Return the first record from *offset* on."""
        return next((answer for answer in self._records if answer.record.offset >= offset), None)

    def as_late(self, timestamp: int) -> Answer | None:
        """Return the first record with that timestamp or a later one, wherever it is."""
        return next((answer for answer in self._records if self._fits(answer.record, timestamp)), None)

    def as_late_by_the_rule(self, timestamp: int) -> Answer | None:
        """Return a broker's answer: it looks only into the first segment whose largest timestamp is as late."""
        chosen = next((segment for segment in self.segments if segment.largest >= timestamp), None)
        found = (answer for answer in self._records if chosen and answer.segment == chosen.base_offset)
        return next((answer for answer in found if self._fits(answer.record, timestamp)), None)

    def _fits(self, record: decode.Record, timestamp: int) -> bool:
        return record.timestamp >= timestamp and record.offset >= self.start

    @functools.cached_property
    def _records(self) -> list[Answer]:
        """Every record of the partition; they are listed once, and looked through for each question."""
        return [
            Answer(segment.base_offset, batch.position, record)
            for segment in self.segments
            for batch in segment.batches
            for record in batch.records
        ]


def slow_segment(path: Path) -> SlowSegment:
    base = int(path.stem)
    found = list(decode.scan(path.read_bytes(), offsets=range(base, base + 2**31)))
    batches = tuple(one for one in found if isinstance(one, decode.Batch))
    return SlowSegment(base, os.stat(path).st_mtime_ns // 1_000_000, batches, len(batches) < len(found))
