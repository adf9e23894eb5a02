"""`klog metadata` beside Kafka's dump tool: a million changes of partitions on top of a snapshot of 100 000."""

from __future__ import annotations

import os
import random
import shutil
import struct
from collections.abc import Iterable, Iterator
from itertools import islice

from bench.batches import batch
from bench.jobs import Bench, seconds
from bench.measure import Command
from bench.table import Row

TOPICS, PARTITIONS = 1000, 100
CHANGES = 1_000_000
_MOST_PER_BATCH = 4
_PER_SNAPSHOT_BATCH = 1000
_EPOCH = 7
_LEADER_EPOCH = 4
"""Not below that of the logs of `generate.py`, which a start would otherwise call newer than the metadata log."""
_BASE_MS = 1_795_254_454_586
_PROPERTIES = "version=1\nnode.id=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n"


def metadata(bench: Bench) -> Iterator[Row]:
    """Show and history against the dump tool over the same two files."""
    root = bench.file("metadata")
    shutil.rmtree(root, ignore_errors=True)
    log, snapshot = write(root, TOPICS, PARTITIONS, CHANGES // bench.scale)
    show = Command([*bench.klog, "metadata", "show", root, "--output", "json", "--quiet"], sink="null")
    history = Command(
        [*bench.klog, "metadata", "history", root, "--partition", "topic-500-50", "--output", "jsonl"], sink="null"
    )
    decoded = [*bench.kafka, "--cluster-metadata-decoder", "--files", f"{snapshot},{log}"]
    race = bench.race(
        log,
        {"show": show, "history": history, "kafka": Command(decoded, sink="null", at_most=1)},
        3,
    )
    size = f"{os.path.getsize(log) >> 20} MiB"
    told = f"show of {CHANGES // bench.scale:,} changes in {size} and a snapshot of {TOPICS * PARTITIONS:,} partitions"
    yield Row(
        "metadata show",
        f"{told}, Kafka's dump tool with its decoder against it: {seconds(race, 'kafka', 'show')}",
        race.cpu_s("kafka") / race.cpu_s("show"),
        at_least=20,
    )
    yield Row("memory, metadata show", "largest resident size", race.peak_bytes("show") / 1e6, "MB", at_most=400)
    told = f"history of one partition there against show: {seconds(race, 'history', 'show')}"
    yield Row("metadata history", told, race.cpu_s("history") / race.cpu_s("show"), at_most=0.5)
    shutil.rmtree(root)


def write(
    root: str, topics: int, partitions: int, changes: int, name: str = "topic-{}", alone: bool = False
) -> tuple[str, str]:
    """Write a log dir with a metadata log and its snapshot; return the paths of the two files.

    *name*: of a topic, by its number.  *alone*: all partitions are on node 1 and nowhere else.  The log begins where
    the snapshot ends, as after its segments below were deleted.
    """
    folder = os.path.join(root, "__cluster_metadata-0")
    os.makedirs(folder)
    with open(os.path.join(root, "meta.properties"), "w", encoding="ascii") as file:
        file.write(_PROPERTIES)
    end = topics * (partitions + 1)
    snapshot = os.path.join(folder, f"{end:020d}-{_EPOCH:010d}.checkpoint")
    with open(snapshot, "wb") as out:
        out.writelines(_snapshot(topics, partitions, name, alone))
    log = os.path.join(folder, f"{end:020d}.log")
    with open(log, "wb") as out:
        values = _changes(topics, partitions, changes)
        first, chance = end, random.Random(2)
        while some := list(islice(values, chance.randint(1, _MOST_PER_BATCH))):  # as small as controllers write them
            out.write(_batch(first, some))
            first += len(some)
    return log, snapshot


def topic_id(number: int) -> bytes:
    return random.Random(number).randbytes(16)


def directory_id(node: int) -> bytes:
    return random.Random(-node).randbytes(16)


def _ints(nodes: Iterable[int]) -> bytes:
    found = list(nodes)
    return bytes([len(found) + 1]) + struct.pack(f">{len(found)}i", *found)


def _snapshot(topics: int, partitions: int, name: str, alone: bool) -> Iterator[bytes]:
    yield _batch(0, [b"\0\0" + struct.pack(">q", _BASE_MS) + b"\0"], control=3)
    records = list(_registrations(topics, partitions, name, alone))
    for first in range(0, len(records), _PER_SNAPSHOT_BATCH):
        yield _batch(1 + first, records[first : first + _PER_SNAPSHOT_BATCH])
    yield _batch(1 + len(records), [b"\0\0\0"], control=4)


def _registrations(topics: int, partitions: int, name: str, alone: bool) -> Iterator[bytes]:
    for topic in range(topics):
        title = name.format(topic).encode()
        yield b"\1\2\0" + bytes([len(title) + 1]) + title + topic_id(topic) + b"\0"
        for number in range(partitions):
            nodes = [1] if alone else _replicas(topic, number)
            body = struct.pack(">i", number) + topic_id(topic) + _ints(nodes) * 2 + b"\1\1"
            body += struct.pack(">iii", nodes[0], _LEADER_EPOCH, 9) + bytes([len(nodes) + 1])
            body += b"".join(map(directory_id, nodes)) + b"\0"
            yield b"\1\3\2" + body


def _replicas(topic: int, number: int) -> list[int]:
    first = topic + number
    return [1 + (first + i) % 9 for i in range(3)]


def _changes(topics: int, partitions: int, count: int) -> Iterator[bytes]:
    """Yield the records of a cluster under strain: the ISR shrinks and grows, leaders move, directories are
    assigned."""
    chance = random.Random(1)
    ids = [topic_id(topic) for topic in range(topics)]
    for _ in range(count):
        topic, number = chance.randrange(topics), chance.randrange(partitions)
        nodes = _replicas(topic, number)
        isr = chance.sample(nodes, chance.randrange(1, 4))
        tags = [b"\0" + _sized(_ints(isr))]
        if chance.random() < 0.6:
            tags.append(b"\1\4" + struct.pack(">i", isr[0]))
        if chance.random() < 0.6:
            tags += [b"\6" + _sized(_ints(set(nodes) - set(isr))), b"\7" + _sized(_ints([]))]
        if chance.random() < 0.4:
            tags.append(b"\x08" + _sized(b"\4" + b"".join(map(directory_id, nodes))))
        yield b"\1\5\2" + struct.pack(">i", number) + ids[topic] + bytes([len(tags)]) + b"".join(tags)


def _sized(content: bytes) -> bytes:
    return bytes([len(content)]) + content


def _batch(first: int, values: list[bytes], control: int | None = None) -> bytes:
    """Return values as one batch; *control*: the type of its single control record."""
    key = None if control is None else struct.pack(">hh", 0, control)
    attributes = 0 if control is None else 0x20
    return batch(first, [(key, value) for value in values], _BASE_MS, attributes=attributes, leader_epoch=_EPOCH)
