"""Writes structs to bytes, by a schema: the counterpart of `structs.read`, which explains the two encodings.

A field that the struct does not name has its default, and one that the version does not have is omitted.  Records need
not be copied: a `Hole` of their size takes their place, and the sender of the message fills it from a file.
"""

from __future__ import annotations

import binascii
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from klog.formats.structs.read import FIXED, LONGEST_STRING, is_number, numbers_layout
from klog.formats.structs.schema import CodeWriter, Data, Schema, Struct, StructField

_INT16, _INT32 = FIXED["int16"], FIXED["int32"]


class Hole(NamedTuple):
    """*size* bytes of a records field that are not here; *filling* is their source for the sender."""

    size: int
    filling: Any


Pieces: TypeAlias = "list[bytearray | Hole]"
"""A message in its order."""


class Writer:
    """The encoded message so far: *pieces*, then *tail*, which grows."""

    __slots__ = ("pieces", "tail")

    def __init__(self) -> None:
        self.pieces: Pieces = []
        self.tail = bytearray()

    def put(self, hole: Hole) -> None:
        """Leave a hole before the next bytes."""
        self.pieces += (self.tail, hole)
        self.tail = bytearray()


_Write: TypeAlias = Callable[[Writer, Any], None]


def put_unsigned_varint(out: bytearray, value: int) -> None:
    """Append *value*, which is not negative.  Kafka: ByteUtils.writeUnsignedVarint."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


# ---------------------------------------------------------------- one function for each struct and version

_Emit: TypeAlias = Callable[["_Body", str], None]
"""Adds the code that appends the value of an expression."""


def _null(name: str) -> ValueError:
    """Return the exception for null in a field that is not nullable: our mistake, never the input's."""
    return ValueError(f"{name} is null, and may not be")


def _too_long(name: str, length: int) -> ValueError:
    return ValueError(f"{name} is too long to be serialized: {length} bytes")


class _Body(CodeWriter):
    """Code that appends to `tail`, that of `writer`."""

    def __init__(self) -> None:
        super().__init__("writer, value", "tail = writer.tail")
        self._variables = 0

    def made(self, name: str) -> _Write:
        return self.function(name, _KNOWN)

    def variable(self, expression: str) -> str:
        """Return the name of a new variable that has this value."""
        name = f"v{self._variables}"
        self._variables += 1
        self.add(f"{name} = {expression}")
        return name

    def call(self, write: _Write, of: str) -> None:
        self.add(f"{self.constant(write)}(writer, {of})", "tail = writer.tail")

    def numbers(self, layout: struct.Struct, of: list[str]) -> None:
        self.add(f"tail += {self.constant(layout.pack)}({', '.join(of)})")

    def length(self, flexible: bool, classic: struct.Struct, of: str, indent: str) -> None:
        """Append a length; -1 is null."""
        if flexible:
            self.add(f"{indent}put_unsigned_varint(tail, {of} + 1)")
        else:
            self.add(f"{indent}tail += {self.constant(classic.pack)}({of})")

    def null(self, field: StructField, nullable: bool, length: Callable[[str, str], None], of: str) -> None:
        self.add(f"if {of} is None:")
        if nullable:
            length("-1", "    ")
        else:
            self.add(f"    raise null({field.name!r})")


def _string(field: StructField, flexible: bool, nullable: bool) -> _Emit:
    def emit(body: _Body, of: str) -> None:
        text = body.variable(of)
        body.null(field, nullable, lambda n, indent: body.length(flexible, _INT16, n, indent), text)
        body.add("else:", f"    data = {text}.encode('utf-8', 'replace')", "    n = len(data)")
        body.add(f"    if n > {LONGEST_STRING}:", f"        raise too_long({field.name!r}, n)")
        body.length(flexible, _INT16, "n", "    ")
        body.add("    tail += data")

    return emit


def _bytes(field: StructField, flexible: bool, nullable: bool) -> _Emit:
    def emit(body: _Body, of: str) -> None:
        data = body.variable(of)
        body.null(field, nullable, lambda n, indent: body.length(flexible, _INT32, n, indent), data)
        body.add(f"elif isinstance({data}, Hole):")
        body.length(flexible, _INT32, f"{data}.size", "    ")
        body.add(f"    writer.put({data})", "    tail = writer.tail", "else:")
        body.length(flexible, _INT32, f"len({data})", "    ")
        body.add(f"    tail += {data}")

    return emit


def _array(field: StructField, flexible: bool, nullable: bool, element: _Write) -> _Emit:
    def emit(body: _Body, of: str) -> None:
        values = body.variable(of)
        body.null(field, nullable, lambda n, indent: body.length(flexible, _INT32, n, indent), values)
        body.add("else:")
        body.length(flexible, _INT32, f"len({values})", "    ")
        body.add(
            f"    for one in {values}:", f"        {body.constant(element)}(writer, one)", "    tail = writer.tail"
        )

    return emit


def _called(write: _Write) -> _Emit:
    return lambda body, of: body.call(write, of)


def _function(name: str, emit: _Emit) -> _Write:
    body = _Body()
    emit(body, "value")
    return body.made(name)


def _uuid(writer: Writer, text: str) -> None:
    writer.tail += binascii.a2b_base64(text.replace("-", "+").replace("_", "/") + "==")


def _scalar(field: StructField, version: int, flexible: bool, nullable: bool) -> _Emit:
    """Return an emitter of the code that appends the field's type, or an element of its array; never a null struct."""
    if field.struct is not None:
        return _called(_struct(field.struct, version, flexible))
    if field.type == "string":
        return _string(field, flexible, nullable)
    if field.type in ("bytes", "records"):
        return _bytes(field, flexible, nullable)
    if field.type == "uuid":
        return _called(_uuid)
    return lambda body, of: body.numbers(FIXED[field.type], [of])


def _field(field: StructField, version: int, flexible: bool) -> _Emit:
    nullable, flexible = field.nullable.hold(version), flexible and not field.classic
    if field.array:
        struct_of = field.struct
        element = (
            _function(field.name, _scalar(field, version, flexible, False))
            if struct_of is None
            else _struct(struct_of, version, flexible)
        )
        return _array(field, flexible, nullable, element)
    if field.struct is None or not nullable:
        return _scalar(field, version, flexible, nullable)
    write, null = _struct(field.struct, version, flexible), 0 if field.tag is not None else 0xFF

    def write_nullable(writer: Writer, value: Data | None) -> None:
        writer.tail.append(null if value is None else 1)
        if value is not None:
            write(writer, value)

    return _called(write_nullable)


def _struct(schema: Struct, version: int, flexible: bool) -> _Write:
    body = _Body()
    body.add("get = value.get")
    known = [field for field in schema.fields if field.exists.hold(version)]
    there = [field for field in known if field.tag is None]
    while there:
        run = next((i for i, field in enumerate(there) if not is_number(field)), len(there))
        if run:
            body.numbers(numbers_layout(there[:run]), [_got(body, field) for field in there[:run]])
        else:
            _field(there[0], version, flexible)(body, _got(body, there[0]))
        del there[: run or 1]
    if flexible:
        _tags(
            body, sorted((field for field in known if field.tag is not None), key=lambda field: field.tag or 0), version
        )
    return body.made(schema.name)


def _got(body: _Body, field: StructField) -> str:
    """Return the expression for a field's value out of its struct."""
    return f"get({field.name!r}, {body.constant(field.default())})"


def _tags(body: _Body, fields: list[StructField], version: int) -> None:
    """Append a struct's tagged fields: those that are not at their default, by ascending tag."""
    if not fields:
        return body.add("tail.append(0)")
    known = [(field.tag or 0, field.name, field.default(), _field_alone(field, version)) for field in fields]

    def write(writer: Writer, value: Data) -> None:
        told = [tagged for tagged in known if value.get(tagged[1], tagged[2]) != tagged[2]]
        put_unsigned_varint(writer.tail, len(told))
        for tag, name, _, write_field in told:
            content = Writer()
            write_field(content, value[name])
            put_unsigned_varint(writer.tail, tag)
            put_unsigned_varint(writer.tail, len(content.tail))
            writer.tail += content.tail

    return body.call(write, "value")


def _field_alone(field: StructField, version: int) -> _Write:
    return _function(field.name, _field(field, version, True))


_KNOWN: Final = {"Hole": Hole, "null": _null, "put_unsigned_varint": put_unsigned_varint, "too_long": _too_long}


@lru_cache(maxsize=256)
def struct_writer(schema: Schema, version: int) -> _Write:
    """Return an encoder for *schema* and *version*, for callers that encode often."""
    return _struct(schema.struct, version, schema.flexible.hold(version))


def write(schema: Schema, value: Data, version: int, writer: Writer) -> None:
    """Append *value* in *version*, which must be one that Kafka knows, to *writer*.

    Raises ValueError for null in a field that is not nullable and for a string of more than 32767 bytes.
    Kafka: the write methods of its generated classes.
    """
    struct_writer(schema, version)(writer, value)


def encode(schema: Schema, value: Data, version: int) -> bytes:
    """Return *value*, which has no hole, as bytes; see `write`."""
    writer = Writer()
    write(schema, value, version, writer)
    assert not writer.pieces
    return bytes(writer.tail)
