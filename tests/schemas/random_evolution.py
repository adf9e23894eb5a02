"""Later versions of random Avro schemas: what people change, and what they should not."""

from __future__ import annotations

import copy
import random
from typing import Any

from tests.schemas.random_avro import SchemaMaker

PROMOTED = {
    "int": ("long", "float", "double"), "long": ("float", "double"), "float": ("double",), "string": ("bytes",),
    "bytes": ("string",),
}  # fmt: skip
NEW_FIELDS: tuple[tuple[Any, Any], ...] = (
    ("int", 7), ("long", -(2**40)), ("string", "é"), (["null", "int"], None), (["int", "null"], 5), ("boolean", True),
    ("bytes", "\u00ff\u0000"), ("double", 1.5), ("float", 0.1), ({"type": "array", "items": "int"}, [1, 2]),
    ({"type": "map", "values": "boolean"}, {"a": True}), ({"type": "array", "items": ["null", "string", "int"]}, []),
)  # fmt: skip


class PlainSchemas(SchemaMaker):
    """Schemas without logical types, with names that every library takes."""

    def schema(self, depth: int = 0) -> Any:
        while True:
            known = len(self._names)
            found = super().schema(depth)
            if not isinstance(found, dict) or "logicalType" not in found:
                return found
            del self._names[known:]

    def _record(self, depth: int) -> Any:
        found = {"type": "record"} | self._name()
        own = self._names[-1]
        count = self._numbers.randrange(1, 5)
        fields = [{"name": f"f{at}", "type": self.schema(depth + 1)} for at in range(count)]
        if self._numbers.random() < 0.2:
            again = self._numbers.choice((["null", own], {"type": "array", "items": own}))
            fields.append({"name": "again", "type": again})
        return found | {"fields": fields}


class Evolution:
    """Changes schemas; some of the new versions read all old values, some only a few, some are no schemas at all."""

    def __init__(self, numbers: random.Random) -> None:
        self._numbers = numbers
        self._made = 0

    def _often(self, share: float) -> bool:
        return self._numbers.random() < share

    def next_version(self, schema: Any) -> Any:
        return self._changed(copy.deepcopy(schema))

    def _changed(self, schema: Any) -> Any:
        numbers = self._numbers
        if isinstance(schema, list):
            return self._union(schema)
        if not isinstance(schema, str):
            found = self._complex(schema)
        elif schema in PROMOTED and self._often(0.25):
            found = numbers.choice(PROMOTED[schema])
        else:
            found = numbers.choice(("int", "string", "null")) if self._often(0.02) else schema
        if self._often(0.08):
            return numbers.choice((["null", found], [found, "null"], ["boolean", found], ["double", found, "null"]))
        return found

    def _union(self, branches: list[Any]) -> Any:
        found = [one if isinstance(one, str) else self._complex(one) for one in branches]
        if self._often(0.2):
            self._numbers.shuffle(found)
        if self._often(0.15) and len(found) > 1:
            del found[self._numbers.randrange(len(found))]
        if self._often(0.2):
            found.insert(self._numbers.randrange(len(found) + 1), self._numbers.choice(("null", "long", "double")))
        return self._numbers.choice(found) if self._often(0.06) else found

    def _complex(self, schema: dict[str, Any]) -> Any:
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record(schema)
        if kind == "enum":
            return self._enum(schema)
        for part in ("items", "values"):
            if part in schema:
                schema[part] = self._changed(schema[part])
        if kind == "fixed" and self._often(0.05):
            schema["size"] += 1
        return schema

    def _record(self, record: dict[str, Any]) -> Any:
        fields = []
        for field in record["fields"]:
            if self._often(0.12):
                continue
            field["type"] = self._changed(field["type"])
            if self._often(0.12):
                old, field["name"] = field["name"], self._name("g")
                if self._often(0.8):
                    field["aliases"] = [old]
            fields.append(field)
        for _ in range(self._numbers.choice((0, 0, 1, 2))):
            kind, default = self._numbers.choice(NEW_FIELDS)
            fields.append({"name": self._name("n"), "type": kind} | ({"default": default} if self._often(0.9) else {}))
        if self._often(0.3):
            self._numbers.shuffle(fields)
        if self._often(0.1):
            self._rename(record)
        return record | {"fields": fields}

    def _rename(self, schema: dict[str, Any]) -> None:
        name, space = schema["name"], schema.get("namespace", "")
        old = f"{space}.{name}" if space else name
        schema["name"] = f"{old.rpartition('.')[0]}.{self._name('R')}"
        if self._often(0.7):
            schema["aliases"] = [old]

    def _enum(self, schema: dict[str, Any]) -> Any:
        symbols = schema["symbols"]
        if self._often(0.3):
            self._numbers.shuffle(symbols)
        if self._often(0.3) and len(symbols) > 1:
            symbols.pop()
        if self._often(0.3):
            symbols.append(self._name("T"))
        if self._often(0.5):
            schema["default"] = symbols[0]
        if self._often(0.05):
            self._rename(schema)
        return schema

    def _name(self, letter: str) -> str:
        self._made += 1
        return f"{letter}{self._made}"
