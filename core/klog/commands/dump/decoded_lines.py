"""Records as JSON lines whose keys and values are decoded by the schemas of a registry.

The kernel makes the line; where a key or a value was decoded, its JSON takes the place of the member.
"""

from __future__ import annotations

from klog.commands.dump.dump_request import LogInput, SchemaStyle
from klog.commands.dump.log_lines import LineDump
from klog.formats.names import CLUSTER_METADATA, INTERNAL
from klog.kernel import Window
from klog.log.json_lines import LineStyle, huge_line
from klog.log.pipeline import OrderedOutput
from klog.log.records import RecordLimit
from klog.schemas.decoded import TRAILING_BYTES
from klog.schemas.json_values import json_text
from klog.schemas.side_decoder import DecodedSide, SideDecoder

_KEY, _VALUE, _HEADERS = b',"key', b',"value', b',"headers":'
_LAST_MAGIC = 1
"""Higher first bytes are those of no framing."""
Row = tuple[int, int, bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...] | None, int, int]
_LITTLE = {"key": b',"key":0', "value": b',"value":0'}


class DecodedLines(LineDump):
    """Makes lines of a log's windows, with decoded keys and values."""

    def __init__(self, log: LogInput, style: LineStyle, count: RecordLimit, schemas: SchemaStyle) -> None:
        super().__init__(log, style, count)
        topic, partition = log.target.origin
        self._topic, self._partition, self._tally = topic or "", partition or 0, schemas.tally
        sides = () if topic in (*INTERNAL, CLUSTER_METADATA) else schemas.sides  # brokers have formats of their own
        self._sides = {side: schemas.decoders.side(self._topic, side) for side in sides}
        self._usual = self._sides["value"].usual if "value" in self._sides else {}

    def _write(self, rows: Window, at: int, end: int, lane: OrderedOutput) -> None:
        """Write lines of the rows from *at* to *end*."""
        lane.flush(rows)
        while at < end:
            stop = rows.json_lines(at, self._fields, self._style.flags, end)
            lines = bytes(rows.output()).split(b"\n")
            rows.flushed()
            lane.write(b"\n".join([*self._lines(rows, at, lines[: stop - at]), b""]))
            at = stop
            if at < end and rows.is_huge(at, self._fields, self._style.flags):
                self._write_huge(rows, at, lane)
                at += 1

    def _lines(self, rows: Window, first: int, lines: list[bytes]) -> list[bytes]:
        """Return *lines*, those of the rows from *first* on, with decoded members."""
        record_of, usual_of, made = rows.record, self._usual.get, list[bytes]()
        for row, line in enumerate(lines, first):
            record = record_of(row)
            key, value = record[2], record[3]
            if value and not record[4] and not (key and key[0] <= _LAST_MAGIC):  # its value alone can be framed
                usual = usual_of(value[:5])
                if usual is not None:
                    found, message, error, trailing = usual.decode(value[5:])
                    if error is None and not trailing and message is None:
                        start = line.find(_VALUE)
                        end = line.find(_HEADERS, start)
                        made.append(b"".join((line[:start], b',"value":', _json(found), usual.fact, line[end:])))
                        continue
            sides = self._decoded(record)
            made.append(line if sides == (None, None) else _spliced(line, *sides))
        return made

    def _decoded(self, record: Row) -> tuple[DecodedSide | None, DecodedSide | None]:
        """Return the decoded key and value, None for one that names no schema."""
        offset, _, key, value, headers, _, _ = record
        found = []
        for side, content in (("key", key), ("value", value)):
            decoder: SideDecoder | None = self._sides.get(side)
            one = None if decoder is None or content is None else decoder.decode(content, headers or ())
            found.append(one)
            if one is not None and (one.decoded.error is not None or one.decoded.trailing):
                self._tally.add(self._topic, self._partition, offset, side, one)
        return found[0], found[1]

    def _write_huge(self, rows: Window, row: int, lane: OrderedOutput) -> None:
        key, value = self._decoded(rows.record(row))
        sides = {"key": key, "value": value}
        instead = {side: _LITTLE[side] for side, one in sides.items() if one is not None and one.decoded.error is None}
        if not instead and key is None and value is None:
            for piece in huge_line(rows, row, self._fields, self._style):
                lane.write(piece)
        else:
            lane.write(_spliced(b"".join(huge_line(rows, row, self._fields, self._style, instead)), key, value))


def _json(value: object) -> bytes:
    text = json_text(value)
    try:
        return text.encode()
    except UnicodeEncodeError:
        # A name in a schema can have half of a surrogate pair, which has no UTF-8; its escape is right in JSON.
        return text.encode("utf-8", "backslashreplace")


def _spliced(line: bytes, key: DecodedSide | None, value: DecodedSide | None) -> bytes:
    """Return a record's line with the decoded key and value.  Quotes inside of texts are escaped: members are found."""
    at_key = line.find(_KEY)
    if at_key < 0:
        return line  # a control record
    at_value = line.find(_VALUE, at_key)
    at_headers = line.find(_HEADERS, at_value)
    parts = [line[:at_key]]
    for name, found, member in ((_KEY, key, line[at_key:at_value]), (_VALUE, value, line[at_value:at_headers])):
        is_as_it_was = found is None or found.decoded.error is not None
        parts.append(member if is_as_it_was else _member(name, found))
    parts += [_facts(side, found) for side, found in (("key", key), ("value", value)) if found is not None]
    return b"".join((*parts, line[at_headers:]))


def _member(name: bytes, found: DecodedSide | None) -> bytes:
    assert found is not None
    return name + b'":' + _json(found.decoded.value)


def _facts(side: str, found: DecodedSide) -> bytes:
    """Return the members that say how a key or a value was decoded."""
    decoded = found.decoded
    if found.guid is None and decoded.message is None and decoded.error is None and not decoded.trailing:
        return f',"{side}_schema_id":{found.schema_id}'.encode()
    error = decoded.error or (TRAILING_BYTES if decoded.trailing else None)
    facts = {"schema_id": found.schema_id, "schema_guid": found.guid, "message": decoded.message, "error": error}
    return "".join(f',"{side}_{name}":{json_text(one)}' for name, one in facts.items() if one is not None).encode()
