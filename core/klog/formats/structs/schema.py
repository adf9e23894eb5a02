"""Schemas of Kafka's internal records, and of its requests and responses, as data.

A schema is one line of `schemas/*.txt`, which `tools/make_schemas.py` writes from Kafka's own definitions:

    Name[key] v0-4 flex=2+: field; field; …

    v0-4, v0         the versions Kafka knows       flex=2+, flex=none   those with the flexible encoding
    [key]            the record type, or the API's number, where the message has one

    field   name:type modifiers
    type    bool int8 int16 int32 int64 uint16 uint32 float64 uuid string bytes records,
            Struct{field; field}, or [] before one of these: an array of it
    @2+ @-3 @1 @1-3  the field exists only in these versions            ?  ?3+     it may be null (in these versions)
    #0               it is a tagged field                               =-1 =null =true ="x"   its default
    ~                it has the classic encoding in flexible versions, too
    Struct^-3{…}     Kafka refuses to read this struct in other versions

Versions are tested as Kafka's generated classes test them: no modifier means no test, not even for a version that Kafka
does not know (it accepts any version of a metadata record).  `structs.read` decodes by a schema, `structs.write`
encodes, `structs.json` prints.

`CodeWriter` compiles functions for one version of one struct from generated source, as `dataclasses` does.  A function
for each field would do, but takes three times as long: a request has dozens of fields.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from functools import cache, cached_property
from typing import Any, Final, NamedTuple, TypeAlias

Data: TypeAlias = dict[str, Any]
"""A decoded struct by field names, in the schema's order.  The schema knows the type of a field, the type checker does
not: bool, int, float, str (uuid too: 22 letters), bytes, Data, a list of these, None."""

UNKNOWN_TAGS: Final = "_unknownTaggedFields"
"""The key, only there if needed, of tagged fields that the schema does not know: a list of (tag, bytes)."""


class Versions(NamedTuple):
    """Versions *lo* to *hi*, both included; None: no test on that side."""

    lo: int | None = None
    hi: int | None = None

    def hold(self, version: int) -> bool:
        """Return whether *version* is one of these."""
        return (self.lo is None or version >= self.lo) and (self.hi is None or version <= self.hi)


ALL: Final = Versions()
NONE: Final = Versions(1, 0)


class StructField(NamedTuple):
    """One field.  *struct* is set if *type* is "struct"; *tag* None: it is in the body.

    *classic*: it has the classic encoding in every version.
    """

    name: str
    type: str
    array: bool
    struct: Struct | None
    exists: Versions
    nullable: Versions
    tag: int | None
    declared_default: str | None
    classic: bool = False

    def default(self) -> Any:
        """Return the default value; lists and structs are new objects each time."""
        text = self.declared_default
        if text == "null":
            return None
        if self.array:
            return []
        if self.struct is not None:
            return self.struct.default()
        if self.type == "string":
            return "" if text is None else _unquoted(text)
        if self.type == "bool":
            return text == "true"
        plain = {"uuid": "A" * 22, "bytes": b"", "records": None, "float64": 0.0}
        return plain[self.type] if self.type in plain else int(text or 0)


class Struct(NamedTuple):
    """Fields in their order.  *readable*: the versions in which Kafka reads it at all."""

    name: str
    readable: Versions
    fields: tuple[StructField, ...]

    def default(self) -> Data:
        """Return the struct with every field at its default."""
        return {field.name: field.default() for field in self.fields}


class Schema:
    """A message: *key* is its record type or its API's number, None if it has none.

    *lowest* and *highest*: the versions Kafka knows.
    """

    def __init__(
        self, name: str, key: int | None, lowest: int, highest: int, flexible: Versions, struct: Struct
    ) -> None:
        self.name, self.key, self.lowest, self.highest = name, key, lowest, highest
        self.flexible, self.struct = flexible, struct

    def alike(self, version: int) -> int:
        """Return a version with the same fields as *version*, which Kafka may not know; the results are few."""
        if self.lowest <= version <= self.highest:
            return version
        i = bisect_right(self._changes, version)
        return self._changes[i - 1] if i else min(self._changes, default=1) - 1

    @cached_property
    def _changes(self) -> list[int]:
        """The versions in which some test of a version begins to give another answer."""
        found: set[int] = set()
        _add_changes(self.flexible, found)
        _add_changes_in(self.struct, found)
        return sorted(found)


def _add_changes(versions: Versions, found: set[int]) -> None:
    found |= {lo for lo in (versions.lo,) if lo is not None} | {hi + 1 for hi in (versions.hi,) if hi is not None}


def _add_changes_in(struct: Struct, found: set[int]) -> None:
    _add_changes(struct.readable, found)
    for field in struct.fields:
        _add_changes(field.exists, found)
        _add_changes(field.nullable, found)
        if field.struct is not None:
            _add_changes_in(field.struct, found)


# ---------------------------------------------------------------- the notation


def _unquoted(text: str) -> str:
    from json import loads

    return str(loads(text))


def _versions(text: str, lowest: int | None = None) -> Versions:
    """Read `2+`, `-3`, `1`, `1-3`; "" is all versions, `none` none.

    *lowest* is a version that nothing lies below, so a range that begins there needs no test on that side.
    """
    if text == "none":
        return NONE
    lo_text, dash, hi_text = text.partition("-")
    lo = int(lo_text.rstrip("+")) if lo_text else None
    hi = int(hi_text) if dash else None if lo_text.endswith("+") else lo
    return Versions(None if lo == lowest else lo, hi)


def _tokens(text: str) -> deque[str]:
    import re

    pattern = r'[{};]|\[\]|\w+:|\w+|\^[\d+-]+|@[\d+-]+|\?[\d+-]*|#\d+|="(?:[^"\\]|\\.)*"|=[\w.-]+|\S'
    return deque(re.findall(pattern, text))


def _fields(tokens: deque[str]) -> tuple[StructField, ...]:
    found = []
    while tokens and tokens[0] != "}":
        if tokens[0] == ";":
            tokens.popleft()
        else:
            found.append(_field(tokens))
    return tuple(found)


def _field(tokens: deque[str]) -> StructField:
    name = tokens.popleft()
    if not name.endswith(":"):
        raise ValueError(f"schema: {name!r} where a field begins")
    array = tokens[0] == "[]"
    if array:
        tokens.popleft()
    kind, struct = tokens.popleft(), None
    if tokens and tokens[0][0] in "^{":
        readable = _versions(tokens.popleft()[1:]) if tokens[0][0] == "^" else ALL
        tokens.popleft()
        struct = Struct(kind, readable, _fields(tokens))
        tokens.popleft()
        kind = "struct"
    exists, nullable, tag, default, classic = ALL, NONE, None, None, False
    while tokens and tokens[0] not in ("}", ";"):
        mark = tokens.popleft()
        if mark[0] == "@":
            exists = _versions(mark[1:])
        elif mark[0] == "?":
            nullable = _versions(mark[1:])
        elif mark[0] == "#":
            tag = int(mark[1:])
        elif mark[0] == "=":
            default = mark[1:]
        elif mark == "~":
            classic = True
        else:
            raise ValueError(f"schema: {mark!r} after the field {name}")
    return StructField(name[:-1], kind, array, struct, exists, nullable, tag, default, classic)


def parse(line: str) -> Schema:
    """Return the schema that *line* spells; the notation is explained at the top of this module.

    Raises ValueError or IndexError for an invalid line: the schemas are part of klog, not input.
    """
    head, _, body = line.partition(": ") if ": " in line else line.rpartition(":")
    title, known, flexible = head.rstrip(":").split(" ")
    name, bracket, key = title.rstrip("]").partition("[")
    lowest, _, highest = known[1:].partition("-")
    return Schema(
        name,
        int(key) if bracket else None,
        int(lowest),
        int(highest or lowest),
        _versions(flexible.removeprefix("flex="), int(lowest)),
        Struct(name, ALL, _fields(_tokens(body))),
    )


# ---------------------------------------------------------------- the schemas that come with klog


@cache
def _lines(file: str) -> dict[str, str]:
    # Package data, not a Kafka file; through the loader, so that klog works from a zip, too.
    from pkgutil import get_data

    text = (get_data("klog.formats.structs", f"schemas/{file}.txt") or b"").decode("utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {line.partition(" ")[0].partition("[")[0]: line for line in lines}


@cache
def load(file: str, name: str) -> Schema:
    """Return the schema *name* of `schemas/FILE.txt`.  Raises KeyError when there is none."""
    return parse(_lines(file)[name])


@cache
def names_by_key(file: str) -> dict[int, tuple[str, ...]]:
    """Return the names of the schemas in `schemas/FILE.txt` for each record type (a key and a value, or one)."""
    found: dict[int, tuple[str, ...]] = {}
    for name, line in _lines(file).items():
        _, bracket, rest = line.partition(" ")[0].partition("[")
        if bracket:
            key = int(rest.rstrip("]"))
            found[key] = (*found.get(key, ()), name)
    return found


class CodeWriter:
    """The source of a function of *arguments*; values that are no literals are its constants."""

    def __init__(self, arguments: str, *lines: str) -> None:
        self._arguments = arguments
        self._lines = list(lines)
        self._constants: dict[str, Any] = {}

    def add(self, *lines: str) -> None:
        """Append *lines*, each with the indentation that it has inside of the function."""
        self._lines += lines

    def constant(self, value: Any) -> str:
        """Return the name by which the function knows *value*."""
        name = f"k{len(self._constants)}"
        self._constants[name] = value
        return name

    def function(self, name: str, known: dict[str, Any]) -> Callable[..., Any]:
        """Return the function; *known* are the names that all such functions may use."""
        source = "\n    ".join([f"def run({self._arguments}):", *self._lines])
        names = known | self._constants
        exec(compile(source, f"<{name}>", "exec"), names)
        made: Callable[..., Any] = names["run"]
        return made
