"""A pytest plugin: where the time goes, and which files parallel workers begin with."""

from __future__ import annotations

import functools
import os
from collections import Counter
from pathlib import Path

import pytest

LINES = 15
AT_LEAST_SECONDS = 2.0
SLOW = ("slow", "spark", "kafka")
LONGEST = (
    "serve/test_corpora.py",
    "spark/test_cluster.py",
    "dump/test_corpora.py",
    "recover/test_marked_broker.py",
    "log/test_hostile.py",
    "lookup/test_broker.py",
    "spark/test_serve_corpora.py",
    "spark/test_connect.py",
    "recover/test_mark_clean_broker.py",
    "fuzz/test_fuzz.py",
    "recover/test_power.py",
    "recover/test_overflow.py",
    "serve/test_restore.py",
    "spark/test_drop_in.py",
    "recover/test_ranges.py",
    "verify/test_fixes.py",
    "lookup/test_corpora.py",
    "plan/test_undo_broker.py",
    "dump/test_mutated.py",
    "log/test_split_points.py",
    "serve/test_damage.py",
    "recover/test_places.py",
)
"""Files of tests/ that took more than about a minute, the slowest first; see "where the time goes"."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let workers begin with the files that take longest: the last one must not leave the others without work."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    items.sort(key=functools.partial(_rank, {item.path for item in items if any(map(item.get_closest_marker, SLOW))}))


def _rank(slow: set[Path], item: pytest.Item) -> int:
    """Return a file's place: the longest by their order, then what is marked, then the rest."""
    name = "/".join(item.path.parts[-2:])
    if name in LONGEST:
        return LONGEST.index(name)
    return len(LONGEST) + (item.path not in slow)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the files that took longest."""
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.partition("::")[0]] += report.duration  # type: ignore[assignment]
    if not any(taken >= AT_LEAST_SECONDS for taken in seconds.values()):
        return
    terminalreporter.section("where the time goes")
    for file, taken in seconds.most_common(LINES):
        if taken >= AT_LEAST_SECONDS:
            terminalreporter.write_line(f"{taken:8.1f} s  {file}")
    shown = sum(taken for _, taken in seconds.most_common(LINES))
    terminalreporter.write_line(f"{sum(seconds.values()) - shown:8.1f} s  {max(len(seconds) - LINES, 0)} other files")
