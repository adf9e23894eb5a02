"""Random Avro schemas and values in their binary encoding; the encoder shares nothing with klog."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import Any

LOGICAL = {
    "int": ("date", "time-millis", "no-such-type"),
    "long": (
        "time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos", "local-timestamp-millis",
        "local-timestamp-micros", "local-timestamp-nanos", "date",
    ),
    "string": ("uuid",),
}  # fmt: skip
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
WORDS = ("id", "name", "ünï", "__proto__", "a.b", 'quote"', "x" * 90, "", "type", "0")
TEXTS = ("", "a", "grün – \u2028", "😀", "tab\tline\n\0", "x" * 200, "日本語のテキスト" * 4)
MOMENTS = (0, -1, 1, 253402300799999, 253402300800000, -62135596800000, -62135596800001, 2**63 - 1, -(2**63))


class SchemaMaker:
    """Makes schemas from a seed; every named type is known to later parts of the same schema."""

    def __init__(self, numbers: random.Random) -> None:
        self._numbers = numbers
        self._names: list[str] = []
        self._made = 0

    def schema(self, depth: int = 0) -> Any:
        numbers = self._numbers
        kinds = [*PRIMITIVES, "logical", "decimal", "fixed", "enum", "named"]
        if depth < 4:
            kinds += ["record", "record", "array", "map", "union", "union"] * 2
        kind = numbers.choice(kinds)
        if kind in PRIMITIVES:
            return kind if numbers.random() < 0.8 else {"type": kind}
        if kind == "named" and self._names:
            return numbers.choice(self._names)
        make = getattr(self, f"_{kind}", self._enum)
        return make(depth)

    def _name(self) -> dict[str, str]:
        name = f"N{self._made}"
        self._made += 1
        space = self._numbers.choice(("x.y", "z"))
        self._names.append(f"{space}.{name}")
        return self._numbers.choice(({"name": f"{space}.{name}"}, {"name": name, "namespace": space}))

    def _logical(self, _depth: int) -> Any:
        base = self._numbers.choice(tuple(LOGICAL))
        return {"type": base, "logicalType": self._numbers.choice(LOGICAL[base])}

    def _decimal(self, _depth: int) -> Any:
        numbers = self._numbers
        found = {"type": "bytes", "logicalType": "decimal", "precision": numbers.choice((1, 9, 38, 0, 100))}
        if numbers.random() < 0.8:
            found["scale"] = numbers.choice((0, 1, 9, 38, -1))
        return found

    def _fixed(self, _depth: int) -> Any:
        numbers = self._numbers
        size = numbers.choice((0, 1, 12, 16, 5))
        found = {"type": "fixed", "size": size} | self._name()
        logical = numbers.choice((None, "uuid", "duration", "decimal"))
        if logical:
            found |= {
                "logicalType": logical,
                "precision": numbers.choice((1, 2, 9, 28)),
                "scale": numbers.choice((0, 1, 2)),
            }
        return found

    def _enum(self, _depth: int) -> Any:
        symbols = [f"S{i}" for i in range(self._numbers.randrange(1, 9))]
        return {"type": "enum", "symbols": symbols} | self._name()

    def _array(self, depth: int) -> Any:
        return {"type": "array", "items": self.schema(depth + 1)}

    def _map(self, depth: int) -> Any:
        return {"type": "map", "values": self.schema(depth + 1)}

    def _union(self, depth: int) -> Any:
        branches, kinds = [], set()
        for _ in range(self._numbers.randrange(1, 6)):
            known = len(self._names)
            one = self.schema(depth + 1)
            kind = one if isinstance(one, str) else one.get("name") or one["type"] if isinstance(one, dict) else "union"
            if kind == "union" or kind in kinds:
                del self._names[known:]  # they are defined nowhere
            else:
                kinds.add(kind)
                branches.append(one)
        return branches or ["null", "int"]

    def _record(self, depth: int) -> Any:
        numbers = self._numbers
        found = {"type": numbers.choice(("record", "record", "error"))} | self._name()
        own = self._names[-1]
        names = numbers.sample(WORDS, k=numbers.randrange(5))
        fields = [{"name": name, "type": self.schema(depth + 1)} for name in names]
        if numbers.random() < 0.3:  # recursion, which needs an end
            again = numbers.choice((["null", own], {"type": "array", "items": own}))
            fields.insert(numbers.randrange(len(fields) + 1), {"name": "again", "type": again})
        return found | {"fields": fields}


class ValueMaker:
    """Encodes random values of a schema, as the reference has parsed it; RecursionError if it finds no end for one."""

    def __init__(self, numbers: random.Random) -> None:
        self._numbers = numbers

    def value(self, schema: Any, depth: int = 0) -> bytes:
        kind, numbers = schema["type"], self._numbers
        if depth > 60:
            raise RecursionError
        if kind == "record":
            return b"".join(self.value(field["type"], depth + 1) for field in schema["fields"])
        if kind in ("array", "map"):
            return b"".join(self._blocks(schema, depth))
        if kind == "union":
            ends = [i for i, one in enumerate(schema["branches"]) if one["type"] in PRIMITIVES] if depth > 12 else []
            number = numbers.choice(ends or range(len(schema["branches"])))
            return zigzag(number) + self.value(schema["branches"][number], depth + 1)
        if kind == "enum":
            return zigzag(numbers.randrange(len(schema["symbols"])))
        if kind == "fixed":
            return numbers.randbytes(schema["size"])
        return self._primitive(kind)

    def _primitive(self, kind: str) -> bytes:
        numbers = self._numbers
        if kind == "null":
            return b""
        if kind == "boolean":
            return numbers.choice((b"\0", b"\1"))
        if kind == "int":
            return zigzag(numbers.choice((0, -1, 86399999, 2**31 - 1, -(2**31), numbers.randrange(-(2**31), 2**31))))
        if kind == "long":
            return zigzag(numbers.choice((*MOMENTS, numbers.randrange(10**13), numbers.randrange(-(2**63), 2**63))))
        if kind == "float":
            return numbers.choice((struct.pack("<f", numbers.randrange(1000) / 10), numbers.randbytes(4)))
        if kind == "double":
            return numbers.choice((struct.pack("<d", numbers.randrange(1000) / 10), numbers.randbytes(8)))
        text = numbers.choice(TEXTS).encode() if kind == "string" else numbers.randbytes(numbers.randrange(20))
        return zigzag(len(text)) + text

    def _blocks(self, schema: Any, depth: int) -> Iterator[bytes]:
        numbers = self._numbers
        for _ in range(numbers.choice((0, 1, 1, 2)) if depth < 12 else 0):
            count = numbers.randrange(1, 4)
            items = b""
            for _ in range(count):
                if schema["type"] == "map":
                    items += self._primitive("string")
                items += self.value(schema["items" if schema["type"] == "array" else "values"], depth + 1)
            yield zigzag(count) if numbers.random() < 0.7 else zigzag(-count) + zigzag(len(items))
            yield items
        yield zigzag(0)


def zigzag(value: int) -> bytes:
    left = (value << 1 ^ value >> 63) & (2**64 - 1)
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes((*found, left))


def mutated(numbers: random.Random, content: bytes) -> bytes:
    """Return *content* with some bytes changed, gone, or more of them."""
    made = bytearray(content)
    for _ in range(numbers.randrange(1, 4)):
        at = numbers.randrange(len(made) + 1)
        way = numbers.randrange(6)
        if way == 0:
            del made[at:]
        elif way == 1:
            made[at:at] = numbers.choice((b"\xff" * 9 + b"\1", b"\x80" * 10, b"\xff\xff\xff\xff\x1f", b"\1", b"\x80\0"))
        elif way == 2:
            made[at:at] = numbers.randbytes(numbers.randrange(4))
        elif made and at < len(made):
            made[at] = numbers.choice((0, 1, 2, 3, 0x7F, 0x80, 0xFF, made[at] ^ 1 << numbers.randrange(8)))
    return bytes(made)
