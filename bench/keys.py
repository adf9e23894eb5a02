"""`klog keys check` beside decoding alone, and its memory; `klog partition` over a file of keys."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

from bench.installed import child
from bench.jobs import Bench, ratio, seconds
from bench.measure import Command
from bench.table import Row
from bench.threads import thread_row, twice

_KEYS = 10_000_000
_LINES = 4_000_000


def keys(bench: Bench) -> Iterator[Row]:
    """The large segment checked on one and two threads; many keys; many lines."""
    yield from _speed(bench)
    yield from _memory(bench)
    yield from _partition(bench)


def _check(bench: Bench, path: str, jobs: int) -> Command:
    words = ["--partitions", "7", "--list", "0", "--quiet", "--jobs", str(jobs)]
    return Command([*bench.klog, "keys", "check", path, *words], "null", codes=(0, 4))


def _speed(bench: Bench) -> Iterator[Row]:
    path = bench.log("topic")
    folder = os.path.dirname(path)
    one = _check(bench, folder, 1)
    race = bench.race(
        path,
        {
            "start": _check(bench, os.path.dirname(bench.log("first/plain")), 1),
            "1 thread": one,
            "2 threads": _check(bench, folder, 2),
            "both": twice(one),
            "decode": bench.verify(folder, "--deep", codes=(0, 4)),
        },
    )
    told = f"against klog verify --deep, start taken off both: {seconds(race, '1 thread', 'decode', 'start')}"
    start_s = race.cpu_s("start")
    yield Row("keys check", told, ratio(race.cpu_s("1 thread") - start_s, race.cpu_s("decode") - start_s), at_most=3)
    yield thread_row("keys check, threads", race, at_least=1.6)


def _memory(bench: Bench) -> Iterator[Row]:
    folder = bench.file("manykeys-0")
    shutil.rmtree(folder, ignore_errors=True)
    count = _KEYS // bench.scale
    bench.race((), {"made": Command([bench.peers, child("manykeys.py"), folder, str(count)])}, 1)
    race = bench.race((), {"check": _check(bench, folder, 2)}, 1)
    told = f"largest resident size, {count / 1e6:.0f} million different keys, 2 threads"
    yield Row("memory, keys check", told, race.peak_bytes("check") / 1e6, "MB", at_most=400)
    shutil.rmtree(folder)


def _partition(bench: Bench) -> Iterator[Row]:
    path = bench.file("keys.txt")
    lines = _LINES // bench.scale
    with open(path, "w", encoding="ascii") as file:
        file.writelines(f"user-{number * 7919}\n" for number in range(lines))
    words = ["partition", "--partitions", "12", "--keys-from", path, "--output", "jsonl"]
    race = bench.race(path, {"partition": Command([*bench.klog, *words], "null")})
    told = f"{lines / 1e6:.1f} million keys as JSON lines, start included: {seconds(race, 'partition')}"
    yield Row("partition", told, lines / race.cpu_s("partition") / 1e6, "M keys/s", at_least=2)
    os.unlink(path)
