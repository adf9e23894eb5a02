"""Values of Arrow columns beside klog's plain JSON, compared field by field; nothing here is shared with klog."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.schemas.corpus import reference

_PER_SECOND = {"ms": 1000, "us": 10**6, "ns": 10**9}


class Pairs(list[Any]):
    """The keys and values of a map."""


def plain(array: pa.Array) -> list[Any]:
    """Return the values of a column in the plain form; structs are dicts with all members."""
    kind, types = array.type, pa.types
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in plain(chunk)]
    if types.is_dictionary(kind):
        return plain(array.dictionary_decode())
    if types.is_struct(kind):
        members = {field.name: plain(array.field(field.name)) for field in kind}
        return [
            {name: values[i] for name, values in members.items()} if array[i].is_valid else None
            for i in range(len(array))
        ]
    if types.is_map(kind):
        ends, keys, items = array.offsets.to_pylist(), plain(array.keys), plain(array.items)
        first = ends[0]
        return [
            Pairs(zip(keys[a - first : b - first], items[a - first : b - first], strict=True)) if one.is_valid else None
            for one, a, b in zip(array, ends, ends[1:], strict=False)
        ]
    if types.is_list(kind):
        ends, values = array.offsets.to_pylist(), plain(array.values)
        return [values[a:b] if one.is_valid else None for one, a, b in zip(array, ends, ends[1:], strict=False)]
    return [None if one is None else _scalar(one, kind) for one in _numbers(array).to_pylist()]


def _numbers(array: pa.Array) -> pa.Array:
    """Return dates and times as their numbers: Python has none beyond the year 9999, nor 30 o'clock."""
    kind = array.type
    if pa.types.is_date(kind) or pa.types.is_time32(kind):
        return array.view(pa.int32())
    return array.view(pa.int64()) if pa.types.is_timestamp(kind) or pa.types.is_time64(kind) else array


def _scalar(value: Any, kind: pa.DataType) -> Any:
    types, ref = pa.types, reference()
    if types.is_timestamp(kind):
        return ref.moment(value, _PER_SECOND[kind.unit], "Z" if kind.tz else "")
    if types.is_time(kind):
        return ref.of_day(value, _PER_SECOND[kind.unit])
    if types.is_date(kind):
        days = ref.datetime.date(1970, 1, 1)
        try:
            return (days + ref.datetime.timedelta(days=value)).isoformat()
        except OverflowError:
            return value
    if types.is_decimal(kind):
        return f"{value:f}"
    if types.is_floating(kind):
        return ref.shortest(value, types.is_float32(kind))
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def same(found: Any, right: Any) -> bool:
    """Whether a value of a column is a plain one: a field that is not set is null, a branch is a member of a struct."""
    if isinstance(found, Pairs):
        pairs = {_key(name): value for name, value in found}
        return isinstance(right, dict) and pairs.keys() == right.keys() and all(same(pairs[n], right[n]) for n in right)
    if isinstance(found, dict):
        if isinstance(right, str) and found.keys() == {"seconds", "nanos"}:  # a Duration
            return found["seconds"] * 10**9 + found["nanos"] == round(Decimal(right.removesuffix("s")) * 10**9)
        if isinstance(right, dict) and right.keys() <= found.keys():
            rest = [value for name, value in found.items() if name not in right]
            if all(value is None for value in rest) and all(same(found[name], right[name]) for name in right):
                return True
        members = [value for value in found.values() if value is not None]
        return right is None if not members else len(members) == 1 and same(members[0], right)
    if isinstance(found, list):
        return isinstance(right, list) and len(found) == len(right) and all(map(same, found, right))
    if isinstance(found, str) and isinstance(right, str) and _instant(found) == _instant(right):
        return True
    if isinstance(found, str) and found != right:  # a recursive type, or a JSON Schema
        try:
            return bool(json.loads(found) == right)
        except ValueError:
            return False
    return bool(found == right and isinstance(found, bool) == isinstance(right, bool))


def _instant(text: str) -> str:
    """Return a timestamp without the zeros at its end: Protobuf writes three, six or nine digits, or none."""
    return (
        text.removesuffix("Z").rstrip("0").rstrip(".") if text.endswith("Z") and "." in text else text.removesuffix("Z")
    )


def _key(name: Any) -> str:
    return ("true" if name else "false") if isinstance(name, bool) else str(name)
