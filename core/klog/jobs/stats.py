"""The job that counts: records of each partition, its keys, its largest and its most frequent."""

from __future__ import annotations

import math
import os
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import compress, decompress

from klog.formats.codec import Decompressor
from klog.formats.damage import Damage
from klog.jobs.answers import from_batch, say, to_batch
from klog.kernel import Profile, Window
from klog.partition import Partition
from klog.reader import MAX_BATCH_BYTES
from klog.records import records
from klog.wanted import Wanted
from klog.work import Slice

if TYPE_CHECKING:
    import pyarrow as pa

MOST_KEYS = 10
_SENT_KEYS = 100
_MOST_DAMAGES = 100
_ROWS = 16 << 10
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_SUMS = ("records", "markers", "bytes", "null_keys", "null_values", "damages", "error")


class Options(NamedTuple):
    """*secret*: 16 bytes, the same for all units, which nobody who writes records knows: keys are hashed with it."""

    secret: bytes
    max_batch_bytes: int = MAX_BATCH_BYTES


class FrequentKey(NamedTuple):
    """A key that many records have: at least *records*.  *start*: the first 128 of its *length* bytes."""

    records: int
    length: int
    start: bytes


class LargeRecord(NamedTuple):
    """A record: its size (in v0 and v1: of key and value) in bytes, its offset, its batch's position, its file."""

    bytes: int
    offset: int
    position: int
    file: str


class Stats(NamedTuple):
    """What the records of a partition directory are like.

    *records*: without the *markers* of transactions.  *bytes*: of the logs.  *keys*: how many different ones, within a
    percent or so.  *codecs*: records by the codec of their batch.  Offsets and timestamps (ms) are None where no record
    has one.  *top_keys*: the most frequent; each may have up to *error* records more.  *damages*: places that could not
    be read; the first of them as text in *damage*.
    """

    path: str
    topic: str | None
    partition: int | None
    records: int
    markers: int
    bytes: int
    keys: int
    null_keys: int
    null_values: int
    codecs: dict[str, int]
    first_timestamp: int | None
    last_timestamp: int | None
    first_offset: int | None
    last_offset: int | None
    top_keys: tuple[FrequentKey, ...]
    error: int
    largest: tuple[LargeRecord, ...]
    damages: int
    damage: tuple[str, ...]


def stats(unit: Sequence[Slice], options: Options) -> Iterator[pa.RecordBatch]:
    """Count the records of *unit*, slices of one partition next to each other: an answer for each partition.

    Nothing is raised for what is on the disk: damage is counted and told.
    """
    profile = Profile(options.secret)
    reading = _Reading(options.max_batch_bytes)
    for path, parts in groupby(unit, key=_directory):
        profile.clear()
        yield to_batch([say("stats", reading.count(path, list(parts), profile))])


class _Reading:
    """What reads slice after slice with the same buffers."""

    def __init__(self, max_batch_bytes: int) -> None:
        self._most = max_batch_bytes
        self._window, self._codecs = Window(records=_ROWS), Decompressor(max_batch_bytes).functions

    def count(self, path: str, parts: Sequence[Slice], profile: Profile) -> dict[str, object]:
        """Return what is counted in the slices of one partition, as what JSON can say."""
        damage: list[str] = []
        damages = 0
        for part in parts:
            for found in records(part, Wanted(), self._window, self._codecs, self._most, controls=True):
                if isinstance(found, Damage):
                    damages += 1
                    damage += [str(found)] if damages <= _MOST_DAMAGES else []
                else:
                    profile.add(found)
        return _facts(profile) | {
            "path": path,
            "bytes": sum(part.bytes for part in parts),
            "largest": [(*one, _file_of(one[1], parts)) for one in profile.largest],
            "damages": damages,
            "damage": damage,
        }


def _directory(part: Slice) -> str:
    """Return the partition directory of a slice, which may be the slice of one that could not be listed."""
    return os.path.dirname(part.path) if part.end else part.path


def _file_of(offset: int, parts: Sequence[Slice]) -> str:
    """Return the log that has *offset*: that of the last segment which begins at or below it."""
    below = [part for part in parts if part.base <= offset]
    return (below or parts)[-1].path


def _facts(profile: Profile) -> dict[str, object]:
    names = ("records", "markers", "null_keys", "null_values", "error")
    bounds = ("first_offset", "last_offset", "first_timestamp", "last_timestamp")
    facts: dict[str, object] = {name: getattr(profile, name) for name in names}
    facts |= {name: value if (value := getattr(profile, name)) >= 0 else None for name in bounds}
    keys = [(count, length, _text(start), _text(digest)) for count, length, start, digest in profile.top(_SENT_KEYS)]
    # Few keys leave nearly all registers empty, and there may be thousands of partitions.
    return facts | {"codecs": profile.codecs, "registers": _text(compress(profile.registers, 1)), "keys": keys}


def _text(content: bytes) -> str:
    return b64encode(content).decode()


def results(batches: Iterable[pa.RecordBatch], partitions: Sequence[Partition]) -> list[Stats]:
    """Return what was counted of each of *partitions*, put together from the answers of all units."""
    found: dict[str, list[dict[str, Any]]] = {}
    for answer in (answer for batch in batches for answer in from_batch(batch)):
        facts = answer.facts
        found.setdefault(facts["path"], []).append(facts)
    nothing = _facts(Profile(bytes(16))) | {"bytes": 0, "largest": [], "damages": 0, "damage": []}
    return [_merged(partition, found.get(partition.path, [nothing])) for partition in partitions]


def _merged(partition: Partition, parts: Sequence[dict[str, Any]]) -> Stats:
    """Put together what was counted in different parts of a partition."""
    sums = {name: sum(part[name] for part in parts) for name in _SUMS}
    codecs = [sum(counts) for counts in zip(*(part["codecs"] for part in parts), strict=True)]
    registers = decompress(b64decode(parts[0]["registers"]))
    for part in parts[1:]:
        registers = bytes(map(max, registers, decompress(b64decode(part["registers"]))))
    large = sorted(
        (LargeRecord(*one) for part in parts for one in part["largest"]), key=lambda one: (-one.bytes, one.offset)
    )
    return Stats(
        path=partition.path,
        topic=partition.topic,
        partition=partition.number,
        keys=estimate(registers),
        codecs={_codec(number): count for number, count in enumerate(codecs) if count},
        first_timestamp=_extreme(min, parts, "first_timestamp"),
        last_timestamp=_extreme(max, parts, "last_timestamp"),
        first_offset=_extreme(min, parts, "first_offset"),
        last_offset=_extreme(max, parts, "last_offset"),
        top_keys=_frequent(parts),
        largest=tuple(large[:MOST_KEYS]),
        damage=tuple(line for part in parts for line in part["damage"])[:_MOST_DAMAGES],
        **sums,
    )


def _codec(number: int) -> str:
    return _CODECS[number] if number < len(_CODECS) else f"codec {number}"


def _extreme(which: Callable[[Iterable[int]], int], parts: Sequence[dict[str, Any]], name: str) -> int | None:
    known = [part[name] for part in parts if part[name] is not None]
    return which(known) if known else None


def _frequent(parts: Sequence[dict[str, Any]]) -> tuple[FrequentKey, ...]:
    """Return the most frequent keys, each by its digest: of a long one only the start is known."""
    counts: dict[str, int] = {}
    keys: dict[str, tuple[int, bytes]] = {}
    for count, length, start, digest in (key for part in parts for key in part["keys"]):
        counts[digest] = counts.get(digest, 0) + count
        keys[digest] = length, b64decode(start)
    most = sorted(counts, key=lambda digest: (-counts[digest], keys[digest][1]))[:MOST_KEYS]
    return tuple(FrequentKey(counts[digest], *keys[digest]) for digest in most)


def estimate(registers: bytes) -> int:
    """Return how many different keys made these registers of a HyperLogLog.

    Ertl, "New cardinality estimation algorithms for HyperLogLog sketches" (2017), algorithm 6: no bias to be corrected,
    neither where there are few nor where there are many.
    """
    size = len(registers)
    most = 64 - (size.bit_length() - 1) + 1
    counts = [registers.count(rank) for rank in range(most + 1)]
    if counts[0] == size:
        return 0
    total = size * _tau(1 - counts[most] / size)
    for rank in range(most - 1, 0, -1):
        total = (total + counts[rank]) / 2
    total += size * _sigma(counts[0] / size)
    return round(size * size / (2 * math.log(2) * total))


def _sigma(x: float) -> float:
    """Return x + the sum of x^(2^k) 2^(k-1) for k from 1 on; *x* below 1."""
    y, total, before = 1.0, x, -1.0
    while total != before:
        x, before = x * x, total
        total += x * y
        y += y
    return total


def _tau(x: float) -> float:
    """Return a third of 1 - x - the sum of (1 - x^(2^-k))^2 2^-k for k from 1 on."""
    if x in (0.0, 1.0):
        return 0.0
    y, total, before = 1.0, 1 - x, -1.0
    while total != before:
        x, before, y = math.sqrt(x), total, y / 2
        total -= (1 - x) ** 2 * y
    return total / 3
