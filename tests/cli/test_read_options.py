"""--cache, --rate and --priority: what a command does beside a running broker, and that its results stay the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from klog.base.page_cache import POLICY
from klog.base.read_only import ReadOnlyFile
from klog.data_dir.read_options import ReadOptions, reading
from klog_cli.read_options import READERS

from tests.conftest import FIXTURES, run_klog

HOLDER = (
    "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    shutil.copytree(FIXTURES / "modern", tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def broker(data: Path) -> Iterator[Path]:
    """A log dir whose lock another process holds."""
    command = [sys.executable, "-c", HOLDER, str(data / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        yield data
        assert holder.stdin is not None
        holder.stdin.close()


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, bool, int]]:
    """For each file that is opened: whether its pages are dropped, whether there is a limit, and the nice value."""
    found: list[tuple[bool, bool, int]] = []
    opened = ReadOnlyFile.__init__

    def noted(file: ReadOnlyFile, path: str) -> None:
        found.append((POLICY.drops, POLICY.rate is not None, os.getpriority(os.PRIO_PROCESS, 0)))
        opened(file, path)

    monkeypatch.setattr(ReadOnlyFile, "__init__", noted)
    return found


def test_beside_a_broker_a_command_spares_the_cache_and_waits_for_others(
    broker: Path, seen: list[tuple[bool, bool, int]]
) -> None:
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    ran = run_klog("verify", "-j", "1", broker / "tx-0")
    assert set(seen) == {(True, False, max(nice, 10))}
    assert ran.stderr.count(b"\n") == 1
    assert b"a broker is running on" in ran.stderr
    assert b"reads with low priority" in ran.stderr
    assert b"leaves the page cache as it was" in ran.stderr
    assert (os.getpriority(os.PRIO_PROCESS, 0), POLICY.is_on) == (nice, False)


def test_the_user_may_choose_otherwise(broker: Path, seen: list[tuple[bool, bool, int]]) -> None:
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    ran = run_klog("verify", "-j", "1", broker, "--cache", "keep", "--priority", "normal")
    assert set(seen) == {(False, False, nice)}
    assert ran.stderr == b""
    assert run_klog("verify", broker, "--quiet").stderr == b""


def test_on_a_dead_brokers_disk_the_second_command_profits_from_the_first(
    data: Path, seen: list[tuple[bool, bool, int]]
) -> None:
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    (data / ".lock").touch()
    assert run_klog("verify", "-j", "1", data).stderr == b""
    assert set(seen) == {(False, False, nice)}
    seen.clear()
    assert run_klog("verify", "-j", "1", data, "--cache", "drop", "--priority", "low", "--rate", "1GiB").stderr == b""
    assert set(seen) == {(True, True, max(nice, 10))}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--cache", "dropp"), b"--cache dropp: expected one of drop, keep"),
        (("--priority", "high"), b"--priority high: expected one of normal, low"),
        (("--rate", "fast"), b"'fast' is not a size"),
        (("--rate", "0"), b"--rate 0: expected at least one byte a second"),
    ],
)
def test_a_wrong_value_is_named(data: Path, options: tuple[str, ...], expected: bytes) -> None:
    ran = run_klog("verify", data, *options)
    assert (ran.exit_code, expected in ran.stderr) == (16, True)


def test_a_rate_slows_a_command_down(data: Path) -> None:
    size = sum(path.stat().st_size for path in data.rglob("*.log"))
    began = time.monotonic()
    assert run_klog("verify", "-j", "1", data, "--rate", str(size)).exit_code == 0
    assert time.monotonic() - began > 0.9


@pytest.mark.parametrize("without", ["", "dontcache", "dontcache cachestat"])
def test_results_are_those_of_plain_reads(broker: Path, without: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "dontcache" in without:
        monkeypatch.setattr("klog.base.page_cache.supports_dont_cache", lambda descriptor, size: False)
    if "cachestat" in without:
        monkeypatch.setattr("klog.kernel.cached_pages", lambda descriptor, start, size: -1)
    for command in (["verify"], ["dump", "-o", "jsonl"], ["search", "-o", "jsonl"], ["stats"], ["audit"], ["timeline"]):
        plain = run_klog(*command, broker, "--cache", "keep", "--priority", "normal")
        spared = run_klog(*command, broker, "--rate", "1GiB")
        assert (plain.stdout, plain.exit_code) == (spared.stdout, spared.exit_code)


def test_the_commands_that_read_whole_logs_are_named_as_they_are() -> None:
    """A command that is renamed would lose its options without a word."""
    from klog_cli.command_catalog import read

    having = [command.name for command in read().walk() if any("--cache" in option.names for option in command.options)]
    assert len(having) == len(READERS) == len(set(READERS))


def test_paths_with_a_node_number_lead_to_their_log_dir(broker: Path) -> None:
    notes: list[str] = []
    with reading([f"3={broker}", "-"], ReadOptions(), notes.append):
        assert POLICY.drops
    assert len(notes) == 1
