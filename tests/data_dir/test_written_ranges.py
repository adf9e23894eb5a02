"""Outputs that are not read again: the same bytes, and nothing of them in the page cache afterwards."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from klog.base.page_cache import PAGE_BYTES, POLICY
from klog.base.rate_limit import RateLimit
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.read_options import begin
from klog.kernel import cached_pages

MIB = 1 << 20
CONTENT = Random(3).randbytes(25 * MIB + 77)


@pytest.fixture
def disk() -> Iterator[Path]:
    """A directory on a disk: files in memory are always cached."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)
    POLICY.reset()


def cached(path: Path) -> int:
    """Return how many bytes of a file are cached."""
    with path.open("rb") as file:
        return cached_pages(file.fileno(), 0, 0) * PAGE_BYTES


def written(path: Path, step: int) -> None:
    """Write CONTENT in pieces."""
    disk = Disk()
    file = disk.create(str(path))
    for at in range(0, len(CONTENT), step):
        disk.write(file, CONTENT[at : at + step])
    disk.close(file)
    assert path.read_bytes() == CONTENT if not POLICY.drops else path.stat().st_size == len(CONTENT)


def copied(source: Path, target: Path, start: int) -> None:
    """Copy CONTENT from *start* on."""
    disk = Disk()
    file = disk.create(str(target))
    disk.copy(str(source), start, len(CONTENT), file)
    disk.close(file)


@pytest.mark.parametrize("step", [70_000, 3 * MIB, 20 * MIB])
def test_new_content_does_not_stay_in_the_cache(disk: Path, step: int) -> None:
    """An export beside a broker would push out as much as it writes."""
    written(disk / "kept", step)
    assert cached(disk / "kept") >= len(CONTENT)
    begin(drops=True, beside_broker=True, rate=None)
    written(disk / "dropped", step)
    assert cached(disk / "dropped") <= PAGE_BYTES
    assert (disk / "dropped").read_bytes() == CONTENT


def test_a_small_output_stays(disk: Path) -> None:
    begin(drops=True, beside_broker=True, rate=None)
    made = Disk()
    file = made.create(str(disk / "small"))
    made.write(file, b"x" * 10_000)
    made.close(file)
    assert cached(disk / "small") > 0


@pytest.mark.parametrize("start", [0, 12_345])
def test_a_backup_leaves_neither_its_source_nor_itself_in_the_cache(disk: Path, start: int) -> None:
    source = disk / "source"
    written(source, MIB)
    with source.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    begin(drops=True, beside_broker=True, rate=None)
    copied(source, disk / "copy", start)
    assert cached(disk / "copy") <= PAGE_BYTES
    assert cached(source) <= PAGE_BYTES
    assert (disk / "copy").read_bytes() == CONTENT[start:]


def test_a_copy_of_what_was_cached_leaves_it_there(disk: Path) -> None:
    source = disk / "source"
    written(source, MIB)
    before = cached(source)
    begin(drops=True, beside_broker=True, rate=None)
    copied(source, disk / "copy", 12_345)
    assert cached(source) > 0.98 * before


def test_a_rate_holds_for_copies_and_holes_stay(disk: Path) -> None:
    source = disk / "source"
    with source.open("wb") as file:
        file.write(CONTENT[:MIB])
        file.truncate(20 * MIB)
        file.seek(22 * MIB)
        file.write(CONTENT[22 * MIB :])
    POLICY.rate = limit = RateLimit(400 * MIB)
    copied(source, disk / "copy", 5)
    assert (disk / "copy").read_bytes() == source.read_bytes()[5:]
    assert (disk / "copy").stat().st_blocks < 10 * MIB // 512
    assert limit.taken < 10 * MIB
