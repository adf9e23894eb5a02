"""Protobuf payloads become the JSON that real serializers, the protobuf package and the corpora's truths say."""

from __future__ import annotations

import base64
import gzip
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import klog
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError
from klog.schemas.decoded import BrokenSchemaError, Decoded
from klog.schemas.json_values import json_text
from klog.schemas.protobuf import ProtobufSchema

from tests.schemas.protoc import descriptor_set, protoc_pool
from tests.schemas.random_proto import RandomProto, random_message

REGISTRIES = ("confluent", "karapace")
SYNTAXES = ("proto2", "proto3", "2023")


def truth(corpora: Path, registry: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress((corpora / f"schemas/{registry}.truth.json.gz").read_bytes()))
    return found


@pytest.fixture(scope="session")
def reference(corpora: Path) -> Any:
    """The slow decoder of the corpora."""
    spec = importlib.util.spec_from_file_location("schema_reference", corpora / "schemas" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def records_of(data: Path, topic: str) -> Iterator[klog.Record]:
    for log in sorted(data.glob(f"{topic}-*/*.log")):
        for batch in klog.Segment(str(log)).batches():
            assert isinstance(batch, klog.Batch)
            yield from batch.records()


# truths


@pytest.mark.corpora
@pytest.mark.parametrize("canonical", [False, True], ids=["plain", "canonical"])
@pytest.mark.parametrize("registry", REGISTRIES)
def test_every_record_of_the_corpora_is_as_its_truth_says(registry: str, canonical: bool, corpora: Path) -> None:
    """Python's serializers and hand-made bytes, through the text of two registries, one of which protoc refuses."""
    known = truth(corpora, registry)
    schemas = {(one["subject"], one["version"]): one for one in known["schemas"]}
    decoders: dict[Any, ProtobufSchema] = {}
    seen = 0
    for record in known["records"]:
        side, raw = record["value"], base64.b64decode(record["value"].get("raw", ""))
        if side.get("type") != "PROTOBUF" or raw[:1] != b"\0":
            continue
        key = side["subject"], side["version"]
        if key not in decoders:
            named = {one["name"]: (one["subject"], one["version"]) for one in schemas[key]["references"]}
            imported = {name: schemas[other]["text"] for name, other in named.items()}
            decoders[key] = ProtobufSchema(schemas[key]["text"], imported, canonical)
        value = side.get("canonical" if canonical else "plain")
        expected = Decoded(value, side.get("message"), side["error"], bool(side["trailing"]))
        assert decoders[key].decode(raw[5:]) == expected, record
        seen += 1
    assert seen > 70


@pytest.mark.corpora
def test_the_index_in_a_guid_header_precedes_the_bare_message(image: Callable[[str], Path], corpora: Path) -> None:
    """Confluent's header framing has the index behind the GUID, and the value is the message alone."""
    known = truth(corpora, "confluent")
    texts = {one["subject"]: one["text"] for one in known["schemas"]}
    sides = {
        (record["topic"], record["offset"]): record["value"]
        for record in known["records"]
        if record["value"].get("message") and record["topic"] == known["topics"]["guid"]
    }
    found = {}
    for record in records_of(image("schemas/confluent.tar.gz") / "data", known["topics"]["guid"]):
        side = sides.get((known["topics"]["guid"], record.offset))
        if side:
            header = dict(record.headers)[b"__value_schema_id"]
            schema = ProtobufSchema(texts[side["subject"]], texts)
            found[record.offset] = schema.decode(header[17:] + record.value)
            assert found[record.offset] == Decoded(side["plain"], side["message"])
    assert len(found) == len(sides) == 4


@pytest.mark.corpora
def test_descriptors_in_base64_decode_as_apicurio_stores_them(image: Callable[[str], Path], reference: Any) -> None:
    """Apicurio stores what Python clients send: descriptors, a group of proto2 among them, and imports by name."""
    data = image("schemas/apicurio.tar.gz") / "data"
    texts = {
        call["artifactId"]: call["content"]
        for record in records_of(data, "kafkasql-journal")
        if record.value and (call := json.loads(record.value)).get("artifactType") == "PROTOBUF"
    }
    peers = descriptor_pool.DescriptorPool()
    for path in ("timestamp", "duration", "wrappers", "struct"):
        peers.AddSerializedFile(__import__(f"google.protobuf.{path}_pb2", fromlist="x").DESCRIPTOR.serialized_pb)
    messages = 0
    for subject in [one for one in texts if "{" not in texts[one]]:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(texts[subject]))
        peers.Add(file)
        topic = subject.removesuffix("-value")
        for record in records_of(data, topic) if topic != subject else ():
            path, begin = reference.indexes(record.value[5:])
            descriptor = [*peers.FindFileByName(file.name).message_types_by_name.values()][path[0]]
            for index in path[1:]:
                descriptor = descriptor.nested_types[index]
            message = message_factory.GetMessageClass(descriptor).FromString(record.value[5 + begin :])
            found = ProtobufSchema(texts[subject], texts).decode(record.value[5:])
            assert found == Decoded(reference.proto_plain(message), descriptor.full_name)
            messages += 1
    assert messages > 50


# random schemas and values


class Case(NamedTuple):
    """A random schema, and payloads with the messages that protoc's descriptors make of them."""

    text: str
    imported: dict[str, str]
    pool: Any
    payloads: list[tuple[bytes, Any]]


def cases(folder: Path, syntax: str, seeds: range, count: int = 10) -> Iterator[Case]:
    for seed in seeds:
        rng = Random(f"{syntax} {seed}")
        other = RandomProto(rng, "proto3", f"o{seed}.p")
        text, package = other.text, rng.choice((f"p{seed}", ""))
        main = RandomProto(rng, syntax, package, other).text
        pool = protoc_pool(folder, other=text, main=main)
        types = list(message_types(pool.FindFileByName("main.proto")))
        chosen = [rng.choice(types) for _ in range(count)]
        yield Case(main, {"other.proto": text}, pool, [payload(rng, *one) for one in chosen])


def message_types(file: Any) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Yield each message that the text lists, with its path."""
    waiting = [((index,), message) for index, message in enumerate(file.message_types_by_name.values())]
    while waiting:
        path, message = waiting.pop()
        yield path, message
        nested = [one for one in message.nested_types if not one.GetOptions().map_entry and one.name[:5] != "Group"]
        waiting += [((*path, index), one) for index, one in enumerate(nested)]


def payload(rng: Random, path: tuple[int, ...], descriptor: Any) -> tuple[bytes, Any]:
    message = message_factory.GetMessageClass(descriptor)()
    random_message(rng, message)
    index = b"\0" if path == (0,) else bytes(2 * number for number in (len(path), *path))
    return index + message.SerializePartialToString(), message


def with_defaults(message: Any, found: Any) -> Any:
    """Add to the protobuf package's own ProtoJSON what Kafka's console consumer prints beside: defaults of proto2."""
    if not isinstance(found, dict) or message.DESCRIPTOR.full_name.startswith("google.protobuf."):
        return found
    for field in message.DESCRIPTOR.fields:
        name, value = field.json_name, getattr(message, field.name)
        if field.message_type is None:
            if field.has_presence and not (message.HasField(field.name) or field.containing_oneof or field.is_required):
                alone = type(message)()
                setattr(alone, field.name, value)
                found[name] = MessageToDict(alone)[name]
        elif field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].message_type is not None:
                for key, one in value.items():
                    with_defaults(one, found[name][str(key).lower() if isinstance(key, bool) else str(key)])
        elif field.is_repeated:
            for one, inner in zip(value, found[name], strict=True):
                with_defaults(one, inner)
        elif message.HasField(field.name):
            with_defaults(value, found[name])
    return found


@pytest.mark.corpora
@pytest.mark.parametrize("syntax", SYNTAXES)
def test_random_values_agree_with_the_reference(syntax: str, reference: Any, tmp_path: Path) -> None:
    """Every type, label and well-known type, in messages made by chance."""
    for case in cases(tmp_path, syntax, range(150)):
        schema = ProtobufSchema(case.text, case.imported)
        for data, message in case.payloads:
            found = schema.decode(data)
            assert found == Decoded(reference.proto_plain(message), message.DESCRIPTOR.full_name), case.text
            assert json.loads(json_text(found.value)) == found.value


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_the_canonical_form_is_that_of_the_protobuf_package(syntax: str, tmp_path: Path) -> None:
    """ProtoJSON has one reading, and the library that many consumers use has it."""
    for case in cases(tmp_path, syntax, range(150, 350)):
        if "any.proto" in f"{case.text}{case.imported}":
            continue  # the package raises on a type that it does not know
        schema = ProtobufSchema(case.text, case.imported, canonical=True)
        for data, message in case.payloads:
            js = MessageToDict(message, always_print_fields_with_no_presence=True, descriptor_pool=case.pool)
            assert schema.decode(data).value == with_defaults(message, js), case.text


IN_PURE_PYTHON = """
import json, sys
from google.protobuf.internal import api_implementation
from klog.schemas.protobuf import ProtobufSchema
assert api_implementation.Type() == "python"
for line in sys.stdin:
    text, imported, payloads = json.loads(line)
    for canonical in (False, True):
        schema = ProtobufSchema(text, imported, canonical)
        print(json.dumps([schema.decode(bytes.fromhex(one)) for one in payloads]))
"""


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_the_library_in_pure_python_gives_the_same_answers(syntax: str, tmp_path: Path) -> None:
    """On musl there is no other; klog's plans use only what both have."""
    asked, expected = [], []
    for case in cases(tmp_path, syntax, range(400, 420), count=5):
        payloads = [data.hex() for data, _ in case.payloads]
        asked.append(json.dumps([case.text, case.imported, payloads]))
        for canonical in (False, True):
            schema = ProtobufSchema(case.text, case.imported, canonical)
            expected.append(json.dumps([schema.decode(data) for data, _ in case.payloads]))
    done = subprocess.run(
        [sys.executable, "-c", IN_PURE_PYTHON],
        input="\n".join(asked),
        env=os.environ | {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == expected


# mutations


@pytest.mark.corpora
@pytest.mark.parametrize("syntax", SYNTAXES)
def test_mutated_payloads_decode_as_the_reference_does_or_are_bad_values(
    syntax: str, reference: Any, tmp_path: Path
) -> None:
    """No bytes raise, and what the library still reads becomes the JSON that the reference makes of it."""
    failed = decoded = 0
    for case in cases(tmp_path, syntax, range(500, 540)):
        schema = ProtobufSchema(case.text, case.imported)
        rng = Random(case.text)
        for data, message in case.payloads:
            begin = 1 + data[0] // 2
            for _ in range(20):
                mutated = mutate(rng, data[begin:])
                found = schema.decode(data[:begin] + mutated)
                try:
                    expected = reference.proto_plain(type(message).FromString(mutated))
                except DecodeError:
                    assert found == Decoded(None, None, "bad-value")
                    failed += 1
                    continue
                except (ValueError, OverflowError):
                    continue  # the reference has no JSON for a Timestamp in year 10000
                if re.search(r"\bb['\"]", repr(expected)):
                    continue  # the library lets proto2 text pass that is not UTF-8, as bytes
                assert found == Decoded(expected, message.DESCRIPTOR.full_name)
                decoded += 1
    assert failed > 500
    assert decoded > 500


def mutate(rng: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(changed) + 1)
        kind = rng.randrange(4)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del changed[at : at + rng.randint(1, 4)]
        elif kind == 2:
            changed[at:at] = rng.randbytes(rng.randint(1, 3))
        elif changed:
            start = rng.randrange(len(changed))
            changed[at:at] = changed[start : start + rng.randint(1, 20)]
    return bytes(changed)


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_mutated_texts_are_read_or_are_broken(syntax: str) -> None:
    """No text raises anything but the one exception, and a text that is read decodes what it decodes."""
    broken = 0
    for seed in range(150):
        rng = Random(f"{syntax} {seed}")
        text = RandomProto(rng, syntax, "p").text
        for _ in range(10):
            mutated = mutate(rng, text.encode()).decode("utf-8", "surrogateescape")
            try:
                ProtobufSchema(mutated, {}).decode(b"\0\x08\x01")
            except BrokenSchemaError:
                broken += 1
    assert 300 < broken < 1500


@pytest.mark.parametrize("seed", range(5))
def test_mutated_descriptors_are_read_or_are_broken(seed: int, tmp_path: Path) -> None:
    """A descriptor in base64 has parts that no text can have: unknown types, labels and numbers."""
    rng = Random(seed)
    texts = {"main": 'syntax = "proto3"; message M { map<string, N> m = 1; oneof o { N n = 2; E e = 3; } }'}
    texts["main"] += " message N { optional int32 a = 1; message I { bytes b = 1; } I i = 2; } enum E { A = 0; B = 5; }"
    whole = descriptor_set(tmp_path, texts).file[0].SerializeToString()
    broken = 0
    for _ in range(400):
        try:
            schema = ProtobufSchema(base64.b64encode(mutate(rng, whole)).decode(), {})
        except BrokenSchemaError:
            broken += 1
        else:
            for payload in (b"\0\x0a\x05\x0a\x01a\x12\0", b"\x02\x02\x08\x01", b"\x04\x02\0"):
                schema.decode(payload)
    assert 100 < broken < 400
