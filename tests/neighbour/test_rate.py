"""`--rate` holds over all threads of a command."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import run_klog_process
from tests.neighbour.pages import MIB

LONG_MIB, SHORT_MIB = 2000, 128


@pytest.mark.parametrize("jobs", [1, 4])
@pytest.mark.parametrize(
    ("size", "rate"),
    [
        pytest.param(SHORT_MIB, 64, id="two seconds"),
        pytest.param(LONG_MIB, 100, marks=pytest.mark.long, id="twenty seconds"),
    ],
)
def test_a_limit_is_kept(log_dir: Callable[[int], Path], jobs: int, size: int, rate: int) -> None:
    """The short form allows for a burst of a quarter of a second; only the long one fails if klog is too slow."""
    data = log_dir(size * MIB)
    began = time.monotonic()
    run_klog_process("--version")
    start_s = time.monotonic() - began
    began = time.monotonic()
    done = run_klog_process("verify", data, "-j", str(jobs), "--rate", f"{rate}MiB")
    took_s = time.monotonic() - began - start_s
    assert (done.exit_code, done.stderr) == (0, b"")
    if size == SHORT_MIB:
        assert size / rate * 0.95 - 0.25 <= took_s
    else:
        assert size / rate * 0.95 <= took_s <= size / rate * 1.05
