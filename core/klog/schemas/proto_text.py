"""A parser of `.proto` text as registries store it, which protoc refuses now and then.

It takes an explicit `map_entry`, proto2 fields without a label, and a text without `syntax`.  It knows messages, enums,
oneofs, maps, groups, defaults, reserved numbers, Protobuf's own options, and editions; the options of others,
services and `extend` do not change how a message is read, and are skipped.  Names of types are resolved afterwards
(`klog.schemas.proto_links`), when the files that a text imports are known.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2

from klog.schemas.proto_options import read_default, read_option
from klog.schemas.proto_tokens import Tokens

DEEPEST = 64
"""Messages in messages; protoc allows half of it."""
LONGEST = 16 << 20
"""The characters of all full names of a file together, with 200 more for each: 80 000 declarations of usual length."""
LAST_NUMBER, LAST_VALUE = (1 << 29) - 1, (1 << 31) - 1
"""The number that `max` stands for: in the ranges of a message, and of an enum."""
FIELD = descriptor_pb2.FieldDescriptorProto
SCALARS = {name[5:].lower(): number for name, number in FIELD.Type.items() if number not in (10, 11, 14)}
"""All types of fields but groups, messages and enums."""
LABELS = {name[6:].lower(): number for name, number in FIELD.Label.items()}


class ProtoFile(NamedTuple):
    """A parsed text, and the full names of its messages that message indexes do not count.

    Those are the entries that a `map<>` stands for, and groups: the text does not list them as messages.
    """

    descriptor: Any
    uncounted: frozenset[str]


def parse_proto(text: str, name: str) -> ProtoFile:
    """Return the FileDescriptorProto of *text* under the name *name*.  Raises BrokenSchemaError."""
    parser = _Parser(text, name)
    try:
        parser.parse()
    except ValueError as error:  # a number or a text that does not fit into a descriptor
        raise parser.tokens.broken(str(error)[:200]) from error
    return ProtoFile(parser.file, frozenset(parser.uncounted))


class _Parser:
    def __init__(self, text: str, name: str) -> None:
        self.tokens = Tokens(text)
        self.file: Any = descriptor_pb2.FileDescriptorProto(name=name)
        self.uncounted: set[str] = set()
        self._left = LONGEST

    def parse(self) -> None:
        tokens = self.tokens
        while tokens.kind != "end":
            if tokens.take(";"):
                continue
            word = tokens.name(dots=True)
            visibility = {"local": 1, "export": 2}.get(word, 0)
            if visibility:
                word = tokens.name()
            self._statement(word, visibility)

    def _statement(self, word: str, visibility: int) -> None:
        file, tokens = self.file, self.tokens
        if word == "message":
            self._message(file.message_type.add(), file.package, 1, visibility)
        elif word == "enum":
            self._enum(file.enum_type.add(), file.package, visibility)
        elif word in ("extend", "service"):
            self._skip_block()
        elif word == "option":
            read_option(tokens, file.options)
            tokens.expect(";")
        else:
            self._head(word)

    def _head(self, word: str) -> None:
        file, tokens = self.file, self.tokens
        if word == "package":
            file.package = tokens.name(dots=True)
        elif word == "import":
            self._import()
        elif word in ("syntax", "edition"):
            tokens.expect("=")
            value = tokens.text().decode()
            if word == "edition":
                file.syntax, file.edition = "editions", descriptor_pb2.Edition.Value(f"EDITION_{value}")
            elif value == "proto3":
                file.syntax = value
            elif value != "proto2":
                raise tokens.broken(f"syntax {value!r} is unknown")
        else:
            raise tokens.broken(f"{word!r} begins no statement")
        tokens.expect(";")

    def _import(self) -> None:
        file, tokens = self.file, self.tokens
        kind = tokens.next() if tokens.kind == "name" else ""
        path = tokens.text().decode()
        if kind == "option":
            file.option_dependency.append(path)
            return
        if kind:
            (file.public_dependency if kind == "public" else file.weak_dependency).append(len(file.dependency))
        file.dependency.append(path)

    def _skip_block(self) -> None:
        self.tokens.name(dots=True)
        self.tokens.expect("{")
        self.tokens.skip_to("}")

    def _declare(self, declared: Any, scope: str, name: str) -> str:
        """Name what is declared in *scope*, and return its full name."""
        full = f"{scope}.{name}" if scope else name
        self._left -= len(full) + 200
        if self._left < 0:
            raise self.tokens.broken("there are too many names up to here, or too long ones")
        declared.name = name
        return full

    def _message(self, message: Any, scope: str, depth: int, visibility: int = 0) -> None:
        full = self._declare(message, scope, self.tokens.name())
        if visibility:
            message.visibility = visibility
        self._body(message, full, depth)

    def _body(self, message: Any, full: str, depth: int) -> None:
        tokens = self.tokens
        if depth > DEEPEST:
            raise tokens.broken(f"messages are nested more than {DEEPEST} deep")
        tokens.expect("{")
        while not tokens.take("}"):
            if not tokens.take(";"):
                self._member(message, full, depth, tokens.name(dots=True))
        if self.file.syntax == "proto3":
            _add_synthetic_oneofs(message)

    def _member(self, message: Any, full: str, depth: int, word: str) -> None:
        tokens = self.tokens
        visibility = {"local": 1, "export": 2}.get(word, 0) if tokens.value in ("message", "enum") else 0
        if visibility:
            word = tokens.next()
        if word == "message":
            self._message(message.nested_type.add(), full, depth + 1, visibility)
        elif word == "enum":
            self._enum(message.enum_type.add(), full, visibility)
        elif word == "oneof":
            self._oneof(message, full, depth)
        elif word == "option":
            read_option(tokens, message.options)
            tokens.expect(";")
        elif word == "extend":
            self._skip_block()
        elif word in ("extensions", "reserved"):
            self._reserved(message, word, LAST_NUMBER, 1)
        else:
            self._field(message, full, depth, word)

    def _oneof(self, message: Any, full: str, depth: int) -> None:
        tokens, index = self.tokens, len(message.oneof_decl)
        oneof = message.oneof_decl.add()
        self._declare(oneof, full, tokens.name())
        tokens.expect("{")
        while not tokens.take("}"):
            if tokens.take(";"):
                continue
            word = tokens.name(dots=True)
            if word == "option":
                read_option(tokens, oneof.options)
                tokens.expect(";")
            else:
                self._field(message, full, depth, word, index)

    def _field(self, message: Any, full: str, depth: int, word: str, oneof: int | None = None) -> None:
        tokens, field = self.tokens, message.field.add()
        field.label = LABELS["optional"]
        if word in LABELS and tokens.kind == "name":
            field.label = LABELS[word]
            if word == "optional" and self.file.syntax == "proto3":
                field.proto3_optional = True
            word = tokens.name(dots=True)
        if oneof is not None:
            field.oneof_index = oneof
        if word == "map" and tokens.take("<"):
            self._map(message, field, full)
        elif word == "group" and tokens.kind == "name":
            self._group(message, field, full, depth)
            return
        else:
            _set_type(field, word)
            self._named(field, full)
        tokens.expect(";")

    def _named(self, field: Any, scope: str) -> None:
        """Read the name of a field, its number and its options."""
        name = self.tokens.name()
        self._declare(field, scope, name)
        field.json_name = json_name(name)
        self.tokens.expect("=")
        field.number = self.tokens.integer()
        self._options(field)

    def _options(self, declared: Any) -> None:
        tokens = self.tokens
        if not tokens.take("["):
            return
        while True:
            if tokens.value == "default" and isinstance(declared, FIELD):
                tokens.next()
                declared.default_value = read_default(tokens, declared.type)
            elif tokens.value == "json_name" and isinstance(declared, FIELD):
                tokens.next()
                tokens.expect("=")
                declared.json_name = tokens.text().decode()
            else:
                read_option(tokens, declared.options)
            if not tokens.take(","):
                break
        tokens.expect("]")

    def _map(self, message: Any, field: Any, full: str) -> None:
        key = self.tokens.name()
        self.tokens.expect(",")
        value = self.tokens.name(dots=True)
        self.tokens.expect(">")
        self._named(field, full)
        entry = message.nested_type.add()
        words = re.sub("(?:^|_+)([^_]?)", lambda found: found[1].upper(), field.name)
        entry_full = self._declare(entry, full, f"{words}Entry")
        for number, (name, kind) in enumerate((("key", key), ("value", value)), start=1):
            part = entry.field.add(name=name, json_name=name, number=number, label=LABELS["optional"])
            _set_type(part, kind)
        entry.options.map_entry = True
        field.label, field.type, field.type_name = LABELS["repeated"], FIELD.TYPE_MESSAGE, f".{entry_full}"
        self.uncounted.add(entry_full)

    def _group(self, message: Any, field: Any, full: str, depth: int) -> None:
        name = self.tokens.name()
        group = message.nested_type.add()
        group_full = self._declare(group, full, name)
        self._declare(field, full, name.lower())
        field.type, field.type_name, field.json_name = FIELD.TYPE_GROUP, f".{group_full}", json_name(name.lower())
        self.tokens.expect("=")
        field.number = self.tokens.integer()
        self._options(field)
        self.uncounted.add(group_full)
        self._body(group, group_full, depth + 1)

    def _enum(self, enum: Any, scope: str, visibility: int = 0) -> None:
        tokens = self.tokens
        self._declare(enum, scope, tokens.name())
        if visibility:
            enum.visibility = visibility
        tokens.expect("{")
        while not tokens.take("}"):
            if tokens.take(";"):
                continue
            word = tokens.name()
            if tokens.value == "=":
                self._value(enum.value.add(), scope, word)
            elif word == "reserved":
                self._reserved(enum, word, LAST_VALUE, 0)
            elif word == "option":
                read_option(tokens, enum.options)
                tokens.expect(";")
            else:
                raise tokens.broken(f"'=' expected before {tokens.value[:60]!r}")

    def _value(self, value: Any, scope: str, name: str) -> None:
        self._declare(value, scope, name)
        self.tokens.expect("=")
        value.number = self.tokens.integer()
        self._options(value)
        self.tokens.expect(";")

    def _reserved(self, owner: Any, word: str, last: int, beyond: int) -> None:
        """Read reserved names, or ranges, whose ends are stored as *beyond* more than the text has."""
        tokens = self.tokens
        ranges = owner.extension_range if word == "extensions" else owner.reserved_range
        while True:
            if tokens.kind in ("text", "name"):
                owner.reserved_name.append(tokens.text().decode() if tokens.kind == "text" else tokens.name())
            else:
                start = end = tokens.integer()
                if tokens.take("to"):
                    end = last if tokens.take("max") else tokens.integer()
                ranges.add(start=start, end=end + beyond)
            if not tokens.take(","):
                break
        if tokens.take("["):
            tokens.skip_to("]")
        tokens.expect(";")


def json_name(name: str) -> str:
    """Return the name of a field in ProtoJSON, where its text gives no `json_name`."""
    return re.sub("_+([^_]?)", lambda found: found[1].upper(), name)


def _set_type(field: Any, word: str) -> None:
    if word in SCALARS:
        field.type = SCALARS[word]
    else:
        field.type_name = word


def _add_synthetic_oneofs(message: Any) -> None:
    """Add a oneof of one member for each field that proto3 text calls optional, as Protobuf wants it."""
    taken = {declared.name for declared in (*message.field, *message.oneof_decl)}
    for field in message.field:
        if field.proto3_optional:
            name = field.name if field.name[0] == "_" else f"_{field.name}"
            while name in taken:
                name = f"X{name}"
            taken.add(name)
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=name)
