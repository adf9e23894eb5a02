"""The first code of a task: it is sent to executors by value, and finds the shipped klog."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

SENT_BYTES = 4 << 20
"""The number of bytes of results that are sent together."""


class DriverPlaces(NamedTuple):
    """The driver's places in a task: the directory with klog, *site*, if it was shipped to an existing session, and the
    *folder* of relative paths.
    """

    site: str
    folder: str


def results(job: bytes, task: bytes, home: DriverPlaces) -> Iterator[bytes]:
    """Do the pickled *job*, a function and its options, for the units of a pickled *task*, each with its number.

    Yields pickled pairs: results, each with the number of its unit, and the paths that could not be used.
    """
    import gc
    import pickle

    from pyspark import SparkFiles

    site = os.path.abspath(os.path.join(SparkFiles.getRootDirectory(), home.site))
    if site not in sys.path and os.path.isdir(site):
        sys.path.append(site)
    function, options = pickle.loads(job)
    from klog.base.unusable import UNUSABLE
    from klog.spark.utf8_errors import in_text

    if not hasattr(sys, "_klog_is_warm"):
        # Spark collects garbage after each task, and would scan everything that was imported each time: 20 ms.
        sys._klog_is_warm = True  # type: ignore[attr-defined]
        gc.freeze()
    UNUSABLE.clear()  # an earlier task in the same process noted it
    before = os.getcwd()
    if os.path.isdir(home.folder):
        os.chdir(home.folder)
    waiting, size = [], 0
    try:
        with in_text():
            for number, unit in pickle.loads(task):
                for result in function(unit, options):
                    waiting.append((number, result))
                    size += len(result.content)
                    if size >= SENT_BYTES:
                        yield pickle.dumps((waiting, ()))
                        waiting, size = [], 0
    finally:
        os.chdir(before)
    yield pickle.dumps((waiting, UNUSABLE.named()))


def of_partition(job: bytes, home: DriverPlaces, done: Any) -> Callable[[Iterable[tuple[bytes, int]]], Iterator[bytes]]:
    """Return the function of an RDD's partition: from tasks and their sizes to results; *done* adds up the sizes."""

    def work(tasks: Iterable[tuple[bytes, int]]) -> Iterator[bytes]:
        for task, size in tasks:
            yield from results(job, task, home)
            done.add(size)

    return work


def of_batches(job: bytes, home: DriverPlaces, tasks: list[bytes]) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return the function for `mapInArrow`: from numbers of tasks to results."""

    def work(numbers: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for some in results(job, tasks[number], home):
                    yield pa.RecordBatch.from_arrays([pa.array([some], pa.binary())], ["results"])

    return work
