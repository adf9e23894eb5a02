"""Threads that ^C cannot leave hanging.

A signal handler may raise anywhere in the main thread, also inside Condition, Event and Thread (they are written in
Python): a lock may then never be released, or a half-started thread may hang.  The caller's thread therefore starts the
others while handlers are deferred, and then only waits, on locks that are implemented without Python code. Each wait is
short, because a signal that arrives just before the system call does not interrupt it.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from types import TracebackType
from typing import Final

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals whose handlers may raise."""
_LONGEST_WAIT_S: Final = 0.05
_PAUSE_S: Final = 0.005
_begun: Final[list[threading.Thread]] = []
"""Python forgets a thread in a callback, and an exception that a handler raises in a callback is lost.  Threads are
therefore kept here until the next ones start, while handlers are deferred."""


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Defer signal handlers.  Blocking the signals would not help: any other thread may receive them."""
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers run in the main thread only
        return
    came: list[int] = []
    before = {number: handler for number in _SIGNALS if callable(handler := signal.getsignal(number))}
    try:
        for number in before:
            signal.signal(number, lambda number, _frame: came.append(number))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for late in came:
            signal.raise_signal(late)


def _thread(work: Callable[[], None]) -> threading.Thread:
    """Return a thread for *work* that blocks signals, so that the main thread receives them at once."""

    def run() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        work()

    return threading.Thread(target=run, daemon=True)


def _begin(thread: threading.Thread) -> None:
    """Start a thread, and forget those that have ended; signal handlers are deferred meanwhile."""
    _begun[:] = [one for one in _begun if one.is_alive()]
    thread.start()
    _begun.append(thread)


class _Watch:
    """Ends a thread's work: passes its exception to *report* and to no other place."""

    def __init__(self, report: Callable[[BaseException], None]) -> None:
        self._report = report

    def __enter__(self) -> None:
        """Begin the work."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """End the work."""
        if error is not None:
            self._report(error)
        return True


def start(work: Callable[[], None], failed: Callable[[BaseException], None] | None = None) -> threading.Thread:
    """Return a thread that was just started and does *work*; a process ends without waiting for it.  Raises
    RuntimeError.

    *failed* receives, on that thread, the exception that *work* raises; without it, the interpreter prints the
    exception.
    """

    def watched() -> None:
        with _Watch(failed) if failed is not None else nullcontext():
            work()

    thread = _thread(watched)
    with _undisturbed():
        _begin(thread)
    return thread


def run_all(works: Sequence[Callable[[], None]], stop: Callable[[], None], patience_s: float = math.inf) -> None:
    """Run each of *works* on a thread of its own; return when all have ended.

    Raises what one of them raised first; what the handler of a signal raises meanwhile; RuntimeError when there can be
    no more threads: after *stop*, which makes the works end, and when they have, or, if it was none of theirs,
    *patience_s* later: one may be writing to a pipe without a reader.
    """
    running = [threading.Lock() for _ in works]
    started: list[threading.Thread] = []
    ended: list[threading.Lock] = []
    errors: list[BaseException] = []

    def fail(error: BaseException) -> None:
        errors.append(error)
        stop()

    def do(work: Callable[[], None], lock: threading.Lock) -> None:
        with _Watch(fail):
            work()
        ended.append(lock)
        lock.release()

    try:
        with _undisturbed():
            for work, lock in zip(works, running, strict=True):
                lock.acquire()
                thread = _thread(partial(do, work, lock))
                _begin(thread)
                started.append(thread)
        for lock in running:
            while not lock.acquire(timeout=_LONGEST_WAIT_S):
                pass
    except BaseException:
        stop()
        until = time.monotonic() + patience_s
        while len(ended) < len(started) and time.monotonic() < until:
            time.sleep(_PAUSE_S)
        raise
    finally:
        if len(ended) == len(started):
            for thread in started:
                thread.join()
    if errors:
        raise errors[0]
