"""The watch over parallel workers, played through on a clock of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from tests.support import workers
from tests.support.workers import Watch


class GivenUpError(Exception):
    """The watch has ended the process."""


class Play:
    """A watch, its clock, and what it says when; *events*: what happens at which second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, events: dict[int, Callable[[Watch], None]]) -> None:
        self.now = 0.0
        self.said: list[tuple[int, str]] = []
        monkeypatch.setattr(workers.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(workers.os, "_exit", self._exit)
        monkeypatch.setattr(workers.subprocess, "run", self._no_processes)
        monkeypatch.setattr(Watch, "_say", self._say)
        self.watch = Watch()
        monkeypatch.setattr(self.watch._over, "wait", self._wait)
        self._events = events

    def _exit(self, code: int) -> None:
        raise GivenUpError(code)

    def _no_processes(self, *_: object, **__: object) -> None:
        raise OSError

    def _say(self, *lines: str) -> None:
        self.said += [(int(self.now), line) for line in lines if line]

    def _wait(self, seconds: float) -> bool:
        assert self.now < 10_000, "it waits for ever"
        self.now += seconds
        if int(self.now) in self._events:
            self._events[int(self.now)](self.watch)
        return self.watch._over.is_set()

    def run(self) -> list[tuple[int, str]]:
        with pytest.raises(GivenUpError, match="1"):
            self.watch._watch()
        return self.said


def test_silence_is_said_every_four_minutes_and_ended_after_eighteen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line for each five seconds of silence would bury what is running."""
    said = Play(monkeypatch, {}).run()
    assert [at for at, line in said if line.endswith("running:")] == [240, 480, 720, 960, 1080]
    assert [at for at, line in said if line.startswith("0 tests in") and "running" not in line] == [300, 600, 900]
    assert said[-1] == (1080, "nothing has come for 1080 s: given up")


def test_behind_the_last_test_three_minutes_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """When a worker has died, nothing ends the run."""

    def collect(watch: Watch) -> None:
        watch.pytest_xdist_node_collection_finished(["a", "b"])
        watch.pytest_runtest_logstart("a")
        watch.pytest_runtest_logfinish("a")

    def finish(watch: Watch) -> None:
        watch.pytest_runtest_logstart("b")
        watch.pytest_runtest_logfinish("b")

    said = Play(monkeypatch, {10: collect, 500: finish}).run()
    assert said[-1] == (680, "nothing has come for 180 s: given up")


def test_a_machine_that_stood_still_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play(monkeypatch, {})
    play._events = {100: lambda _: setattr(play, "now", play.now + 2000)}
    said = play.run()
    assert (2100, "the machine stood still for 2005 s") in said
    assert said[-1] == (2100 + 1080, "nothing has come for 1080 s: given up")


def test_it_says_what_is_running_and_since_when(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what is over, nor what died with its worker."""

    def begin(watch: Watch) -> None:
        for test in ("over", "slow", "dead"):
            watch.pytest_runtest_logstart(test)
        watch.pytest_runtest_logfinish("over")

    said = Play(monkeypatch, {40: begin, 100: lambda watch: watch.pytest_handlecrashitem("dead")}).run()
    assert (100, "a worker died in dead") in said
    first = [line for at, line in said if at == 280]
    assert first == ["1 tests in 280 s, nothing for 240 s; running:", "  slow, for 240 s"]


def test_a_failure_is_named_when_it_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error inside pytest-xdist, after workers have died, ends the run without the summary."""
    play = Play(monkeypatch, {})
    for outcome in ("passed", "failed"):
        play.watch.pytest_runtest_logreport(
            pytest.TestReport("a.py::one", ("a.py", 1, "one"), {}, outcome, "setup: 1\nE   no disk\n", "setup")
        )
    assert play.said == [(0, "FAILED a.py::one in its setup: E   no disk")]


def test_tests_without_a_result_are_left_to_a_second_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test in which a worker died is one of them, also when another worker has run it since."""
    watch = Play(monkeypatch, {}).watch
    watch.pytest_xdist_node_collection_finished(["over", "dead", "again", "slow", "never"])
    for test in ("over", "again", "slow"):
        watch.pytest_runtest_logstart(test)
        watch.pytest_runtest_logfinish(test)
    for test in ("dead", "again"):
        watch.pytest_handlecrashitem(test)
    for test, text in (("over", "E   no disk"), ("slow", "Failed: took longer than 900 s")):
        watch.pytest_runtest_logreport(pytest.TestReport(test, (test, 1, test), {}, "failed", text, "call"))
    kept: dict[str, object] = {}
    cache = SimpleNamespace(set=kept.__setitem__)
    watch.pytest_sessionfinish(SimpleNamespace(config=SimpleNamespace(cache=cache)))
    assert kept == {workers.UNFINISHED: ["dead", "again", "slow", "never"]}


def test_the_end_of_a_test_is_a_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = {
        40: lambda watch: watch.pytest_runtest_logstart("slow"),
        200: lambda watch: watch.pytest_runtest_logfinish("slow"),
    }
    assert next(at for at, line in Play(monkeypatch, begun).run() if line.endswith("running:")) == 440


def test_it_ends_with_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play(monkeypatch, {100: lambda watch: watch.pytest_unconfigure()})
    play.watch._watch()
    assert play.said == []


def test_it_speaks_to_the_terminal_that_was_there_before_pytest_took_descriptor_2() -> None:
    watch = Watch()
    try:
        assert watch._stderr != 2
        assert os.path.sameopenfile(watch._stderr, 2)
    finally:
        os.close(watch._stderr)
