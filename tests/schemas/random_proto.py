"""Random `.proto` texts that protoc takes, and random messages of their types."""

from __future__ import annotations

import string
from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor as F
from google.protobuf.message import Message

INTEGERS = ["int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64"]
SCALARS = [*INTEGERS, "bool", "string", "bytes", "float", "double"]
KEYS = [*INTEGERS, "bool", "string"]
WELL_KNOWN = {
    "timestamp": ("Timestamp",),
    "duration": ("Duration",),
    "field_mask": ("FieldMask",),
    "struct": ("Struct", "Value", "ListValue"),
    "wrappers": ("Int64Value", "FloatValue", "BytesValue", "BoolValue", "StringValue", "UInt64Value"),
    "any": ("Any",),
    "empty": ("Empty",),
}
TEXTS = ("", "a", 'grün – \u2028 "quoted" \\ back', "😀", "\0nul", "tab\tline\n", "x" * 200)
BLANKS = (" ", "  ", "\n", " // why; message {\n", " /* option\n }; */ ", "\t")


class RandomProto:
    """A text of the syntax proto2, proto3 or 2023, which may use types of another one (*imported*)."""

    def __init__(self, rng: Random, syntax: str, package: str, imported: RandomProto | None = None) -> None:
        self.rng, self.syntax, self.package = rng, syntax, package
        self.messages: list[str] = []
        self.enums: dict[str, list[str]] = {}
        self.imports: set[str] = set()
        self._serial = 0
        self._open: set[str] = set()
        self._others = imported
        tree = [self._plan("", 0) for _ in range(rng.randint(1, 4))]
        body = "".join(self._declare(one, "", "") for one in tree)
        body += self._extras()
        self.text = self._head() + body

    def _head(self) -> str:
        head = {"2023": 'edition = "2023";\n', "proto2": self.rng.choice(("", 'syntax = "proto2";\n'))}
        lines = [head.get(self.syntax, f'syntax = "{self.syntax}";\n')]
        lines += [f"package {self.package};\n"] * bool(self.package)
        lines += [f'import "{path}";\n' for path in sorted(self.imports)]
        options = ('option java_package = "a.b";\n', "option optimize_for = CODE_SIZE;\n", "option deprecated=true;")
        lines += [option for option in options if self.rng.random() < 0.3]
        if self.syntax == "2023" and self.rng.random() < 0.5:
            lines.append(f"option features.field_presence = {self.rng.choice(('IMPLICIT', 'EXPLICIT'))};\n")
        return "".join(lines)

    def _extras(self) -> str:
        """Return what a decoder does not need: services and extensions."""
        name = self.messages[0]
        service = f"service S {{ rpc Call (.{name}) returns (stream .{name}) {{ option deprecated = true; }} }}\n"
        return service if self.rng.random() < 0.3 else ""

    def _name(self, kind: str) -> str:
        self._serial += 1
        if kind == "field":
            words = ("id", "some_value", "Caps", "_lead", "trail_", "two__words", "x9_y", "message", "optional", "from")
            return f"{self.rng.choice(words)}_{self._serial}"
        return f"{kind}{self._serial}"

    def _plan(self, scope: str, depth: int) -> tuple[str, str, list[Any]]:
        """Name a message or an enum and what is nested in it, so that fields can use what comes later."""
        kind = "enum" if self.rng.random() < 0.3 and (depth or self.messages) else "message"
        name = self._name(kind[0].upper())
        full = ".".join(part for part in (scope or self.package, name) if part)
        if kind == "enum":
            self.enums[full] = [f"V{self._serial}_{at}" for at in range(self.rng.randint(1, 4))]
            return kind, name, []
        self.messages.append(full)
        return kind, name, [self._plan(full, depth + 1) for _ in range(self.rng.randint(0, 2) if depth < 4 else 0)]

    def _declare(self, planned: tuple[str, str, list[Any]], scope: str, indent: str) -> str:
        kind, name, inner = planned
        full = ".".join(part for part in (scope or self.package, name) if part)
        members = [self._declare(one, full, indent + "  ") for one in inner]
        if kind == "enum":
            return f"{indent}enum {name} {{\n{self._values(full)}{indent}}}\n"
        self.numbers = iter(sorted(self.rng.sample([*range(1, 40), 2047, 2048, 18999, 536870911], 43)))
        members += [self._member(full) for _ in range(self.rng.randint(0, 9))]
        self.rng.shuffle(members)
        if self.rng.random() < 0.2:
            members.append("reserved 600, 700 to 710;\n")
        if self.rng.random() < 0.2:
            members.append('reserved "gone", "lost";\n' if self.syntax != "2023" else "reserved gone, lost;\n")
        if self.syntax != "proto3" and self.rng.random() < 0.2:
            members.append("extensions 1000 to 1999, 3000, 600000 to 600001;\n")
            members.append(f"extend {name} {{ {self._label('')}int32 e_{self._serial} = 1001; }}\n")
        members += [";\n"] * (self.rng.random() < 0.1)
        return f"{indent}message {name} {{{self.rng.choice(BLANKS)}\n{indent}{indent.join(members)}{indent}}}\n"

    def _values(self, full: str) -> str:
        lines, numbers = [], [0, -1, 7, 1 << 30]
        for at, value in enumerate(self.enums[full]):
            number = numbers[at]
            text = hex(number) if number > 7 else str(number)
            lines.append(f"{value} = {text}{self.rng.choice(('', ' [deprecated = true]'))};\n")
        if self.rng.random() < 0.2:
            lines.append(f"A{self._serial}{full[-1]}{len(lines)} = 0; option allow_alias = true;\n")
            self._serial += 1
        if self.rng.random() < 0.2:
            lines.append("reserved 100 to 200, -7, 2000000000 to max;\n")
        return "".join(lines)

    def _label(self, kind: str) -> str:
        if self.syntax == "proto2":
            return self.rng.choice(("optional ", "optional ", "required " if kind else "optional ", "repeated "))
        if self.syntax == "2023":
            return self.rng.choice(("", "", "repeated "))
        return self.rng.choice(("", "", "optional ", "repeated "))

    def _member(self, scope: str) -> str:
        roll = self.rng.random()
        if roll < 0.12:
            members = [self._field(scope, "") for _ in range(self.rng.randint(1, 3))]
            return f"oneof {self._name('o')} {{ {' '.join(members)} }}\n"
        if roll < 0.24:
            kind = self.rng.choice((*SCALARS, *self._types(scope)))
            return f"map<{self.rng.choice(KEYS)}, {kind}> {self._name('field')} = {next(self.numbers)};\n"
        if roll < 0.3 and self.syntax == "proto2":
            label, number = self._label(""), next(self.numbers)
            kept, self.numbers = self.numbers, iter(range(1, 40))
            inner = "".join(self._field(scope, self._label("")) for _ in range(2))
            self.numbers = kept
            return f"{label}group {self._name('Group')} = {number} {{ {inner} }}\n"
        return self._field(scope, self._label("x"))

    def _field(self, scope: str, label: str) -> str:
        kind = self.rng.choice((*SCALARS, *self._types(scope))) if self.rng.random() < 0.9 else self._well_known()
        between, name = self.rng.choice(BLANKS), self._name("field")
        if label == "required " and kind not in SCALARS:
            label = "optional "
        options = self._options(kind, label)
        number = next(self.numbers)
        text = hex(number) if self.rng.random() < 0.05 else f"{number}"
        return f"{label}{kind}{between}{name} = {text}{options};{self.rng.choice((' ', chr(10)))}"

    def _options(self, kind: str, label: str) -> str:
        found = []
        if self.rng.random() < 0.1:
            found.append("deprecated = true")
        if self.rng.random() < 0.1:
            found.append(f'json_name = "j{self._serial}\\x41"')
        if label == "repeated " and kind in INTEGERS and self.syntax != "2023" and self.rng.random() < 0.4:
            found.append(f"packed = {self.rng.choice(('true', 'false'))}")
        if self.syntax == "2023" and self.rng.random() < 0.2:
            if label == "repeated " and kind in INTEGERS:
                found.append("features.repeated_field_encoding = EXPANDED")
            elif kind.lstrip(".") in self.messages:
                found.append("features = { message_encoding: DELIMITED }")
        if self.syntax == "proto2" and label != "repeated " and self.rng.random() < 0.4:
            found += self._default(kind)
        return f" [{', '.join(found)}]" if found else ""

    def _default(self, kind: str) -> list[str]:
        rng = self.rng
        if kind in INTEGERS:
            number = rng.choice(("0", "7", "0x1F", "017", "2147483647"))
            return [f"default = {'-' if kind[0] != 'u' and 'fixed' not in kind and rng.random() < 0.3 else ''}{number}"]
        choices = {
            "bool": ("true", "false"),
            "float": ("1.5", "-2", "1e10", "inf", "-inf", "nan", "0.1", "1e-30", "16777217"),
            "double": ("1.5", "-2.25", "1e300", "inf", "-nan", "0.1", "123456789012345678", ".5", "1."),
            "string": ('"a\\n\\"b\\" \\303\\251 é"', "'it' 's'", '""'),
            "bytes": ('"\\x00\\377a\\"\'"', "'\\001'", '"\\\\\\t?"'),
        }.get(kind)
        if choices is None:
            choices = tuple(self.enums.get(kind.lstrip("."), ()))
        return [f"default = {rng.choice(choices)}"] if choices else []

    def _types(self, scope: str) -> list[str]:
        """Return three names of types as they can be written in *scope*."""
        found = []
        for _ in range(3):
            full = self.rng.choice((*self.messages, *self.enums))
            shared = full.rpartition(".")[0]
            if (f"{scope}.").startswith(f"{shared}.") and self.rng.random() < 0.5:
                found.append(full.rpartition(".")[2])
            else:
                found.append(f".{full}")
        if self._others and self.rng.random() < 0.3:
            self.imports.add("other.proto")
            found.append(f".{self.rng.choice(self._others.messages)}")
        return found

    def _well_known(self) -> str:
        home = self.rng.choice([*WELL_KNOWN])
        self.imports.add(f"google/protobuf/{home}.proto")
        return f"google.protobuf.{self.rng.choice(WELL_KNOWN[home])}"


def random_message(rng: Random, message: Message, depth: int = 0) -> None:
    """Set about half of the fields of *message*."""
    fill = {
        "google.protobuf.Timestamp": _fill_timestamp,
        "google.protobuf.Duration": _fill_duration,
        "google.protobuf.FieldMask": lambda _, m: m.paths.extend(["a.b_c", "d"]),
        "google.protobuf.Value": _fill_value,
    }.get(message.DESCRIPTOR.full_name)
    if fill:
        fill(rng, message)
        return
    for field in message.DESCRIPTOR.fields:
        if field.is_required or rng.random() < 0.5:
            _set_field(rng, message, field, depth)


def _set_field(rng: Random, message: Any, field: Any, depth: int) -> None:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        values, kind = getattr(message, field.name), entry.fields_by_name["value"]
        for _ in range(rng.randint(0, 3)):
            key = random_scalar(rng, entry.fields_by_name["key"])
            if kind.message_type is None:
                values[key] = random_scalar(rng, kind)
            elif depth < 5:
                random_message(rng, values[key], depth + 1)
    elif entry is not None:
        if depth < 5:
            single = getattr(message, field.name)
            for _ in range(rng.randint(0, 2) if field.is_repeated else 1):
                inner = single.add() if field.is_repeated else single
                inner.SetInParent()
                random_message(rng, inner, depth + 1)
    elif field.is_repeated:
        getattr(message, field.name).extend(random_scalar(rng, field) for _ in range(rng.randint(0, 3)))
    else:
        setattr(message, field.name, random_scalar(rng, field))


def random_scalar(rng: Random, field: Any) -> Any:
    """Return a value for a field that is no message."""
    if field.type == F.TYPE_ENUM:
        numbers = [value.number for value in field.enum_type.values]
        return rng.choice(numbers if field.enum_type.is_closed else [*numbers, 42])
    if field.type == F.TYPE_BOOL:
        return rng.random() < 0.5
    if field.type == F.TYPE_STRING:
        return rng.choice(TEXTS) if rng.random() < 0.5 else "".join(rng.choices(string.printable, k=rng.randint(0, 9)))
    if field.type == F.TYPE_BYTES:
        return rng.randbytes(rng.randint(0, 7))
    if field.type in (F.TYPE_FLOAT, F.TYPE_DOUBLE):
        return rng.choice((0.0, -0.0, 0.1, 1e10, 3.2e38, float("nan"), float("inf"), rng.uniform(-9, 9), 1e-30))
    bits = 32 if field.cpp_type in (F.CPPTYPE_INT32, F.CPPTYPE_UINT32) else 64
    unsigned = field.cpp_type in (F.CPPTYPE_UINT32, F.CPPTYPE_UINT64)
    number = rng.choice((0, 1, 63, 64, rng.getrandbits(bits - 1), (1 << bits - 1) - 1, (1 << bits - 1)))
    return number if unsigned else number - (1 << bits - 1) if rng.random() < 0.5 or number >> bits - 1 else number


def _fill_timestamp(rng: Random, message: Any) -> None:
    message.seconds = rng.randint(-62135596800, 253402300799)
    message.nanos = rng.choice((0, 1, 5_000_000, 123_456_000, 999_999_999))


def _fill_duration(rng: Random, message: Any) -> None:
    message.seconds = rng.randint(0, 315576000000)
    message.nanos = rng.choice((0, 1, 5_000_000, 123_456_000, 999_999_999))
    if rng.random() < 0.5:
        message.seconds, message.nanos = -message.seconds, -message.nanos


def _fill_value(rng: Random, message: Any) -> None:
    roll = rng.random()
    if roll < 0.2:
        message.struct_value.update({"a": [1, "x", None, True], rng.choice(TEXTS): {"n": 1.5}})
    elif roll < 0.4:
        message.list_value.extend([1, "b", None, [False]])
    elif roll < 0.6:
        message.number_value = rng.uniform(-9, 9)
    elif roll < 0.8:
        message.string_value = rng.choice(TEXTS)
    elif roll < 0.9:
        message.null_value = 0
