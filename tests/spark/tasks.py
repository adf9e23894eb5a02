"""Jobs for tests of how jobs are run."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import klog
import pyarrow as pa
from klog.base.errors import DamagedError
from klog.base.unusable import UNUSABLE
from klog.jobs.output import Facts, OutputAttempt
from klog.jobs.results import TaskResult
from klog.jobs.verify import VerifyOptions, VerifyTask, verify


def doubled(unit: int, factor: int) -> Iterator[pa.RecordBatch]:
    """A row for each number below *unit*, one a batch; all in the same buffer, as jobs have it that spare memory."""
    buffer = bytearray(8)
    for number in range(unit):
        buffer[:] = (factor * number).to_bytes(8, "little")
        array = pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(buffer)])
        yield pa.RecordBatch.from_arrays([array], ["number"])


def once_killed(unit: int, marks: str) -> Iterator[pa.RecordBatch]:
    """The same, except that the worker dies in the middle of it the first time that *unit* is tried."""
    mark = os.path.join(marks, str(unit))
    for i, batch in enumerate(doubled(unit, 2)):
        if i == 1 and not os.path.exists(mark):
            open(mark, "wb").close()
            os.kill(os.getpid(), signal.SIGKILL)
        yield batch


def refused(unit: int, message: str) -> Iterator[pa.RecordBatch]:
    """What klog refuses, or breaks down at."""
    if unit:
        raise DamagedError(message)
    raise ZeroDivisionError(message)
    yield


def slow(unit: float, marks: str) -> Iterator[pa.RecordBatch]:
    """Takes *unit* seconds; leaves a file that says that it began."""
    open(os.path.join(marks, f"{os.getpid()}"), "wb").close()
    time.sleep(unit)
    yield from doubled(1, 1)


def verified_slowly(unit: Sequence[VerifyTask], options: tuple[VerifyOptions, str]) -> Iterator[pa.RecordBatch]:
    """Check partitions, and take a second for it; leaves a file that says where klog came from."""
    how, marks = options
    with open(os.path.join(marks, unit[0].path.replace("/", "_")), "w") as mark:
        mark.write(klog.__file__)
    time.sleep(1)
    yield from verify(unit, how)


def committed_slowly(
    job: Callable[[Any, Any], Iterator[pa.RecordBatch]], marks: str, unit: Any, options: Any
) -> Iterator[pa.RecordBatch]:
    """Do a job that writes, a second late with each piece; leaves files that say where klog came from."""
    commit = OutputAttempt.commit

    def late(attempt: OutputAttempt, written: Sequence[str], facts: Facts) -> None:
        with open(os.path.join(marks, os.path.basename(attempt.path)), "w") as mark:
            mark.write(klog.__file__)
        time.sleep(1)
        commit(attempt, written, facts)

    OutputAttempt.commit = late  # type: ignore[method-assign]
    try:
        yield from job(unit, options)
    finally:
        OutputAttempt.commit = commit  # type: ignore[method-assign]


def folders(unit: int, options: None) -> Iterator[pa.RecordBatch]:
    """Where tasks stand."""
    yield pa.RecordBatch.from_arrays([pa.array([os.getcwd()])], ["folder"])


def noting(unit: str, options: None) -> Iterator[TaskResult]:
    """Note that the system refused a path."""
    UNUSABLE.refuse(unit, PermissionError(errno.EACCES, os.strerror(errno.EACCES)), "open")
    yield TaskResult("text", unit.encode())
