"""The replay of `__consumer_offsets`: transactions, tombstones, times, and what compaction has taken."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from klog.cluster.coordinator.consumer_groups import GroupImage, group_images
from klog.cluster.coordinator.coordinator_records import entries
from klog.data_dir.partition import Partition

from tests.commands.serve.coordinator_logs import T, commit_of, write_batches
from tests.conftest import FIXTURES
from tests.oracles.plain.encode import Record, batch

COMMIT, ABORT = b"\0\0\0\1", b"\0\0\0\0"
END = b"\0\0\0\0\0\0"


def commit(at: int, offset: int | None, ms: int, producer: int = -1, number: int = 0) -> bytes:
    key, value, written = commit_of(offset, ms, number=number)
    return data(at, key, value, written, producer)


def data(at: int, key: bytes | None, value: bytes | None, ms: int, producer: int = -1) -> bytes:
    return batch([Record(at, ms, key, value)], transactional=producer >= 0, producer=(producer, 0, -1))


def marker(at: int, what: bytes, ms: int, producer: int) -> bytes:
    return batch([Record(at, T + ms, what, END)], transactional=True, control=True, producer=(producer, 0, -1))


def replayed(folder: Path, *batches: bytes, until: int | None = None) -> GroupImage | None:
    """The only group of a log; *until*: ms after T."""
    where = folder / "__consumer_offsets-0"
    write_batches(where, *batches)
    found = list(group_images([Partition(str(where))], lambda _: None, None if until is None else T + until))
    assert len(found) <= 1
    return found[0] if found else None


def offsets(group: GroupImage | None) -> dict[int, int | None]:
    return {} if group is None else {one.partition: one.offset for one in group.offsets}


def test_a_commit_of_a_transaction_counts_with_its_marker(tmp_path: Path) -> None:
    """Until then it is pending, after an ABORT it never was."""
    began = [commit(0, 10, 0), commit(1, 20, 1, producer=7), commit(2, 5, 1, producer=8, number=1)]
    group = replayed(tmp_path, *began)
    assert offsets(group) == {0: 10}
    assert group is not None
    assert [(one.producer_id, one.partition, one.offset) for one in group.pending] == [(7, 0, 20), (8, 1, 5)]
    ended = replayed(tmp_path, *began, marker(3, COMMIT, 2, 7), marker(4, ABORT, 2, 8))
    assert offsets(ended) == {0: 20}
    assert ended is not None
    assert ended.pending == ()


def test_a_later_plain_commit_stays(tmp_path: Path) -> None:
    """The broker compares offsets of records, not the time of the marker."""
    group = replayed(tmp_path, commit(0, 10, 0, producer=7), commit(1, 30, 1), marker(2, COMMIT, 2, 7))
    assert offsets(group) == {0: 30}


def test_a_tombstone_takes_what_is_pending_too(tmp_path: Path) -> None:
    began = [commit(0, 10, 0, producer=7), commit(1, 30, 1), commit(2, None, 2), marker(3, COMMIT, 3, 7)]
    assert replayed(tmp_path, *began) is None


def test_a_time_has_what_was_written_and_committed_before(tmp_path: Path) -> None:
    """A transaction by its marker, a commit also by its own time."""
    log = [
        commit(0, 10, 0),
        commit(1, 20, 10, producer=7),
        marker(2, COMMIT, 20, 7),
        commit(3, None, 30),
        commit(4, 40, 40),
    ]
    wanted = {0: {}, 1: {0: 10}, 20: {0: 10}, 21: {0: 20}, 31: {}, 41: {0: 40}}
    assert {until: offsets(replayed(tmp_path, *log, until=until)) for until in wanted} == wanted
    key, value, _ = commit_of(50, 99)
    late = data(5, key, value, T + 50)  # its own time is later than its record's
    assert offsets(replayed(tmp_path, *log, late, until=60)) == {0: 40}


def test_what_compaction_may_have_taken_is_uncertain(tmp_path: Path) -> None:
    """Only where an offset is missing before the first later record: else there was nothing."""
    whole = [commit(0, 1, 0, number=1), commit(1, 50, 50)]
    assert offsets(replayed(tmp_path, *whole, until=10)) == {1: 1}
    group = replayed(tmp_path, commit(0, 1, 0, number=1), commit(2, 50, 50), commit(3, 9, 50, number=1), until=10)
    assert group is not None
    assert [(one.partition, one.offset, one.certain) for one in group.offsets] == [(0, None, False), (1, 1, True)]
    deleted = [commit(0, 1, 0, number=1), commit(2, None, 5), commit(3, 50, 50)]
    assert offsets(replayed(tmp_path, *deleted, until=10)) == {1: 1}, "its tombstone tells that there was nothing"


@pytest.mark.parametrize("seed", range(20))
def test_mutated_records_never_stop_a_replay(tmp_path: Path, seed: int) -> None:
    """Any bytes in keys and values give a group or a note; the other groups are there."""
    chance = random.Random(seed)
    batches, at = [], 0
    records = []
    for name in ("__consumer_offsets-0", "__consumer_offsets-1", "__consumer_offsets-2", "__consumer_offsets-3"):
        folder = FIXTURES / "modern" / name
        if folder.is_dir():
            records += [(one.key, one.value) for one in entries(Partition(str(folder))) if one.key is not None]
    assert len(records) > 10
    for key, value in records:
        for _ in range(3):
            parts = [bytearray(key), bytearray(value or b"")]
            for part in parts:
                for _ in range(chance.randrange(3)):
                    if part:
                        part[chance.randrange(len(part))] ^= 1 << chance.randrange(8)
                if chance.random() < 0.2:
                    del part[chance.randrange(len(part) + 1) :]
            batches.append(data(at, bytes(parts[0]), bytes(parts[1]), T))
            at += 1
    batches.append(commit(at, 77, 0))
    where = tmp_path / "__consumer_offsets-0"
    write_batches(where, *batches)
    said: list[str] = []
    for until in (None, T + 1):
        found = {one.group: one for one in group_images([Partition(str(where))], lambda _: None, until, said.append)}
        assert {one.partition: one.offset for one in found["g"].offsets} == {0: 77}
    assert all("cannot be decoded" in line for line in said)


def test_what_the_cleaner_of_a_running_broker_moves_is_still_read(tmp_path: Path) -> None:
    """It puts the records of several segments into the first and deletes the others, which were listed before."""
    where = tmp_path / "__consumer_offsets-0"
    names = [where / f"{offset:020}.log" for offset in (0, 1, 2)]
    written = [commit(n, 10 * n, n, number=n) for n in range(3)]
    where.mkdir()
    for name, content in zip(names, written, strict=True):
        name.write_bytes(content)
    partition = Partition(str(where))
    found = entries(partition)
    assert next(found).offset == 0
    names[0].unlink()
    names[0].write_bytes(written[0] + written[1])
    names[1].unlink()
    assert [one.offset for one in found] == [1, 2]
