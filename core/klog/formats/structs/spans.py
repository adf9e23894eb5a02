"""Reads structs by a schema, value by value, with the bytes that each value has: slower than `structs.read`.

The walk follows the same schemas.  It ends with a StructError at the first value that cannot be read, so that a caller
has all values before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from klog.formats.structs.read import FIXED, LONGEST_STRING, Reader, StructError
from klog.formats.structs.schema import Schema, Struct, StructField

_UUID_BYTES = 16


class StructSpan(NamedTuple):
    """A value of a struct: bytes *start* to *end*, with its length in front if it has one.

    *name* is the path from the struct on: `members[0].groupInstanceId`.  *content_at*: the first byte behind the
    length of a byte string, whose *value* is None; else None.
    """

    name: str
    start: int
    end: int
    value: Any
    type: str
    content_at: int | None = None


def struct_spans(schema: Schema, version: int, reader: Reader, prefix: str = "") -> Iterator[StructSpan]:
    """Yield the values of the struct at the reader's cursor, in their order; the names begin with *prefix*.

    Raises StructError where the bytes are not the struct.
    """
    version = schema.alike(version)
    return _struct(schema.struct, version, schema.flexible.hold(version), reader, prefix)


def _struct(struct: Struct, version: int, flexible: bool, reader: Reader, prefix: str) -> Iterator[StructSpan]:
    if not struct.readable.hold(version):
        raise StructError(f"version {version} of {struct.name} cannot be read")
    for field in struct.fields:
        if field.tag is None and field.exists.hold(version):
            yield from _field(field, version, flexible, reader, prefix)
    if flexible:
        yield from _tags(struct, version, reader, prefix)


def _field(field: StructField, version: int, flexible: bool, reader: Reader, prefix: str) -> Iterator[StructSpan]:
    name, nullable, flexible = prefix + field.name, field.nullable.hold(version), flexible and not field.classic
    if not field.array:
        if field.struct is not None and nullable:
            start = reader.position
            given = reader.unsigned_varint() > 0 if field.tag is not None else reader.fixed(FIXED["int8"]) >= 0
            yield StructSpan(f"{name}.given", start, reader.position, given, "a number; whether the struct is not null")
            if not given:
                return
        yield from _value(field, name, version, flexible, nullable, reader)
        return
    start = reader.position
    count = _length(reader, flexible, "int32", name, nullable)
    text = "number of elements" if count >= 0 else "null"
    yield StructSpan(f"{name}.count", start, reader.position, count if count >= 0 else None, text)
    if count > reader.remaining:
        raise StructError(f"{name} has a count of {count}, but only {reader.remaining} bytes are left")
    reader.count(max(count, 0))
    for at in range(count):
        yield from _value(field, f"{name}[{at}]", version, flexible, False, reader)


def _value(
    field: StructField, name: str, version: int, flexible: bool, nullable: bool, reader: Reader
) -> Iterator[StructSpan]:
    """Yield one value of the field's type, or of an element of its array; a struct is not null here."""
    start = reader.position
    if field.struct is not None:
        yield from _struct(field.struct, version, flexible, reader, f"{name}.")
    elif field.type == "uuid":
        from klog.formats.java_text import uuid_text

        if reader.remaining < _UUID_BYTES:
            raise StructError(f"{name} has {_UUID_BYTES} bytes, but only {reader.remaining} left")
        yield StructSpan(name, start, start + _UUID_BYTES, uuid_text(reader.take(_UUID_BYTES)), "uuid")
    elif field.type in FIXED:
        value = reader.fixed(FIXED[field.type])
        yield StructSpan(name, start, reader.position, value, field.type)
    else:
        yield _text_or_bytes(field, name, flexible, nullable, reader)


def _text_or_bytes(field: StructField, name: str, flexible: bool, nullable: bool, reader: Reader) -> StructSpan:
    start, is_text = reader.position, field.type == "string"
    size = _length(reader, flexible, "int16" if is_text else "int32", name, nullable)
    kind = f"{field.type} behind its length"
    if size < 0:
        return StructSpan(name, start, reader.position, None, kind)
    if size > reader.remaining or (is_text and size > LONGEST_STRING):
        raise StructError(f"{name} has a length of {size}, but only {reader.remaining} left")
    at = reader.position
    reader.position += size
    if not is_text:
        return StructSpan(name, start, reader.position, None, kind, at)
    from klog.formats.java_text import utf8_text

    return StructSpan(name, start, reader.position, utf8_text(bytes(reader.data[at : at + size])), kind)


def _length(reader: Reader, flexible: bool, classic: str, name: str, nullable: bool) -> int:
    """Read a length; below zero is null.  Raises StructError for a null that is not allowed."""
    size: int = reader.compact_length() if flexible else reader.fixed(FIXED[classic])
    if size < 0 and not nullable:
        raise StructError(f"{name} is null, which it cannot be")
    return size


def _tags(struct: Struct, version: int, reader: Reader, prefix: str) -> Iterator[StructSpan]:
    tagged = {field.tag: field for field in struct.fields if field.tag is not None}
    start = reader.position
    count = reader.unsigned_varint()
    yield StructSpan(f"{prefix}tagged_fields", start, reader.position, count, "number of tagged fields")
    for _ in range(count):
        start = reader.position
        tag, size = reader.unsigned_varint(), reader.unsigned_varint()
        field = tagged.get(tag)
        yield StructSpan(f"{prefix}tag", start, reader.position, tag, f"number of a tagged field of {size} bytes")
        if field is None:
            reader.count(1)
            at = reader.position
            if not 0 <= size <= reader.remaining:
                raise StructError(f"tag {tag} has a length of {size}, but only {reader.remaining} left")
            reader.position += size
            yield StructSpan(f"{prefix}unknown", at, reader.position, None, "a tag that Kafka does not know", at)
        elif not field.exists.hold(version):
            raise StructError(f"tag {tag} is not valid for version {version}")
        else:
            yield from _field(field, version, True, reader, prefix)
