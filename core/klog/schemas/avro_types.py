"""Avro schemas as trees of types, with all names resolved; a recursive type contains itself.

Lenient where registries and Java are: what is not needed to read a value is not checked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from klog.schemas.decoded import BrokenSchemaError

PRIMITIVES: Final = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
MOST_LEVELS: Final = 128
"""Types inside of types, in a text and through names: what reads and plans them recurses as deep."""
_MOST_PARTS: Final = 1_000_000
"""Values inside of one record that takes no bytes: small schemas can demand exponentially many."""


class AvroField(NamedTuple):
    """A field of a record.  *default*: as JSON has it; NO_DEFAULT without one."""

    name: str
    type: AvroType
    aliases: tuple[str, ...] = ()
    default: object = None


NO_DEFAULT: Final = object()


class AvroType:
    """A type.  *kind*: a primitive, `record enum fixed array map union`; *name*: the full name of a named one.

    *parts*: the types of a record's fields, of a union's branches, of the items or values of an array or a map.
    *least*: the bytes that a value takes at least; *count*: the values in it that are there in any case; *levels*: of
    records directly inside of each other.  *logical*: the logical type, "" for none or one that does not fit.
    """

    __slots__ = (
        "aliases", "count", "default", "fields", "kind", "least", "levels", "logical", "name", "parts", "precision",
        "scale", "size", "symbols"
    )  # fmt: skip

    def __init__(self, kind: str, name: str = "") -> None:
        self.kind, self.name = kind, name
        self.parts: list[AvroType] = []
        self.fields: list[AvroField] = []
        self.symbols: list[str] = []
        self.aliases: tuple[str, ...] = ()
        self.default: str | None = None
        self.size = self.precision = self.scale = self.least = self.levels = 0
        self.count = 1
        self.logical = ""

    @property
    def tag(self) -> str:
        """The name of the type as a branch of a union."""
        return self.name or self.kind


def parse_avro(text: str, references: Mapping[str, str]) -> AvroType:
    """Return the type of a schema's text; *references*: as a decoder gets them.  Raises BrokenSchemaError."""
    parser = _Parser()
    try:
        for name, one in references.items():
            parser.document(one, f"{name}: ")
        found = parser.document(text, "")
    except RecursionError:
        raise BrokenSchemaError("its types are nested too deeply") from None
    _measure(found)
    return found


def all_types(root: AvroType) -> list[AvroType]:
    """Return all types that a value of *root* can contain, each once."""
    found, seen = [root], {id(root)}
    for one in found:
        for part in one.parts:
            if id(part) not in seen:
                seen.add(id(part))
                found.append(part)
    return found


class _Parser:
    def __init__(self) -> None:
        self._names: dict[str, AvroType] = {}
        self._primitives: dict[str, AvroType] = {}

    def document(self, text: str, where: str) -> AvroType:
        try:
            return self._type(json.loads(text), "", 0)
        except ValueError as error:
            raise BrokenSchemaError(f"{where}no JSON: {error}") from None
        except BrokenSchemaError as error:
            raise BrokenSchemaError(f"{where}{error}") from None

    def _type(self, given: Any, space: str, level: int) -> AvroType:
        if isinstance(given, str):
            return self._named(given, space)
        if level > MOST_LEVELS:
            raise BrokenSchemaError("its types are nested too deeply")
        if isinstance(given, list):
            union = AvroType("union")
            union.parts = [self._type(one, space, level + 1) for one in given]
            return union
        if not isinstance(given, dict):
            raise BrokenSchemaError(f"{str(given)[:40]!r} is no type")
        kind = given.get("type")
        if kind in ("record", "error", "enum", "fixed"):
            return self._definition(given, kind, space, level)
        if kind in ("array", "map"):
            found = AvroType(kind)
            found.parts = [self._type(given.get("items" if kind == "array" else "values"), space, level + 1)]
            return found
        if isinstance(kind, str) and kind in PRIMITIVES and "logicalType" in given:
            return _with_logical(AvroType(kind), given)
        return self._type(kind, space, level + 1)

    def _named(self, name: str, space: str) -> AvroType:
        if name in PRIMITIVES:
            return self._primitives.setdefault(name, AvroType(name))
        full = _full_name(name, space)
        found = self._names.get(full) or self._names.get(name)
        if found is None:
            raise BrokenSchemaError(f"no type {full[:200]}")
        return found

    def _definition(self, given: dict[str, Any], kind: str, space: str, level: int) -> AvroType:
        name, namespace = _text(given, "name"), given.get("namespace")
        full = _full_name(name, namespace if isinstance(namespace, str) else space)
        inner = full.rpartition(".")[0]
        found = self._names[full] = AvroType("record" if kind == "error" else kind, full.removeprefix("."))
        found.aliases = tuple(_full_name(one, inner) for one in _texts(given, "aliases"))
        if kind == "enum":
            found.symbols, default = _texts(given, "symbols"), given.get("default")
            found.default = default if isinstance(default, str) else None
        elif kind == "fixed":
            found.size = _size(given)
            _with_logical(found, given)
        else:
            found.fields = [self._field(one, inner, level) for one in _list(given, "fields")]
            found.parts = [one.type for one in found.fields]
        return found

    def _field(self, given: object, space: str, level: int) -> AvroField:
        if not isinstance(given, dict):
            raise BrokenSchemaError("a field that is no object")
        kind = self._type(given.get("type"), space, level + 1)
        return AvroField(
            _text(given, "name"), kind, tuple(_texts(given, "aliases")), given.get("default", NO_DEFAULT)
        )  # fmt: skip


def _full_name(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _text(given: dict[str, Any], member: str) -> str:
    found = given.get(member)
    if not isinstance(found, str):
        raise BrokenSchemaError(f"{given.get('type')!s:.40} without {member}")
    return found


def _list(given: dict[str, Any], member: str) -> list[Any]:
    found = given.get(member)
    if not isinstance(found, list):
        raise BrokenSchemaError(f"{given.get('type')!s:.40} without {member}")
    return found


def _texts(given: dict[str, Any], member: str) -> list[str]:
    found = _list(given, member) if member == "symbols" else given.get(member)
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def _size(given: dict[str, Any]) -> int:
    size = given.get("size")
    if type(size) is not int or not 0 <= size < 2**31:
        raise BrokenSchemaError("fixed without size")
    return size


_TIMESTAMPS: Final = tuple(
    f"{zone}timestamp-{unit}" for zone in ("", "local-") for unit in ("millis", "micros", "nanos")
)
_FITTING: Final = {"int": ("date", "time-millis"), "long": ("time-micros", *_TIMESTAMPS)}
_FITTING_SIZES: Final = {"uuid": 16, "duration": 12}
_DIGITS_PER_BIT: Final = 0.30102999566398120


def _with_logical(found: AvroType, given: dict[str, Any]) -> AvroType:
    """Give a type its logical type, if that fits; one that does not is ignored, as Avro's specification says."""
    logical = given.get("logicalType")
    if not isinstance(logical, str):
        return found
    if logical == "decimal":
        fits = _fits_decimal(found, given.get("precision"), given.get("scale", 0))
        found.precision, found.scale = (given["precision"], given.get("scale", 0)) if fits else (0, 0)
    elif found.kind == "fixed":
        fits = _FITTING_SIZES.get(logical) == found.size
    else:
        fits = logical in _FITTING.get(found.kind, ())
    found.logical = logical if fits else ""
    return found


def _fits_decimal(found: AvroType, precision: object, scale: object) -> bool:
    if type(precision) is not int or type(scale) is not int or precision < 1 or not 0 <= scale <= precision:
        return False
    # A fixed has to hold any number of so many digits.
    return found.kind == "bytes" or (found.kind == "fixed" and precision <= (8 * found.size - 1) * _DIGITS_PER_BIT)


def _measure(root: AvroType) -> None:
    """Set the sizes of all types.  Raises BrokenSchemaError for a record that contains itself, or endlessly much."""
    leasts = {"null": 0, "float": 4, "double": 8}
    types = all_types(root)
    done = {id(one) for one in types if one.kind != "record"}
    for one in types:
        if one.kind != "record":
            one.least = one.size if one.kind == "fixed" else leasts.get(one.kind, 1)
    for one in types:
        if id(one) not in done:
            _measure_record(one, done)


def _measure_record(record: AvroType, done: set[int]) -> None:
    """Measure a record behind the records in it: without recursion, they may be nested deeply through names."""
    waiting: list[tuple[AvroType, Iterator[AvroType]]] = [(record, iter(record.parts))]
    inside = {id(record)}
    while waiting:
        one, parts = waiting[-1]
        part = next((part for part in parts if id(part) not in done), None)
        if part is None:
            waiting.pop()
            done.add(id(one))
            inside.discard(id(one))
            one.least = sum(part.least for part in one.parts)
            one.count = 1 + sum(part.count for part in one.parts)
            one.levels = 1 + max((part.levels for part in one.parts), default=0)
            if one.count > _MOST_PARTS:
                raise BrokenSchemaError(f"a value of {one.name[:200]} has more than {_MOST_PARTS} parts")
        elif id(part) in inside:
            raise BrokenSchemaError(f"{part.name[:200]} contains itself, its values have no end")
        elif len(waiting) > MOST_LEVELS:
            raise BrokenSchemaError("its types are nested too deeply")
        else:
            inside.add(id(part))
            waiting.append((part, iter(part.parts)))


def is_recursive(root: AvroType) -> bool:
    """Whether a type contains itself.  Raises BrokenSchemaError if types are nested more than MOST_LEVELS deep."""
    done: set[int] = set()
    inside: set[int] = {id(root)}
    waiting: list[tuple[AvroType, Iterator[AvroType]]] = [(root, iter(root.parts))]
    found = False
    while waiting:
        one, parts = waiting[-1]
        part = next((part for part in parts if part.parts and id(part) not in done), None)
        if part is None:
            waiting.pop()
            inside.discard(id(one))
            done.add(id(one))
        elif id(part) in inside:
            found = True
        elif len(waiting) > MOST_LEVELS:
            raise BrokenSchemaError("its types are nested too deeply")
        else:
            inside.add(id(part))
            waiting.append((part, iter(part.parts)))
    return found


def can_explode(types: Iterable[AvroType]) -> bool:
    """Whether few bytes can become very many values: values that take no bytes, or nearly none."""
    return any(
        (one.kind == "array" and one.parts[0].least == 0) or (one.kind == "record" and one.count > 100 + 8 * one.least)
        for one in types
    )
