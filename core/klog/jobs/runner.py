"""Runners do a job for many units of work: on threads or in processes of this machine; on Spark: `klog.spark.run`.

A job is a function from a unit of work and its options to results, which have one form for all jobs.  All runners hand
the results over in the order of the units, so that a command prints the same whichever runner it has.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, Final, Generic, NamedTuple, Protocol, TypeVar

from klog.base.errors import KlogError
from klog.base.interruptible_threads import run_all
from klog.base.overlays import OVERLAYS
from klog.base.page_cache import POLICY
from klog.base.progress import Sink
from klog.base.unusable import UNUSABLE, Unusable
from klog.log.ordered_pipeline import PATIENCE_S, OverError, Turns


class TaskResult(NamedTuple):
    """*kind*: what *content* is: JSON, or what the job says.  *number*: of the piece of work that it is about."""

    kind: str
    content: bytes
    number: int = 0

    @property
    def facts(self) -> Any:
        """The content, where it is JSON."""
        return json.loads(self.content)

    @property
    def value(self) -> Any:
        """The content, where it is a pickled value."""
        return pickle.loads(self.content)


def json_result(kind: str, facts: object, number: int = 0) -> TaskResult:
    """Return a result whose content is JSON."""
    return TaskResult(kind, json.dumps(facts).encode(), number)


def pickled_result(kind: str, value: object, number: int = 0) -> TaskResult:
    """Return a result whose content is a pickled value."""
    return TaskResult(kind, pickle.dumps(value, pickle.HIGHEST_PROTOCOL), number)


U = TypeVar("U")
O = TypeVar("O")  # noqa: E741

FEWEST: Final = 256
"""With fewer small pieces of work to start processes is not worth while."""
CHUNK: Final = 16
"""The number of small pieces of work in a unit for a process."""
_HELD_BYTES: Final = 16 << 20
"""The bytes of results that a thread keeps in memory while earlier units are not done; then it waits."""


Take = Callable[[TaskResult], object]
"""Takes a result; returns True when nothing more is wanted."""


class Job(NamedTuple, Generic[U, O]):
    """A *function* from a unit of work and options to results, and its *units*, with the bytes of each in *sizes*."""

    function: Callable[[U, O], Iterable[TaskResult]]
    units: Sequence[U]
    options: O
    sizes: Sequence[int]


class Runner(Protocol):
    """Does a job for many units of work."""

    @property
    def workers(self) -> int:
        """How many units are done at a time."""

    def run(self, job: Job[U, O], sink: Sink, take: Take, first_bytes: int | None = None) -> None:
        """Do *job*; hand each result to *take*, in the order of the units.

        *sink* gets the bytes of each unit when it is done.  *first_bytes*: a runner that hands over the results of many
        units at once begins with units of about so many bytes together, and with all units where that is None.
        Raises the exceptions of a job, of *take* and of a signal's handler.
        """


def collect(runner: Runner, job: Job[U, O], sink: Sink) -> list[TaskResult]:
    """Do *job*, and return all results."""
    results: list[TaskResult] = []
    runner.run(job, sink, results.append)
    return results


class Threads(NamedTuple):
    """Threads of this process: the kernel releases the interpreter's lock while it reads a window.

    *stop*: called when a unit fails or a signal's handler raises, so that jobs can end early.  After *patience_s*
    threads that go on are left alone: one may be writing to a pipe without a reader.
    """

    workers: int
    stop: Callable[[], object] = int
    patience_s: float = PATIENCE_S

    def run(self, job: Job[U, O], sink: Sink, take: Take, first_bytes: int | None = None) -> None:
        """Do the job on threads; a single one is the caller's own."""
        sink.expect(sum(job.sizes))
        turns, left, lock = Turns(), enumerate(zip(job.units, job.sizes, strict=True)), threading.Lock()

        def do(number: int, unit: U) -> bool:
            waiting: list[TaskResult] = []
            held = 0
            for result in job.function(unit, job.options):
                waiting.append(result)
                held += len(result.content)
                if held >= _HELD_BYTES:
                    turns.wait(number)
                    if any(take(one) for one in waiting):
                        return True
                    waiting, held = [], 0
            if waiting:
                turns.wait(number)
            return any(take(one) for one in waiting)

        def work() -> None:
            with suppress(OverError):
                while not turns.is_over:
                    with lock:
                        task = next(left, None)
                    if task is None:
                        return
                    number, (unit, size) = task
                    is_last = do(number, unit)
                    sink.advance(size)
                    turns.done(number, is_last)

        def stop() -> None:
            self.stop()
            turns.stop()

        workers = min(self.workers, len(job.units))
        if workers == 1:
            work()
        elif workers:
            run_all([work] * workers, stop, self.patience_s)


def may_fork() -> bool:
    """Whether a copy of this process would be whole: of several threads only one would go on in it.

    Remote storage is read with threads that this process does not see.
    """
    return hasattr(os, "fork") and threading.active_count() == 1 and not OVERLAYS


class Processes(NamedTuple):
    """Processes that are forked from this one: they have all that this one has, and their results are pickled.

    They serve many small units: most of the work is Python's then, and threads would wait for the interpreter's lock.
    """

    workers: int

    def run(self, job: Job[U, O], sink: Sink, take: Take, first_bytes: int | None = None) -> None:
        """Do the job in processes, each one of the units in turn; raises KlogError when one of them was killed."""
        sink.expect(sum(job.sizes))
        count = min(self.workers, len(job.units))
        started: list[tuple[int, BinaryIO]] = []
        try:
            started.extend(_start(job, first, count) for first in range(count))
            for number, size in enumerate(job.sizes):
                if any(take(result) for result in _results(started[number % count][1])):
                    return
                sink.advance(size)
        finally:
            for process, pipe in started:
                pipe.close()
                os.kill(process, signal.SIGKILL)  # it has ended, or the rest is not needed
                os.waitpid(process, 0)


def _results(pipe: BinaryIO) -> list[TaskResult]:
    """Return the results of the next unit of a process."""
    try:
        results: list[TaskResult] | Exception
        unusable: list[Unusable]
        results, unusable = pickle.load(pipe)
    except EOFError:
        raise KlogError("a process that did part of the work was killed") from None
    for one in unusable:
        UNUSABLE.note(one)
    if isinstance(results, Exception):
        raise results
    return results


def _start(job: Job[U, O], first: int, step: int) -> tuple[int, BinaryIO]:
    """Start a process that does every unit in *step* from *first* on; return its id and the pipe of its results."""
    read_end, write_end = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process hears of it, and ends this one
            POLICY.share_rate(step)
            os.close(read_end)
            with os.fdopen(write_end, "wb") as pipe:
                _work(job, first, step, pipe)
        finally:
            os._exit(0)
    os.close(write_end)
    return process, os.fdopen(read_end, "rb")


def _work(job: Job[U, O], first: int, step: int, pipe: BinaryIO) -> None:
    """Do the units of one process; write for each a list of results, or the exception that was raised."""
    try:
        for unit in job.units[first::step]:
            pickle.dump((list(job.function(unit, job.options)), UNUSABLE.named()), pipe, pickle.HIGHEST_PROTOCOL)
            pipe.flush()
    except (KlogError, OSError, MemoryError) as error:  # the first process raises it, as if it had done the work itself
        pickle.dump((error, UNUSABLE.named()), pipe)
