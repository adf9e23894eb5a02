"""Schemas as data: the notation, both encodings, the refusals and the printed form."""

from __future__ import annotations

import math
import os
import random
import runpy
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from klog.formats.structs.json import EmbeddedStruct, to_json
from klog.formats.structs.read import StructError, decode
from klog.formats.structs.schema import UNKNOWN_TAGS, Data, Schema, Struct, Versions, load, names_by_key, parse
from klog.formats.structs.write import Hole, Writer, encode
from klog.formats.structs.write import write as write_pieces

from tests.brokers import jars
from tests.conftest import ROOT
from tests.formats.struct_writer import damaged, made_up_struct, write

SCHEMAS = ROOT / "core" / "klog" / "formats" / "structs" / "schemas"
FILES = ("consumer_protocol", "control", "coordinator", "metadata", "remote_log", "share", "transaction", "wire")


def every_schema() -> list[Schema]:
    lines = [line for file in FILES for line in (SCHEMAS / f"{file}.txt").read_text("utf-8").splitlines()]
    return [parse(line) for line in lines if not line.startswith("#")]


def read(line: str, hexadecimal: str, version: int = 0) -> Data:
    return decode(parse(line), bytes.fromhex(hexadecimal), version)[0]


def refusal(line: str, hexadecimal: str, version: int = 0) -> str | None:
    with pytest.raises(StructError) as caught:
        read(line, hexadecimal, version)
    return caught.value.message


# ---------------------------------------------------------------- the notation


def test_a_line_spells_a_schema() -> None:
    schema = parse(
        'Name[7] v1-4 flex=3+: a:int32 =-1; b:[]Inner^-4{c:string @2+ ? ="x;\\"y"; d:bool #2 =true} @-3 ?2+ =null'
    )
    assert (schema.name, schema.key, schema.lowest, schema.highest) == ("Name", 7, 1, 4)
    assert [schema.flexible.hold(version) for version in (2, 3, 99)] == [False, True, True]
    a, b = schema.struct.fields
    assert (a.name, a.type, a.default()) == ("a", "int32", -1)
    assert (b.type, b.array, b.exists, b.nullable, b.default()) == (
        "struct",
        True,
        Versions(None, 3),
        Versions(2),
        None,
    )
    assert b.struct is not None
    assert (b.struct.name, b.struct.readable) == ("Inner", Versions(None, 4))
    assert b.struct.default() == {"c": 'x;"y', "d": True}
    assert b.struct.fields[1].tag == 2


def test_a_range_that_begins_with_the_first_version_is_no_test() -> None:
    """Kafka's classes do not test conditions that hold for all versions they know: version -1 is flexible, too."""
    assert parse("Name v0-3 flex=0+: a:int8").flexible.hold(-1)
    assert not parse("Name v0 flex=none: a:int8").flexible.hold(0)


@pytest.mark.parametrize("line", ["Name v0 flex=none: a:int8 !", "Name v0 flex=none: a int8", "Name v0 flex=none: ; %"])
def test_what_the_notation_does_not_know_is_an_error(line: str) -> None:
    with pytest.raises((ValueError, IndexError)):
        parse(line)


def test_every_schema_that_comes_along_is_read_and_has_defaults() -> None:
    schemas = every_schema()
    assert len(schemas) == 44 + 26 + 7 + 4 + 4 + 2 + 2 + 60
    for schema in schemas:
        assert set(schema.struct.default()) == {field.name for field in schema.struct.fields}


def test_record_types_lead_to_their_schemas() -> None:
    assert names_by_key("coordinator")[1] == ("OffsetCommitKey", "OffsetCommitValue")
    assert names_by_key("metadata")[28] == ("ClearElrRecord",)
    assert 9 not in names_by_key("coordinator")
    with pytest.raises(KeyError):
        load("metadata", "Nobody")


@pytest.mark.kafka
def test_the_schemas_are_those_in_kafkas_jars(tmp_path: Path) -> None:
    """They are written by a tool and never by hand, and the tool gives the same lines each time."""
    runpy.run_path(str(ROOT / "tools" / "make_schemas.py"))["main"](str(jars.install("4.3.1")), str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == sorted(os.listdir(SCHEMAS))
    for file in tmp_path.iterdir():
        assert file.read_bytes() == (SCHEMAS / file.name).read_bytes(), file.name


# ---------------------------------------------------------------- bytes

NUMBERS = "N v0 flex=none: a:bool; b:int8; c:int16; d:int32; e:int64; f:uint16; g:uint32; h:float64; i:uuid"


def test_numbers_are_big_endian() -> None:
    data = "02 ff fffe fffffffd fffffffffffffffc fffb fffffffa 3ff8000000000000 00112233445566778899aabbccddeeff"
    expected = [True, -1, -2, -3, -4, 0xFFFB, 0xFFFFFFFA, 1.5, "ABEiM0RVZneImaq7zN3u_w"]
    assert list(read(NUMBERS, data).values()) == expected


def test_lengths_are_fixed_in_the_classic_and_varints_in_the_flexible_encoding() -> None:
    line = "N v0-1 flex=1+: s:string; b:bytes; a:[]int8; n:string ?; m:bytes ?; o:[]int8 ?; r:records ?"
    expected = {"s": "hi", "b": b"\x07", "a": [1, 2], "n": None, "m": None, "o": None, "r": b""}
    assert read(line, "0002 6869 00000001 07 00000002 0102 ffff ffffffff ffffffff 00000000") == expected
    assert read(line, "03 6869 02 07 03 0102 00 00 00 01 00", 1) == expected


def test_fields_that_a_version_does_not_have_take_their_defaults() -> None:
    line = 'N v0-3 flex=none: a:int8; b:int8 @1-2 =9; c:[]int8 @2+; d:S{x:int8 =3} @3+; e:string @-1 ? ="old"'
    assert read(line, "01 0001 78") == {"a": 1, "b": 9, "c": [], "d": {"x": 3}, "e": "x"}
    assert read(line, "01 05 00000000", 2) == {"a": 1, "b": 5, "c": [], "d": {"x": 3}, "e": "old"}
    assert read(line, "01 00000001 07 04", 3) == {"a": 1, "b": 9, "c": [7], "d": {"x": 4}, "e": "old"}


def test_defaults_are_not_shared_between_structs() -> None:
    schema = parse("N v0-1 flex=none: a:[]int8 @1+; s:S{b:[]int8} @1+")
    first, _ = decode(schema, b"", 0)
    first["a"].append(1)
    first["s"]["b"].append(1)
    assert decode(schema, b"", 0)[0] == {"a": [], "s": {"b": []}}


def test_structs_and_null_structs() -> None:
    line = "N v0-1 flex=1+: s:S{x:int8} ?; t:S{x:int8} @1+ ? #0"
    assert read(line, "01 07") == {"s": {"x": 7}, "t": {"x": 0}}
    assert read(line, "00 07")["s"] == {"x": 7}, "only a number below zero is null"
    assert read(line, "80")["s"] is None
    assert read(line, "ff 01 00 03 01 05 00", 1) == {"s": None, "t": {"x": 5}}
    assert read(line, "ff 01 00 01 00", 1) == {"s": None, "t": None}


def test_tagged_fields_as_kafka_takes_them() -> None:
    """Any order, the last of a kind counts, unknown ones are kept, and the size of known ones is not looked at."""
    line = "N v0-1 flex=0+: a:int8 #0 =7; b:int8 @1+ #1"
    assert read(line, "00") == {"a": 7, "b": 0}
    assert read(line, "03 01 01 05 00 01 02 00 63 03", 1) == {"a": 3, "b": 5}
    assert read(line, "02 09 02 aabb 00 01 01") == {"a": 1, "b": 0, "_unknownTaggedFields": [(9, b"\xaa\xbb")]}
    assert refusal(line, "01 01 01 05") == "Tag 1 is not valid for version 0"
    assert read(line, "ffffffff0f") == {"a": 7, "b": 0}, "a count of -1"


@pytest.mark.parametrize(
    ("line", "data", "message"),
    [
        (NUMBERS, "", None),
        (NUMBERS, "01 01 01", None),
        ("N v0 flex=none: u:uuid", "00" * 15, None),
        ("N v0 flex=none: s:string", "ffff", "non-nullable field s was serialized as null"),
        ("N v0 flex=0+: s:string", "00 00", "non-nullable field s was serialized as null"),
        ("N v0 flex=none: b:bytes", "80000000", "non-nullable field b was serialized as null"),
        ("N v0 flex=none: a:[]int8", "ffffffff", "non-nullable field a was serialized as null"),
        ("N v0 flex=none: a:[]string", "00000001 ffff", "non-nullable field a element was serialized as null"),
        ("N v0 flex=none: s:string", "0003 6162", "Error reading byte array of 3 byte(s): only 2 byte(s) available"),
        (
            "N v0 flex=none: b:bytes",
            "7fffffff",
            "Error reading byte array of 2147483647 byte(s): only 0 byte(s) available",
        ),
        ("N v0 flex=0+: s:string", "818002", "string field s had invalid length 32768"),
        ("N v0 flex=0+: s:string", "8080808008", "string field s had invalid length 2147483647"),
        ("N v0 flex=0+: a:int8 #0", "01 05 ffffffff0f", "-1"),
        ("N v0 flex=0+: s:string", "80", None),
        (
            "N v0 flex=0+: s:string",
            "808080808000",
            "Varint is too long, the most significant bit in the 5th byte is set, converted value: 0",
        ),
        (
            "N v0 flex=none: a:[]int64",
            "00000003 0000",
            "Tried to allocate a collection of size 3, but there are only 2 bytes remaining.",
        ),
    ],
)
def test_what_kafka_refuses_is_refused_in_its_words(line: str, data: str, message: str | None) -> None:
    assert refusal(line, data) == message


def test_the_longest_string_is_none_too_long() -> None:
    """32767 bytes: the maximum of an int16, in either encoding."""
    assert read("N v0 flex=0+: s:string", "808002" + "61" * 32767 + "00") == {"s": "a" * 32767}
    assert read("N v0 flex=none: s:string", "7fff" + "61" * 32767) == {"s": "a" * 32767}


def test_structs_of_a_version_that_their_message_does_not_have() -> None:
    line = "N v0-3 flex=none: a:[]S^-3{x:int8}"
    assert read(line, "00000001 05", 3) == {"a": [{"x": 5}]}
    assert read(line, "00000000", 4) == {"a": []}
    for version in (4, 5, 32767):
        assert refusal(line, "00000001 05", version) == f"Can't read version {version} of S"


def test_a_huge_count_takes_no_memory() -> None:
    """A count is compared with the bytes that are left before anything is made; also of structs without a byte."""
    empty = parse("N v0-1 flex=none: a:[]S{x:int8 @1+}")
    tracemalloc.start()
    try:
        for data in ("7fffffff", "7fffffff00", "000f4240"):
            with pytest.raises(StructError):
                decode(empty, bytes.fromhex(data), 0)
        with pytest.raises(StructError):
            decode(parse("N v0 flex=0+: a:[]int64"), bytes.fromhex("ffffffff07 00"), 0)
        with pytest.raises(StructError):
            decode(parse("N v0 flex=0+: a:int8 #0"), bytes.fromhex("ffffffff07 01"), 0)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_a_field_may_stay_classic_in_a_flexible_struct() -> None:
    """The client's name in the header of a request is such a field: a broker has to read it before it knows the
    version."""
    line = "N v0 flex=0+: a:string; b:string ~; c:[]int8 ~ ?"
    assert read(line, "02 61 0001 62 ffffffff 00") == {"a": "a", "b": "b", "c": None}
    assert encode(parse(line), {"a": "a", "b": "b", "c": None}, 0).hex(" ") == "02 61 00 01 62 ff ff ff ff 00"


def test_more_elements_than_allowed_are_refused() -> None:
    """An element of two bytes becomes a dict of two hundred, so bytes alone do not bound the memory."""
    schema, data = parse("N v0 flex=0+: a:[]S{b:string; c:[]int8}"), bytes.fromhex("03 01 01 00 01 02 05 00 00")
    assert decode(schema, data, 0, elements=3)[0]["a"][1] == {"b": "", "c": [5]}
    with pytest.raises(StructError, match="too many elements"):
        decode(schema, data, 0, elements=2)
    with pytest.raises(StructError, match="too many elements"):
        decode(parse("N v0 flex=0+: a:int8"), bytes.fromhex("00 02 09 00 09 00"), 0, elements=1)


def test_records_leave_a_hole_that_the_sender_fills() -> None:
    """They precede the tagged fields: the message is bytes, a part of a file, and bytes."""
    schema = parse("N v0-1 flex=1+: a:int8; r:records ?; b:int8")
    for version, front in ((0, "07 00000145"), (1, "07 c602")):
        writer = Writer()
        write_pieces(schema, {"a": 7, "r": Hole(325, "file"), "b": 9}, version, writer)
        assert [bytes(piece) if isinstance(piece, bytearray) else piece for piece in writer.pieces] == [
            bytes.fromhex(front),
            Hole(325, "file"),
        ]
        assert writer.tail == (b"\x09\0" if version else b"\x09")


def test_what_is_not_named_is_written_as_its_default() -> None:
    line = 'N v0 flex=0+: a:int8 =3; b:int16 =-2; s:string ="x"; n:string ? =null; l:[]int8; t:int8 #1 =5; u:string #0'
    assert encode(parse(line), {}, 0).hex(" ") == "03 ff fe 02 78 00 01 00"
    assert encode(parse(line), {"t": 6, "u": "y"}, 0).hex(" ") == "03 ff fe 02 78 00 01 02 00 02 02 79 01 01 06"


def test_null_where_it_is_no_value_and_endless_strings_are_not_written() -> None:
    """A client would take them for something else and lose its place in the stream."""
    for field in ("string", "bytes", "[]int8"):
        with pytest.raises(ValueError, match="a is null"):
            encode(parse(f"N v0 flex=none: a:{field}"), {"a": None}, 0)
    with pytest.raises(ValueError, match="a is too long"):
        encode(parse("N v0 flex=0+: a:string"), {"a": "x" * 32768}, 0)


# ---------------------------------------------------------------- Kafka's own records

ORDERS = "0000000000003039"
VECTORS = [
    ("coordinator", "OffsetCommitKey", 0, "0008 6d792d67726f7570 0006 6f7264657273 00000003",
     '{"group":"my-group","topic":"orders","partition":3}'),
    ("coordinator", "OffsetCommitValue", 0, ORDERS + "0000 0000018bcfe56800",
     '{"offset":12345,"metadata":"","commitTimestamp":1700000000000}'),
    ("coordinator", "OffsetCommitValue", 1, ORDERS + "0000 0000018bcfe56800 0000018bf3f1ec00",
     '{"offset":12345,"metadata":"","commitTimestamp":1700000000000,"expireTimestamp":1700604800000}'),
    ("coordinator", "OffsetCommitValue", 3, ORDERS + "00000007 0000 0000018bcfe56800",
     '{"offset":12345,"leaderEpoch":7,"metadata":"","commitTimestamp":1700000000000}'),
    ("coordinator", "OffsetCommitValue", 4, ORDERS + "00000007 01 0000018bcfe56800 00",
     '{"offset":12345,"leaderEpoch":7,"metadata":"","commitTimestamp":1700000000000}'),
    ("coordinator", "GroupMetadataValue", 3,
     "0008 636f6e73756d6572 00000006 ffff ffff 0000018bcfe56800 00000000",
     '{"protocolType":"consumer","generation":6,"protocol":null,"leader":null,'
     '"currentStateTimestamp":1700000000000,"members":[]}'),
    ("coordinator", "ConsumerGroupMemberMetadataValue", 0,
     "00 037231 036331 0a2f31302e302e302e31 02 076f7264657273 01 000493e0 00 01 00 01 00",
     '{"instanceId":null,"rackId":"r1","clientId":"c1","clientHost":"/10.0.0.1","subscribedTopicNames":["orders"],'
     '"subscribedTopicRegex":"","rebalanceTimeoutMs":300000,"serverAssignor":null,"classicMemberMetadata":null}'),
    ("coordinator", "ConsumerGroupCurrentMemberAssignmentValue", 0,
     "00000005 00000004 00 02 000102030405060708090a0b0c0d0e0f 03 00000000 00000002 00 01 00",
     '{"memberEpoch":5,"previousMemberEpoch":4,"state":0,"assignedPartitions":['
     '{"topicId":"AAECAwQFBgcICQoLDA0ODw","partitions":[0,2]}],"partitionsPendingRevocation":[]}'),
    ("metadata", "FeatureLevelRecord", 0, "11 6d657461646174612e76657273696f6e 0014 00",
     '{"name":"metadata.version","featureLevel":20}'),
    ("metadata", "TopicRecord", 0, "07 6f7264657273 00112233445566778899aabbccddeeff 00",
     '{"name":"orders","topicId":"ABEiM0RVZneImaq7zN3u_w"}'),
    ("metadata", "PartitionRecord", 1,
     "00000000 00112233445566778899aabbccddeeff 02 00000001 02 00000001 01 01 00000001 00000000 00000000"
     " 02 0102030405060708090a0b0c0d0e0f10 00",
     '{"partitionId":0,"topicId":"ABEiM0RVZneImaq7zN3u_w","replicas":[1],"isr":[1],"removingReplicas":[],'
     '"addingReplicas":[],"leader":1,"leaderEpoch":0,"partitionEpoch":0,"directories":["AQIDBAUGBwgJCgsMDQ4PEA"]}'),
    ("metadata", "PartitionChangeRecord", 0,
     "00000000 00112233445566778899aabbccddeeff 02 00 05 02 00000003 01 04 00000003",
     '{"partitionId":0,"topicId":"ABEiM0RVZneImaq7zN3u_w","isr":[3],"leader":3}'),
    ("metadata", "ConfigRecord", 0, "02 07 6f7264657273 14 6d696e2e696e73796e632e7265706c69636173 02 32 00",
     '{"resourceType":2,"resourceName":"orders","name":"min.insync.replicas","value":"2"}'),
    ("metadata", "NoOpRecord", 0, "00", "{}"),
    ("metadata", "BrokerRegistrationChangeRecord", 0, "00000001 000000000000000c 01 00 01 ff",
     '{"brokerId":1,"brokerEpoch":12,"fenced":-1}'),
    ("metadata", "ClientQuotaRecord", 0, "02 07 636c69656e74 00 00 02 78 40c3880000000000 01 00",
     '{"entity":[{"entityType":"client","entityName":null}],"key":"x","value":10000.0,"remove":true}'),
    ("metadata", "UserScramCredentialRecord", 0, "02 61 02 04 fffefd 01 02 00 00001000 00",
     '{"name":"a","mechanism":2,"salt":"//79","storedKey":"","serverKey":"AA==","iterations":4096}'),
    ("share", "ShareSnapshotKey", 0, "0003 736731 00112233445566778899aabbccddeeff 00000000",
     '{"groupId":"sg1","topicId":"ABEiM0RVZneImaq7zN3u_w","partition":0}'),
]  # fmt: skip


@pytest.mark.parametrize(("file", "name", "version", "data", "text"), VECTORS, ids=lambda given: str(given)[:40])
def test_records_of_kafka_print_as_it_prints_them(file: str, name: str, version: int, data: str, text: str) -> None:
    schema = load(file, name)
    value, end = decode(schema, bytes.fromhex(data), version)
    assert end == len(bytes.fromhex(data))
    assert to_json(schema, value, version) == text


# ---------------------------------------------------------------- JSON


def test_tagged_fields_at_their_default_are_left_out_and_others_printed() -> None:
    schema = parse(
        'N v0-1 flex=0+: a:int8 #0 =7; b:[]int8 ? #1; c:S{x:int8} #2; d:string #3 ="d"; e:bool @1+ #4; f:int8'
    )
    default = schema.struct.default()
    assert to_json(schema, default, 0) == '{"f":0}'
    changed = {"a": 0, "b": None, "c": {"x": 1}, "d": "", "e": True, "f": 1}
    assert to_json(schema, changed, 0) == '{"a":0,"b":null,"c":{"x":1},"d":"","f":1}'
    assert to_json(schema, changed, 1) == '{"a":0,"b":null,"c":{"x":1},"d":"","e":true,"f":1}'


def test_a_struct_with_tags_that_nobody_knows_is_not_at_its_default() -> None:
    """Kafka compares the unknown tags, too."""
    line = "N v0 flex=0+: c:S{x:int8} #0"
    assert to_json(parse(line), read(line, "01 00 02 00 00"), 0) == "{}"
    assert to_json(parse(line), read(line, "01 00 04 00 01 09 00"), 0) == '{"c":{"x":0}}'


def test_a_field_decoded_in_turn_prints_as_an_object() -> None:
    outer, inner = parse("N v0 flex=none: b:bytes"), parse("M v0-1 flex=none: x:int8; y:float64 @1+")
    value = EmbeddedStruct(inner, 1, {"x": 1, "y": math.inf})
    assert to_json(outer, {"b": value}, 0) == '{"b":{"x":1,"y":"Infinity"}}'
    assert to_json(outer, {"b": b"\0"}, 0) == '{"b":"AA=="}'


# ---------------------------------------------------------------- all schemas, all versions


def test_what_was_written_is_read_back() -> None:
    """A separate writer writes every schema and version, with content of all kinds."""
    chance = random.Random(2)
    for schema in every_schema():
        for version in range(schema.lowest, schema.highest + 1):
            for _ in range(15):
                value = made_up_struct(schema.struct, version, chance)
                data = write(schema, value, version)
                if UNKNOWN_TAGS not in str(value):
                    assert encode(schema, value, version) == data, schema.name
                found, end = decode(schema, b"front" + data + b"rest", version, 5)
                assert end == 5 + len(data)
                # NaN is not itself, and a tag that a classic version cannot carry is lost.
                if schema.flexible.hold(version) and schema.name != "ClientQuotaRecord":
                    assert found == value, schema.name
                else:
                    assert write(schema, found, version) == data, schema.name


def versions_in(struct: Struct) -> Iterator[Versions]:
    yield struct.readable
    for field in struct.fields:
        yield from (field.exists, field.nullable)
        if field.struct is not None:
            yield from versions_in(field.struct)


def test_of_all_versions_that_a_damaged_record_may_have_few_are_different() -> None:
    """Each needs a reader of its own, which is compiled."""
    for schema in every_schema():
        tests = [schema.flexible, *versions_in(schema.struct)]
        alike = {version: schema.alike(version) for version in (*range(-20, 60), -(2**31), 32767, 2**31 - 1)}
        for version, other in alike.items():
            assert [one.hold(version) for one in tests] == [one.hold(other) for one in tests], (schema.name, version)
        assert all(alike[version] == version for version in range(schema.lowest, schema.highest + 1))
        unknown = {alike[version] for version in alike if not schema.lowest <= version <= schema.highest}
        assert len(unknown) <= 1 + len({bound for one in tests for bound in one if bound is not None})


def test_damaged_structs_are_refused_or_read_but_never_fail_otherwise() -> None:
    chance = random.Random(3)
    refused = 0
    for schema in every_schema():
        for _ in range(150):
            version = chance.choice((schema.lowest, schema.highest, -1, schema.highest + 1, 32767))
            written = chance.randint(schema.lowest, schema.highest)
            data = write(schema, made_up_struct(schema.struct, written, chance), written)
            data = damaged(data, chance) if chance.random() < 0.9 else chance.randbytes(30)
            try:
                value, end = decode(schema, data, version)
            except StructError:
                refused += 1
                continue
            assert 0 <= end <= len(data)
            assert to_json(schema, value, version)[0] == "{"
    assert refused > 1000
