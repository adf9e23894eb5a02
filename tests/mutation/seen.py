"""A pytest plugin: which tests run which lines of the mutated packages, and how long each test takes.

A mutant can only be seen by a test that runs the line that it changes.  Lines that a forked child of a test runs are
that test's too.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

VARIABLE = "KLOG_MUTATION_SEEN"
"""The file that the plugin writes: {"tests": {id: processor seconds}, "lines": {file: {line: [places of tests]}}}."""
PACKAGES = "KLOG_MUTATION_PACKAGES"
"""The directories, each between colons, whose lines are noted."""
_IMPORT = "import"

_target = Path(os.environ[VARIABLE])
_current = _IMPORT
_seconds: dict[str, float] = {}
_failed: set[str] = set()
_measured = coverage.Coverage(
    data_file=str(_target.with_suffix(".coverage")),
    data_suffix=True,
    config_file=False,
    include=[f"{folder}/*" for folder in os.environ[PACKAGES].split(":")],
)
_measured.set_option("run:patch", ["fork", "_exit"])
_measured.start()
_measured.switch_context(_current)
for _folder in os.environ[PACKAGES].split(":"):  # what runs at an import is no single test's
    for _file in Path(_folder).glob("*.py"):
        importlib.import_module(f"klog.{_file.parent.name}.{_file.stem}")


def _in_child() -> None:
    if (current := coverage.Coverage.current()) is not None:
        current.switch_context(_current)


os.register_at_fork(after_in_child=_in_child)


def _processor_seconds() -> float:
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    global _current
    _current = item.nodeid
    _measured.switch_context(_current)
    began = _processor_seconds()
    try:
        return (yield)
    finally:
        _seconds[item.nodeid] = round(_processor_seconds() - began, 3)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if not report.passed:
        _failed.add(report.nodeid)


def pytest_unconfigure() -> None:
    _measured.stop()
    _measured.save()
    _measured.combine()
    data = _measured.get_data()
    tests = {name: seconds for name, seconds in _seconds.items() if name not in _failed}
    places = {name: place for place, name in enumerate(tests)}
    lines = {
        file: {line: [places[name] for name in set(names) & tests.commands.keys()] for line, names in by_line.items()}
        for file in data.measured_files()
        if (by_line := data.contexts_by_lineno(file))
    }
    _target.write_text(json.dumps({"tests": tests, "lines": lines}))
