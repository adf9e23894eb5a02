"""A plain, strict reader of Avro binary: it decides where fastavro is lenient, fails, or would not come to an end.

It makes the same values as fastavro does by the schema of `avro_plan`, before they are converted.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

from klog.schemas.avro_plan import AvroPlan
from klog.schemas.avro_types import AvroType
from klog.schemas.decoded import BAD_VALUE, TRUNCATED, BadValueError

MOST_DEPTH: Final = 2000
"""The deepest nesting of a value."""
_MOST_BLOCK: Final = 1_000_000
_SPARE_PARTS: Final = 2_000_000
"""Values that may take no bytes, in a block and altogether; a byte gives eight more."""
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_INT_BITS, _LONG_BITS = 32, 64


class AvroReader:
    """Reads one value, in the form that *plan* converts.  *position*: where the value ends, after `read`."""

    def __init__(self, content: bytes, plan: AvroPlan) -> None:
        self.position = 0
        self._content, self._plan = content, plan
        self._parts = 8 * len(content) + _SPARE_PARTS

    def read(self, given: AvroType, depth: int = 0) -> Any:
        """Return the next value.  Raises BadValueError; RecursionError for one that is deeper than Python goes."""
        if depth > MOST_DEPTH:
            raise BadValueError(BAD_VALUE, "nested too deeply")
        kind = given.kind
        if kind == "record":
            self._spend(len(given.fields))
            return {field.name: self.read(field.type, depth + 1) for field in given.fields}
        return _READERS[kind](self, given, depth)

    def _spend(self, parts: int) -> None:
        """Count values that may take no bytes, so that a few bytes do not become endlessly many."""
        self._parts -= parts
        if self._parts < 0:
            raise BadValueError(TRUNCATED, "more values than the bytes can hold")

    def _take(self, size: int) -> bytes:
        if size < 0:
            raise BadValueError(BAD_VALUE, "a negative length")
        start = self.position
        if size > len(self._content) - start:
            raise BadValueError(TRUNCATED)
        self.position = start + size
        return self._content[start : start + size]

    def _integer(self, bits: int) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift >= _LONG_BITS:
                raise BadValueError(BAD_VALUE, "a number of more than ten bytes")
        value = (value >> 1) ^ -(value & 1)
        if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            raise BadValueError(BAD_VALUE, "a number out of range")
        return value

    def _boolean(self, _given: AvroType, _depth: int) -> bytes:
        content = self._take(1)
        if content > b"\1":
            raise BadValueError(BAD_VALUE, "neither true nor false")
        return content

    def _string(self, _given: AvroType | None = None, _depth: int = 0) -> str:
        try:
            return self._take(self._integer(_LONG_BITS)).decode()
        except UnicodeDecodeError:
            raise BadValueError(BAD_VALUE, "text that is not UTF-8") from None

    def _enum(self, given: AvroType, _depth: int) -> str:
        number = self._integer(_INT_BITS)
        if not 0 <= number < len(given.symbols):
            raise BadValueError(BAD_VALUE, "no such symbol")
        return given.symbols[number]

    def _union(self, given: AvroType, depth: int) -> Any:
        number = self._integer(_INT_BITS)
        if not 0 <= number < len(given.parts):
            raise BadValueError(BAD_VALUE, "no such branch")
        branch = given.parts[number]
        value, keys = self.read(branch, depth + 1), self._plan.branch_keys(given)
        return value if keys is None or branch.kind == "null" else {keys[number]: value}

    def _blocks(self) -> Iterator[int]:
        while count := self._integer(_LONG_BITS):
            if count < 0:
                count = -count
                self._integer(_LONG_BITS)  # the bytes of the block, for those who skip it
            if count > 8 * len(self._content) + _MOST_BLOCK:
                raise BadValueError(TRUNCATED, "more values than the bytes can hold")
            self._spend(count)
            yield count

    def _array(self, given: AvroType, depth: int) -> list[Any]:
        items, found = given.parts[0], list[Any]()
        for count in self._blocks():
            for _ in range(count):
                found.append(self.read(items, depth + 1))
        return found

    def _map(self, given: AvroType, depth: int) -> dict[str, Any] | list[Any]:
        values, pairs = given.parts[0], list[Any]()
        for count in self._blocks():
            for _ in range(count):
                pairs.append({"name": self._string(), "value": self.read(values, depth + 1)})
        return pairs if self._plan.has_pairs(given) else {pair["name"]: pair["value"] for pair in pairs}


_READERS: Final[dict[str, Callable[[AvroReader, AvroType, int], Any]]] = {
    "null": lambda _reader, _given, _depth: None,
    "boolean": AvroReader._boolean,
    "int": lambda reader, _given, _depth: reader._integer(_INT_BITS),
    "long": lambda reader, _given, _depth: reader._integer(_LONG_BITS),
    "float": lambda reader, _given, _depth: _FLOAT.unpack(reader._take(4))[0],
    "double": lambda reader, _given, _depth: _DOUBLE.unpack(reader._take(8))[0],
    "bytes": lambda reader, _given, _depth: reader._take(reader._integer(_LONG_BITS)),
    "string": AvroReader._string,
    "fixed": lambda reader, given, _depth: reader._take(given.size),
    "enum": AvroReader._enum,
    "union": AvroReader._union,
    "array": AvroReader._array,
    "map": AvroReader._map,
}
