"""Records as JSON lines whose keys and values are decoded by the schemas of a registry.

    rows = DecodedRows("orders", 3, schemas)
    for lines in rows.lines(window, 0, window.records, fields, style):
        sys.stdout.buffer.write(lines)

The kernel writes the JSON of most values into their lines.  Keys, and values that are judged one by one, take the place
of their members in the lines.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from klog.formats.internal_topics import REMOTE_LOG_METADATA
from klog.formats.names import CLUSTER_METADATA, INTERNAL
from klog.kernel import framed_run, is_utf8
from klog.log.json_lines import LineStyle, huge_line
from klog.schemas.decoded import TRAILING_BYTES, JsonText
from klog.schemas.json_values import json_bytes, json_text

if TYPE_CHECKING:
    from klog.kernel import Window
    from klog.schemas.error_tally import ErrorTally
    from klog.schemas.field_condition import FieldCondition
    from klog.schemas.side_decoder import DecodedSide, SchemaDecoders, SideDecoder

_KEY, _VALUE, _HEADERS = b',"key', b',"value', b',"headers":'
_LITTLE = {"key": b',"key":0', "value": b',"value":0'}
NOT_DECODED = frozenset((*INTERNAL, CLUSTER_METADATA, REMOTE_LOG_METADATA))
"""Topics in which brokers have formats of their own."""
_ROWS_AT_ONCE: Final = 1024
_NO_JSON: Final = object()
"""Bytes that are no text, and a key or value that does not decode."""
_Headers = tuple[tuple[bytes, "bytes | None"], ...]
Row = tuple[int, int, "bytes | None", "bytes | None", "_Headers | None", int, int]
Sides = tuple["DecodedSide | None", "DecodedSide | None"]
"""The decoded key and value, None for one that names no schema."""


class SchemaStyle(NamedTuple):
    """How keys and values are decoded by schemas; *sides*: `key`, `value` or both.  *tally* counts the errors.

    *is_damaged*: a part of a registry's topic could not be read.  *reader*: the schema that reads Avro values: `each`
    its own, `latest`, an id, SUBJECT:VERSION.
    """

    decoders: SchemaDecoders
    sides: tuple[str, ...]
    tally: ErrorTally
    is_damaged: bool = False
    reader: str = "each"


class DecodedRows:
    """Decodes the records of one partition, and makes their lines; *topic* None: of a file by itself."""

    def __init__(self, topic: str | None, partition: int | None, schemas: SchemaStyle) -> None:
        self._topic, self._partition, self._tally = topic or "", partition or 0, schemas.tally
        sides = () if topic in NOT_DECODED else schemas.sides
        self._sides = {side: schemas.decoders.side(self._topic, side) for side in sides}
        self._usual = self._sides["value"].usual if "value" in self._sides else {}

    def lines(self, rows: Window, at: int, end: int, fields: bytes, style: LineStyle) -> Iterator[bytes | memoryview]:
        """Yield the lines of the rows from *at* to *end*, in pieces; the output of *rows* is empty before and after.

        A piece is overwritten when the next one is made.
        """
        values: list[bytes | None] = []  # of the rows from *at* on
        facts: list[bytes] = []
        while at < end:
            if not values:
                values, facts = self._usual_values(rows, at, min(end, at + _ROWS_AT_ONCE))
            stop = rows.json_lines(at, fields, style.flags, at + len(values), values, facts)
            made = values[: stop - at]
            yield self._with_others(rows, at, made, rows.output()) if None in made else rows.output()
            rows.flushed()
            if stop < at + len(values) and rows.is_huge(stop, fields, style.flags):
                yield from self._huge(rows, stop, fields, style)
                stop += 1
            del values[: stop - at], facts[: stop - at]
            at = stop

    def _usual_values(self, rows: Window, at: int, end: int) -> tuple[list[bytes | None], list[bytes]]:
        """Return the JSON of the values of rows *at* to *end*, and the member that tells the id of each.

        None for a row that is to be judged by itself: its key may be framed, its schema is met first, it has an error.
        """
        values: list[bytes | None] = []
        facts: list[bytes] = []
        while at < end:
            begin, payloads = framed_run(rows, at, end)
            usual = self._usual.get(begin)
            count = max(len(payloads), 1)
            values += [None] * count if usual is None else usual.json_texts(payloads)
            facts += [b"" if usual is None else usual.fact] * count
            at += count
        return values, facts

    def _with_others(self, rows: Window, first: int, values: list[bytes | None], lines: memoryview) -> bytes:
        """Return *lines*, those of the rows from *first* on, with the keys and values of rows without a usual value."""
        made = bytes(lines).split(b"\n")
        for place, value in enumerate(values):
            # the bytes of a control record can look like an id: its line has neither key nor value
            if value is None and _KEY in made[place]:
                sides = self.sides(rows.record(first + place))
                if sides != (None, None):
                    made[place] = _with_sides(made[place], *sides)
        return b"\n".join(made)

    def sides(self, record: Row) -> Sides:
        """Return the decoded key and value of a row, and count their errors."""
        offset, _, key, value, headers, _, _ = record
        return self._side("key", key, headers, offset), self._side("value", value, headers, offset)

    def _side(self, side: str, content: bytes | None, headers: _Headers | None, offset: int) -> DecodedSide | None:
        found = self._decode(side, content, headers)
        if found is not None and (found.decoded.error is not None or found.decoded.trailing):
            self._tally.add(self._topic, self._partition, offset, side, found)
        return found

    def _decode(self, side: str, content: bytes | None, headers: _Headers | None) -> DecodedSide | None:
        decoder: SideDecoder | None = self._sides.get(side)
        return None if decoder is None or content is None else decoder.decode(content, headers or ())

    def contents(self, record: Row) -> tuple[bytes | None, bytes | None]:
        """Return key and value of a row for people, and count their errors: a text as it is, other values as JSON.

        Bytes that were not decoded stay as they are.
        """
        key, value = self.sides(record)
        return shown_content(record[2], key), shown_content(record[3], value)

    def fits(self, record: Row, conditions: Sequence[FieldCondition]) -> bool:
        """Whether the key and the value of a row meet all conditions; one that does not decode meets none.

        The error of such a one is counted.
        """
        seen: dict[str, object] = {}
        for one in conditions:
            if one.side not in seen:
                seen[one.side] = self._json_value(one.side, record)
            if seen[one.side] is _NO_JSON or not one.fits(seen[one.side]):
                return False
        return True

    def _json_value(self, side: str, record: Row) -> object:
        """Return the value that the line of a row has for a side; _NO_JSON if it has none."""
        offset, _, key, value, headers, _, _ = record
        content = key if side == "key" else value
        found = self._decode(side, content, headers)
        if found is None:
            return None if content is None else content.decode() if is_utf8(content) else _NO_JSON
        if found.decoded.error is None:
            return found.decoded.value
        self._tally.add(self._topic, self._partition, offset, side, found)
        return _NO_JSON

    def _huge(self, rows: Window, row: int, fields: bytes, style: LineStyle) -> Iterator[bytes | memoryview]:
        key, value = self.sides(rows.record(row))
        sides = {"key": key, "value": value}
        instead = {side: _LITTLE[side] for side, one in sides.items() if one is not None and one.decoded.error is None}
        if not instead and key is None and value is None:
            yield from huge_line(rows, row, fields, style)
        else:
            yield _with_sides(b"".join(huge_line(rows, row, fields, style, instead)), key, value)


def shown_content(content: bytes | None, found: DecodedSide | None) -> bytes | None:
    """Return a key or a value for people and tables: a text as it is, other values as JSON, else its bytes."""
    if found is None or found.decoded.error is not None:
        return content
    value = found.decoded.value
    if type(value) is JsonText and value.startswith('"'):
        value = json.loads(value)
    if isinstance(value, str) and type(value) is not JsonText:
        return value.encode("utf-8", "surrogatepass")
    return json_bytes(value)


def _with_sides(line: bytes, key: DecodedSide | None, value: DecodedSide | None) -> bytes:
    """Return a record's line with the decoded key and value.  Quotes inside of texts are escaped: members are found."""
    at_key = line.find(_KEY)
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
    return name + b'":' + json_bytes(found.decoded.value)


def _facts(side: str, found: DecodedSide) -> bytes:
    """Return the members about the decoding of a key or a value."""
    decoded = found.decoded
    if found.guid is None and decoded.message is None and decoded.error is None and not decoded.trailing:
        return f',"{side}_schema_id":{found.schema_id}'.encode()
    error = decoded.error or (TRAILING_BYTES if decoded.trailing else None)
    facts = {"schema_id": found.schema_id, "schema_guid": found.guid, "message": decoded.message, "error": error}
    return "".join(f',"{side}_{name}":{json_text(one)}' for name, one in facts.items() if one is not None).encode()
