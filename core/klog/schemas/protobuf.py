"""Values in Protobuf: a schema's text and references become message types, and payloads become JSON.

A payload begins with its message index, which says which message of the schema it is.  The schema is parsed by klog
(`klog.schemas.proto_text`); the protobuf package reads the message itself.
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple, Protocol

from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError

from klog.schemas.decoded import (
    BAD_MESSAGE_INDEX,
    BAD_VALUE,
    SCHEMA_BROKEN,
    TRUNCATED,
    BadValueError,
    BrokenSchemaError,
    Decoded,
)
from klog.schemas.proto_json import JsonForm
from klog.schemas.proto_known_texts import KNOWN_TEXTS
from klog.schemas.proto_pool import MessageTypes
from klog.schemas.proto_text import ProtoFile, parse_proto
from klog.schemas.proto_well_known import file_of

MOST_INDEXES = 64
"""The longest path of message indexes; messages are not nested deeper."""
LONGEST_BASE64, MOST_PARTS = 4 << 20, 80_000
"""The largest descriptors: characters in base64, and messages, fields, enums and values together."""
_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=\r\n")
_FIRST: tuple[int, ...] = (0,)


class _Type(NamedTuple):
    """A message type: its full name, the function that reads its bytes, and the one that makes JSON of the message."""

    name: str
    read: Callable[[bytes | memoryview], Any]
    convert: Callable[[Any], Any]


class MessageReader(Protocol):
    """Another schema that reads the messages."""

    def read_by(self, name: str) -> tuple[Callable[[bytes | memoryview], Any], Callable[[Any], Any]]:
        """Return what reads and what converts messages of this full name.  Raises BadValueError."""
        ...


class ProtobufSchema:
    """The message types of a schema's text; *references*: the texts that it may import, by import path.

    *reader*: reads messages by their full names instead, in its own form.  Raises BrokenSchemaError for a text that
    cannot be read, and for a type that is in none of them.
    """

    def __init__(
        self, text: str, references: Mapping[str, str], canonical: bool = False, reader: MessageReader | None = None
    ) -> None:
        files, main = _parse_all(text, references)
        self._paths = dict(_paths(main, (), main.descriptor.package, main.descriptor.message_type))
        self._messages = MessageTypes(files)
        self._form = JsonForm(self._messages, canonical)
        self._reader = reader
        self._types: dict[tuple[int, ...], _Type] = {}

    @property
    def name(self) -> str | None:
        """The full name of the first message."""
        return self._paths.get(_FIRST)

    def decode(self, payload: bytes | memoryview) -> Decoded:
        """Return the message behind its message index as JSON."""
        try:
            found, begin = self._type_of(payload)
            return Decoded(found.convert(found.read(payload[begin:])), found.name)
        except BadValueError as error:
            return Decoded(None, None, error.code)
        except (DecodeError, UnicodeDecodeError):
            return Decoded(None, None, BAD_VALUE)

    def index_size(self, payload: bytes | memoryview) -> int:
        """Return the number of bytes of the message indexes in front of a message; 0 for wrong ones."""
        try:
            return self._type_of(payload)[1]
        except BadValueError:
            return 0

    @property
    def messages(self) -> MessageTypes:
        """The types of all messages."""
        return self._messages

    def message_of(self, payload: bytes | memoryview) -> str | None:
        """Return the full name of the message that a payload's index names; None if it names none."""
        try:
            return self._type_of(payload)[0].name
        except BadValueError:
            return None

    def empty_value(self, message: str) -> object:
        """Return the JSON of a message without fields; *message*: its full name."""
        found = self._messages.message_class(message)
        return self._form.plan(found.DESCRIPTOR)(found())

    def has_only_unknown_fields(self, payload: bytes | memoryview) -> bool:
        """Whether a payload that decodes has fields, and none of them is in the schema: a sign of a wrong schema."""
        found, begin = self._type_of(payload)
        return len(payload) > begin and not found.read(payload[begin:]).ListFields()

    def _type_of(self, payload: bytes | memoryview) -> tuple[_Type, int]:
        """Return the message type that the index at the beginning names, and the index's length."""
        path, begin = (_FIRST, 1) if payload and not payload[0] else self._path(payload)
        found = self._types.get(path)
        if found is None:
            found = self._types[path] = self._type(path)
        return found, begin

    def _path(self, payload: bytes | memoryview) -> tuple[tuple[int, ...], int]:
        """Return the path of indexes; old clients write unsigned numbers, which are tried where signed ones fail."""
        try:
            path, begin = _read_path(payload, signed=True)
            if path in self._paths:
                return path, begin
            failed = BadValueError(BAD_MESSAGE_INDEX)
        except BadValueError as error:
            failed = error
        try:
            path, begin = _read_path(payload, signed=False)
        except BadValueError:
            raise failed from None
        if path not in self._paths:
            raise failed
        return path, begin

    def _type(self, path: tuple[int, ...]) -> _Type:
        name = self._paths.get(path)
        if name is None:
            raise BadValueError(BAD_MESSAGE_INDEX)
        if self._reader is not None:
            return _Type(name, *self._reader.read_by(name))
        try:
            found = self._messages.message_class(name)
            return _Type(name, found.FromString, self._form.plan(found.DESCRIPTOR))
        except Exception as error:  # the library in pure Python finds some contradictions of a descriptor only here
            raise BadValueError(SCHEMA_BROKEN) from error


def _read_path(payload: bytes | memoryview, signed: bool) -> tuple[tuple[int, ...], int]:
    """Return the message indexes at the beginning of *payload*, and their length in bytes.  Raises BadValueError."""
    count, at = _varint(payload, 0, signed)
    if not 0 <= count <= MOST_INDEXES:
        raise BadValueError(BAD_MESSAGE_INDEX)
    path = []
    for _ in range(count):
        index, at = _varint(payload, at, signed)
        path.append(index)
    return tuple(path) or _FIRST, at


def _varint(payload: bytes | memoryview, at: int, signed: bool) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at == len(payload):
            raise BadValueError(TRUNCATED)
        byte = payload[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1) if signed else value, at
    raise BadValueError(BAD_MESSAGE_INDEX)


def _parse_all(text: str, references: Mapping[str, str]) -> tuple[list[Any], ProtoFile]:
    """Return the descriptors of a text and of all that it imports, what is imported first, and its own.

    An import that is nowhere is passed over: a text may import files for options alone, which change no value.
    """
    name = "schema"
    while name in references:
        name += "_"
    main = _parse(text, name)
    files, waiting = {name: main.descriptor}, [*main.descriptor.dependency]
    while waiting:
        path = waiting.pop()
        if path in files:
            continue
        given = references.get(path) or KNOWN_TEXTS.get(path)
        if given is not None:
            files[path] = _parse(given, path).descriptor
        elif (known := file_of(path)) is not None:
            files[path] = descriptor_pb2.FileDescriptorProto()
            known.CopyToProto(files[path])
        else:
            continue
        waiting += files[path].dependency
    imports = {path: [one for one in file.dependency if one in files] for path, file in files.items()}
    try:
        ordered = [files[path] for path in TopologicalSorter(imports).static_order()]
    except CycleError as error:
        raise BrokenSchemaError(f"imports form a circle: {' → '.join(error.args[1])}"[:500]) from error
    return ordered, main


def _parse(text: str, name: str) -> ProtoFile:
    """Return the descriptor of a schema, which is `.proto` text or a descriptor in base64."""
    if not text or not _BASE64.issuperset(text):
        return parse_proto(text, name)
    if len(text) > LONGEST_BASE64:
        raise BrokenSchemaError(f"the descriptor is longer than {LONGEST_BASE64} characters")
    try:
        descriptor = descriptor_pb2.FileDescriptorProto.FromString(a2b_base64(text))
    except (ValueError, DecodeError) as error:
        raise BrokenSchemaError("it is neither .proto text nor a descriptor in base64") from error
    _check(descriptor)
    descriptor.name = name
    return ProtoFile(descriptor, frozenset())


def _check(descriptor: Any) -> None:
    """Refuse a descriptor of too many parts, and one with a name that is not UTF-8, which the library lets pass."""
    waiting, count = [descriptor], 0
    while waiting:
        part = waiting.pop()
        count += 1
        for field, value in part.ListFields():
            values = value if field.is_repeated else (value,)
            if field.message_type is not None:
                waiting.extend(values)
            elif field.type == field.TYPE_STRING and not all(isinstance(one, str) for one in values):
                raise BrokenSchemaError("the descriptor has a name that is not UTF-8")
        if count > MOST_PARTS:
            raise BrokenSchemaError(f"the descriptor has more than {MOST_PARTS} parts")


def _paths(
    file: ProtoFile, path: tuple[int, ...], scope: str, messages: Iterable[Any]
) -> Iterator[tuple[tuple[int, ...], str]]:
    """Yield each message with its path of indexes, and its full name, as the text lists them."""
    index = 0
    for message in messages:
        full = f"{scope}.{message.name}" if scope else message.name
        if full not in file.uncounted:
            yield (*path, index), full
            yield from _paths(file, (*path, index), full, message.nested_type)
            index += 1
