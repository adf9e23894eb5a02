"""Records as JSON lines or CSV, and damage as a JSON line, the same for every command."""

from __future__ import annotations

import json
import os
from binascii import b2a_base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from klog.base.overlays import remote_object, shown_path
from klog.formats.damage import Damage
from klog.kernel import BATCH_OFFSETS, VALUES, Window, is_utf8, json_text

_PIECE_BYTES = 3 << 18  # a multiple of three, so that pieces of base64 fit together


class LineStyle(NamedTuple):
    """How lines look: CSV or JSON, a line a batch or a record, how values are shown (a place in kernel.VALUES).

    *batch_offsets*: each record's line also has the base offset of its batch.  *tiers*: CSV has the columns of remote
    storage.  *decoded*: CSV has the columns of schemas.
    """

    csv: bool = False
    batches: bool = False
    values: int = 0
    batch_offsets: bool = False
    tiers: bool = False
    decoded: bool = False

    @property
    def flags(self) -> int:
        """The same for the kernel, which has a function for each form."""
        return self.values | (BATCH_OFFSETS if self.batch_offsets else 0)


@dataclass(frozen=True)
class RecordOrigin:
    """The log of the lines: its file as it is shown, its topic and partition if the directory's name has them."""

    file: str
    topic: str | None = None
    partition: int | None = None

    def json(self, with_file: bool = False) -> bytes:
        """Return the members that every JSON line carries.  *with_file*: the log too, relative to the log dir."""
        remote = remote_object(self.file)
        where = "" if self.topic is None else f',"partition":{self.partition},"topic":{_json(self.topic)}'
        if with_file:
            folder, name = os.path.split(self.file)
            file = os.path.join(os.path.basename(folder), name) if remote is None else shown_path(self.file)
            where += f',"file":{_json(file)}'
        if remote is not None:  # a zero byte: behind the position
            where += f'\0,"tier":"remote","segment_id":{_json(remote.segment_id or "")}'
        return where.encode()

    def csv(self, with_tiers: bool = False) -> bytes:
        """Return the fields that every CSV line carries.  *with_tiers*: the tier and the id of the segment, too."""
        if with_tiers:
            remote = remote_object(self.file)
            return self.csv() + (b",local," if remote is None else f",remote,{remote.segment_id}".encode())
        if self.topic is None:
            return b","
        name = self.topic.encode("utf-8", "replace").replace(b'"', b'""')
        return str(self.partition).encode() + b',"' + name + b'"'


def _json(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:  # a name that is no UTF-8: its bytes show as escapes
        return json.dumps(text)
    return json.dumps(text, ensure_ascii=False)


def record_lines(rows: Window, first: int, end: int, fields: bytes, style: LineStyle) -> Iterator[bytes | memoryview]:
    """Make lines of the rows from *first* to *end*, with *fields*; lines that are not yielded remain in the output."""
    write = rows.csv_lines if style.csv else rows.json_lines
    at, flags = first, style.flags
    while at < end and (at := write(at, fields, flags, end)) < end:
        yield rows.output()
        rows.flushed()
        if rows.is_huge(at, fields, flags):
            yield from huge_line(rows, at, fields, style)
            at += 1


def huge_line(
    rows: Window, row: int, fields: bytes, style: LineStyle, instead: Mapping[str, bytes] = MappingProxyType({})
) -> Iterator[bytes | memoryview]:
    """Yield the line of *row* in pieces: escaped, a key or a value can be six times as large, a header five times.

    *instead*: members that take the place of a large `key` or `value`.
    """
    parts, rest = rows.split_line(row, style.csv, fields, style.flags)
    for text, name, content in parts:
        yield text
        if name in instead:
            yield instead[name]
        elif isinstance(content, int):
            yield from _huge_headers(rows, row, content, style)
        else:
            yield from _huge_member(name, content, style)
    yield rest


def _huge_member(name: str, content: memoryview, style: LineStyle) -> Iterator[bytes]:
    """Yield the member (JSON) or the two fields (CSV) that a key or a value gives."""
    encoding = _encoding(content, 0 if name == "key" else style.values)
    named = f',"{name}":"' if encoding == "text" else f',"{name}_{encoding}":"'
    fields = {"text": (b'"', b'",,'), "hex": (b"", b",,"), "base64": (b",", b",")}
    opening, closing = fields[encoding] if style.csv else (named.encode(), b'"')
    yield opening
    for piece in _encoded(content, encoding, escaped=not style.csv):
        yield piece.replace(b'"', b'""') if style.csv else piece
    yield closing


def _huge_headers(rows: Window, row: int, count: int, style: LineStyle) -> Iterator[bytes]:
    """Yield the JSON of *count* headers; in CSV it is a quoted field."""
    yield b'"' if style.csv else b""
    for piece in _headers_json(rows, row, count, style.values):
        yield piece.replace(b'"', b'""') if style.csv else piece
    yield b'"' if style.csv else b""


def _headers_json(rows: Window, row: int, count: int, values: int) -> Iterator[bytes]:
    yield b"["
    number = at = 0
    while number < count:
        known = number
        number, at = rows.headers_from(row, number, at, values)
        yield bytes(rows.output())
        rows.flushed()
        if number == known:  # this line alone is too large
            key, value, at = rows.header_at(row, at)
            yield b",[" if number else b"["
            yield from _text_or_object(key, 0)
            yield b","
            yield from (b"null",) if value is None else _text_or_object(value, values)
            yield b"]"
            number += 1
    yield b"]"


def _text_or_object(content: memoryview, values: int) -> Iterator[bytes]:
    """Yield a header's key or value: a string, or an object that names the encoding."""
    if VALUES[values] in ("redacted", "none"):
        yield f'{{"size":{len(content)}}}'.encode()
        return
    encoding = _encoding(content, values)
    opening, closing = (b'"', b'"') if encoding == "text" else (f'{{"{encoding}":"'.encode(), b'"}')
    yield opening
    yield from _encoded(content, encoding, escaped=True)
    yield closing


def _encoding(content: memoryview, values: int) -> str:
    if values == VALUES.index("text") and is_utf8(content):
        return "text"
    return "hex" if values == VALUES.index("hex") else "base64"


def _encoded(content: memoryview, encoding: str, *, escaped: bool) -> Iterator[bytes]:
    """Yield *content* as text, hex or base64; *escaped*: text as a JSON string has it."""
    at = 0
    while at < len(content):
        end = min(at + _PIECE_BYTES, len(content))
        while encoding == "text" and end < len(content) and content[end] & 0xC0 == 0x80:
            end -= 1  # never inside a character
        piece = content[at:end]
        if encoding == "hex":
            yield piece.hex().encode()
        elif encoding == "base64":
            yield b2a_base64(piece, newline=False)
        else:
            yield (json_text(piece) or b"") if escaped else bytes(piece)
        at = end


def damage_json(damage: Damage) -> bytes:
    """Return the JSON line of *damage*, without members whose values are unknown."""
    members: dict[str, object] = {
        "damage": damage.kind.value,
        "position": damage.place.position,
        "offset": damage.place.offset,
    }
    members |= {"stored": damage.stored_crc, "computed": damage.computed_crc, "size": damage.size}
    members |= {"detail": damage.detail, "file": shown_path(damage.place.file)}
    if (remote := remote_object(damage.place.file)) is not None:
        members |= {"tier": "remote", "segment_id": remote.segment_id}
    return (
        json.dumps(
            {name: value for name, value in members.items() if value is not None},
            ensure_ascii=True,
            separators=(",", ":"),
        ).encode()
        + b"\n"
    )
