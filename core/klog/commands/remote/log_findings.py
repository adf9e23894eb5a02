"""Turns the facts of a pass over a remote log and its indexes into findings, as `klog verify` does for local ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from klog.commands.remote.remote_findings import RemoteFinding
from klog.commands.remote.segment_check import SegmentCheck
from klog.formats.damage import DamageKind
from klog.formats.index import OFFSET_ENTRY, TIME_ENTRY
from klog.formats.layout import Layout
from klog.partition.verify.log_checks import EVENTS, IDS
from klog.partition.verify.segment_pass import ByteRange, IndexFile, SegmentFacts
from klog.tier.tier_layout import INDEX, LOG, TIME_INDEX

_AS_THEY_ARE: Final = (DamageKind.BAD_CRC, DamageKind.ZEROED_TAIL, DamageKind.UNREADABLE)
Findings = Iterator[RemoteFinding]


def log_findings(check: SegmentCheck, facts: SegmentFacts, *, is_malformed: bool) -> Findings:
    """Damaged places of the log, and batches that cannot be as they are; *is_malformed*: see `of_log`."""
    for one in facts.damages:
        position = one.damage.place.position or 0
        is_chunk = is_malformed and one.damage.kind is DamageKind.UNREADABLE
        finding_id = "remote-object-malformed" if is_chunk else _damage_id(facts, one)
        yield check.finding(finding_id, LOG, one.damage.detail, position, one.offset)
    for event, position, first, second in facts.survey.events:
        if event in EVENTS:
            finding_id, text, has_offset = EVENTS[event]
            yield check.finding(finding_id, LOG, text.format(first, second), position, first if has_offset else None)
    more = facts.more_damages + facts.survey.dropped
    if more:
        yield check.finding("more-damage", LOG, f"{more} more damaged places")


def _damage_id(facts: SegmentFacts, one: ByteRange) -> str:
    """Return the id of a damaged place: at the end of the log it is a batch that was cut, or bytes that are none."""
    kind = one.damage.kind
    if one.expected is None or one.end < facts.size or kind in _AS_THEY_ARE:
        return IDS[kind]
    return "torn-tail" if kind is DamageKind.TORN_TAIL else "garbage-tail"


def index_findings(check: SegmentCheck, facts: SegmentFacts) -> Findings:
    """Faults of the two indexes, by themselves and against the log."""
    for part, index, layout, prefix in (
        (INDEX, facts.offset_index, OFFSET_ENTRY, ""),
        (TIME_INDEX, facts.time_index, TIME_ENTRY, "time-"),
    ):
        if index is not None:
            yield from _shape(check, part, index, layout, prefix)
    if facts.damages:
        return
    wrong = {slot for event, _, slot, _ in facts.survey.events if event in ("index no batch", "index skips")}
    for event, position, slot, value in facts.survey.events:
        if event in ("index no batch", "index skips"):
            message = f"entry {slot} leads from offset {value} to position {position}, where it is not"
            yield check.finding("index-disagrees", INDEX, message, slot * OFFSET_ENTRY.size, value)
        elif event == "index inexact" and slot not in wrong:
            message = f"entry {slot} is about offset {value}, with which no batch ends"
            yield check.finding("index-inexact", INDEX, message, slot * OFFSET_ENTRY.size, value)
        elif event == "time inexact":
            message = f"entry {slot} is about offset {value}, with which no batch ends"
            yield check.finding("index-inexact", TIME_INDEX, message, slot * TIME_ENTRY.size, value)
        elif event in ("time misses", "time unreached"):
            finding_id = "time-index-disagrees" if event == "time misses" else "time-index-ahead"
            message = f"entry {slot} does not fit the timestamps of the batches; the largest is {value}"
            yield check.finding(finding_id, TIME_INDEX, message, slot * TIME_ENTRY.size)
    yield from _ends(check, facts)


def _shape(check: SegmentCheck, part: str, index: IndexFile, layout: Layout, prefix: str) -> Findings:
    at = index.used * layout.size
    if index.size % layout.size:
        message = f"{index.size} bytes, not a multiple of {layout.size}"
        start = index.size - index.size % layout.size
        yield check.finding(f"{prefix}index-ragged", part, message, start, check.entry.start_offset)
    if index.hole is not None:
        yield check.finding(f"{prefix}index-hole", part, f"entry {index.used} is zeros, others follow", at)
    elif index.why == "order":
        yield check.finding(f"{prefix}index-order", part, f"entry {index.used} does not ascend", at)
    elif index.why == "zeros":
        yield check.finding(f"{prefix}index-zero-tail", part, f"{index.size - at} bytes of zeros", at)
    elif index.why == "beyond":
        yield check.finding("index-beyond-log", part, f"entry {index.used} leads beyond the log", at)


def _ends(check: SegmentCheck, facts: SegmentFacts) -> Findings:
    """Compare the last entries with the end of the log."""
    base, end = check.entry.start_offset, facts.end_offset
    index, times = facts.offset_index, facts.time_index
    if index is not None and index.used:
        relative = OFFSET_ENTRY.read(index.entries[-OFFSET_ENTRY.size :])[0]
        if base + relative >= end:
            at = (index.used - 1) * OFFSET_ENTRY.size
            message = f"the last entry is about offset {base + relative}, the segment ends before {end}"
            yield check.finding("index-disagrees", INDEX, message, at, base + relative)
    if times is None or times.why != "end":
        return
    timestamp, relative = TIME_ENTRY.read(times.entries[-TIME_ENTRY.size :])[:2] if times.used else (-1, 0)
    at = max(times.used - 1, 0) * TIME_ENTRY.size
    if times.used and base + relative >= end:
        message = f"the last entry is about offset {base + relative}, the segment ends before {end}"
        yield check.finding("time-index-beyond-log", TIME_INDEX, message, at, base + relative)
    if timestamp < facts.survey.max_timestamp:
        message = f"it ends at {timestamp}, the segment's largest timestamp is {facts.survey.max_timestamp}"
        yield check.finding("time-index-short", TIME_INDEX, message, at, facts.survey.max_timestamp_offset)
