"""Rules for each command: none is forgotten, and an exception in it is printed, and is never exit code 1."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest
from klog.base.errors import ExitCode, KlogError

from tests.conftest import Ran
from tests.support import every_command
from tests.support.every_command import ELSEWHERE, ON_ONE_DISK, ON_SEVERAL_DISKS, leaves, run

RUNS = {
    name: words
    for name, words in {**ON_ONE_DISK, **ON_SEVERAL_DISKS, "apply": "apply plan", "undo": "undo plan"}.items()
    if name != "serve"
}
MORE_FORMS = (
    "stats data --output json", "stats data --output jsonl", "space data --output prometheus --to new",
    "dump --output csv data", "describe data --output json", "doctor data --output json", "verify data --output json",
    "verify data --output prometheus --to new", "recover data --output json", "keys check data --output json",
    "audit headers data --output json", "transactions data --output csv", "groups data --output csv",
    "space data --output csv", "export data --to new", "truncate data/tx-0 --to-offset 2 --save-plan new",
)  # fmt: skip
ERRORS: dict[str, Callable[[], Exception]] = {
    "KlogError": lambda: KlogError("injected"),
    "OSError": lambda: OSError(errno.EIO, os.strerror(errno.EIO), "injected"),
    "MemoryError": MemoryError,
    "RecursionError": lambda: RecursionError("injected"),
    "bug": lambda: KeyError("injected"),
}
DEPTHS = ("shallow", "middle", "deep")


def test_no_command_is_forgotten() -> None:
    def is_run(command: str) -> bool:
        return command in ELSEWHERE or any(f"{words} ".startswith(f"{command} ") for words in RUNS.values())

    assert [one for one in leaves() if one != "serve" and not is_run(one)] == []


@pytest.fixture(scope="module")
def latin_place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder and a partition with names that are not UTF-8, as file systems have them from other times."""
    folder = tmp_path_factory.mktemp("names") / os.fsdecode(b"f\xe9")
    folder.mkdir()
    every_command.disks(folder)
    (folder / "data/tx-0").rename(folder / "data" / os.fsdecode(b"caf\xe9-0"))
    return folder


@pytest.mark.parametrize("words", [*(words for name, words in ON_ONE_DISK.items() if name != "serve"), *MORE_FORMS])
def test_a_name_that_is_not_utf8_is_a_name(words: str, latin_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It belongs to no topic, but its content is shown."""
    monkeypatch.chdir(latin_place)
    monkeypatch.setenv("XDG_STATE_HOME", str(latin_place / "state"))
    typed = [word.replace("tx-0", os.fsdecode(b"caf\xe9-0")) for word in words.split()]
    whole = [str(latin_place / word) if word.startswith("data") else word for word in typed]
    for given in (typed, whole):
        ran = run(" ".join(given))
        assert b"a bug in klog" not in ran.stderr, ran
        assert not ran.exit_code & ExitCode.CORRECTED, ran


def test_the_room_on_the_disk_changes_no_answer(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests compare answers of different moments, and other processes fill the disk meanwhile."""
    monkeypatch.chdir(place)
    monkeypatch.setenv("XDG_STATE_HOME", str(place / "state"))
    real = os.statvfs

    def answers(used: float) -> dict[str, Ran]:
        def facts(path: str) -> os.statvfs_result:
            values = list(real(path))
            values[4] = int(values[2] * (1 - used))
            return os.statvfs_result(values)

        monkeypatch.setattr(os, "statvfs", facts)
        return {words: run(words) for name, words in ON_ONE_DISK.items() if name != "serve"}

    assert answers(0.123) == answers(0.456)


class _Calls:
    """Counts how deep klog's own functions call each other; raises an error at the first call of a depth."""

    def __init__(self, depth: int = 0, error: Exception | None = None) -> None:
        self._at, self._error, self.deepest, self._depth = depth, error, 0, 0

    def __enter__(self) -> _Calls:
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _see(self, frame: FrameType, event: str, _about: object) -> None:
        name = frame.f_globals.get("__name__", "")
        if event not in ("call", "return") or not name.startswith(("klog.", "klog_cli.")):
            return
        if name in ("klog_cli.app", "klog_cli.output", "klog_cli.command_tree", "klog.base.unusable"):
            return
        if frame.f_code.co_name == "<module>":
            return
        self._depth = max(self._depth + (1 if event == "call" else -1), 0)
        self.deepest = max(self.deepest, self._depth)
        if event == "call" and self._error is not None and self._depth == self._at:
            error, self._error = self._error, None
            raise error


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("commands")
    every_command.disks(folder)
    every_command.several(folder)
    return folder


def _injected(words: str, error: Exception, depth: str) -> Ran:
    with _Calls() as calls:
        run(words)
    at = {"shallow": 1, "middle": max(calls.deepest // 2, 1), "deep": max(calls.deepest - 1, 1)}[depth]
    with _Calls(at, error):
        return run(words)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("name", RUNS)
def test_whatever_is_raised_is_never_exit_code_1(
    name: str, depth: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 1 means that problems were corrected.  One kind of error each; `long` takes all."""
    monkeypatch.chdir(place)
    kinds = list(ERRORS)
    error = ERRORS[kinds[(list(RUNS).index(name) + DEPTHS.index(depth)) % len(kinds)]]()
    _judge(_injected(RUNS[name], error, depth), error, depth)


@pytest.mark.long
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("name", RUNS)
def test_no_kind_of_error_is_exit_code_1(
    name: str, kind: str, depth: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    error = ERRORS[kind]()
    _judge(_injected(RUNS[name], error, depth), error, depth)


def _judge(ran: Ran, error: Exception, depth: str) -> None:
    assert not ran.exit_code & ExitCode.CORRECTED, ran
    assert b"Traceback" not in ran.stderr, ran
    if depth == "shallow":
        assert ran.exit_code & (ExitCode.OPERATIONAL_ERROR | ExitCode.USAGE), ran
        assert ran.stderr.startswith(b"klog: "), ran
