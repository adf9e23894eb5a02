"""The removals of retention according to a plan are doctor's after applying it, on random logs and settings."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Ran
from tests.partition.retention.disks import DAY, Age, disk, partition, second_disk
from tests.partition.retention.random_segments import random_segments, write_segments
from tests.support.samples import sampled

Run = Callable[..., Ran]
pytestmark = pytest.mark.usefixtures("hasty")
seeds = pytest.mark.parametrize("seed", sampled(range(200), 20))


def settings(dice: random.Random) -> dict[str, str]:
    found = {}
    if dice.random() < 0.7:
        found["retention.ms"] = str(dice.choice([-1, DAY // 5, 2 * DAY, 7 * DAY]))
    if dice.random() < 0.5:
        found["retention.bytes"] = str(dice.choice([0, 300, 900, 3000, -1]))
    if dice.random() < 0.2:
        found["message.timestamp.type"] = "LogAppendTime"
    return found


def source(dice: random.Random, log_dir: Path) -> Path:
    """Write a partition with its log dir's facts about it."""
    path = partition(log_dir / "orders-0", ())
    end = write_segments(path, random_segments(dice, int(time.time() * 1000)))
    for name in ("recovery-point", "replication"):
        (log_dir / f"{name}-offset-checkpoint").write_text(f"0\n1\norders 0 {end}\n")
    if dice.random() < 0.3:
        (log_dir / "log-start-offset-checkpoint").write_text(f"0\n1\norders 0 {dice.randint(0, end)}\n")
    return path


def due(ran: Ran) -> list[dict[str, Any]]:
    assert ran.exit_code == 0, ran.stderr
    found: list[dict[str, Any]] = json.loads(ran.stdout)["retention"]
    return found


def records(rows: list[dict[str, Any]]) -> int:
    return sum(row["records"] for row in rows)


@seeds
def test_adopt_and_doctor_agree(klog: Run, tmp_path: Path, seed: int) -> None:
    """A source that lacks its time indexes gets them, and then is as old as its records."""
    dice = random.Random(seed)
    data = disk(tmp_path / "data", settings(dice))
    partition(data / "orders-0", ())
    if dice.random() < 0.3:
        (data / ".kafka_cleanshutdown").unlink()
    said = due(klog("adopt", source(dice, tmp_path / "source"), "--to", data, "--apply", "--output", "json"))
    assert records(said) == records(due(klog("doctor", data, "--output", "json")))


@seeds
def test_only_broker_and_doctor_agree(klog: Run, tmp_path: Path, seed: int) -> None:
    """A new copy is as old as the one that it was made from."""
    dice = random.Random(seed)
    data, other = disk(tmp_path / "data", settings(dice), nodes=(1, 2)), second_disk(tmp_path / "other")
    source(dice, data)
    said = due(klog("metadata", "plan", data, other, "--only-broker", "2", "--apply", "--output", "json"))
    assert records(said) == records(due(klog("doctor", other, "--output", "json")))


@seeds
def test_write_and_doctor_agree(klog: Run, tmp_path: Path, seed: int) -> None:
    """The records are written twice; doctor also counts the earlier ones, and segments are compared."""
    dice = random.Random(seed)
    data = disk(tmp_path / "data", settings(dice))
    partition(data / "orders-0", [Age(dice.choice((0.01, 1, 9))) for _ in range(dice.randint(0, 2))])
    given = tmp_path / "orders.jsonl"
    for _ in range(2):
        rows = [
            {"topic": "orders", "partition": 0, "key": "k", "value": "v" * dice.randint(1, 60),
             "timestamp": int(time.time() * 1000 - dice.choice((0.01, 1, 9)) * DAY) if dice.random() < 0.95 else -1}
            for _ in range(dice.randint(1, 40))
        ]  # fmt: skip
        given.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        options = ["--set", f"segment.bytes={dice.choice([400, 900, 5000])}", "--batch-size", "200"]
        ran = klog("write", given, "--to", data, "--apply", "--output", "json", *options)
        written = json.loads(ran.stdout)["partitions"][0]
        found = due(klog("doctor", data, "--output", "json"))
        bases = sorted(int(log.stem) for log in (data / "orders-0").glob("*.log"))
        left = [*bases, written["log_end_offset"]][found[0]["segments"]] if found else 0
        assert records(due(ran)) == max(0, left - written["first_offset"])
