"""The entries of `.index`, `.timeindex` and `.txnindex`, and their faults, which are those that `klog verify` finds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from klog.base.read_only import ReadOnlyFile
from klog.commands.bytes.byte_field import ByteField, BytePart, ByteSource, Fields, Notes, layout_fields, plain
from klog.formats.index import ABORTED_TXN, OFFSET_ENTRY, TIME_ENTRY
from klog.formats.layout import Layout
from klog.formats.names import FileKind, FileName

LAYOUTS: Final[dict[FileKind, Layout]] = {
    FileKind.INDEX: OFFSET_ENTRY,
    FileKind.TIME_INDEX: TIME_ENTRY,
    FileKind.TXN_INDEX: ABORTED_TXN,
}


def index_fields(
    source: ReadOnlyFile, name: FileName, faults: Mapping[int, str], start: int = 0, end: int | None = None
) -> Fields:
    """Yield the fields of the entries in bytes *start* to *end* of an index (None: its end), which begin with one.

    *faults*: those of entries by their positions.
    """
    layout = LAYOUTS[name.kind]
    at, last = start, source.size if end is None else end
    while last - at >= layout.size:
        behind = _zeros_end(source, at, last - (last - at) % layout.size, layout.size)
        if behind - at > layout.size:
            fault = next((faults[here] for here in range(at, behind, layout.size) if here in faults), None)
            zeros = BytePart(f"{(behind - at) // layout.size} entries of zeros", fault)
            text = "zeros, as in a preallocated index" if last - behind < layout.size else "zeros"
            yield from plain(source, at, behind, zeros, fault, text)
            at = behind
        else:
            yield from _entry(source, layout, at, name, faults.get(at))
            at += layout.size
    rest = BytePart("rest", "not a complete entry")
    yield from plain(source, at, last, rest, f"{last - at} bytes are not a complete entry of {layout.size}")


_STEP_ENTRIES: Final = 4096
_MOST_FAULTS: Final = 1 << 16
"""Entries with a fault that are marked."""


def _zeros_end(source: ReadOnlyFile, start: int, end: int, entry_bytes: int) -> int:
    """Return the end of the entries of zeros that begin at *start*; *start* itself if the first is none."""
    at, size = start, entry_bytes
    while at < end:
        at += max(min(source.next_data(at), end) - at, 0) // entry_bytes * entry_bytes
        piece = source.read(at, min(size, end - at))
        if not piece:
            break  # a hole up to the end, or a file that has become shorter
        content = piece.lstrip(b"\0")
        if content:
            return at + (len(piece) - len(content)) // entry_bytes * entry_bytes
        at, size = at + len(piece), _STEP_ENTRIES * entry_bytes
    return at - (at - start) % entry_bytes


def _entry(source: ByteSource, layout: Layout, at: int, name: FileName, fault: str | None) -> Fields:
    number = at // layout.size
    part = BytePart(f"entry {number}", fault)
    fields: list[ByteField] = list(layout_fields(source, layout, at, at + layout.size, part, {}))
    notes: Notes = {}
    for field in fields:
        if field.name == "relative_offset" and name.offset is not None and isinstance(field.value, int):
            notes[field.name] = f"{field.value} → offset {name.offset + field.value}", None
    for place, field in enumerate(fields):
        text = notes.get(field.name, ("", None))[0]
        yield field._replace(text=text, problem=fault if place == 0 else None)


def index_faults(path: str, name: FileName) -> dict[int, str]:
    """Return what `klog verify` says about entries of an index, by position; nothing without the log beside it."""
    from klog.commands.bytes.log_faults import faults, segment_facts

    facts = segment_facts(path, name)
    if facts is None:
        return {}
    found: dict[int, str] = {}
    for position, fault in faults(facts, name):
        if len(found) == _MOST_FAULTS:
            break
        found.setdefault(position, fault)
    return found
