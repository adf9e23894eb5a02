"""`klog groups` and `klog transactions` beside Kafka's dump tool with its decoders, over the coordinators' topics."""

from __future__ import annotations

import os
import random
import shutil
import struct
from collections.abc import Iterator

from bench.batches import batch
from bench.jobs import Bench, seconds
from bench.measure import Command
from bench.table import Row

COMMITS, GROUPS, PARTITIONS = 3_000_000, 500, 10
TRANSACTIONS, IDS, LOGS = 400_000, 500, 4
_BASE_MS = 1_795_254_454_586
_ONGOING, _PREPARE, _COMPLETE = 1, 2, 4


def groups(bench: Bench) -> Iterator[Row]:
    """The groups of a log of commits, and the transactions of a coordinator and of the logs that they wrote to."""
    root = bench.file("groups")
    shutil.rmtree(root, ignore_errors=True)
    commits = _path(root, "__consumer_offsets-0")
    with open(commits, "wb") as out:
        out.writelines(_commits(COMMITS // bench.scale))
    states = _write_transactions(root, TRANSACTIONS // bench.scale)
    found = [*bench.klog, "transactions", root, "--output", "jsonl", "--quiet"]
    open_only = [*found, "--state", "open", "--state", "hanging"]
    shown = {
        "groups": Command([*bench.klog, "groups", root, "--output", "csv", "--quiet"], sink="null"),
        "open": Command(open_only, sink="null", codes=(0, 4)),
        "all": Command(found, sink="null", at_most=1, codes=(0, 4)),
        "offsets": Command([*bench.kafka, "--offsets-decoder", "--files", commits], sink="null", at_most=1),
        "states": Command([*bench.kafka, "--transaction-log-decoder", "--files", states], sink="null", at_most=1),
    }
    race = bench.race(commits, shown, 3)
    rows = (
        ("groups", "klog groups", commits, "offsets", 15),
        ("open", "klog transactions --state open --state hanging", states, "states", 15),
        ("all", "klog transactions, every one as JSON lines", states, "states", None),
    )
    for name, what, log, peer, least in rows:
        size = f"{os.path.getsize(log) >> 20} MiB of {os.path.basename(os.path.dirname(log))[:-2]}"
        told = f"{what}: {size}, Kafka's dump tool with its decoder against it: {seconds(race, peer, name)}"
        yield Row("groups", told, race.cpu_s(peer) / race.cpu_s(name), at_least=least)
        yield Row("memory, groups", f"{what}: largest resident size", race.peak_bytes(name) / 1e6, "MB", at_most=150)
    shutil.rmtree(root)


def _path(root: str, directory: str) -> str:
    os.makedirs(os.path.join(root, directory))
    return os.path.join(root, directory, f"{0:020d}.log")


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def _commits(count: int) -> Iterator[bytes]:
    """Yield batches as consumers have them written: all partitions of a member at once."""
    chance = random.Random(1)
    keys = [
        [b"\0\1" + _text(f"consumer-group-{group}") + _text("orders") + struct.pack(">i", n) for n in range(PARTITIONS)]
        for group in range(GROUPS)
    ]
    for first in range(0, count, PARTITIONS):
        value = struct.pack(">hqihq", 3, first, 5, 0, _BASE_MS + first // 50)
        records = [(key, value) for key in keys[chance.randrange(GROUPS)]]
        yield batch(first, records, _BASE_MS + first // 50)


def _write_transactions(root: str, count: int) -> str:
    """Write the records of *count* transactions, each in two of the logs; return the path of their coordinator's
    log."""
    chance = random.Random(2)
    states = _path(root, "__transaction_state-0")
    with open(states, "wb") as out:
        logs = [open(_path(root, f"orders-{n}"), "wb") for n in range(LOGS)]  # noqa: SIM115
        ends, at = [0] * LOGS, 0
        for i in range(count):
            now, producer = _BASE_MS + 10 * i, i % IDS
            both = sorted(chance.sample(range(LOGS), 2))
            for status, delay, named in (
                (_ONGOING, 0, both[:1]),
                (_ONGOING, 1, both),
                (_PREPARE, 4, both),
                (_COMPLETE, 7, []),
            ):
                out.write(batch(at, [_state(producer, status, named, now, now + delay)], now + delay))
                at += 1
            for n in both:
                logs[n].write(batch(ends[n], [(b"key", b"v" * 100)] * 3, now + 2, attributes=0x10, producer=producer))
                logs[n].write(
                    batch(ends[n] + 3, [(b"\0\0\0\1", b"\0\0\0\0\0\7")], now + 5, attributes=0x30, producer=producer)
                )
                ends[n] += 4
        for log in logs:
            log.close()
    return states


def _state(producer: int, status: int, named: list[int], started: int, updated: int) -> tuple[bytes, bytes]:
    topics = struct.pack(">i", 1) + _text("orders") + struct.pack(f">i{len(named)}i", len(named), *named)
    value = struct.pack(">hqhib", 0, producer, 0, 60_000, status) + (topics if named else struct.pack(">i", 0))
    return b"\0\0" + _text(f"transactional-id-{producer}"), value + struct.pack(">qq", updated, started)
