"""Reads structs from bytes, by a schema.

Two encodings.  In the classic one a string has an int16 length, bytes and arrays an int32, -1 is null.  In the flexible
one lengths are unsigned varints of length + 1, 0 is null, and every struct ends with its tagged fields: a count, then
tag, size and value of each.  Numbers are big-endian in both.

Input that Kafka refuses is refused, with the messages of its exceptions, because its dump tool prints them; input that
Kafka accepts (trailing bytes, a repeated tag, a wrong size of a known tag) is accepted.  A length is compared with the
remaining bytes before it is used: the memory needed is a small multiple of the input.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeAlias

from klog.formats.java_text import utf8_text, uuid_text
from klog.formats.structs.schema import UNKNOWN_TAGS, CodeWriter, Data, Schema, Struct, StructField

FIXED: Final = {
    "bool": struct.Struct(">?"),
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "int32": struct.Struct(">i"),
    "int64": struct.Struct(">q"),
    "uint16": struct.Struct(">H"),
    "uint32": struct.Struct(">I"),
    "float64": struct.Struct(">d"),
}
_INT8, _INT16, _INT32 = FIXED["int8"], FIXED["int16"], FIXED["int32"]
_UUID_BYTES: Final = 16
LONGEST_STRING: Final = 32767
_NO_LIMIT: Final = 1 << 62
RECORD_ELEMENTS: Final = 1 << 19
"""Elements that a record of an internal topic may have: in Python an empty struct of three bytes takes 266."""
_RUNTIME: Final = "java.lang.RuntimeException"
_UNSUPPORTED: Final = "org.apache.kafka.common.errors.UnsupportedVersionException"


class StructError(ValueError):
    """The bytes are not this struct.

    *java_class* and *message* are those of Kafka's exception; a message of None is Java's null.
    """

    def __init__(self, java_class: str, message: str | None = None) -> None:
        super().__init__(java_class if message is None else f"{java_class}: {message}")
        self.java_class, self.message = java_class, message


class TooManyElementsError(StructError):
    """The struct has more elements than it may have, and no other fault."""

    def __init__(self) -> None:
        super().__init__(_RUNTIME, "too many elements")


def _underflow() -> StructError:
    return StructError("java.nio.BufferUnderflowException")


class Reader:
    """A cursor over *data*: *position* is the next byte to read.  Kafka: ByteBufferAccessor, Readable.

    *elements* is how many elements of arrays, and unknown tags, may still be read: in Python each takes a hundred
    times its size in bytes.  *version* is the one to name in messages.

    *data* may be a view: byte strings and records are then views of it, too, and not copied.
    """

    __slots__ = ("data", "elements", "position", "version")

    def __init__(
        self, data: bytes | memoryview, version: int = 0, position: int = 0, elements: int = _NO_LIMIT
    ) -> None:
        self.data, self.version, self.position, self.elements = data, version, position, elements

    @property
    def remaining(self) -> int:
        """How many bytes are left."""
        return len(self.data) - self.position

    def fixed(self, layout: struct.Struct) -> Any:
        """Return the number at the cursor.  Raises StructError if it is incomplete."""
        start = self.position
        end = start + layout.size
        if end > len(self.data):
            raise _underflow()
        self.position = end
        return layout.unpack_from(self.data, start)[0]

    def take(self, size: int) -> bytes | memoryview:
        """Return the next *size* bytes.  Raises StructError when there are fewer, or *size* is below zero."""
        start, end = self.position, self.position + size
        if end > len(self.data):
            raise _too_few_bytes(size, self.remaining)
        if size < 0:
            raise StructError("java.lang.NegativeArraySizeException", str(size))
        self.position = end
        return self.data[start:end]

    def unsigned_varint(self) -> int:
        """Return an unsigned varint as Kafka keeps it, in a signed 32-bit integer.

        Raises StructError if it is incomplete or longer than five bytes.  Kafka: ByteUtils.readUnsignedVarint.
        """
        value = 0
        for shift in range(0, 35, 7):
            if self.position >= len(self.data):
                raise _underflow()
            byte = self.data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value if value < 1 << 31 else _int32(value)
        raise StructError(
            "java.lang.IllegalArgumentException",
            "Varint is too long, the most significant bit in the 5th byte is set,"
            f" converted value: {value & 0xFFFFFFFF:x}",
        )

    def count(self, elements: int) -> None:
        """Count *elements* that will be read.  Raises StructError if there have been too many."""
        self.elements -= elements
        if self.elements < 0:
            raise TooManyElementsError

    def compact_length(self) -> int:
        """Return a length of the flexible encoding; below zero is null."""
        length = self.unsigned_varint()
        return length - 1 if length >= 0 else _int32(length - 1)


def _int32(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


# ---------------------------------------------------------------- one function for each struct and version

_Read: TypeAlias = Callable[[Reader], Any]
_Emit: TypeAlias = Callable[["_Body", str], None]
"""Adds the code that reads a value into a variable of this name."""


def _refuse_null(name: str) -> StructError:
    return StructError(_RUNTIME, f"non-nullable field {name} was serialized as null")


def _too_long(name: str, length: int) -> StructError:
    return StructError(_RUNTIME, f"string field {name} had invalid length {length}")


def _too_few_bytes(size: int, left: int) -> StructError:
    return StructError(_RUNTIME, f"Error reading byte array of {size} byte(s): only {left} byte(s) available")


def _too_many(count: int, left: int) -> StructError:
    there = f"there are only {left} bytes remaining."
    return StructError(_RUNTIME, f"Tried to allocate a collection of size {count}, but {there}")


def _several(reader: Reader, count: int, element: _Read) -> list[Any]:
    return [element(reader) for _ in range(count)]


def _uuid(reader: Reader) -> str:
    if reader.remaining < _UUID_BYTES:
        raise _underflow()
    return uuid_text(reader.take(_UUID_BYTES))


class _Body(CodeWriter):
    """Code that reads from `data`, which has `size` bytes, at `p`."""

    def __init__(self) -> None:
        super().__init__("reader", "data, p = reader.data, reader.position", "size = len(data)")

    def made(self, name: str) -> _Read:
        return self.function(name, _KNOWN)

    def call(self, read: _Read, to: str) -> None:
        self.add("reader.position = p", f"{to} = {self.constant(read)}(reader)", "p = reader.position")

    def numbers(self, fields: list[StructField], to: list[str]) -> None:
        layout = numbers_layout(fields)
        self.add(f"p += {layout.size}", "if p > size:", "    raise underflow()")
        self.add(f"{', '.join(to)}, = {self.constant(layout.unpack_from)}(data, p - {layout.size})")

    def length(self, flexible: bool, classic: struct.Struct) -> None:
        """Read the length `n`; below zero is null."""
        if flexible:
            self.add("if p >= size:", "    raise underflow()", "n = data[p] - 1", "p += 1")
            self.add("if n >= 127:", "    reader.position = p - 1", "    n = reader.compact_length()")
            self.add("    p = reader.position")
        else:
            self.add(f"p += {classic.size}", "if p > size:", "    raise underflow()")
            self.add(f"(n,) = {self.constant(classic.unpack_from)}(data, p - {classic.size})")

    def null(self, name: str, nullable: bool, to: str) -> None:
        self.add("if n < 0:", f"    {to} = None" if nullable else f"    raise refuse_null({name!r})")


def _string(name: str, flexible: bool, nullable: bool) -> _Emit:
    def emit(body: _Body, to: str) -> None:
        body.length(flexible, _INT16)
        body.null(name, nullable, to)
        body.add(f"elif n > {LONGEST_STRING}:", f"    raise too_long({name!r}, n)")
        body.add("elif n > size - p:", "    raise too_few_bytes(n, size - p)")
        body.add("else:", "    p += n", "    try:", f"        {to} = str(data[p - n : p], 'utf-8')")
        body.add("    except UnicodeDecodeError:", f"        {to} = text(bytes(data[p - n : p]))")

    return emit


def _bytes(name: str, flexible: bool, nullable: bool) -> _Emit:
    def emit(body: _Body, to: str) -> None:
        body.length(flexible, _INT32)
        body.null(name, nullable, to)
        body.add("elif n > size - p:", "    raise too_few_bytes(n, size - p)")
        body.add("else:", "    p += n", f"    {to} = data[p - n : p]")

    return emit


def _array(name: str, flexible: bool, nullable: bool, element: _Read) -> _Emit:
    def emit(body: _Body, to: str) -> None:
        body.length(flexible, _INT32)
        body.null(name, nullable, to)
        body.add("elif n > size - p:", "    raise too_many(n, size - p)")
        body.add("else:", "    reader.position = p", "    reader.elements -= n")
        body.add("    if reader.elements < 0:", "        reader.count(0)  # which says so")
        one = body.constant(element)
        body.add(f"    {to} = [{one}(reader)] if n == 1 else several(reader, n, {one})", "    p = reader.position")

    return emit


def _called(read: _Read) -> _Emit:
    return lambda body, to: body.call(read, to)


def _function(name: str, emit: _Emit) -> _Read:
    body = _Body()
    emit(body, "value")
    body.add("reader.position = p", "return value")
    return body.made(name)


def _scalar(field: StructField, name: str, version: int, flexible: bool, nullable: bool) -> _Emit:
    """Return an emitter of the code that reads the field's type, or an element of its array; never a null struct."""
    if field.struct is not None:
        return _called(_struct(field.struct, version, flexible))
    if field.type == "string":
        return _string(name, flexible, nullable)
    if field.type in ("bytes", "records"):
        return _bytes(name, flexible, nullable)
    if field.type == "uuid":
        return _called(_uuid)
    layout = FIXED[field.type]
    return _called(lambda reader: reader.fixed(layout))


def _field(field: StructField, version: int, flexible: bool) -> _Emit:
    nullable, flexible = field.nullable.hold(version), flexible and not field.classic
    if field.array:
        if field.struct is not None:
            return _array(field.name, flexible, nullable, _struct(field.struct, version, flexible))
        name = f"{field.name} element"
        element = _function(name, _scalar(field, name, version, flexible, False))
        return _array(field.name, flexible, nullable, element)
    if field.struct is None or not nullable:
        return _scalar(field, field.name, version, flexible, nullable)
    read = _struct(field.struct, version, flexible)
    if field.tag is not None:
        return _called(lambda reader: read(reader) if reader.unsigned_varint() > 0 else None)
    return _called(lambda reader: read(reader) if reader.fixed(_INT8) >= 0 else None)


@cache  # a message has some structs in several places
def _struct(schema: Struct, version: int, flexible: bool) -> _Read:
    if not schema.readable.hold(version):
        return _raising(_UNSUPPORTED, "Can't read version {}" + f" of {schema.name}")
    body = _Body()
    there = [field for field in schema.fields if field.tag is None and field.exists.hold(version)]
    values = {field.name: f"v{i}" for i, field in enumerate(there)}
    while there:
        run = next((i for i, field in enumerate(there) if not is_number(field)), len(there))
        if run:
            body.numbers(there[:run], [values[field.name] for field in there[:run]])
        else:
            _field(there[0], version, flexible)(body, values[there[0].name])
        del there[: run or 1]
    # A default becomes a literal, so that each struct has lists and structs of its own.
    named = [f"{field.name!r}: {values.get(field.name) or repr(field.default())}" for field in schema.fields]
    body.add(f"value = {{{', '.join(named)}}}", "reader.position = p")
    if flexible:
        tagged = body.constant(_tagged(schema, version))
        body.add("if p < size and not data[p]:", "    reader.position = p + 1", "else:")
        body.add(f"    read_tags(reader, value, {tagged})")
    body.add("return value")
    return body.made(schema.name)


def _tagged(schema: Struct, version: int) -> dict[int, tuple[str, _Read]]:
    tagged: dict[int, tuple[str, _Read]] = {}
    for field in schema.fields:
        if field.tag is not None and field.exists.hold(version):
            tagged[field.tag] = (field.name, _function(field.name, _field(field, version, True)))
        elif field.tag is not None:
            tagged[field.tag] = (field.name, _raising(_RUNTIME, f"Tag {field.tag} is not valid for version" + " {}"))
    return tagged


def is_number(field: StructField) -> bool:
    """Whether *field* is one value of a fixed width."""
    return not field.array and field.type in FIXED


def numbers_layout(fields: list[StructField]) -> struct.Struct:
    """Return the layout of numbers in a row: one call for all of them is several times faster."""
    return struct.Struct(">" + "".join(FIXED[field.type].format.lstrip(">") for field in fields))


def _raising(java_class: str, message: str) -> _Read:
    """Return a function that raises this exception; `{}` in *message* is replaced by the version."""

    def read(reader: Reader) -> None:
        raise StructError(java_class, message.format(reader.version))

    return read


def _read_tags(reader: Reader, value: Data, tagged: dict[int, tuple[str, _Read]]) -> None:
    for _ in range(reader.unsigned_varint()):
        tag, size = reader.unsigned_varint(), reader.unsigned_varint()
        if tag in tagged:  # Kafka does not compare the size with that of the field
            name, read = tagged[tag]
            value[name] = read(reader)
        else:
            reader.count(1)
            value.setdefault(UNKNOWN_TAGS, []).append((tag, reader.take(size)))


_KNOWN: Final = {
    "read_tags": _read_tags,
    "refuse_null": _refuse_null,
    "several": _several,
    "text": utf8_text,
    "too_few_bytes": _too_few_bytes,
    "too_long": _too_long,
    "too_many": _too_many,
    "underflow": _underflow,
}


def struct_reader(schema: Schema, version: int) -> _Read:
    """Return a decoder for *schema* and *version*, for callers that decode often; it advances the cursor."""
    return _reader(schema, schema.alike(version))


@cache  # of damaged metadata records any version is read
def _reader(schema: Schema, version: int) -> _Read:
    return _struct(schema.struct, version, schema.flexible.hold(version))


def decode(schema: Schema, data: bytes, version: int, position: int = 0, elements: int = _NO_LIMIT) -> tuple[Data, int]:
    """Return the struct at *position* in *data* and the position after it; the caller decides whether bytes may follow.

    *version* may be one that Kafka does not know: it is then read as Kafka reads it.  More than *elements* elements of
    arrays are refused.
    Raises StructError when the bytes are not such a struct.  Kafka: the read methods of its generated classes.
    """
    reader = Reader(data, version, position, elements)
    value: Data = struct_reader(schema, version)(reader)
    return value, reader.position
