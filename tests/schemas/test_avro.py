"""Avro values in both forms, as real deserializers read them; what no writer wrote is an error and ends soon."""

from __future__ import annotations

import json
import random
import sys
import time
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from klog.schemas.avro import AvroSchema
from klog.schemas.decoded import BrokenSchemaError, Decoded
from klog.schemas.json_values import json_text
from klog.schemas.registry import Registry

from tests.conftest import ROOT
from tests.schemas.corpus import REGISTRIES, Image, Truth, reference, registry, sides
from tests.schemas.random_avro import SchemaMaker, ValueMaker, mutated, zigzag
from tests.support.measure import measured

ROUNDS = 1000
BOTH = pytest.mark.parametrize("canonical", [False, True], ids=["plain", "canonical"])


def decoded(schema: Any, content: bytes, canonical: bool = False) -> Decoded:
    return AvroSchema(json.dumps(schema), {}, canonical).decode(content)


# the corpora


def first_fitting(found: Registry, one: Truth, canonical: bool) -> Decoded:
    """Decode by each candidate, the likeliest first, until one fits exactly."""
    assert one.raw is not None
    payload = one.raw if one.right["guid"] else one.raw[5:]
    results = []
    for row in found.candidates(one.right["id"], one.topic, one.side):
        try:
            result = AvroSchema(row.text, found.references(row), canonical).decode(payload)
        except BrokenSchemaError:
            result = Decoded(None, None, "schema-broken")
        if not result.error and not result.trailing:
            return result
        results.append(result)
    return next((one for one in results if not one.error), results[0])


@pytest.mark.corpora
@BOTH
@pytest.mark.parametrize("name", REGISTRIES)
def test_every_avro_value_of_the_corpora_is_as_its_truth_says(image: Image, name: str, canonical: bool) -> None:
    """Serializers of real clients wrote them, and real deserializers read them."""
    found, judged = registry(image, name), 0
    for one in sides(name):
        if one.right.get("type") != "AVRO":
            continue
        result, judged = first_fitting(found, one, canonical), judged + 1
        assert (result.error or ("trailing-bytes" if result.trailing else None)) == one.right["error"], one
        if result.error is None:
            assert json.loads(json_text(result.value)) == one.form(canonical), one
    assert judged > 200


# random schemas and values


@pytest.mark.corpora
@pytest.mark.parametrize("seed", range(4))
def test_random_schemas_agree_with_a_plain_decoder(seed: int) -> None:
    """Both forms of valid values, and the same error for damaged ones: fastavro alone is lenient with many of those."""
    numbers = random.Random(seed)
    values = errors = 0
    for round_number in range(ROUNDS):
        schema = json.dumps(SchemaMaker(numbers).schema())
        try:
            both = AvroSchema(schema, {}), AvroSchema(schema, {}, True)
        except BrokenSchemaError as error:
            if "contains itself" in str(error):
                continue
            raise
        contents: list[bytes] = []
        known = reference().Avro(json.loads(schema))
        with suppress(RecursionError):  # a schema whose values have no end
            contents = [ValueMaker(numbers).value(known.schema) for _ in range(3)]
        for content in contents:
            for one in (content, *(mutated(numbers, content) for _ in range(3))):
                values += 1
                errors += fails_like(known, both, one, f"seed {seed}, round {round_number}: {schema}: {one.hex()}")
    assert values > 9 * ROUNDS
    assert errors > ROUNDS


def fails_like(known: Any, both: tuple[AvroSchema, AvroSchema], content: bytes, where: str) -> bool:
    """Compare both forms with the slow decoder's; True for an error."""
    found = both[0].decode(content), both[1].decode(memoryview(content))
    right, code = slowly(known, content)
    assert [one.error for one in found] == [code, code], where
    if right is None:
        return True
    for one, form in zip(found, right, strict=False):
        assert json.dumps(one.value) == json.dumps(form), where
        assert one.trailing == (right[2] > 0), where
        assert json.loads(json_text(one.value)) == form, where
    return False


def slowly(known: Any, content: bytes) -> tuple[tuple[Any, Any, int] | None, str | None]:
    try:
        return known.decode(content), None
    except reference().Bad as error:
        return None, error.code


# single rules


def test_logical_types_are_text_and_numbers_outside_of_the_calendar_stay() -> None:
    """Python's libraries raise for the year 10000 and lose the whole record."""
    stamp = {"type": "long", "logicalType": "timestamp-millis"}
    assert decoded(stamp, zigzag(1795237819123)).value == "2026-11-21T05:10:19.123Z"
    assert decoded(stamp, zigzag(253402300800000)).value == 253402300800000
    assert decoded({"type": "int", "logicalType": "time-millis"}, zigzag(18619123)).value == "05:10:19.123"
    assert decoded({"type": "int", "logicalType": "time-millis"}, zigzag(30 * 3600 * 1000)).value == 108000000
    assert decoded({"type": "int", "logicalType": "date"}, zigzag(-1)).value == "1969-12-31"
    money = {"type": "record", "name": "M", "fields": [
        {"name": "m", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3}}
    ]}  # fmt: skip
    assert decoded(money, b"\4" + (-123450).to_bytes(3, "big", signed=True)[1:]).value != {"m": "-123.450"}
    assert decoded(money, b"\6" + (-123450).to_bytes(3, "big", signed=True)).value == {"m": "-123.450"}
    assert decoded(money, b"\0").value == {"m": "0.000"}
    huge = b"\xff\x7f" * 3000
    assert decoded(money, zigzag(len(huge)) + huge).value["m"].startswith("/3//")  # type: ignore[index]


def test_a_union_tells_its_branch_in_the_canonical_form_alone() -> None:
    """jq users write .note, and not .note.string."""
    schema = {"type": "record", "name": "x.R", "fields": [{"name": "note", "type": ["null", "string", "x.R"]}]}
    assert decoded(schema, b"\2\2a").value == {"note": "a"}
    assert decoded(schema, b"\2\2a", canonical=True).value == {"note": {"string": "a"}}
    assert decoded(schema, b"\4\0", canonical=True).value == {"note": {"x.R": {"note": None}}}


def test_a_schema_of_bytes_takes_all_bytes() -> None:
    """Java's serializer writes no length there, and its deserializer reads none."""
    assert decoded("bytes", b"\x06abc").value == "BmFiYw=="
    assert decoded("bytes", b"\xff\0", canonical=True).value == "ÿ\0"
    assert decoded({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, b"\1\0").value == "2.56"
    assert decoded(["null", "bytes"], b"\2\x06abc").value == "YWJj"


def test_names_of_references_are_known_in_the_namespace_too() -> None:
    """Confluent's registry shortens `x.Base` to `Base` within the namespace x."""
    base = json.dumps({"type": "record", "name": "x.Base", "fields": [{"name": "n", "type": "int"}]})
    top = {"type": "record", "name": "x.R", "fields": [{"name": "a", "type": "Base"}, {"name": "b", "type": "x.Base"}]}
    schema = AvroSchema(json.dumps(top), {"x.Base": base})
    assert schema.decode(b"\2\4").value == {"a": {"n": 1}, "b": {"n": 2}}
    assert schema.name == "x.R"
    with pytest.raises(BrokenSchemaError, match=r"no type x\.Base"):
        AvroSchema(json.dumps(top), {})
    with pytest.raises(BrokenSchemaError, match=r"x\.Base: no JSON"):
        AvroSchema(json.dumps(top), {"x.Base": "{"})


TREE = {"type": "record", "name": "T", "fields": [{"name": "v", "type": "int"}, {"name": "c", "type": ["null", "T"]}]}


def chain(depth: int) -> bytes:
    return b"\2\2" * depth + b"\2\0"


def test_a_deep_value_is_read_to_2000_levels() -> None:
    """One level of the tree is two of nesting; the value of 100 000 is an error and no crash."""
    for depth in (0, 1, 150, 600, 999):
        result = decoded(TREE, chain(depth))
        assert result.error is None, depth
        assert json_text(result.value) == '{"v":1,"c":' * depth + '{"v":1,"c":null}' + "}" * depth
    for depth in (1000, 1001, 100_000):
        assert decoded(TREE, chain(depth)) == Decoded(None, None, "bad-value")
        assert decoded(TREE, chain(depth), canonical=True).error == "bad-value"


def record_of_nulls(size: int) -> Any:
    return {"type": "record", "name": "W", "fields": [{"name": f"f{i}", "type": "null"} for i in range(size)]}


ENDLESS: list[tuple[Any, bytes]] = [
    ({"type": "array", "items": "null"}, zigzag(2**40) + b"\0"),
    ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, zigzag(-(2**40)) + b"\0\0"),
    ({"type": "array", "items": {"type": "record", "name": "E", "fields": []}}, zigzag(900_000) * 3 + b"\0"),
    ({"type": "array", "items": "int"}, zigzag(2**62) + b"\2"),
    ({"type": "map", "values": "null"}, zigzag(2**62) + b"\0\0"),
    ({"type": "array", "items": "int"}, b"\xff" * 9 + b"\1" + b"\0" * 20),
    ("string", zigzag(2**62) + b"abc"),
    ("string", zigzag(-5) + b"abcde"),
    ("long", b"\x80" * 5000),
    ("long", b"\xff" * 5000 + b"\0"),
    ({"type": "map", "values": record_of_nulls(9000)}, (zigzag(1) + b"\0") * 500 + b"\0"),
]
"""Schemas and content that demands endlessly much: a block of 2^40 nulls takes no bytes."""


@pytest.mark.parametrize(("schema", "content"), ENDLESS)
@BOTH
def test_bytes_that_demand_endlessly_much_end_soon(schema: Any, content: bytes, canonical: bool) -> None:
    """Time does not follow such a number."""
    begun = time.process_time()
    result = decoded(schema, content, canonical)
    assert time.process_time() - begun < 10
    assert result.error in ("truncated", "bad-value")


def test_bytes_that_demand_endlessly_much_take_little_memory(tmp_path: Path) -> None:
    """Nor does memory; a process of its own shows it, for a traced one takes ten times as long."""
    program = "import sys; sys.path[:0] = sys.argv[1:]; from tests.schemas.test_avro import ENDLESS, decoded\n"
    program += "for one in ENDLESS:\n    print(*(decoded(*one, form).error for form in (False, True)))"
    ran = measured([sys.executable, "-c", program, str(ROOT)], tmp_path)
    assert ran.exit_code == 0, ran.stderr
    assert len(ran.stdout.splitlines()) == len(ENDLESS)
    assert ran.rss < 300 << 20


def ladder(height: int) -> Any:
    """A record of two records of two records …: two to the power of *height* of parts from no byte at all."""
    kind: Any = "null"
    for level in range(height):
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": f"L{level - 1}" if level else "null"}]
        kind = {"type": "record", "name": f"L{level}", "fields": fields}
    return kind


def nested(levels: int) -> str:
    return '{"type":"array","items":' * levels + '"int"' + "}" * levels


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no JSON"),
        ('{"type":"record","name":', "no JSON"),
        ('"string', "no JSON"),
        ("7", "is no type"),
        ('{"name":"x"}', "is no type"),
        ('"strin"', "no type strin"),
        ('{"type":"record","name":"R","fields":[{"name":"r","type":"R"}]}', "R contains itself"),
        ('{"type":"record","name":"R"}', "record without fields"),
        ('{"type":"record","fields":[]}', "record without name"),
        ('{"type":"enum","name":"E"}', "enum without symbols"),
        ('{"type":"fixed","name":"F","size":-1}', "fixed without size"),
        ('{"type":"array"}', "is no type"),
        (json.dumps(ladder(40)), "more than 1000000 parts"),
        (nested(10_000), "nested too deeply"),
        (nested(150), "nested too deeply"),
        ("[" * 100_000, "nested too deeply"),
        (json.dumps("x" * 10_000_000), "no type xxx"),
    ],
)  # fmt: skip
def test_a_hostile_schema_is_an_error_soon(text: str, reason: str) -> None:
    """Anybody who may write to a topic of the registry can register one."""
    begun = time.process_time()
    with pytest.raises(BrokenSchemaError, match=reason) as raised:
        AvroSchema(text, {})
    assert len(str(raised.value)) < 600
    assert time.process_time() - begun < 5


def test_large_and_odd_schemas_work() -> None:
    """A record with 100 000 fields, a name of 60 KB, 10 MB of text, an enum without symbols, 100 levels of arrays."""
    begun = time.process_time()
    wide = {"type": "record", "name": "W", "fields": [{"name": f"f{i}", "type": "int"} for i in range(100_000)]}
    assert len(decoded(wide, b"\2" * 100_000).value) == 100_000  # type: ignore[arg-type]
    name = "n" * 60_000
    long_name = {"type": "record", "name": name, "fields": [{"name": name, "type": ["null", name]}]}
    assert decoded(long_name, b"\0").value == {name: None}
    documented = {"type": "record", "name": "D", "doc": "d" * 10_000_000, "fields": [{"name": "a", "type": "int"}]}
    assert decoded(documented, b"\2").value == {"a": 1}
    assert decoded({"type": "enum", "name": "E", "symbols": []}, b"\0").error == "bad-value"
    assert decoded([], b"\0").error == "bad-value"
    assert AvroSchema(nested(100), {}).decode(b"\2" * 100 + b"\2" + b"\0" * 100).error is None
    assert time.process_time() - begun < 20


def test_references_nested_through_names_do_not_end_the_process() -> None:
    """Thousands of references can each contain the one before: fastavro's recursion would leave the stack."""
    for in_array in (True, False):
        with pytest.raises(BrokenSchemaError, match="nested too deeply"):
            AvroSchema('"A9999"', {f"A{i}": link(i, in_array=in_array) for i in range(10_000)})
    schema = AvroSchema('"A50"', {f"A{i}": link(i, in_array=True) for i in range(10_000)})
    assert schema.decode(b"\2" * 51 + b"\6" + b"\0" * 51).error is None


def link(number: int, *, in_array: bool) -> str:
    before = f"A{number - 1}" if number else "int"
    kind = {"type": "array", "items": before} if in_array else before
    return json.dumps({"type": "record", "name": f"A{number}", "fields": [{"name": "a", "type": kind}]})


def test_a_large_value_costs_a_few_times_itself() -> None:
    """A message of 100 MB is no reason for a gigabyte."""
    schema = AvroSchema('{"type":"record","name":"B","fields":[{"name":"b","type":"string"}]}', {})
    content = zigzag(20_000_000) + b"x" * 20_000_000
    tracemalloc.start()
    text = json_text(schema.decode(content).value)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(text) == 20_000_008
    assert peak < 5 * len(content)
