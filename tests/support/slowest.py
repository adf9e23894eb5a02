"""A pytest plugin: the cost of files of tests, and the files with which parallel workers begin."""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

TESTS = Path(__file__).parents[1]
LINES = 40
AT_LEAST_SECONDS = 2.0
SLOW = ("slow", "spark", "kafka")
LONGEST = (
    "spark/test_serve_corpora.py",
    "commands/doctor/test_real_starts.py",
    "test_site.py",
    "commands/doctor/test_zookeeper_starts.py",
    "spark/test_cluster.py",
    "commands/doctor/test_expired_offsets_brokers.py",
    "commands/replicas/test_voters_brokers.py",
    "commands/remote/attach/test_real_broker.py",
    "cli/test_bombs.py",
    "commands/follow/test_brokers.py",
    "cli/test_browse.py",
    "commands/groups/test_brokers.py",
    "commands/write/test_brokers.py",
    "commands/follow/test_events_brokers.py",
    "commands/serve/test_corpora.py",
    "commands/remote/test_lost_entries.py",
    "faults/test_refused.py",
    "commands/serve/test_brokers.py",
    "spark/test_connect.py",
    "commands/adopt/test_recipes.py",
    "log/test_hostile.py",
    "partition/lookup/test_broker.py",
    "commands/replicas/test_only_broker_brokers.py",
    "commands/adopt/test_real_broker.py",
    "cli/test_every_command.py",
    "proof/test_proof.py",
    "test_docs.py",
    "commands/follow/client/test_brokers.py",
    "fuzz/test_fuzz.py",
    "change/plan/test_undo_broker.py",
    "schemas/test_avro.py",
    "commands/follow/test_hostile.py",
    "cluster/remote_log/test_cache.py",
    "commands/doctor/test_tiered_starts.py",
    "commands/remote/test_many_segments.py",
    "commands/recover/test_mark_clean_broker.py",
    "commands/remote/test_verify.py",
    "commands/remote/test_buckets.py",
    "commands/dump/test_corpora.py",
    "jobs/test_search_schemas.py",
)
"""Files of tests/ that take longest, the slowest first (see "where the time goes").

Those that wait for brokers alternate with those that compute: side by side they use all cores.
"""


SESSION = frozenset(
    f"spark/test_{name}.py"
    for name in (
        *("drop_in", "files_command", "follow", "identity_options", "outputs", "run", "serve", "serve_corpora"),
        *("session", "data_source", "stats", "verify", "audit", "worker_reads", "remote", "schemas"),
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
    """Return a file's place: the longest by their order, then marked ones, then the rest."""
    name = os.path.relpath(item.path, TESTS)
    if name in LONGEST:
        return LONGEST.index(name)
    return len(LONGEST) + (item.path not in slow)


def processor_seconds(process: int) -> float:
    """Return the processor time that *process* and all its descendants have used, those that it waited for included.

    A process that has ended meanwhile counts nothing: its parent has its time, or it has none.
    """
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        threads = os.listdir(f"/proc/{process}/task")
    except OSError:
        return 0.0
    children = [child for thread in threads for child in _children(process, thread)]
    ticks = sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
    return ticks / os.sysconf("SC_CLK_TCK") + sum(map(processor_seconds, children))


def _children(process: int, thread: str) -> list[int]:
    """Return the processes that a thread has started; none when it has ended, which proves nothing about the others."""
    try:
        return [int(child) for child in Path(f"/proc/{process}/task/{thread}/children").read_text().split()]
    except OSError:
        return []


class ProcessorTime:
    """Notes with the last test of each file the processor time of the file, whatever the other workers did.

    Not with each test: beside brokers, with their many threads, a look at all of them takes longer than most tests.
    """

    def __init__(self) -> None:
        self._before = processor_seconds(os.getpid())
        self._is_last = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        self._is_last = nextitem is None or nextitem.path != item.path

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "teardown" and self._is_last:
            now = processor_seconds(os.getpid())
            report.processor_seconds = max(now - self._before, 0.0)  # type: ignore[attr-defined]
            self._before = now
        return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the files that took longest, and the processor time they used: a wait costs nothing."""
    seconds: Counter[str] = Counter()
    used: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                file = report.nodeid.partition("::")[0]
                seconds[file] += report.duration  # type: ignore[assignment]
                used[file] += getattr(report, "processor_seconds", 0)
    if not any(taken >= AT_LEAST_SECONDS for taken in seconds.values()):
        return
    terminalreporter.section("where the time goes")
    terminalreporter.write_line("  seconds  processor")
    for file, taken in seconds.most_common(LINES):
        if taken >= AT_LEAST_SECONDS:
            terminalreporter.write_line(f"{taken:9.1f}  {used[file]:9.1f}  {file}")
    shown = [file for file, _ in seconds.most_common(LINES)]
    rest = [sum(times.values()) - sum(times[file] for file in shown) for times in (seconds, used)]
    terminalreporter.write_line(f"{rest[0]:9.1f}  {rest[1]:9.1f}  {max(len(seconds) - LINES, 0)} other files")
