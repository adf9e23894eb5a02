"""A pytest plugin: no test waits for ever, and each starts with the signals that a program in a terminal has.

A test that exceeds its time fails at its present line, and its fixtures are torn down.  If even that does not end it
(code outside Python waits), the tracebacks of all threads are written and the process exits.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TextIO

import pytest

SECONDS = 900
"""For one test with its fixtures.  This is ten times the need of the longest on a quiet machine."""
SECONDS_LONG = 4 * 3600
GRACE_SECONDS = 120

TOO_LONG = "took longer than"
"""In the message of a test that exceeded its time."""

STDERR = pytest.StashKey[TextIO]()


def pytest_configure(config: pytest.Config) -> None:
    """Take back the signals that a shell ignores for jobs in the background: programs under test inherit them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT))
    # A copy: pytest redirects descriptor 2 while tests run.
    config.stash[STDERR] = os.fdopen(os.dup(2), "w")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Run one test, with its fixtures, within its time."""
    seconds = SECONDS_LONG if item.get_closest_marker("long") else SECONDS
    with _alarm(seconds):
        _end.after(seconds + GRACE_SECONDS, item.config.stash[STDERR])
        try:
            return (yield)
        finally:
            if nextitem is None:
                _end.never()


class _End:
    """The end of this process.

    It takes a thread, which has to be waited for whenever the end is put off: on a busy machine that takes longer than
    most tests do.  An end that is up to a minute late is therefore good enough, and is kept from one test to the next.
    """

    def __init__(self) -> None:
        self._at = 0.0

    def after(self, seconds: float, stderr: TextIO, late_seconds: float = 60) -> None:
        """End the process, with the tracebacks of all threads, in *seconds*, or up to *late_seconds* later."""
        soonest = time.monotonic() + seconds
        if not soonest <= self._at <= soonest + late_seconds:
            faulthandler.dump_traceback_later(seconds + late_seconds, exit=True, file=stderr)
            self._at = soonest + late_seconds

    def never(self) -> None:
        """Switch the deadline off."""
        faulthandler.cancel_dump_traceback_later()
        self._at = 0


_end = _End()


@contextmanager
def deadline(seconds: float, stderr: TextIO, grace_seconds: float = GRACE_SECONDS) -> Iterator[None]:
    """Fail a test that still runs after *seconds*; end the process *grace_seconds* later."""
    with _alarm(seconds):
        _end.after(seconds + grace_seconds, stderr, late_seconds=0)
        try:
            yield
        finally:
            _end.never()


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    def fail(_number: int, _frame: FrameType | None) -> None:
        pytest.fail(f"{TOO_LONG} {seconds:g} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
