"""The column of an Avro schema: typed as in Parquet, with values of all schemas that resolve to it."""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any, Final
from uuid import UUID

from klog.log.arrow import import_pyarrow
from klog.schemas.avro_logical import logical_value
from klog.schemas.avro_plan import AvroPlan
from klog.schemas.avro_resolution import one_after_other, resolution
from klog.schemas.avro_types import AvroType
from klog.schemas.columns import MOST_COLUMNS, Change, Column, TooManyColumnsError, enum_type, field_name, struct_type
from klog.schemas.json_values import json_bytes

_PRIMITIVES: Final = {
    "null": "null", "int": "int32", "long": "int64", "float": "float32", "double": "float64", "bytes": "binary",
    "string": "string",
}  # fmt: skip
_UNITS: Final = {"millis": "ms", "micros": "us", "nanos": "ns"}
_MICROS: Final[dict[str, Change | None]] = {
    "millis": lambda value: value * 1000, "micros": None, "nanos": lambda value: value // 1000,
}  # fmt: skip
_MOST_DIGITS: Final = 76
_SHORT_DIGITS: Final = 38
_EXACT: Final = Context(prec=_MOST_DIGITS)
_TOO_LARGE: Final = Decimal(10) ** (_MOST_DIGITS + 2)
"""A number that no column takes."""
_TRUE: Final = {b"\0": False, b"\1": True}.__getitem__


class AvroColumn:
    """The column of a reader schema; see `avro_resolution.ReaderForm`.  *type*: Arrow's.

    *for_spark*: of the types that Spark has: strings of enums, microseconds, numbers for times of a day.
    """

    def __init__(self, reader: AvroType, for_spark: bool = False) -> None:
        self._pa, self._for_spark = import_pyarrow(), for_spark
        self._plan = AvroPlan(reader, canonical=False, tagged=True)
        self._left = MOST_COLUMNS
        self._inside: set[int] = set()
        try:
            self.type, self._change = self._column(reader)
        except TooManyColumnsError:
            self.type, self._change = self._json(reader)

    def change_from(self, plan: AvroPlan) -> Change | None:
        """Return what makes Arrow's value of a raw one of the writer's."""
        return one_after_other(resolution(plan, self._plan), self._change)

    def _column(self, given: AvroType) -> Column:
        self._left -= 1
        if self._left < 0:
            raise TooManyColumnsError
        if given.logical:
            return self._logical(given)
        kind, pa = given.kind, self._pa
        if kind in _PRIMITIVES:
            return Column(getattr(pa, _PRIMITIVES[kind])())
        if kind == "boolean":
            return Column(pa.bool_(), _TRUE)
        if kind == "enum":
            is_utf8 = all(field_name(one) == one for one in given.symbols)
            return Column(enum_type(self._for_spark), None if is_utf8 else field_name)
        if kind == "fixed":
            return Column(pa.binary(-1 if self._for_spark else given.size or -1))
        if id(given) in self._inside:
            return self._json(given)
        self._inside.add(id(given))
        made = {"record": self._record, "union": self._union, "array": self._array, "map": self._map}[kind](given)
        self._inside.discard(id(given))
        return made

    def _json(self, given: AvroType) -> Column:
        change = self._plan.change_of(given)
        if change is None:
            return Column(self._pa.string(), lambda value: None if value is None else json_bytes(value))
        return Column(self._pa.string(), lambda value: None if value is None else json_bytes(change(value)))

    def _logical(self, given: AvroType) -> Column:
        pa, logical = self._pa, given.logical
        if logical == "date":
            return Column(pa.date32())
        if logical == "duration":
            part = pa.int64() if self._for_spark else pa.uint32()
            return Column(struct_type([("months", part), ("days", part), ("millis", part)]), logical_value(given))
        if logical == "uuid":
            return Column(pa.string(), lambda content: str(UUID(bytes=content)))
        if logical == "decimal":
            return self._decimal(given)
        name, _, unit = logical.rpartition("-")
        if name == "time":
            return self._time(unit)
        zone = None if name.startswith("local") else "UTC"
        if not self._for_spark:
            return Column(pa.timestamp(_UNITS[unit], zone))
        return Column(pa.timestamp("us", zone), _MICROS[unit])

    def _time(self, unit: str) -> Column:
        pa = self._pa
        if self._for_spark:
            return Column(pa.int32() if unit == "millis" else pa.int64())
        return Column(pa.time32("ms") if unit == "millis" else pa.time64("us"))

    def _decimal(self, given: AvroType) -> Column:
        pa, scale = self._pa, given.scale
        if given.precision > (_SHORT_DIGITS if self._for_spark else _MOST_DIGITS):
            return Column(pa.string(), logical_value(given))
        kind, limit = pa.decimal128 if given.precision <= _SHORT_DIGITS else pa.decimal256, 10**given.precision

        def number(content: bytes) -> Decimal:
            unscaled = int.from_bytes(content, "big", signed=True)
            return Decimal(unscaled).scaleb(-scale, _EXACT) if -limit < unscaled < limit else _TOO_LARGE

        return Column(kind(given.precision, scale), number)

    def _record(self, given: AvroType) -> Column:
        columns = [(field.name, self._column(field.type)) for field in given.fields]
        changes = [(name, one.change) for name, one in columns if one.change is not None]
        renamed = [(name, field_name(name)) for name, _ in columns if field_name(name) != name]

        def change(value: dict[str, Any]) -> dict[str, Any]:
            for name, one in changes:
                value[name] = one(value[name])
            for name, other in renamed:
                value[other] = value.pop(name)
            return value

        kind = struct_type([(name, one.type) for name, one in columns])
        return Column(kind, change if changes or renamed else None)

    def _union(self, given: AvroType) -> Column:
        others = [one for one in given.parts if one.kind != "null"]
        keys = self._plan.branch_keys(given)
        if keys is None:  # null, and one other
            if not others:
                return Column(self._pa.null())
            kind, inner = self._column(others[0])
            return Column(kind, None if inner is None else lambda value: None if value is None else inner(value))
        names = _distinct([one.tag for one in others])
        columns = dict(zip(names, map(self._column, others), strict=True))
        numbers = [key for key, one in zip(keys, given.parts, strict=True) if one.kind != "null"]
        branches = {key: (field_name(name), columns[name].change) for key, name in zip(numbers, names, strict=True)}

        def change(value: Any) -> Any:
            if value is None:
                return None
            ((key, part),) = value.items()
            name, one = branches[key]
            return {name: part if one is None else one(part)}

        return Column(struct_type([(name, columns[name].type) for name in names]), change)

    def _array(self, given: AvroType) -> Column:
        kind, part = self._column(given.parts[0])
        return Column(self._pa.list_(kind), None if part is None else lambda values: [part(one) for one in values])

    def _map(self, given: AvroType) -> Column:
        kind, part = self._column(given.parts[0])
        has_pairs = self._plan.has_pairs(given)

        def change(values: Any) -> list[tuple[str, Any]]:
            found = {pair["name"]: pair["value"] for pair in values} if has_pairs else values
            return [(name, value if part is None else part(value)) for name, value in found.items()]

        return Column(self._pa.map_(self._pa.string(), kind), change)


def _distinct(names: list[str]) -> list[str]:
    """Return names of which none is there twice: a registry may have a union of two alike branches."""
    return [f"{name}_{at}" if name in names[:at] else name for at, name in enumerate(names)]
