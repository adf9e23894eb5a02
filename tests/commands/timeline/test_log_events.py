"""The events in one partition's batches: rolls, epochs, producers, transactions, silences, damage."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable
from pathlib import Path

import pytest
from klog.base import read_only
from klog.commands.timeline import log_events
from klog.commands.timeline.log_events import duration, usual_pause
from klog.commands.timeline.timeline import Timeline
from klog.commands.timeline.timeline_event import EventFilter, TimelineEvent
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.selection import PartitionQuery

from tests.oracles.plain.encode import Record, batch
from tests.support.bad_sectors import spoil
from tests.support.lookup_logs import MS

MINUTE = 60_000


class Log:
    """`orders-0` in a log dir, written batch by batch of one record, at *time* ms after MS."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "orders-0"
        self.path.mkdir(parents=True)
        (folder / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
        self.end = 0
        self.roll()

    def roll(self) -> None:
        self.log = self.path / f"{self.end:020d}.log"
        self.log.touch()

    def add(self, time: int, **how: object) -> int:
        """Append a batch; return its position."""
        return self._append(batch([Record(self.end, MS + time, b"k", b"v")], **how))  # type: ignore[arg-type]

    def mark(self, time: int, producer: int, commits: bool, epoch: int = 0) -> int:
        """Append a marker."""
        record = Record(self.end, MS + time, struct.pack(">hh", 0, commits), struct.pack(">hi", 0, 7))
        return self._append(batch([record], control=True, transactional=True, producer=(producer, epoch, -1)))

    def _append(self, content: bytes) -> int:
        position = self.log.stat().st_size
        with self.log.open("ab") as log:
            log.write(content)
        self.end += 1
        return position

    def flip(self, position: int) -> None:
        data = bytearray(self.log.read_bytes())
        data[position + 65] ^= 0xFF
        self.log.write_bytes(data)

    def events(self, *kinds: str, jobs: int = 1) -> list[TimelineEvent]:
        selections = PartitionQuery([str(self.path.parent)]).selections()
        with Timeline(selections, EventFilter(kinds=kinds), Disk(), jobs=jobs) as timeline:
            timeline.read()
            return list(timeline.events())


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "data")


def facts(events: Iterable[TimelineEvent]) -> list[tuple[int, str, int | None]]:
    return [(event.time - MS, event.kind, event.offset) for event in events]


def test_the_story_of_a_plain_log(log: Log) -> None:
    """Its begin, where a leader and a segment begin, its end; each at the time of its batch."""
    log.add(0)
    log.add(10, leader_epoch=1)
    log.roll()
    log.add(20, leader_epoch=1)
    found = log.events()
    assert facts(found) == [
        (0, "epoch", 0), (0, "first-record", 0), (10, "epoch", 1), (20, "roll", 2), (20, "last-record", 2),
    ]  # fmt: skip
    assert {event.clock for event in found} == {"producer"}
    assert (found[2].epoch, found[3].file) == (1, "orders-0/00000000000000000002.log")


def test_a_log_that_begins_late_has_no_begin_of_its_epoch(log: Log) -> None:
    """The epoch of its first batch began before, in deleted records."""
    log.end = 100
    log.log.unlink()
    log.roll()
    log.add(0, leader_epoch=4)
    assert facts(log.events("epoch")) == []
    (start,) = log.events("log-start")
    assert (start.offset, start.clock) == (100, "file")


def test_whose_clock_it_is(log: Log) -> None:
    """A broker stamps markers and LogAppendTime; an event without a time has the file's."""
    log.add(0, append_time_ms=MS + 5)
    assert {(event.time - MS, event.clock) for event in log.events("first-record", "last-record")} == {(5, "broker")}
    log.log.write_bytes(batch([Record(0, -1, None, b"v")]))
    os.utime(log.log, (MS // 1000, MS // 1000))
    assert {(event.time, event.clock) for event in log.events("first-record")} == {(MS // 1000 * 1000, "file")}


def test_a_producer_is_told_once_and_again_with_a_new_epoch(log: Log) -> None:
    """More producers than the kernel remembers: still each once."""
    for round_number in range(2):
        for producer in (1, 1 + 4096, 1 + 8192):
            log.add(round_number, producer=(producer, 0, round_number))
    log.add(2, producer=(1, 3, 0))
    found = log.events("producer")
    assert [(event.producer_id, event.epoch) for event in found] == [(1, 0), (4097, 0), (8193, 0), (1, 3)]


def test_a_new_epoch_for_each_transaction_is_no_new_producer(log: Log) -> None:
    """Transactions of version 2."""
    for epoch in range(3):
        log.add(epoch, producer=(1, epoch, 0), transactional=True)
    assert [event.epoch for event in log.events("producer")] == [0]


def test_only_so_many_producers_are_remembered(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of a million producers must not fill the memory; the oldest may seem new again."""
    monkeypatch.setattr(log_events, "MOST_PRODUCERS", 10)
    for producer in range(40):
        log.add(producer, producer=(producer, 0, 0))
    log.add(100, producer=(0, 0, 1))
    log.add(101, producer=(39, 0, 1))
    assert [event.producer_id for event in log.events("producer")] == [*range(40)]
    for producer in (5000, 1, 9000):  # 1 has lost its place in the kernel to 4097
        log.add(200, producer=(producer, 0, 2))
    log.add(201, producer=(4097, 0, 0))
    log.add(202, producer=(1, 0, 3))
    assert [event.producer_id for event in log.events("producer")][40:] == [5000, 9000, 4097, 1]


def test_transactions_are_told_from_begin_to_marker(log: Log) -> None:
    """Overlapping ones, one that the coordinator ended for a new producer, one without an end."""
    for time, producer in ((0, 1), (1, 2), (2, 1), (3, 3)):
        log.add(time, producer=(producer, 0, time), transactional=True)
    log.mark(10, 2, commits=False)
    log.mark(11, 1, commits=True)
    log.add(12, producer=(1, 0, 9), transactional=True)
    log.mark(13, 1, commits=False, epoch=1)
    log.mark(14, 9, commits=True)
    found = log.events("txn-begin", "txn-commit", "txn-abort", "txn-open", "txn-fenced")
    assert [(event.time - MS, event.kind, event.producer_id) for event in found] == [
        (0, "txn-begin", 1), (1, "txn-begin", 2), (3, "txn-begin", 3), (3, "txn-open", 3), (10, "txn-abort", 2),
        (11, "txn-commit", 1), (12, "txn-begin", 1), (13, "txn-abort", 1), (14, "txn-commit", 9),
    ]  # fmt: skip
    assert [event.clock for event in found[4:6]] == ["broker", "broker"]
    assert "raised its epoch, 0 → 1" in found[7].message
    assert "its data is not in this log" in found[8].message


def test_a_silence_is_long_for_its_partition(log: Log) -> None:
    """A minute where a record a second is usual; not where one comes every ten seconds."""
    for time in range(0, 100_000, 1000):
        log.add(time)
    log.add(99_000 + MINUTE - 1)
    log.add(99_000 + 3 * MINUTE)
    (silence,) = log.events("silence")
    assert (silence.time - MS, silence.offset) == (99_000 + MINUTE - 1, 101)
    assert silence.message == "nothing for 2 min; usual: 1 s 23 ms"


def test_where_pauses_are_usual_a_longer_one_is_no_silence(log: Log) -> None:
    """A topic that gets a record every ten minutes is not silent for nine of them."""
    for number in range(50):
        log.add(number * 10 * MINUTE)
    assert log.events("silence") == []
    log.add(49 * 10 * MINUTE + 48 * 60 * MINUTE)
    assert [event.time - MS for event in log.events("silence")] == [49 * 10 * MINUTE]


def test_times_out_of_order_make_no_silence(log: Log) -> None:
    """A late record is not the begin of a pause: what counts is the latest so far."""
    for time in range(0, 100_000, 1000):
        log.add(time)
        log.add(time - 10 * MINUTE)
    assert log.events("silence") == []
    assert facts(log.events("last-record")) == [(99_000 - 10 * MINUTE, "last-record", 199)]


def test_a_record_from_the_future_hides_no_silence(log: Log) -> None:
    """Its clock was wrong: the file was last written before the event's time."""
    for time in range(0, 100_000, 1000):
        log.add(time)
    log.add(400 * 24 * 60 * MINUTE)
    log.add(100_000)
    log.add(100_000 + 5 * MINUTE)
    os.utime(log.log, ((MS + 100_000 + 5 * MINUTE) // 1000,) * 2)
    assert [event.time - MS for event in log.events("silence")] == [100_000]


def test_markers_are_no_sign_of_life(log: Log) -> None:
    """They have the broker's clock: between it and the data's lies no silence."""
    for number in range(0, 40, 2):
        log.add(number, producer=(1, 0, number), transactional=True)
        log.mark(10**9 + number, 1, commits=True)
    assert log.events("silence") == []


def test_the_usual_pause_is_a_median() -> None:
    """Half of the pauses are not longer, to the next power of two."""
    assert usual_pause([0] * 64) == 0
    assert usual_pause([3, *[0] * 63]) == 0
    assert usual_pause([1, 0, 0, 0, 2, 1, *[0] * 58]) == 15
    assert [duration(ms) for ms in (0, 999, 61_000, 3_600_000, 90_061_000)] == [
        "0 ms", "999 ms", "1 min 1 s", "1 h", "1 d 1 h",
    ]  # fmt: skip


@pytest.mark.parametrize("jobs", [1, 2])
def test_damage_is_told_where_it_is(log: Log, jobs: int) -> None:
    """Behind earlier batches, also at the beginning of the log; with its place for a closer look."""
    positions = [log.add(time * 1000) for time in range(10)]
    log.flip(positions[4])
    (damage,) = log.events("damage", jobs=jobs)
    assert (damage.time - MS, damage.position, damage.offset) == (3000, positions[4], 4)
    assert damage.message.startswith("bad-crc: ")
    assert (damage.file, damage.clock) == ("orders-0/00000000000000000000.log", "producer")
    log.flip(0)
    os.utime(log.log, (MS // 1000 + 5, MS // 1000 + 5))
    first, second = log.events("damage", jobs=jobs)
    assert [damage.offset for damage in (first, second)] == [4, 0]
    assert first == damage
    assert (second.time - MS, second.clock) == (5000, "file")


def test_a_log_that_cannot_be_opened_is_told(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The unreadable part is named, and the rest is shown."""
    log.add(0)
    log.roll()
    log.add(5)
    refused, real = str(log.log), os.open
    log.roll()
    log.add(9)

    def refuse(path: str, flags: int) -> int:
        if path == refused:
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, flags)

    monkeypatch.setattr(read_only.os, "open", refuse)
    (damage,) = log.events("damage")
    assert damage.message.startswith("unreadable: ")
    assert (damage.offset, damage.clock) == (1, "file")
    assert facts(log.events("last-record")) == [(9, "last-record", 2)]


def test_bad_sectors_are_damage_in_their_place(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of the log is still shown."""
    positions = [log.add(time * 1000) for time in range(2000)]
    spoil(monkeypatch, range(positions[700], positions[701]))
    (damage,) = log.events("damage")
    assert damage.message.startswith("unreadable: ")
    assert damage.time - MS < 700_000
    assert [event.offset for event in log.events("last-record")] == [1999]
