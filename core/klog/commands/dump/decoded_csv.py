"""Records of a dump as CSV whose keys and values are decoded by the schemas of a registry."""

from __future__ import annotations

import re
from typing import Final

from klog.commands.dump.dump_request import LogInput
from klog.commands.dump.log_lines import LineDump
from klog.formats.batch import CONTROL_BIT
from klog.kernel import Window
from klog.log.json_lines import LineStyle, huge_line
from klog.log.pipeline import OrderedOutput
from klog.log.records import RecordLimit
from klog.schemas.decoded import TRAILING_BYTES
from klog.schemas.decoded_rows import DecodedRows, SchemaStyle, shown_content
from klog.schemas.side_decoder import DecodedSide

_FIELD: Final = rb'((?:"[^"]*(?:""[^"]*)*"|[^,"\n]*),)'
_BEGIN: Final = re.compile(rb"((?:[^,\n]*,){3})" + 4 * _FIELD).match
"""The offset, the timestamp and its type; the key and its base64; the value and its base64."""


class DecodedCsv(LineDump):
    """Makes lines of a log's windows, with decoded keys and values and the columns that say how."""

    def __init__(self, log: LogInput, style: LineStyle, count: RecordLimit, schemas: SchemaStyle) -> None:
        super().__init__(log, style, count)
        topic, partition = log.target.origin
        self._decoded = DecodedRows(topic, partition, schemas)

    def _write(self, rows: Window, at: int, end: int, lane: OrderedOutput) -> None:
        """Write lines of the rows from *at* to *end*."""
        lane.flush(rows)
        flags = self._style.flags
        for row in range(at, end):
            if rows.csv_lines(row, self._fields, flags, row + 1) > row:
                line = bytes(rows.output())
                rows.flushed()
            else:
                line = b"".join(huge_line(rows, row, self._fields, self._style))
            lane.write(self._line(rows, row, line))

    def _line(self, rows: Window, row: int, line: bytes) -> bytes:
        record = rows.record(row)
        if rows.batch(record[6]).attributes & CONTROL_BIT:
            return line[:-1] + b",,,,\n"
        sides = self._decoded.sides(record)
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
