"""Lookups by time: as ListOffsets answers where the indexes are right, as the log answers where they are not."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from random import Random

import pytest
from klog.data_dir.partition import Partition
from klog.partition.lookup import Lookup, LookupOutcome, Trail

from tests.oracles.lookup_slow import SlowPartition
from tests.oracles.plain import encode
from tests.oracles.plain.encode import Record, batch, empty_batch, message
from tests.support.lookup_logs import MS, of_records, write_segment

COUNT = 300


def look_up(folder: Path, timestamp: int) -> Trail:
    with Lookup(Partition(str(folder))) as lookup:
        return lookup.timestamp(timestamp)


def stop_cleanly(folder: Path) -> None:
    (folder.parent / ".kafka_cleanshutdown").write_text('{"version":0}')


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three segments of a hundred batches of three records; times go up by 10, but every seventh batch is 500 early."""
    path = tmp_path / "data" / "orders-3"
    path.parent.mkdir()
    for part in range(3):
        numbers = range(100 * part, 100 * part + 100)
        groups = [
            [Record(3 * i + j, MS + 10 * i + j - (500 if i % 7 == 3 else 0), b"k", bytes(60)) for j in range(3)]
            for i in numbers
        ]
        write_segment(path, 300 * part, of_records(groups), interval=1000)
    stop_cleanly(path)
    return path


TIMES = [MS - 1000, MS, MS + 1, MS + 30, MS + 32, MS + 1002, MS + 1003, MS + 2000, MS + 2992, MS + 2993, 0, 2**62]


def compare(folder: Path, timestamps: list[int], *, truth: bool) -> list[Trail]:
    slow = SlowPartition(folder)
    with Lookup(Partition(str(folder))) as lookup:
        trails = [trail for _, trail in sorted(lookup.many(timestamps, by_time=True))]
    for timestamp, trail in zip(timestamps, trails, strict=True):
        expected = slow.as_late(timestamp) if truth else slow.as_late_by_the_rule(timestamp)
        assert trail.offset == (expected and expected.record.offset), (timestamp, trail)
        assert trail.position == (expected and expected.position)
    return trails


def test_the_first_record_that_is_as_late(folder: Path) -> None:
    chance = Random(5)
    trails = compare(folder, TIMES + [MS + chance.randrange(-600, 3100) for _ in range(1000)], truth=False)
    assert not any(trail.problems for trail in trails)


def test_the_trail_names_every_step(folder: Path) -> None:
    trail = look_up(folder, MS + 1510)
    assert trail.segment == (f"{300:020}.log", 300, 600, 3)
    assert (trail.outcome, trail.offset) == (LookupOutcome.RECORD, 453)
    found = trail.time_index
    assert found
    assert found.slot is not None
    assert (found.file, found.largest, found.by_mtime) == (f"{300:020}.timeindex", MS + 1982, False)
    assert found.timestamp <= MS + 1510 < found.timestamp + 200
    assert trail.offset_index
    assert trail.offset_index.offset <= found.offset
    assert trail.scan
    assert trail.scan.position == trail.offset_index.position


def test_nothing_is_so_late(folder: Path) -> None:
    trail = look_up(folder, MS + 5000)
    assert (trail.outcome, trail.found, trail.position) == (LookupOutcome.NOTHING_SO_LATE, False, None)
    assert trail.notes == (f"no timestamp is that late: the largest is {MS + 2992}",)


def test_records_below_the_log_start_do_not_count(folder: Path) -> None:
    (folder.parent / "log-start-offset-checkpoint").write_text("0\n1\norders 3 200\n")
    assert look_up(folder, MS).offset == 200
    assert look_up(folder, MS + 900).offset == 270


def test_log_append_time_is_that_of_the_batch(tmp_path: Path) -> None:
    """Every record of such a batch has the broker's time, whatever the client wrote."""
    folder = tmp_path / "orders-3"
    groups = [[Record(3 * i + j, 5, b"k", b"v") for j in range(3)] for i in range(9)]
    contents = [batch(records, append_time_ms=MS + 10 * i, codec="gzip") for i, records in enumerate(groups)]
    write_segment(folder, 0, [(3 * i + 2, MS + 10 * i, content) for i, content in enumerate(contents)])
    trails = compare(folder, [MS, MS + 1, MS + 80, MS + 81], truth=False)
    assert [trail.offset for trail in trails] == [0, 3, 24, None]
    assert trails[1].record
    assert trails[1].record.timestamp == MS + 10


# no timestamps


def v0_then_v1(folder: Path, *, modified_ms: int) -> None:
    """A segment of magic 0, whose time index is empty, then one of magic 1."""
    path = write_segment(folder, 0, [(i, -1, message(i, 0, b"k", b"v")) for i in range(10)])
    os.utime(path, ns=(0, modified_ms * 1_000_000))
    times = [(10 + i, MS + 10 * i, message(10 + i, 1, b"k", b"v", timestamp=MS + 10 * i)) for i in range(10)]
    write_segment(folder, 10, times)


def test_a_segment_without_timestamps_goes_by_its_modification(tmp_path: Path) -> None:
    """A broker chooses it, finds nothing in it and looks nowhere else: so does klog, and names one that has it."""
    folder = tmp_path / "orders-3"
    v0_then_v1(folder, modified_ms=MS + 55)
    trails = compare(folder, [MS, MS + 55, MS + 56, MS + 90, MS + 91], truth=False)
    assert [trail.offset for trail in trails] == [None, None, 16, 19, None]
    assert not any(trail.problems for trail in trails)
    assert trails[0].outcome is LookupOutcome.NOTHING_SO_LATE
    assert "goes by its time of modification" in trails[0].notes[0]
    assert "has one, offset 10; a broker does not look there" in trails[0].notes[1]


def test_a_missing_time_index_of_old_messages_is_no_problem(tmp_path: Path) -> None:
    """Before 0.10.1 there were none."""
    folder = tmp_path / "orders-3"
    v0_then_v1(folder, modified_ms=MS - 1)
    (folder / f"{0:020}.timeindex").unlink()
    trail = look_up(folder, MS + 5)
    assert (trail.offset, trail.problems) == (11, ())


def test_a_chosen_segment_may_have_nothing_left(tmp_path: Path) -> None:
    """An empty batch keeps its largest timestamp after compaction; a broker stops in its segment."""
    folder = tmp_path / "orders-3"
    batches = [*of_records([[Record(0, MS, b"k", b"v")]]), (5, MS + 50, empty_batch(1, 5, max_timestamp=MS + 50))]
    write_segment(folder, 0, batches)
    write_segment(folder, 6, of_records([[Record(6, MS + 70, b"k", b"v")]]))
    trail = look_up(folder, MS + 20)
    assert (trail.offset, trail.found, trail.problems) == (None, False, ())
    assert "has one, offset 6; a broker does not look there" in trail.notes[1]
    assert look_up(folder, MS + 60).offset == 6


# wrong time indexes


def entries_of(path: Path) -> list[tuple[int, int]]:
    return list(struct.iter_unpack(">qi", path.read_bytes()))


def wrong(entries: list[tuple[int, int]], base: int, chance: Random) -> dict[str, bytes]:
    def made(some: list[tuple[int, int]]) -> bytes:
        return b"".join(struct.pack(">qi", *entry) for entry in some)

    return {
        "short": made(entries[:2]),
        "emptied": b"",
        "garbage": chance.randbytes(12 * len(entries)),
        "of another segment": made([(time - 700, 2 * offset) for time, offset in entries]),
        "offsets too high": made([(time, offset + 60) for time, offset in entries]),
        "times too low": made([(time - 300, offset) for time, offset in entries]),
        "times too high": made([(time + 300, offset) for time, offset in entries]),
        "backwards": made(entries[::-1]),
        "zeros": bytes(12 * len(entries)),
    }


@pytest.mark.parametrize("name", wrong([(0, 0)] * 4, 0, Random(1)))
def test_a_wrong_time_index_is_told_and_costs_no_answer(name: str, folder: Path) -> None:
    """If the index contradicts the log, the log answers, and a note gives a broker's answer."""
    path = folder / f"{300:020}.timeindex"
    path.write_bytes(wrong(entries_of(path), 300, Random(3))[name])
    chance = Random(5)
    trails = compare(folder, [MS + chance.randrange(1000, 3100) for _ in range(300)], truth=True)
    assert sum(bool(trail.problems) for trail in trails) > 200


def test_an_entry_about_a_later_batch_with_the_same_timestamp_misleads_nobody(tmp_path: Path) -> None:
    """An entry is about the earliest batch that reaches its timestamp; if not, records are missed without a word."""
    folder = tmp_path / "orders-3"
    write_segment(folder, 0, of_records([[Record(i, MS, b"k", bytes(90))] for i in range(100)]), interval=500)
    (folder / f"{0:020}.timeindex").write_bytes(encode.time_entries(0, [(MS, 70)]))
    trail = look_up(folder, MS)
    assert trail.offset == 0
    assert "is not about the first batch with timestamp" in trail.problems[0]
    assert trail.notes[0].startswith("a broker on these indexes answers offset ")


def test_what_a_broker_would_answer_is_a_note(folder: Path) -> None:
    (folder / f"{300:020}.timeindex").write_bytes(struct.pack(">qi", MS + 1002, 2))
    trail = look_up(folder, MS + 1510)
    assert trail.offset == 453
    assert "says" in trail.problems[0]
    assert trail.notes[0] == "a broker on these indexes answers offset 600"


def test_a_missing_time_index_is_told(folder: Path) -> None:
    (folder / f"{300:020}.timeindex").unlink()
    trail = look_up(folder, MS + 1510)
    assert (trail.offset, trail.problems) == (453, (f"{300:020}.log: there is no time index",))


def test_missing_offset_indexes_cost_only_reading(folder: Path) -> None:
    for part in range(3):
        (folder / f"{300 * part:020}.index").unlink()
    assert all(trail.problems for trail in compare(folder, TIMES[:8], truth=True))


def test_the_last_time_index_may_lag_after_a_crash(folder: Path) -> None:
    """A broker writes its last entry when it stops; killed, it rebuilds the index at its next start."""
    path = folder / f"{600:020}.timeindex"
    path.write_bytes(path.read_bytes()[:-24] + bytes(1200))
    assert compare(folder, [MS + 2900, MS + 2992], truth=True)[1].problems
    (folder.parent / ".kafka_cleanshutdown").unlink()
    trails = compare(folder, [MS + 2900, MS + 2992, MS + 2993], truth=True)
    assert not any(trail.problems for trail in trails)


def test_a_damaged_batch_is_passed_over_and_told(folder: Path) -> None:
    path = folder / f"{300:020}.log"
    data = bytearray(path.read_bytes())
    data[51 * (len(data) // 100) + 90] ^= 0xFF
    path.write_bytes(data)
    trail = compare(folder, [MS + 1510], truth=True)[0]
    assert trail.offset == 456
    assert any("bad CRC" in problem for problem in trail.problems)


def test_mutated_time_indexes_never_lie(folder: Path) -> None:
    """Whatever a flipped bit changes, the answer is the log's."""
    chance = Random(9)
    good = {path: path.read_bytes() for path in folder.glob("*index")}
    for _ in range(40):
        for path, content in good.items():
            data = bytearray(content)
            for _ in range(chance.randrange(3)):
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            path.write_bytes(data)
        compare(folder, [MS + chance.randrange(-600, 3100) for _ in range(25)], truth=True)


def test_timestamps_of_zero_are_timestamps(tmp_path: Path) -> None:
    folder = tmp_path / "orders-3"
    write_segment(folder, 0, of_records([[Record(0, 0, b"k", b"v")]]))
    (folder / f"{0:020}.timeindex").write_bytes(encode.time_entries(0, [(0, 0)]))
    assert (look_up(folder, 0).offset, look_up(folder, 0).problems) == (0, ())
