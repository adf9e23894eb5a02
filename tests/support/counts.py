"""A pytest plugin that counts the work of tests: `make tested` puts it on a page.

count("power cuts") adds one, most("MiB at most", 7) keeps the largest.  Each process writes its counts to a file of its
own in the directory that KLOG_COUNTS names; without that nothing is written.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

VARIABLE = "KLOG_COUNTS"
PASSED = "tests that passed"
AT_MOST = " at most"
"""In the name of a count whose largest value counts, not the sum."""
KINDS = ("kafka", "corpora", "strace", "fuse", "spark", "browser", "release")
"""Markers by which tests are counted; a test counts by the first that it has."""

_sums: Counter[str] = Counter()


def count(what: str, times: int = 1) -> None:
    """Add to the sum of *what*."""
    _sums[what] += times


def most(what: str, value: int) -> None:
    """Keep the largest *value* of *what*, whose name has "at most"."""
    assert AT_MOST in what
    _sums[what] = max(_sums[what], value)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count a test where it ran, which may be a worker."""
    is_here = "PYTEST_XDIST_WORKER" in os.environ or not hasattr(report, "node")
    if report.when == "call" and report.passed and is_here:
        kind = next((kind for kind in KINDS if kind in report.keywords), "alone")
        count(f"{PASSED}: {kind}")


def pytest_sessionfinish() -> None:
    """Write the counts of this process; those of tests run by tests are not included."""
    if (folder := os.environ.get(VARIABLE)) and "PYTEST_CURRENT_TEST" not in os.environ:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"{os.getpid()}.json").write_text(json.dumps(_sums))
