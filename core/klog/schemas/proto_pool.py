"""The message types of some files: a pool of the protobuf package, filled with descriptors that klog has made."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable
from threading import Lock
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message import Message

from klog.schemas.decoded import BrokenSchemaError
from klog.schemas.proto_links import link, types_in
from klog.schemas.proto_text import json_name

_CLASS: Any = type(descriptor_pb2.FileDescriptorProto)
_TAKEN = frozenset(dir(Message)) | {"Extensions", "FromString", "FindInitializationErrors"}
"""Names that a class of messages has for other purposes."""
_PARTS = ("service", "extension", "public_dependency", "weak_dependency", "option_dependency")


class MessageTypes:
    """The types of all messages in *files*, of which each follows those that it imports.

    Raises BrokenSchemaError for descriptors that contradict themselves.
    """

    def __init__(self, files: Iterable[Any]) -> None:
        self._pool: Any = descriptor_pool.DescriptorPool()
        self._classes: dict[str, Any] = {}
        self._lock = Lock()
        self.renamed: dict[str, str] = {}
        """The full names of fields whose name the library has for other purposes, and the names in their text."""
        self._lenient: set[str] = set()
        types: dict[str, int] = {}
        before: list[str] = []
        for file in files:
            types |= types_in(file)
            link(file, types)
            for part in _PARTS:
                file.ClearField(part)
            file.dependency[:] = before
            before.append(file.name)
            if file.syntax != "proto3":
                self._lenient.add(file.name)
            self._rename(file.package, file.message_type)
            self._add(file)

    def _add(self, file: Any) -> None:
        try:
            with warnings.catch_warnings(action="error"):  # the one in pure Python warns of names that are used twice
                self._pool.Add(file)
                self._pool.FindFileByName(file.name)
        except Exception as error:  # the library's two implementations raise whatever a wrong descriptor leads to
            raise BrokenSchemaError(" ".join(str(error).split())[:500]) from error

    def _rename(self, scope: str, messages: Iterable[Any]) -> None:
        for message in messages:
            full = f"{scope}.{message.name}" if scope else message.name
            _part_json_names(message)
            for field in message.field:
                old = field.name
                if old in _TAKEN or old.startswith("_") or old.endswith("_FIELD_NUMBER"):
                    field.json_name = field.json_name or json_name(old)
                    field.name = _free_name(message, field.number)
                    self.renamed[f"{full}.{field.name}"] = old
            self._rename(full, message.nested_type)

    def may_have_bad_text(self, descriptor: Any) -> bool:
        """Whether the library lets text that is not UTF-8 pass in this message type; it returns bytes then."""
        return descriptor.file.name in self._lenient

    def message_class(self, name: str) -> Any:
        """Return the class for a full name, with those of all messages in its fields.  Raises KeyError.

        The library's own function calls itself for each of them, too often for a long chain of types.
        """
        with self._lock:  # a class is known before those of its fields
            waiting = [] if name in self._classes else [self._pool.FindMessageTypeByName(name)]
            while waiting:
                one = waiting.pop()
                if one.full_name not in self._classes:
                    attributes = {"DESCRIPTOR": one, "__module__": None}
                    self._classes[one.full_name] = _CLASS(one.name, (Message,), attributes)
                    waiting += [field.message_type for field in one.fields if field.message_type]
            return self._classes[name]


def _part_json_names(message: Any) -> None:
    """Give each of several fields with one name in ProtoJSON its own name there: the library refuses them."""
    counts = Counter(field.json_name or json_name(field.name) for field in message.field)
    if len(counts) < len(message.field):
        for field in message.field:
            if counts[field.json_name or json_name(field.name)] > 1:
                field.json_name = field.name


def _free_name(message: Any, number: int) -> str:
    declared = (message.field, message.oneof_decl, message.nested_type, message.enum_type)
    taken = {one.name for group in declared for one in group}
    taken.update(value.name for enum in message.enum_type for value in enum.value)
    name = f"f{number}"
    while name in taken:
        name += "x"
    return name
