"""Finds keys outside of the partitions of their topic's partitioner, and the possible causes.

Records are read once: the kernel applies each rule to a key and keeps a digest of it, not the key.  The few listed keys
are looked up in a second reading, of their partitions.  Keys of aborted transactions count as well: their producers
placed them, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Final, NamedTuple

from klog.base.progress import Sink
from klog.cluster.keyed_topics import KeyTopic
from klog.commands.keys.judgement import LEAST_SHARE, MURMUR2, KeyJudgement, judge, leading_hash, rule_counts
from klog.formats.damage import Damage
from klog.jobs.runner import Job, TaskResult, Threads, json_result
from klog.jobs.slice_scan import SliceScan
from klog.jobs.slices import LogSlice, slice_partition
from klog.kernel import KeyExamples, KeyPlaces, KeyReader, key_partitions
from klog.log.reader import MAX_BATCH_BYTES
from klog.log.records import RecordFilter

_SPLIT_BYTES: Final = 16 << 20
_ALONE_BYTES: Final = 4 << 20
"""With fewer bytes to read, other threads are not worth starting."""
_MOST_DAMAGES: Final = 100


class KeyCheckOptions(NamedTuple):
    """*min_keys*: with fewer different keys nothing is judged.  *most_listed*: of each topic, 1000 at most."""

    min_keys: int = 200
    most_listed: int = 20
    workers: int = 1
    max_batch_bytes: int = MAX_BATCH_BYTES


class MisplacedKey(NamedTuple):
    """A key at a place that the topic's rule does not give: its first bytes, its length, how many records it has there.

    *expected*: the partition that the rule gives.  *cause*: `KeyJudgement.cause_name`.
    """

    key: bytes
    length: int
    partition: int
    expected: int
    records: int
    first_offset: int
    last_offset: int
    cause: str


class EmptyKeys(NamedTuple):
    """The records with an empty key in a partition."""

    records: int
    first_offset: int
    last_offset: int


class CheckedTopic(NamedTuple):
    """The results for a topic.

    *records*: data records, those with null and empty keys among them.  *damages*: the number of unreadable places; the
    first of them as text in *damage*.
    """

    topic: KeyTopic
    records: int
    null_keys: int
    empty_keys: int
    judgement: KeyJudgement
    examples: tuple[MisplacedKey, ...]
    damages: int
    damage: tuple[str, ...]


class _ThreadScan(threading.local):
    """A thread's reader of slices: buffers that are allocated for each slice would fragment the heap."""

    def __init__(self, max_batch_bytes: int) -> None:
        # The kernel itself skips control records.
        self.scan = SliceScan(RecordFilter(), max_batch_bytes, controls=True)


class _ThreadReader(threading.local):
    """A thread's filler of a table; *readers* receives each, to be closed when all slices have been read."""

    def __init__(self, table: KeyPlaces, is_shared: bool, readers: list[KeyReader]) -> None:
        self.reader = KeyReader(table, is_shared)
        readers.append(self.reader)


class _Task(NamedTuple):
    table: KeyPlaces
    is_shared: bool
    reading: _ThreadScan
    listed: Sequence[tuple[int, int]] = ()


def check_keys(topics: Sequence[KeyTopic], options: KeyCheckOptions, sink: Sink) -> Iterator[CheckedTopic]:
    """Yield the results for each of *topics*.  *sink* receives the progress.

    Content raises no error: damage is counted and skipped.
    """
    reading = _ThreadScan(options.max_batch_bytes)
    for topic in topics:
        yield _check(topic, reading, options, sink)


def _check(topic: KeyTopic, reading: _ThreadScan, options: KeyCheckOptions, sink: Sink) -> CheckedTopic:
    split = _SPLIT_BYTES if options.workers > 1 else 1 << 62
    slices = [part for one in topic.partitions for part in slice_partition(one, split)]
    table = KeyPlaces(topic.partition_count, _first_hash(slices, topic, options))
    task = _Task(table, options.workers > 1, reading)
    judgement, counts = _judge(slices, task, options, sink)
    if judgement.lacks_hash:
        task = task._replace(table=KeyPlaces(topic.partition_count, leading_hash(task.table)))
        judgement, counts = _judge(slices, task, options, sink)
    examples = _examples(slices, task, judgement, options, sink) if judgement.misplaced else []
    examples += _empty_examples(counts.empty, judgement, topic.partition_count)
    shown = sorted(examples, key=lambda one: (one.partition, one.first_offset))[: options.most_listed]
    numbers = counts.records, counts.null_keys, counts.empty_keys
    return CheckedTopic(topic, *numbers, judgement, tuple(shown), counts.damages, tuple(counts.damage))


def _first_hash(slices: Sequence[LogSlice], topic: KeyTopic, options: KeyCheckOptions) -> int:
    """Return the hash by which the first records look placed: digests are to have that one, murmur2 where none does."""
    table = KeyPlaces(topic.partition_count)
    reader = KeyReader(table)
    for part in slices[:1]:
        for found in _ThreadScan(options.max_batch_bytes).scan.read(part):
            if not isinstance(found, Damage):
                reader.add(found, part.partition or 0)
                break
    reader.close()
    follow_none = max(rule_counts(table)) < LEAST_SHARE * table.keys
    return MURMUR2 if follow_none else leading_hash(table)


def _judge(
    slices: Sequence[LogSlice], task: _Task, options: KeyCheckOptions, sink: Sink
) -> tuple[KeyJudgement, _Counts]:
    """Fill the table and judge it; also return the counts outside of it."""
    counts = _Counts()
    readers: list[KeyReader] = []
    filling = _ThreadReader(task.table, task.is_shared, readers)
    _run(partial(_read_keys, filling), slices, task, options.workers, sink, counts.take)
    for reader in readers:
        reader.close()
    empty = {number: one.records for number, one in counts.empty.items()}
    return judge(task.table, empty, options.min_keys), counts


class _Counts:
    """The counts over the slices."""

    def __init__(self) -> None:
        self.records = self.null_keys = self.empty_keys = self.damages = 0
        self.damage: list[str] = []
        self.empty: dict[int, EmptyKeys] = {}

    def take(self, answer: TaskResult) -> bool:
        """Add the results of a task; never the last."""
        facts = answer.facts
        if answer.kind == "damage":
            self.damages += 1
            self.damage += [facts["message"]] if self.damages <= _MOST_DAMAGES else []
            return False
        self.records += facts["records"]
        self.null_keys += facts["null_keys"]
        self.empty_keys += facts["empty_keys"]
        if facts["empty_keys"]:
            here = EmptyKeys(facts["empty_keys"], facts["first_empty"], facts["last_empty"])
            before = self.empty.get(facts["partition"], here._replace(records=0))
            self.empty[facts["partition"]] = EmptyKeys(
                before.records + here.records,
                min(before.first_offset, here.first_offset),
                max(before.last_offset, here.last_offset),
            )
        return False


def _run(
    job: Callable[[Sequence[LogSlice], _Task], Iterator[TaskResult]],
    slices: Sequence[LogSlice],
    task: _Task,
    workers: int,
    sink: Sink,
    take: Callable[[TaskResult], bool],
) -> None:
    sizes = [part.bytes for part in slices]
    threads = Threads(workers if sum(sizes) > _ALONE_BYTES else 1)
    threads.run(Job(job, [[part] for part in slices], task, sizes), sink, take)


def _read_keys(filling: _ThreadReader, unit: Sequence[LogSlice], task: _Task) -> Iterator[TaskResult]:
    reader = filling.reader
    for part in unit:
        number = part.partition or 0
        take = partial(reader.take, partition=number, from_offset=part.from_offset, to_offset=part.to_offset)
        for found in task.reading.scan.read(part, take):
            if isinstance(found, Damage):
                yield json_result("damage", {"message": str(found)})
            else:
                reader.add(found, number)
        names = ("records", "null_keys", "empty_keys", "first_empty", "last_empty")
        yield json_result(
            "counts", {"partition": part.partition, **dict(zip(names, reader.take_counts(), strict=True))}
        )


def _examples(
    slices: Sequence[LogSlice], task: _Task, judgement: KeyJudgement, options: KeyCheckOptions, sink: Sink
) -> list[MisplacedKey]:
    """Return the misplaced keys that are listed; a key that was deleted meanwhile is not."""
    listed = judgement.listed(task.table, options.most_listed)
    wanted = task._replace(listed=[(one.digest, one.partition) for one in listed])
    partitions = {one.partition for one in listed}
    found: dict[int, list[MisplacedKey]] = {}

    def take(answer: TaskResult) -> bool:
        for number, records, first, last, length, key in answer.facts:
            one = listed[number]
            places = found.setdefault(number, [])
            at = one.partition, one.expected, records, first, last, one.cause
            places.append(MisplacedKey(bytes.fromhex(key), length, *at))
        return False

    some = [part for part in slices if part.partition in partitions]
    _run(_find_keys, some, wanted, options.workers, sink, take)
    return [_joined(places) for places in found.values()]


def _empty_examples(empty: Mapping[int, EmptyKeys], judgement: KeyJudgement, count: int) -> list[MisplacedKey]:
    expected = key_partitions(b"", count)[judgement.rule or 0]
    return [
        MisplacedKey(b"", 0, number, expected, *empty[number], judgement.cause_name(cause))
        for number, cause in judgement.empty.items()
    ]


def _find_keys(unit: Sequence[LogSlice], task: _Task) -> Iterator[TaskResult]:
    for partition, parts in groupby(unit, key=lambda part: part.partition or 0):
        examples = KeyExamples(task.table, list(task.listed))
        for part in parts:
            for found in task.reading.scan.read(part):
                if not isinstance(found, Damage):
                    examples.add(found, partition)
        yield json_result("found", [(*one[:5], one[5].hex()) for one in examples.found])


def _joined(places: Sequence[MisplacedKey]) -> MisplacedKey:
    """Combine the parts of one key in different slices."""
    return places[0]._replace(
        records=sum(one.records for one in places),
        first_offset=min(one.first_offset for one in places),
        last_offset=max(one.last_offset for one in places),
    )
