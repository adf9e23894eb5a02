"""The needs of a starting broker: after a kill, after `klog recover --mark-clean`, after a clean stop."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from statistics import median

from bench.broker import Broker, Started
from bench.jobs import Bench, DisagreementError
from bench.measure import Command, run
from bench.table import Row

PARTITIONS = 4
"""The number of partitions, of 256 MiB of one-record batches each."""
WAYS = ("its own recovery", "marked", "clean")
RECOVERY = re.compile(r"Recovering unflushed|Recovering \d+ logs")


def copy_in_first_epoch(log: str, target: str) -> None:
    """Copy a log as if the partition's first leader had written it; no checksum covers the epoch."""
    with open(log, "rb") as file:
        data = bytearray(file.read())
    at = 0
    while at < len(data):
        data[at + 12 : at + 16] = bytes(4)
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    with open(target, "wb") as file:
        file.write(data)


def recover_marked(bench: Bench) -> Iterator[Row]:
    """A killed broker's start: with its own recovery, after ours, and beside a start after a clean stop."""
    log = bench.log("single")
    broker = Broker(bench)
    found: dict[str, list[Started]] = {way: [] for way in WAYS}
    klog_s: list[float] = []
    words = [*bench.klog, "recover", broker.data, "--mark-clean", "--apply", "--quiet", "--jobs", "1"]
    mark = Command(words, "null", codes=(1,))  # something was put right
    try:
        bench.tell("making a log dir for a broker")
        broker.make({"single": PARTITIONS})
        for number in range(PARTITIONS):
            copy_in_first_epoch(log, os.path.join(broker.emptied("single", number), "0" * 20 + ".log"))
        broker.forget()
        for turn in range(bench.slow):
            bench.tell(f"round {turn + 1} of {bench.slow}: brokers")
            found["its own recovery"].append(broker.start())
            broker.stop()
            found["clean"].append(broker.start())
            broker.kill()
            broker.forget()
            klog_s.append(run(mark).cpu_s)
            found["marked"].append(broker.start())
            broker.kill()
            broker.forget()
    finally:
        broker.remove()
    for way, starts in found.items():
        if any(_recovers(one.said) != (way == WAYS[0]) for one in starts):
            raise DisagreementError(f"a start ({way}) did, or did not, recover its logs")
    yield from _rows(PARTITIONS * os.path.getsize(log), found, klog_s)


def _recovers(said: str) -> bool:
    return any(RECOVERY.search(line) and "single" in line for line in said.splitlines())


def _rows(size: int, found: dict[str, list[Started]], klog_s: list[float]) -> Iterator[Row]:
    job, runs = f"recover --mark-clean, {size >> 20} MiB, one-record batches", f"({len(klog_s)})"
    loaded = {way: median(one.loaded_ms for one in starts) for way, starts in found.items()}
    cpu = {way: median(one.cpu_s for one in starts) for way, starts in found.items()}
    wall = {way: median(one.wall_s for one in starts) for way, starts in found.items()}
    told = ", ".join(f"{way} {ms:.0f} ms" for way, ms in loaded.items())
    yield Row(job, f'a broker\'s "Loaded … logs": {told} {runs}', loaded[WAYS[0]] / loaded["marked"])
    told = ", ".join(f"{way} {wall_s:.2f} s" for way, wall_s in wall.items())
    ready = f"wall time until it is ready, marked over clean: {told} {runs}"
    yield Row(job, ready, wall["marked"] / wall["clean"], at_most=1.2)
    told = ", ".join(f"{way} {cpu_s:.2f} s" for way, cpu_s in cpu.items())
    ready = f"CPU until it is ready, marked over clean: {told} {runs}"
    yield Row(job, ready, cpu["marked"] / cpu["clean"], at_most=1.2)
    own_s, ours_s = cpu[WAYS[0]] - cpu["clean"], median(klog_s)
    told = f"CPU of the recovery: broker {own_s:.2f} s (less a clean start), klog {ours_s:.2f} s {runs}"
    yield Row(job, told, own_s / ours_s)
