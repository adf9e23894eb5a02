"""The walk from header to header: the same batches as a scan of the whole log, however sizes and windows fall."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random

import pytest
from klog.base.errors import UnreadableError
from klog.base.read_only import ReadOnlyFile
from klog.formats.batch import BatchFacts
from klog.formats.damage import Damage, DamageKind
from klog.log.header_walk import LARGE_BYTES, SMALL_BYTES, HeaderWalk, walk_headers

from tests.kernel.windows import loaded
from tests.oracles.plain.encode import Record, batch
from tests.oracles.plain.shapes import all_logs
from tests.support.bad_sectors import spoil
from tests.support.reads import count_reads

LOGS = all_logs()


def log_of(sizes: list[int]) -> bytes:
    """Return a log of one-record batches with values of these *sizes*."""
    return b"".join(batch([Record(i, 1000 + i, None, bytes(size))]) for i, size in enumerate(sizes))


def walked(path: Path, position: int = 0) -> list[BatchFacts | Damage]:
    with ReadOnlyFile(str(path)) as source:
        return list(walk_headers(source, position))


def scanned(data: bytes) -> list[BatchFacts]:
    window = loaded(data)
    window.scan(0)
    return [window.batch(i) for i in range(window.count)]


@pytest.mark.parametrize("name", LOGS)
def test_every_format_is_walked(tmp_path: Path, name: str) -> None:
    (tmp_path / "log").write_bytes(LOGS[name])
    assert walked(tmp_path / "log") == scanned(LOGS[name])


@pytest.mark.parametrize("seed", range(8))
def test_no_batch_is_lost_where_windows_meet(tmp_path: Path, seed: int) -> None:
    """Batches of all sizes, so that headers and bodies cross the end of small, growing and large windows."""
    chance = Random(seed)
    sizes = [chance.choice([0, 50, 500, 4000, 8100, 20_000, 70_000]) for _ in range(300)]
    sizes += [chance.randrange(200) for _ in range(20_000 if seed == 0 else 300)]
    data = log_of(sizes)
    (tmp_path / "log").write_bytes(data)
    expected = scanned(data)
    assert len(expected) == len(sizes)
    assert walked(tmp_path / "log") == expected
    middle = len(sizes) // 2
    assert walked(tmp_path / "log", expected[middle].position) == expected[middle:]


def test_of_large_batches_hardly_more_than_the_headers_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = log_of([200_000] * 20)
    (tmp_path / "log").write_bytes(data)
    reads = count_reads(monkeypatch)
    assert len(walked(tmp_path / "log")) == 20
    assert reads.of(tmp_path / "log")[1] <= 20 * SMALL_BYTES


def test_memory_is_one_window_however_many_batches_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = log_of([30] * 40_000)
    (tmp_path / "log").write_bytes(data)
    largest = 0
    real = ReadOnlyFile.read_into

    def read_into(self: ReadOnlyFile, position: int, view: memoryview) -> int:
        nonlocal largest
        largest = max(largest, len(view))
        return real(self, position, view)

    monkeypatch.setattr(ReadOnlyFile, "read_into", read_into)
    assert len(walked(tmp_path / "log")) == 40_000
    assert largest == LARGE_BYTES


@pytest.mark.parametrize("size", [2**31 - 1, 2**31 - 13, 10**9, 5000])
def test_a_size_beyond_the_log_ends_the_walk(tmp_path: Path, size: int) -> None:
    """A damaged length is compared with the remaining bytes, and nothing is read or kept for it."""
    whole = log_of([30, 30])
    (tmp_path / "log").write_bytes(whole + struct.pack(">qiib", 2, size, 0, 2) + bytes(100))
    *found, damage = walked(tmp_path / "log")
    assert found == scanned(whole)
    assert isinstance(damage, Damage)
    assert (damage.kind, damage.place.position, damage.place.offset) == (DamageKind.TORN_TAIL, len(whole), 2)


@pytest.mark.parametrize("beyond", [0, 1, 10**6, 2**40])
def test_a_walk_from_beyond_the_end_finds_nothing(tmp_path: Path, beyond: int) -> None:
    """A wrong index may lead there."""
    (tmp_path / "log").write_bytes(log_of([30, 30]))
    with ReadOnlyFile(str(tmp_path / "log")) as source:
        walk = HeaderWalk(source)
        walk.go(source.size + beyond, source.size + beyond)
        assert (walk.window.count, walk.at_end, walk.more()) == (0, True, False)
        walk.go(0, source.size + beyond)
        assert (walk.window.count, walk.at_end) == (2, True)


def test_damage_behind_many_windows_says_which_offset_was_to_come(tmp_path: Path) -> None:
    whole = log_of([30] * 3000)
    (tmp_path / "log").write_bytes(whole + b"\xff" * 100)
    *found, damage = walked(tmp_path / "log")
    assert len(found) == 3000
    assert isinstance(damage, Damage)
    assert (damage.kind, damage.place.offset, damage.size) == (DamageKind.BAD_LENGTH, 3000, 100)


@pytest.mark.parametrize("size", [100, 10_000, 300_000])
def test_a_bad_sector_ends_the_walk_only_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Windows are large: one that reaches into a bad sector must not hide the batches in front of it."""
    data = log_of([size] * (4_000_000 // size))
    (tmp_path / "log").write_bytes(data)
    expected = scanned(data)
    bad = expected[len(expected) // 2].position
    spoil(monkeypatch, range(bad, bad + 4096))
    found: list[BatchFacts | Damage] = []
    with ReadOnlyFile(str(tmp_path / "log")) as source, pytest.raises(UnreadableError, match="cannot read"):
        found.extend(walk_headers(source))
    assert found == expected[: len(found)]
    last = expected[len(found) - 1]
    assert bad - 2 * SMALL_BYTES < last.position + last.size <= bad
