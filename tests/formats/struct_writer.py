"""Writes structs by a schema, and makes them up: random content, every encoding, right or slightly wrong."""

from __future__ import annotations

import base64
import random
import struct

from klog.formats.structs.schema import Data, Schema, Struct, StructField

from tests.oracles.plain.encode import unsigned_varint

CODES = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "float64": "d",
}


def write(schema: Schema, value: Data, version: int) -> bytes:
    """Return the bytes of *value* as Kafka writes them in *version*."""
    return _struct(schema.struct, value, version, schema.flexible.hold(version))


def _struct(schema: Struct, value: Data, version: int, flexible: bool) -> bytes:
    body, tagged = b"", {}
    for field in schema.fields:
        if not field.exists.hold(version):
            continue
        if field.tag is None:
            body += _field(field, value[field.name], version, flexible)
        elif value[field.name] != field.default():
            tagged[field.tag] = _field(field, value[field.name], version, True)
    if not flexible:
        return body
    tagged |= dict(value.get("_unknownTaggedFields", ()))
    body += unsigned_varint(len(tagged))
    for tag in sorted(tagged):
        body += unsigned_varint(tag) + unsigned_varint(len(tagged[tag])) + tagged[tag]
    return body


def _length(count: int, flexible: bool, classic: str) -> bytes:
    return unsigned_varint(count + 1) if flexible else struct.pack(classic, count)


def _field(field: StructField, value: object, version: int, flexible: bool) -> bytes:
    flexible = flexible and not field.classic
    if field.array:
        if value is None:
            return _length(-1, flexible, ">i")
        assert isinstance(value, list)
        return _length(len(value), flexible, ">i") + b"".join(_one(field, item, version, flexible) for item in value)
    if field.struct is not None and field.nullable.hold(version):
        if value is None:
            return b"\0" if field.tag is not None else b"\xff"
        return b"\1" + _one(field, value, version, flexible)
    return _one(field, value, version, flexible)


def _one(field: StructField, value: object, version: int, flexible: bool) -> bytes:
    if field.struct is not None:
        assert isinstance(value, dict)
        return _struct(field.struct, value, version, flexible)
    if field.type == "string":
        data = None if value is None else str(value).encode()
        return _length(-1, flexible, ">h") if data is None else _length(len(data), flexible, ">h") + data
    if field.type in ("bytes", "records"):
        assert value is None or isinstance(value, bytes)
        return _length(-1, flexible, ">i") if value is None else _length(len(value), flexible, ">i") + value
    if field.type == "uuid":
        return base64.urlsafe_b64decode(f"{value}==")
    return struct.pack(">" + CODES[field.type], value)


# ---------------------------------------------------------------- made up

TEXTS = [
    "",
    "a",
    "orders",
    "consumer",
    'q"\\/',
    "tab\tnl\ncr\rbs\bff\f",
    "\0\x01\x0b\x1f\x7f",
    "中文",
    "😀",
    "\u2028\ufffd",
    "x" * 130,
]


def _number(field: StructField, chance: random.Random) -> object:
    if field.type == "bool":
        return chance.random() < 0.5
    if field.type == "float64":
        return struct.unpack(">d", chance.randbytes(8))[0] if chance.random() < 0.5 else chance.randrange(10**9) / 8
    bits = 8 * struct.calcsize(CODES[field.type])
    low = 0 if field.type[0] == "u" else -(1 << bits - 1)
    return chance.choice((0, 1, low, low + (1 << bits) - 1, chance.randrange(low, low + (1 << bits))))


def _made_up(field: StructField, version: int, chance: random.Random) -> object:
    if field.tag is not None and chance.random() < 0.4:
        return field.default()
    if field.nullable.hold(version) and chance.random() < 0.25:
        return None
    if field.array:
        return [_item(field, version, chance) for _ in range(chance.choice((0, 1, 1, 2, 5)))]
    return _item(field, version, chance)


def _item(field: StructField, version: int, chance: random.Random) -> object:
    if field.struct is not None:
        return made_up_struct(field.struct, version, chance)
    if field.type == "string":
        return chance.choice(TEXTS)
    if field.type in ("bytes", "records"):
        return chance.randbytes(chance.choice((0, 1, 2, 3, 40)))
    if field.type == "uuid":
        return base64.urlsafe_b64encode(chance.choice((bytes(16), chance.randbytes(16)))).decode().rstrip("=")
    return _number(field, chance)


def made_up_struct(schema: Struct, version: int, chance: random.Random) -> Data:
    """Return a struct with random content, now and then with unknown tags."""
    value = {
        field.name: _made_up(field, version, chance) if field.exists.hold(version) else field.default()
        for field in schema.fields
    }
    if chance.random() < 0.05:
        value["_unknownTaggedFields"] = [(chance.choice((9, 77, 1000)), chance.randbytes(chance.randrange(4)))]
    return value


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Return *data* with one to three things wrong with it."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        what, at = chance.randrange(7), chance.randrange(len(changed) + 1)
        if what == 0:
            del changed[at:]
        elif what == 1:
            changed[at:at] = chance.randbytes(chance.randrange(1, 6))
        elif what == 2:
            del changed[at : at + chance.randrange(1, 4)]
        elif what == 3:
            changed[at:at] = chance.choice((b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x80\x08", b"\xff" * 6, b"\x80"))
        elif at < len(changed):
            flipped = changed[at] ^ 1 << chance.randrange(8)
            changed[at] = chance.choice((flipped, 0, 0xFF, 0x80, 0xED, chance.randrange(256)))
    return bytes(changed)
