"""Brokers accept requests with another partition's batch: if one day they refuse them, this test fails."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from tests.brokers import clients, kafka
from tests.brokers.raw import Raw
from tests.oracles.plain.encode import Record, batch

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

STORED, CORRUPT, NOT_LEADER, OUT_OF_ORDER, OLD_EPOCH, INVALID = 0, 2, 6, 45, 47, 87
MS = 1_790_000_000_000


@pytest.fixture(scope="module", params=[kafka.NEWEST, kafka.BEFORE])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Raw]:
    folder: Path = tmp_path_factory.mktemp(f"tables-{request.param}")
    with kafka.Cluster(request.param, folder, port=kafka.PORT + 80) as cluster:
        clients.make(cluster.bootstrap, [NewTopic("t", num_partitions=30)])
        with Raw(cluster.bootstrap) as raw:
            yield raw


def made(size: int = 40, producer: tuple[int, int, int] = (-1, -1, -1), count: int = 2, text: bytes = b"v") -> bytes:
    """Return a batch of *count* records; *size*: of a value."""
    return batch([Record(i, MS + i, b"k%d" % i, text * size) for i in range(count)], producer=producer)


def send(broker: Raw, number: int, content: bytes) -> tuple[int, int]:
    """Produce to a partition, once the broker has become its leader; return the error and the base offset."""
    until = time.monotonic() + 60
    while (answer := broker.produce_at("t", number, content))[0] == NOT_LEADER and time.monotonic() < until:
        time.sleep(0.1)
    return answer


@pytest.mark.parametrize(
    ("number", "request_bytes", "error"),
    [
        (0, made(40), STORED),
        *((1, made(40) + b"leftovers--"[:left], STORED) for left in (1, 5, 11)),
        *((1, made(40) + bytes(8) + (300).to_bytes(4, "big") + b"left"[:left], STORED) for left in (0, 4)),
        (2, made(40) + b"text of an older batch that was longer", CORRUPT),
        *((3, made(40) + bytes(zeros), CORRUPT) for zeros in (12, 20)),
        (4, made(40)[:-10], INVALID),
        (5, made(40) + made(40), INVALID),
        (6, made(40)[:61] + made(40, text=b"w")[61:], CORRUPT),
    ],
)
def test_what_a_request_may_carry(broker: Raw, number: int, request_bytes: bytes, error: int) -> None:
    """A whole batch, perhaps with a few leftover bytes, is stored; all else is refused, and so never misrouted."""
    assert send(broker, number, request_bytes)[0] == error


def test_an_unknown_producer_may_begin_with_any_sequence(broker: Raw) -> None:
    for number, sequence in ((10, 12), (11, 40), (12, 143)):
        assert send(broker, number, made(producer=(5000, 0, sequence)))[0] == STORED


def test_a_known_producer_of_the_same_epoch_has_to_go_on_in_sequence(broker: Raw) -> None:
    """The next sequence is taken, another is not; one of the last five batches is acknowledged and not stored."""
    sent = [send(broker, 13, made(producer=(5001, 0, sequence))) for sequence in (0, 2, 4)]
    assert sent == [(STORED, 0), (STORED, 2), (STORED, 4)]
    assert send(broker, 13, made(producer=(5001, 0, 20)))[0] == OUT_OF_ORDER
    assert send(broker, 13, made(producer=(5001, 0, 2), text=b"w")) == (STORED, 2)
    assert send(broker, 13, made(producer=(5001, 0, 6))) == (STORED, 6)


def test_a_newer_epoch_begins_with_0_and_fences_the_older_one(broker: Raw) -> None:
    assert send(broker, 14, made(producer=(5002, 0, 0)))[0] == STORED
    assert send(broker, 14, made(producer=(5002, 1, 7)))[0] == OUT_OF_ORDER
    assert send(broker, 14, made(producer=(5002, 1, 0)))[0] == STORED
    assert send(broker, 14, made(producer=(5002, 0, 2)))[0] == OLD_EPOCH


def test_behind_a_foreign_batch_the_partitions_own_one_is_lost_without_an_error(broker: Raw) -> None:
    """The second loss, which nothing on the disk shows: the sequence continues without a gap."""
    for sequence in (0, 2, 4):
        send(broker, 15, made(producer=(5003, 0, sequence)))
    assert send(broker, 15, made(producer=(5003, 0, 6), text=b"f")) == (STORED, 6)
    assert send(broker, 15, made(producer=(5003, 0, 6), text=b"o")) == (STORED, 6)
    assert send(broker, 15, made(producer=(5003, 0, 8))) == (STORED, 8)
    (answer,) = broker.fetch("t", [(15, 6, 10_000)])
    assert b"f" * 40 in answer.records
    assert b"o" * 40 not in answer.records
