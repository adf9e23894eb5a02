"""The trail of a search: each step as a value, from the segment to the record."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from klog.formats.record import Record


class LookupOutcome(StrEnum):
    """The closed set of ways in which a search can end."""

    RECORD = "record"
    CONTROL = "control"
    GAP = "gap"
    AT_END = "at end"
    BEYOND_END = "beyond end"
    BELOW_START = "below start"
    NOTHING_SO_LATE = "nothing so late"
    DAMAGED = "damaged"


class TrailDetail(NamedTuple):
    """What a trail is to say of the record.

    *records*: it is decoded; without that a batch without gaps in its offsets is not looked into.  *origin*: what every
    JSON line of a record ends with (`RecordOrigin.json`), None when no lines are wanted.  *explains*: notes
    say who can see it (transaction, high watermark).
    """

    records: bool = True
    origin: bytes | None = None
    explains: bool = True


class SegmentTrail(NamedTuple):
    """The segment that was chosen: the last of *segments* whose base offset is not above the offset.

    *next_base_offset* is None for the last segment.
    """

    file: str
    base_offset: int
    next_base_offset: int | None
    segments: int


class IndexTrail(NamedTuple):
    """What the offset index said.

    *file* is None when there is none, *slot* (from 0) when no entry is used: then *offset* and *position* are the
    segment's base offset and 0, as for a broker.  *probes*: entries that the search looked at.  *warm_from*: the first
    slot of the warm section, None when the search left it.  *problem*: why the index could not be believed.
    """

    file: str | None
    slot: int | None
    entries: int
    offset: int
    position: int
    probes: int = 0
    warm_from: int | None = None
    problem: str | None = None


class TimeIndexTrail(NamedTuple):
    """What the time index said.  As IndexTrail; *timestamp* is ms, -1 when no entry is used.

    *largest* is the segment's largest timestamp as a broker knows it, *by_mtime* whether that is the log's modification
    time, for want of entries.
    """

    file: str | None
    slot: int | None
    entries: int
    timestamp: int
    offset: int
    probes: int = 0
    warm_from: int | None = None
    largest: int = -1
    by_mtime: bool = False
    problem: str | None = None


class ScanTrail(NamedTuple):
    """The walk from header to header: where it began (bytes), and how many batches it read, the answer included."""

    position: int
    batches: int


class BatchTrail(NamedTuple):
    """The batch that the search found.  *position* and *size* are bytes."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    crc_holds: bool
    codec: str


class Trail(NamedTuple):
    """A search and its answer.

    *target* is the requested offset, or with *by_time* the timestamp (ms).  *offset* is that of the record found, or of
    the next one after a gap; None when there is none.  *record* is also None if it was not requested;
    *record_json* is its line in `klog dump --output jsonl`.  *notes* say in words what an operator should know;
    *problems* what is wrong with log or indexes: with any of them the answer is right, but an operator should look.
    """

    target: int
    by_time: bool
    outcome: LookupOutcome
    offset: int | None = None
    segment: SegmentTrail | None = None
    time_index: TimeIndexTrail | None = None
    offset_index: IndexTrail | None = None
    scan: ScanTrail | None = None
    batch: BatchTrail | None = None
    record: Record | None = None
    record_json: bytes | None = None
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def found(self) -> bool:
        """Whether there is an answer: the record, a marker in its place, or the next one after a gap."""
        return self.outcome in _FOUND and self.batch is not None

    @property
    def position(self) -> int | None:
        """Where the batch begins that a broker would read from, in bytes; None when nothing was found."""
        return self.batch.position if self.batch is not None and self.found else None


_FOUND = (LookupOutcome.RECORD, LookupOutcome.CONTROL, LookupOutcome.GAP)
