"""`klog space` beside du, and `klog report` beside `klog verify`: a tree of many small partitions."""

from __future__ import annotations

import os
from collections.abc import Iterator

from bench.jobs import Bench, seconds
from bench.measure import Command
from bench.table import Row


def space(bench: Bench) -> Iterator[Row]:
    """The first answer about all partitions against du, both without the start of the process; its memory."""
    root = os.path.join(bench.corpora, "many")
    one = next(entry.path for entry in os.scandir(root) if entry.is_dir())
    race = bench.race(
        (),
        {
            "space": Command([*bench.klog, "space", root], "null"),
            "start": Command([*bench.klog, "space", one], "null"),
            "du": Command(["du", "-s", root], "null"),
        },
    )
    partitions = sum(entry.is_dir() for entry in os.scandir(root))
    told = f"{partitions:,} partitions against du, without the start: {seconds(race, 'space', 'start', 'du')}"
    yield Row("space, many", told, (race.cpu_s("space") - race.cpu_s("start")) / race.cpu_s("du"), "×", at_most=3)
    space_s, start_s, du_s = (race.best_wall_s(name) for name in ("space", "start", "du"))
    told = f"seconds until it is there: space {space_s:.3f}, start {start_s:.3f}, du {du_s:.3f}"
    yield Row("space, many, wall", told, (space_s - start_s) / du_s, "×", at_most=3)
    yield Row("memory, space", "largest resident size", race.peak_bytes("space") / 1e6, "MB", at_most=150)


def report(bench: Bench) -> Iterator[Row]:
    """The page of all partitions: its cost beyond that of the check in it; its memory."""
    root, page = os.path.join(bench.corpora, "many"), bench.file("report.html")
    words = [*bench.klog, "report", root, "--to", page, "--jobs", "1", "--quiet"]
    race = bench.race((), {"report": Command(words, "null"), "verify": bench.verify(root)})
    told = f"{os.path.getsize(page) >> 10} KiB, beyond klog verify: {seconds(race, 'report', 'verify')}"
    yield Row("report, many", told, race.cpu_s("report") - race.cpu_s("verify"), "s", at_most=2)
    yield Row("memory, report", "largest resident size", race.peak_bytes("report") / 1e6, "MB", at_most=150)
    os.unlink(page)
