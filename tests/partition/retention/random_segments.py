"""Segments of random ages, with time indexes that may lie."""

from __future__ import annotations

import os
import random
import struct
import time
from pathlib import Path
from typing import NamedTuple

from tests.oracles.plain.encode import Record, batch
from tests.partition.retention.disks import DAY

AGES = (-40.0, 0.01, 0.4, 1.0, 3.0, 9.0, 40.0)
"""In days, none of them near a limit; a negative one is in the future."""


class Written(NamedTuple):
    """A segment: its records, the bytes of its log, and the settings of its files."""

    base: int
    log: bytes
    timestamp: int
    index: str
    modified_days: float


def random_segments(dice: random.Random, now_ms: int) -> list[Written]:
    """Return some segments of a batch each; their time indexes may be missing, empty or wrong."""
    found, base = [], 0
    for _ in range(dice.randint(1, 6)):
        count, age = dice.randint(1, 12), dice.choice(AGES)
        then = -1 if dice.random() < 0.1 else now_ms - int(age * DAY)
        records = [Record(base + i, then, b"%d" % (base + i), b"v" * dice.randint(1, 60)) for i in range(count)]
        appended = then if then >= 0 and dice.random() < 0.2 else None
        index = dice.choice(["right"] * 6 + ["missing", "empty", "low", "zeros", "all missing"])
        log = batch(records, append_time_ms=appended)
        found.append(Written(base, log, then, index, abs(dice.choice(AGES))))
        base += count + dice.randint(0, 3)
    return found


def write_segments(path: Path, written: list[Written]) -> int:
    """Replace the empty log of a new partition; return its end."""
    for file in path.glob("0*"):
        file.unlink()
    for one in written:
        stem = path / f"{one.base:020}"
        log = stem.with_suffix(".log")
        log.write_bytes(one.log)
        if one.index != "all missing":
            stem.with_suffix(".index").touch()
        entry = struct.pack(">qi", one.timestamp, 0) if one.timestamp >= 0 else b""
        contents = {"right": entry, "empty": b"", "low": struct.pack(">qi", 1000, 0), "zeros": entry + bytes(24)}
        if one.index in contents:
            stem.with_suffix(".timeindex").write_bytes(contents[one.index])
        then = time.time() - one.modified_days * DAY / 1000
        os.utime(log, (then, then))
    return written[-1].base + struct.unpack_from(">i", written[-1].log, 23)[0] + 1
