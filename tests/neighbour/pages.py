"""The pages of a broker that klog leaves in the page cache, and those of its own, in a memory cgroup with both."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.neighbour import older_kernel
from tests.neighbour.cgroup import MemoryCgroup
from tests.neighbour.page_cache import forget, resident_bytes

MIB = 1 << 20
_PATH = os.pathsep.join(os.path.abspath(path) for path in sys.path if path)
KLOG = ("env", f"PYTHONPATH={_PATH}", sys.executable, "-m", "klog_cli.app")
"""The command line of this klog; that of another one must not find this one's modules."""
_ATTEMPTS = 5
_FREED = 1024 * MIB
_POPULATED, _MADV_COLD = mmap.MAP_SHARED | mmap.MAP_POPULATE, 20
_APPEND = 'dd if=/dev/zero of="$1" bs=1M count="$2" conv=fsync status=none && cat "$1" > /dev/null'
"""The pages of a broker: written by producers, and read once."""


@dataclass(frozen=True)
class Sizes:
    """Bytes: the log dir that klog reads, the pages of the broker, and the limit of the cgroup."""

    data: int
    broker: int
    limit: int


SMALL, LARGE = Sizes(512 * MIB, 64 * MIB, 384 * MIB), Sizes(4096 * MIB, 512 * MIB, 1536 * MIB)


@dataclass(frozen=True)
class Kept:
    """The result of a run: the part of the broker's pages that klog left, and resident bytes of the files that klog
    read or wrote.

    *was_full*: the cgroup reached its limit.
    """

    broker: float
    own: int
    exit_code: int
    stderr: str
    was_full: bool


def kept_beside(
    words: Sequence[str | Path],
    data: Path,
    sizes: Sizes,
    *,
    lacking: Iterable[str] = (),
    klog: Sequence[str] = KLOG,
    forgets: bool = True,
) -> Kept:
    """Run klog with *words* in a folder beside *data*; *lacking*: see older_kernel.

    *forgets*: nothing of *data* is cached before.  If the machine ran short of memory meanwhile, the system has taken
    pages from every cgroup.  In one that was never full, it took all that are missing; otherwise the run is repeated.
    If that happens in each run, the run that left most pages counts: pages that klog pushes out are missing after every
    run.  Raises NoCgroupError.
    """
    runs = []
    for _ in range(_ATTEMPTS):
        before = _reclaimed_pages()
        runs.append(_kept(words, data, sizes, lacking, klog, forgets))
        if _reclaimed_pages() == before:
            return runs[-1]
        if not runs[-1].was_full:
            return replace(runs[-1], broker=1.0)
        _free_memory()
    return max(runs, key=lambda kept: kept.broker)


def _free_memory() -> None:
    """Take memory and give it back: the system then has enough of it for a while."""
    with mmap.mmap(-1, _FREED, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE):
        pass


def _reclaimed_pages() -> int:
    """Return how many pages the system has taken so far because the whole machine needed memory."""
    rows = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    return int(rows["pgsteal_kswapd"]) + int(rows["pgsteal_direct"])


@contextmanager
def _mapped(path: Path) -> Iterator[None]:
    """Map a file whose pages are cached; they count as read once, as before.

    A system with DAMON may reclaim unmapped pages that were not read for a minute.  A run can take longer beside other
    tests.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, _POPULATED, mmap.PROT_READ) as pages:
        pages.madvise(_MADV_COLD)
        yield


def _kept(
    words: Sequence[str | Path],
    data: Path,
    sizes: Sizes,
    lacking: Iterable[str],
    klog: Sequence[str],
    forgets: bool,
) -> Kept:
    with tempfile.TemporaryDirectory(dir=data.parent) as name, MemoryCgroup(sizes.limit) as room:
        folder, broker = Path(name), Path(name, "broker.log")
        if forgets:
            forget(data)
        append = ("sh", "-c", _APPEND, "sh", broker, str(sizes.broker // MIB))
        subprocess.run(room.inside(*append), check=True)
        older = (sys.executable, older_kernel.__file__, *lacking, "--")
        with _mapped(broker):
            assert resident_bytes(broker) == sizes.broker
            done = subprocess.run(
                room.inside(*older, *klog, *words),
                cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
            )  # fmt: skip
            left = resident_bytes(broker)
        broker.unlink()
        own = resident_bytes(data, folder)
        return Kept(left / sizes.broker, own, done.returncode, done.stderr, room.was_full())
