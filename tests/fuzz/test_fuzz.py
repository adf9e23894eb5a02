"""Mutated batches and messages through the kernel, compiled with sanitizers; `make fuzz` has more."""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
from pathlib import Path

import Cython
import pytest

from tests.brokers import jars
from tests.conftest import ROOT
from tests.fuzz import run
from tests.support import kernel_parts
from tests.support.counts import count


def built() -> Path:
    """Return a folder with the kernel: built once for its sources and what compiles them, because that takes long."""
    compiler = [*shlex.split(os.environ.get("CC", "gcc")), "--version"]
    versions = sys.version.encode(), Cython.__version__.encode(), subprocess.check_output(compiler)
    suffixes = (".pyx", ".pxi", ".pxd", ".h")
    sources = [path for path in sorted(kernel_parts.KERNEL.iterdir()) if path.suffix in suffixes]
    contents = (
        path.name.encode() + path.read_bytes() for path in (*sources, Path(run.__file__), Path(kernel_parts.__file__))
    )
    digest = hashlib.sha256(b"".join((*versions, *contents))).hexdigest()[:16]
    return jars.filled(jars.CACHE / f"fuzz-{digest}", _build)


def _build(folder: Path) -> None:
    for made in run.build(folder / "libs").iterdir():
        if made.suffix in (".c", ".o"):
            made.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("inputs", [50_000, pytest.param(5_000_000, marks=pytest.mark.long)])
def test_no_mutated_batch_makes_the_kernel_read_or_write_beyond_its_memory(inputs: int) -> None:
    """Content of a broken disk reaches C code, where a wrong length is not an exception."""
    command = [sys.executable, "-m", "tests.fuzz", "--inputs", str(inputs), "--seed", "20261121"]
    command += ["--keep", str(built())]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr[-6000:] + done.stdout
    assert int(done.stdout.split()[0]) >= inputs, done.stdout
    count("mutated inputs of the kernel", int(done.stdout.split()[0]))
