"""The fields of a key or a value that names its schema: the framing in front of its data, or in a header, and the data.

00  id of four bytes            the schema by its id
01  GUID of sixteen bytes       the schema by its GUID
message indexes                 Protobuf: which message of the schema it is
data                            its text is the decoded value
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from klog.commands.bytes.byte_field import ByteCursor, ByteField, BytePart, ContentBytes, Fields, WrongBytesError
from klog.schemas.decoded import BAD_HEADER, SCHEMA_BROKEN, TRAILING_BYTES, UNKNOWN_ID
from klog.schemas.framing import HEADERS, Framed, by_header, read_framing
from klog.schemas.json_values import json_bytes
from klog.schemas.registry import guid_text

if TYPE_CHECKING:
    from klog.schemas.schema_version import SchemaVersion
    from klog.schemas.side_decoder import DecodedSide, SchemaDecoders

_SHOWN_LETTERS: Final = 400
_MOST_LETTERS: Final = 1 << 20
_LONGEST_HEADER: Final = 1 << 16
_GUID: Final = 1
_PROBLEMS: Final = {
    UNKNOWN_ID: "no record of the registry's topic has it",
    SCHEMA_BROKEN: "its schema cannot be read",
    TRAILING_BYTES: "bytes are left over behind the value",
    BAD_HEADER: "neither an id nor a GUID",
}
_OF_ID: Final = (UNKNOWN_ID, SCHEMA_BROKEN, BAD_HEADER)
SchemaHeaders = tuple[tuple[bytes, bytes | None], ...]


class _Side(NamedTuple):
    """A framed key or value: its framing, its decoded value, and the number of bytes of its message indexes."""

    framed: Framed
    found: DecodedSide
    indexes: int

    def problem(self, *codes: str) -> str | None:
        """The error in words if it is among *codes*; none: if it is about the data."""
        error = self.found.decoded.error or (TRAILING_BYTES if self.found.decoded.trailing else None)
        if error is None or (error not in codes if codes else error in _OF_ID):
            return None
        return _PROBLEMS.get(error, error)


class FramedContents:
    """Decodes the keys and values of a topic; *is_full*: decoded values are shown whole."""

    def __init__(self, decoders: SchemaDecoders, topic: str, is_full: bool) -> None:
        self._decoders, self._topic = decoders, topic
        self._sides = {name: decoders.side(topic, name) for name in HEADERS}
        self._letters = _MOST_LETTERS if is_full else _SHOWN_LETTERS

    def fields(self, found: ContentBytes, part: BytePart, headers: SchemaHeaders) -> Fields:
        """Yield the fields of a key or value with content: one if it names no schema."""
        at = found.content_at
        assert at is not None
        content = found.source.read(at, found.end - at)
        side = self._side(found.name, content, headers)
        if side is None:
            yield found.field(part)
            return
        if at > found.start:
            meaning = f"bytes of the {found.name}, which follows"
            yield ByteField(
                found.source, found.start, at - found.start, f"{found.name}_length", len(content), meaning, part
            )
        is_in_header = any(name == HEADERS[found.name] for name, _ in headers)
        start = at if is_in_header else found.end - len(side.framed.payload)
        behind = start if is_in_header else start + side.indexes
        if start > at:
            schema_id, problem = side.framed.schema_id, side.problem(*_OF_ID)
            assert schema_id is not None
            if behind == found.end:  # no data: its problem has no other place
                problem = problem or side.problem()
            yield from _identity(found, at, schema_id, side.found.row, part, problem)
        if behind > start:
            yield _indexes(found, start, behind, side.found.decoded.message or "", part)
        if found.end > behind:
            yield self._data(found, behind, side, part)

    def header_fields(self, found: ContentBytes, part: BytePart, name: str) -> Fields:
        """Yield the fields of the value of a header that names the schema of a side, *name*."""
        at, size = found.content_at, found.end - (found.content_at or 0)
        content = b"" if at is None or size > _LONGEST_HEADER else found.source.read(at, size)
        framed = by_header(b"", content)
        if at is None or framed.schema_id is None:
            yield found.field(part)._replace(problem=_PROBLEMS[BAD_HEADER])
            return
        meaning = f"bytes of the {found.name}, which follows"
        yield ByteField(found.source, found.start, at - found.start, f"{found.name}_length", size, meaning, part)
        candidates = self._decoders.candidates(framed.schema_id, self._topic, name)
        problem = None if candidates else _PROBLEMS[UNKNOWN_ID]
        yield from _identity(found, at, framed.schema_id, candidates[0][0] if candidates else None, part, problem)
        if framed.prefix:
            yield _indexes(found, found.end - len(framed.prefix), found.end, "", part)

    def _side(self, name: str, content: bytes, headers: SchemaHeaders) -> _Side | None:
        framed = read_framing(content, headers, name, self._decoders.is_known)
        found = None if framed is None else self._sides[name].decode(content, headers)
        if framed is None or found is None:
            return None
        indexes = 0
        if found.row is not None and found.row.type == "PROTOBUF" and framed.schema_id is not None:
            data = framed.prefix or framed.payload
            for row, decoder in self._decoders.candidates(framed.schema_id, self._topic, name):
                if row == found.row and decoder is not None:
                    indexes = decoder.index_size(data)  # type: ignore[attr-defined]  # of Protobuf
        return _Side(framed, found, indexes)

    def _data(self, found: ContentBytes, at: int, side: _Side, part: BytePart) -> ByteField:
        decoded, text = side.found.decoded, ""
        if decoded.error is None:
            shown = json_bytes(decoded.value).decode()
            text = shown if len(shown) <= self._letters else f"{shown[: self._letters]}…"
        kind = side.found.row.type if side.found.row is not None else "unknown schema"
        return ByteField(
            found.source, at, found.end - at, f"{found.name}.data", None, f"data, {kind}", part, text,
            content_at=at, problem=side.problem(),
        )  # fmt: skip


def _identity(
    found: ContentBytes, at: int, schema_id: int | bytes, row: SchemaVersion | None, part: BytePart, problem: str | None
) -> Fields:
    """Yield the magic byte, and the id or the GUID."""
    magic = found.source.read(at, 1)[0]
    kind = "a GUID follows" if magic == _GUID else "a schema id follows"
    yield ByteField(found.source, at, 1, f"{found.name}.magic", magic, kind, part)
    schema = "" if row is None else f"{row.subject} version {row.version}, {row.type}, {row.state}"
    if isinstance(schema_id, bytes):
        value: int | str = guid_text(schema_id)
        name, meaning, schema = "schema_guid", "GUID of the schema", f"id {row.id}, {schema}" if row else ""
    else:
        name, meaning, value = "schema_id", "id of the schema", schema_id
    text = f"{value}  {schema}".rstrip()
    size = 16 if isinstance(schema_id, bytes) else 4
    yield ByteField(found.source, at + 1, size, f"{found.name}.{name}", value, meaning, part, text, problem=problem)


def _indexes(found: ContentBytes, start: int, end: int, message: str, part: BytePart) -> ByteField:
    """Return the field of message indexes."""
    path, meaning = found.source.read(start, end - start).hex(" "), "which message of the schema it is"
    return ByteField(
        found.source, start, end - start, f"{found.name}.message_indexes", path, meaning, part, message or path
    )  # fmt: skip


def schema_headers(cursor: ByteCursor) -> SchemaHeaders:
    """Return the headers that name schemas, of the record whose key is at *cursor*; none if it is broken."""
    ahead = ByteCursor(cursor.source, cursor.position, cursor.end)
    found: list[tuple[bytes, bytes | None]] = []
    try:
        for _ in HEADERS:
            ahead.skip(max(ahead.varint(), 0))
        for _ in range(ahead.varint()):
            key, value = _short(ahead), _short(ahead)
            if key in HEADERS.values():
                found.append((key or b"", value))
    except WrongBytesError:
        pass
    return tuple(found)


def _short(cursor: ByteCursor) -> bytes | None:
    """Return the next bytes; for null, and for a long content, which is no schema's, None."""
    size = cursor.varint()
    if 0 <= size <= _LONGEST_HEADER:
        return cursor.take(size)
    cursor.skip(max(size, 0))
    return None
