"""Avro's schema resolution: a value that one schema has written becomes the value that another one, the reader, has.

Both are raw values, as fastavro reads them by the schema of an `AvroPlan`.  The rules are those of the specification,
and of Java where that leaves a choice: names of records count in unions alone, a branch is looked for by its full name,
then by its fields, then by promotion.  A contradiction is an error of the values that meet it, not of the schemas.

Numbers of two logical types that differ (milliseconds and microseconds, decimals of two scales) are refused: as the
reader's they would be other values.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, NoReturn, Protocol

from klog.schemas.avro_plan import AvroPlan, Change, checked_int
from klog.schemas.avro_types import NO_DEFAULT, AvroField, AvroType, all_types
from klog.schemas.decoded import BAD_VALUE, INCOMPATIBLE, BadValueError

_FLOAT: Final = struct.Struct("<f")
_NAMED: Final = frozenset(("record", "enum", "fixed"))


class ReaderForm(Protocol):
    """A reader schema, and the form of its values."""

    def change_from(self, plan: AvroPlan) -> Change | None:
        """Return what makes a value of a raw one of the writer's, read by *plan*, which is tagged; None: it stays."""
        ...


class JsonReader:
    """A reader schema whose values have one of the two JSON forms."""

    def __init__(self, reader: AvroType, canonical: bool) -> None:
        self._plan = AvroPlan(reader, canonical)

    def change_from(self, plan: AvroPlan) -> Change | None:
        """Return what makes a value of this schema of a raw one."""
        return one_after_other(resolution(plan, self._plan), self._plan.change)


def one_after_other(first: Change | None, second: Change | None) -> Change | None:
    """Return the change that makes both changes."""
    if first is None or second is None:
        return first or second
    return lambda value: second(first(value))


def resolution(writer: AvroPlan, reader: AvroPlan) -> Change | None:
    """Return what makes the reader's raw value of the writer's; None if they are equal.

    The change raises BadValueError, with the code INCOMPATIBLE, for a value that is none of the reader's.  The writer's
    plan has to be tagged.
    """
    try:
        return _Resolver(writer, reader).change(writer.root, reader.root)
    except RecursionError:  # two recursive schemas whose types meet in ever new pairs
        return _fail


class _Resolver:
    def __init__(self, writer: AvroPlan, reader: AvroPlan) -> None:
        self._writer, self._reader = writer, reader
        self._aliases = {alias: one.name for one in all_types(reader.root) for alias in one.aliases}
        self._made: dict[tuple[int, int], Change | None] = {}
        self._equal: dict[tuple[int, int], bool] = {}

    def change(self, wrote: AvroType, reads: AvroType) -> Change | None:
        key = id(wrote), id(reads)
        if key not in self._made:
            if self._is_equal(wrote, reads):
                self._made[key] = None
            else:
                # types that contain themselves find this one, which finds the real one later
                self._made[key] = lambda value: self._finished(key)(value)
                self._made[key] = self._make(wrote, reads)
        return self._made[key]

    def _finished(self, key: tuple[int, int]) -> Change:
        return self._made[key] or _same

    def _make(self, wrote: AvroType, reads: AvroType) -> Change | None:
        if wrote.kind == "union":
            return self._of_union(wrote, reads)
        if reads.kind == "union":
            return self._to_union(wrote, reads)
        if wrote.logical and reads.logical and not _is_one_logical(wrote, reads):
            return _fail
        if wrote.kind != reads.kind:
            return _PROMOTIONS.get((wrote.kind, reads.kind), _fail)
        if wrote.kind == "record":
            return self._record(wrote, reads)
        if wrote.kind == "enum":
            return self._enum(wrote, reads) if self._has_name(wrote, reads) else _fail
        if wrote.kind == "fixed":
            return None if self._has_name(wrote, reads) and wrote.size == reads.size else _fail
        if wrote.kind == "array":
            part = self.change(wrote.parts[0], reads.parts[0])
            return None if part is None else lambda values: [part(value) for value in values]
        return self._map(wrote, reads) if wrote.kind == "map" else None

    def _name(self, wrote: AvroType) -> str:
        """Return the name of a writer's type, as the reader calls it."""
        return self._aliases.get(wrote.name, wrote.name)

    def _has_name(self, wrote: AvroType, reads: AvroType) -> bool:
        return self._name(wrote) == reads.name

    def _is_equal(self, wrote: AvroType, reads: AvroType) -> bool:
        """Whether all raw values of the two types are equal.  A type inside of itself is taken for equal meanwhile."""
        key = id(wrote), id(reads)
        if key not in self._equal:
            self._equal[key] = True
            if not self._compare(wrote, reads):  # types inside may have been equal only if this one was
                self._equal = {pair: found for pair, found in self._equal.items() if not found}
                self._equal[key] = False
        return self._equal[key]

    def _compare(self, wrote: AvroType, reads: AvroType) -> bool:
        if wrote.kind != reads.kind or len(wrote.parts) != len(reads.parts):
            return False
        if wrote.logical and reads.logical and not _is_one_logical(wrote, reads):
            return False
        kind = wrote.kind
        if kind in _NAMED and (kind != "record" and not self._has_name(wrote, reads)):
            return False
        if kind == "record" and [one.name for one in wrote.fields] != [one.name for one in reads.fields]:
            return False
        if kind == "union" and self._writer.branch_keys(wrote) != self._reader.branch_keys(reads):
            return False
        if kind == "union" and [self._name(one) for one in wrote.parts] != [one.name for one in reads.parts]:
            return False
        if kind == "map" and self._writer.has_pairs(wrote) != self._reader.has_pairs(reads):
            return False
        if (wrote.symbols, wrote.size) != (reads.symbols, reads.size):
            return False
        return all(map(self._is_equal, wrote.parts, reads.parts))

    def _of_union(self, wrote: AvroType, reads: AvroType) -> Change:
        keys = self._writer.branch_keys(wrote) or range(len(wrote.parts))
        is_tagged = self._writer.branch_keys(wrote) is not None
        changes = {key: self.change(one, reads) for key, one in zip(keys, wrote.parts, strict=True)}
        null = next((changes[key] for key, one in zip(keys, wrote.parts, strict=True) if one.kind == "null"), None)
        other = next((changes[key] for key, one in zip(keys, wrote.parts, strict=True) if one.kind != "null"), None)

        def change(value: Any) -> Any:
            one = null if value is None else other
            if is_tagged and value is not None:
                ((key, value),) = value.items()
                one = changes[key]
            return value if one is None else one(value)

        return change

    def _to_union(self, wrote: AvroType, reads: AvroType) -> Change | None:
        number = self._branch(wrote, reads)
        if number is None:
            return _fail
        branch, keys = reads.parts[number], self._reader.branch_keys(reads)
        inner = self.change(wrote, branch)
        if keys is None or branch.kind == "null":
            return inner
        key = keys[number]
        return lambda value: {key: value if inner is None else inner(value)}

    def _branch(self, wrote: AvroType, union: AvroType) -> int | None:
        """Return the number of the branch that a type becomes.  Java: Resolver.ReaderUnion.firstMatchingBranch."""
        alike: int | None = None
        for number, branch in enumerate(union.parts):
            if branch.kind != wrote.kind:
                continue
            if wrote.kind not in _NAMED or self._has_name(wrote, branch):
                return number
            if wrote.kind == "record" and self._has_fields(wrote, branch):
                is_called = _short(self._name(wrote)) == _short(branch.name)
                alike = number if alike is None or is_called else alike
        if alike is not None:
            return alike
        pairs = ((number, (wrote.kind, branch.kind)) for number, branch in enumerate(union.parts))
        return next((number for number, pair in pairs if pair in _PROMOTIONS), None)

    def _has_fields(self, wrote: AvroType, reads: AvroType) -> bool:
        """Whether a record can be read as another one, as far as its own fields tell."""
        sources = self._sources(wrote, reads)
        if any(source is None and field.default is NO_DEFAULT for field, source in sources):
            return False
        return all(source is None or self.change(source.type, field.type) is not _fail for field, source in sources)

    def _sources(self, wrote: AvroType, reads: AvroType) -> list[tuple[AvroField, AvroField | None]]:
        """Return each field of the reader's record with the writer's field, None where its default is the value."""
        there = {field.name: field for field in wrote.fields}
        is_it = self._has_name(wrote, reads)
        found = []
        for field in reads.fields:
            names = (field.name, *(field.aliases if is_it else ()))
            found.append((field, next((there[name] for name in names if name in there), None)))
        return found

    def _record(self, wrote: AvroType, reads: AvroType) -> Change:
        steps: list[tuple[str, str | None, Change | None]] = []
        for field, source in self._sources(wrote, reads):
            if source is not None:
                steps.append((field.name, source.name, self.change(source.type, field.type)))
                continue
            make = None if field.default is NO_DEFAULT else self._default(field.type, field.default)
            if make is None:
                return _fail
            steps.append((field.name, None, make))

        def change(value: dict[str, Any]) -> dict[str, Any]:
            return {
                name: (one and one(None)) if source is None else value[source] if one is None else one(value[source])
                for name, source, one in steps
            }

        return change

    def _enum(self, wrote: AvroType, reads: AvroType) -> Change | None:
        default = reads.default if reads.default in reads.symbols else None
        found = {one: one if one in reads.symbols else default for one in wrote.symbols}
        if all(one == symbol for one, symbol in found.items()):
            return None
        return lambda symbol: _fail(symbol) if found[symbol] is None else found[symbol]

    def _map(self, wrote: AvroType, reads: AvroType) -> Change | None:
        part = self.change(wrote.parts[0], reads.parts[0]) or _same
        of_pairs, to_pairs = self._writer.has_pairs(wrote), self._reader.has_pairs(reads)

        def change(given: Any) -> Any:
            pairs = [(one["name"], one["value"]) for one in given] if of_pairs else given.items()
            if to_pairs:
                return [{"name": name, "value": part(value)} for name, value in pairs]
            return {name: part(value) for name, value in pairs}

        return change

    def _default(self, given: AvroType, default: object) -> Change | None:
        """Return what makes the raw value of a default, anew each time; None if it is no value of the type."""
        try:
            self._raw(given, default)
        except (TypeError, ValueError, KeyError, struct.error, OverflowError):
            return None
        return lambda _: self._raw(given, default)

    def _raw(self, given: AvroType, default: Any) -> Any:
        """Return the raw value that a default in JSON means.  Raises TypeError, ValueError and the like if none."""
        kind = given.kind
        if kind == "union":
            return self._raw_branch(given, default)
        if kind == "record":
            members = default if isinstance(default, dict) else _refuse(default)
            return {one.name: self._raw(one.type, members.get(one.name, one.default)) for one in given.fields}
        if kind == "array":
            items = default if isinstance(default, list) else _refuse(default)
            return [self._raw(given.parts[0], one) for one in items]
        if kind == "map":
            values = default if isinstance(default, dict) else _refuse(default)
            found = {name: self._raw(given.parts[0], one) for name, one in values.items()}
            if self._reader.has_pairs(given):
                return [{"name": name, "value": one} for name, one in found.items()]
            return found
        return _raw_primitive(given, default)

    def _raw_branch(self, union: AvroType, default: Any) -> Any:
        keys = self._reader.branch_keys(union)
        for number, branch in enumerate(union.parts):
            try:
                value = self._raw(branch, default)
            except (TypeError, ValueError, KeyError, struct.error, OverflowError):
                continue
            return value if keys is None or branch.kind == "null" else {keys[number]: value}
        return _refuse(default)


def _raw_primitive(given: AvroType, default: Any) -> Any:
    kind, is_number = given.kind, type(default) in (int, float)
    if kind == "null" and default is None:
        return None
    if kind == "boolean" and isinstance(default, bool):
        return b"\1" if default else b"\0"
    if kind in ("int", "long") and is_number and int(default) == default:
        bits = 31 if kind == "int" else 63
        return int(default) if -(1 << bits) <= default < 1 << bits else _refuse(default)
    if kind in ("float", "double") and is_number:
        return _to_float(default) if kind == "float" else float(default)
    if kind in ("bytes", "fixed") and isinstance(default, str):
        content = default.encode("latin-1")
        return content if kind == "bytes" or len(content) == given.size else _refuse(default)
    if (kind == "string" and isinstance(default, str)) or (kind == "enum" and default in given.symbols):
        return default
    return _refuse(default)


def _refuse(default: object) -> NoReturn:
    raise ValueError(f"{default!r:.40} is no value of its type")


def _same(value: Any) -> Any:
    return value


def _fail(_value: object) -> NoReturn:
    raise BadValueError(INCOMPATIBLE)


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _is_one_logical(wrote: AvroType, reads: AvroType) -> bool:
    return (wrote.logical, wrote.scale) == (reads.logical, reads.scale)


def _to_float(number: float) -> float:
    found: float = _FLOAT.unpack(_FLOAT.pack(number))[0]
    return found


def _to_text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise BadValueError(BAD_VALUE) from None


_PROMOTIONS: Final[dict[tuple[str, str], Callable[[Any], Any] | None]] = {
    ("int", "long"): checked_int,
    ("int", "float"): lambda value: _to_float(checked_int(value)),
    ("int", "double"): lambda value: float(checked_int(value)),
    ("long", "float"): _to_float,
    ("long", "double"): float,
    ("float", "double"): None,
    ("string", "bytes"): str.encode,
    ("bytes", "string"): _to_text,
}
