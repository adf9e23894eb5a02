"""The promises of the suite itself: no test waits for ever, `long` runs only where it is named, signals arrive.

Programs in strings, which tests run in other processes, import what is there: no linter looks at them.
"""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.deadline import _End, deadline
from tests.support.slowest import LONGEST, SESSION, _rank

ROOT = Path(__file__).resolve().parent.parent


def test_what_waits_for_ever_fails(tmp_path: Path) -> None:
    with open(tmp_path / "stderr", "w") as stderr:
        began = time.monotonic()
        with pytest.raises(pytest.fail.Exception, match="longer than"), deadline(0.2, stderr):
            time.sleep(300)
        assert time.monotonic() - began < 60
        time.sleep(0.3)  # it is over


def test_what_cannot_be_interrupted_ends_with_all_tracebacks(tmp_path: Path) -> None:
    """A lock that is taken outside Python hears of no signal."""
    script = (
        "import signal, sys, time\n"
        "from tests.support.deadline import deadline\n"
        "with deadline(0.1, sys.stderr, 0.2):\n"
        "    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])\n"
        "    time.sleep(300)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, stderr=subprocess.PIPE, timeout=120, check=False)
    assert done.returncode == 1
    assert b'File "<string>", line 5' in done.stderr


def test_the_end_of_a_process_is_put_off_before_it_comes_and_not_for_each_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time a thread has to be waited for; but a test never has less than its time."""
    now, ends = [1000.0], list[float]()
    monkeypatch.setattr("tests.support.deadline.time.monotonic", lambda: now[0])
    monkeypatch.setattr(
        "tests.support.deadline.faulthandler.dump_traceback_later", lambda after, **_: ends.append(now[0] + after)
    )
    end = _End()
    for step in range(100):
        now[0] = 1000 + 7 * step
        end.after(500, sys.stderr)
        assert now[0] + 500 <= ends[-1] <= now[0] + 560
    assert len(ends) < 14
    end.after(20, sys.stderr)  # another kind of test
    assert ends[-1] == now[0] + 80


def test_workers_that_do_not_end_are_named_and_ended(tmp_path: Path) -> None:
    """A worker that hangs between tests, or behind the last, would otherwise hang for ever, without a hint at its
    place."""
    (tmp_path / "conftest.py").write_text(
        "import os, time\n"
        "from tests.support.workers import Watch\n"
        "def pytest_configure(config):\n"
        "    if 'PYTEST_XDIST_WORKER' not in os.environ:\n"
        "        config.pluginmanager.register(Watch(0.5, 3))\n"
        "def pytest_sessionfinish():\n"
        "    if 'PYTEST_XDIST_WORKER' in os.environ:\n"
        "        time.sleep(300)\n"
    )
    (tmp_path / "test_one.py").write_text("def test_one(): pass\n")
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "1", "--rootdir", ".", "."]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    environment.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(run, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, timeout=120, check=False)
    assert done.returncode == 1
    assert b"1 tests in" in done.stderr
    assert b"pytest -q" in done.stderr  # the processes
    assert b"given up" in done.stderr


def test_a_job_in_the_background_hears_an_interrupt() -> None:
    """A shell starts jobs in the background with SIGINT ignored, and what they start inherits that."""
    test = f"{Path(__file__).relative_to(ROOT)}::test_signals_are_as_in_a_terminal"
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", test]
    ignored = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    )
    done = subprocess.run(
        [sys.executable, "-c", ignored, *run], cwd=ROOT, stdout=subprocess.PIPE, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout.decode()


def test_signals_are_as_in_a_terminal() -> None:
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    child = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    assert subprocess.run([sys.executable, "-c", child], stdout=subprocess.PIPE, check=True).stdout == b"True\n"


IN_MEMORY = """
from pathlib import Path
from tests.support import memory
memory.SHARED, memory.has_room = Path("shared").absolute(), lambda: True
def pytest_configure(config):
    config.pluginmanager.register(memory)
"""
WRITES = """
import os, pytest
def test_that_writes(tmp_path):
    (tmp_path / "file").touch()
    assert "passes" in os.environ
"""


def test_what_tests_write_lies_in_memory_until_they_passed(tmp_path: Path) -> None:
    """The leftovers of a run that failed, or was killed, are deleted by the next one: memory is not for keeping."""
    shared = tmp_path / "shared"
    (shared / "klog-tests-0" / "left").mkdir(parents=True)
    (tmp_path / "conftest.py").write_text(IN_MEMORY)
    (tmp_path / "test_one.py").write_text(WRITES)
    plain = {name: value for name, value in os.environ.items() if name not in ("TMPDIR", "PYTEST_XDIST_WORKER")}
    for more, left in (({}, 1), ({"passes": ""}, 0)):
        run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", "."]
        environment = plain | {"PYTHONPATH": str(ROOT)} | more
        done = subprocess.run(run, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, timeout=120, check=False)
        assert done.returncode == left, done.stdout.decode()
        assert len(list(shared.rglob("file"))) == len(list(shared.iterdir())) == left


@pytest.mark.parametrize(
    ("selected", "collected"),
    [(["-m", "not slow"], 0), (["-m", "long"], 1)],
    ids=["another-marker", "long"],
)
def test_long_runs_only_where_it_is_named(selected: list[str], collected: int) -> None:
    test = f"{Path(__file__).relative_to(ROOT)}::test_that_is_long"
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", "--collect-only", *selected, test]
    done = subprocess.run(run, cwd=ROOT, stdout=subprocess.PIPE, timeout=120, check=False)
    assert done.stdout.count(b"::test_that_is_long\n") == collected, done.stdout.decode()


def test_the_files_that_workers_begin_with_are_there() -> None:
    assert [name for name in LONGEST if not (ROOT / "tests" / name).is_file()] == []


def test_workers_begin_with_the_files_that_take_longest() -> None:
    """In any folder: most of them had no place of their own."""
    items: list[Any] = [SimpleNamespace(path=ROOT / "tests" / name) for name in (*LONGEST, "base/test_errors.py")]
    assert [_rank(set(), item) for item in items] == [*range(len(LONGEST)), len(LONGEST) + 1]


def test_a_single_worker_has_the_files_that_share_a_session() -> None:
    """Another one would start a second JVM."""
    uses = re.compile(r"^def \w+\([^)]*\bspark\b[,:)]", re.MULTILINE)
    files = (path for path in (ROOT / "tests").rglob("test_*.py") if uses.search(path.read_text()))
    assert {path.relative_to(ROOT / "tests").as_posix() for path in files} == SESSION


@pytest.mark.long
def test_that_is_long() -> None:
    """Collected by the test above."""


IMPORT = re.compile(r"^from klog(?:_cli)?[\w.]* import [\w, ]+$", re.MULTILINE)


def test_programs_in_strings_import_what_is_there() -> None:
    """One that cannot start may fail a test for another reason than the one that it is about."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if path.name == "test_layers.py":  # it plants imports of what is not there
            continue
        strings = (node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant))
        for line in (line for text in strings if isinstance(text, str) for line in IMPORT.findall(text)):
            exec(line, {})
