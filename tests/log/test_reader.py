"""The walk through a log: whole windows in order, for any number of threads and any content."""

from __future__ import annotations

import os
import struct
import threading
import time
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from klog.base.read_only import ReadOnlyFile
from klog.formats.damage import Damage, DamageKind
from klog.kernel import BAD_LENGTH, BAD_MAGIC, DONE, MORE, Window
from klog.log.reader import FIRST_WINDOW_BYTES, WINDOW_BYTES, LogReader, WindowResult

from tests.oracles.plain import shapes
from tests.oracles.plain.encode import Record, batch
from tests.oracles.plain.shapes import MS, some_records
from tests.support.bad_sectors import spoil

LOGS = shapes.all_logs()
NOISE = Random(3).randbytes(4 << 20)
Entry = tuple[int, int]


def log_of(count: int, size: int = 100, start: int = 0) -> tuple[bytes, list[Entry]]:
    """Return a log of *count* batches of about *size* bytes, each of other bytes, and their positions."""
    data, entries = bytearray(), []
    for i in range(count):
        at = i * 7919 % (len(NOISE) - size)
        one = batch([Record(start + i, MS + i, None, NOISE[at : at + max(0, size - 75)])])
        entries.append((len(data), len(one)))
        data += one
    return bytes(data), entries


def walk(
    path: Path, start: int = 0, end: int | None = None, *, like_kafka: bool = False, max_batch_bytes: int = 128 << 20
) -> tuple[list[Entry], list[Damage], list[WindowResult], list[int]]:
    """Return the entries of a walk, the damage between them, its pieces, and the windows' sizes."""
    entries, damages, pieces, sizes = [], [], [], []
    with ReadOnlyFile(str(path)) as source:
        reader = LogReader(source, start, end, like_kafka=like_kafka, max_batch_bytes=max_batch_bytes)
        window = Window()
        while piece := reader.next(window):
            entries += [(window.batch(i).position, window.batch(i).size) for i in range(window.count)]
            pieces.append(piece)
            sizes.append(window.size)
            damages += [piece.damage] if piece.damage else []
        assert reader.next(window) is None, "the end is the end"
    return entries, damages, pieces, sizes


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000000.log"


# whole logs


@pytest.mark.parametrize("name", LOGS)
def test_a_whole_log_has_no_damage(path: Path, name: str) -> None:
    path.write_bytes(LOGS[name])
    entries, damages, _, _ = walk(path)
    assert damages == []
    assert sum(size for _, size in entries) == len(LOGS[name])


@pytest.mark.parametrize("like_kafka", [False, True])
def test_windows_begin_small_and_hold_whole_batches_one_behind_the_other(path: Path, like_kafka: bool) -> None:
    """A lookup needs a few records and not a mebibyte; a scan needs few calls."""
    data, expected = log_of(30_000, 120)
    path.write_bytes(data)
    entries, damages, pieces, sizes = walk(path, like_kafka=like_kafka)
    assert (entries, damages) == (expected, [])
    assert [piece.number for piece in pieces] == list(range(len(pieces)))
    assert sizes[0] == FIRST_WINDOW_BYTES
    assert max(sizes) == WINDOW_BYTES
    assert all(b in (a, 2 * a) or b == sizes[-1] for a, b in pairwise(sizes))


def test_an_empty_file_is_at_its_end(path: Path) -> None:
    path.touch()
    assert walk(path) == ([], [], [], [])


@pytest.mark.parametrize("like_kafka", [False, True])
@pytest.mark.parametrize("size", [FIRST_WINDOW_BYTES - 1, FIRST_WINDOW_BYTES, FIRST_WINDOW_BYTES + 1, 3 << 20])
def test_a_batch_larger_than_a_window_is_read_whole(path: Path, size: int, like_kafka: bool) -> None:
    """First, last, between small ones, and several in a row."""
    small, big = batch(some_records(0)), batch([Record(3, MS, None, NOISE[: size - 72])])
    assert abs(len(big) - size) < 10
    parts = [big, small, big, big, small, small, big]
    path.write_bytes(b"".join(parts))
    entries, damages, _, sizes = walk(path, like_kafka=like_kafka)
    assert damages == []
    assert [size for _, size in entries] == [len(part) for part in parts]
    assert max(sizes) <= max(len(big), WINDOW_BYTES)


def test_the_limit_on_a_batch_s_size_is_exact(path: Path) -> None:
    """A larger batch is not read into memory; it is damage whose message names the option, and the rest is read."""
    small, big = batch(some_records(0)), batch([Record(3, MS, None, NOISE[:200_000])])
    path.write_bytes(small + big + small)
    assert len(walk(path, max_batch_bytes=len(big))[0]) == 3
    entries, (damage,), _, sizes = walk(path, max_batch_bytes=len(big) - 1)
    assert entries == [(0, len(small)), (len(small) + len(big), len(small))]
    assert (damage.kind, damage.place.position, damage.size) == (DamageKind.BAD_LENGTH, len(small), len(big))
    assert "--max-batch-bytes" in damage.detail
    assert max(sizes) < len(big)


def test_a_batch_beyond_the_limit_is_no_torn_tail(path: Path) -> None:
    """At the end of a log it is whole all the same: who raises the limit has it, and a live broker is not the cause."""
    small, big = batch(some_records(0)), batch([Record(3, MS, None, NOISE[:200_000])])
    path.write_bytes(small + big)
    _, (damage,), _, _ = walk(path, max_batch_bytes=len(big) - 1)
    assert (damage.kind, damage.size) == (DamageKind.BAD_LENGTH, len(big))
    assert "--max-batch-bytes" in damage.detail
    assert not damage.is_unfinished


def test_a_part_of_a_log_is_read_from_batch_to_batch(path: Path) -> None:
    data, expected = log_of(2000)
    path.write_bytes(data)
    assert walk(path, expected[700][0])[0] == expected[700:]
    assert walk(path, 0, expected[700][0])[:2] == (expected[:700], [])
    assert walk(path, expected[300][0], expected[700][0])[0] == expected[300:700]
    assert walk(path, 0, 10**12)[0] == expected
    assert walk(path, len(data))[2] == []


def test_a_file_that_grows_meanwhile_is_read_up_to_where_it_was(path: Path) -> None:
    data, expected = log_of(1000)
    path.write_bytes(data)
    with ReadOnlyFile(str(path)) as source:
        reader, window = LogReader(source), Window()
        with path.open("ab") as file:
            file.write(data[:5000])
        count = 0
        while piece := reader.next(window):
            assert piece.damage is None
            count += window.count
    assert count == len(expected)


@pytest.mark.parametrize("left", [0, 50_000, 70_001, 200_000])
def test_a_file_that_shrinks_meanwhile_ends_where_it_ends(path: Path, left: int) -> None:
    """No crash, no wait, and no batch that is no longer there."""
    data, expected = log_of(5000)
    path.write_bytes(data)
    with ReadOnlyFile(str(path)) as source:
        reader, window = LogReader(source), Window()
        reader.next(window)
        entries = [(window.batch(i).position, window.batch(i).size) for i in range(window.count)]
        first = len(entries)
        os.truncate(path, left)
        damages = []
        while piece := reader.next(window):
            entries += [(window.batch(i).position, window.batch(i).size) for i in range(window.count)]
            damages += [piece.damage] if piece.damage else []
    assert entries == [entry for i, entry in enumerate(expected) if i < first or sum(entry) <= left]
    assert len(damages) <= 1


def test_many_threads_share_a_walk(path: Path) -> None:
    """Each window is given to one of them, and its number shows the order."""
    data, expected = log_of(30_000, 120)
    path.write_bytes(data)
    found: dict[int, list[Entry]] = {}
    with ReadOnlyFile(str(path)) as source:
        reader = LogReader(source)

        def work() -> None:
            window = Window()
            while piece := reader.next(window):
                found[piece.number] = [(window.batch(i).position, window.batch(i).size) for i in range(window.count)]

        threads = [threading.Thread(target=work) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [entry for number in sorted(found) for entry in found[number]] == expected
    assert sorted(found) == list(range(len(found)))


def test_a_walk_can_be_stopped(path: Path) -> None:
    path.write_bytes(log_of(5000)[0])
    with ReadOnlyFile(str(path)) as source:
        reader, window = LogReader(source), Window()
        assert reader.next(window)
        reader.stop()
        assert reader.next(window) is None


# as Kafka's own tools walk


@pytest.mark.parametrize(
    ("tail", "status"),
    [
        (struct.pack(">qiib", 0, 13, 0, 2) + bytes(60), BAD_LENGTH),
        (struct.pack(">qiib", 0, 50, 0, -1) + bytes(60), BAD_MAGIC),
        (struct.pack(">qiib", 0, 50, 0, 2) + bytes(40), MORE),
        (b"seventeen bytes..", MORE),
        (b"x", MORE),
    ],
)
@pytest.mark.parametrize("count", [0, 3, 1000])
def test_a_lenient_walk_stops_where_kafkas_tools_stop(path: Path, count: int, tail: bytes, status: int) -> None:
    """It reports the reason and the place, once."""
    data, expected = log_of(count)
    path.write_bytes(data + tail)
    entries, damages, pieces, _ = walk(path, like_kafka=True)
    assert (entries, damages) == (expected, [])
    assert [piece.stop for piece in pieces if piece.stop] == [(status, len(data))]
    assert pieces[-1].stop


def test_a_lenient_walk_through_a_whole_log_has_no_stop(path: Path) -> None:
    path.write_bytes(log_of(1000)[0])
    assert [piece.stop for piece in walk(path, like_kafka=True)[2] if piece.stop] in ([], [(DONE, path.stat().st_size)])


def test_a_lenient_walk_does_not_look_at_checksums(path: Path) -> None:
    data, expected = log_of(1000)
    broken = bytearray(data)
    for position, size in expected:
        broken[position + size - 1] ^= 0xFF
    path.write_bytes(broken)
    assert walk(path, like_kafka=True)[:2] == (expected, [])


# bad sectors


@pytest.mark.parametrize("size", [100, 10_000])
@pytest.mark.parametrize("partial", [False, True], ids=["the whole read fails", "the read stops short"])
@pytest.mark.parametrize(
    "bad",
    [
        [range(98_304, 102_400)],
        [range(4096)],
        [range(180_224, 200_704)],
        [range(98_304, 98_305), range(150_000, 150_001)],
        [range(98_304, 163_840)],
        [range(98_304, 102_400), range(106_496, 110_592)],
    ],
    ids=["one block", "the first", "the last", "two sectors", "sixteen blocks", "two blocks near each other"],
)
def test_what_a_bad_sector_spares_is_read(
    path: Path, monkeypatch: pytest.MonkeyPatch, bad: list[range], partial: bool, size: int
) -> None:
    """On a dying disk every batch counts: only those that touch an unreadable block are lost, and this is reported."""
    data, expected = log_of(193_900 // size, size)
    path.write_bytes(data)
    spoil(monkeypatch, *bad, partial=partial)
    # a disk loses whole blocks
    blocks = {at // 4096 for one in bad for at in one}

    def spared(entry: Entry) -> bool:
        return not blocks.intersection(range(entry[0] // 4096, (sum(entry) - 1) // 4096 + 1))

    entries, damages, _, _ = walk(path)
    assert entries == [entry for entry in expected if spared(entry)]
    assert {damage.kind for damage in damages} == {DamageKind.UNREADABLE}
    end = 0
    covered = set(entries)
    for damage in damages:
        assert damage.place.position is not None
        assert damage.size
        assert damage.place.position >= end
        assert damage.place.position in {position for position, _ in expected}
        end = damage.place.position + damage.size
        assert end in {sum(entry) for entry in expected} or end == len(data)
        assert f"{damage.size} bytes are lost" in damage.detail
        assert "Input/output error" in damage.detail
        covered |= {entry for entry in expected if damage.place.position <= entry[0] < end}
    assert covered == set(expected), "neither read nor said to be lost"


def test_a_broken_batch_in_front_of_a_bad_sector_is_not_passed_over_in_silence(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two faults side by side: a part that is neither read nor reported is missed too late."""
    data, expected = log_of(2000)
    last = max(i for i, entry in enumerate(expected) if sum(entry) <= 98_304)
    spared = min(i for i, entry in enumerate(expected) if entry[0] >= 102_400)
    broken = bytearray(data)
    broken[sum(expected[last]) - 1] ^= 0xFF
    path.write_bytes(broken)
    spoil(monkeypatch, range(98_304, 102_400))
    entries, (damage,), _, _ = walk(path)
    assert entries == expected[:last] + expected[spared:]
    assert (damage.kind, damage.place.position) == (DamageKind.UNREADABLE, expected[last][0])
    assert damage.size == expected[spared][0] - expected[last][0]


@pytest.mark.parametrize("partial", [False, True])
def test_a_large_batch_with_a_bad_sector_is_lost_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch, partial: bool
) -> None:
    small, big = batch(some_records(0)), batch([Record(3, MS, None, NOISE)])
    path.write_bytes(small + big + small)
    spoil(monkeypatch, range(2_000_000, 2_000_512), partial=partial)
    entries, (damage,), _, _ = walk(path)
    assert entries == [(0, len(small)), (len(small) + len(big), len(small))]
    assert (damage.kind, damage.place.position, damage.size) == (DamageKind.UNREADABLE, len(small), len(big))


def test_a_file_of_which_nothing_can_be_read_is_all_lost(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In no time, too."""
    path.write_bytes(bytes(1 << 22))
    spoil(monkeypatch, range(1 << 30))
    began = time.process_time()
    entries, (damage,), _, _ = walk(path)
    assert (entries, damage.kind, damage.size) == ([], DamageKind.UNREADABLE, 1 << 22)
    assert time.process_time() - began < 3


def test_a_lenient_walk_gives_what_comes_before_a_bad_sector_and_then_fails(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same as Kafka's tool: it has printed its part."""
    data, expected = log_of(2000, 100)
    path.write_bytes(data)
    spoil(monkeypatch, range(98_304, 102_400))
    entries = []
    with ReadOnlyFile(str(path)) as source:
        reader, window = LogReader(source, like_kafka=True), Window()

        def read() -> None:
            while reader.next(window):
                entries.extend((window.batch(i).position, window.batch(i).size) for i in range(window.count))

        with pytest.raises(OSError, match="Input/output error"):
            read()
    assert entries == [entry for entry in expected if sum(entry) <= 98_304]


@pytest.mark.parametrize("name", LOGS)
def test_a_reader_that_stops_hands_out_what_begins_before(tmp_path: Path, name: str) -> None:
    """Parts of a log are read by several, and each batch is one's alone, however small it is."""
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(LOGS[name])
    whole, *_ = walk(path)
    bounds = [position for position, _ in whole] + [len(LOGS[name])]
    with ReadOnlyFile(str(path)) as source:
        for first in range(len(whole)):
            for end in range(first + 1, len(whole) + 1):
                reader, window, found = LogReader(source, bounds[first], stop=bounds[end]), Window(), []
                while piece := reader.next(window):
                    assert piece.damage is None
                    found += [(window.batch(i).position, window.batch(i).size) for i in range(window.count)]
                assert found == whole[first:end]
                assert reader.position == bounds[end]


def test_a_part_is_judged_as_the_whole_is(tmp_path: Path) -> None:
    """A damaged length may reach beyond the part; the description of its fault must not depend on that."""
    data, entries = log_of(40)
    spoiled = bytearray(data)
    struct.pack_into(">i", spoiled, entries[5][0] + 8, entries[30][0] - entries[5][0])
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(spoiled)
    _, whole, *_ = walk(path)
    for end in range(7, 40):
        with ReadOnlyFile(str(path)) as source:
            reader, window, damages = LogReader(source, stop=entries[end][0]), Window(), []
            while piece := reader.next(window):
                damages += [piece.damage] if piece.damage else []
        assert damages == whole
