"""Run many small pieces of work in several processes.

Small pieces are mostly Python code, which holds the GIL; threads would only wait for each other.  The processes are
forked: they inherit all data, and return their results through a pipe.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from typing import BinaryIO, TypeVar

from klog.base.errors import KlogError
from klog.base.unusable import UNUSABLE, Unusable

T = TypeVar("T")

FEWEST = 256
"""The number of pieces below which starting processes costs more than it saves."""
CHUNK = 16
"""The number of pieces that a process finishes before it returns their results."""


def may_fork() -> bool:
    """Whether a copy of this process would be whole: of several threads only one would go on in it."""
    return hasattr(os, "fork") and threading.active_count() == 1


def map_in_processes(work: Callable[[int], T], count: int, jobs: int, chunk: int = CHUNK) -> Iterator[T]:
    """Yield the results of *work* for 0 up to *count*, in that order, from *jobs* processes; results are pickled.

    Raises what *work* raises: KlogError, OSError, MemoryError; KlogError when a process was killed.
    """
    workers: list[tuple[int, BinaryIO]] = []
    try:
        workers.extend(_start(work, range(number * chunk, count, jobs * chunk), chunk, count) for number in range(jobs))
        for start in range(0, count, chunk):
            yield from _results(workers[start // chunk % jobs][1])
    finally:
        for process, pipe in workers:
            pipe.close()
            os.kill(process, signal.SIGKILL)  # it has ended, or the rest is not needed
            os.waitpid(process, 0)


def _results(pipe: BinaryIO) -> list[T]:
    """Return the results of the next chunk of a process."""
    try:
        results: list[T] | Exception
        unusable: list[Unusable]
        results, unusable = pickle.load(pipe)
    except EOFError:
        raise KlogError("a process that did part of the work was killed") from None
    for one in unusable:
        UNUSABLE.note(one)
    if isinstance(results, Exception):
        raise results
    return results


def _start(work: Callable[[int], T], starts: range, chunk: int, count: int) -> tuple[int, BinaryIO]:
    """Start a process that does the chunks from each of *starts* on; return its id and its results."""
    read_end, write_end = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process hears of it, and ends this one
            os.close(read_end)
            with os.fdopen(write_end, "wb") as pipe:
                _work(work, starts, chunk, count, pipe)
        finally:
            os._exit(0)
    os.close(write_end)
    return process, os.fdopen(read_end, "rb")


def _work(work: Callable[[int], T], starts: range, chunk: int, count: int, pipe: BinaryIO) -> None:
    """Process the chunks of one process; write for each a list of results, or the exception that was raised."""
    try:
        for start in starts:
            results = [work(one) for one in range(start, min(start + chunk, count))]
            pickle.dump((results, UNUSABLE.named()), pipe, pickle.HIGHEST_PROTOCOL)
            pipe.flush()
    except (KlogError, OSError, MemoryError) as error:  # the first process raises it, as if it had done the work itself
        pickle.dump((error, UNUSABLE.named()), pipe)
