"""Threads run search, stats and export: results keep the order of the log, and ^C ends them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from klog.base.errors import KlogError
from klog.base.progress import Silence
from klog.jobs import runner
from klog.jobs.runner import Job, TaskResult, Threads

from tests.commands.dump.sinks import Kept
from tests.conftest import FIXTURES, Ran
from tests.jobs.pieces import dumped, folder_of, lines, partitions
from tests.oracles.plain.encode import Record, batch
from tests.oracles.plain.shapes import MS

Klog = Callable[..., Ran]
MODERN = FIXTURES / "modern"


@pytest.mark.parametrize("jobs", [1, 3])
def test_finds_are_lines_of_a_dump(klog: Klog, jobs: int) -> None:
    how = ("--topic", "[dgpsz]*", "--key", "key-17", "--key", "hex:6b65792d33", "--from-offset", "2")
    done = klog("search", "-o", "jsonl", MODERN, *how, "--jobs", str(jobs))
    expected = klog("dump", MODERN, "--output", "jsonl", *how)
    assert (done.exit_code, done.stderr) == (0, b"")
    assert re.sub(rb',"file":"[^"]*"', b"", done.stdout) == expected.stdout != b""


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize("limit", [1, 100, 700])
def test_the_first_finds_are_given_whoever_is_done_first(klog: Klog, jobs: int, limit: int) -> None:
    every = klog("search", "-o", "jsonl", MODERN, "--topic", "[a-z]*").stdout.splitlines()
    done = klog("search", "-o", "jsonl", MODERN, "--topic", "[a-z]*", "--limit", str(limit), "--jobs", str(jobs))
    assert done.stdout.splitlines() == every[:limit]


@pytest.mark.parametrize("jobs", [1, 3])
def test_stats_count_what_a_dump_shows(klog: Klog, jobs: int) -> None:
    done = klog("stats", MODERN, "--output", "json", "--jobs", str(jobs))
    found = {(one["topic"], one["partition"]): one["records"] for one in json.loads(done.stdout)}
    assert done.exit_code == 0
    for partition in partitions(MODERN):
        if partition.topic and partition.topic.startswith(("dense", "tx", "zstd")):
            seen = [line for line in dumped(partition) if "damage" not in line]
            assert found[partition.topic, partition.number] == len(seen)


@pytest.mark.parametrize("jobs", [1, 3])
def test_an_export_has_each_record_once_and_goes_on_where_one_was_killed(
    klog: Klog, tmp_path: Path, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, how = tmp_path / "out", ("--output", "jsonl", "--jobs", str(jobs))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("klog.jobs.export.finish", killed)
        assert klog("export", MODERN, "--to", out, *how).exit_code == 32
    assert [path.name for path in out.iterdir() if path.name != ".lock"] == [".klog-unfinished"]
    done = klog("export", MODERN, "--to", out, *how)
    assert (done.exit_code, done.stderr) == (0, b"")
    for partition in partitions(MODERN):
        assert lines(folder_of(out, partition)) == dumped(partition)
    assert klog("export", MODERN, "--to", out, *how).exit_code == 16


def test_damage_is_told_and_is_4(klog: Klog, tmp_path: Path) -> None:
    data = FIXTURES / "crash/flip-middle"
    found = klog("search", "-o", "jsonl", data)
    assert (found.exit_code, found.stderr.count(b"\n")) == (4, 1)
    exported = klog("export", data, "--to", tmp_path / "out")
    assert (exported.exit_code, exported.stderr) == (4, found.stderr)
    assert klog("stats", data).exit_code == 4


@pytest.mark.parametrize("command", ["search", "stats", "export"])
def test_no_path_and_a_wrong_choice_are_usage_errors(klog: Klog, command: str, tmp_path: Path) -> None:
    assert klog(command).exit_code == 16
    place = ["--to", tmp_path / "out"] if command == "export" else []
    assert klog(command, tmp_path / "nowhere", *place).exit_code == 16
    option = {"search": "--values", "stats": "--output", "export": "--output"}[command]
    assert klog(command, MODERN, option, "jsnl").exit_code == 16


def test_neither_spark_nor_pyarrow_is_loaded_for_lines() -> None:
    """The start is most of a short run."""
    code = (
        "import sys; from klog_cli.app import main; sys.argv = ['klog', 'search', sys.argv[1], '--limit', '1']; main();"
        "sys.exit(any(name in sys.modules for name in ('pyarrow', 'pyspark', 'numpy')))"
    )
    done = subprocess.run([sys.executable, "-c", code, MODERN / "tx-0"], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.count(b"\n")) == (0, 1)


# what runs the units


def counted(unit: int, options: int) -> Iterator[TaskResult]:
    for number in range(options):
        yield TaskResult("lines", bytes(1 << 20), unit * options + number)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_answers_come_in_the_order_of_the_units(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a worker that is ahead keeps only so much of them."""
    monkeypatch.setattr(runner, "_HELD_BYTES", 3 << 20)
    found: list[int] = []
    sink = Kept()
    is_ahead = threading.Event()

    def uneven(unit: int, options: int) -> Iterator[TaskResult]:
        if unit == 0 and workers > 1:
            is_ahead.wait(60)
            time.sleep(0.1)  # time to return the second unit's results too early
        for answer in counted(unit, options):
            if unit == 1 and answer.number == options + 2:
                is_ahead.set()
            yield answer

    Threads(workers).run(Job(uneven, range(12), 8, [5] * 12), sink, lambda answer: found.append(answer.number))
    assert found == list(range(96))
    assert (sink.expected, sink.advanced) == (60, 60)


@pytest.mark.parametrize("workers", [1, 3])
def test_nothing_follows_the_last_that_is_wanted(workers: int) -> None:
    found: list[int] = []

    def take(answer: TaskResult) -> bool:
        found.append(answer.number)
        return answer.number == 9

    Threads(workers).run(Job(counted, range(12), 4, [1] * 12), Silence(), take)
    assert found == list(range(10))


def failing(unit: int, options: None) -> Iterator[TaskResult]:
    if unit == 3:
        raise KlogError("three")
    yield TaskResult("lines", b"x", unit)


@pytest.mark.parametrize("workers", [1, 3])
def test_what_a_unit_raises_ends_the_run(workers: int) -> None:
    with pytest.raises(KlogError, match="three"):
        Threads(workers).run(Job(failing, range(9), None, [1] * 9), Silence(), lambda answer: False)


def test_who_has_no_answers_need_not_wait_for_those_before() -> None:
    """A compaction writes files and answers nothing: a large partition must not keep others from being begun."""
    others = threading.Semaphore(0)

    def job(unit: int, _options: None) -> Iterator[TaskResult]:
        if unit == 0:
            for _ in range(11):
                assert others.acquire(timeout=60)
        else:
            others.release()
        return iter(())

    Threads(2).run(Job(job, range(12), None, [1] * 12), Silence(), lambda answer: False)


def test_an_interrupt_ends_a_search_with_32(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    one = b"".join(batch([Record(i, MS, None, bytes(1000))]) for i in range(500))
    (folder / f"{0:020}.log").write_bytes(one * 200)
    reset = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "import sys; from klog_cli.app import main; sys.exit(main())"
    )
    command = [sys.executable, "-c", reset, "search", folder, "--jobs", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        os.read(running.stdout.fileno(), 1)
        running.send_signal(signal.SIGINT)
        assert (running.wait(120), running.stderr.read()) == (32, b"klog: cancelled\n")
