"""Threads, and a ^C at any moment."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from random import Random

import pytest
from klog.base.interruptible_threads import run_all, start


@pytest.fixture(autouse=True)
def _handlers_are_as_before() -> Iterator[None]:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    yield
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.fixture
def others() -> Iterator[None]:
    """Threads of libraries: any of them may be the one that is handed a signal."""
    over = threading.Event()
    threads = [threading.Thread(target=over.wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    yield
    over.set()
    for thread in threads:
        thread.join()


def test_all_works_are_done_at_the_same_time() -> None:
    barrier, done = threading.Barrier(5, timeout=60), list[int]()

    def work() -> None:
        barrier.wait()
        done.append(threading.get_ident())

    before = threading.active_count()
    run_all([work] * 5, lambda: None)
    assert len(set(done)) == 5
    assert threading.get_ident() not in done
    assert threading.active_count() == before


def test_nothing_to_do_is_done() -> None:
    run_all([], lambda: None)


@pytest.mark.usefixtures("others")
@pytest.mark.parametrize("seed", range(4))
def test_an_interrupt_at_any_moment_ends_all(seed: int) -> None:
    """It also holds while threads start and end, and while they wait for each other: nothing hangs, nothing is left, or
    printed."""
    chance = Random(seed)

    def interrupt(delay: float) -> None:
        time.sleep(delay)
        os.kill(os.getpid(), signal.SIGINT)

    for _ in range(250):
        stopped, turns, ended = threading.Event(), threading.Condition(), list[bool]()

        def work(
            stopped: threading.Event = stopped, turns: threading.Condition = turns, ended: list[bool] = ended
        ) -> None:
            while not stopped.is_set():
                with turns:
                    turns.notify_all()
                    turns.wait(0.0005)
            ended.append(True)

        def interrupted(work: Callable[[], None] = work, stopped: threading.Event = stopped) -> None:
            start(partial(interrupt, chance.random() / 500))
            run_all([work] * 3, stopped.set)

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert len(ended) in (0, 3), "of those that were started none is left"


def test_a_thread_that_has_ended_is_forgotten_while_handlers_are_deferred() -> None:
    """Python does that in a callback, and a ^C that is raised in one is lost."""
    one = weakref.ref(start(lambda: None))
    until = time.monotonic() + 60
    while (thread := one()) is not None and thread.is_alive():
        assert time.monotonic() < until
        time.sleep(0.001)
    del thread
    gc.collect()
    assert one() is not None
    start(lambda: None).join()
    gc.collect()
    assert one() is None


def test_what_one_raises_first_stops_the_others_and_comes_out() -> None:
    stopped, heard, errors = threading.Event(), list[bool](), [ValueError("first"), KeyError("second")]

    def fail() -> None:
        raise errors[0]

    def follow() -> None:
        heard.append(stopped.wait(60))
        raise errors[1]

    with pytest.raises(ValueError, match="first") as raised:
        run_all([follow, fail, follow], stopped.set)
    assert raised.value is errors[0]
    assert heard == [True, True]


def test_without_another_thread_those_that_began_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `ulimit -u` has it."""
    begin, stopped, began = threading.Thread.start, threading.Event(), list[object]()

    def limited(thread: threading.Thread) -> None:
        if len(began) == 2:
            raise RuntimeError("can't start new thread")
        began.append(thread)
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(RuntimeError, match="can't start"):
        run_all([lambda: (stopped.wait(60), None)[1]] * 4, stopped.set)
    assert stopped.is_set()
    assert all(not thread.is_alive() for thread in began if isinstance(thread, threading.Thread))


def test_handlers_wait_while_threads_are_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both kinds that may raise, in whichever thread they arrive; afterwards they are heard."""
    begin, meanwhile, heard = threading.Thread.start, list[int](), list[int]()

    def interrupted(thread: threading.Thread) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
        time.sleep(0.05)  # a handler would run now
        meanwhile.append(len(heard))
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        for number in before:
            signal.signal(number, lambda number, _: heard.append(number))
        start(lambda: None).join()
        time.sleep(0.1)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert meanwhile == [0]
    assert sorted(heard) == [signal.SIGINT, signal.SIGTERM]


def test_what_a_thread_raises_is_told() -> None:
    """To whoever started it: an interrupt, too, and the interpreter prints nothing."""
    for error in (OSError("full"), KeyboardInterrupt()):
        told: list[BaseException] = []

        def work(error: BaseException = error) -> None:
            raise error

        start(work, told.append).join()
        assert told == [error]


def test_a_thread_may_have_threads_too() -> None:
    """It runs no handlers, and may not set any."""
    done: list[bool] = []
    thread = start(lambda: run_all([lambda: done.append(True)] * 2, lambda: None))
    thread.join()
    assert done == [True, True]


def test_signals_are_left_to_the_main_thread() -> None:
    """Any other way would set a flag, and wake up no thread."""
    seen: list[set[int]] = []

    def look() -> None:
        seen.append({int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())})

    start(look).join()
    run_all([look], lambda: None)
    look()
    assert seen == [{signal.SIGINT, signal.SIGTERM, signal.SIGHUP}] * 2 + [set()]
