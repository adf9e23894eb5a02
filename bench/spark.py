"""The job about Spark: klog's part of it beside Spark's own, in one session each."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.broker import Broker
from bench.compact import log_dirs, logs
from bench.installed import child
from bench.jobs import Bench, DisagreementError, seconds
from bench.marked import copy_in_first_epoch
from bench.measure import Command, CommandFailedError, warm
from bench.table import Row
from tests.brokers.jars import install_spark_source

TOPIC = "plain"
TIMES = 10
SOME = 4
MANY = 5000
AUDITED = 10
MASTER = "local[2]"


def spark(bench: Bench) -> Iterator[Row]:
    """All jobs on Spark; the session's start is not counted, its first round is not either."""
    folder = log_dirs(bench)
    plain, scratch = os.path.join(folder, "plain"), bench.file("spark-output")
    copies = _copies(bench, plain)
    try:
        yield from _rows(bench, folder)
        yield from _beside_klog(bench, copies[:SOME], logs(folder, "plain"))
        yield from _two_cores(bench, copies)
        yield _against(bench, "export", plain, "Spark's writer", 0.5, scratch)
        for topic in ("plain", "unique"):
            yield _against(bench, "compact", os.path.join(folder, topic), "groupBy", 0.4, scratch)
        yield from _audit(bench)
        yield from _many(bench)
        yield from _memory(bench, scratch, copies)
    finally:
        for path in (scratch, os.path.dirname(copies[0])):
            shutil.rmtree(path, ignore_errors=True)


def _copies(bench: Bench, plain: str) -> list[str]:
    """Return log dirs that have the same gigabyte under other names."""
    place = bench.file("spark-copies")
    shutil.rmtree(place, ignore_errors=True)
    paths = [os.path.join(place, f"copy-{number}") for number in range(TIMES)]
    for path in paths:
        shutil.copytree(plain, path, copy_function=os.link)
    return paths


def _run(bench: Bench, job: str, *words: str, master: str = MASTER, rounds: int = 0, jars: str = "") -> dict[str, Any]:
    """Return the cost of each contestant of *job*, by their names."""
    bench.tell(f"on Spark ({master}): {job}")
    command = [sys.executable, child("onspark.py"), master, str(rounds or bench.slow), job, *words]
    if master == "local[1]":  # the JVM and the driver too
        command = ["taskset", "-c", "0", *command]
    variables = {**os.environ, "BENCH_SPARK_JARS": jars}
    done = subprocess.run(command, capture_output=True, text=True, env=variables)
    if done.returncode:
        raise CommandFailedError(f"{job} on Spark: {done.stderr[-500:]}")
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def _told(race: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {one['cpu']:.2f} s" for name, one in race.items())


def _rows(bench: Bench, folder: str) -> Iterator[Row]:
    """All rows of a broker's topic: from its disk, from itself, and from batches that are only passed on."""
    broker = Broker(bench)
    jars = ",".join(str(path) for path in sorted(install_spark_source().iterdir()))
    try:
        bench.tell("making a log dir for a broker")
        broker.make({TOPIC: 1})
        place = broker.emptied(TOPIC, 0)
        for log in logs(folder, TOPIC):
            copy_in_first_epoch(log, os.path.join(place, os.path.basename(log)))
        broker.forget()
        broker.start()
        for name in os.listdir(place):
            warm(os.path.join(place, name))
        race = _run(bench, "rows", broker.data, TOPIC, broker.address, str(broker.process), jars=jars)
    finally:
        broker.remove()
    cpu = {name: one["cpu"] for name, one in race.items()}
    _agree("rows", race["klog"]["result"], race["Kafka source"]["result"])
    told = f"{_told(race)}, the broker's own with it ({bench.slow})"
    yield Row("Spark, all rows", f"Kafka source over klog: {told}", cpu["Kafka source"] / cpu["klog"], at_least=3)
    wall = {name: one["wall"] for name, one in race.items()}
    told = ", ".join(f"{name} {wall_s:.2f} s" for name, wall_s in wall.items())
    ratio = wall["Kafka source"] / wall["klog"]
    yield Row("Spark, all rows", f"the same, wall: {told}", ratio, at_least=3)
    told = "batches made beforehand over klog"
    yield Row("Spark, all rows", told, cpu["made beforehand"] / cpu["klog"], at_least=0.6)


def _agree(job: str, ours: object, theirs: object) -> None:
    if ours != theirs:
        raise DisagreementError(f"{job}: klog came to {ours}, Spark to {theirs}")


def _beside_klog(bench: Bench, paths: list[str], over: list[str]) -> Iterator[Row]:
    """The same function in a process of its own and in Spark's tasks."""
    commands = {
        "verify": Command([*bench.klog, "verify", *paths, "--jobs", "1"], "null"),
        "stats": Command([sys.executable, child("onspark.py"), "alone", *paths]),
    }
    race = bench.race(over, commands, bench.slow)
    for job in commands:
        ours = _run(bench, job, *paths)["klog"]
        told = f"{len(paths)} GiB, on Spark {ours['cpu']:.2f} s; {seconds(race, job)} with its start"
        yield Row(f"Spark, {job}", told, ours["cpu"] / race.cpu_s(job), at_most=3)


def _two_cores(bench: Bench, paths: list[str]) -> Iterator[Row]:
    """Work of seconds: a job without work takes 0.4 s."""
    for job in ("deep", "stats"):
        one, two = (_run(bench, job, *paths, master=f"local[{cores}]")["klog"]["wall"] for cores in (1, 2))
        name = {"deep": "verify --deep"}.get(job, job)
        told = f"{name} of {len(paths)} GiB, wall on one core {one:.2f} s, on two {two:.2f} s"
        yield Row("Spark, two cores", told, one / two, at_least=1.6)


def _against(bench: Bench, job: str, path: str, other: str, most: float, scratch: str) -> Row:
    race = _run(bench, job, path, scratch, rounds=2)
    _agree(job, race["klog"]["result"], race[other]["result"])
    told = f"{os.path.basename(path)}, {race['klog']['result']} rows: {_told(race)} (2)"
    return Row(f"Spark, {job}", told, race["klog"]["cpu"] / race[other]["cpu"], at_most=most)


def _audit(bench: Bench) -> Iterator[Row]:
    """Batches of 16 KB, only whose headers are on the disk: nothing else is read of them."""
    folder = bench.file("spark-audit")
    shutil.rmtree(folder, ignore_errors=True)
    words = [folder, str((AUDITED << 30) // bench.scale), str(16 << 10), "8", "0", "holes"]
    bench.race((), {"made": Command([bench.peers, child("batches.py"), *words])}, 1)
    alone = Command([*bench.klog, "audit", "misrouted", folder, "--quiet", "--jobs", "1"], "null")
    race = bench.race([str(log) for log in sorted(Path(folder).rglob("*.log"))], {"audit": alone}, bench.slow)
    ours = _run(bench, "audit", folder)["klog"]
    shutil.rmtree(folder)
    rows, batches, resident = ours["result"]
    what = f"{AUDITED} GiB, {batches} batches, {rows} misrouted"
    told = f"{what}, on Spark {ours['cpu']:.2f} s; {seconds(race, 'audit')} with its start"
    yield Row("Spark, audit", told, ours["cpu"] / race.cpu_s("audit"), at_most=3)
    yield Row("memory, Spark", "audit, the driver", resident / 1e6, "MB", at_most=1000)


def _many(bench: Bench) -> Iterator[Row]:
    """A batch of 16 KB in each partition."""
    place = bench.file("spark-many")
    if not os.path.isdir(place):
        for number in range(MANY):
            target = os.path.join(place, f"topic{number % 100}-{number // 100}")
            shutil.copytree(os.path.dirname(bench.log("first/plain")), target, copy_function=os.link)
    for name, one in _run(bench, "many", place).items():
        yield Row("Spark, many", f"{MANY} partitions, {name}: CPU {one['cpu']:.2f} s", one["wall"], "s wall", at_most=3)


def _memory(bench: Bench, scratch: str, paths: list[str]) -> Iterator[Row]:
    for job, one in _run(bench, "memory", scratch, *paths, rounds=1).items():
        peak, size = one["result"], 1 if job in ("export", "compact") else len(paths)
        told = f"{job} of {size} GiB: JVM with a heap of 1 GiB, {peak['jvm'] / 1e6:.0f} MB resident"
        yield Row("memory, Spark", told, peak["worker"] / 1e6, "MB a worker", at_most=250)
