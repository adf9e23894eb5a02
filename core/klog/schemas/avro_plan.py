"""How values of an Avro schema are read by fastavro and converted to one of the two forms, planned once per schema.

fastavro gets a schema of the same bytes, made of base types alone:

* A union is a table of its branches, an enum a table of its symbols, so that a negative number finds nothing.
* A branch whose name is needed is a record of one field of that name: `{"string": "x"}`.
* A boolean is one byte, of which only two values are right.
* A map whose values are checked is a list of pairs: of two values with one name, both are.

Then only the parts of a value that differ from JSON are replaced: most records are not touched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from klog.schemas.avro_logical import base64_text, logical_value
from klog.schemas.avro_types import AvroType, all_types
from klog.schemas.json_values import double_value, float_value

Change = Callable[[Any], Any]

END: Final = b"\0klog\x7f\1\2"
"""Bytes behind each of several values that are read together."""
TOGETHER: Final = 63
"""The most values that are read together: their number is one byte."""
_BOOLEAN: Final = {b"\0": False, b"\1": True}.__getitem__
_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1
_LARGEST: Final = 1.7976931348623157e308
# fastavro takes a schema with these two members for one that it has parsed already
_PARSED: Final[dict[str, Any]] = {"__fastavro_parsed": True, "__named_schemas": {}}
_CHANGED: Final = frozenset(("boolean", "int", "float", "double", "bytes", "fixed"))


class AvroPlan:
    """The plan of one schema in one form: the *schema* for fastavro, and *change*, None if no value needs a change.

    *read*: fastavro's function.  *is_wrapped*: fastavro's values are the only field, "", of a record.  *tagged*: the
    values of every union of several branches, beside null, carry the number of their branch before they are changed.
    *several*: the schema of a list of values, END behind each, without "" around them.
    """

    def __init__(self, root: AvroType, canonical: bool, *, tagged: bool = False) -> None:
        from fastavro import schemaless_reader

        self.read: Callable[..., Any] = schemaless_reader
        self.root = root
        self._canonical, self._tagged = canonical, tagged
        self._schemas: dict[int, Any] = {}
        self._changes: dict[int, Change] = {}
        self._changed = self._find_changed(all_types(root))
        self.is_wrapped = root.kind != "record"
        schema = self._schema(root)
        self.schema = {"type": "record", "fields": [{"name": "", "type": schema}]} if self.is_wrapped else schema
        self.schema |= _PARSED
        pair = [{"name": "value", "type": schema}, {"name": "end", "type": {"type": "fixed", "size": len(END)}}]
        self.several = {"type": "array", "items": {"type": "record", "fields": pair}, **_PARSED}
        self.change = self.change_of(root)

    def branch_keys(self, union: AvroType) -> list[Any] | None:
        """Return the names that the values of a union carry with them, by branch; None if they carry none."""
        if self._canonical:
            return [branch.tag for branch in union.parts]
        return list(range(len(union.parts))) if _is_choice(union) and id(union) in self._changed else None

    def has_pairs(self, given: AvroType) -> bool:
        """Whether the values of a map are lists of pairs before they are changed."""
        return id(given) in self._changed

    def _find_changed(self, types: list[AvroType]) -> set[int]:
        """Return the ids of the types whose values need a change, or values inside of them do."""
        above: dict[int, list[AvroType]] = {}
        for one in types:
            for part in one.parts:
                above.setdefault(id(part), []).append(one)
        waiting = [
            one
            for one in types
            if one.kind in _CHANGED or (one.logical and not self._canonical) or (self._tagged and _is_choice(one))
        ]
        changed = {id(one) for one in waiting}
        while waiting:
            for one in above.get(id(waiting.pop()), ()):
                if id(one) not in changed:
                    changed.add(id(one))
                    waiting.append(one)
        return changed

    def _schema(self, given: AvroType) -> Any:
        """Return fastavro's schema of a type; one that contains itself gives a schema that does."""
        kind = given.kind
        if kind in ("null", "int", "long", "float", "double", "bytes", "string"):
            return kind
        if id(given) in self._schemas:
            return self._schemas[id(given)]
        made: dict[Any, Any] = {"type": kind}
        self._schemas[id(given)] = made
        if kind == "boolean":
            made |= {"type": "fixed", "size": 1}
        elif kind == "fixed":
            made["size"] = given.size
        elif kind == "enum":
            made["symbols"] = dict(enumerate(given.symbols))
        elif kind == "record":
            made["fields"] = [{"name": field.name, "type": self._schema(field.type)} for field in given.fields]
        elif kind == "union":
            made |= self._branches(given)
        elif kind == "map" and self.has_pairs(given):
            pair = [{"name": "name", "type": "string"}, {"name": "value", "type": self._schema(given.parts[0])}]
            made |= {"type": "array", "items": {"type": "record", "fields": pair}}
        else:
            made["items" if kind == "array" else "values"] = self._schema(given.parts[0])
        return made

    def _branches(self, union: AvroType) -> dict[int, Any]:
        keys = self.branch_keys(union)
        found: dict[int, Any] = {}
        for number, branch in enumerate(union.parts):
            schema = self._schema(branch)
            if keys is not None and branch.kind != "null":
                schema = {"type": "record", "fields": [{"name": keys[number], "type": schema}]}
            found[number] = schema
        return found

    def change_of(self, given: AvroType) -> Change | None:
        """Return what changes values of a type; None if they stay."""
        if id(given) not in self._changed:
            return None
        if id(given) not in self._changes:
            # a type that contains itself finds this one, which finds the real one later
            self._changes[id(given)] = lambda value: self._changes[id(given)](value)
            self._changes[id(given)] = self._make_change(given)
        return self._changes[id(given)]

    def _make_change(self, given: AvroType) -> Change:
        kind = given.kind
        if kind == "record":
            return self._record_change(given)
        if kind == "union":
            return self._union_change(given)
        if kind in ("array", "map"):
            part = self.change_of(given.parts[0])
            assert part is not None
            return _array_change(part) if kind == "array" else _map_change(part)
        logical = None if self._canonical else logical_value(given)
        if kind == "int":
            return checked_int if logical is None else lambda value: logical(checked_int(value))
        if logical is not None:
            return logical
        if kind in ("bytes", "fixed"):
            return _latin_text if self._canonical else base64_text
        changes: dict[str, Change] = {"boolean": _BOOLEAN, "float": float_value, "double": double_value}
        return changes[kind]

    def _record_change(self, record: AvroType) -> Change:
        kinds = {field.name: field.type for field in record.fields}
        plain = {name for name, one in kinds.items() if not one.logical or self._canonical}
        integers = tuple(name for name in kinds if kinds[name].kind == "int" and name in plain)
        doubles = tuple(name for name in kinds if kinds[name].kind == "double")
        inline = {*integers, *doubles}
        changes = [(name, self.change_of(one)) for name, one in kinds.items() if name not in inline]
        others = [(name, change) for name, change in changes if change is not None]

        if len(integers) == 1 and not doubles and not others:  # a list of such records is common
            return _one_integer_change(integers[0])

        def change(value: dict[str, Any]) -> dict[str, Any]:
            for name in integers:
                if not _INT_MIN <= value[name] <= _INT_MAX:
                    raise OverflowError
            for name in doubles:
                if not -_LARGEST <= value[name] <= _LARGEST:
                    value[name] = double_value(value[name])
            for name, one in others:
                value[name] = one(value[name])
            return value

        return change

    def _union_change(self, union: AvroType) -> Change:
        keys = self.branch_keys(union)
        if keys is None:  # null, and one other
            one = next(filter(None, (self.change_of(branch) for branch in union.parts)))
            return lambda value: None if value is None else one(value)
        changes = {key: self.change_of(branch) for key, branch in zip(keys, union.parts, strict=True)}
        is_bare = not self._canonical

        def change(value: Any) -> Any:
            if value is None:
                return None
            ((key, inner),) = value.items()
            one = changes[key]
            if one is not None:
                inner = one(inner)
            if is_bare:
                return inner
            value[key] = inner
            return value

        return change


def _is_choice(given: AvroType) -> bool:
    """Whether a type is a union of several branches beside null."""
    return given.kind == "union" and sum(branch.kind != "null" for branch in given.parts) > 1


def checked_int(value: int) -> int:
    """Return an int; fastavro reads any long.  Raises OverflowError."""
    if not _INT_MIN <= value <= _INT_MAX:
        raise OverflowError
    return value


def _latin_text(content: bytes) -> str:
    return content.decode("latin-1")


def _one_integer_change(name: str) -> Change:
    def change(value: dict[str, Any]) -> dict[str, Any]:
        if not _INT_MIN <= value[name] <= _INT_MAX:
            raise OverflowError
        return value

    return change


def _array_change(part: Change) -> Change:
    def change(values: list[Any]) -> list[Any]:
        return [part(value) for value in values]

    return change


def _map_change(part: Change) -> Change:
    def change(pairs: list[dict[str, Any]]) -> dict[str, Any]:
        return {pair["name"]: part(pair["value"]) for pair in pairs}

    return change
