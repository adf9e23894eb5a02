"""Reads beside a broker leave the broker's pages in the cache, and few of klog's own.

All run in a memory cgroup.  Sizes: see SMALL and LARGE in tests/neighbour/pages.py.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.neighbour.page_cache import can_tell, forget, resident_bytes
from tests.neighbour.pages import KLOG, LARGE, MIB, SMALL, Kept, Sizes, kept_beside

pytestmark = pytest.mark.usefixtures("memory_cgroup")

Make = Callable[[int], Path]
NEITHER = "neither it nor cachestat"
KERNELS = {"this kernel": (), "no RWF_DONTCACHE": ("dontcache",), NEITHER: ("dontcache", "cachestat")}
COMMANDS = {
    "verify": "",
    "verify one thread": "-j 1",
    "verify deep": "--deep",
    "search": "--key no-such-key",
    "stats": "",
    "space": "--sample 1 --top-keys 3",
    "audit": "",
    "dump": "",
    "dump rows": "-o jsonl",
    "export": "-o jsonl --to new",
    "export parquet": "-o parquet --to new",
    "report": "--to new.html",
    "recover": "",
    "timeline": "",
    "compact": "--policy compact --all --to new",
}
"""Each command that reads whole logs, and its options."""
FAST = ("search", "audit", "export")


def run(command: str, data: Path, sizes: Sizes, *more: str, kernel: str = "this kernel", forgets: bool = True) -> Kept:
    words = [command.split()[0], data, *COMMANDS[command].split(), *more]
    kept = kept_beside(words, data, sizes, lacking=KERNELS[kernel], forgets=forgets)
    assert kept.exit_code in (0, 4), kept
    assert "Traceback" not in kept.stderr
    return kept


def runs() -> list[object]:
    """Return each command on each kernel, in gigabytes; some of them also in a small form."""
    return [
        pytest.param(
            command, kernel, sizes, marks=[pytest.mark.long] * (sizes is LARGE), id=f"{command}-{kernel}-{name}"
        )
        for command in COMMANDS
        for kernel in KERNELS
        for name, sizes in {"small": SMALL, "large": LARGE}.items()
        if sizes is LARGE or command == "verify" or (command in FAST and kernel == "this kernel")
    ]


@pytest.mark.parametrize(("command", "kernel", "sizes"), runs())
def test_the_pages_of_a_broker_stay(locked_log_dir: Make, command: str, kernel: str, sizes: Sizes) -> None:
    """Pages that were written and read once are the first that a system gives up for others.

    A kernel that cannot tell which pages were cached leaves those that it has read ahead of a reader.
    """
    kept = run(command, locked_log_dir(sizes.data), sizes, kernel=kernel)
    assert kept.broker >= 0.98
    assert kept.own <= (64 * MIB if can_tell() and kernel != NEITHER else sizes.data // 8)


def test_they_do_not_stay_beside_plain_reads(locked_log_dir: Make) -> None:
    """The cgroup is small enough: this is what the tests above would see without klog's care."""
    kept = run("verify", locked_log_dir(SMALL.data), SMALL, "--cache", "keep")
    assert kept.broker < 0.5
    assert kept.own > 64 * MIB


def test_without_a_broker_the_pages_are_kept(log_dir: Make) -> None:
    """The second command profits from the first."""
    assert run("verify", log_dir(SMALL.data), SMALL).own > 64 * MIB


@pytest.mark.parametrize("kernel", KERNELS)
def test_without_a_broker_they_are_dropped_on_request(log_dir: Make, kernel: str) -> None:
    """A kernel that cannot tell which pages were cached before would drop them all: there they are kept."""
    kept = run("verify", log_dir(SMALL.data), SMALL, "--cache", "drop", kernel=kernel)
    if can_tell() and kernel != NEITHER:
        assert kept.broker >= 0.98
        assert kept.own <= 64 * MIB
    else:
        assert kept.own > 64 * MIB


@pytest.mark.parametrize("kernel", KERNELS)
def test_pages_that_klog_reads_and_a_broker_had_cached_stay(locked_log_dir: Make, kernel: str) -> None:
    """The newest segments are those that consumers fetch; a kernel that cannot tell them apart loses them."""
    data = locked_log_dir(SMALL.data)
    forget(data)
    newest = data / "big-3" / f"{0:020}.log"
    with newest.open("rb") as file:
        file.seek(-32 * MIB, 2)
        file.read()
    before = resident_bytes(newest)
    assert before >= 32 * MIB
    kept = run("verify", data, SMALL, kernel=kernel, forgets=False)
    assert kept.own <= before + 64 * MIB
    if can_tell() and kernel != NEITHER:
        assert resident_bytes(newest) >= 0.98 * before
    else:
        assert resident_bytes(newest) < 0.5 * before


def test_many_small_outputs_are_dropped_too(log_dir: Make) -> None:
    """An export makes thousands of them: together they would push out as much as one large file."""
    data = log_dir(SMALL.data)
    with tempfile.TemporaryDirectory(dir=data.parent) as folder:
        for cache in ("keep", "drop"):
            words = ("export", data, "-o", "parquet", "--cache", cache, "--to", f"{folder}/{cache}", "--quiet")
            subprocess.run([*KLOG, *words], check=True)
        kept, dropped = (list(Path(folder, name).rglob("*.parquet")) for name in ("keep", "drop"))
        assert len(kept) == len(dropped) > 2
        assert all(64 << 10 < file.stat().st_size < MIB for file in kept)
        assert [resident_bytes(file) for file in dropped] == [0] * len(dropped)
        assert all(resident_bytes(file) for file in kept)


@pytest.mark.long
@pytest.mark.spark
def test_the_pages_of_a_broker_stay_beside_spark(locked_log_dir: Make) -> None:
    """The executors read as a command does."""
    data = locked_log_dir(LARGE.data)
    words = ("spark", "verify", data, "--master", "local[2]", "--spark-conf", "spark.driver.memory=512m")
    kept = kept_beside(words, data, LARGE)
    assert kept.exit_code == 0, kept
    assert kept.broker >= 0.98
    assert kept.own <= 64 * MIB
