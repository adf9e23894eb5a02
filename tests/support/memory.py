"""A pytest plugin: files of tests are in memory, if there is plenty of it.

Hundreds of log dirs are repaired, each with a sync for each file: on a disk that is a third of the time of all tests.
TMPDIR, if it is set, names another place.  The files of failed tests stay until the next run.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest

SHARED = Path("/dev/shm")
NAME = "klog-tests-"
LEAST_BYTES = 8 << 30
"""The free memory that is needed.  Tests and their brokers use 5 GiB, and a tmpfs has half of all memory."""


def pytest_configure(config: pytest.Config) -> None:
    if "TMPDIR" in os.environ or "PYTEST_XDIST_WORKER" in os.environ or not has_room():
        return
    for left in SHARED.glob(f"{NAME}*"):
        if not Path("/proc", left.name.removeprefix(NAME)).exists():
            shutil.rmtree(left, ignore_errors=True)
    folder = SHARED / f"{NAME}{os.getpid()}"
    folder.mkdir()
    folder.chmod(0o1777)  # the mode of all temporary files: some tests change the user for a while
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None  # it is looked up again
    config.stash[FOLDER] = folder


FOLDER = pytest.StashKey[Path]()


def has_room() -> bool:
    """Return whether there is memory enough for the files of tests."""
    try:
        mounts, memory = Path("/proc/mounts").read_text(), Path("/proc/meminfo").read_text()
        room = shutil.disk_usage(SHARED).free
    except OSError:
        return False
    available = re.search(r"^MemAvailable: +(\d+) kB$", memory, re.MULTILINE)
    options = re.search(rf"^\S+ {SHARED} tmpfs (\S+)", mounts, re.MULTILINE)
    if available is None or options is None or "noexec" in options[1].split(","):
        return False
    return os.access(SHARED, os.W_OK) and int(available[1]) << 10 >= LEAST_BYTES and room >= LEAST_BYTES // 2


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    folder = session.config.stash.get(FOLDER, None)
    if folder is not None and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        shutil.rmtree(folder, ignore_errors=True)
