"""Bytes to structs, by a schema.

Two encodings.  In the classic one a string has an int16 length, bytes and arrays an int32, -1 is null.  In the flexible
one lengths are unsigned varints of length + 1, 0 is null, and every struct ends with its tagged fields: a count, then
tag, size and value of each.  Numbers are big-endian in both.

What Kafka refuses is refused here, with the words of its exceptions, since its dump tool prints them; what Kafka lets
pass (bytes left over, a tag given twice, a known tag's wrong size) passes.  No length is used before it is compared
with what is left, so the memory taken is a small multiple of the input.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeAlias

from klog.formats.java_print import utf8_text
from klog.formats.java_text import uuid_text
from klog.formats.schema import UNKNOWN_TAGS, Data, Field, Schema, Struct

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
_RUNTIME: Final = "java.lang.RuntimeException"
_UNSUPPORTED: Final = "org.apache.kafka.common.errors.UnsupportedVersionException"


class StructError(ValueError):
    """The bytes are not this struct.

    *java_class* and *message* are those of Kafka's exception; a message of None is Java's null.
    """

    def __init__(self, java_class: str, message: str | None = None) -> None:
        super().__init__(java_class if message is None else f"{java_class}: {message}")
        self.java_class, self.message = java_class, message


def _underflow() -> StructError:
    return StructError("java.nio.BufferUnderflowException")


class Reader:
    """A cursor over *data*: *position* is the next byte to read.  Kafka: ByteBufferAccessor, Readable.

    *elements* is how many elements of arrays, and tags that nobody knows, may still be read: in Python each takes a
    hundred times what it takes in the bytes.
    """

    __slots__ = ("data", "elements", "position")

    def __init__(self, data: bytes, position: int = 0, elements: int = _NO_LIMIT) -> None:
        self.data, self.position, self.elements = data, position, elements

    @property
    def remaining(self) -> int:
        """How many bytes are left."""
        return len(self.data) - self.position

    def fixed(self, layout: struct.Struct) -> Any:
        """Return the number at the cursor.  Raises StructError when it is cut off."""
        start = self.position
        end = start + layout.size
        if end > len(self.data):
            raise _underflow()
        self.position = end
        return layout.unpack_from(self.data, start)[0]

    def take(self, size: int) -> bytes:
        """Return the next *size* bytes.  Raises StructError when there are fewer, or *size* is below zero."""
        if size > self.remaining:
            raise StructError(
                _RUNTIME, f"Error reading byte array of {size} byte(s): only {self.remaining} byte(s) available"
            )
        if size < 0:
            raise StructError("java.lang.NegativeArraySizeException", str(size))
        self.position += size
        return self.data[self.position - size : self.position]

    def unsigned_varint(self) -> int:
        """Return an unsigned varint as Kafka keeps it, in a signed 32-bit integer.

        Raises StructError when it is cut off or longer than five bytes.  Kafka: ByteUtils.readUnsignedVarint.
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
        """Take note that *elements* are going to be read.  Raises StructError when there have been too many."""
        self.elements -= elements
        if self.elements < 0:
            raise StructError(_RUNTIME, "too many elements")

    def compact_length(self) -> int:
        """Return a length of the flexible encoding; below zero is null."""
        length = self.unsigned_varint()
        return length - 1 if length >= 0 else _int32(length - 1)


def _int32(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


# ---------------------------------------------------------------- one function for each field and version

_Read: TypeAlias = Callable[[Reader], Any]
_Step: TypeAlias = Callable[[Reader, Data], None]
"""Reads one field or several into their struct."""


def _length(flexible: bool, classic: struct.Struct) -> Callable[[Reader], int]:
    if flexible:
        return Reader.compact_length
    size, unpack_from = classic.size, classic.unpack_from

    def length(reader: Reader) -> int:
        start = reader.position
        if start + size > len(reader.data):
            raise _underflow()
        reader.position = start + size
        return int(unpack_from(reader.data, start)[0])

    return length


def _refuse_null(name: str) -> StructError:
    return StructError(_RUNTIME, f"non-nullable field {name} was serialized as null")


def _string(name: str, flexible: bool, nullable: bool) -> _Read:
    length_of = _length(flexible, _INT16)

    def read(reader: Reader) -> str | None:
        length = length_of(reader)
        if length < 0:
            if nullable:
                return None
            raise _refuse_null(name)
        if length > LONGEST_STRING:
            raise StructError(_RUNTIME, f"string field {name} had invalid length {length}")
        return utf8_text(reader.take(length))

    return read


def _bytes(name: str, flexible: bool, nullable: bool) -> _Read:
    length_of = _length(flexible, _INT32)

    def read(reader: Reader) -> bytes | None:
        length = length_of(reader)
        if length < 0:
            if nullable:
                return None
            raise _refuse_null(name)
        return reader.take(length)

    return read


def _array(name: str, flexible: bool, nullable: bool, element: _Read) -> _Read:
    length_of = _length(flexible, _INT32)

    def read(reader: Reader) -> list[Any] | None:
        count = length_of(reader)
        if count < 0:
            if nullable:
                return None
            raise _refuse_null(name)
        if count > reader.remaining:
            left = f"there are only {reader.remaining} bytes remaining."
            raise StructError(_RUNTIME, f"Tried to allocate a collection of size {count}, but {left}")
        reader.count(count)
        return [element(reader) for _ in range(count)]

    return read


def _uuid(reader: Reader) -> str:
    if reader.remaining < _UUID_BYTES:
        raise _underflow()
    return uuid_text(reader.take(_UUID_BYTES))


def _scalar(field: Field, name: str, version: int, flexible: bool, nullable: bool) -> _Read:
    """Return the reader of the field's type, or of an element of its array; never of a null struct."""
    if field.struct is not None:
        return _struct(field.struct, version, flexible)
    if field.type == "string":
        return _string(name, flexible, nullable)
    if field.type in ("bytes", "records"):
        return _bytes(name, flexible, nullable)
    if field.type == "uuid":
        return _uuid
    layout = FIXED[field.type]
    return lambda reader: reader.fixed(layout)


def _field(field: Field, version: int, flexible: bool) -> _Read:
    nullable, flexible = field.nullable.hold(version), flexible and not field.classic
    if field.array:
        element = _scalar(field, f"{field.name} element", version, flexible, False)
        return _array(field.name, flexible, nullable, element)
    read = _scalar(field, field.name, version, flexible, nullable)
    if field.struct is None or not nullable:
        return read
    if field.tag is not None:
        return lambda reader: read(reader) if reader.unsigned_varint() > 0 else None
    return lambda reader: read(reader) if reader.fixed(_INT8) >= 0 else None


def _struct(schema: Struct, version: int, flexible: bool) -> _Read:
    if not schema.readable.hold(version):
        return _raising(StructError(_UNSUPPORTED, f"Can't read version {version} of {schema.name}"))
    # What is not in the bytes costs nothing but a copy of this, except lists and dicts: each struct has its own.
    defaults: Data = schema.default()
    body: list[_Step] = []
    numbers: list[Field] = []
    tagged: dict[int, tuple[str, _Read]] = {}
    for field in schema.fields:
        exists = field.exists.hold(version)
        if field.tag is not None:
            wrong_version = StructError(_RUNTIME, f"Tag {field.tag} is not valid for version {version}")
            tagged[field.tag] = (field.name, _field(field, version, flexible) if exists else _raising(wrong_version))
        if exists and field.tag is None and is_number(field):
            numbers.append(field)
        elif exists and field.tag is None:
            if numbers:
                body.append(_numbers(numbers))
                numbers = []
            body.append(_named(field.name, _field(field, version, flexible)))
        elif isinstance(defaults[field.name], (list, dict)):
            body.append(_fresh(field))
    if numbers:
        body.append(_numbers(numbers))

    def read(reader: Reader) -> Data:
        value = defaults.copy()
        for step in body:
            step(reader, value)
        if flexible:
            _read_tags(reader, value, tagged)
        return value

    return read


def _fresh(field: Field) -> _Step:
    name, default, make = field.name, field.default(), field.default
    if isinstance(default, list):
        make = list
    elif not any(isinstance(inner, (list, dict)) for inner in default.values()):
        make = default.copy

    def step(_reader: Reader, value: Data) -> None:
        value[name] = make()

    return step


def _named(name: str, read: _Read) -> _Step:
    def step(reader: Reader, value: Data) -> None:
        value[name] = read(reader)

    return step


def is_number(field: Field) -> bool:
    """Whether *field* is one value of a fixed width."""
    return not field.array and field.type in FIXED


def numbers_layout(fields: list[Field]) -> struct.Struct:
    """Return the layout of numbers in a row: one call for all of them is several times faster."""
    return struct.Struct(">" + "".join(FIXED[field.type].format.lstrip(">") for field in fields))


def _numbers(fields: list[Field]) -> _Step:
    layout, names = numbers_layout(fields), [field.name for field in fields]
    size, unpack_from = layout.size, layout.unpack_from

    def step(reader: Reader, value: Data) -> None:
        start = reader.position
        if start + size > len(reader.data):
            raise _underflow()
        reader.position = start + size
        value.update(zip(names, unpack_from(reader.data, start)))  # noqa: B905  # strict costs a third of it

    return step


def _raising(error: StructError) -> _Read:
    def read(_reader: Reader) -> None:
        raise StructError(error.java_class, error.message)

    return read


def _read_tags(reader: Reader, value: Data, tagged: dict[int, tuple[str, _Read]]) -> None:
    for _ in range(reader.unsigned_varint()):
        tag, size = reader.unsigned_varint(), reader.unsigned_varint()
        if tag in tagged:  # Kafka does not compare the size with what the field takes
            name, read = tagged[tag]
            value[name] = read(reader)
        else:
            reader.count(1)
            value.setdefault(UNKNOWN_TAGS, []).append((tag, reader.take(size)))


# The bound matters for damaged metadata records only, where any version is read.
@lru_cache(maxsize=256)
def _message(schema: Schema, version: int) -> _Read:
    return _struct(schema.struct, version, schema.flexible.hold(version))


def decode(schema: Schema, data: bytes, version: int, position: int = 0, elements: int = _NO_LIMIT) -> tuple[Data, int]:
    """Return the struct at *position* in *data* and the position after it; whether bytes may follow, the caller knows.

    *version* may be one that Kafka does not know: then it is read as Kafka reads it.  More than *elements* elements of
    arrays are refused.
    Raises StructError when the bytes are not such a struct.  Kafka: the read methods of its generated classes.
    """
    reader = Reader(data, position, elements)
    value: Data = _message(schema, version)(reader)
    return value, reader.position
