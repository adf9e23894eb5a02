"""The memory of commands over logs of some kilobytes that unpack to gigabytes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from bench.jobs import Bench
from bench.measure import Command
from bench.table import Row
from tests.support.bomb_dirs import BOMBS

_RUNS = (
    ("headers", "dump", "--output", "jsonl"),
    ("headers", "search"),
    ("a large key", "search"),
    ("tiny records", "dump", "--print-data-log"),
    ("topics of a transaction", "transactions"),
    ("tags of a topic", "metadata", "show"),
    ("many groups", "groups"),
    ("long names", "timeline"),
)
_CODES = (0, 4)


def bombs(bench: Bench) -> Iterator[Row]:
    """The largest of some commands, each over the log that costs it most."""
    root = Path(bench.file("bombs"))
    shutil.rmtree(root, ignore_errors=True)
    commands: dict[str, Command] = {}
    for name, *words in _RUNS:
        log_dir = root / name.replace(" ", "-")
        if not log_dir.exists():
            BOMBS[name].write(log_dir, "zstd")
        commands[f"{words[0]}, {name}"] = Command([*bench.klog, *words, str(log_dir)], "null", at_most=1, codes=_CODES)
    race = bench.race([str(path) for path in root.rglob("*.log")], commands, 1)
    peaks = {one: race.peak_bytes(one) for one in commands}
    worst = max(peaks, key=lambda one: peaks[one])
    yield Row("memory, unpacking", f"largest resident size, {worst}", peaks[worst] / 1e6, "MB", at_most=700)
    shutil.rmtree(os.fspath(root))
