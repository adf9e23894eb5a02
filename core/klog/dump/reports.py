"""The summary that Kafka's dump tool prints on stderr after all files, in its order."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

Pair = tuple[int, int]

_MOST_IN_BUCKET = 8
_SMALLEST_WITH_TREES = 64


def absolute(path: str) -> str:
    """Return *path* as Java's File.getAbsolutePath does: absolute, doubled slashes folded, nothing else resolved."""
    return shown(path if path.startswith("/") else os.path.join(os.getcwd(), path))


def shown(path: str) -> str:
    """Return *path* as Java's File prints it: doubled slashes folded, no slash at the end."""
    while "//" in path:
        path = path.replace("//", "/")
    return path.rstrip("/") or path[:1]


def java_hash(text: str) -> int:
    """Return Java's String.hashCode, unsigned."""
    units = text.encode("utf-16-be", "surrogatepass")
    h = 0
    for at in range(0, len(units), 2):
        h = (31 * h + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return h


def java_order(findings: Iterable[tuple[str, int]]) -> list[str]:
    """Return names in the order in which a Java HashMap iterates over them that counted *findings* under them.

    Given are the names in the order of their first finding, each with how many there were.  A new name goes to the
    front of its bucket; the table doubles at the first finding that meets it more than three quarters full, and when
    a ninth name comes into one bucket of a table smaller than 64.  (From 64 on such a bucket becomes a tree, whose
    order is not followed here.)  Java: HashMap.computeIfAbsent.
    """
    table: list[list[str]] = [[] for _ in range(16)]
    for size, (name, count) in enumerate(findings):
        if size > len(table) * 3 // 4:
            table = _doubled(table)
        bucket = table[_place(name, len(table))]
        bucket.insert(0, name)
        if len(bucket) > _MOST_IN_BUCKET and len(table) < _SMALLEST_WITH_TREES:
            table = _doubled(table)
        if count > 1 and size + 1 > len(table) * 3 // 4:
            table = _doubled(table)
    return [name for bucket in table for name in bucket]


def _place(name: str, buckets: int) -> int:
    h = java_hash(name)
    return (h ^ h >> 16) & (buckets - 1)


def _doubled(table: list[list[str]]) -> list[list[str]]:
    grown: list[list[str]] = [[] for _ in range(2 * len(table))]
    for bucket in table:
        for name in bucket:
            grown[_place(name, len(grown))].append(name)
    return grown


@dataclass
class DumpReports:
    """The findings of one call, by file (absolute path), each in the order in which it was made."""

    mismatches: dict[str, list[Pair]] = field(default_factory=dict)
    timestamp_mismatches: dict[str, list[Pair]] = field(default_factory=dict)
    out_of_order: dict[str, list[Pair]] = field(default_factory=dict)
    not_found: dict[str, list[Pair]] = field(default_factory=dict)
    gaps: dict[str, list[Pair]] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """Yield the lines of all sections.  Kafka: DumpLogSegments.main, TimeIndexDumpErrors.printErrors."""
        for file in _in_order(self.mismatches):
            yield f"Mismatches in :{file}"
            for offset, found in sorted(dict(self.mismatches[file]).items(), reverse=True):
                yield f"  Index offset: {offset}, log offset: {found}"
        for file in _in_order(self.timestamp_mismatches):
            yield f"Found timestamp mismatch in :{file}"
            yield from (
                f"  Index timestamp: {there}, log timestamp: {log}" for there, log in self.timestamp_mismatches[file]
            )
        for file in _in_order(self.out_of_order):
            yield f"Found out of order timestamp in :{file}"
            for there, before in self.out_of_order[file]:
                yield f"  Index timestamp: {there}, Previously indexed timestamp: {before}"
        for file in _in_order(self.not_found):
            yield f"The following indexed offsets are not found in :{file}"
            yield from (
                f"Indexed offset: {offset}, found log offset: {found}" for offset, found in self.not_found[file]
            )
        for file in _in_order(self.gaps):
            yield f"Non-consecutive offsets in {file}"
            yield from (f"  {offset} is followed by {after}" for offset, after in sorted(dict(self.gaps[file]).items()))

    @property
    def disagreement(self) -> bool:
        """Whether an index disagrees with its log."""
        return bool(self.mismatches or self.timestamp_mismatches or self.out_of_order or self.not_found)


def _in_order(section: dict[str, list[Pair]]) -> list[str]:
    return java_order((file, len(pairs)) for file, pairs in section.items())
