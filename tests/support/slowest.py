"""A pytest plugin: where the time goes, and which files parallel workers begin with."""

from __future__ import annotations

import os
from collections import Counter

import pytest

LINES = 15
AT_LEAST_SECONDS = 2.0
SLOW = ("slow", "spark", "kafka")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let workers begin with the files that take longest: the last one must not leave the others without work."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    slow = {item.path for item in items if any(map(item.get_closest_marker, SLOW))}
    items.sort(key=lambda item: item.path not in slow)


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
