"""Jobs on Spark: results in order, whatever happens to workers; errors in a line; ^C."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from klog.base.errors import DamagedError, SparkError
from klog.base.progress import Silence
from klog.base.unusable import UNUSABLE
from klog.jobs.runner import Job, TaskResult, collect
from klog.spark.run import SparkRunner, arrow_frame, is_connect
from pyspark.sql import SparkSession

from tests.spark import tasks

pytestmark = pytest.mark.spark


class Heard(Silence):
    """The progress that a sink received."""

    def __init__(self) -> None:
        self.expected = self.done = 0

    def expect(self, size: int) -> None:
        self.expected += size

    def advance(self, size: int, path: str = "") -> None:
        self.done += size


def run(
    spark: SparkSession,
    job: Callable[[Any, Any], Iterator[TaskResult]],
    units: Sequence[Any],
    options: object,
    sizes: Sequence[int],
    sink: Silence | None = None,
) -> list[Any]:
    results = collect(SparkRunner(spark), Job(job, units, options, sizes), sink or Silence())
    return [result.facts for result in results]


def test_results_come_in_the_order_of_the_units(spark: SparkSession) -> None:
    """Findings are told partition by partition, as klog does it without Spark; nothing of it may hang on timing."""
    units = [3, 0, 5, 1]
    assert run(spark, tasks.doubled, units, 10, units) == [10 * number for unit in units for number in range(unit)]
    assert run(spark, tasks.doubled, [], 10, []) == []


def test_progress_is_told_in_bytes_and_ends_at_all_of_them(spark: SparkSession) -> None:
    heard = Heard()
    run(spark, tasks.doubled, [1, 2, 3], 1, [100, 20, 3], heard)
    assert (heard.expected, heard.done) == (123, 123)


def test_the_way_through_arrow_gives_the_same(spark: SparkSession) -> None:
    """Spark Connect has no other; in a classic session it can be walked too."""
    units = [3, 0, 5]
    frame = arrow_frame(spark, pickle.dumps((tasks.doubled, 7)), [pickle.dumps([one]) for one in enumerate(units)])
    found = [one for row in frame.collect() for one in pickle.loads(bytes(row[0]))[0]]
    assert [result.facts for _, result in found] == run(spark, tasks.doubled, units, 7, units)
    assert [number for number, _ in found] == [0] * 3 + [2] * 5
    assert not is_connect(spark)
    assert SparkRunner(spark).workers == 2


def test_waves_change_nothing_and_nothing_is_done_after_the_last_that_is_wanted(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A limit of records allows no more than one wave of reads; results of all would not fit into the driver."""
    units, found = list(range(40)), list[TaskResult]()
    every, some = tmp_path / "every", tmp_path / "some"
    every.mkdir()
    some.mkdir()
    SparkRunner(spark).run(Job(tasks.noted, units, str(every), [10] * 40), Silence(), found.append, 20)
    assert [result.facts for result in found] == units
    assert len(list(every.iterdir())) == 40
    found.clear()

    def take(result: TaskResult) -> bool:
        found.append(result)
        return len(found) == 3

    SparkRunner(spark).run(Job(tasks.noted, units, str(some), [10] * 40), Silence(), take, 20)
    assert [result.facts for result in found] == [0, 1, 2]
    assert len(list(some.iterdir())) == 2 + 16


def test_a_worker_that_dies_costs_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """On one machine Spark would not try again by itself: klog asks for it."""
    units = [4, 3, 2]
    assert run(spark, tasks.once_killed, units, str(tmp_path), units) == [0, 2, 4, 6, 0, 2, 4, 0, 2]
    assert sorted(os.listdir(tmp_path)) == ["2", "3", "4"]


@pytest.mark.parametrize(
    ("unit", "kind", "said"),
    [(1, DamagedError, "no: way\\"), (0, SparkError, "the job failed: ZeroDivisionError: no: way\\")],
)
def test_what_is_raised_in_a_task_is_a_line(spark: SparkSession, unit: int, kind: type[Exception], said: str) -> None:
    """Spark gives two stack traces in two languages; the operator needs the sentence that klog wrote, and its code."""
    with pytest.raises(kind) as raised:
        run(spark, tasks.refused, [unit], "no: way\\", [1])
    assert str(raised.value) == said


def interrupted(marks: Path, after: Callable[[], None] = lambda: None) -> threading.Thread:
    """Start a thread that sends ^C as soon as a task has begun."""

    def send() -> None:
        while not os.listdir(marks):
            time.sleep(0.01)
        time.sleep(0.2)
        after()
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def test_an_interrupt_cancels_the_job_within_a_second(spark: SparkSession, tmp_path: Path) -> None:
    """PySpark's own handler leaves the job running to its end.  The session stays good for the next one.

    The quickest of several tries counts: the machine may be busy with something else.
    """
    before = signal.getsignal(signal.SIGINT)
    taken: list[float] = []
    while len(taken) < 5 and min(taken, default=1) >= 1:
        began: list[float] = []
        marks = tmp_path / str(len(taken))
        marks.mkdir()
        thread = interrupted(marks, lambda began=began: began.append(time.monotonic()))  # type: ignore[misc]
        with pytest.raises(KeyboardInterrupt):
            run(spark, tasks.slow, [30.0] * 4, str(marks), [1] * 4)
        taken.append(time.monotonic() - began[0])
        thread.join()
        assert taken[-1] < 10
        assert signal.getsignal(signal.SIGINT) is before
        assert spark.sparkContext.statusTracker().getActiveJobsIds() == []
    assert min(taken) < 1
    assert run(spark, tasks.doubled, [2], 1, [1]) == [0, 1]


def test_relative_paths_mean_in_tasks_what_they_mean_here(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Executors stand in directories of their own, and `klog spark verify data` is what people type."""
    monkeypatch.chdir(tmp_path)
    assert run(spark, tasks.folders, [0], None, [0]) == [str(tmp_path)]
    monkeypatch.undo()
    assert run(spark, tasks.folders, [0], None, [0]) == [os.getcwd()]


def test_what_a_task_may_not_read_the_driver_names(spark: SparkSession) -> None:
    """The command that runs on the driver has it in its exit code; a task does not inherit what another noted."""
    UNUSABLE.clear()
    paths = ["/data/a-0", "/data/b-0", "/data/a-0"]
    assert run(spark, tasks.noting, paths, None, [1, 1, 1]) == paths
    assert [one.message for one in UNUSABLE.named()] == [
        f"{path}: cannot open: Permission denied" for path in paths[:2]
    ]
    UNUSABLE.clear()
    run(spark, tasks.doubled, [1, 2, 3], 1, [1, 1, 1])
    assert not UNUSABLE
