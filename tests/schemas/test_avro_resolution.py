"""Avro values as another schema reads them: the answers of Java's Avro, and of fastavro where it has one."""

from __future__ import annotations

import json
import random
import shutil
import struct
import subprocess
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import pyspark
import pytest
from klog.schemas.avro import AvroSchema
from klog.schemas.avro_resolution import JsonReader
from klog.schemas.avro_types import parse_avro
from klog.schemas.decoded import BrokenSchemaError, Decoded
from klog.schemas.json_values import json_text

from tests.schemas.corpus import reference
from tests.schemas.random_avro import TEXTS, ValueMaker, zigzag
from tests.schemas.random_evolution import Evolution, PlainSchemas

JARS = Path(pyspark.__file__).parent / "jars"
PROGRAM = Path(__file__).parent / "java" / "ResolveAvro.java"


class Case(NamedTuple):
    """A value of a writer schema, and the schema that reads it."""

    writer: Any
    reader: Any
    value: bytes


def read(case: Case, canonical: bool = False) -> Decoded:
    reader = JsonReader(parse_avro(json.dumps(case.reader), {}), canonical)
    return AvroSchema(json.dumps(case.writer), {}, canonical, reader).decode(case.value)


class DistinctTexts(ValueMaker):
    """Makes no map with one key twice: Java reads both values, and keeps one."""

    def _primitive(self, kind: str) -> bytes:
        if kind != "string":
            return super()._primitive(kind)
        text = f"{self._numbers.choice(TEXTS)}{self._numbers.randrange(10**6)}".encode()
        return zigzag(len(text)) + text


def random_cases(seed: int, pairs: int) -> list[Case]:
    numbers, found = random.Random(seed), list[Case]()
    while len(found) < 3 * pairs:
        writer = PlainSchemas(numbers).schema()
        reader = Evolution(numbers).next_version(writer)
        if writer in ("bytes", {"type": "bytes"}):
            continue  # registries' serializers write it without a length
        with suppress(RecursionError, BrokenSchemaError, reference().Bad):
            for schema in (writer, reader):
                parse_avro(json.dumps(schema), {})
            known = reference().Avro(writer)
            found += [Case(writer, reader, DistinctTexts(numbers).value(known.schema)) for _ in range(3)]
    return found


def javas_answers(cases: list[Case]) -> list[str]:
    text = "".join(f"{json.dumps(one.writer)}\t{json.dumps(one.reader)}\t{one.value.hex()}\n" for one in cases)
    names = ("avro-1", "jackson-", "slf4j-api", "commons-")
    jars = ":".join(str(jar) for name in names for jar in JARS.glob(f"{name}*"))
    command = ["java", "-Xss64m", "-XX:TieredStopAtLevel=1", "-cp", jars, str(PROGRAM)]
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().rstrip("\n").split("\n")


def agree(one: object, other: object) -> bool:
    """Whether two values are equal; a float of four bytes is written by Java with the digits of a double."""
    if isinstance(one, float) and isinstance(other, float | int):
        return one == other or struct.pack("<f", one) == struct.pack("<f", other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(agree(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(agree, one, other))
    return one == other


@pytest.mark.corpora
@pytest.mark.kafka
@pytest.mark.skipif(shutil.which("java") is None, reason="java not found")
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 20))])
def test_random_versions_agree_with_java(seed: int) -> None:
    """Added, dropped, renamed and reordered fields, promotions, unions, enums: values and refusals are Java's."""
    cases = random_cases(seed, 1000)
    counts = {"value": 0, "error": 0}
    for case, answer in zip(cases, javas_answers(cases), strict=True):
        if answer == "schema" or "NullPointerException" in answer:  # it has lost a field of a recursive record
            continue
        if "\ufffd" in answer:  # bytes that are text for the reader, and not UTF-8: Java replaces them
            assert read(case).error == "bad-value"
            continue
        found, where = read(case, canonical=True), f"seed {seed}: {json.dumps(case._replace(value=case.value.hex()))}"
        if answer.startswith("error"):
            counts["error"] += 1
            assert found.error in ("incompatible", "bad-value"), f"{where}: {answer}"
        else:
            counts["value"] += 1
            assert found.error is None, f"{where}: {answer}"
            if answer:  # Java prints nothing of records without fields
                assert agree(json.loads(json_text(found.value)), json.loads(answer)), f"{where}: {answer}"
    assert counts["value"] > len(cases) // 3
    assert counts["error"] > len(cases) // 20


@pytest.mark.corpora
def test_random_versions_agree_with_fastavro() -> None:
    """As far as fastavro reads them at all: it is stricter with names of records and laxer with branches."""
    same = 0
    for case in random_cases(99, 300):
        found = read(case)
        if found.error is not None:
            continue
        try:
            other: Any = fastavro.schemaless_reader(
                BytesIO(case.value), fastavro.parse_schema(case.writer), fastavro.parse_schema(case.reader)
            )
            own = AvroSchema(json.dumps(case.reader), {}).decode(written(case.reader, other))
        except Exception:  # fastavro raises whatever its code runs into
            continue
        same += agree(found.value, own.value)
    assert same > 300


def written(schema: Any, value: object) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def record(*fields: Any, name: str = "x.R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)} | more


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind} | more


def long(logical: str) -> dict[str, str]:
    return {"type": "long", "logicalType": logical}


def test_a_latest_version_reads_all_versions_before_it() -> None:
    """A field with a default, a number that became larger, a field that is gone, one with a new name."""
    first = record(field("id", "int"), field("label", "string"), field("gone", "int"))
    last = record(
        field("added", ["null", "string"], default=None), field("id", "long"),
        field("title", "string", aliases=["label"]),
        field("flags", {"type": "array", "items": "string"}, default=["a"]),
    )  # fmt: skip
    value = zigzag(7) + zigzag(2) + b"ab" + zigzag(3)
    assert read(Case(first, last, value)).value == {"added": None, "id": 7, "title": "ab", "flags": ["a"]}
    assert list(read(Case(first, last, value), canonical=True).value) == ["added", "id", "title", "flags"]  # type: ignore[call-overload]


def test_defaults_are_made_anew_for_each_value() -> None:
    """Values are changed in place; a default that is shared would change with the first."""
    kind = {"type": "map", "values": "boolean"}
    schema = AvroSchema(
        json.dumps(record()), {}, False,
        JsonReader(parse_avro(json.dumps(record(field("a", kind, default={"x": True}))), {}), False),
    )  # fmt: skip
    assert [schema.decode(b"").value for _ in range(2)] == [{"a": {"x": True}}] * 2


@pytest.mark.parametrize(
    ("writer", "reader", "value"),
    [
        ("string", "int", zigzag(1) + b"a"),
        (record(), record(field("a", "int")), b""),
        (record(), record(field("a", "int", default="x")), b""),
        (["int", "string"], "int", zigzag(1) + zigzag(1) + b"a"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, {"type": "enum", "name": "E", "symbols": ["B"]}, b"\0"),
        ({"type": "fixed", "name": "F", "size": 1}, {"type": "fixed", "name": "F", "size": 2}, b"\0"),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            {"type": "long", "logicalType": "timestamp-micros"},
            b"\2",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3},
            b"\2",
        ),
    ],
)
def test_a_value_that_is_none_of_the_reader_is_incompatible(writer: Any, reader: Any, value: bytes) -> None:
    """Numbers of another unit or scale would be other values, with no error to see."""
    assert read(Case(writer, reader, value)) == Decoded(None, None, "incompatible")


def test_an_error_is_one_of_the_values_that_meet_it() -> None:
    """As in Java: a branch or a symbol that the reader lacks makes no other value unreadable."""
    enum = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
    fewer = {"type": "enum", "name": "E", "symbols": ["A"]}
    assert [read(Case(enum, fewer, zigzag(at))).error for at in (0, 1)] == [None, "incompatible"]
    assert read(Case(enum, fewer | {"default": "A"}, zigzag(1))).value == "A"
    branches = [read(Case(["null", "int", "string"], ["null", "long"], value)) for value in (b"\0", b"\2\6", b"\4\2a")]
    assert [(one.value, one.error) for one in branches] == [(None, None), (3, None), (None, "incompatible")]


def test_damaged_values_keep_their_own_errors() -> None:
    """The bytes decide first: an int out of range is no matter of the reader."""
    wide = record(field("id", "long"))
    narrow = record(field("id", "int"))
    assert read(Case(narrow, wide, zigzag(2**40))).error == "bad-value"
    assert read(Case(narrow, wide, b"")).error == "truncated"
    assert read(Case(narrow, wide, b"\2x")) == Decoded({"id": 1}, trailing=True)
    assert read(Case("bytes", "string", b"\xff")).error == "bad-value"


def test_logical_types_are_those_of_the_reader() -> None:
    """A number that became a timestamp in a later version."""
    stamp = {"type": "long", "logicalType": "timestamp-millis"}
    assert read(Case("long", stamp, zigzag(0))).value == "1970-01-01T00:00:00.000Z"
    assert read(Case(stamp, "long", zigzag(5))).value == 5


def test_recursive_schemas_of_two_versions_resolve() -> None:
    """The types meet in pairs, which are finite, even if their cycles have different lengths."""
    node = record(field("v", "int"), field("next", ["null", "x.R"]))
    wider = record(field("v", "long"), field("next", ["null", "x.R"], default=None), field("n", "int", default=1))
    value = zigzag(1) + b"\2" + zigzag(2) + b"\0"
    assert read(Case(node, wider, value)).value == {"v": 1, "n": 1, "next": {"v": 2, "n": 1, "next": None}}
    deep = (zigzag(1) + b"\2") * 900 + zigzag(2) + b"\0"
    assert read(Case(node, wider, deep)).error is None


def test_schemas_of_many_pairs_end_soon() -> None:
    """Two recursive schemas with cycles of 41 and 43 records meet in 1763 pairs."""

    def ring(size: int, kind: str) -> Any:
        found: Any = "x.R0"
        for number in reversed(range(size)):
            found = record(field("v", kind), field("next", ["null", found]), name=f"x.R{number}")
        return found

    case = Case(ring(41, "int"), ring(43, "long"), zigzag(1) + b"\2" + zigzag(2) + b"\0")
    assert read(case).error in (None, "incompatible")
