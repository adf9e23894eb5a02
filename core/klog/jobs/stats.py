"""Counts the records of each partition, its keys, its largest and most frequent ones."""

from __future__ import annotations

import math
import os
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from heapq import nsmallest
from itertools import groupby
from sys import intern
from typing import Any, NamedTuple
from zlib import compress, decompress

from klog.base.overlays import shown_path
from klog.base.progress import Sink
from klog.data_dir.partition import Partition
from klog.formats.damage import Damage
from klog.jobs.runner import Job, Runner, TaskResult, json_result
from klog.jobs.slice_scan import SliceScan
from klog.jobs.slices import SPLIT_BYTES, LogSlice, pack_tasks, slice_partition
from klog.kernel import Profile
from klog.log.reader import MAX_BATCH_BYTES
from klog.log.records import RecordFilter

MOST_KEYS = 10
_SENT_KEYS = 50
_MOST_DAMAGES = 100
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_SUMS = ("records", "markers", "bytes", "null_keys", "null_values", "damages")


class StatsOptions(NamedTuple):
    """*secret*: 16 bytes, the same for all units, unknown to those who write records: keys are hashed with it."""

    secret: bytes
    max_batch_bytes: int = MAX_BATCH_BYTES

    @classmethod
    def of(cls, partitions: Iterable[Partition], max_batch_bytes: int) -> StatsOptions:
        """Return options whose secret is derived from the logs: two counts of the same logs are the same.

        A producer cannot know at which nanosecond the broker will have written the last of its records.
        """
        digest = blake2b(digest_size=16)
        for partition in partitions:
            for segment in partition.segments[-1:]:
                with suppress(OSError):
                    written_ns = os.stat(os.path.join(partition.path, segment.log)).st_mtime_ns
                    digest.update(
                        f"{partition.directory} {segment.log} {segment.size} {written_ns}\n".encode(
                            "utf-8", "surrogateescape"
                        )
                    )
        return cls(digest.digest(), max_batch_bytes)


class FrequentKey(NamedTuple):
    """A key that many records have: *records*, and up to *more*.  *start*: the first 128 of its *length* bytes."""

    records: int
    more: int
    length: int
    start: bytes


class LargeRecord(NamedTuple):
    """A record: its size (in v0 and v1: of key and value) in bytes, its offset, its batch's position, its file."""

    bytes: int
    offset: int
    position: int
    file: str


class Stats(NamedTuple):
    """Statistics of the records of a partition directory.

    *records*: without the *markers* of transactions.  *bytes*: of the logs.  *keys*: how many different ones, within a
    percent or so.  *codecs*: records by the codec of their batch.  Offsets and timestamps (ms) are None where no record
    has one.  *top_keys*: the most frequent.  *damages*: places that could not
    be read; the first of them as text in *damage*.  *topic_id*, *cluster_id*: what the directory is a copy of.
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
    largest: tuple[LargeRecord, ...]
    damages: int
    damage: tuple[str, ...]
    topic_id: str | None
    cluster_id: str | None


def count_records(
    partitions: Sequence[Partition],
    max_batch_bytes: int,
    runner: Runner,
    sink: Sink,
    split_bytes: int = SPLIT_BYTES,
) -> list[Stats]:
    """Return statistics of the records of each of *partitions*; a large one is divided into slices of *split_bytes*."""
    units, sizes = share_out(partitions, runner.workers, split_bytes)
    options = StatsOptions.of(partitions, max_batch_bytes)
    merger = StatsMerger(partitions)
    runner.run(Job(stats, units, options, sizes), sink, merger.take)
    return merger.merged()


def stats(unit: Sequence[LogSlice | str], options: StatsOptions) -> Iterator[TaskResult]:
    """Count the records of *unit*: partition directories, or slices of one next to each other; a result for each.

    Nothing is raised for what is on the disk: damage is counted and told.
    """
    profile = Profile(options.secret)
    scan = SliceScan(RecordFilter(), options.max_batch_bytes, controls=True)
    for path, parts in groupby(unit, key=_directory):
        cut = [part for part in parts if isinstance(part, LogSlice)]
        profile.clear()
        counted = _count(cut or slice_partition(Partition(path)), scan, profile, _SENT_KEYS if cut else MOST_KEYS)
        yield json_result("stats", {"path": path, "whole": not cut, **counted})


def share_out(
    partitions: Sequence[Partition], least: int, split_bytes: int = SPLIT_BYTES
) -> tuple[list[list[LogSlice | str]], list[int]]:
    """Return units of work for `stats`, *least* of them if there is enough to do, and the bytes of each.

    A partition larger than *split_bytes* is cut into slices.  Paths lead to the same files wherever tasks run.
    """
    parts: list[LogSlice | str] = []
    sizes: list[int] = []
    for partition in {one.path: one for one in partitions}.values():
        # To cut costs a look into each log, which small partitions leave to the tasks.
        if partition.size <= split_bytes:
            parts.append(partition.path)
            sizes.append(partition.size)
        else:
            cut = slice_partition(partition, split_bytes)
            parts += cut
            sizes += [part.bytes for part in cut]
    packs = pack_tasks(sizes, least=least)
    return [[parts[i] for i in numbers] for numbers in packs], [sum(sizes[i] for i in numbers) for numbers in packs]


def _directory(part: LogSlice | str) -> str:
    """Return the partition directory of a slice, which may be the slice of one that could not be listed."""
    if isinstance(part, str):
        return part
    return os.path.dirname(part.path) if part.end else part.path


def _count(parts: Sequence[LogSlice], scan: SliceScan, profile: Profile, most_keys: int) -> dict[str, object]:
    """Return the counts of the slices of one partition, as JSON can express them."""
    damage: list[str] = []
    damages = 0
    for part in parts:
        for found in scan.read(part):
            if isinstance(found, Damage):
                damages += 1
                damage += [str(found)] if damages <= _MOST_DAMAGES else []
            else:
                profile.add(found)
    return _facts(profile, most_keys) | {
        "bytes": sum(part.bytes for part in parts),
        "largest": [(*one, _file_of(one[1], parts)) for one in profile.largest],
        "damages": damages,
        "damage": damage,
    }


def _file_of(offset: int, parts: Sequence[LogSlice]) -> str:
    """Return the log that has *offset*, by its key if it is remote: the last one that begins at or below it."""
    below = [part for part in parts if part.base <= offset]
    return shown_path((below or parts)[-1].path)


def _facts(profile: Profile, most_keys: int) -> dict[str, object]:
    names = ("records", "markers", "null_keys", "null_values", "error")
    bounds = ("first_offset", "last_offset", "first_timestamp", "last_timestamp")
    facts: dict[str, object] = {name: getattr(profile, name) for name in names}
    facts |= {name: value if (value := getattr(profile, name)) >= 0 else None for name in bounds}
    keys = [(count, length, _text(start), _text(digest)) for count, length, start, digest in profile.top(most_keys)]
    # A key that is not sent may have as many records as the last one that is.
    unsent = keys[-1][0] if len(keys) == most_keys > 0 else 0
    # Few keys leave nearly all registers empty, and there may be thousands of partitions.
    registers = _text(compress(profile.registers, 1))
    return facts | {"codecs": profile.codecs, "registers": registers, "keys": keys, "unsent": unsent}


def _text(content: bytes) -> str:
    return b64encode(content).decode()


class StatsMerger:
    """Merges the results of all units.

    Only the statistics of a partition that was not cut are kept: the registers of its keys alone are kilobytes.
    """

    def __init__(self, partitions: Sequence[Partition]) -> None:
        self._partitions = partitions
        self._by_path = {partition.path: partition for partition in partitions}
        self._parts: dict[str, list[dict[str, Any]]] = {}
        self._done: dict[str, Stats] = {}
        self._profile = Profile(bytes(16))

    def take(self, result: TaskResult) -> None:
        """Take a result of `stats`."""
        facts = result.facts
        path = facts["path"]
        if facts["whole"]:
            self._done[path] = _merged(self._by_path[path], [facts], self._profile)
        else:
            self._parts.setdefault(path, []).append(facts)

    def merged(self) -> list[Stats]:
        """Return the statistics of each partition."""
        nothing = _facts(Profile(bytes(16)), 0) | {"bytes": 0, "largest": [], "damages": 0, "damage": []}
        for path, some in self._parts.items():
            self._done[path] = _merged(self._by_path[path], some, self._profile)
        return [self._done.get(one.path) or _merged(one, [nothing], self._profile) for one in self._partitions]


def _merged(partition: Partition, parts: Sequence[dict[str, Any]], profile: Profile) -> Stats:
    """Put together what was counted in different parts of a partition, with the help of a *profile*."""
    sums = {name: sum(part[name] for part in parts) for name in _SUMS}
    codecs = [sum(counts) for counts in zip(*(part["codecs"] for part in parts), strict=True)]
    profile.clear()
    for part in parts:
        profile.absorb(decompress(b64decode(part["registers"])))
    large = [
        LargeRecord(size, offset, at, intern(file)) for part in parts for size, offset, at, file in part["largest"]
    ]
    large.sort(key=lambda one: (-one.bytes, one.offset))
    return Stats(
        path=partition.path,
        topic=partition.topic,
        partition=partition.number,
        keys=estimate(profile.ranks_counted),
        codecs={_codec(number): count for number, count in enumerate(codecs) if count},
        first_timestamp=_extreme(min, parts, "first_timestamp"),
        last_timestamp=_extreme(max, parts, "last_timestamp"),
        first_offset=_extreme(min, parts, "first_offset"),
        last_offset=_extreme(max, parts, "last_offset"),
        top_keys=_frequent(parts),
        largest=tuple(large[:MOST_KEYS]),
        damage=tuple(line for part in parts for line in part["damage"])[:_MOST_DAMAGES],
        topic_id=partition.topic_id,
        cluster_id=partition.checkpoints.cluster_id,
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
    more: dict[str, int] = {}
    keys: dict[str, tuple[int, str]] = {}
    missed = sum(part["error"] + part["unsent"] for part in parts)
    for part in parts:
        for count, length, start, digest in part["keys"]:
            counts[digest] = counts.get(digest, 0) + count
            more[digest] = more.get(digest, missed) - part["unsent"]
            keys[digest] = length, start
    most = nsmallest(MOST_KEYS, counts, key=lambda digest: (-counts[digest], keys[digest][1]))
    return tuple(FrequentKey(counts[one], more[one], keys[one][0], b64decode(keys[one][1])) for one in most)


def estimate(counts: Sequence[int]) -> int:
    """Return how many different keys there were: of a HyperLogLog's registers so many have each rank, from 0 on.

    Ertl, "New cardinality estimation algorithms for HyperLogLog sketches" (2017), algorithm 6: no bias to be corrected,
    neither where there are few nor where there are many.
    """
    size, most = sum(counts), len(counts) - 1
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
