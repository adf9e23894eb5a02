"""The lines of text files: checkpoints, `partition.metadata`, `meta.properties`, and members of JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from klog.commands.bytes.byte_field import ByteField, BytePart, Fields, MemorySource, plain
from klog.formats.checkpoint import (
    EpochEntry,
    Malformed,
    OffsetEntry,
    epochs_in_force,
    read_epochs,
    read_offsets,
    read_partition_metadata,
)
from klog.formats.java_text import split_at_blanks
from klog.formats.names import ROOT_CHECKPOINTS, FileKind
from klog.formats.properties import read_meta_properties, read_properties, read_quorum_state

_MOST_EPOCH_BYTES: Final = 1 << 20
_LINE: Final = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_WHOLE: Final = BytePart("")


def _lines(content: bytes) -> Iterator[tuple[int, int, str]]:
    """Yield begin and end of each line, and its text without the end."""
    for found in _LINE.finditer(content):
        yield found.start(), found.end(), found[0].rstrip(b"\r\n").decode("utf-8", "backslashreplace")


def text_fields(kind: FileKind, content: bytes) -> Fields:
    """Yield the fields of a text file with this content; a line that a broker refuses has the reason."""
    fields, malformed = _READERS.get(kind, _any)(content)
    source = MemorySource(content)
    pending: ByteField | None = None
    line = malformed.line if malformed is not None else -1
    number = 1
    for field in fields:
        if pending is not None:
            yield pending
        pending, before = field, number
        number += len(re.findall(rb"\r\n|\r|\n", content[field.position : field.end]))
        if malformed is not None and before <= line < max(number, before + 1):
            pending, malformed = field._replace(problem=malformed.reason), None
    if malformed is not None:  # about the file as a whole, or a line that is missing
        last = pending or ByteField(source, 0, 0, "bytes", None, "an empty file", _WHOLE)
        pending = last._replace(problem=last.problem or str(malformed))
    if pending is not None:
        yield pending


_Read = tuple[Fields, Malformed | None]


def _line_fields(content: bytes, name_of: Callable[[int, str], tuple[str, str, str]]) -> Fields:
    """Yield a field for each line; *name_of*: name, text and meaning by its number, from 0 on, and its content."""
    source = MemorySource(content)
    for number, (start, end, line) in enumerate(_lines(content)):
        name, text, meaning = name_of(number, line)
        yield ByteField(source, start, end - start, name, line, meaning, _WHOLE, text)


def _entries(content: bytes, columns: tuple[str, ...]) -> Fields:
    """Yield the lines of a checkpoint: version, number of entries, entries of *columns*."""

    def name_of(number: int, line: str) -> tuple[str, str, str]:
        if number < 2:
            name = ("version", "entries")[number]
            return name, "", ("version of the file", "number of entries, which follow")[number]
        values = split_at_blanks(line)
        is_entry = len(values) == len(columns)
        words = [f"{column.replace('_', ' ')} {value}" for column, value in zip(columns, values, strict=is_entry)]
        return f"entry {number - 2}", ", ".join(words) if is_entry else "", ", ".join(columns)

    return _line_fields(content, name_of)


def _offsets(content: bytes) -> _Read:
    return _entries(content, OffsetEntry._fields), read_offsets(content, frozenset()).malformed


def _epochs(content: bytes) -> _Read:
    if len(content) > _MOST_EPOCH_BYTES:
        many = Malformed(0, f"{len(content)} bytes are far too many for such a file")
        return _entries(content, EpochEntry._fields), many
    found = read_epochs(content)
    kept = set(epochs_in_force(found.entries)) if found.malformed is None else set(found.entries)
    dropped = {number for number, entry in enumerate(found.entries, start=2) if entry not in kept}

    def fields() -> Fields:
        for number, field in enumerate(_entries(content, EpochEntry._fields)):
            problem = "does not ascend: a broker drops it" if number in dropped else None
            yield field._replace(problem=problem)

    return fields(), found.malformed


def _partition_metadata(content: bytes) -> _Read:
    found = read_partition_metadata(content)

    def name_of(_: int, line: str) -> tuple[str, str, str]:
        name, colon, value = line.partition(":")
        return (name.strip() or "line", value.strip(), "a name and its value") if colon else ("line", "", "a line")

    return _line_fields(content, name_of), found if isinstance(found, Malformed) else None


def _properties(content: bytes) -> _Read:
    found = read_meta_properties(content)
    return _property_fields(content), found if isinstance(found, Malformed) else None


def _property_fields(content: bytes) -> Fields:
    source, start, joined = MemorySource(content), 0, b""
    for found in _LINE.finditer(content):
        joined += found[0]
        is_comment = joined.lstrip(b" \t\f")[:1] in (b"#", b"!", b"\r", b"\n", b"")
        bare = found[0].rstrip(b"\r\n")
        if not is_comment and (len(bare) - len(bare.rstrip(b"\\"))) % 2 and found.end() < len(content):
            continue  # the property goes on in the next line
        name, value, meaning = "comment", joined.rstrip(b"\r\n").decode("iso-8859-1"), "a comment or a blank line"
        read = read_properties(joined)
        if isinstance(read, dict) and read:
            (name, value), meaning = next(iter(read.items())), "a property"
            name = name or "property"
        yield ByteField(source, start, len(joined), name, value, meaning, _WHOLE)
        start, joined = found.end(), b""


def _quorum_state(content: bytes) -> _Read:
    found = read_quorum_state(content)
    return _json_fields(content), found if isinstance(found, Malformed) else None


def _json_fields(content: bytes) -> Fields:
    """Yield each member of a JSON object with the marks around it; the rest of the content is one field."""
    import json

    source, start = MemorySource(content), 0
    for end, name, value in _members(content):
        text = json.dumps(value, ensure_ascii=True)
        shown = value if value is None or isinstance(value, str | int | bool) else text
        yield ByteField(source, start, end - start, name or "member", shown, "a member of the JSON object", _WHOLE)
        start = end
    yield from plain(source, start, len(content), _WHOLE)


_MEMBER: Final = re.compile(r"[\s{,]*")
_COLON: Final = re.compile(r"\s*:\s*")
_AFTER: Final = re.compile(r"\s*(?:,|\}\s*$)?")


def _members(content: bytes) -> Iterator[tuple[int, str, object]]:
    """Yield the end of each member of the object in *content*, its name and its value; stop where it is none."""
    import json

    if not content.isascii():
        return  # positions of letters would be none of bytes
    text, decoder = content.decode("ascii"), json.JSONDecoder()
    at = 0
    try:
        while (at := _end_of(_MEMBER, text, at)) < len(text):
            name, at = decoder.raw_decode(text, at)
            value, at = decoder.raw_decode(text, _end_of(_COLON, text, at))
            at = _end_of(_AFTER, text, at)
            if not isinstance(name, str):
                return
            yield at, name, value
    except (ValueError, RecursionError):
        return


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return at if found is None else found.end()


def _json(content: bytes) -> _Read:
    return _json_fields(content), None


def _any(content: bytes) -> _Read:
    return _line_fields(content, lambda _, line: ("line", "", "a line of text")), None


_READERS: Final[dict[FileKind, Callable[[bytes], _Read]]] = {
    **dict.fromkeys(ROOT_CHECKPOINTS, _offsets),
    FileKind.LEADER_EPOCHS: _epochs,
    FileKind.PARTITION_METADATA: _partition_metadata,
    FileKind.META_PROPERTIES: _properties,
    FileKind.QUORUM_STATE: _quorum_state,
    FileKind.CLEAN_SHUTDOWN: _json,
}
