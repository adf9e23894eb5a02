"""Typed columns: the types of spec and what is in them, for random schemas and values."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from klog.schemas.avro import AvroSchema
from klog.schemas.avro_columns import AvroColumn
from klog.schemas.avro_types import parse_avro
from klog.schemas.columns import MOST_COLUMNS, Column, fitting
from klog.schemas.decoded import BrokenSchemaError
from klog.schemas.error_tally import ErrorTally
from klog.schemas.proto_columns import MessageColumns
from klog.schemas.protobuf import ProtobufSchema
from klog.schemas.reader_schemas import UsedType, latest_members, latest_schema, named_schema
from klog.schemas.side_columns import SideColumn
from klog.schemas.side_decoder import SchemaDecoders
from klog.schemas.typed_columns import SidePlan, TypedColumns

from tests.schemas.column_values import plain, same
from tests.schemas.corpus import reference
from tests.schemas.random_avro import SchemaMaker, ValueMaker, mutated, zigzag
from tests.schemas.random_proto import RandomProto, random_message
from tests.schemas.test_registry import gone, replayed, schema


def column(given: Any) -> AvroColumn:
    return AvroColumn(parse_avro(json.dumps(given), {}))


def written(made: AvroColumn, given: Any, *contents: bytes) -> list[Any]:
    """Return the values of a column, on the way through a Parquet file."""
    schema = AvroSchema(json.dumps(given), {}, False, made)
    return through_parquet([schema.decode(content).value for content in contents], made.type)


def through_parquet(values: list[Any], kind: pa.DataType) -> list[Any]:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"value": pa.array(values, kind)}), sink)
    array = pq.read_table(pa.BufferReader(sink.getvalue())).column("value")
    return plain(array)


# random schemas and values


@pytest.mark.corpora
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 20))])
def test_random_avro_values_are_those_of_the_plain_form(seed: int) -> None:
    """Field by field, through a Parquet file: the plain form is compared with a decoder that shares nothing."""
    numbers = random.Random(seed)
    values = 0
    for round_number in range(400):
        text = json.dumps(SchemaMaker(numbers).schema())
        try:
            simple = AvroSchema(text, {})
        except BrokenSchemaError:
            continue
        known, contents = reference().Avro(json.loads(text)), list[bytes]()
        with suppress(RecursionError):
            contents = [ValueMaker(numbers).value(known.schema) for _ in range(4)]
        where = f"seed {seed}, round {round_number}: {text}"
        made = AvroColumn(simple.type)
        typed = AvroSchema(text, {}, False, made)
        found = [typed.decode(content).value for content in contents]
        whole = [holds(made, value) for value in found]
        fitted = [fitting(value, made.type) for value in found]
        for value, content, is_whole in zip(through_parquet(fitted, made.type), contents, whole, strict=True):
            right = simple.decode(content)
            if right.error is None and is_whole:
                values += 1
                assert same(value, right.value), f"{where}: {content.hex()}"
    assert values > 1000


@pytest.mark.corpora
def test_damaged_values_have_the_errors_of_the_plain_form() -> None:
    """An int out of range, which fastavro reads, is refused by its column, and decoded strictly then."""
    numbers, judged = random.Random(7), 0
    for round_number in range(150):
        text = json.dumps(SchemaMaker(numbers).schema())
        try:
            simple = AvroSchema(text, {})
        except BrokenSchemaError:
            continue
        known, contents = reference().Avro(json.loads(text)), list[bytes]()
        with suppress(RecursionError):
            contents = [mutated(numbers, ValueMaker(numbers).value(known.schema)) for _ in range(6)]
        made = AvroColumn(simple.type)
        typed = AvroSchema(text, {}, False, made)
        for content in contents:
            right, found = simple.decode(content).error, typed.decode(content)
            judged += right is not None
            where = f"round {round_number}: {text}: {content.hex()}"
            assert found.error == right or (right == "bad-value" and not holds(made, found.value)), where
    assert judged > 100


def holds(made: AvroColumn | Column, value: Any) -> bool:
    """Whether a column has all of a value: a decimal of too many digits is null, and a Timestamp in year 9999."""
    try:
        pa.array([value], made.type)
    except (ArithmeticError, ValueError, TypeError):
        return False
    return True


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 20))])
def test_random_messages_are_those_of_the_plain_form(seed: int) -> None:
    """All kinds of fields, well-known types, maps, groups, proto2 and editions."""
    rng, values = random.Random(seed), 0
    for _ in range(25):
        made = RandomProto(rng, rng.choice(("proto2", "proto3", "2023")), rng.choice(("", "a.b")))
        found = ProtobufSchema(made.text, {})
        columns = MessageColumns(found.messages)
        for name in made.messages[:3]:
            message_class = found.messages.message_class(name)
            one = columns.column(message_class.DESCRIPTOR)
            convert = found._form.plan(message_class.DESCRIPTOR)
            messages = [message_class() for _ in range(4)]
            for message in messages:
                random_message(rng, message)
            assert one.change is not None
            rows = [one.change(message) for message in messages]
            kept = [(row, message) for row, message in zip(rows, messages, strict=True) if holds(one, row)]
            found_rows = through_parquet([row for row, _ in kept], one.type)
            for row, (_, message) in zip(found_rows, kept, strict=True):
                right = convert(message)
                values += 1
                assert same(row, right), f"seed {seed}: {name}: {row} {right} {made.text}"
    assert values > 60


# types

TYPES = [
    ("int", pa.int32()), ("long", pa.int64()), ("float", pa.float32()), ("double", pa.float64()),
    ("boolean", pa.bool_()), ("string", pa.string()), ("bytes", pa.binary()), ("null", pa.null()),
    ({"type": "fixed", "name": "F", "size": 5}, pa.binary(5)),
    ({"type": "fixed", "name": "F", "size": 0}, pa.binary()),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.dictionary(pa.int32(), pa.string())),
    ({"type": "array", "items": "long"}, pa.list_(pa.int64())),
    ({"type": "map", "values": "int"}, pa.map_(pa.string(), pa.int32())),
    (["null", "int"], pa.int32()), (["int", "null"], pa.int32()), (["int"], pa.int32()),
    (["int", "string"], pa.struct([("int", pa.int32()), ("string", pa.string())])),
    (
        ["null", {"type": "record", "name": "x.R", "fields": []}, "long"],
        pa.struct([("x.R", pa.struct([("_empty", pa.null())])), ("long", pa.int64())]),
    ),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, pa.decimal128(9, 2)),
    ({"type": "bytes", "logicalType": "decimal", "precision": 39, "scale": 2}, pa.decimal256(39, 2)),
    ({"type": "bytes", "logicalType": "decimal", "precision": 77}, pa.string()),
    ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 9}, pa.binary()),
    ({"type": "int", "logicalType": "date"}, pa.date32()),
    ({"type": "int", "logicalType": "time-millis"}, pa.time32("ms")),
    ({"type": "long", "logicalType": "time-micros"}, pa.time64("us")),
    ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("ms", "UTC")),
    ({"type": "long", "logicalType": "timestamp-nanos"}, pa.timestamp("ns", "UTC")),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, pa.timestamp("us")),
    ({"type": "string", "logicalType": "uuid"}, pa.string()),
    ({"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}, pa.string()),
    (
        {"type": "fixed", "name": "F", "size": 12, "logicalType": "duration"},
        pa.struct([("months", pa.uint32()), ("days", pa.uint32()), ("millis", pa.uint32())]),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("given", "kind"), TYPES, ids=[json.dumps(given)[:60] for given, _ in TYPES])
def test_avro_types_have_their_columns(given: Any, kind: pa.DataType) -> None:
    """Tables of other tools are joined with these."""
    assert column(given).type == kind


def test_a_recursive_type_is_text_where_it_is_met_again() -> None:
    """Parquet has no recursion."""
    node = {
        "type": "record", "name": "N",
        "fields": [{"name": "v", "type": ["int", "string"]}, {"name": "next", "type": ["null", "N"]}],
    }  # fmt: skip
    made = column(node)
    assert made.type.field("next").type == pa.string()
    value = zigzag(0) + zigzag(1) + b"\2" + zigzag(1) + zigzag(1) + b"a" + b"\0"
    assert written(made, node, value) == [{"v": {"int": 1, "string": None}, "next": '{"v":"a","next":null}'}]


def test_a_schema_with_very_many_columns_is_text() -> None:
    """A writer of Parquet needs memory for each; a few types can make exponentially many."""
    fields = [{"name": f"f{at}", "type": "int"} for at in range(MOST_COLUMNS + 1)]
    wide = {"type": "record", "name": "W", "fields": fields}
    made = column(wide)
    assert made.type == pa.string()
    (text,) = written(made, wide, b"\2" * (MOST_COLUMNS + 1))
    assert json.loads(text)["f7"] == 1
    tower: Any = {"type": "record", "name": "R0", "fields": [{"name": "a", "type": "int"}]}
    for at in range(1, 16):
        parts = [{"name": "a", "type": tower}, {"name": "b", "type": f"R{at - 1}"}]
        tower = {"type": "record", "name": f"R{at}", "fields": parts}
    assert column(tower).type == pa.string()


def test_numbers_outside_of_day_and_calendar_stay_numbers() -> None:
    """A timestamp in year 200 000, a time of 30 h."""
    fields = [
        {"name": "t", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "s", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ]
    given = {"type": "record", "name": "R", "fields": fields}
    value = zigzag(108_000_000) + zigzag(6_248_557_056_000_000)
    assert written(column(given), given, value) == [{"t": 108_000_000, "s": 6_248_557_056_000_000}]


# the types of record of a topic


def record(name: str, *fields: Any, **more: Any) -> str:
    return json.dumps({"type": "record", "name": name, "fields": list(fields)} | more)


A1 = record("x.A", {"name": "i", "type": "int"})
A2 = record("x.A", {"name": "i", "type": "long"}, {"name": "j", "type": "int", "default": 3})
B1 = record("x.B", {"name": "s", "type": "string"})


def members_of(registry: Any, *ids: int) -> tuple[Any, ...]:
    return latest_members({UsedType(registry.with_id(one)[0], None): 10 - one for one in ids}, [registry])


def test_the_latest_live_version_of_the_subject_reads_all() -> None:
    """One that is deleted is not the latest any more."""
    found = replayed(
        schema("t-value", 1, 1, A1), schema("t-value", 2, 2, A2), schema("t-value", 3, 3, B1, deleted=True)
    )  # fmt: skip
    assert [one.text for one in members_of(found, 1)] == [A2]
    assert latest_schema(found.with_id(3)[0], found).text == B1
    lost = replayed(schema("t-value", 1, 1, A1), gone("t-value", 1))
    assert [one.text for one in members_of(lost, 1)] == [A1]


def test_a_topic_of_several_records_has_a_member_for_each() -> None:
    """Subjects by the record's name; a name that two subjects have is one member, of the subject with more records."""
    found = replayed(
        schema("x.A", 1, 1, A1), schema("x.A", 2, 2, A2), schema("x.B", 1, 3, B1), schema("t-x.A", 1, 4, A1),
    )  # fmt: skip
    members = members_of(found, 3, 1, 4)
    assert [(one.name, one.text) for one in members] == [("x.A", A2), ("x.B", B1)]
    side = SideColumn("t", "value", members)
    assert [field.name for field in side.type] == ["x.A", "x.B"]
    decoder = SchemaDecoders([found], make=side.make).side("t", "value")
    values = [decoder.decode(b"\0\0\0\0" + value, ()) for value in (b"\1\x0e", b"\3\2s", b"\2\x0e\2")]
    assert [one.decoded.value for one in values if one] == [
        {"x.A": {"i": 7, "j": 3}}, {"x.B": {"s": "s"}}, {"x.A": {"i": 7, "j": 1}}
    ]  # fmt: skip


def test_a_subject_with_two_records_has_two_members() -> None:
    """Compatibility NONE lets a subject have anything."""
    found = replayed(schema("t-value", 1, 1, A1), schema("t-value", 2, 2, B1))
    assert [one.name for one in members_of(found, 1, 2)] == ["x.A", "x.B"]
    renamed = replayed(schema("t-value", 1, 1, A1), schema("t-value", 2, 2, record("y.C", aliases=["x.A"])))
    assert [one.name for one in members_of(renamed, 1, 2)] == ["y.C"]


def test_a_type_that_nobody_expected_is_incompatible() -> None:
    """A live topic can have a new type of record behind the one that was read first."""
    found = replayed(schema("x.A", 1, 1, A1), schema("x.B", 1, 2, B1), schema("j", 1, 3, "true", schemaType="JSON"))
    decoder = SchemaDecoders([found], make=SideColumn("t", "value", members_of(found, 1)).make).side("t", "value")
    errors = [decoder.decode(b"\0\0\0\0" + value, ()) for value in (b"\1\2", b"\2\2s", b"\3{}")]
    assert [one.decoded.error for one in errors if one] == [None, "incompatible", "incompatible"]


def test_a_named_schema_is_found_by_id_subject_and_context() -> None:
    """`latest` is a version, too."""
    found = replayed(schema("s", 1, 1, A1), schema("s", 2, 2, A2), schema(":.eu:s", 1, 1, B1))
    named = [named_schema(given, [found]).text for given in ("1", "s:2", "s:latest", ":.eu:s:1")]
    assert named == [A1, A2, A2, B1]
    assert named_schema("1", [found], ".eu").text == B1


def test_plans_and_columns_are_sent_to_other_processes() -> None:
    """Tasks of Spark get both, pickled."""
    import pickle

    found = replayed(schema("t-value", 1, 1, A1), schema("u-value", 1, 9, B1))
    plan = SidePlan("t", "value", members_of(found, 1))
    again, registry = pickle.loads(pickle.dumps((plan, found.part({1}))))
    assert [row.id for row in registry.rows] == [1]
    assert repr(registry) == repr(found.part({1})) != repr(found)
    fields = TypedColumns([again], [registry], ErrorTally()).fields()
    assert [one.name for one in fields["value"]] == ["value", "value_raw", "value_schema_id", "value_error"]
