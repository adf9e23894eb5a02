"""A field of a file: its bytes, its name, its value, its fault.

The fields of a view cover every byte of it exactly once, in order.  A field has no copy of its bytes, which may be
millions: they are read from its *source* when they are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, TypeAlias

from klog.formats.layout import Layout

FieldValue: TypeAlias = "str | int | float | bool | None"


class ByteSource(Protocol):
    """Bytes by position.  *size*: their number."""

    size: int

    def read(self, position: int, size: int) -> bytes:
        """Return up to *size* bytes from *position* on; fewer only at the end.  Raises UnreadableError."""


class MemorySource:
    """Bytes in memory: decompressed ones."""

    def __init__(self, content: bytes | bytearray) -> None:
        self._content = content
        self.size = len(content)

    def read(self, position: int, size: int) -> bytes:
        """Return up to *size* bytes from *position* on."""
        return bytes(self._content[position : position + size])


class BytePart(NamedTuple):
    """The batch, the record or the entry that fields belong to.  *problem*: a fault of it as a whole."""

    title: str
    problem: str | None = None


class WrongBit(NamedTuple):
    """The one bit that explains a wrong checksum: the position of its byte, and the repair in words."""

    position: int
    text: str


class InsideBytes(NamedTuple):
    """The fields of bytes in a field that is compressed; their positions count from the first decompressed byte."""

    size: int
    fields: Callable[[], Iterator[ByteField]]


class ByteField(NamedTuple):
    """One field.  *text* is its value for people, if that says more; *is_time*: the value is ms since the epoch.

    *content_at*: the position of the content of a byte string, whose length is in front of it; else None.
    *problem*: how it contradicts the rest.
    """

    source: ByteSource
    position: int
    size: int
    name: str
    value: FieldValue
    meaning: str
    part: BytePart
    text: str = ""
    is_time: bool = False
    content_at: int | None = None
    problem: str | None = None
    wrong_bit: WrongBit | None = None
    inside: InsideBytes | None = None

    @property
    def end(self) -> int:
        """The position behind its last byte."""
        return self.position + self.size


Fields: TypeAlias = Iterator[ByteField]


class ContentBytes(NamedTuple):
    """A key or value: the field *name* from *start* on, its content from *content_at* to *end*; None: it is null."""

    source: ByteSource
    name: str
    meaning: str
    start: int
    content_at: int | None
    end: int

    def field(self, part: BytePart) -> ByteField:
        """Return all of it as one field."""
        size = self.end - self.start
        return ByteField(self.source, self.start, size, self.name, None, self.meaning, part, content_at=self.content_at)


def plain(
    source: ByteSource, start: int, end: int, part: BytePart, problem: str | None = None, text: str = ""
) -> Fields:
    """Yield one field of bytes without a structure, or nothing if there are none."""
    if end > start:
        name, meaning = "bytes", "bytes without a known structure"
        yield ByteField(source, start, end - start, name, None, meaning, part, text, False, start, problem)


def layout_fields(
    source: ByteSource, layout: Layout, start: int, end: int, part: BytePart, notes: Notes | None = None
) -> Fields:
    """Yield the fields of *layout* from *start* on, as far as they end before *end*; *notes*: about some of them."""
    found = source.read(start, min(layout.size, end - start))
    for at, field in enumerate(layout.fields):
        offset = layout.offsets[field.name]
        size = (layout.offsets[layout.fields[at + 1].name] if at + 1 < len(layout.fields) else layout.size) - offset
        if offset + size > len(found):
            return
        value = int.from_bytes(found[offset : offset + size], "big", signed=not field.type.startswith("u"))
        text, problem = (notes or {}).get(field.name, ("", None))
        is_time = is_time_field(field.name)
        yield ByteField(
            source, start + offset, size, field.name, value, field.meaning, part, text, is_time, problem=problem
        )


def cut_fields(source: ByteSource, layout: Layout, start: int, end: int, part: BytePart) -> Fields:
    """Yield the fields of *layout* up to *end*, which is inside of it: the last one has the problem."""
    fields = list(layout_fields(source, layout, start, end, part))
    at = fields[-1].end if fields else start
    problem = f"cut: {layout.size} bytes were expected, the file has {end - start}"
    if at < end or not fields:
        yield from fields
        yield from plain(source, at, end, part, problem)
    else:
        yield from fields[:-1]
        yield fields[-1]._replace(problem=problem)


Notes: TypeAlias = "dict[str, tuple[str, str | None]]"
"""Text and problem of fields by their names."""


def is_time_field(name: str) -> bool:
    """Whether a number of this name is ms since the epoch."""
    return name.lower().endswith(("timestamp", "timestampms"))


class WrongBytesError(Exception):
    """The bytes at the cursor are not the declared field: *problem* describes that."""


class ByteCursor:
    """Reads values one after the other, from *position* to *end*; large values are not read."""

    _STEP = 1 << 16

    def __init__(self, source: ByteSource, position: int, end: int) -> None:
        self.source, self.position, self.end = source, position, end
        self._base, self._buffer = position, b""

    def take(self, size: int) -> bytes:
        """Return the next *size* bytes.  Raises WrongBytesError if there are fewer."""
        start = self.position
        self.skip(size)
        at = start - self._base
        if not 0 <= at <= at + size <= len(self._buffer):
            self._base, at = start, 0
            self._buffer = self.source.read(start, min(max(self._STEP, size), self.end - start))
            if len(self._buffer) < size:
                raise WrongBytesError("the file has become shorter")
        return self._buffer[at : at + size]

    def skip(self, size: int) -> None:
        """Pass over *size* bytes.  Raises WrongBytesError if there are fewer."""
        if not 0 <= size <= self.end - self.position:
            raise WrongBytesError(f"a length of {size}, but only {self.end - self.position} left")
        self.position += size

    def varint(self, most: int = 5) -> int:
        """Return a zig-zag varint of at most *most* bytes.  Raises WrongBytesError.  Kafka: ByteUtils.readVarint."""
        number = 0
        for at in range(most):
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << 7 * at
            if byte < 0x80:
                number &= (1 << (32 if most == 5 else 64)) - 1
                return (number >> 1) ^ -(number & 1)
        raise WrongBytesError(f"a number of more than {most} bytes")

    def scalar(self, kind: str) -> int:
        """Return a number of the type *kind*.  Raises WrongBytesError."""
        if kind == "varlong":
            return self.varint(10)
        if kind == "varint":
            return self.varint()
        size = int(kind.lstrip("uint")) // 8
        return int.from_bytes(self.take(size), "big", signed=not kind.startswith("u"))
