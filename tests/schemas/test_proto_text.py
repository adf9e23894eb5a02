"""`.proto` text becomes the same descriptor that protoc makes of it; text that protoc refuses is read all the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from klog.schemas.decoded import BrokenSchemaError
from klog.schemas.proto_known_texts import KNOWN_TEXTS
from klog.schemas.proto_links import link, types_in
from klog.schemas.proto_text import parse_proto
from klog.schemas.proto_well_known import file_of

from tests.schemas.protoc import protoc
from tests.schemas.random_proto import RandomProto


def parsed(**texts: str) -> dict[str, Any]:
    """Return klog's descriptors of all *texts*, of which a later one may import earlier ones."""
    types: dict[str, int] = {}
    files = {}
    for name, text in texts.items():
        file = files[name] = parse_proto(text, f"{name}.proto").descriptor
        types |= types_in(file)
        for path in file.dependency:
            if (known := file_of(path)) is not None:
                types |= types_in(descriptor_pb2.FileDescriptorProto.FromString(known.serialized_pb))
        link(file, types)
    return files


def without_skipped_parts(file: Any) -> Any:
    """Remove the parts that no value depends on: services, extensions and the options of others."""
    file.ClearField("service")
    _without_extensions(file)
    file.DiscardUnknownFields()
    return file


def _without_extensions(owner: Any) -> None:
    owner.ClearField("extension")
    for message in owner.message_type if isinstance(owner, descriptor_pb2.FileDescriptorProto) else owner.nested_type:
        _without_extensions(message)


@pytest.mark.parametrize("syntax", ["proto2", "proto3", "2023"])
@pytest.mark.parametrize("round_", range(10))
def test_random_text_gives_protocs_descriptor(syntax: str, round_: int, tmp_path: Path) -> None:
    """Fields, numbers, types, names, defaults, options and ranges are those of the reference compiler."""
    texts = {}
    for seed in range(round_ * 20, round_ * 20 + 20):
        rng = Random(f"{syntax} {seed}")
        other = RandomProto(rng, "proto3", f"o{seed}.p")
        texts[f"other{seed}"] = other.text
        text = RandomProto(rng, syntax, rng.choice((f"p{seed}", f"p{seed}.q.r")), other).text
        texts[f"main{seed}"] = text.replace("other.proto", f"other{seed}.proto")
    expected, found = protoc(tmp_path, **texts), parsed(**texts)
    for name in texts:
        assert without_skipped_parts(expected[name]) == without_skipped_parts(found[name]), texts[name]


@pytest.mark.parametrize("path", [path for path in KNOWN_TEXTS if path.startswith("google/type/")])
def test_known_files_are_those_of_google(path: str) -> None:
    """The package googleapis-common-protos has the original files."""
    name = path.removesuffix(".proto").replace("/", ".")
    found = parsed(x=KNOWN_TEXTS[path])["x"]
    wanted = descriptor_pb2.FileDescriptorProto.FromString(import_module(f"{name}_pb2").DESCRIPTOR.serialized_pb)
    found.ClearField("name")
    for part in ("name", "options"):
        wanted.ClearField(part)
    for enum in (enum for message in wanted.message_type for enum in message.enum_type):
        enum.ClearField("options")
    assert without_json_names(found) == without_json_names(wanted)


def without_json_names(file: Any) -> Any:
    """Remove the names in ProtoJSON, which a generated module does not have."""
    waiting = list(file.message_type)
    while waiting:
        message = waiting.pop()
        waiting += message.nested_type
        for field in message.field:
            field.ClearField("json_name")
    return file


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("message A { message B { message C {} } C c = 1; } message C {}", "A.c -> .p.C"),
        ("message A { message B { message C {} } B.C c = 1; }", "A.c -> .p.A.B.C"),
        ("message A { message A { A a = 1; } A a = 1; }", "A.A.a -> .p.A.A; A.a -> .p.A.A"),
        ("message A { p.B b = 1; .p.B c = 2; } message B {}", "A.b -> .p.B; A.c -> .p.B"),
        ("message A { enum E { V = 0; } E e = 1; } enum E { W = 0; }", "A.e -> .p.A.E"),
    ],
)
def test_a_name_means_the_type_of_the_innermost_scope(text: str, expected: str, tmp_path: Path) -> None:
    """Names shadow each other; both compilers take the same type."""
    whole = f'syntax = "proto3"; package p; {text}'
    for file in (parsed(main=whole)["main"], protoc(tmp_path, main=whole)["main"]):
        found = [f"{name} -> {field.type_name}" for name, field in sorted(typed_fields("", file.message_type))]
        assert "; ".join(found) == expected


def typed_fields(scope: str, messages: Any) -> Iterator[tuple[str, Any]]:
    for message in messages:
        yield from ((f"{scope}{message.name}.{field.name}", field) for field in message.field if field.type_name)
        yield from typed_fields(f"{scope}{message.name}.", message.nested_type)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("message M {", "a name expected before ''"),
        ("message M { int32 a = 1 }", "';' expected before '}'"),
        ("message M {\n int32 = 1;\n}", "a name expected before '='"),
        ("message M {\n int32 a = x;\n}", "a number expected before 'x'"),
        ("message M { int32 a = 99999999999; }", "Value out of range"),
        ('syntax = "proto4";', "syntax 'proto4' is unknown"),
        ("message M { int32 a = 1; /* no end", "a name expected before '/'"),
        ('message M { int32 a = 1 [json_name = "no end]; }', "'\"' is no part of .proto text"),
        ('{"type": "record"}', "a name expected before '{'"),
        ("enum E { A }", "'=' expected before '}'"),
        ("option (x) = [1];", "a value expected before '['"),
        ("extend M { int32 a = 1;", "'}' is missing"),
        ("\0", "'\\x00' is no part of .proto text"),
    ],
)
def test_text_that_cannot_be_read_is_broken_with_a_line(text: str, reason: str) -> None:
    with pytest.raises(BrokenSchemaError, match=f"^line [0-9]+: {re.escape(reason)}"):
        parse_proto(text, "x.proto")


def test_options_of_others_are_skipped() -> None:
    """Whatever a text says to a plug-in of protoc, its messages stay the same."""
    text = """
        syntax = "proto3";
        import "validate/validate.proto";
        option (x.file) = { list: [1, 2, { a: "}" }] nested < b: 1 > };
        message M {
          option (x.y).z = "a" 'b';
          int32 a = 1 [(x.y) = { s: "];" }, (v).int32.gt = -1.5e3, deprecated = true, (.a.b) = inf];
          oneof o { option (one) = true; string s = 2; }
          enum E { option (e) = 1; A = 0 [(v) = 1]; }
          extensions 5 [declaration = { number: 5 }];
        }
        service S { rpc R (M) returns (stream M) { option (http) = { get: "/{a}" body: "*" }; } rpc T (M) returns (M); }
        extend google.protobuf.FieldOptions { optional string note = 50000; }
    """
    message = parsed(main=text)["main"].message_type[0]
    assert [field.name for field in message.field] == ["a", "s"]
    assert message.field[0].options.deprecated
    assert message.enum_type[0].value[0].name == "A"
