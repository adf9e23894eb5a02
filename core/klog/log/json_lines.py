"""Records as JSON lines or CSV, and damage as a JSON line, the same for every command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from klog.formats.damage import Damage
from klog.kernel import BATCH_OFFSETS, VALUES, Window, is_utf8, json_text

_PIECE_BYTES = 3 << 18  # a multiple of three, so that pieces of base64 fit together


class LineStyle(NamedTuple):
    """How lines look: CSV or JSON, a line a batch or a record, how values are shown (a place in kernel.VALUES).

    *batch_offsets*: each record's line also has the base offset of its batch.
    """

    csv: bool = False
    batches: bool = False
    values: int = 0
    batch_offsets: bool = False

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

    def json(self) -> bytes:
        """Return the members that every JSON line carries."""
        if self.topic is None:
            return b""
        return f',"partition":{self.partition},"topic":{_json(self.topic)}'.encode()

    def csv(self) -> bytes:
        """Return the fields that every CSV line carries."""
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
    """Make lines of the rows from *first* to *end*, which carry *fields*; what is not yielded waits in the output."""
    write = rows.csv_lines if style.csv else rows.json_lines
    at, flags = first, style.flags
    while at < end and (at := write(at, fields, flags, end)) < end:
        yield rows.output()
        rows.flushed()
        if rows.is_huge(at, fields, flags):
            # Escaped, a value can be six times as large as it is.
            before, value, after = rows.split_line(at, style.csv, fields, flags)
            yield before
            yield from huge_value(value, style)
            yield after
            at += 1


def huge_value(value: memoryview, style: LineStyle) -> Iterator[bytes]:
    """Yield the member (JSON) or the two fields (CSV) that a value gives, in pieces."""
    text = style.values == VALUES.index("text") and is_utf8(value)
    encoding = "text" if text else "hex" if style.values == VALUES.index("hex") else "base64"
    named = {"text": b',"value":"', "hex": b',"value_hex":"', "base64": b',"value_base64":"'}
    fields = {"text": (b'"', b'",,'), "hex": (b"", b",,"), "base64": (b",", b",")}
    opening, closing = fields[encoding] if style.csv else (named[encoding], b'"')
    yield opening
    at = 0
    while at < len(value):
        end = min(at + _PIECE_BYTES, len(value))
        while text and end < len(value) and value[end] & 0xC0 == 0x80:
            end -= 1  # not inside a character
        yield _encoded(value[at:end], encoding, style.csv)
        at = end
    yield closing


def _encoded(piece: memoryview, encoding: str, csv: bool) -> bytes:
    if encoding == "hex":
        return piece.hex().encode()
    if encoding == "base64":
        import base64

        return base64.b64encode(piece)
    return bytes(piece).replace(b'"', b'""') if csv else json_text(piece) or b""


def damage_json(damage: Damage) -> bytes:
    """Return the JSON line of *damage*, without members whose values are unknown."""
    members: dict[str, object] = {
        "damage": damage.kind.value,
        "position": damage.place.position,
        "offset": damage.place.offset,
    }
    members |= {"stored": damage.stored_crc, "computed": damage.computed_crc, "size": damage.size}
    members |= {"detail": damage.detail, "file": damage.place.file}
    return (
        json.dumps(
            {name: value for name, value in members.items() if value is not None},
            ensure_ascii=True,
            separators=(",", ":"),
        ).encode()
        + b"\n"
    )
