"""JSON lines of records whose keys and values are decoded: those of many records, and of each by itself."""

from __future__ import annotations

import json
import random
from base64 import b64decode

import pytest
from klog.log.json_lines import LineStyle
from klog.schemas.decoded_rows import DecodedRows, SchemaStyle
from klog.schemas.error_tally import ErrorTally
from klog.schemas.side_decoder import SchemaDecoders

from tests.kernel.windows import filled
from tests.oracles.plain.encode import Header, Record, batch, marker
from tests.schemas.random_avro import mutated, zigzag
from tests.schemas.random_json import damaged, random_text
from tests.schemas.test_registry import replayed, schema

AVRO = '{"type":"record","name":"R","fields":[{"name":"id","type":"int"},{"name":"note","type":["null","string"]}]}'
PROTO = 'syntax = "proto3"; message M { int32 id = 1; string note = 2; }'
FOUND = replayed(
    schema("a-value", 1, 1, AVRO), schema("a-value", 2, 2, "{}", schemaType="JSON"), schema("a-key", 1, 5, '"string"'),
    schema("a-value", 3, 3, PROTO, schemaType="PROTOBUF"), schema("a-value", 4, 4, '"bytes"'),
)  # fmt: skip
FIELDS = b',"partition":3,"topic":"a"'


def rows_of(tally: ErrorTally) -> DecodedRows:
    return DecodedRows("a", 3, SchemaStyle(SchemaDecoders([FOUND]), ("key", "value"), tally))


def random_value(numbers: random.Random) -> bytes | None:
    """Return a value of a schema, half of them framed by its id, or one that names none."""
    schema_id = numbers.choice((1, 1, 1, 2, 2, 2, 3, 4, 9))
    note = numbers.choice((b"\0", b"\2\6abc", b'\2\x1aa"value":1,"h', b"\2\2\n"))
    content = random_text(numbers) if schema_id == 2 else b"\x08\7\x12\1x" if schema_id == 3 else zigzag(7) + note
    if numbers.random() < 0.05:
        content = damaged(numbers, content) if schema_id == 2 else mutated(numbers, content)
    framed = b"\0" + schema_id.to_bytes(4, "big") + content
    return framed if numbers.random() < 0.95 else numbers.choice((None, b"", b"\0", b"\0\0\0\0", b"text", content))


def random_records(numbers: random.Random) -> list[Record]:
    keys = (None, b"", b"k", b'",value":1,"headers":[', b"\0\0\0\0\5\2x", b"\0", b"\1")
    marked: tuple[Header, ...] = ((b"__value_schema_id", b"\0\0\0\0\1"),)
    records, value = [], None
    for offset in range(numbers.choice((1, 40, 700, 1100))):
        value = random_value(numbers) if numbers.random() < 0.5 else value
        headers = numbers.choice((marked, ((b"a", b'"value'),))) if numbers.random() < 0.05 else ()
        key = numbers.choice(keys) if numbers.random() < 0.1 else b"k%d" % offset
        records.append(Record(offset, 7, key, value, headers))
    return records


@pytest.mark.parametrize("seed", range(8))
def test_lines_of_many_records_are_those_of_each_by_itself(seed: int) -> None:
    """Runs of values that name one schema, errors, headers, framed keys and markers among them."""
    numbers = random.Random(seed)
    for _ in range(6):
        records = random_records(numbers)
        end = marker(len(records), commit=True, timestamp=7, producer_id=1, producer_epoch=0, coordinator_epoch=7 << 8)
        window = filled(batch(records) + end, output=numbers.choice((1 << 12, 1 << 18)))
        together, alone = ErrorTally(), ErrorTally()
        many, expected = rows_of(together), bytearray()
        for row in range(window.records):  # no schema has been met: nothing is usual
            expected += b"".join(rows_of(alone).lines(window, row, row + 1, FIELDS, LineStyle()))
        for _round in range(2):  # in the second, all schemas have been met
            at = numbers.randrange(window.records)
            pieces = bytearray()
            for first, stop in ((0, at), (at, window.records)):
                for piece in many.lines(window, first, stop, FIELDS, LineStyle()):
                    pieces += piece
            assert pieces == expected
        assert [json.loads(line)["offset"] for line in expected.splitlines()] == [*range(window.records)]
        counts = [
            {tuple(one.values())[:4]: one["records"] for one in some.facts()["kinds"]} for some in (together, alone)
        ]
        assert counts[0] == {kind: 2 * count for kind, count in counts[1].items()}


def test_lines_that_are_made_in_pieces_have_their_place_among_others() -> None:
    """Values whose escaped bytes take more than a line may: first, last, and one behind another."""
    small, large = b"\0\0\0\0\2[1]", b"\0\0\0\0\4" + b"\1" * (3 << 20)
    records = [Record(offset, 7, None, large if offset in (0, 3, 4, 7) else small) for offset in range(8)]
    window, many = filled(batch(records)), rows_of(ErrorTally())
    for _round in range(2):  # in the second, the schemas have been met
        made = bytearray()
        for piece in many.lines(window, 0, window.records, FIELDS, LineStyle()):
            made += piece
        lines = [json.loads(line) for line in made.splitlines()]
        assert [line["offset"] for line in lines] == [*range(8)]
        assert all(line["value"] == [1] for line in lines if line["offset"] not in (0, 3, 4, 7))
        assert all(b64decode(line["value"]) == large[5:] for line in lines if line["offset"] in (0, 3, 4, 7))
