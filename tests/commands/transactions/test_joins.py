"""The combination of parts: clocks that differ, coordinators without records, hostile records, bounded memory."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from klog.commands.transactions.transaction_details import TransactionDetail, TransactionQuery, describe_transactions

from tests.commands.serve.coordinator_logs import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    T,
    state,
    write_batches,
    write_records,
)
from tests.oracles.plain.encode import Record, batch

COMMIT, ABORT, END = b"\0\0\0\1", b"\0\0\0\0", b"\0\0\0\0\0\5"
P = 7001
"""The producer of `coordinator_logs.state`."""


class Disk:
    """Logs as they grow."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._logs: dict[int, list[bytes]] = {}
        self._ends: dict[int, int] = {}
        self.states: list[tuple[bytes, bytes | None, int]] = []

    def data(self, number: int, ms: int, count: int = 1, producer: int = P, epoch: int = 0) -> None:
        at = self._ends.get(number, 0)
        rows = [Record(at + i, T + ms, b"k", b"v") for i in range(count)]
        self._put(number, batch(rows, transactional=True, producer=(producer, epoch, -1)), count)

    def marker(self, number: int, ms: int, what: bytes = COMMIT, producer: int = P, epoch: int = 0) -> None:
        rows = [Record(self._ends.get(number, 0), T + ms, what, END)]
        self._put(number, batch(rows, transactional=True, control=True, producer=(producer, epoch, -1)), 1)

    def _put(self, number: int, data: bytes, count: int) -> None:
        self._logs.setdefault(number, []).append(data)
        self._ends[number] = self._ends.get(number, 0) + count

    def found(self, *, coordinator: bool = True, states: tuple[str, ...] = ()) -> list[TransactionDetail]:
        for number, batches in self._logs.items():
            write_batches(self._folder / f"t-{number}", *batches)
        if coordinator:
            write_records(self._folder / "__transaction_state-0", self.states)
        return list(describe_transactions([str(self._folder)], TransactionQuery(T + 10**6, states)))


def seen(found: list[TransactionDetail]) -> list[tuple[str, list[int], int]]:
    return [(one.state, [part.partition for part in one.partitions], one.records) for one in found]


@pytest.mark.parametrize("skew", [0, 1500, -1500])
def test_brokers_clocks_may_differ(tmp_path: Path, skew: int) -> None:
    """The coordinator's records are from another broker than the markers; the transactions are seconds apart."""
    disk = Disk(tmp_path)
    for i in range(4):
        ms = 10_000 * i
        disk.data(0, ms, 2)
        disk.data(1, ms + 5, 1)
        named = [("t", 0), ("t", 1)]
        what, status = (
            (COMMIT, (PREPARE_COMMIT, COMPLETE_COMMIT)) if i % 2 else (ABORT, (PREPARE_ABORT, COMPLETE_ABORT))
        )
        disk.states += [
            state(ONGOING, ms + skew, ms + skew, named),
            state(status[0], ms + skew, ms + 20 + skew, named),
            state(status[1], ms + skew, ms + 40 + skew),
        ]
        disk.marker(0, ms + 25, what)
        disk.marker(1, ms + 30, what)
    found = disk.found()
    assert seen(found) == [(("aborted", "committed")[i % 2], [0, 1], 3) for i in range(4)]
    assert [one.transactional_id for one in found] == ["app"] * 4
    assert [one.coordinator and one.coordinator.updated for one in found] == [
        T + 10_000 * i + 40 + skew for i in range(4)
    ]


def test_the_coordinator_tells_quick_transactions_apart(tmp_path: Path) -> None:
    """The second one's data was created before the first one's marker was written: only the records part them."""
    disk = Disk(tmp_path)
    disk.data(0, 0)
    disk.marker(0, 12)
    disk.data(1, 11)
    disk.marker(1, 22)
    disk.states = [
        state(PREPARE_COMMIT, 1, 10, [("t", 0)]),
        state(COMPLETE_COMMIT, 1, 13),
        state(PREPARE_COMMIT, 14, 20, [("t", 1)]),
        state(COMPLETE_COMMIT, 14, 23),
    ]
    assert seen(disk.found()) == [("committed", [0], 1), ("committed", [1], 1)]
    for path in (tmp_path / "__transaction_state-0").iterdir():
        path.unlink()
    (tmp_path / "__transaction_state-0").rmdir()
    assert seen(disk.found(coordinator=False)) == [("committed", [0, 1], 2)]


def test_a_late_marker_is_not_that_of_the_next_transaction(tmp_path: Path) -> None:
    """A coordinator stamps COMPLETE before it has the markers written, and writes it after them."""
    disk = Disk(tmp_path)
    disk.data(0, 0, 1)
    disk.marker(0, 30)
    disk.data(0, 32, 2)
    disk.marker(0, 41)
    named = [("t", 0)]
    key, value, _ = state(COMPLETE_COMMIT, 1, 11)
    disk.states = [state(PREPARE_COMMIT, 1, 10, named), (key, value, T + 31)]
    disk.states += [state(PREPARE_COMMIT, 32, 33, named), state(COMPLETE_COMMIT, 32, 42)]
    found = disk.found()
    assert [(one.records, one.coordinator and one.coordinator.started) for one in found] == [(1, T + 1), (2, T + 32)]


def test_a_marker_far_from_its_coordinators_records_is_not_theirs(tmp_path: Path) -> None:
    """The records of a transaction whose log is lost; minutes later the same producer commits another."""
    disk = Disk(tmp_path)
    disk.states = [state(PREPARE_COMMIT, 1, 10, [("t", 0)]), state(COMPLETE_COMMIT, 1, 13)]
    disk.data(0, 60_000)
    disk.marker(0, 60_010)
    (one,) = disk.found()
    assert (one.state, one.coordinator) == ("committed", None)


def test_the_last_epoch_of_a_producer_id_ends_with_another_id(tmp_path: Path) -> None:
    """Only COMPLETE is left of a transaction of version 2, and names the next id."""
    disk = Disk(tmp_path)
    disk.data(0, 5)
    disk.marker(0, 12)
    disk.states = [state(COMPLETE_COMMIT, 1, 11, producer=P + 1, previous=P, client_version=2, written=13)]
    (one,) = disk.found()
    assert (one.producer_id, one.transactional_id) == (P, "app")
    assert one.coordinator is not None


def test_without_all_coordinators_nothing_is_said_to_hang(tmp_path: Path) -> None:
    """Its transactional id may be in the partition that is not here."""
    disk = Disk(tmp_path)
    disk.data(0, 0)
    disk.found(coordinator=False)
    write_records(tmp_path / "__transaction_state-1", [state(ONGOING, 1, 1, producer=5)])
    said: list[str] = []
    found = list(describe_transactions([str(tmp_path)], TransactionQuery(T + 10**6), said.append))
    assert [(one.state, one.producer_id) for one in found] == [("open", P), ("open", 5)]
    assert said[0].startswith("not all partitions of __transaction_state")


def test_a_transaction_that_is_being_ended_is_open(tmp_path: Path) -> None:
    """One partition has its marker, the other will get it; what another producer left hangs."""
    disk = Disk(tmp_path)
    disk.data(0, 0)
    disk.data(1, 1)
    disk.marker(0, 11)
    disk.data(2, 2, producer=5)
    disk.states = [state(PREPARE_COMMIT, 1, 10, [("t", 0), ("t", 1)])]
    found = disk.found()
    assert seen(found) == [("open", [0, 1], 2), ("hanging", [2], 1)]
    assert [part.marker_offset for part in found[0].partitions] == [1, None]
    assert disk.found(states=("open", "hanging")) == found
    assert found[1].abort == (
        "kafka-transactions --bootstrap-server HOST:PORT abort --topic t --partition 2 --start-offset 0"
    )


def test_a_partition_that_the_coordinator_does_not_name_hangs(tmp_path: Path) -> None:
    """Its open transaction is a later one: kafka-transactions find-hanging agrees."""
    disk = Disk(tmp_path)
    disk.data(0, 0)
    disk.data(1, 5)
    disk.states = [state(ONGOING, 5, 5, [("t", 1)])]
    assert seen(disk.found()) == [("open", [1], 1), ("hanging", [0], 1)]


@pytest.mark.parametrize("seed", range(15))
def test_mutated_states_never_stop_it(tmp_path: Path, seed: int) -> None:
    """Any bytes in `__transaction_state`: each marker is part of one transaction, no record is lost or doubled."""
    chance, disk = random.Random(seed), Disk(tmp_path)
    for i in range(30):
        disk.data(i % 3, 20 * i)
        disk.marker(i % 3, 20 * i + 12)
        for status, ms in ((PREPARE_COMMIT, 10), (COMPLETE_COMMIT, 14)):
            client = chance.choice([0, 2])
            row = state(status, 20 * i, 20 * i + ms, [("t", i % 3)], client_version=client, epoch=client // 2)
            parts = [bytearray(row[0]), bytearray(row[1])]
            for part in parts:
                for _ in range(chance.randrange(2)):
                    part[chance.randrange(len(part))] ^= 1 << chance.randrange(8)
            disk.states.append((bytes(parts[0]), bytes(parts[1])[: chance.choice([None, None, 20])], row[2]))
    found = disk.found()
    ended = [one for one in found if one.state == "committed"]
    assert sum(one.records for one in ended) == 30
    assert sum(len(one.partitions) for one in ended) == 30


def test_memory_is_that_of_what_is_in_progress(tmp_path: Path) -> None:
    """Thousands of transactions that have ended leave nothing behind."""
    import tracemalloc

    disk = Disk(tmp_path)
    for i in range(6000):
        disk.data(0, 20 * i, producer=i)
        disk.data(1, 20 * i, producer=i)
        disk.marker(0, 20 * i + 12, producer=i)
        disk.marker(1, 20 * i + 12, producer=i)
    disk.found(states=("open",))
    tracemalloc.start()
    count = sum(1 for _ in describe_transactions([str(tmp_path)], TransactionQuery(T)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 6000
    assert peak < 4 << 20
