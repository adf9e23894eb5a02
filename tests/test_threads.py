"""Threads, and a ^C at any moment."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from random import Random

import pytest
from klog.threads import run_all, start


def masked() -> set[signal.Signals]:
    return {signal.Signals(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())}


def test_all_works_are_done_at_the_same_time() -> None:
    barrier, done = threading.Barrier(5, timeout=5), list[int]()

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


@pytest.mark.parametrize("seed", range(4))
def test_an_interrupt_at_any_moment_ends_all(seed: int) -> None:
    """Also while threads start and end, and while they wait for each other: nothing hangs, nothing is left, or said."""
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
        assert masked() == set()


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
        run_all([lambda: (stopped.wait(5), None)[1]] * 4, stopped.set)
    assert stopped.is_set()
    assert masked() == set()
    assert all(not thread.is_alive() for thread in began if isinstance(thread, threading.Thread))


def test_threads_leave_signals_to_the_main_thread() -> None:
    seen: list[set[signal.Signals]] = []
    start(lambda: seen.append(masked())).join()
    run_all([lambda: seen.append(masked())], lambda: None)
    assert seen == [{signal.SIGINT, signal.SIGTERM}] * 2
    assert masked() == set()
