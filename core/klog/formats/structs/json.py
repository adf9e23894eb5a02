"""Structs to JSON by a schema, as Kafka's dump tool prints them: no blanks, fields in schema order.

Left out are fields that the version does not have, and tagged fields at their default.  Uuids and bytes are strings
(base64, in the URL alphabet without padding and in the plain one with it), every number is a plain number.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from klog.formats.java_text import json_double, json_string
from klog.formats.structs.schema import Data, Schema, Struct, StructField

_Write: TypeAlias = Callable[[Any], str]


class EmbeddedStruct(NamedTuple):
    """The decoded content of a bytes field: it replaces the field and prints as an object."""

    schema: Schema
    version: int
    value: Data


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _bytes(value: bytes | EmbeddedStruct) -> str:
    if isinstance(value, EmbeddedStruct):
        return to_json(value.schema, value.value, value.version)
    return '"' + binascii.b2a_base64(value, newline=False).decode("ascii") + '"'


def _uuid(value: str) -> str:
    return f'"{value}"'


_WRITERS: dict[str, _Write] = {
    "bool": _bool,
    "string": json_string,
    "uuid": _uuid,
    "bytes": _bytes,
    "records": _bytes,
    "float64": json_double,
}


def _field(field: StructField, version: int) -> _Write:
    write_one = _WRITERS.get(field.type, str) if field.struct is None else _struct(field.struct, version)
    write = _array(write_one) if field.array else write_one
    if field.nullable.hold(version):
        return lambda value: "null" if value is None else write(value)
    return write


def _array(write: _Write) -> _Write:
    return lambda value: "[" + ",".join([write(item) for item in value]) + "]"


def _struct(schema: Struct, version: int) -> _Write:
    parts = [
        (field.name, f'"{field.name}":', _field(field, version), field.tag is not None, field.default())
        for field in schema.fields
        if field.exists.hold(version)
    ]

    def write(value: Data) -> str:
        texts = [
            name + write_field(value[key])
            for key, name, write_field, optional, default in parts
            if not (optional and value[key] == default)
        ]
        return "{" + ",".join(texts) + "}"

    return write


@lru_cache(maxsize=256)
def _message(schema: Schema, version: int) -> _Write:
    return _struct(schema.struct, version)


def to_json(schema: Schema, value: Data, version: int) -> str:
    """Return *value* as JSON in *version*, which need not be the one it was read in.

    Kafka: the write methods of its generated JsonConverter classes, then Jackson's toString.
    """
    return _message(schema, version)(value)
