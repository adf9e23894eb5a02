"""Indexes only show where to start reading: a good one saves reading, a bad one costs some, none costs an answer."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from klog.base.read_only import ReadOnlyFile
from klog.formats.batch import BatchFacts
from klog.log.header_walk import header_at
from klog.log.index import position_by_time, position_of_offset

from tests.oracles.plain import encode
from tests.oracles.plain.encode import Record, batch
from tests.oracles.plain.shapes import MS

BASE = 5000
COUNT = 200


class Log:
    """A log of batches of three records, an offset apart from the next, and its indexes as a broker writes them."""

    def __init__(self, folder: Path, every: int = 5) -> None:
        data, self.starts, self.positions, self.times = bytearray(), [], [], []
        offsets, times = [], []
        for i in range(COUNT):
            start = BASE + 4 * i
            records = [Record(start + j, MS + 100 * i + j, b"k", b"value") for j in range(3)]
            if i % every == 0 and i:
                offsets.append((start + 2, len(data)))
                times.append((MS + 100 * (i - 1) + 2, start - 2))
            self.starts.append(start)
            self.positions.append(len(data))
            self.times.append(MS + 100 * i + 2)
            data += batch(records)
        self.data = bytes(data)
        self.index_bytes = encode.offset_entries(BASE, offsets)
        self.time_bytes = encode.time_entries(BASE, times)
        self.entries = len(offsets)
        stem = folder / f"{BASE:020}"
        self.path, self.index, self.time_index = (f"{stem}.{kind}" for kind in ("log", "index", "timeindex"))
        Path(self.path).write_bytes(self.data)
        Path(self.index).write_bytes(self.index_bytes)
        Path(self.time_index).write_bytes(self.time_bytes)

    def of_offset(self, offset: int) -> int:
        with ReadOnlyFile(self.path) as source:
            return position_of_offset(source, self.index, BASE, offset)

    def by_time(self, timestamp: int) -> int:
        with ReadOnlyFile(self.path) as source:
            return position_by_time(source, self.index, self.time_index, BASE, timestamp)

    def latest_for_offset(self, offset: int) -> int:
        """Return the position behind which reading must not begin: of the first batch to end at *offset* or later."""
        return next(
            (p for p, start in zip(self.positions, self.starts, strict=True) if start + 2 >= offset), len(self.data)
        )

    def latest_for_time(self, timestamp: int) -> int:
        return next(
            (p for p, time in zip(self.positions, self.times, strict=True) if time >= timestamp), len(self.data)
        )


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def test_a_good_index_leads_near_every_offset(log: Log) -> None:
    """At or before the batch, by less than an index interval."""
    for offset in range(BASE - 5, BASE + 4 * COUNT + 5):
        found, latest = log.of_offset(offset), log.latest_for_offset(offset)
        assert found in log.positions
        assert found <= latest
        assert latest - found <= 6 * len(log.data) // COUNT + 100 or offset < BASE + 4 * 6


def test_a_good_time_index_leads_near_every_time(log: Log) -> None:
    for timestamp in range(MS - 50, MS + 100 * COUNT + 50, 7):
        found, latest = log.by_time(timestamp), log.latest_for_time(timestamp)
        assert found in log.positions
        assert found <= latest
        assert latest - found <= 7 * len(log.data) // COUNT + 100 or timestamp < MS + 100 * 7


def damaged(log: Log, chance: Random) -> list[tuple[str, bytes, bytes]]:
    """Return pairs of an index and a time index, each wrong in some way."""
    index, times, starts, positions = log.index_bytes, log.time_bytes, log.starts, log.positions
    backwards = b"".join(index[at : at + 8] for at in range(len(index) - 8, -1, -8))
    times_backwards = b"".join(times[at : at + 12] for at in range(len(times) - 12, -1, -12))

    def offsets(entry: Callable[[int], tuple[int, int]]) -> bytes:
        return encode.offset_entries(BASE, map(entry, range(1, 99)))

    def moments(entry: Callable[[int], tuple[int, int]]) -> bytes:
        return encode.time_entries(BASE, map(entry, range(1, 99)))

    other = offsets(lambda i: (BASE + 7 * i, 333 * i)), moments(lambda i: (MS + 50 * i, BASE + 7 * i))
    return [
        ("empty", b"", b""),
        ("garbage", chance.randbytes(len(index)), chance.randbytes(len(times))),
        ("preallocated", index + bytes(8 * 1000), times + bytes(12 * 1000)),
        ("zeros", bytes(8 * 100), bytes(12 * 100)),
        ("torn", index[:-3], times[:-5]),
        ("half an entry", b"\1\2\3", b"\1\2\3"),
        ("short", index[:80], times[:120]),
        ("of another log", *other),
        ("backwards", backwards, times_backwards),
        ("positions beyond the log", offsets(lambda i: (starts[i] + 2, 1 << 30)), times),
        ("positions below zero", offsets(lambda i: (starts[i] + 2, -5)), times),
        ("positions a batch too far", offsets(lambda i: (starts[i] + 2, positions[i + 1])), times),
        ("positions in batches", offsets(lambda i: (starts[i] + 2, positions[i] + 10)), times),
        ("offsets too high", offsets(lambda i: (starts[i] + 400, positions[i])), times),
        ("offsets below zero", offsets(lambda i: (BASE - i, positions[i])), times),
        ("times too low", index, moments(lambda i: (MS + i, starts[i] + 2))),
        ("times too high", index, moments(lambda i: (MS + 10**6 * i, starts[i] + 2))),
        ("offsets of times too high", index, moments(lambda i: (MS + 100 * i + 2, starts[i + 50]))),
    ]


def test_a_bad_index_never_leads_too_far(log: Log) -> None:
    """The log confirms, or reading begins at its start: missing a record would be a wrong answer."""
    chance = Random(5)
    for name, index, times in damaged(log, chance):
        Path(log.index).write_bytes(index)
        Path(log.time_index).write_bytes(times)
        for _ in range(40):
            offset = chance.randrange(BASE - 5, BASE + 4 * COUNT + 5)
            assert log.of_offset(offset) <= log.latest_for_offset(offset), (name, offset)
            assert log.of_offset(offset) in log.positions, (name, offset)
            timestamp = chance.randrange(MS - 50, MS + 100 * COUNT + 50)
            assert log.by_time(timestamp) <= log.latest_for_time(timestamp), (name, timestamp)
            assert log.by_time(timestamp) in log.positions, (name, timestamp)


def test_zeros_behind_the_entries_of_a_preallocated_index_do_not_count(log: Log) -> None:
    """Ten megabytes of them are usual while a broker runs; the entries before them are as good as ever."""
    offsets, times = range(BASE, BASE + 4 * COUNT, 7), range(MS, MS + 100 * COUNT, 90)
    expected = [log.of_offset(o) for o in offsets], [log.by_time(t) for t in times]
    with open(log.index, "ab") as file:
        file.truncate(10 << 20)
    with open(log.time_index, "ab") as file:
        file.truncate(12 * (10 << 20) // 12)
    assert ([log.of_offset(o) for o in offsets], [log.by_time(t) for t in times]) == expected


def test_flipped_bytes_in_an_index_never_lead_too_far(log: Log) -> None:
    chance = Random(6)
    for _ in range(150):
        at = chance.randrange(len(log.index_bytes))
        flipped = bytearray(log.index_bytes)
        flipped[at] ^= 1 << chance.randrange(8)
        Path(log.index).write_bytes(flipped)
        offset = chance.randrange(BASE, BASE + 4 * COUNT)
        assert log.of_offset(offset) <= log.latest_for_offset(offset)


def test_a_missing_or_unreadable_index_only_costs_reading(log: Log, tmp_path: Path) -> None:
    for other in ("nowhere", "."):
        with ReadOnlyFile(log.path) as source:
            assert position_of_offset(source, str(tmp_path / other), BASE, BASE + 400) == 0
            walked = position_by_time(source, str(tmp_path / other), log.time_index, BASE, MS + 9999)
            assert walked <= log.latest_for_time(MS + 9999)
            assert walked in log.positions
            assert position_by_time(source, log.index, str(tmp_path / other), BASE, MS + 9999) == 0


def test_a_log_inside_a_message_is_not_where_reading_begins(tmp_path: Path) -> None:
    """An index of another copy may point into a batch, to a batch that somebody has stored as a value."""
    inside = batch([Record(BASE + 2, MS, b"not", b"of this log")])
    first = batch([Record(BASE, MS, b"k", b"v"), Record(BASE + 1, MS, None, b"x" * 30 + inside)])
    data = first + batch([Record(BASE + 9, MS, b"k", b"v")])
    path = tmp_path / f"{BASE:020}.log"
    path.write_bytes(data)
    index = tmp_path / f"{BASE:020}.index"
    index.write_bytes(encode.offset_entries(BASE, [(BASE + 5, data.index(inside))]))
    with ReadOnlyFile(str(path)) as source:
        assert position_of_offset(source, str(index), BASE, BASE + 9) in (0, len(first))


def test_few_entries_are_looked_at(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search halves; the log is asked once."""
    with open(log.index, "ab") as file:
        file.truncate(10 << 20)
    reads: list[str] = []
    read = ReadOnlyFile.read

    def count(self: ReadOnlyFile, position: int, size: int) -> bytes:
        reads.append(self.path.rpartition(".")[2])
        return read(self, position, size)

    monkeypatch.setattr(ReadOnlyFile, "read", count)
    log.of_offset(BASE + 600)
    assert reads.count("index") < 60
    assert reads.count("log") < 20  # the walk from the entry before, and the header itself


@pytest.mark.parametrize("position", [-1, -(2**31), 1 << 40])
def test_no_header_is_outside_the_log(log: Log, position: int) -> None:
    with ReadOnlyFile(log.path) as source:
        assert header_at(source, position) is None
        assert header_at(source, source.size) is None


def test_a_header_is_read_at_its_place(log: Log) -> None:
    with ReadOnlyFile(log.path) as source:
        for start, position in zip(log.starts, log.positions, strict=True):
            header = header_at(source, position)
            assert isinstance(header, BatchFacts)
            assert (header.base_offset, header.position) == (start, position)
        assert header_at(source, 5) is None
        assert header_at(source, source.size - 20) is None


def test_the_last_entry_of_a_full_index_counts(tmp_path: Path) -> None:
    log = Log(tmp_path, every=1)
    offset, position = struct.unpack(">ii", log.index_bytes[-8:])
    assert log.of_offset(BASE + offset) == position
    assert log.of_offset(BASE + 10**6) == position
    assert log.of_offset(2**63 - 1) == position
