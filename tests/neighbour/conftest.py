"""A log dir on a disk whose lock another process holds, as beside a running broker; and the same in gigabytes."""

from __future__ import annotations

import fcntl
import functools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import NO_CGROUP, ROOT
from tests.neighbour.cgroup import MemoryCgroup, NoCgroupError
from tests.neighbour.logs import make_log_dir
from tests.neighbour.page_cache import forget, resident_bytes


@pytest.fixture(scope="session")
def memory_cgroup() -> None:
    """A memory cgroup can be made here; otherwise the test is skipped, with the reason."""
    try:
        MemoryCgroup(1 << 30).__exit__()
    except NoCgroupError as error:
        pytest.skip(f"{NO_CGROUP}: {error}")


@pytest.fixture(scope="session")
def on_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder on a file system that can drop pages from the page cache: none in memory."""
    for place in (tmp_path_factory.getbasetemp(), Path("/var/tmp"), ROOT):
        folder = Path(tempfile.mkdtemp(prefix="klog-neighbour-", dir=place))
        probe = folder / "probe"
        probe.write_bytes(bytes(1 << 20))
        forget(probe)
        if resident_bytes(probe) == 0:
            probe.unlink()
            yield folder
            shutil.rmtree(folder)
            return
        shutil.rmtree(folder)
    pytest.fail("no file system here drops pages")


@pytest.fixture(scope="session")
def log_dir(on_disk: Path) -> Callable[[int], Path]:
    """Return a function that makes a log dir of so many bytes, once."""
    return functools.cache(lambda size: make_log_dir(on_disk / f"data-{size}", size))


@pytest.fixture
def locked_log_dir(log_dir: Callable[[int], Path]) -> Iterator[Callable[[int], Path]]:
    """Return a function that makes one; this process holds its lock, as a broker would."""
    with ExitStack() as locks:

        def locked(size: int) -> Path:
            lock = locks.enter_context(open(log_dir(size) / ".lock", "r+"))
            fcntl.lockf(lock, fcntl.LOCK_EX)
            return log_dir(size)

        yield locked
