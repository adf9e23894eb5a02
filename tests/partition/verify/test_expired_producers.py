"""Snapshots with an older state of their producers than the log: forgotten for being idle, or wrong?"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from klog.formats.producer_snapshot import read_snapshot
from klog.kernel import crc32c

from tests.oracles.plain import encode
from tests.oracles.plain.encode import Producer, Record, batch, snapshot
from tests.partition.verify.partitions import findings_in

OLD = 1_700_000_000_000
TXN, PLAIN, LAST = 7, 8, 9


def data(offset: int, count: int, ms: int, producer: int, sequence: int, *, open_one: bool = False) -> bytes:
    records = [Record(offset + i, ms, b"k", b"v") for i in range(count)]
    return batch(records, transactional=open_one, producer=(producer, 0, sequence))


def write(folder: Path, base: int, *batches: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{base:020}.log").write_bytes(b"".join(batches))


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    return tmp_path / "orders-0"


def fill(partition: Path, ms: int) -> dict[int, Producer]:
    """Write a log of three producers from *ms* on; return the true state of them at its end, 17."""
    write(
        partition,
        0,
        data(0, 3, ms, PLAIN, 0),
        data(3, 3, ms + 10, TXN, 0, open_one=True),
        encode.marker(6, commit=True, timestamp=ms + 20, producer_id=TXN, producer_epoch=0, coordinator_epoch=4),
        data(7, 5, ms + 30, TXN, 3, open_one=True),
        data(12, 5, ms + 40, LAST, 0),
    )
    (partition / "partition.metadata").write_text("version: 0\ntopic_id: " + "B" * 22)
    return {
        PLAIN: Producer(PLAIN, 0, 2, 2, 2, ms, -1, -1),
        TXN: Producer(TXN, 0, 7, 11, 4, ms + 30, 4, 7),
        LAST: Producer(LAST, 0, 4, 16, 4, ms + 40, -1, -1),
    }


def disagrees(partition: Path, producers: dict[int, Producer], at: int = 17) -> bool:
    (partition / f"{at:020}.snapshot").write_bytes(snapshot(list(producers.values())))
    return any(one.id == "snapshot-disagrees" for one in findings_in(partition.parent))


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_what_the_log_gives_is_right(partition: Path) -> None:
    for ms in (OLD, now_ms()):
        assert not disagrees(partition, fill(partition, ms))


def test_who_was_idle_and_goes_on_is_new_to_whoever_writes_the_snapshot(partition: Path) -> None:
    """A broker that starts a day later forgets it, reads its next batch, and lacks its last marker."""
    true = fill(partition, OLD)
    assert not disagrees(partition, true | {TXN: Producer(TXN, 0, 7, 11, 4, OLD + 30, -1, 7)})
    del true[PLAIN]
    assert not disagrees(partition, true), "it did not go on"


def test_who_was_active_a_moment_ago_is_known_wholly(partition: Path) -> None:
    """No setting makes a broker forget it: where it is missing, or known in part, the snapshot is wrong."""
    ms = now_ms()
    true = fill(partition, ms)
    assert disagrees(partition, true | {TXN: Producer(TXN, 0, 7, 11, 4, ms + 30, -1, 7)})
    assert disagrees(partition, {TXN: true[TXN], PLAIN: true[PLAIN]})
    assert disagrees(partition, {})


@pytest.mark.parametrize(
    "wrong",
    [
        Producer(TXN, 0, 7, 11, 4, OLD + 30, 3, 7),
        Producer(TXN, 0, 7, 11, 4, OLD + 30, 4, -1),
        Producer(TXN, 0, 7, 11, 4, OLD + 30, -1, -1),
        Producer(TXN, 0, 7, 11, 4, OLD + 30, -1, 3),
        Producer(TXN, 1, 7, 11, 4, OLD + 30, -1, 7),
        Producer(TXN, 0, 6, 11, 4, OLD + 30, -1, 7),
        Producer(TXN, 0, 7, 11, 4, OLD + 31, -1, 7),
        Producer(TXN, 0, -1, -1, 0, OLD + 30, -1, 7),
    ],
)
def test_what_forgetting_does_not_explain_is_wrong(partition: Path, wrong: Producer) -> None:
    """However long ago."""
    assert disagrees(partition, fill(partition, OLD) | {TXN: wrong})


def test_nobody_is_forgotten_while_a_transaction_is_open(partition: Path) -> None:
    """Without it its data is handed out at once, committed or not."""
    true = fill(partition, OLD)
    del true[TXN]
    assert disagrees(partition, true)


def test_nobody_is_forgotten_before_those_who_were_idle_for_longer(partition: Path) -> None:
    true = fill(partition, OLD)
    assert disagrees(partition, {TXN: true[TXN], PLAIN: true[PLAIN]}), "the last is gone, the first is not"
    assert not disagrees(partition, {TXN: true[TXN], LAST: true[LAST]})


def test_who_has_records_from_nowhere_is_wrong(partition: Path) -> None:
    assert disagrees(partition, fill(partition, OLD) | {99: Producer(99, 0, 2, 2, 2, OLD, -1, -1)})


def test_within_one_snapshot_each_is_judged_by_the_log_up_to_there(partition: Path) -> None:
    """Several snapshots, some in part, some whole, and one that is wrong."""
    true = fill(partition, OLD)
    (partition / f"{12:020}.snapshot").write_bytes(snapshot([Producer(TXN, 0, 7, 11, 4, OLD + 30, -1, 7)]))
    (partition / f"{6:020}.snapshot").write_bytes(
        snapshot([Producer(PLAIN, 0, 2, 2, 2, OLD, -1, -1), Producer(TXN, 0, 2, 5, 2, OLD + 10, -1, 3)])
    )
    assert not disagrees(partition, true)
    (partition / f"{6:020}.snapshot").write_bytes(snapshot([Producer(TXN, 0, 2, 5, 2, OLD + 10, 4, 3)]))
    found = [one for one in findings_in(partition.parent) if one.id == "snapshot-disagrees"]
    assert [one.offset for one in found] == [6]
    assert read_snapshot((partition / f"{6:020}.snapshot").read_bytes(), crc32c).problem is None
