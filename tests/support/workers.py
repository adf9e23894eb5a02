"""A pytest plugin for parallel workers: their position when they hang, and an end to the wait.

A test has its own end (see `deadline`); this one is for the time between tests, and behind the last.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence

import pytest

from tests.support.deadline import TOO_LONG

PROGRESS_SECONDS = 300.0
SAID_AFTER_SECONDS = 240.0
ENDED_AFTER_SECONDS = 1080.0
"""More than one test may take with its grace."""
ENDED_WHEN_DONE_SECONDS = 180.0
"""When a worker has died, pytest-xdist may wait for ever after the last test."""

STOOD_STILL_SECONDS = 60.0
"""No load delays a thread that wakes up every five seconds by so much."""

UNFINISHED = "klog/unfinished"
"""The name, in pytest's cache, of the list of tests without a result."""


class Watch:
    """Watches the workers from the process that started them."""

    def __init__(self, said_after: float = SAID_AFTER_SECONDS, ended_after: float = ENDED_AFTER_SECONDS) -> None:
        self._said_after = said_after
        self._ended_after = ended_after
        self._running: dict[str, float] = {}
        self._done: set[str] = set()
        self._hung: set[str] = set()
        self._collected: Sequence[str] = ()
        self._began = self._last = self._said = time.monotonic()
        self._over = threading.Event()
        self._stderr = os.dup(2)  # pytest redirects descriptor 2

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Iterator[None]:
        thread = threading.Thread(target=self._watch, name="watch", daemon=True)
        thread.start()
        return (yield)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running[nodeid] = self._last = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._running.pop(nodeid, None)
        self._last = time.monotonic()
        self._done.add(nodeid)

    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        self._collected = ids

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Name a failure at once: an error inside pytest ends the run without the summary."""
        if report.failed:
            self._say(f"FAILED {report.nodeid} in its {report.when}: {_last_line(report.longreprtext)}")
            if TOO_LONG in report.longreprtext:
                self._hung.add(report.nodeid)

    def pytest_handlecrashitem(self, crashitem: str) -> None:
        self._say(f"a worker died in {crashitem}")
        self._running.pop(crashitem, None)
        self._hung.add(crashitem)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Leave to tools/test.sh the tests that hung or lost their worker, and those without a result."""
        if cache := getattr(session.config, "cache", None):
            unfinished = self._hung | set(self._collected) - self._done
            cache.set(UNFINISHED, [test for test in self._collected if test in unfinished])

    def pytest_unconfigure(self) -> None:
        self._over.set()

    def _watch(self) -> None:
        progress = now = self._began
        while not self._over.wait(min(self._said_after, 5.0)):
            now, before = time.monotonic(), now
            if now - before >= STOOD_STILL_SECONDS:  # virtual machines are suspended
                self._last = now
                self._say(f"the machine stood still for {now - before:.0f} s")
            if now - progress >= PROGRESS_SECONDS:
                progress = now
                self._say(f"{len(self._done)} tests in {now - self._began:.0f} s", "")
            if now - max(self._last, self._said) >= self._said_after:
                self._said = now
                self._report(now)
            is_done = 0 < len(self._collected) <= len(self._done)
            patience = min(self._ended_after, ENDED_WHEN_DONE_SECONDS) if is_done else self._ended_after
            if now - self._last >= patience:
                self._report(now)
                self._say(f"nothing has come for {patience:g} s: given up")
                os._exit(1)

    def _report(self, now: float) -> None:
        taken, quiet = now - self._began, now - self._last
        self._say(f"{len(self._done)} tests in {taken:.0f} s, nothing for {quiet:.0f} s; running:")
        for test, began in list(self._running.items()):
            self._say(f"  {test}, for {now - began:.0f} s")
        command = ["ps", "-ww", "--no-headers", "-e", "--forest", "-o", "pid,etimes,stat,args"]
        try:
            listed = subprocess.run(command, capture_output=True, check=False).stdout
        except OSError:
            return  # missing on some machines
        self._say(*(line[:150] for line in listed.decode(errors="replace").splitlines()))

    def _say(self, *lines: str) -> None:
        os.write(self._stderr, ("\n" + "\n".join(lines)).encode(errors="replace"))


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2][:300]


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("numprocesses", None) and "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(Watch())
