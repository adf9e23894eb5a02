"""Protobuf's well-known types: their files, and the JSON that ProtoJSON gives to their messages.

A message that the type's text form does not allow (a Timestamp in year 10000, a FieldMask with a path in capitals)
becomes what any other message would become, so that no value is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from importlib import import_module
from typing import Any

from klog.schemas.json_values import double_value

_HOME_OF = {"Any": "any", "Timestamp": "timestamp", "Duration": "duration", "FieldMask": "field_mask"}
WRAPPERS = frozenset(
    f"{name}Value" for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_HOME_OF |= dict.fromkeys(("Struct", "Value", "ListValue"), "struct") | dict.fromkeys(WRAPPERS, "wrappers")
_OTHERS = ("api", "descriptor", "empty", "source_context", "type")
FILES = {f"google/protobuf/{name}.proto": f"google.protobuf.{name}_pb2" for name in (*_HOME_OF.values(), *_OTHERS)}
_EPOCH = datetime(1970, 1, 1)


def file_of(path: str) -> Any:
    """Return the FileDescriptor of the well-known file *path*, or None."""
    return import_module(FILES[path]).DESCRIPTOR if path in FILES else None


def is_well_known(descriptor: Any) -> bool:
    """Whether a message has the name and the fields of a well-known type that has a JSON form of its own."""
    package, _, name = descriptor.full_name.rpartition(".")
    if package != "google.protobuf" or name not in _HOME_OF:
        return False
    original = file_of(f"google/protobuf/{_HOME_OF[name]}.proto").message_types_by_name[name]
    return _fields(descriptor) == _fields(original)


def _fields(descriptor: Any) -> list[tuple[Any, ...]]:
    return [(f.name, f.number, f.type, f.is_repeated, f.has_presence) for f in descriptor.fields]


def timestamp(message: Any) -> str | None:
    """Return the text of a Timestamp, or None if it has none: before year 1, after 9999."""
    seconds, nanos = message.seconds, message.nanos
    if not (-62135596800 <= seconds <= 253402300799 and 0 <= nanos < 10**9):
        return None
    return f"{(_EPOCH + timedelta(seconds=seconds)).isoformat()}{_fraction(nanos)}Z"


def duration(message: Any) -> str | None:
    """Return the text of a Duration, or None if it has none: beyond 10 000 years, or two signs."""
    seconds, nanos = message.seconds, message.nanos
    if abs(seconds) > 315576000000 or abs(nanos) >= 10**9 or seconds * nanos < 0:
        return None
    sign = "-" if seconds < 0 or nanos < 0 else ""
    return f"{sign}{abs(seconds)}{_fraction(abs(nanos))}s"


def _fraction(nanos: int) -> str:
    """Return no digits, three, six or nine."""
    if not nanos:
        return ""
    digits = f"{nanos:09}"
    return "." + (digits[:3] if digits.endswith("000000") else digits[:6] if digits.endswith("000") else digits)


def _field_mask(message: Any) -> str | dict[str, Any]:
    """Return the paths in lowerCamelCase, joined by commas, if the way back gives the same paths."""
    paths = []
    for path in message.paths:
        words = path.split("_")
        if path != path.lower() or "," in path or any(not word[:1].isalpha() for word in words[1:]):
            return {"paths": list(message.paths)}
        paths.append(words[0] + "".join(word[0].upper() + word[1:] for word in words[1:]))
    return ",".join(paths)


def _struct(message: Any) -> dict[str, Any]:
    return {key: _value(message.fields[key]) for key in sorted(message.fields)}


def _list_value(message: Any) -> list[Any]:
    return [_value(value) for value in message.values]


def _value(message: Any) -> Any:
    kind = message.WhichOneof("kind")
    if kind is None or kind == "null_value":
        return None
    if kind == "struct_value":
        return _struct(message.struct_value)
    if kind == "list_value":
        return _list_value(message.list_value)
    value = getattr(message, kind)
    return double_value(value) if kind == "number_value" else value


FORMS: dict[str, Callable[[Any], Any]] = {
    "FieldMask": _field_mask,
    "Struct": _struct,
    "ListValue": _list_value,
    "Value": _value,
}
