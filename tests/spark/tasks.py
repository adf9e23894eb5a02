"""Jobs for tests of how jobs are run."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import klog
from klog.base.errors import DamagedError
from klog.base.page_cache import POLICY
from klog.base.unusable import UNUSABLE
from klog.jobs.output_commit import Facts, OutputAttempt
from klog.jobs.runner import TaskResult, json_result
from klog.jobs.verify import VerifyOptions, VerifyTask, verify


def doubled(unit: int, factor: int) -> Iterator[TaskResult]:
    """A result for each number below *unit*."""
    for number in range(unit):
        yield json_result("number", factor * number)


def noted(unit: int, marks: str) -> Iterator[TaskResult]:
    """The number of the unit; leaves a file that shows that it was done."""
    open(os.path.join(marks, str(unit)), "wb").close()
    yield json_result("number", unit)


def once_killed(unit: int, marks: str) -> Iterator[TaskResult]:
    """The same, except that the worker dies in the middle of it the first time that *unit* is tried."""
    mark = os.path.join(marks, str(unit))
    for i, result in enumerate(doubled(unit, 2)):
        if i == 1 and not os.path.exists(mark):
            open(mark, "wb").close()
            os.kill(os.getpid(), signal.SIGKILL)
        yield result


def refused(unit: int, message: str) -> Iterator[TaskResult]:
    """Yield the refusal of klog, or its failure."""
    if unit:
        raise DamagedError(message)
    raise ZeroDivisionError(message)
    yield


def slow(unit: float, marks: str) -> Iterator[TaskResult]:
    """Takes *unit* seconds; leaves a file that shows that it began."""
    open(os.path.join(marks, f"{os.getpid()}"), "wb").close()
    time.sleep(unit)
    yield from doubled(1, 1)


def verified_slowly(unit: Sequence[VerifyTask], options: tuple[VerifyOptions, str]) -> Iterator[TaskResult]:
    """Check partitions, and take a second for it; leaves a file with the origin of klog."""
    how, marks = options
    with open(os.path.join(marks, unit[0].path.replace("/", "_")), "w") as mark:
        mark.write(klog.__file__)
    time.sleep(1)
    yield from verify(unit, how)


def committed_slowly(
    job: Callable[[Any, Any], Iterator[TaskResult]], marks: str, unit: Any, options: Any
) -> Iterator[TaskResult]:
    """Do a job that writes, a second late with each piece; leaves files with the origin of klog."""
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


def folders(unit: int, options: None) -> Iterator[TaskResult]:
    """Yield the working directories of tasks."""
    yield json_result("folder", os.getcwd())


def noting(unit: str, options: None) -> Iterator[TaskResult]:
    """Note that the system refused a path."""
    UNUSABLE.refuse(unit, PermissionError(errno.EACCES, os.strerror(errno.EACCES)), "open")
    yield json_result("path", unit)


def ways_of_reading(unit: int, options: None) -> Iterator[TaskResult]:
    """Yield how logs are read: whether their pages are dropped, the limit, and the nice value of the worker."""
    time.sleep(0.3)  # so that there are two workers
    rate = POLICY.rate
    if rate is not None:
        rate.take(0)
    yield json_result("way", [POLICY.drops, rate and rate.rate, os.getpriority(os.PRIO_PROCESS, 0)])
