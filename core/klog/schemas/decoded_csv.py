"""Records as CSV whose keys and values are decoded by the schemas of a registry, and the columns about the decoding."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from klog.formats.batch import CONTROL_BIT
from klog.log.json_lines import LineStyle, huge_line
from klog.schemas.decoded import TRAILING_BYTES
from klog.schemas.decoded_rows import DecodedRows, shown_content

if TYPE_CHECKING:
    from klog.kernel import Window
    from klog.schemas.decoded_rows import SchemaStyle
    from klog.schemas.side_decoder import DecodedSide

_FIELD: Final = rb'((?:"[^"]*(?:""[^"]*)*"|[^,"\n]*),)'
_BEGIN: Final = re.compile(rb"((?:[^,\n]*,){3})" + 4 * _FIELD).match
"""The offset, the timestamp and its type; the key and its base64; the value and its base64."""


class DecodedCsv(DecodedRows):
    """Makes lines of CSV."""

    def lines(self, rows: Window, at: int, end: int, fields: bytes, style: LineStyle) -> Iterator[bytes | memoryview]:
        """Yield the lines of the rows from *at* to *end*, in pieces; the output of *rows* is empty before and after."""
        for row in range(at, end):
            if rows.csv_lines(row, fields, style.flags, row + 1) > row:
                line = bytes(rows.output())
                rows.flushed()
            else:
                line = b"".join(huge_line(rows, row, fields, style))
            yield self._line(rows, row, line)

    def _line(self, rows: Window, row: int, line: bytes) -> bytes:
        record = rows.record(row)
        if rows.batch(record[6]).attributes & CONTROL_BIT:
            return line[:-1] + b",,,,\n"
        sides = self.sides(record)
        found = _BEGIN(line)
        if sides == (None, None) or found is None:
            return line[:-1] + b",,,,\n"
        begin, *fields = found.groups()
        parts = [begin]
        for side, content, members in zip(sides, record[2:4], (fields[:2], fields[2:]), strict=True):
            if side is None or side.decoded.error is not None:
                parts += members
            else:
                text = shown_content(content, side) or b""
                parts.append(b'"' + text.replace(b'"', b'""') + b'",,')
        return b"".join((*parts, line[found.end() : -1], *map(_facts, sides), b"\n"))


def _facts(side: DecodedSide | None) -> bytes:
    """Return the two fields about a key or a value: the id of its schema, and its error."""
    if side is None:
        return b",,"
    error = side.decoded.error or (TRAILING_BYTES if side.decoded.trailing else "")
    return f",{'' if side.schema_id is None else side.schema_id},{error}".encode()


def decoded_rows(topic: str | None, partition: int | None, schemas: SchemaStyle, style: LineStyle) -> DecodedRows:
    """Return what decodes the records of one partition, and makes their lines in this style: JSON or CSV."""
    kind = DecodedCsv if style.csv else DecodedRows
    return kind(topic, partition, schemas)
