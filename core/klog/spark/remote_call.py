"""The first code of a task: it is sent to executors by value, and finds the shipped klog."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

STREAM_BYTES = 4 << 20


class TaskHome(NamedTuple):
    """What a task has of the driver: the directory with klog, *site*, if it was shipped to a session that was there
    before, and the *folder* that relative paths begin in.
    """

    site: str
    folder: str


def results(job: bytes, unit: bytes, home: TaskHome) -> Iterator[bytes]:
    """Do the pickled *job*, a function and its options, for a pickled *unit*; yield streams of Arrow batches.

    The last stream has what the task could not read, see `unusable_batches`.
    """
    import gc
    import pickle

    from pyspark import SparkFiles

    site = os.path.abspath(os.path.join(SparkFiles.getRootDirectory(), home.site))
    if site not in sys.path and os.path.isdir(site):
        sys.path.append(site)
    function, options = pickle.loads(job)
    import pyarrow  # noqa: F401  # before what is there is frozen

    from klog.base.unusable import UNUSABLE
    from klog.jobs.results import unusable_batches
    from klog.spark.utf8_errors import in_text

    if not hasattr(sys, "_klog_is_warm"):
        # Spark collects garbage after each task, and would scan everything that was imported each time: 20 ms.
        sys._klog_is_warm = True  # type: ignore[attr-defined]
        gc.freeze()
    UNUSABLE.clear()  # what a task before this one noted in the same process
    before = os.getcwd()
    if os.path.isdir(home.folder):
        os.chdir(home.folder)
    try:
        with in_text():
            yield from _streams(function(pickle.loads(unit), options))
        yield from _streams(unusable_batches())
    finally:
        os.chdir(before)


def _streams(batches: Iterable[Any]) -> Iterator[bytes]:
    stream: _Stream | None = None
    for batch in batches:
        stream = stream or _Stream(batch.schema)
        if stream.add(batch) >= STREAM_BYTES:
            yield stream.end()
            stream = None
    if stream is not None:
        yield stream.end()


class _Stream:
    """Batches of one schema in Arrow's stream format: written at once, since jobs use their buffers again."""

    def __init__(self, schema: Any) -> None:
        import pyarrow as pa

        self._sink = pa.BufferOutputStream()
        self._writer = pa.ipc.new_stream(self._sink, schema)

    def add(self, batch: Any) -> int:
        """Add a batch; return the size of it all in bytes."""
        self._writer.write_batch(batch)
        return int(self._sink.tell())

    def end(self) -> bytes:
        """Return what there is."""
        self._writer.close()
        return bytes(self._sink.getvalue().to_pybytes())


def of_partition(job: bytes, home: TaskHome, done: Any) -> Callable[[Iterable[tuple[bytes, int]]], Iterator[bytes]]:
    """Return the function of an RDD's partition: units and their sizes to streams; *done* adds up the sizes."""

    def work(units: Iterable[tuple[bytes, int]]) -> Iterator[bytes]:
        for unit, size in units:
            yield from results(job, unit, home)
            done.add(size)

    return work


def of_batches(job: bytes, home: TaskHome, units: list[bytes]) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return the function for `mapInArrow`: numbers of units to streams."""

    def work(numbers: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for stream in results(job, units[number], home):
                    yield pa.RecordBatch.from_arrays([pa.array([stream], pa.binary())], ["stream"])

    return work
