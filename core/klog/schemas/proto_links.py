"""Names of types in descriptors, resolved to full names as Protobuf does it: from the innermost scope outwards."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.protobuf import descriptor_pb2

from klog.schemas.decoded import BrokenSchemaError

FIELD = descriptor_pb2.FieldDescriptorProto
FARTHEST = 1 << 30
"""The characters of all names that may be looked up for one file."""


def types_in(file: Any) -> dict[str, int]:
    """Return the full names of all messages and enums of a FileDescriptorProto, each with its type of field."""
    found = {_full(file.package, enum.name): FIELD.TYPE_ENUM for enum in file.enum_type}
    _add_types(found, file.package, file.message_type)
    return found


def _add_types(found: dict[str, int], scope: str, messages: Iterable[Any]) -> None:
    for message in messages:
        full = _full(scope, message.name)
        found[full] = FIELD.TYPE_MESSAGE
        found.update((f"{full}.{enum.name}", FIELD.TYPE_ENUM) for enum in message.enum_type)
        _add_types(found, full, message.nested_type)


def link(file: Any, types: dict[str, int]) -> None:
    """Set the type and the full type name of every field of *file*.  Raises BrokenSchemaError if one is nowhere."""
    _Linker(types).link(file.package, file.message_type)


class _Linker:
    def __init__(self, types: dict[str, int]) -> None:
        self._types = types
        self._found: dict[tuple[str, str], str] = {}
        self._left = FARTHEST

    def link(self, scope: str, messages: Iterable[Any]) -> None:
        for message in messages:
            full = _full(scope, message.name)
            for field in message.field:
                if field.type_name:
                    self._link(field, full)
            self.link(full, message.nested_type)

    def _link(self, field: Any, scope: str) -> None:
        name = field.type_name
        found = self._found.get((scope, name))
        if found is None:
            found = self._found[scope, name] = self._resolve(scope, name)
        field.type_name = f".{found}"
        if field.type != FIELD.TYPE_GROUP:
            field.type = self._types[found]

    def _resolve(self, scope: str, name: str) -> str:
        if name.startswith("."):
            if name[1:] in self._types:
                return name[1:]
            raise BrokenSchemaError(f"{scope}: there is no type {name[:200]}")
        inner = scope
        while True:
            full = _full(inner, name)
            self._left -= len(full)
            if full in self._types:
                return full
            if not inner or self._left < 0:
                raise BrokenSchemaError(f"{scope[:200]}: there is no type {name[:200]}")
            inner = inner.rpartition(".")[0]


def _full(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
