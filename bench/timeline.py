"""`klog timeline` beside the pass of `klog verify`, which reads the same bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator

from bench.jobs import Bench, seconds
from bench.measure import Command
from bench.table import Row


def timeline(bench: Bench) -> Iterator[Row]:
    """Large and small batches in one partition, and many small partitions; with the start of the process."""
    many = os.path.join(bench.corpora, "many")
    for name, path, over in (
        ("16 KB batches", os.path.dirname(bench.log("topic")), bench.log("topic")),
        ("single-record batches", os.path.dirname(bench.log("single")), bench.log("single")),
        ("many partitions", many, os.path.join(many, "meta.properties")),
    ):
        words = [*bench.klog, "timeline", path, "--jobs", "1"]
        commands = {"timeline": Command(words, "null"), "verify": bench.verify(path)}
        race = bench.race(over, commands, bench.slow)
        ratio = race.cpu_s("timeline") / race.cpu_s("verify")
        at_most = 1.1 if name == "16 KB batches" else None
        yield Row(f"timeline, {name}", f"against klog verify: {seconds(race, *commands)}", ratio, at_most=at_most)
        if at_most is not None:
            peak = race.peak_bytes("timeline") / 1e6
            yield Row("memory, timeline", f"of {os.path.getsize(over) >> 20} MiB", peak, "MB", at_most=80)
