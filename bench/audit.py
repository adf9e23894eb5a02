"""`klog audit misrouted` beside `klog verify`: large and small batches, many twins, threads, and its memory."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from bench.installed import child
from bench.jobs import Bench, ratio, seconds
from bench.measure import Command
from bench.table import Row
from bench.threads import thread_row, twice

_LARGE, _SMALL = 16 << 10, 300
_MANY = 10_000_000


def audit(bench: Bench) -> Iterator[Row]:
    """A GiB of large batches, a GiB of small ones, twins among them; ten million batches in bounded memory."""
    large, small = (_made(bench, name, 1 << 30, size, 0) for name, size in (("large", _LARGE), ("small", _SMALL)))
    yield from _speed(bench, large, "16 KB a batch", 0.35)
    yield from _speed(bench, small, "300 bytes a batch", 1.5)
    shutil.rmtree(large)
    shutil.rmtree(small)
    yield from _twins(bench)
    yield from _memory(bench)


def _made(bench: Bench, name: str, size: int, batch_bytes: int, percent: int, *more: str) -> str:
    folder = bench.file(f"audit-{name}")
    shutil.rmtree(folder, ignore_errors=True)
    words = [folder, str(size // bench.scale), str(batch_bytes), "4", str(percent), *more]
    bench.race((), {"made": Command([bench.peers, child("batches.py"), *words])}, 1)
    return folder


def _logs(folder: str) -> list[str]:
    return [str(path) for path in sorted(Path(folder).rglob("*.log"))]


def _misrouted(bench: Bench, path: str, jobs: int = 1, *more: str) -> Command:
    words = [*bench.klog, "audit", "misrouted", path, "--quiet", "--jobs", str(jobs), *more]
    return Command(words, "null", codes=(0, 4))


def _verify(bench: Bench, path: str) -> Command:
    return bench.verify(path, "--jobs", "1", codes=(0, 4))


def _speed(bench: Bench, path: str, what: str, at_most: float) -> Iterator[Row]:
    one, tiny = _misrouted(bench, path), bench.log("first/plain").rpartition("/")[0]
    commands = {
        "start": _misrouted(bench, tiny),
        "1 thread": one,
        "2 threads": _misrouted(bench, path, 2),
        "both": twice(one),
        "verify": _verify(bench, path),
        "verify start": _verify(bench, tiny),
    }
    race = bench.race(_logs(path), commands)
    told = (
        f"{what}, against klog verify, starts taken off: {seconds(race, '1 thread', 'verify', 'start', 'verify start')}"
    )
    net = race.cpu_s("1 thread") - race.cpu_s("start")
    yield Row(f"audit, {what}", told, ratio(net, race.cpu_s("verify") - race.cpu_s("verify start")), at_most=at_most)
    yield thread_row(f"audit, threads, {what}", race, at_least=1.6)


def _twins(bench: Bench) -> Iterator[Row]:
    """The disk has only the headers of 8 GiB: a GiB is passed over too quickly for a difference to be seen."""
    none, twins = (
        _made(bench, name, 8 << 30, _LARGE, percent, "holes")  # of two partitions of four: 2 in a hundred of all
        for name, percent in (("none", 0), ("twins", 4))
    )
    tiny = bench.log("first/plain").rpartition("/")[0]
    commands = {"start": _misrouted(bench, tiny), "none": _misrouted(bench, none), "twins": _misrouted(bench, twins)}
    race = bench.race(_logs(none), commands)
    start_s = race.cpu_s("start")
    told = (
        f"2 % of the batches are legal twins, against none, start taken off: {seconds(race, 'twins', 'none', 'start')}"
    )
    yield Row("audit, twins", told, ratio(race.cpu_s("twins") - start_s, race.cpu_s("none") - start_s), at_most=1.3)
    shutil.rmtree(none)
    shutil.rmtree(twins)


def _memory(bench: Bench) -> Iterator[Row]:
    count = _MANY // bench.scale
    path = _made(bench, "many", _MANY * 100, 100, 0)
    commands = {
        "in memory": _misrouted(bench, path, 1, "--memory", "1GiB"),
        "spilled": _misrouted(bench, path, 1, "--memory", f"{64 // bench.scale}MiB"),
    }
    race = bench.race(_logs(path), commands, 3)
    told = f"largest resident size, {count / 1e6:.0f} million batches, --memory {64 // bench.scale}MiB"
    yield Row("memory, audit", told, race.peak_bytes("spilled") / (1 << 20), "MiB", at_most=64 // bench.scale + 80)
    told = f"with files, against all in memory: {seconds(race, 'spilled', 'in memory')}"
    yield Row("audit, spilled", told, ratio(race.cpu_s("spilled"), race.cpu_s("in memory")), at_most=1.5)
    shutil.rmtree(path)
