"""Does a job for each of many units of work, on threads of this machine; answers come in the order of the units."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from klog.base.progress import Sink
from klog.base.threads import run_all
from klog.jobs.results import TaskResult
from klog.log.pipeline import PATIENCE_S, OverError, Turns

U = TypeVar("U")
O = TypeVar("O")  # noqa: E741

_HELD_BYTES: Final = 16 << 20
"""So much of its answers a worker keeps in memory while earlier units are not done; then it waits."""


def run(
    job: Callable[[U, O], Iterator[TaskResult]],
    units: Sequence[U],
    options: O,
    sizes: Sequence[int],
    sink: Sink,
    workers: int,
    take: Callable[[TaskResult], bool],
) -> None:
    """Do *job* for each of *units* on up to *workers* threads; hand each answer to *take*, in the order of the units.

    *take* returns True when nothing more is wanted.  *sizes*: bytes of each unit, which *sink* gets when it is done.
    Raises what a job, *take* or the handler of a signal raises.
    """
    sink.expect(sum(sizes))
    turns, left, lock = Turns(), enumerate(zip(units, sizes, strict=True)), threading.Lock()

    def do(number: int, unit: U) -> bool:
        waiting: list[TaskResult] = []
        held = 0
        for answer in job(unit, options):
            waiting.append(answer)
            held += len(answer.content)
            if held >= _HELD_BYTES:
                turns.wait(number)
                if any(take(one) for one in waiting):
                    return True
                waiting, held = [], 0
        turns.wait(number)
        return any(take(one) for one in waiting)

    def work() -> None:
        with suppress(OverError):
            while True:
                with lock:
                    task = next(left, None)
                if task is None:
                    return
                number, (unit, size) = task
                is_last = do(number, unit)
                sink.advance(size)
                turns.done(number, is_last)
                if is_last:
                    return

    workers = min(workers, len(units))
    if workers == 1:
        work()
    elif units:
        run_all([work] * workers, turns.stop, PATIENCE_S)
