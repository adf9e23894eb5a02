"""Disks of a cluster with one topic, whose segments are of known ages."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.oracles.plain.encode import Record, batch
from tests.support.metadata_logs import uuid, value
from tests.support.rolled_back import metadata

TOPIC, BROKER = 2, 4
DAY = 86_400_000
RECORDS = 10


class Age(NamedTuple):
    """A segment of ten records: how old they are, in days; *log_append*: their batch has the broker's time."""

    days: float
    log_append: bool = False


def segment(base: int, age: Age, now_ms: int | None = None) -> bytes:
    """Return the log of a segment."""
    then = int((now_ms or time.time() * 1000) - age.days * DAY)
    # With LogAppendTime only the batch's largest timestamp counts; records keep those of their producers.
    produced = then - 400 * DAY if age.log_append else then
    records = [Record(base + i, produced, b"k%d" % i, b"v" * 20) for i in range(RECORDS)]
    return batch(records, append_time_ms=then if age.log_append else None)


def partition(path: Path, ages: Sequence[Age], time_index: bool = True) -> Path:
    """Write a partition directory with a segment for each of *ages*."""
    path.mkdir(parents=True)
    (path / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid(7)}")
    (path / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    now_ms = int(time.time() * 1000)
    for number, age in enumerate(ages or [None]):
        base = number * RECORDS
        (path / f"{base:020}.log").write_bytes(b"" if age is None else segment(base, age, now_ms))
        (path / f"{base:020}.index").touch()
        entry = b"" if age is None else struct.pack(">qi", int(now_ms - age.days * DAY), RECORDS - 1)
        if time_index:
            (path / f"{base:020}.timeindex").write_bytes(entry)
    return path


def disk(
    folder: Path,
    settings: Mapping[str, str],
    broker: Mapping[str, str] | None = None,
    nodes: Sequence[int] = (1,),
    of_node: str = "1",
) -> Path:
    """Write the log dir of node 1 with the metadata log of a cluster that has orders-0 on *nodes*.

    *settings*: set on the topic; *broker*: set dynamically for *of_node*, of all nodes where that is empty.
    """
    log = metadata(folder, 0, 0, replicas=nodes)
    for name, text in settings.items():
        log.add(value("Config", resourceType=TOPIC, resourceName="orders", name=name, value=text))
    for name, text in (broker or {}).items():
        log.add(value("Config", resourceType=BROKER, resourceName=of_node, name=name, value=text))
    return folder


def second_disk(folder: Path) -> Path:
    """Write the log dir of node 2, which has no partition."""
    folder.mkdir()
    (folder / "meta.properties").write_text(f"version=1\ncluster.id=x\nnode.id=2\ndirectory.id={uuid(102)}\n")
    (folder / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":11}')
    return folder
