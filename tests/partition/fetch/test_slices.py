"""Slices: whoever reads on finds the next batches without reading a header, wherever fetches begin and end."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from random import Random

import pytest
from klog.base.read_only import ReadOnlyFile
from klog.partition.fetch import read_slices as slices
from klog.partition.fetch.read_slices import SliceCache, WindowPool

from tests.kernel.windows import loaded, scanned
from tests.oracles.plain.encode import Record, batch, message
from tests.oracles.plain.shapes import some_records
from tests.partition.fetch.test_fetch import Fetches
from tests.support.lookup_logs import MS, batches_of, write_segment

KIB = 1 << 10


def mixed(chance: Random, total: int) -> list[tuple[int, int, bytes]]:
    """Return batches of one record: mostly small ones, some larger than a slice, with gaps between their offsets."""
    found: list[tuple[int, int, bytes]] = []
    offset = left = 0
    while left < total:
        size = chance.choice((0, 1, 300, 4000, 16_000, chance.randrange(70_000)))
        if chance.random() < 0.01:
            size = chance.choice((255 * KIB, 900 * KIB, 960 * KIB, 1100 * KIB))
        offset += chance.choice((1, 1, 1, 7))
        found.append((offset, MS, batch([Record(offset, MS, None, bytes(size))])))
        left += len(found[-1][2])
    return found


def check_fetches(folder: Path, rows: list[tuple[int, int, bytes]], chance: Random, formats: list[int]) -> None:
    """In any order, with any limit: the sizes show the next batch, and the end of one of *formats*."""
    write_segment(folder, 0, rows)
    fetches = Fetches(folder, "skip")
    starts = [0]
    for _, _, content in rows:
        starts.append(starts[-1] + len(content))
    for _ in range(400):
        first = chance.randrange(len(rows))
        limit = chance.choice((0, 1, 100, 5000, 64 * KIB, 256 * KIB, 1 << 20, chance.randrange(1 << 22)))
        if chance.random() < 0.3:  # exactly to the end of a batch, or one byte less
            limit = starts[chance.randrange(first, len(rows)) + 1] - starts[first] - chance.choice((0, 1))
        last = first + 1
        while last < len(rows) and formats[last] == formats[first] and starts[last + 1] - starts[first] <= limit:
            last += 1
        fetched = fetches.get(rows[first][0], limit)
        (piece,) = fetched.pieces
        assert (piece.position, piece.size) == (starts[first], starts[last] - starts[first])
        assert fetched.next_offset == rows[last - 1][0] + 1


@pytest.mark.parametrize("seed", range(6))
def test_every_fetch_brings_the_batches_that_fit(tmp_path: Path, seed: int) -> None:
    chance = Random(seed)
    rows = mixed(chance, 6 << 20)
    check_fetches(tmp_path / "t-0", rows, chance, [2] * len(rows))


@pytest.mark.parametrize("seed", range(3))
def test_every_fetch_of_old_formats_brings_the_batches_that_fit(tmp_path: Path, seed: int) -> None:
    chance = Random(seed)
    sizes = [chance.choice((10, 1000, 30_000, chance.randrange(200_000), 700 * KIB)) for _ in range(30)]
    formats = [int(i >= 10) for i in range(30)]
    rows = [
        (i, MS, message(i, magic, None, b"x" * size, timestamp=MS))
        for i, (magic, size) in enumerate(zip(formats, sizes, strict=True))
    ]
    check_fetches(tmp_path / "t-0", rows, chance, formats)


def test_old_formats_end_where_they_change_and_reach_over_slices(tmp_path: Path) -> None:
    """A response of one format only: some clients cannot continue into another."""
    rows = [(i, MS, message(i, 0, None, b"x" * 1000)) for i in range(400)]
    rows += [(i, MS, message(i, 1, None, b"x" * 1000, timestamp=MS)) for i in range(400, 800)]
    rows += batches_of((i, i, 1000) for i in range(800, 900))
    write_segment(tmp_path / "t-0", 0, rows)
    fetches = Fetches(tmp_path / "t-0", "skip")
    assert [one.next_offset for one in fetches.all(1 << 30)] == [400, 800, 900]
    size = len(rows[0][2])
    assert fetches.get(10, 300 * size).next_offset == 310
    assert fetches.get(390, 300 * size).next_offset == 400


def test_an_old_batch_larger_than_what_old_formats_are_given_comes_whole(tmp_path: Path) -> None:
    rows = [(i, MS, message(i, 1, None, b"x" * (5 << 20), timestamp=MS)) for i in range(2)]
    write_segment(tmp_path / "t-0", 0, rows)
    fetches = Fetches(tmp_path / "t-0", "skip")
    assert [one.next_offset for one in fetches.all(1 << 30)] == [1, 2]


def test_few_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gigabyte has sixteen million of the smallest batches."""
    monkeypatch.setattr(slices, "_MOST_BATCHES", 20_000)
    log = write_segment(tmp_path / "t-0", 0, batches_of((i, i, 80) for i in range(36_000)))
    kept = SliceCache(WindowPool())
    with ReadOnlyFile(str(log)) as source:
        for position in range(0, source.size, 80_000):
            found = kept.at(source, position, 0, source.size)
            assert found is not None
            assert found.start <= position < found.ends[-1]
            assert sum(len(one.ends) for one in kept._recent.values()) == kept._batches <= 20_000
        assert kept.at(source, source.size, 0, source.size) is None


def test_what_is_remembered_of_offsets_keeps_no_slice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For thousands of partitions, hundreds of offsets each, a quarter of the log would be in memory."""
    monkeypatch.setattr(slices, "_MOST_BATCHES", 1)
    write_segment(tmp_path / "t-0", 0, batches_of((i, i, 80) for i in range(30_000)))
    fetches = Fetches(tmp_path / "t-0", "skip")
    assert sum(1 for _ in fetches.all(64 * KIB)) > 30
    gc.collect()
    alive = [one for one in gc.get_objects() if isinstance(one, slices.Slice) and str(tmp_path) in one.key[0]]
    assert len(fetches.log._next) > 30
    assert len(alive) == 1


def test_a_log_that_vanishes_or_shrinks_under_a_reader_is_passed_over(tmp_path: Path) -> None:
    """The known ranges are dropped, and the next segment follows."""
    for folder, change in ((tmp_path / "t-0", Path.unlink), (tmp_path / "t-1", lambda log: os.truncate(log, 4500))):
        first = write_segment(folder, 0, batches_of((i, i, 1000) for i in range(2000)))
        write_segment(folder, 2000, batches_of((i, i, 1000) for i in range(2000, 2010)))
        fetches = Fetches(folder, "skip")
        assert fetches.get(0, 5000).next_offset == 5
        assert fetches.get(5, 5000).next_offset == 10
        change(first)
        fetches.files.close()  # as if others had been opened meanwhile
        assert fetches.offsets(fetches.get(10, 5000))[0] == (2000, 2000)
        assert str(first) in fetches.problems[0]


def test_what_the_file_does_not_hold_any_more_is_in_no_slice(tmp_path: Path) -> None:
    log = write_segment(tmp_path / "t-0", 0, batches_of((i, i, 1000) for i in range(10)))
    with ReadOnlyFile(str(log)) as source:
        log.write_bytes(log.read_bytes()[:5500])
        found = SliceCache(WindowPool()).at(source, 4000, 0, source.size)
        assert found is not None
        assert found.batch(4000) == (1000, 4, 2)
        assert SliceCache(WindowPool()).at(source, 9000, 6000, source.size) is None


# the kernel's result for it


def test_edges_are_those_of_the_batches_up_to_a_change_of_format() -> None:
    data = b"".join(batch(some_records(3), base_offset=offset) for offset in (5, 10, 20))
    window = scanned(data + message(30, 1, None, b"x", timestamp=MS), position=4096)
    count, ends, lasts = window.edges()
    rows = [window.batch(i) for i in range(window.count)]
    assert (count, len(rows)) == (3, 4)
    assert list(memoryview(ends).cast("q")) == [row.position + row.size for row in rows[:3]] + [0]
    assert list(memoryview(lasts).cast("q")) == [row.last_offset for row in rows[:3]] + [0]


def test_edges_of_nothing_and_of_the_last_offset_there_is() -> None:
    assert loaded(b"").edges() == (0, b"", b"")
    window = scanned(batch([Record(2**63 - 1, MS, None, b"")]))
    assert list(memoryview(window.edges()[2]).cast("q")) == [2**63 - 1]
