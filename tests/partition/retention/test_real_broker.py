"""The removals of a first retention pass according to doctor are those of a real broker's first pass: no more and no
less."""

from __future__ import annotations

import json
import random
import struct
import time
from pathlib import Path

import pytest

from tests.brokers import clients, kafka
from tests.conftest import run_klog
from tests.partition.retention.disks import DAY
from tests.partition.retention.random_segments import random_segments, write_segments

pytestmark = pytest.mark.kafka
TOPICS = 24
BROKER = {
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "500",
    "log.segment.delete.delay.ms": "100",
    "log.cleaner.backoff.ms": "500",
}
KEPT = {"min.compaction.lag.ms": str(1000 * DAY), "min.cleanable.dirty.ratio": "1.0"}
"""A cleaner that found something to do would do it first, and rewrite segments with time indexes that are right."""
SAMPLES = [pytest.param("4.3.1", 0)] + [
    pytest.param(version, seed, marks=pytest.mark.long) for version in ("4.3.1", "3.9.1") for seed in range(1, 9)
]


def settings(dice: random.Random) -> dict[str, str]:
    """Choose the settings of a topic; without a limit of its own it has the broker's."""
    found = dict(KEPT)
    if dice.random() < 0.3:
        found["cleanup.policy"] = dice.choice(["compact", "compact,delete"])
    if dice.random() < 0.8:
        found["retention.ms"] = str(dice.choice([-1, DAY // 5, 2 * DAY, 7 * DAY, 30 * DAY]))
    if dice.random() < 0.4:
        found["retention.bytes"] = str(dice.choice([-1, 0, 400, 1500, 4000, 100_000]))
    if dice.random() < 0.2:
        found["message.timestamp.type"] = "LogAppendTime"
    return found


def offsets(path: Path, log_start: int) -> list[int]:
    """Return the offsets of a partition's records from its log start on; each of its segments is a batch or nothing."""
    found: list[int] = []
    for log in sorted(path.glob("*.log")):
        content = log.read_bytes()
        if content:
            base, count = struct.unpack_from(">q", content)[0], struct.unpack_from(">i", content, 57)[0]
            found += range(base, base + count)
    return [one for one in found if one >= log_start]


@pytest.mark.parametrize(("version", "seed"), SAMPLES)
def test_a_first_pass_removes_what_doctor_says(tmp_path: Path, version: str, seed: int) -> None:
    """Random segments, settings, time indexes and log starts, after a clean stop and after a kill."""
    dice = random.Random(seed)
    limit = dice.choice([-1, 7 * DAY])
    cluster = kafka.Cluster(version, tmp_path, settings={**BROKER, "log.retention.ms": str(limit)})
    topics = {f"t{number:02}": settings(dice) for number in range(TOPICS)}
    with cluster:
        clients.create(cluster.bootstrap, topics)
    ends, starts, now_ms = {}, {}, int(time.time() * 1000)
    for topic in topics:
        ends[topic] = write_segments(cluster.data / f"{topic}-0", random_segments(dice, now_ms))
        if dice.random() < 0.3:
            starts[topic] = dice.randint(0, ends[topic])
    points = {topic: dice.choice([end, end // 2, 0]) for topic, end in ends.items()}
    for name, lines in (("recovery-point", points), ("replication", ends), ("log-start", starts)):
        rows = "".join(f"{topic} 0 {offset}\n" for topic, offset in lines.items())
        (cluster.data / f"{name}-offset-checkpoint").write_text(f"0\n{len(lines)}\n{rows}")
    if dice.random() < 0.5:
        (cluster.data / ".kafka_cleanshutdown").unlink()
    told = run_klog(
        "doctor",
        "--server-properties",
        tmp_path / "server.properties",
        "--output",
        "json",
        "--kafka-version",
        version[:3],
    )
    found = json.loads(told.stdout)
    reasons = {row["reason"] for row in found["partitions"]} - {None}
    assert found["starts"], told.stdout
    assert reasons <= {"retention-early", "index-wrong"}, "the time indexes are random"
    assert told.exit_code == (4 if reasons else 0), told.stdout
    rows_by_topic = {row["topic"]: row for row in found["retention"]}
    before = {topic: offsets(cluster.data / f"{topic}-0", starts.get(topic, 0)) for topic in topics}
    with cluster:
        time.sleep(5)
    for topic in topics:
        left = offsets(cluster.data / f"{topic}-0", starts.get(topic, 0))
        removed = rows_by_topic[topic]["records"] if topic in rows_by_topic else 0
        assert before[topic][removed:] == left, (topic, topics[topic], rows_by_topic.get(topic))
    assert len({row["records"] for row in rows_by_topic.values()}) > 2
