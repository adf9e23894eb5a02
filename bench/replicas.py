"""`klog replicas diff` beside `klog verify`, `plan` beside `diff`: copies of the large segment, many small ones."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator

from bench.jobs import Bench, seconds
from bench.measure import Command
from bench.table import Row
from bench.threads import thread_row, twice

_PROPERTIES = "version=1\nnode.id={}\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n"
_FORKED_BYTES = 1 << 20
_FOLDERS = ("equal", "forked", "many-disks", "behind", "parts")


def replicas(bench: Bench) -> Iterator[Row]:
    """Three brokers' disks against one, the plan against the comparison, two processes against one."""
    for folder in _FOLDERS:
        shutil.rmtree(bench.file(folder), ignore_errors=True)
    yield from _compared(bench)
    yield from _filled_up(bench)
    yield from _in_processes(bench)
    for folder in _FOLDERS:
        shutil.rmtree(bench.file(folder))


def _compared(bench: Bench) -> Iterator[Row]:
    equal = _disks(bench, "equal", os.path.dirname(bench.log("topic")))
    forked = _disks(bench, "forked", os.path.dirname(bench.log("topic")))
    _cut(forked[2])
    many = os.path.join(bench.corpora, "many")
    disks = _many(bench, many)
    path = bench.log("topic")
    race = bench.race(
        path,
        {
            "verify": bench.verify(equal[0]),
            "equal": _diff(bench, equal),
            "fork at the end": _diff(bench, forked),
            "verify, many": bench.verify(many),
            "many": _diff(bench, disks),
        },
        3,
    )
    size = f"{os.path.getsize(path) >> 20} MiB"
    told = f"three equal copies of {size} against one verified: {seconds(race, 'equal', 'verify')}"
    yield Row("replicas diff", told, race.cpu_s("equal") / race.cpu_s("verify"), at_most=3.3)
    told = f"the end of one missing against all equal: {seconds(race, 'fork at the end', 'equal')}"
    yield Row("replicas diff", told, race.cpu_s("fork at the end") / race.cpu_s("equal"), at_most=1.1)
    told = f"many small partitions of three brokers against one verified: {seconds(race, 'many', 'verify, many')}"
    yield Row("replicas diff", told, race.cpu_s("many") / race.cpu_s("verify, many"), at_most=4)
    told = f"largest resident size, three copies of {size}, one shorter"
    yield Row("memory, replicas diff", told, race.peak_bytes("fork at the end") / 1e6, "MB", at_most=120)


def _filled_up(bench: Bench) -> Iterator[Row]:
    """A copy that lacks its last 1 %, after a clean stop."""
    path = bench.log("topic")
    disks = _disks(bench, "behind", os.path.dirname(path))
    cut = ("--to-offset", str(bench.records(path) * 99 // 100), "--apply", "--quiet")
    subprocess.run(
        [*bench.klog, "truncate", os.path.join(disks[2], "topic-0"), *cut], check=True, stdout=subprocess.DEVNULL
    )
    for disk in disks:
        with open(os.path.join(disk, ".kafka_cleanshutdown"), "w", encoding="ascii") as file:
            file.write('{"version":0,"brokerEpoch":5}')
    plan = Command([*bench.klog, "replicas", "plan", *disks, "--output", "json", "--quiet"])
    race = bench.race(path, {"plan": plan, "diff": _diff(bench, disks)}, 3)
    (target,) = json.loads(race.output("plan"))["copies"][0]["targets"]
    told = f"bytes copied into a copy that lacks 1 % of {os.path.getsize(path) >> 20} MiB: {target['bytes_copied']}"
    yield Row("replicas plan", told, 100 * target["bytes_copied"] / os.path.getsize(path), "%", at_most=1.1)
    told = f"the plan for it against the comparison alone: {seconds(race, 'plan', 'diff')}"
    yield Row("replicas plan", told, race.cpu_s("plan") / race.cpu_s("diff"), at_most=1.2)


def _in_processes(bench: Bench) -> Iterator[Row]:
    """Four partitions of three copies each."""
    path = bench.log("quarter")
    disks = _disks(bench, "parts", os.path.dirname(path))
    for disk in disks:
        for number in (1, 2, 3):
            shutil.copytree(os.path.join(disk, "topic-0"), os.path.join(disk, f"topic-{number}"))
    one, two = _diff(bench, disks), _diff(bench, disks, jobs=2)
    commands = {"1 thread": one, "2 threads": two, "both": twice(one), "start": bench.start}
    yield thread_row("replicas diff, processes", bench.race(path, commands, max(5, bench.rounds)), at_least=1.6)


def _diff(bench: Bench, disks: list[str], jobs: int = 1) -> Command:
    return Command([*bench.klog, "replicas", "diff", *disks, "--jobs", str(jobs), "--quiet"], codes=(0, 4))


def _disks(bench: Bench, name: str, partition: str) -> list[str]:
    """Make three log dirs with a copy of *partition* each."""
    places = []
    for node in (1, 2, 3):
        place = os.path.join(bench.file(name), str(node))
        target = os.path.join(place, "topic-0")
        shutil.copytree(partition, target)
        with open(os.path.join(target, "partition.metadata"), "w", encoding="ascii") as file:
            file.write("version: 0\ntopic_id: PzrBv7lASuWmpPcXNQyJWg")
        with open(os.path.join(place, "meta.properties"), "w", encoding="ascii") as file:
            file.write(_PROPERTIES.format(node))
        places.append(place)
    return places


def _cut(disk: str) -> None:
    folder = os.path.join(disk, "topic-0")
    log = max(name for name in os.listdir(folder) if name.endswith(".log"))
    path = os.path.join(folder, log)
    os.truncate(path, os.path.getsize(path) - _FORKED_BYTES)


def _many(bench: Bench, root: str) -> list[str]:
    places = []
    for node in (1, 2, 3):
        place = os.path.join(bench.file("many-disks"), str(node))
        shutil.copytree(root, place)
        with open(os.path.join(place, "meta.properties"), "w", encoding="ascii") as file:
            file.write(_PROPERTIES.format(node))
        places.append(place)
    return places
