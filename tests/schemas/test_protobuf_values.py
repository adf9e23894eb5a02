"""Protobuf by hand: what each part of a schema and of a payload becomes, and what hostile ones cost."""

from __future__ import annotations

import base64
import struct
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from klog.schemas.decoded import BrokenSchemaError, Decoded
from klog.schemas.json_values import json_text
from klog.schemas.protobuf import ProtobufSchema

WELL_KNOWN = ("any", "duration", "field_mask", "struct", "timestamp", "wrappers")
PROTO3 = 'syntax = "proto3";' + "".join(f'import "google/protobuf/{name}.proto";' for name in WELL_KNOWN)
ALL = f"""{PROTO3}
message M {{
  int32 i = 1;
  optional int32 maybe = 2;
  string s = 3;
  repeated int64 r = 4;
  M m = 5;
  oneof o {{ int32 left = 6; M right = 7; }}
  E e = 8;
  map<bool, E> flags = 9;
  float f = 10;
  bytes b = 11;
  map<int64, string> longs = 12;
  google.protobuf.Timestamp at = 20;
  google.protobuf.Duration took = 21;
  google.protobuf.FieldMask mask = 22;
  google.protobuf.Any any = 23;
  google.protobuf.Value value = 24;
  google.protobuf.Int64Value boxed = 25;
  google.protobuf.NullValue nothing = 26;
  enum E {{ ZERO = 0; ONE = 1; UNO = 1; option allow_alias = true; }}
}}"""
PROTO2 = """message M {
  optional string s = 1 [default = "ab\\tc"];
  optional E e = 2;
  repeated E es = 3;
  optional group Inner = 4 { optional bytes b = 1; }
  required int64 must = 5;
  oneof o { int32 x = 6; }
  optional double d = 7 [default = inf];
  extensions 100 to max;
  map<string, string> texts = 8;
  enum E { LOW = 3; HIGH = 9; }
}
extend M { optional int32 extra = 100; }"""


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes((*out, number))


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value & (1 << 64) - 1)
    return varint(number << 3 | 2) + varint(len(value)) + value


def nested(number: int, depth: int, inner: bytes = b"") -> bytes:
    for _ in range(depth):
        inner = field(number, inner)
    return inner


def value_of(text: str, data: bytes, canonical: bool = False) -> Any:
    found = ProtobufSchema(text, {}, canonical).decode(b"\0" + data)
    assert found.error is None
    return found.value


@pytest.mark.parametrize(
    ("data", "plain", "canonical"),
    [
        (field(1, 5) + field(1, 6), {"i": 6}, {"i": 6}),
        (field(2, 0), {"maybe": 0}, {"maybe": 0}),
        (field(4, b"\1\2") + field(4, 3), {"r": [1, 2, 3]}, {"r": ["1", "2", "3"]}),
        (field(5, field(1, 1)) + field(5, field(3, b"x")), {"m.i": 1, "m.s": "x"}, {"m.i": 1, "m.s": "x"}),
        (field(6, 0), {"left": 0}, {"left": 0}),
        (field(6, 1) + field(7, b""), {"right.i": 0, "left": None}, {"right.i": 0, "left": None}),
        (field(8, 1), {"e": "ONE"}, {"e": "ONE"}),
        (field(8, -7), {"e": -7}, {"e": -7}),
        (field(9, field(1, 1) + field(2, 7)), {"flags": {"true": 7}}, {"flags": {"true": 7}}),
        (field(9, b""), {"flags": {"false": "ZERO"}}, {"flags": {"false": "ZERO"}}),
        (
            field(12, field(1, 10)) + field(12, field(1, 9)),
            {"longs": {"9": "", "10": ""}},
            {"longs": {"9": "", "10": ""}},
        ),
        (b"\x55" + struct.pack("<f", 0.1), {"f": 0.1}, {"f": 0.1}),
        (b"\x55" + struct.pack("<f", 3.4028234663852886e38), {"f": 3.4028235e38}, {"f": 3.4028235e38}),
        (b"\x55" + struct.pack("<f", float("-inf")), {"f": "-Infinity"}, {"f": "-Infinity"}),
        (field(11, b"\xff"), {"b": "/w=="}, {"b": "/w=="}),
        (
            field(20, field(1, 1) + field(2, 5000)),
            {"at": "1970-01-01T00:00:01.000005Z"},
            {"at": "1970-01-01T00:00:01.000005Z"},
        ),
        (field(20, field(1, 253402300800)), {"at.seconds": 253402300800}, {"at.seconds": "253402300800"}),
        (field(20, field(2, -1)), {"at.nanos": -1}, {"at.nanos": -1}),
        (field(21, field(1, -1) + field(2, -500000000)), {"took": "-1.500s"}, {"took": "-1.500s"}),
        (field(21, field(2, -5)), {"took": "-0.000000005s"}, {"took": "-0.000000005s"}),
        (field(21, field(1, 1) + field(2, -5)), {"took": {"seconds": 1, "nanos": -5}}, {"took.seconds": "1"}),
        (field(22, field(1, b"a_b.c") + field(1, b"d")), {"mask": "aB.c,d"}, {"mask": "aB.c,d"}),
        (field(22, field(1, b"aB")), {"mask": {"paths": ["aB"]}}, {"mask": {"paths": ["aB"]}}),
        (field(23, field(1, b"x/y") + field(2, b"a")), {"any": {"@type": "x/y", "value": "YQ=="}}, {}),
        (field(23, field(1, b"x/M") + field(2, field(4, 1))), {"any.@type": "x/M", "any.r": [1]}, {"any.r": ["1"]}),
        (field(23, field(1, b"x/M") + field(2, b"\x08")), {"any": {"@type": "x/M", "value": "CA=="}}, {}),
        (field(23, field(1, b"x/google.protobuf.Duration")), {"any.value": "0s"}, {"any.value": "0s"}),
        (field(24, b"\x11" + struct.pack("<d", float("nan"))), {"value": "NaN"}, {"value": "NaN"}),
        (field(24, b"") + field(25, field(1, 7)), {"value": None, "boxed": 7}, {"boxed": "7"}),
        (field(26, 0), {"nothing": "NULL_VALUE"}, {"nothing": None}),
        (field(99, b"?") + b"\x0d\1\2\3\4" + field(3, b"ok"), {"s": "ok", "i": 0}, {"s": "ok", "i": 0}),
    ],
)
def test_fields_of_proto3(data: bytes, plain: dict[str, Any], canonical: dict[str, Any]) -> None:
    """The table of the two forms, row by row; None: the field is left out, or null."""
    for form, expected in ((False, plain), (True, canonical)):
        value = value_of(ALL, data, form)
        for path, one in expected.items():
            found = value
            for name in path.split("."):
                found = found.get(name)
            assert found == one


def test_fields_without_presence_are_always_there_in_the_order_of_the_text() -> None:
    """Two records of a topic have the same columns, whatever was set."""
    empty = {
        "i": 0,
        "s": "",
        "r": [],
        "e": "ZERO",
        "flags": {},
        "f": 0.0,
        "b": "",
        "longs": {},
        "nothing": "NULL_VALUE",
    }
    assert list(value_of(ALL, b"").items()) == list(empty.items())
    assert value_of(ALL, field(6, 1) + field(2, 1)) == empty | {"left": 1, "maybe": 1}


@pytest.mark.parametrize(
    ("data", "plain", "canonical"),
    [
        (b"", {"es": [], "texts": {}}, {"s": "ab\tc", "e": "LOW", "es": [], "d": "Infinity", "texts": {}}),
        (field(2, 9), {"e": "HIGH"}, {"e": "HIGH"}),
        (field(2, 4) + field(3, 4) + field(3, 3), {"es": ["LOW"]}, {"e": "LOW", "es": ["LOW"]}),
        (field(5, 7) + field(6, 0), {"must": 7, "x": 0}, {"must": "7", "x": 0}),
        (b"\x23" + field(1, b"\0") + b"\x24", {"inner": {"b": "AA=="}}, {"inner": {"b": "AA=="}}),
        (b"\x23\x24", {"inner": {}}, {"inner": {"b": ""}}),
        (field(100, 1), {"es": []}, {"es": []}),
    ],
)
def test_fields_of_proto2(data: bytes, plain: dict[str, Any], canonical: dict[str, Any]) -> None:
    """Unset fields are left out of plain; canonical has their defaults; a closed enum has no unknown numbers."""
    assert value_of(PROTO2, data) == {"es": [], "texts": {}} | plain
    defaults = value_of(PROTO2, b"", canonical=True)
    assert value_of(PROTO2, data, canonical=True) == defaults | canonical


LISTED = """syntax = "proto3";
message A { map<string, int32> m = 1; message B { message C { int32 c = 1; } } message D { int32 d = 1; } }
message E { int32 e = 1; }"""
ENTRIES = """syntax = "proto3";
message A { repeated .A.MEntry m = 1; message MEntry { option map_entry = true; string key = 1; int32 value = 2; }
  message B { int32 b = 1; } }"""
SECOND = "message A { } message B { message C { } }"
GROUPED = "message A { optional group G = 1 { } message B { optional int32 b = 1; } }"


@pytest.mark.parametrize(
    ("text", "index", "expected"),
    [
        (LISTED, "00", "A"),
        (LISTED, "0200", "A"),
        (LISTED, "0202", "E"),
        (LISTED, "040000", "A.B"),
        (LISTED, "06000000", "A.B.C"),
        (LISTED, "040002", "A.D"),
        (ENTRIES, "040000", "A.MEntry"),
        (ENTRIES, "040002", "A.B"),
        (GROUPED, "040000", "A.B"),
        (LISTED, "0100", "A"),
        (LISTED, "0101", "E"),
        (SECOND, "020100", "B.C"),
        (LISTED, "", "truncated"),
        (LISTED, "04", "truncated"),
        (LISTED, "0402", "truncated"),
        (LISTED, "0400ff", "truncated"),
        (LISTED, "0204", "bad-message-index"),
        (LISTED, "040008", "bad-message-index"),
        (LISTED, "8002", "bad-message-index"),
        (LISTED, "ff" * 10 + "01", "bad-message-index"),
        (LISTED, "ffffffff0f", "bad-message-index"),
    ],
)
def test_message_indexes(text: str, index: str, expected: str) -> None:
    """The path walks the messages that the text lists; old clients wrote unsigned numbers."""
    found = ProtobufSchema(text, {}).decode(bytes.fromhex(index))
    assert (found.error or found.message) == expected


def test_a_map_entry_that_the_text_declares_is_a_map() -> None:
    """Registries print descriptors of Python clients that way; protoc refuses the text."""
    assert value_of(ENTRIES, field(1, field(1, b"k") + field(2, 7))) == {"m": {"k": 7}}


@pytest.mark.parametrize(
    "data",
    [
        field(3, b"\xff"),
        b"\x1a\x7fabc",
        b"\x1a\xff\xff\xff\xff\x0f",
        b"\x08",
        b"\x08" + b"\xff" * 10 + b"\1",
        b"\x0b",
        b"\x0c",
        b"\x0e",
        b"\0\0",
        nested(5, 101),
        nested(5, 20_000),
        b"\xab\x06" * 100_000,
    ],
    ids=range(12),
)
def test_bytes_that_are_no_message_are_bad_values(data: bytes) -> None:
    """Text that is not UTF-8, lengths beyond the end, endless varints, groups without an end, 100 000 levels."""
    assert ProtobufSchema(ALL, {}).decode(b"\0" + data) == Decoded(None, None, "bad-value")


@pytest.mark.parametrize("data", [field(1, b"\xff"), field(8, field(1, b"\xff")), field(8, field(2, b"\xed\xa0\x80"))])
def test_text_of_proto2_is_checked_too(data: bytes) -> None:
    """The library returns bytes for it, which are no JSON."""
    assert ProtobufSchema(PROTO2, {}).decode(b"\0" + data).error == "bad-value"


def test_messages_in_any_are_opened_to_a_bounded_depth() -> None:
    """Each level of Any begins its own count of nesting."""
    inner = field(1, 5)
    for _ in range(3000):
        inner = field(23, field(1, b"x/M") + field(2, inner))
    assert json_text(value_of(ALL, inner)).count("@type") == 21


def test_fields_may_have_any_name() -> None:
    """Names that a class of messages uses itself, and Python's, are data."""
    names = (
        "HasField",
        "DESCRIPTOR",
        "__class__",
        "FromString",
        "Clear",
        "x_FIELD_NUMBER",
        "f1",
        "from",
        "__proto__",
        "_a",
    )
    fields = "".join(f"optional int32 {name} = {number};" for number, name in enumerate(names, start=1))
    text = f'syntax = "proto3"; message M {{ {fields} enum E {{ f2 = 0; }} message f3 {{ }} }}'
    data = b"".join(field(number, number) for number in range(1, 11))
    assert value_of(text, data) == {name: number for number, name in enumerate(names, start=1)}
    assert list(value_of(text, data, canonical=True))[-3:] == ["from", "Proto", "A"]


def test_two_fields_with_one_name_in_protojson_keep_their_own() -> None:
    """protoc warns of it in proto2, and values have been written."""
    text = "message M { optional int32 foo_bar = 1; optional int32 fooBar = 2; }"
    assert value_of(text, field(1, 1) + field(2, 2)) == {"foo_bar": 1, "fooBar": 2}
    assert value_of(text, field(1, 1) + field(2, 2), canonical=True) == {"foo_bar": 1, "fooBar": 2}


def test_a_payload_of_another_schema_has_only_unknown_fields() -> None:
    """Protobuf almost never fails: that is the one sign of a wrong schema."""
    schema = ProtobufSchema(ALL, {})
    assert schema.has_only_unknown_fields(b"\0" + field(99, 1))
    assert not schema.has_only_unknown_fields(b"\0" + field(99, 1) + field(1, 1))
    assert not schema.has_only_unknown_fields(b"\0")


# references


def test_references_are_found_by_their_import_path() -> None:
    """A text imports others, which import others; a reference that is not imported is not even read."""
    texts = {
        "b.proto": 'syntax = "proto3"; package b; import public "c.proto"; message B { c.C c = 1; }',
        "c.proto": 'syntax = "proto3"; package c; import "google/protobuf/timestamp.proto"; message C { int32 n = 1; }',
        "broken.proto": "message {",
    }
    schema = ProtobufSchema('import "b.proto"; message A { optional b.B b = 1; optional c.C c = 2; }', texts)
    assert schema.decode(b"\0" + field(1, field(1, field(1, 7)))).value == {"b": {"c": {"n": 7}}}


def test_files_that_registries_know_need_no_reference() -> None:
    """ksqlDB registers schemas with such fields."""
    text = """syntax = "proto3"; import "confluent/type/decimal.proto"; import "google/type/date.proto";
        message M { confluent.type.Decimal d = 1; google.type.Date day = 2; }"""
    data = field(1, field(1, b"\x7f") + field(2, 9) + field(3, 2)) + field(2, field(1, 2026))
    expected = {"d": {"value": "fw==", "precision": 9, "scale": 2}, "day": {"year": 2026, "month": 0, "day": 0}}
    assert value_of(text, data) == expected


def test_an_import_for_options_alone_may_be_missing() -> None:
    """No type of it is used, so that every value can be read."""
    assert value_of('import "validate.proto"; message M { optional int32 a = 1 [(v) = 1]; }', field(1, 1)) == {"a": 1}


@pytest.mark.parametrize(
    ("text", "references", "reason"),
    [
        ('import "gone.proto"; message M { optional gone.G g = 1; }', {}, "M: there is no type gone.G"),
        ('import "a"; message M {}', {"a": 'import "b";', "b": 'import "a";'}, "imports form a circle"),
        ('import "a"; message M {}', {"a": 'import "a";'}, "imports form a circle"),
        ('import "a"; message M {}', {"a": "message M {}"}, "M"),
        ("message M { optional int32 a = 1; optional int32 a = 2; }", {}, "duplicate"),
        ("message M { optional int32 a = 0; }", {}, "number"),
        ("enum E { } message M { optional E e = 1; }", {}, "enum"),
        ("aGFsbG8gd2VsdA==", {}, "neither .proto text nor a descriptor"),
        ("A" * 5_000_000, {}, "longer than"),
        (base64.b64encode(b"\x22\0" * 90_000).decode(), {}, "parts"),
    ],
)
def test_schemas_that_contradict_themselves_are_broken(text: str, references: dict[str, str], reason: str) -> None:
    with pytest.raises(BrokenSchemaError, match=reason):
        ProtobufSchema(text, references)


def test_a_reference_may_bring_its_own_well_known_type() -> None:
    """A type that has the name but not the fields is an ordinary message."""
    text = 'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message M { google.protobuf.Timestamp t = 1; }'
    for fields, expected in (
        ("int64 seconds = 1; int32 nanos = 2;", "1970-01-01T00:00:05Z"),
        ("int32 x = 1;", {"x": 5}),
    ):
        own = f'syntax = "proto3"; package google.protobuf; message Timestamp {{ {fields} }}'
        schema = ProtobufSchema(text, {"google/protobuf/timestamp.proto": own})
        assert schema.decode(b"\0" + field(1, field(1, 5))).value == {"t": expected}


# hostile schemas


def chain(count: int, last: int) -> str:
    return "".join(f"message M{at} {{ M{at + 1 if at < last else 0} a = 1; }}" for at in range(count))


HOSTILE = {
    "10 000 levels": "".join(f"message M{at} {{" for at in range(10_000)) + "}" * 10_000,
    "braces": "message M " + "{" * 1_000_000,
    "braces in options": "option x = " + "{" * 500_000 + "}" * 500_000 + "; message M { }",
    "a package of 2 500 000 parts": "package a" + ".a" * 2_500_000 + "; message M { }",
    "long scopes": "package a" + ".a" * 30_000 + "; " + chain(20_000, 20_000),
    "a name of 60 KB": f"message M {{ int32 {'a' * 60_000} = 1; }}",
    "a name of 10 MB": f"message {'a' * 10_000_000} {{ }}",
    "100 000 fields": "message M {" + "".join(f"int32 f{at} = {at + 20_000};" for at in range(100_000)) + "}",
    "500 000 messages": "".join(f"message M{at}{{}}" for at in range(500_000)),
    "500 000 values": "enum E { A = 0; " + "".join(f"A{at}={at};" for at in range(1, 500_000)) + "}",
    "a chain of types": chain(30_000, 29_999) + "message Z { }",
    "a comment of 10 MB": "/*" + "a*" * 5_000_000,
    "comments": "/**/" * 2_500_000 + "message M { }",
    "a string of 10 MB": 'option x = "' + "\\x" * 5_000_000 + '"; message M { }',
    "a number of 10 MB": "message M { int32 a = " + "9" * 10_000_000 + "; }",
    "a hexadecimal number of 10 MB": "message M { int32 a = 0x" + "9" * 10_000_000 + "; }",
    "a path of 10 MB": "message M { a" + ".a" * 5_000_000 + " x = 1; }",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_schemas_end_in_bounded_time(name: str) -> None:
    """They are broken, or they work; nothing is exponential, and no limit of Python's is met."""
    began = time.process_time()
    try:
        ProtobufSchema(f'syntax = "proto3"; {HOSTILE[name]}', {}).decode(b"\0" + field(1, b""))
    except BrokenSchemaError:
        pass
    assert time.process_time() - began < 30


def test_references_in_a_long_chain_and_in_diamonds_end_in_bounded_time() -> None:
    chained = {f"a{at}": f'import "a{at + 1}";' for at in range(1000)}
    ProtobufSchema('import "a0"; message M { }', chained)
    diamonds = {f"{side}{at}": f'import "a{at + 1}"; import "b{at + 1}";' for at in range(300) for side in "ab"}
    ProtobufSchema('import "a0"; import "b0"; message M { }', diamonds)


@pytest.mark.parametrize("canonical", [False, True], ids=["plain", "canonical"])
def test_threads_that_meet_a_schema_at_once_get_the_same_value(canonical: bool) -> None:
    """One of them prepares a type for its first value; the others wait until that is complete."""
    inner = "".join(f"int32 f{number} = {number}; " for number in range(1, 60))
    levels = "".join(f"message M{level} {{ M{level + 1} m = 99; {inner} }} " for level in range(20))
    text = f'syntax = "proto3"; {levels} message M20 {{ {inner} }}'
    content = b"\0\x9a\6\0"  # M0 with an empty M1
    interval, expected = sys.getswitchinterval(), ProtobufSchema(text, {}, canonical).decode(content)
    assert len(expected.value["m"]) == 59
    try:
        sys.setswitchinterval(1e-6)
        for _ in range(10):
            schema, start = ProtobufSchema(text, {}, canonical), Barrier(4)

            def decode(schema: ProtobufSchema = schema, start: Barrier = start) -> Decoded:
                start.wait()
                return schema.decode(content)

            with ThreadPoolExecutor(4) as threads:
                found = [threads.submit(decode) for _ in range(4)]
            assert [one.result() for one in found] == [expected] * 4
    finally:
        sys.setswitchinterval(interval)
