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
    """The requested details of the record.

    *records*: decode it; otherwise a batch without gaps in its offsets is not decoded.  *origin*: the end of every JSON
    line of a record (`RecordOrigin.json`), None if no lines are requested.  *explains*: add notes about who can see it
    (transaction, high watermark).
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
    """The step in the offset index.

    *file* is None without an index, *slot* (from 0) if no entry is used: *offset* and *position* are then the segment's
    base offset and 0, as in a broker.  *probes*: the number of entries that the search read.  *warm_from*: the first
    slot of the warm section, None when the search left it.  *problem*: the reason why the index was not trusted.
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
    """The step in the time index.  The fields are those of IndexTrail; *timestamp* is ms, -1 if no entry is used.

    *largest* is the segment's largest timestamp in a broker, *by_mtime* whether that is the log's modification time,
    for lack of entries.
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
    """The walk from header to header: its start (bytes), and the number of batches read, the answer included."""

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
    the next one after a gap; None when there is none.  *record* is also None if it was not requested; *record_json* is
    its line in `klog dump --output jsonl`.  *notes* are sentences for an operator; *problems* describe faults of log or
    indexes: the answer is still right, but an operator should look.
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
        """The position of the batch from which a broker would read, in bytes; None without a result."""
        return self.batch.position if self.batch is not None and self.found else None


_FOUND = (LookupOutcome.RECORD, LookupOutcome.CONTROL, LookupOutcome.GAP)
