"""The working directories of tests of whole compactions."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from klog.commands.compact import compaction as run


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory in memory: hundreds of log dirs are written, and thousands of files."""
    place = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=place if place.is_dir() else None))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def _every_partition_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of tests are small, and small ones share a thread: then --jobs would not be tried."""
    monkeypatch.setattr(run, "_LARGE_BYTES", 1)
