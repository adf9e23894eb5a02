"""The order in which a Java HashMap iterates over its keys: by bucket, and within a bucket by insertion.

The table doubles when it is more than three quarters full, and when a ninth key is added to one bucket of a table
smaller than 64. (From 64 on such a bucket becomes a tree, whose order is not implemented here.)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias, TypeVar

Key = TypeVar("Key", str, "str | None")
_Table: TypeAlias = "list[list[Key]]"

_BUCKETS: Final = 16
_MOST_IN_BUCKET: Final = 8
_SMALLEST_WITH_TREES: Final = 64


def java_hash(text: str) -> int:
    """Return Java's String.hashCode, unsigned."""
    units = text.encode("utf-16-be", "surrogatepass")
    h = 0
    for at in range(0, len(units), 2):
        h = (31 * h + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return h


def order_of_put(keys: Iterable[Key]) -> list[Key]:
    """Return *keys*, all different, in the iteration order of a map after insertion in the given order; None has the
    hash 0.

    A new key is appended to its bucket, and the table doubles once it is too full.  Java: HashMap.put.
    """
    table: _Table[Key] = [[] for _ in range(_BUCKETS)]
    for size, key in enumerate(keys, 1):
        bucket = table[_place(key, len(table))]
        bucket.append(key)
        if _is_crowded(bucket, table):
            table = _doubled(table)
        if size > _most(table):
            table = _doubled(table)
    return [key for bucket in table for key in bucket]


def order_of_compute(counted: Iterable[tuple[str, int]]) -> list[str]:
    """Return names in the iteration order of a map that counted them with computeIfAbsent.

    *counted* has the names in the order of their first occurrence, each with its count.  A new name is put at the front
    of its bucket, and the table doubles at the next check that finds it too full.  Java: HashMap.computeIfAbsent.
    """
    table: _Table[str] = [[] for _ in range(_BUCKETS)]
    for size, (name, count) in enumerate(counted):
        if size > _most(table):
            table = _doubled(table)
        bucket = table[_place(name, len(table))]
        bucket.insert(0, name)
        if _is_crowded(bucket, table):
            table = _doubled(table)
        if count > 1 and size + 1 > _most(table):
            table = _doubled(table)
    return [name for bucket in table for name in bucket]


def _place(key: str | None, buckets: int) -> int:
    h = 0 if key is None else java_hash(key)
    return (h ^ h >> 16) & (buckets - 1)


def _most(table: _Table[Key]) -> int:
    return len(table) * 3 // 4


def _is_crowded(bucket: list[Key], table: _Table[Key]) -> bool:
    return len(bucket) > _MOST_IN_BUCKET and len(table) < _SMALLEST_WITH_TREES


def _doubled(table: _Table[Key]) -> _Table[Key]:
    grown: _Table[Key] = [[] for _ in range(2 * len(table))]
    for bucket in table:
        for key in bucket:
            grown[_place(key, len(grown))].append(key)
    return grown
