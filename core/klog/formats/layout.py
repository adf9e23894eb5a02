"""A fixed binary structure, declared once: names, widths, meanings.

All of Kafka's fixed structures are big-endian and unpadded.  The compiled kernel takes its byte offsets from these
declarations too (`tools/make_layouts.py` writes them into `kernel/layouts.pxd`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

_CODES = {"int8": "b", "int16": "h", "int32": "i", "uint32": "I", "int64": "q"}


class Field(NamedTuple):
    """One field: its name, its type (`int8 … int64`, `uint32`) and its meaning, unit included."""

    name: str
    type: str
    meaning: str


class Layout:
    """Fields in their order, without gaps.

    Values are tuples in field order; `names` has the names of the fields.
    """

    def __init__(self, name: str, *fields: tuple[str, str, str]) -> None:
        self.name = name
        self.fields = tuple(Field(*field) for field in fields)
        self.names = tuple(field.name for field in self.fields)
        self._struct = struct.Struct(">" + "".join(_CODES[field.type] for field in self.fields))
        self.size = self._struct.size
        self.offsets: dict[str, int] = {}
        at = 0
        for field in self.fields:
            self.offsets[field.name] = at
            at += struct.calcsize(">" + _CODES[field.type])

    def read(self, buffer: bytes | bytearray | memoryview, position: int = 0) -> tuple[int, ...]:
        """Return the values at *position*.

        Raises struct.error when fewer than `size` bytes are there: compare first.
        """
        return self._struct.unpack_from(buffer, position)

    def read_all(self, buffer: bytes | bytearray | memoryview) -> Iterator[tuple[int, ...]]:
        """Yield the values of one structure after another; a rest shorter than a structure is ignored."""
        whole = len(buffer) - len(buffer) % self.size
        return self._struct.iter_unpack(memoryview(buffer)[:whole])

    def write(self, *values: int) -> bytes:
        """Return the bytes of *values*, given in field order."""
        return self._struct.pack(*values)
