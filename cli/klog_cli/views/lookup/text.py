"""The trail of a lookup in words, a line a step."""

from __future__ import annotations

from collections.abc import Iterator

from klog.formats.record import Record
from klog.partition.lookup.trail import IndexTrail, LookupOutcome, TimeIndexTrail, Trail

from klog_cli.output import iso_time

_LABEL = 10
_MOST_KEY = 60


def lines(trail: Trail) -> Iterator[str]:
    """Yield the lines, with the parts in brackets aligned."""
    steps = list(_steps(trail))
    width = max((len(text) for _, text, remark in steps if remark), default=0)
    for label, text, remark in steps:
        yield f"{label:{_LABEL}}{f'{text:{width}}   ({remark})' if remark else text}"


def _steps(trail: Trail) -> Iterator[tuple[str, str, str]]:
    """Yield for each step its label, its text and a remark (empty for none)."""
    yield from _segment(trail)
    yield from _time_index(trail)
    yield from _index(trail)
    scan, batch = trail.scan, trail.batch
    if scan is not None:
        to = f": batch {_range(batch.base_offset, batch.last_offset)} at {batch.position}" if batch else " to the end"
        yield "scan", f"from position {scan.position}{to}", _count(scan.batches, "batch header") + " read"
    if batch is not None:
        crc = "CRC holds" if batch.crc_holds else "CRC does not match"
        codec = "" if batch.codec == "none" else f", {batch.codec}"
        offsets = _range(batch.base_offset, batch.last_offset)
        yield "batch", f"position {batch.position}, {batch.size} bytes, offsets {offsets}{codec}, {crc}", ""
    if trail.record is not None:
        is_next = trail.outcome in (LookupOutcome.GAP, LookupOutcome.DAMAGED)
        yield "next" if is_next else "record", _record(trail.record), ""
    for number, note in enumerate(trail.notes):
        yield "answer" if number == 0 and trail.outcome is not LookupOutcome.RECORD else "note", note, ""
    for problem in trail.problems:
        yield "problem", problem, ""


def _segment(trail: Trail) -> Iterator[tuple[str, str, str]]:
    found, time = trail.segment, trail.time_index
    if found is None:
        return
    count = _count(found.segments, "segment")
    following = "the last" if found.next_base_offset is None else f"next base {found.next_base_offset}"
    if time is not None:
        what = "modified" if time.by_mtime else "largest timestamp"
        text = f"{found.file}   {what} {time.largest} ≥ {trail.target}"
        yield "segment", text, f"{count}, the first so late"
        return
    between = "≤" if found.base_offset <= trail.target else ">"
    text = f"{found.file}   base {found.base_offset} {between} {trail.target}"
    text += ", the last" if found.next_base_offset is None else f" < {following}"
    yield "segment", text, f"{count}, floor search"


def _time_index(trail: Trail) -> Iterator[tuple[str, str, str]]:
    found = trail.time_index
    if found is None:
        return
    if found.slot is None:
        yield "time", _no_entry(found.file, found.entries) + f": offset {found.offset}", _probes(found)
        return
    entry = f"entry {found.slot} of {found.entries}: {found.timestamp} → offset {found.offset}"
    yield "time", entry, _probes(found)


def _index(trail: Trail) -> Iterator[tuple[str, str, str]]:
    found, segment = trail.offset_index, trail.segment
    if found is None or segment is None:
        return
    if found.slot is None:
        yield "index", _no_entry(found.file, found.entries) + ": position 0", _probes(found)
        return
    relative = found.offset - segment.base_offset
    text = f"entry {found.slot} of {found.entries}: relative {relative} → offset {found.offset}"
    yield "index", f"{text}, position {found.position}", _probes(found)


def _no_entry(file: str | None, entries: int) -> str:
    if file is None:
        return "no file"
    return f"none of {entries} entries is used" if entries else "no entries"


def _probes(found: IndexTrail | TimeIndexTrail) -> str:
    if not found.probes:
        return ""
    warm = "" if found.warm_from is None else f", warm section from entry {found.warm_from}"
    return _count(found.probes, "probe") + warm


def _record(record: Record) -> str:
    key = "no key" if record.key is None else f"key {_quoted(record.key)}"
    value = "null" if record.value is None else f"{len(record.value)} bytes"
    when = "no timestamp" if record.timestamp == -1 else iso_time(record.timestamp)
    return f"offset {record.offset}, {key}, {value}, {when}"


def _quoted(key: bytes) -> str:
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = ""
    shown = f'"{text}"' if text.isprintable() and (text or not key) else f"hex:{key.hex()}"
    return shown if len(shown) <= _MOST_KEY else f"{shown[:_MOST_KEY]}… ({len(key)} bytes)"


def _range(first: int, last: int) -> str:
    return f"{first}–{last}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
