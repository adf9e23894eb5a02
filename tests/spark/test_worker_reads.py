"""Workers read as the command or the options of the data source say: cache, rate of an executor, priority."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from klog.base.errors import UsageError
from klog.base.page_cache import POLICY
from klog.base.progress import Silence
from klog.data_dir.partition import Partition
from klog.data_dir.read_options import ReadOptions, reading
from klog.jobs.runner import Job, collect
from klog.jobs.slices import slice_partition
from klog.spark.read_tasks import Task, read_task
from klog.spark.run import SparkRunner
from klog.spark.source_options import read_options
from pyspark.sql import SparkSession

from tests.conftest import FIXTURES
from tests.spark import tasks

MODERN = FIXTURES / "modern"


@pytest.mark.spark
def test_a_job_is_done_as_its_command_reads(spark: SparkSession) -> None:
    """Two workers of an executor share its rate."""

    def ways() -> list[list[object]]:
        results = collect(SparkRunner(spark), Job(tasks.ways_of_reading, [0, 1, 2, 3], None, [1] * 4), Silence())
        return [result.facts for result in results]

    nice = max(way[2] for way in ways() if isinstance(way[2], int))
    with reading([str(MODERN)], ReadOptions("drop", 1 << 30, "low"), str):
        found = ways()
    assert {way[0] for way in found} == {True}
    assert {way[2] for way in found} == {max(nice, 10)}
    rates = [way[1] for way in found if isinstance(way[1], int)]
    assert len(rates) == 4
    assert min(rates) <= 1 << 29
    assert {tuple(way[:2]) for way in ways()} == {(False, None)}


def test_a_task_of_the_data_source_reads_as_its_options_say(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def noted(parts: object, query: object) -> list[object]:
        seen.append((POLICY.drops, POLICY.rate is not None, os.getpriority(os.PRIO_PROCESS, 0)))
        return []

    monkeypatch.setattr("klog.jobs.spark_rows.read", noted)
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    path = {"path": str(MODERN)}
    part = Task(tuple(slice_partition(Partition(str(MODERN / "tx-0")), 1 << 20)))
    list(read_task(part, ("value",), read_options(path)))
    list(read_task(part, ("value",), read_options(path | {"cache": "drop", "rate": "20m", "priority": "low"})))
    assert seen == [(False, False, nice), (True, True, max(nice, 10))]
    assert not POLICY.is_on


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("cache", "dropp", "cache: 'dropp' is none of drop, keep"),
        ("priority", "high", "priority: 'high' is none of normal, low"),
        ("rate", "fast", "rate: 'fast' is not a size"),
    ],
)
def test_a_wrong_option_of_the_data_source_is_named(name: str, value: str, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        read_options({"path": str(Path("/data")), name: value})
