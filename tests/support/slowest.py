"""A pytest plugin: where the time goes, and which files parallel workers begin with."""

from __future__ import annotations

import functools
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

LINES = 15
AT_LEAST_SECONDS = 2.0
SLOW = ("slow", "spark", "kafka")
LONGEST = (
    "spark/test_serve_corpora.py",
    "spark/test_cluster.py",
    "quorum/test_voters_brokers.py",
    "recover/test_overflow.py",
    "recover/test_marked_broker.py",
    "verify/test_fixes.py",
    "replicas/test_brokers.py",
    "recover/test_ranges.py",
    "serve/test_corpora.py",
    "log/test_hostile.py",
    "recover/test_power.py",
    "replicas/test_copy_plan_brokers.py",
    "dump/test_corpora.py",
    "serve/test_restore.py",
    "plan/test_executor.py",
    "metadata/test_live_cluster.py",
    "spark/test_connect.py",
    "recover/test_images.py",
    "recover/test_mark_clean_broker.py",
    "replicas/test_copy_plan_power.py",
    "lookup/test_broker.py",
    "verify/test_flips.py",
    "serve/test_brokers.py",
    "plan/test_undo_broker.py",
    "verify/test_live.py",
    "recover/test_real_broker.py",
    "lookup/test_corpora.py",
    "spark/test_drop_in.py",
    "plan/test_replace_segments.py",
    "serve/test_old_clients.py",
    "recover/test_survey_walks.py",
    "dump/test_consumer.py",
    "recover/test_places.py",
)
"""Files of tests/ that take longest, the slowest first (see "where the time goes").

Those that wait for brokers stand between those that compute: side by side they use all cores.
"""


SESSION = frozenset(
    f"spark/test_{name}.py"
    for name in (
        *("drop_in", "files_command", "follow", "identity_options", "outputs", "run", "serve", "serve_corpora"),
        *("session", "source", "stats", "verify"),
    )
)
"""Files whose tests share a Spark session.  A single worker takes them: a session costs as much as many of them."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """Give each file to a worker, and all files of a session to one."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Sharing(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "session" if "/".join(file.split("/")[-2:]) in SESSION else file

    return Sharing(config, log)


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
