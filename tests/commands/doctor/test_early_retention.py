"""`klog doctor` if a time index makes retention remove records that are younger than the limit."""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import clients, kafka
from tests.conftest import Ran
from tests.support.metadata_logs import config
from tests.support.rolled_back import NOW_MS, data, metadata, partition

Klog = Callable[..., Ran]
HOUR = 3_600_000
LIMIT_MS = 12 * HOUR
"""More than the tests take, whose records are of the time at which they began."""
TOPIC = 2
"""The type of a topic's settings."""


def disk(folder: Path, age_ms: int = 0, policy: str = "delete") -> Path:
    """Write a partition of three segments with two records each, so old; retention is `LIMIT_MS`."""
    log = metadata(folder, leader_epoch=0, next_producer_id=None)
    log.add(config(TOPIC, "orders", "retention.ms", str(LIMIT_MS)), config(TOPIC, "orders", "cleanup.policy", policy))
    path = partition(folder, [data(0, timestamp=NOW_MS - age_ms)], [(0, 0)])
    for base in (0, 2, 4):
        (path / f"{base:020}.log").write_bytes(data(base, timestamp=NOW_MS - age_ms))
        (path / f"{base:020}.index").touch()
        (path / f"{base:020}.timeindex").write_bytes(entry(NOW_MS - age_ms))
    return path


def entry(timestamp: int) -> bytes:
    return struct.pack(">qi", timestamp, 1)


def ask(klog: Klog, path: Path) -> tuple[dict[str, Any], dict[str, Any], int]:
    """Return the row of the partition, the complete answer, and the exit code."""
    done = klog("doctor", "--output", "json", path.parent)
    found = json.loads(done.stdout)
    (row,) = found["partitions"]
    return row, found, done.exit_code


def older(path: Path, *bases: int) -> None:
    """Give segments a time index whose last entry is a day old."""
    for base in bases:
        (path / f"{base:020}.timeindex").write_bytes(entry(NOW_MS - 24 * HOUR))


@pytest.mark.parametrize(("bases", "lost"), [((0,), 2), ((0, 2), 4), ((0, 2, 4), 6), ((2, 4), 0)])
def test_an_older_time(bases: tuple[int, ...], lost: int, klog: Klog, tmp_path: Path) -> None:
    """A pass ends at the first segment that stays."""
    path = disk(tmp_path / "data")
    older(path, *bases)
    row, found, code = ask(klog, path)
    if not lost:
        assert row["reason"] != "retention-early"
        assert row["lost_records"] == 0
        return
    assert (row["reason"], row["lost_records"], found["loses"], code) == ("retention-early", lost, lost, 4)
    assert [step["command"] for step in found["next"]] == [f"klog recover {path} --apply"]
    klog("recover", path, "--apply")
    assert (ask(klog, path)[0]["lost_records"], ask(klog, path)[2]) == (0, 0)


def test_zeros_are_read_as_1970(klog: Klog, tmp_path: Path) -> None:
    path = disk(tmp_path / "data")
    (path / f"{0:020}.timeindex").write_bytes(entry(NOW_MS) + bytes(12))
    row, _, code = ask(klog, path)
    assert (row["reason"], row["lost_records"], code) == ("retention-early", 2, 4)


def test_without_entries_the_age_of_the_file_decides(klog: Klog, tmp_path: Path) -> None:
    path = disk(tmp_path / "data")
    (path / f"{0:020}.timeindex").write_bytes(b"")
    assert ask(klog, path)[2] == 0
    os.utime(path / f"{0:020}.log", (0, 0))
    row, _, code = ask(klog, path)
    assert (row["reason"], row["lost_records"], code) == ("retention-early", 2, 4)


def test_old_records_are_due_by_the_clusters_settings(klog: Klog, tmp_path: Path) -> None:
    """That is a note, and no loss; only those behind them that are young are lost."""
    path = disk(tmp_path / "data", age_ms=24 * HOUR)
    row, found, code = ask(klog, path)
    assert (row["reason"], row["lost_records"], code, found["retention"][0]["records"]) == (None, 0, 0, 6)
    (path / f"{2:020}.log").write_bytes(data(2))
    row, _, code = ask(klog, path)
    assert (row["reason"], row["lost_records"], code) == ("retention-early", 4, 4)


@pytest.mark.parametrize("case", ["compact", "recovered"])
def test_a_time_that_nobody_goes_by(case: str, klog: Klog, tmp_path: Path) -> None:
    """Compaction asks for no time, and a recovery makes the index again."""
    path = disk(tmp_path / "data", policy="compact" if case == "compact" else "delete")
    older(path, 0)
    if case == "recovered":
        (path.parent / ".kafka_cleanshutdown").unlink()
    row, _, _ = ask(klog, path)
    assert row["lost_records"] == 0


@pytest.mark.kafka
def test_a_real_broker_removes_young_records(klog: Klog, tmp_path: Path) -> None:
    settings = {"log.retention.check.interval.ms": "500", "log.initial.task.delay.ms": "500"}
    now = int(time.time() * 1000)
    with kafka.Cluster(kafka.NEWEST, tmp_path, settings=settings) as cluster:
        topic = {"internal.segment.bytes": "5000", "index.interval.bytes": "500", "retention.ms": str(LIMIT_MS)}
        clients.create(cluster.bootstrap, {"orders": topic, "fine": topic})
        given = [clients.Given(b"k", b"v" * 100, (), now - 1000 + i) for i in range(100)]
        for name in ("orders", "fine"):
            clients.with_librdkafka(cluster.bootstrap, name, "none", given, batch_num_messages=1)
    assert klog("doctor", tmp_path / "data").exit_code == 0
    index = tmp_path / f"data/orders-0/{0:020}.timeindex"
    index.write_bytes(index.read_bytes() + bytes(12))
    found = json.loads(klog("doctor", "--output", "json", tmp_path / "data").stdout)
    (row,) = [one for one in found["partitions"] if one["topic"] == "orders"]
    assert row["reason"] == "retention-early"
    with cluster:
        time.sleep(5)
        served = {name: len(clients.consume(cluster.bootstrap, name, "read_committed")) for name in ("orders", "fine")}
    assert served == {"orders": 100 - row["lost_records"], "fine": 100}
