"""^C, to a whole process: its children are gone with it, at any point."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import FIXTURES
from tests.spark import class_data

pytestmark = pytest.mark.spark

DRIVER = """
import sys, time
from klog.base.progress import Silence
from klog.jobs.runner import Job, collect
from klog.spark import run
from klog.spark.session import session
from tests.spark import tasks

classic = run._classic
run._classic = lambda *given: classic(*given)._replace(cancel=lambda: time.sleep(60))
with session("local[2]", {"spark.driver.memory": "512m"}, brief=True) as ours:
    collect(run.SparkRunner(ours.spark), Job(tasks.slow, [60.0] * 2, sys.argv[1], [1] * 2), Silence())
"""


@contextmanager
def started(folder: Path, *arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    """Start a Python whose temporary files are in *folder*; at the end nothing is left, there or in the system."""
    folder.mkdir()
    with subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=class_data.environment() | {"TMPDIR": str(folder)},
    ) as process:
        yield process
    end = time.monotonic() + 90
    while time.monotonic() < end and strays(folder):
        time.sleep(0.05)
    assert strays(folder) == []
    assert [name for name in os.listdir(folder) if name.startswith("klog-")] == []


def strays(folder: Path) -> list[str]:
    """The command lines of all processes that have *folder* for their temporary files."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text())
        except OSError:
            continue  # it has just ended
    return found


def wait_for(folder: Path, pattern: str, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not list(folder.glob(pattern)):
        time.sleep(0.02)
    assert list(folder.glob(pattern)), f"no {pattern} in {folder}"


def test_an_interrupt_while_spark_starts_leaves_nothing(tmp_path: Path) -> None:
    """Starting takes seconds, in which people see that they have mistyped."""
    arguments = ("-m", "klog_cli.app", "spark", "verify", FIXTURES / "modern")
    with started(tmp_path / "temporary", *arguments) as klog:
        wait_for(tmp_path / "temporary", "klog-*/driver.log")
        time.sleep(0.5)
        klog.send_signal(signal.SIGINT)
        assert (*klog.communicate(timeout=60), klog.returncode) == ("", "klog: cancelled\n", 32)


def test_a_second_interrupt_ends_the_process_at_once(tmp_path: Path) -> None:
    """The first one asks Spark; if Spark does not answer, no second terminal should be needed."""
    marks = tmp_path / "marks"
    marks.mkdir()
    with started(tmp_path / "temporary", "-c", DRIVER, marks) as driver:
        wait_for(marks, "*")
        driver.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert driver.poll() is None
        driver.send_signal(signal.SIGINT)
        assert (*driver.communicate(timeout=60), driver.returncode) == ("", "", 32)
