"""Mutated batches and messages through the kernel, compiled with sanitizers; `make fuzz` has more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("inputs", [200_000, pytest.param(5_000_000, marks=pytest.mark.long)])
def test_no_mutated_batch_makes_the_kernel_read_or_write_beyond_its_memory(inputs: int) -> None:
    """What comes from a broken disk reaches C code, where a wrong length is not an exception."""
    command = [sys.executable, "-m", "tests.fuzz", "--inputs", str(inputs), "--seed", "20261121"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr[-6000:] + done.stdout
    assert int(done.stdout.split()[0]) >= inputs, done.stdout
