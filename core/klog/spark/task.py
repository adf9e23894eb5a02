"""What runs first in a task.  It comes to executors by value: where klog has been shipped, it is found from here."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

STREAM_BYTES = 4 << 20


def results(job: bytes, unit: bytes, site: str) -> Iterator[bytes]:
    """Do the pickled *job*, a function and its options, for a pickled *unit*; yield streams of Arrow batches.

    *site*: the directory with klog, if one was shipped to a session that was there before.
    """
    import gc
    import pickle

    from pyspark import SparkFiles

    folder = os.path.join(SparkFiles.getRootDirectory(), site)
    if folder not in sys.path and os.path.isdir(folder):
        sys.path.append(folder)
    function, options = pickle.loads(job)
    import pyarrow  # noqa: F401  # before what is there is frozen

    if not hasattr(sys, "_klog_is_warm"):
        # Spark collects garbage after each task, and all that was imported would be looked through each time: 20 ms.
        sys._klog_is_warm = True  # type: ignore[attr-defined]
        gc.freeze()
    stream: _Stream | None = None
    for batch in function(pickle.loads(unit), options):
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


def of_partition(job: bytes, site: str, done: Any) -> Callable[[Iterable[tuple[bytes, int]]], Iterator[bytes]]:
    """Return the function of an RDD's partition: units and their sizes to streams; *done* adds up the sizes."""

    def work(units: Iterable[tuple[bytes, int]]) -> Iterator[bytes]:
        for unit, size in units:
            yield from results(job, unit, site)
            done.add(size)

    return work


def of_batches(job: bytes, site: str, units: list[bytes]) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return the function for `mapInArrow`: numbers of units to streams."""

    def work(numbers: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for stream in results(job, units[number], site):
                    yield pa.RecordBatch.from_arrays([pa.array([stream], pa.binary())], ["stream"])

    return work
