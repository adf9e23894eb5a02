"""Reads of logs in a worker of Spark, under the options of the driver's command or of the data source."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from klog.base.page_cache import POLICY
from klog.base.rate_limit import RateLimit
from klog.data_dir.read_options import ReadOptions, ReadRequest, reading

U = TypeVar("U")
O = TypeVar("O")  # noqa: E741
R = TypeVar("R")
_COUNT_S: Final = 0.5


class WorkersRate(RateLimit):
    """The share of one worker in *rate* bytes a second of its executor: all workers there have equal shares.

    They are the children of one process, which Spark starts for an executor.  If the system does not list them, this
    one has all of the rate.
    """

    def __init__(self, rate: int) -> None:
        super().__init__(rate)
        self._all, self._counted = rate, 0.0

    def take(self, size: int) -> float:
        """Count *size* bytes; return when more may be taken (monotonic seconds)."""
        now = time.monotonic()
        if now - self._counted > _COUNT_S:
            self._counted = now
            self.rate = max(self._all // _siblings(), 1)
        return super().take(size)


def _siblings() -> int:
    """Return the number of processes with the parent of this one, this one included."""
    parent = os.getppid()
    try:
        with open(f"/proc/{parent}/task/{parent}/children", "rb") as file:
            return max(len(file.read().split()), 1)
    except OSError:
        return 1


@contextmanager
def reading_in_worker(paths: Iterable[str], options: ReadOptions) -> Iterator[None]:
    """Read logs in this way until the block ends."""
    with reading(paths, options, str):
        if options.rate is not None:
            POLICY.rate = WorkersRate(options.rate)
        yield


def read_as_requested(
    function: Callable[[U, O], Iterable[R]], request: ReadRequest, unit: U, options: O
) -> Iterator[R]:
    """Do the job *function* for a unit, and read as *request* says."""
    with reading_in_worker(*request):
        yield from function(unit, options)
