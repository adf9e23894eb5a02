"""Checks `.index`, `.timeindex` and `.txnindex` against the log.

Correct lookups need an entry to point at the beginning of a batch, behind all batches below its offset; the density of
entries is free (followers and the cleaner write fewer).  An exact entry is one that a broker would write: it has the
position of an append, and its last offset; brokers before 1.1 take the first.  A time index entry has the timestamp of
a batch, and the batch's last offset; brokers before 3.8 may take that of the record which has the timestamp.
"""

from __future__ import annotations

from klog.base.errors import KlogError, time_text
from klog.formats.batch import Attributes
from klog.formats.damage import Damage
from klog.formats.index import ABORTED_TXN, OFFSET_ENTRY, TIME_ENTRY
from klog.formats.layout import Layout
from klog.formats.names import PartitionState
from klog.log.index import AbortedTxn, read_txn_index
from klog.log.segment import Batch, Segment
from klog.partition.verify.findings import Findings, PartitionFacts
from klog.partition.verify.segment_pass import IndexFile, SegmentFacts


def txn_index(facts: PartitionFacts) -> Findings:
    """Yield the faults of transaction indexes themselves, and of the positions of their entries."""
    for segment in facts.segments:
        name = segment.files.txn_index
        if name is None:
            continue
        try:
            entries, size = read_txn_index(facts.partition.path, name)
        except KlogError as error:
            yield facts.finding("unreadable", str(error), name)
            continue
        if size % ABORTED_TXN.size:
            message = f"{size} bytes, not a multiple of {ABORTED_TXN.size}"
            yield facts.finding("txn-index-ragged", message, name, size - size % ABORTED_TXN.size)
        yield from _entries(facts, name, entries, segment.files.base_offset, segment.survey.next_base)


def _entries(facts: PartitionFacts, name: str, entries: list[AbortedTxn], base: int, next_base: int) -> Findings:
    last = base - 1
    for slot, entry in enumerate(entries):
        at = slot * ABORTED_TXN.size
        if entry.version != 0:
            yield facts.finding("txn-index-version", f"entry {slot} is of version {entry.version}", name, at)
            return
        inside = base <= entry.last_offset < next_base and 0 <= entry.first_offset <= entry.last_offset
        if not inside or entry.last_offset <= last:
            message = f"entry {slot} is for offsets {entry.first_offset}–{entry.last_offset}"
            yield facts.finding("txn-index-order", message, name, at, entry.last_offset)
        last = max(last, entry.last_offset)


_SPARSE_BYTES = 4 << 20
"""An index of even the laziest follower has an entry for so much log."""


def offset_index(facts: PartitionFacts) -> Findings:
    """Yield the faults of offset indexes."""
    for segment in facts.segments:
        yield from offset_index_of(facts, segment)


def offset_index_of(facts: PartitionFacts, segment: SegmentFacts) -> Findings:
    """Yield the faults of a segment's offset index."""
    index = segment.offset_index
    if index is not None:
        yield from _shape(facts, segment, index, OFFSET_ENTRY, "")
        yield from _offset_entries(facts, segment, index)
    elif facts.is_current and not (facts.log_dir.live and facts.is_active(segment)):
        yield facts.finding("index-missing", "lookups in this segment read from its start", segment.files.log)


def time_index(facts: PartitionFacts) -> Findings:
    """Yield the faults of time indexes."""
    for segment in facts.segments:
        yield from time_index_of(facts, segment)


def time_index_of(facts: PartitionFacts, segment: SegmentFacts) -> Findings:
    """Yield the faults of a segment's time index."""
    index = segment.time_index
    is_new = facts.log_dir.live and facts.is_active(segment)  # a broker makes them when it first needs them
    if index is not None:
        yield from _shape(facts, segment, index, TIME_ENTRY, "time-")
        yield from _time_entries(facts, segment, index)
    elif segment.survey.max_timestamp >= 0 and facts.is_current and not is_new:
        message = "the modification time of the log decides for it"
        yield facts.finding("time-index-missing", message, segment.files.log)


def _shape(facts: PartitionFacts, segment: SegmentFacts, index: IndexFile, layout: Layout, prefix: str) -> Findings:
    """Judge an index file without the log."""
    at = index.used * layout.size
    if index.problem is not None:
        yield facts.finding("unreadable", index.problem, index.name)
    elif index.size % layout.size:
        message = f"{index.size} bytes, not a multiple of {layout.size}"
        yield facts.finding(f"{prefix}index-ragged", message, index.name, index.size - index.size % layout.size)
    if index.hole is not None:
        message = f"entry {index.used} is zeros, and there are others behind it"
        yield facts.finding(f"{prefix}index-hole", message, index.name, at)
    elif index.why == "order":
        yield facts.finding(f"{prefix}index-order", f"entry {index.used} does not ascend", index.name, at)
    elif index.why == "zeros" and not _may_be_preallocated(facts, segment):
        message = f"{index.size - at} bytes of zeros after {index.used} {'entry' if index.used == 1 else 'entries'}"
        yield facts.finding(f"{prefix}index-zero-tail", message, index.name, at)


def _may_be_preallocated(facts: PartitionFacts, segment: SegmentFacts) -> bool:
    """Whether a broker can have left the index at its full length: it is cut when segment or broker are closed."""
    if facts.partition.state in (PartitionState.DELETE, PartitionState.STRAY):
        return True
    return facts.is_active(segment) and (facts.log_dir.live or not facts.log_dir.clean)


def _offset_entries(facts: PartitionFacts, segment: SegmentFacts, index: IndexFile) -> Findings:
    """Judge the entries against the log."""
    base = segment.files.base_offset
    for event, position, slot, offset in segment.survey.events:
        if event in ("index no batch", "index skips"):
            what = "no batch begins there" if event == "index no batch" else "the batch there is not the one"
            message = f"entry {slot} leads from offset {offset} to position {position}: {what}"
            yield facts.finding("index-disagrees", message, index.name, slot * OFFSET_ENTRY.size, offset)
    if index.why == "beyond":
        message = f"entry {index.used} leads beyond the {segment.size} bytes of the log"
        yield facts.finding("index-beyond-log", message, index.name, index.used * OFFSET_ENTRY.size)
    last = OFFSET_ENTRY.read(index.entries[-OFFSET_ENTRY.size :]) if index.used else (0, 0)
    if index.used and not segment.damages and base + last[0] >= segment.end_offset:
        message = f"the last entry is about offset {base + last[0]}, the segment ends before {segment.end_offset}"
        yield facts.finding(
            "index-disagrees", message, index.name, (index.used - 1) * OFFSET_ENTRY.size, base + last[0]
        )
    if index.why == "end" and segment.survey.end - last[1] > _SPARSE_BYTES:
        message = f"no entry for the {segment.survey.end - last[1]} bytes from position {last[1]} on"
        yield facts.finding("index-sparse", message, index.name)
    wrong = {slot for event, _, slot, _ in segment.survey.events if event in ("index no batch", "index skips")}
    for event, _, slot, offset in segment.survey.events:
        if event == "index inexact" and slot not in wrong and not _is_disordered(segment):
            message = f"entry {slot} is about offset {offset}, with which no batch ends"
            yield facts.finding("index-inexact", message, index.name, slot * OFFSET_ENTRY.size, offset)


def _is_disordered(segment: SegmentFacts) -> bool:
    """Whether offsets of batches cannot be right, so that an entry cannot be compared with them."""
    return any(event[0] in ("odd offset", "backwards", "overflow") for event in segment.survey.events)


def _time_entries(facts: PartitionFacts, segment: SegmentFacts, index: IndexFile) -> Findings:
    survey, base = segment.survey, segment.files.base_offset
    for event, position, slot, largest in survey.events:
        if event == "time misses":
            message = (
                f"entry {slot} is below timestamp {largest} of the batch at position {position}, which comes before it"
            )
            yield facts.finding("time-index-disagrees", message, index.name, slot * TIME_ENTRY.size)
        elif event == "time unreached":
            message = f"entry {slot} is above every timestamp up to its offset; the largest is {largest}"
            yield facts.finding("time-index-ahead", message, index.name, slot * TIME_ENTRY.size)
    timestamp, relative = TIME_ENTRY.read(index.entries[-TIME_ENTRY.size :])[:2] if index.used else (-1, 0)
    at = max(index.used - 1, 0) * TIME_ENTRY.size
    if index.used and base + relative >= segment.end_offset and not segment.damages:
        message = f"the last entry is about offset {base + relative}, the segment ends before {segment.end_offset}"
        yield facts.finding("time-index-beyond-log", message, index.name, at, base + relative)
    is_short = index.why == "end" and timestamp < survey.max_timestamp and facts.is_current
    if is_short and (facts.log_dir.clean or not facts.is_active(segment)):
        ends = f"ends at {time_text(timestamp)}" if timestamp >= 0 else "has no entry"
        message = f"{ends}, the segment's largest timestamp is {time_text(survey.max_timestamp)}"
        yield facts.finding("time-index-short", message, index.name, at, survey.max_timestamp_offset)
    yield from _inexact_times(facts, segment, index)


def _inexact_times(facts: PartitionFacts, segment: SegmentFacts, index: IndexFile) -> Findings:
    events = segment.survey.events
    wrong = {slot for event, _, slot, _ in events if event in ("time misses", "time unreached")}
    for event, position, slot, offset in events:
        log = facts.partition.file(segment.files.log)
        is_inside = event == "time inside" and not _has_timestamp(log, position, offset)
        if (is_inside or event == "time inexact") and slot not in wrong and not _is_disordered(segment):
            message = (
                f"entry {slot} is about offset {offset}: no batch ends there, and no record there has its timestamp"
            )
            yield facts.finding("index-inexact", message, index.name, slot * TIME_ENTRY.size, offset)


def _has_timestamp(log: str, position: int, offset: int) -> bool:
    """Whether the record at *offset* has the largest timestamp of the batch at *position*; True if that is unknown.

    All records of a batch with LogAppendTime have it; brokers take the last offset or the first.
    """
    try:
        batch = next(Segment(log, bounded=False).batches(position), None)
    except KlogError:
        return True
    if not isinstance(batch, Batch):
        return True  # a running broker may have replaced it
    if batch.attributes & Attributes.LOG_APPEND_TIME:
        return offset == batch.base_offset
    return any(
        isinstance(record, Damage) or (record.offset == offset and record.timestamp == batch.max_timestamp)
        for record in batch.records()
    )
