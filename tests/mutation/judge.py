"""Runs tests against mutants, each in a process of its own that is forked from one that has imported pytest.

A mutant is in a copy of core/, the first folder on the path of the tests and of all klog processes that they start.
"""

from __future__ import annotations

import gc
import itertools
import os
import resource
import select
import shutil
import signal
import sys
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import rich.table
import typer.main

from tests.mutation.mutants import Mutant, mutated
from tests.support import memory

ROOT = Path(__file__).resolve().parents[2]
IMPORTED = (rich.table, typer.main)
"""The modules that tests and klog import in any case: once for all mutants."""
QUICK_SECONDS = 0.3
MOST_SECONDS = 20.0
"""The limit of processor time for the tests of a mutant: the quick ones, if all take longer."""
KILLED, OUTLIVED, TIMED_OUT, UNSEEN = "killed", "outlived", "timed out", "no test runs it"


class Verdict(NamedTuple):
    """The fate of a mutant.  *said*: the end of what pytest printed."""

    mutant: Mutant
    outcome: str
    said: str = ""


class Case(NamedTuple):
    """A mutant and the tests that can see it, with the processor seconds that each needs."""

    mutant: Mutant
    tests: dict[str, float]


class _InOrder:
    """A pytest plugin: only the named tests, quick ones first."""

    def __init__(self, tests: dict[str, float]) -> None:
        self._tests = tests

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self._tests]
        seconds = {item.nodeid: self._tests[item.nodeid] for item in items}
        items.sort(key=lambda item: max(seconds[item.nodeid], QUICK_SECONDS))  # stable: files stay together


class Judge:
    """A copy of core/ in which one file at a time has a mistake."""

    def __init__(self, folder: Path) -> None:
        self._core, self._output = folder / "core", folder / "output"
        place = memory.SHARED if memory.has_room() else folder
        self._temporary = place / f"{memory.NAME}{os.getpid()}"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(ROOT / "core", self._core)
        gc.freeze()

    def judge(self, case: Case) -> Verdict:
        """Run the tests of a mutant until one fails."""
        if not case.tests:
            return Verdict(case.mutant, UNSEEN)
        path = self._core / case.mutant.file
        shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)
        source = path.read_text()
        path.write_text(mutated(source, case.mutant))
        try:
            status = self._run(case.tests)
        finally:
            path.write_text(source)
        said = self._output.read_text(errors="replace")[-3000:]
        if status in (None, -signal.SIGXCPU):
            return Verdict(case.mutant, TIMED_OUT, said)
        if status in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED):
            raise RuntimeError(f"{case.mutant}\n{said}")
        return Verdict(case.mutant, KILLED if status else OUTLIVED, said)

    def _run(self, tests: dict[str, float]) -> int | None:
        """Return pytest's exit code in a child, or None if it takes far too long."""
        self._temporary.mkdir(mode=0o1777)
        cpu_seconds = int(15 + 5 * sum(tests.values()))
        if not (child := os.fork()):
            try:
                os._exit(self._child(tests, cpu_seconds))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(pytest.ExitCode.USAGE_ERROR)
        handle = os.pidfd_open(child)
        ended, _, _ = select.select([handle], [], [], 8 * cpu_seconds)
        os.close(handle)
        try:
            os.killpg(child, signal.SIGKILL)
        except ProcessLookupError:
            pass
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        shutil.rmtree(self._temporary, ignore_errors=True)
        return status if ended else None

    def _child(self, tests: dict[str, float], cpu_seconds: int) -> int:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 5))
        resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
        output = os.open(self._output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for number in (1, 2):
            os.dup2(output, number)
        os.environ.pop("KLOG_COUNTS", None)
        os.environ |= {
            "PYTHONPATH": str(self._core),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(self._temporary),
        }
        sys.dont_write_bytecode = True
        sys.path.insert(0, str(self._core))
        files = sorted({name.partition("::")[0] for name in tests})
        options = ["-x", "-q", "--tb=line", "-p", "no:cacheprovider", "-n", "0", "--rootdir", str(ROOT)]
        code = int(pytest.main([*options, *files], plugins=[_InOrder(tests)]))
        klog = sys.modules.get("klog")
        if code == pytest.ExitCode.OK and not str(getattr(klog, "__file__", "")).startswith(str(self._core)):
            return pytest.ExitCode.USAGE_ERROR  # the mutant was not even loaded
        return code


def first_failure(said: str) -> str:
    """Return the line that names the failed test."""
    lines = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return lines[0] if lines else said.strip().rpartition("\n")[2]


class Seen:
    """Which tests run which lines, as the plugin `seen` has found out."""

    def __init__(self, content: dict[str, Any], core: Path) -> None:
        self._core = core
        self._tests: list[tuple[str, float]] = list(content["tests"].items())
        self._lines: dict[str, dict[str, list[int]]] = content["lines"]

    def tests(self, mutant: Mutant, begins: tuple[str, ...]) -> dict[str, float]:
        """Return the tests whose ids begin as named and that run the mutant's lines, with their processor seconds.

        Those of the whole file where the lines run at an import only.  The quickest, as many as there is time for.
        """
        lines = self._lines.get(str(self._core / mutant.file), {})
        places = [str(line) for line in range(mutant.line, mutant.last + 1) if str(line) in lines]
        found = {test for line in places for test in lines[line]}
        if places and not found:
            found = {test for tests in lines.values() for test in tests}
        own = sorted(self._tests[test][::-1] for test in found if self._tests[test][0].startswith(begins))
        totals = itertools.accumulate(seconds for seconds, _ in own)
        return {name: seconds for (seconds, name), total in zip(own, totals, strict=True) if total <= MOST_SECONDS}
