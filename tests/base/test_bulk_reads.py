"""Reads of whole logs beside a broker: the same bytes, the page cache as it was, and a limit."""

from __future__ import annotations

import errno
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from klog.base import page_cache
from klog.base.errors import UnreadableError
from klog.base.page_cache import POLICY
from klog.base.rate_limit import RateLimit
from klog.base.read_only import ReadOnlyFile
from klog.kernel import cached_pages

MIB = 1 << 20
SIZE = 33 * MIB + 12_345
CONTENT = Random(7).randbytes(SIZE)
PAGE = page_cache.PAGE_BYTES
HOW = ("dontcache", "cachestat", "behind", "rate")
"""That of the file system; by what was cached; behind the reader; and none, but a limit."""


@pytest.fixture(scope="module")
def disk() -> Iterator[Path]:
    """A directory on a disk: files in memory are always cached."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def log(disk: Path) -> Path:
    """A log of which nothing is cached."""
    path = disk / "00000000000000000000.log"
    path.write_bytes(CONTENT)
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return path


@pytest.fixture(autouse=True)
def _policy() -> Iterator[None]:
    yield
    POLICY.reset()


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A function after which this process reads by one of HOW."""

    def begin(how: str) -> None:
        POLICY.reset()
        if how != "dontcache":
            monkeypatch.setattr("klog.base.page_cache.supports_dont_cache", lambda descriptor, size: False)
        POLICY.drops = how != "rate"
        POLICY.beside_broker = how == "behind"
        POLICY.rate = RateLimit(1 << 40) if how == "rate" else None
        if how in ("dontcache", "cachestat"):
            POLICY.cached_pages = cached_pages

    return begin


def cached(path: Path, start: int = 0, size: int = 0) -> int:
    """Return how many bytes of a file are cached."""
    with path.open("rb") as file:
        return cached_pages(file.fileno(), start, size) * PAGE


def read_through(path: Path, step: int) -> None:
    """Read a file from start to end as a reader of batches does: steps overlap a little."""
    room = memoryview(bytearray(step))
    with ReadOnlyFile(str(path)) as source:
        at = 0
        while at < source.size:
            count = source.read_into(at, room)
            assert room[:count] == CONTENT[at : at + count]
            at = at + count if at + count == source.size else at + count - 777


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("step", [20_000, 512 << 10, 5 * MIB])
def test_every_mechanism_reads_the_same_bytes(log: Path, how: str, step: int, use: Callable[[str], None]) -> None:
    use(how)
    read_through(log, step)
    random = Random(step)
    with ReadOnlyFile(str(log)) as source:
        for _ in range(200):
            at, size = random.randrange(SIZE + 1000), random.choice((1, 61, 9_000, 70_000, 3 * MIB))
            room = memoryview(bytearray(size))
            count = source.read_into(at, room)
            assert room[:count] == CONTENT[at : at + size] == source.read(at, size)


@pytest.mark.parametrize("how", ["dontcache", "cachestat", "behind"])
def test_a_log_that_was_not_cached_is_not_cached_afterwards(log: Path, how: str, use: Callable[[str], None]) -> None:
    """A broker serves its consumers from the page cache; a command that reads a log once must not fill it."""
    assert cached(log) == 0
    read_through(log, 512 << 10)
    assert cached(log) > SIZE // 2
    with log.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    use(how)
    read_through(log, 512 << 10)
    assert cached(log) <= (PAGE if how != "behind" else 8 * MIB)


@pytest.mark.parametrize("how", ["dontcache", "cachestat"])
def test_a_stretch_that_was_cached_stays_cached(log: Path, how: str, use: Callable[[str], None]) -> None:
    start, size = 10 * MIB + 8 * PAGE, 9 * MIB
    with log.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        os.pread(file.fileno(), size, start)
    before = cached(log)
    use(how)
    read_through(log, 512 << 10)
    assert cached(log, start, size) > 0.98 * size  # the system may need a few pages meanwhile
    assert cached(log) <= before + 128 * 1024


@pytest.mark.parametrize("how", ["dontcache", "cachestat"])
def test_headers_that_lie_close_do_not_fill_the_cache(log: Path, how: str, use: Callable[[str], None]) -> None:
    use(how)
    with ReadOnlyFile(str(log)) as source:
        for at in range(0, SIZE, 16 << 10):
            assert source.read(at, 61) == CONTENT[at : at + 61]
    assert cached(log) < MIB


@pytest.mark.parametrize("how", ["dontcache", "cachestat"])
def test_a_few_headers_stay_cached(log: Path, how: str, use: Callable[[str], None]) -> None:
    """A second lookup profits from the first."""
    use(how)
    with ReadOnlyFile(str(log)) as source:
        for at in (0, 3 * MIB, 30 * MIB, 9 * MIB):
            source.read(at, 61)
    assert cached(log) > 0


@pytest.mark.parametrize("how", ["dontcache", "cachestat"])
def test_slices_of_a_log_leave_nothing_that_was_read_ahead(log: Path, how: str, use: Callable[[str], None]) -> None:
    """The system reads on behind each slice; the reader of the next one must not take that for the broker's."""
    use(how)
    room = memoryview(bytearray(512 << 10))
    for start in (24 * MIB, 16 * MIB, 8 * MIB, 0):
        with ReadOnlyFile(str(log), until=start + 8 * MIB) as source:
            for at in range(start, start + 8 * MIB, len(room)):
                assert source.read_into(at, room) == len(room)
                assert room == CONTENT[at : at + len(room)]
            assert source.read(start + 8 * MIB - 3, 61) == CONTENT[start + 8 * MIB - 3 :][:61]
    POLICY.reset()
    assert cached(log) < MIB


@pytest.mark.parametrize("how", ["dontcache", "cachestat"])
def test_a_log_that_is_read_twice_stays_cached(log: Path, how: str, use: Callable[[str], None]) -> None:
    use(how)
    for at in range(0, 32 * MIB, MIB):
        with ReadOnlyFile(str(log), again=True) as source:
            source.read(at, MIB)
    assert cached(log) >= 32 * MIB


def test_bytes_behind_the_old_end_are_taken_for_cached_where_they_were(log: Path, use: Callable[[str], None]) -> None:
    """A broker appends: its new pages are in the cache before klog opens the log once more."""
    use("cachestat")
    read_through(log, 512 << 10)
    with log.open("ab") as file:
        file.write(CONTENT[: 4 * MIB])
    with ReadOnlyFile(str(log)) as source:
        for at in range(0, source.size, MIB):
            source.read(at, MIB)
    assert 4 * MIB - PAGE <= cached(log) < 5 * MIB


def test_a_file_system_on_which_cachestat_says_nothing_keeps_its_pages(log: Path, use: Callable[[str], None]) -> None:
    """On overlay no page seems to be cached, while posix_fadvise drops those of the file below."""
    read_through(log, 512 << 10)
    use("cachestat")
    POLICY.cached_pages = lambda descriptor, start, size: 0
    read_through(log, 512 << 10)
    assert cached(log) > 0.98 * SIZE


def test_without_any_mechanism_nothing_is_dropped_unless_a_broker_runs(log: Path, use: Callable[[str], None]) -> None:
    use("behind")
    POLICY.beside_broker = False
    read_through(log, 512 << 10)
    assert cached(log) > SIZE // 2


def test_a_file_system_without_the_flag_is_asked_once(
    log: Path, monkeypatch: pytest.MonkeyPatch, use: Callable[[str], None]
) -> None:
    """An older kernel answers EOPNOTSUPP: the ranges are then dropped by what was cached before."""
    asked = []
    preadv = os.preadv

    def refuse(descriptor: int, views: list[memoryview], position: int, flags: int = 0) -> int:
        if flags:
            asked.append(position)
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return preadv(descriptor, views, position)

    monkeypatch.setattr(os, "preadv", refuse)
    use("dontcache")
    read_through(log, 512 << 10)
    read_through(log, 512 << 10)
    assert asked == [SIZE]
    assert cached(log) <= PAGE


@pytest.mark.parametrize("how", HOW)
def test_a_log_that_shrinks_is_read_up_to_its_end(log: Path, how: str, use: Callable[[str], None]) -> None:
    """A broker truncates: the bytes that are left are read, and nothing beyond them."""
    use(how)
    room = memoryview(bytearray(MIB))
    with ReadOnlyFile(str(log)) as source:
        assert source.read_into(0, room) == MIB
        os.truncate(log, 20 * MIB + 5)
        assert source.read_into(20 * MIB, room) == 5
        assert source.read_into(25 * MIB, room) == 0
        assert source.read(20 * MIB - 3, 100) == CONTENT[20 * MIB - 3 : 20 * MIB + 5]


@pytest.mark.parametrize("how", HOW)
def test_bytes_that_a_broker_appends_meanwhile_can_be_read(log: Path, how: str, use: Callable[[str], None]) -> None:
    use(how)
    with ReadOnlyFile(str(log)) as source:
        room = memoryview(bytearray(MIB))
        assert source.read_into(SIZE - 10, room) == 10
        with log.open("ab") as file:
            file.write(b"more")
        assert source.read(SIZE - 2, 100) == CONTENT[-2:] + b"more"


@pytest.mark.parametrize("how", HOW)
def test_a_bad_sector_has_the_position_that_it_has_without_the_door(
    log: Path, how: str, monkeypatch: pytest.MonkeyPatch, use: Callable[[str], None]
) -> None:
    """A step that cannot be read as a whole is read as it was requested: the bytes before the bad sector are given."""
    bad = 9 * MIB
    preadv = os.preadv

    def fail(descriptor: int, views: list[memoryview], position: int, flags: int = 0) -> int:
        if position <= bad < position + len(views[0]):
            raise OSError(errno.EIO, "Input/output error")
        return preadv(descriptor, views, position, flags)

    use(how)
    monkeypatch.setattr(os, "preadv", fail)
    room = memoryview(bytearray(512 << 10))
    with ReadOnlyFile(str(log)) as source:
        for at in range(0, bad, len(room)):
            assert source.read_into(at, room) == len(room)
        with pytest.raises(OSError, match="Input/output error"):
            source.read_into(bad, room)
        with pytest.raises(UnreadableError, match="cannot read: Input/output error"):
            source.read(bad, 100_000)
        assert source.read_into(bad + 1, room) == len(room)
        assert room == CONTENT[bad + 1 : bad + 1 + len(room)]


@pytest.mark.parametrize("threads", [1, 4])
def test_a_rate_holds_over_all_threads(log: Path, threads: int, use: Callable[[str], None]) -> None:
    """Half a second for half a second's bytes, however many read."""
    use("dontcache")
    POLICY.rate = RateLimit(2 * SIZE)
    readers = [threading.Thread(target=read_through, args=(log, 512 << 10)) for _ in range(threads)]
    began = time.monotonic()
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert 0.45 * threads < time.monotonic() - began < 0.6 * threads + 0.5


def test_a_rate_allows_no_burst_above_a_quarter_of_a_second() -> None:
    """A limit that saves up for a minute of waiting is none for the disk."""
    limit = RateLimit(1000)
    limit._due -= 60
    now = time.monotonic()
    assert now - 0.01 < limit.take(250) < now + 0.05
    assert limit.piece_bytes == 250
    assert limit.share(4).rate == 250
