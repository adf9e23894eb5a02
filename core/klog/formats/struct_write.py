"""Structs to bytes, by a schema: the counterpart of `struct_bytes`, whose beginning explains the two encodings.

A field that the struct does not name has its default, and one that the version does not have is left out.  Records need
not pass through here: a `Hole` of their size stands for them, and whoever sends the message fills it from a file.
"""

from __future__ import annotations

import binascii
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from klog.formats.schema import Data, Field, Schema, Struct
from klog.formats.struct_bytes import FIXED, LONGEST_STRING, is_number, numbers_layout

_INT16, _INT32 = FIXED["int16"], FIXED["int32"]


class Hole(NamedTuple):
    """*size* bytes of a records field that are not here; *filling* tells whoever sends them where they are."""

    size: int
    filling: Any


Pieces: TypeAlias = "list[bytearray | Hole]"
"""A message in its order."""


class Writer:
    """What has been written: *pieces*, then *tail*, to which more is added."""

    __slots__ = ("pieces", "tail")

    def __init__(self) -> None:
        self.pieces: Pieces = []
        self.tail = bytearray()

    def put(self, hole: Hole) -> None:
        """Leave a hole; what is written next stands behind it."""
        self.pieces += (self.tail, hole)
        self.tail = bytearray()


_Write: TypeAlias = Callable[[Writer, Any], None]


def put_unsigned_varint(out: bytearray, value: int) -> None:
    """Append *value*, which is not negative.  Kafka: ByteUtils.writeUnsignedVarint."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


# ---------------------------------------------------------------- one function for each field and version


def _length(flexible: bool, classic: struct.Struct) -> Callable[[bytearray, int], None]:
    """Return what appends a length; -1 is null."""
    if flexible:
        return lambda out, length: put_unsigned_varint(out, length + 1)
    return lambda out, length: out.extend(classic.pack(length))


def _null(field: Field, nullable: bool) -> int:
    """Return the length that says null.  Raises ValueError where null is no value: our mistake, never the input's."""
    if not nullable:
        raise ValueError(f"{field.name} is null, and may not be")
    return -1


def _string(field: Field, flexible: bool, nullable: bool) -> _Write:
    put_length = _length(flexible, _INT16)

    def write(writer: Writer, text: str | None) -> None:
        if text is None:
            return put_length(writer.tail, _null(field, nullable))
        data = text.encode("utf-8", "replace")
        if len(data) > LONGEST_STRING:
            raise ValueError(f"{field.name} is too long to be serialized: {len(data)} bytes")
        put_length(writer.tail, len(data))
        writer.tail += data
        return None

    return write


def _bytes(field: Field, flexible: bool, nullable: bool) -> _Write:
    put_length = _length(flexible, _INT32)

    def write(writer: Writer, data: bytes | Hole | None) -> None:
        if data is None:
            put_length(writer.tail, _null(field, nullable))
        elif isinstance(data, Hole):
            put_length(writer.tail, data.size)
            writer.put(data)
        else:
            put_length(writer.tail, len(data))
            writer.tail += data

    return write


def _array(field: Field, flexible: bool, nullable: bool, element: _Write) -> _Write:
    put_length = _length(flexible, _INT32)

    def write(writer: Writer, values: list[Any] | None) -> None:
        if values is None:
            return put_length(writer.tail, _null(field, nullable))
        put_length(writer.tail, len(values))
        for value in values:
            element(writer, value)
        return None

    return write


def _uuid(writer: Writer, text: str) -> None:
    writer.tail += binascii.a2b_base64(text.replace("-", "+").replace("_", "/") + "==")


def _fixed(layout: struct.Struct) -> _Write:
    return lambda writer, value: writer.tail.extend(layout.pack(value))


def _scalar(field: Field, version: int, flexible: bool, nullable: bool) -> _Write:
    """Return the writer of the field's type, or of an element of its array; never of a null struct."""
    if field.struct is not None:
        return _struct(field.struct, version, flexible)
    if field.type == "string":
        return _string(field, flexible, nullable)
    if field.type in ("bytes", "records"):
        return _bytes(field, flexible, nullable)
    return _uuid if field.type == "uuid" else _fixed(FIXED[field.type])


def _field(field: Field, version: int, flexible: bool) -> _Write:
    nullable, flexible = field.nullable.hold(version), flexible and not field.classic
    if field.array:
        return _array(field, flexible, nullable, _scalar(field, version, flexible, False))
    write = _scalar(field, version, flexible, nullable)
    if field.struct is None or not nullable:
        return write
    null = 0 if field.tag is not None else 0xFF

    def write_nullable(writer: Writer, value: Data | None) -> None:
        writer.tail.append(null if value is None else 1)
        if value is not None:
            write(writer, value)

    return write_nullable


def _numbers(fields: list[Field]) -> _Write:
    layout = numbers_layout(fields)
    named = [(field.name, field.default()) for field in fields]
    if len(named) == 1:
        ((name, default),) = named
        return lambda writer, value: writer.tail.extend(layout.pack(value.get(name, default)))
    return lambda writer, value: writer.tail.extend(layout.pack(*[value.get(name, other) for name, other in named]))


def _named(field: Field, version: int, flexible: bool) -> _Write:
    """Return the writer of one field out of its struct."""
    name, default, write = field.name, field.default(), _field(field, version, flexible)
    return lambda writer, value: write(writer, value.get(name, default))


def _struct(schema: Struct, version: int, flexible: bool) -> _Write:
    there = [field for field in schema.fields if field.exists.hold(version)]
    body = [field for field in there if field.tag is None]
    steps: list[_Write] = []
    while body:
        run = next((i for i, field in enumerate(body) if not is_number(field)), len(body))
        steps.append(_numbers(body[:run]) if run else _named(body[0], version, flexible))
        del body[: run or 1]
    if flexible:
        steps.append(_tags([field for field in there if field.tag is not None], version))
    if len(steps) == 1:
        return steps[0]

    def write(writer: Writer, value: Data) -> None:
        for step in steps:
            step(writer, value)

    return write


def _tags(fields: list[Field], version: int) -> _Write:
    """Return the writer of a struct's tagged fields: those that are not at their default, by ascending tag."""
    known = [(field.tag or 0, field.name, field.default(), _field(field, version, True)) for field in fields]
    known.sort(key=lambda tagged: tagged[0])
    if not known:
        return lambda writer, value: writer.tail.append(0)

    def write(writer: Writer, value: Data) -> None:
        told = [tagged for tagged in known if value.get(tagged[1], tagged[2]) != tagged[2]]
        put_unsigned_varint(writer.tail, len(told))
        for tag, name, _, write_field in told:
            content = Writer()
            write_field(content, value[name])
            put_unsigned_varint(writer.tail, tag)
            put_unsigned_varint(writer.tail, len(content.tail))
            writer.tail += content.tail

    return write


@lru_cache(maxsize=256)
def _message(schema: Schema, version: int) -> _Write:
    return _struct(schema.struct, version, schema.flexible.hold(version))


def write(schema: Schema, value: Data, version: int, writer: Writer) -> None:
    """Append *value* in *version*, which has to be one that Kafka knows, to *writer*.

    Raises ValueError for null where it is no value and for a string of more than 32767 bytes.
    Kafka: the write methods of its generated classes.
    """
    _message(schema, version)(writer, value)


def encode(schema: Schema, value: Data, version: int) -> bytes:
    """Return *value*, which holds no hole, as bytes; as for the rest, `write`."""
    writer = Writer()
    write(schema, value, version, writer)
    assert not writer.pieces
    return bytes(writer.tail)
