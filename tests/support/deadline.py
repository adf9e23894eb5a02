"""A pytest plugin: no test waits for ever, and each starts with the signals that a program in a terminal has.

A test that takes longer than its time fails where it stands, and its fixtures are torn down.  If even that does not end
it (code outside Python waits), the tracebacks of all threads are written and the process exits.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TextIO

import pytest

SECONDS = 900
"""For one test with its fixtures.  Ten times what the longest needs on a quiet machine."""
SECONDS_LONG = 4 * 3600
GRACE_SECONDS = 120

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
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run one test, with its fixtures, within its time."""
    seconds = SECONDS_LONG if item.get_closest_marker("long") else SECONDS
    with deadline(seconds, item.config.stash[STDERR]):
        return (yield)


@contextmanager
def deadline(seconds: float, stderr: TextIO, grace_seconds: float = GRACE_SECONDS) -> Iterator[None]:
    """Fail what still runs after *seconds*; end the process *grace_seconds* later."""

    def fail(_number: int, _frame: FrameType | None) -> None:
        pytest.fail(f"took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(seconds + grace_seconds, exit=True, file=stderr)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
