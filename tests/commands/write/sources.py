"""The corpus of appended topics: the files of a 4.3.1 broker, and its settings."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from klog.formats.producer_snapshot import Producer, read_snapshot
from klog.kernel import crc32c

from tests.conftest import CORPORA

SOURCE = "append/append-source.tar.xz"
TARGETS = {"4.3.1": "append/append-target431.tar.xz", "3.9.1": "append/append-target391.tar.xz"}
EQUAL = ("bytes", "time", "full", "tx", "idem", "java", "crc", "fnv")
"""Topics without compression, LogAppendTime and compaction: their written records equal the originals."""


class Topic(NamedTuple):
    """A topic of the corpus."""

    name: str
    count: int
    settings: dict[str, str]

    @property
    def options(self) -> list[str]:
        """Return the options that `klog write` needs, if no other source has them."""
        known = {name: value for name, value in self.settings.items() if not name.startswith("min.")}
        given = [word for name, value in known.items() for word in ("--set", f"{name}={value}")]
        return ["--partitions", str(self.count), *given]

    def directories(self, data: Path) -> list[Path]:
        """Return its partitions in a log dir."""
        return [data / f"{self.name}-{number}" for number in range(self.count)]


@cache
def truth() -> dict[str, Any]:
    """Return what consumers got of the corpus, and the settings of its topics."""
    with gzip.open(CORPORA / "append/append-source.truth.json.gz") as file:
        found: dict[str, Any] = json.load(file)
    return found


def topic(word: str) -> Topic:
    """Return a topic of the corpus by the second word of its name."""
    name = f"order.{word}"
    count, settings = truth()["topics"][name]
    return Topic(name, count, settings)


def differences(ours: Path, theirs: Path) -> list[str]:
    """Return the files of a partition that differ: snapshots as maps, all others byte by byte."""
    names = {path.name for path in theirs.iterdir() if not path.name.endswith(".deleted")}
    found = sorted(names ^ {path.name for path in ours.iterdir()})
    for name in sorted(names - {"partition.metadata"} - set(found)):
        mine, broker = (ours / name).read_bytes(), (theirs / name).read_bytes()
        same = producers(mine) == producers(broker) if name.endswith(".snapshot") else mine == broker
        found += [] if same else [name]
    return found


def producers(content: bytes) -> dict[int, Producer]:
    """Return the content of a snapshot, by producer id."""
    found = read_snapshot(content, crc32c)
    assert found.problem is None
    return {one.producer_id: one for one in found.producers}


def lines(klog: Callable[..., Any], paths: Sequence[Path], *options: str) -> list[dict[str, Any]]:
    """Return the records of logs, as `klog dump` shows them."""
    done = klog("dump", *map(str, paths), "--output", "jsonl", *options)
    assert done.exit_code == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
