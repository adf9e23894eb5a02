"""The rows about a second thread: its gain by the clock, beside two independent processes."""

from __future__ import annotations

import os

from bench.measure import Command, Race
from bench.table import Row

RATIO, CONTROL = 1.85, 1.95
"""The required speed-up by two threads, if two processes do so many times the work of one in its time."""


def twice(command: Command) -> Command:
    """Return two processes that do the work of *command* at the same time, as input of `thread_row`: ``both``."""
    return Command(["sh", "-c", '"$@" & "$@" & wait', "sh", *command.words], "null")


def thread_row(name: str, race: Race, one: str = "1 thread", at_least: float = RATIO) -> Row:
    """Return the row of a *race* between ``1 thread`` and ``2 threads``; ``start`` is the start of the command.

    As a control whether there are two cores, ``both`` does twice what *one* does.  If that does not reach CONTROL, the
    requirement for the threads is reduced in proportion.
    """
    start_s = race.best_wall_s("start")
    net = {each: max(race.best_wall_s(each) - start_s, 0.001) for each in ("1 thread", "2 threads", one, "both")}
    control = 2 * net[one] / net["both"]
    told = (
        f"wall time less start, best of {race.runs('1 thread')}: 1 thread {net['1 thread']:.3f} s, 2 threads"
        f" {net['2 threads']:.3f} s; two processes {control:.2f} times as fast as one; load {os.getloadavg()[0]:.1f}"
    )
    return Row(name, told, net["1 thread"] / net["2 threads"], at_least=at_least * min(1.0, control / CONTROL))
