"""The transactions of a log by its headers, against the replay with a broker's whole producer state."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.partition.transactions.markers import CompletedTxn
from klog.partition.transactions.producer_replay import replay
from klog.partition.transactions.producer_state import ProducerState
from klog.partition.transactions.spans import TransactionSpan, transaction_spans

from tests.conftest import FIXTURES
from tests.oracles.plain.encode import Record, batch

LOGS = [
    one
    for log_dir in ("modern", "v39/data", "v39/data1", "compaction/after", "legacy")
    for one in LogDir(str(FIXTURES / log_dir)).partitions
    if one.segments
]
COMMIT, ABORT, END = b"\0\0\0\1", b"\0\0\0\0", b"\0\0\0\0\0\5"


def data(at: int, producer: int, count: int = 1, *, value: bytes = b"v", ms: int = 1000) -> bytes:
    rows = [Record(at + i, ms, b"k", value) for i in range(count)]
    return batch(rows, transactional=True, producer=(producer, 3, -1))


def marker(
    at: int, producer: int, what: bytes = COMMIT, *, codec: str = "none", key: bytes = b"", ms: int = 2000
) -> bytes:
    rows = [Record(at, ms, what + key, END)]
    return batch(rows, codec=codec, transactional=True, control=True, producer=(producer, 4, -1))


def spans(folder: Path, *segments: bytes) -> tuple[list[TransactionSpan], list[str]]:
    """Those of a partition whose segments are given; the name of each is its first offset."""
    where = folder / "t-0"
    where.mkdir(exist_ok=True)
    for one in segments:
        (where / f"{int.from_bytes(one[:8], 'big'):020}.log").write_bytes(one)
    said: list[str] = []
    return list(transaction_spans(Partition(str(where)), said.append)), said


@pytest.mark.parametrize("log", LOGS, ids=lambda one: f"{Path(one.path).parent.name}/{one.directory}")
def test_transactions_are_those_of_a_replay(log: Partition) -> None:
    said: list[str] = []
    found = list(transaction_spans(log, said.append))
    state = ProducerState(log.segments[0].base_offset)
    events = list(replay(state, log.path, log.segments))
    ended = [one for one in events if isinstance(one, CompletedTxn)]
    with_data = [one for one in found if one.marker is not None and one.first_offset >= 0]
    assert [
        (one.producer_id, one.first_offset, one.marker and one.marker.offset, one.marker and not one.marker.commits)
        for one in with_data
    ] == [(one.producer_id, one.first_offset, one.last_offset, one.aborted) for one in ended]
    still = sorted((one.first_offset, one.producer_id) for one in found if one.marker is None)
    assert still == list(state.ongoing.all())


def test_a_transaction_goes_on_in_the_next_segment(tmp_path: Path) -> None:
    """Counts and times are of all its batches; the epoch of data is not that of a marker which fences."""
    first = data(0, 7, 3, ms=10) + data(3, 8)
    found, said = spans(tmp_path, first, data(4, 7, 2, ms=30) + marker(6, 7, ABORT) + marker(7, 9))
    assert said == []
    assert [(one.producer_id, one.producer_epoch, one.first_offset, one.last_offset, one.records) for one in found] == [
        (7, 3, 0, 5, 5),
        (9, -1, -1, -1, 0),
        (8, 3, 3, 3, 1),
    ]
    assert (found[0].began, found[0].latest, found[0].marker) == (10, 30, (False, 6, 2000, 4, 5))


@pytest.mark.parametrize("size", [10, 9_000, 300_000])
def test_markers_are_found_whatever_is_around_them(tmp_path: Path, size: int) -> None:
    """Windows of headers end anywhere, also within a marker; a compressed or a large one is a marker as well."""
    parts, at = [], 0
    for i in range(40):
        value = bytes(random.Random(i).randrange(size))
        parts += [data(at, i, value=value), data(at + 1, i + 1000, value=value)]
        parts += [marker(at + 2, i, codec="gzip" if i % 3 == 0 else "none"), marker(at + 3, i + 1000, ABORT)]
        at += 4
    found, said = spans(tmp_path, b"".join(parts))
    assert said == []
    assert [(one.producer_id, one.records, one.marker and one.marker.commits) for one in found] == [
        facts for i in range(40) for facts in ((i, 1, True), (i + 1000, 1, False))
    ]
    huge, said = spans(tmp_path, data(500, 5) + marker(501, 5, key=bytes(50_000)) + data(502, 6))
    assert [one.producer_id for one in huge if one.marker is None] == [5, 6], "no broker reads such a marker"


@pytest.mark.parametrize("seed", range(25))
def test_damage_is_said_and_the_rest_is_right(tmp_path: Path, seed: int) -> None:
    """Whatever the bytes are, it ends; what lies behind the damage is found."""
    chance = random.Random(seed)
    log = bytearray(b"".join(data(2 * i, i) + marker(2 * i + 1, i) for i in range(100)))
    for _ in range(chance.randrange(1, 6)):
        log[chance.randrange(12, len(log) * 3 // 4)] ^= 1 << chance.randrange(8)
    found, _ = spans(tmp_path, bytes(log))
    whole = {one.producer_id for one in found if one.marker is not None and one.records == 1}
    assert whole >= set(range(80, 100))


def test_behind_what_was_listed_only_ends_count(tmp_path: Path) -> None:
    """A running broker continues: the coordinator's records of its later appends may not have been read."""
    log, later = tmp_path / f"{0:020}.log", tmp_path / f"{9:020}.log"
    log.write_bytes(data(0, 7) + data(1, 8) + data(2, 9))
    partition, said = Partition(str(tmp_path)), []
    assert len(partition.segments) == 1
    log.write_bytes(log.read_bytes() + marker(3, 7) + data(4, 7) + marker(5, 7) + data(6, 9) + data(7, 5))
    later.write_bytes(marker(9, 8, ABORT) + data(10, 8))
    found = [
        (one.producer_id, one.first_offset, one.records, one.marker and one.marker.offset)
        for one in transaction_spans(partition, said.append)
    ]
    assert found == [(7, 0, 1, 3), (8, 1, 1, 9), (9, 2, 2, None)]
    assert said == []


def test_a_segment_that_has_just_been_deleted_is_no_problem(tmp_path: Path) -> None:
    """Retention of a running broker."""
    log, later = tmp_path / f"{0:020}.log", tmp_path / f"{1:020}.log"
    log.write_bytes(data(0, 7))
    later.write_bytes(data(1, 8))
    partition, said = Partition(str(tmp_path)), []
    assert len(partition.segments) == 2
    log.unlink()
    assert [one.producer_id for one in transaction_spans(partition, said.append)] == [8]
    assert said == []
