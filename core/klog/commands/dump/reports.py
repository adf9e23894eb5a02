"""The summary that Kafka's dump tool prints on stderr after all files, in its order."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field
from itertools import chain, islice, pairwise

from klog.formats.java_hash_map import order_of_compute

Pair = tuple[int, int]
_MOST_PAIRS = 1 << 20


def absolute(path: str) -> str:
    """Return *path* as Java's File.getAbsolutePath does: absolute, doubled slashes folded, nothing else resolved."""
    return shown(path if path.startswith("/") else os.path.join(os.getcwd(), path))


def shown(path: str) -> str:
    """Return *path* as Java's File prints it: doubled slashes folded, no slash at the end."""
    while "//" in path:
        path = path.replace("//", "/")
    return path.rstrip("/") or path[:1]


@dataclass
class OffsetGaps:
    """Gaps in the offsets of a log's records: pairs of an offset and the one after it.

    Kafka's tool stores them by the first offset of the pair; the last pair wins.  If they do not ascend, which no
    broker writes, each record of a highly compressed batch may add one: only so many offsets are then stored.
    """

    last: int = -1
    pairs: array[int] = field(default_factory=lambda: array("q"))
    _room: int = _MOST_PAIRS

    def add(self, first: int, last: int, pairs: bytes) -> None:
        """Take the records from offset *first* to *last*, which have *pairs* among them."""
        if first != self.last + 1:
            self.pairs.extend((self.last, first))
        self.pairs.frombytes(pairs)
        self.last = last
        if len(self) > self._room:
            if not ascend(self):
                self._keep_some()
            self._room = 2 * max(len(self), _MOST_PAIRS)

    def _keep_some(self) -> None:
        kept = islice(dict(self).items(), _MOST_PAIRS)
        self.pairs = array("q", chain.from_iterable(kept))

    def __len__(self) -> int:
        return len(self.pairs) // 2

    def __iter__(self) -> Iterator[Pair]:
        numbers = iter(self.pairs)
        return zip(numbers, numbers, strict=True)


@dataclass
class DumpReports:
    """The findings of one call, by file (absolute path), each in the order in which it was made."""

    mismatches: dict[str, list[Pair]] = field(default_factory=dict)
    timestamp_mismatches: dict[str, list[Pair]] = field(default_factory=dict)
    out_of_order: dict[str, list[Pair]] = field(default_factory=dict)
    not_found: dict[str, list[Pair]] = field(default_factory=dict)
    gaps: dict[str, OffsetGaps | list[Pair]] = field(default_factory=dict)

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
            pairs = self.gaps[file]
            ordered = pairs if ascend(pairs) else sorted(dict(pairs).items())
            yield from (f"  {offset} is followed by {after}" for offset, after in ordered)

    @property
    def disagreement(self) -> bool:
        """Whether an index disagrees with its log."""
        return bool(self.mismatches or self.timestamp_mismatches or self.out_of_order or self.not_found)


def ascend(pairs: Iterable[Pair]) -> bool:
    """Whether the first numbers of *pairs* ascend."""
    return all(before[0] < after[0] for before, after in pairwise(pairs))


def _in_order(section: Mapping[str, Sized]) -> list[str]:
    return order_of_compute((file, len(pairs)) for file, pairs in section.items())
