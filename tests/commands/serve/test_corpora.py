"""The full corpora: every topic for every client, from a real broker on a copy and from `klog serve` on the disk."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from klog.formats.structs.schema import Data

from tests.brokers.clients import SILENT, WAIT_S
from tests.commands.serve.corpus import LEGACY, MODERN, Corpus
from tests.commands.serve.readers import CONSOLES, READERS, Row, with_console
from tests.commands.serve.serving import Serving, Wire

pytestmark = [pytest.mark.corpora, pytest.mark.kafka]

WAYS = {
    "assigned": ("read_uncommitted", None),
    "assigned, committed": ("read_committed", None),
    "in a group": ("read_committed", "all of them, for {}"),
}
OLD_LZ4 = ("v0-lz4", "v0-lz4-broker")
LACKING = {"kafka-python": OLD_LZ4, "aiokafka": OLD_LZ4}
"""Topics that a client cannot read, from any source."""
MIXED = {"aiokafka": ("changing", "changing-compressed")}
"""Topics that a client cannot read from a broker: it sends two formats in one answer."""
OPEN, OPENED_BY = "tx-open", "left-open"

Place = tuple[int, int, str, int]
"""Isolation level, time or offset asked for, topic, partition."""


@dataclass(frozen=True)
class Heard:
    """The answers of a live broker.  *ended*: the records that the open transaction had hidden, once it was ended, by
    client."""

    corpus: Corpus
    data: Path
    rows: dict[tuple[str, str], list[Row]]
    consoles: dict[str, list[bytes]]
    offsets: dict[Place, Data]
    batches: dict[Place, Data]
    ended: dict[str, list[Row]]

    @property
    def times(self) -> list[int]:
        return list(dict.fromkeys(place[1] for place in self.offsets))

    def rows_for(self, client: str, way: str) -> list[Row]:
        """Return the broker's records for a client, and another's in its place if it had none."""
        mixed = MIXED.get(client, ())
        return self.rows[client, way] + [row for row in self.rows["librdkafka", way] if row[0] in mixed]


@pytest.fixture(scope="module", params=[MODERN, LEGACY], ids=lambda corpus: corpus.name)
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Heard:
    corpus: Corpus = request.param
    with corpus.broker(tmp_path_factory.mktemp(corpus.name)) as cluster:
        at = cluster.bootstrap
        rows = {(client, way): read_of_broker(corpus, client, way, at) for client in READERS for way in WAYS}
        consoles, ended = printed_by_java(at), {}
        if OPEN in corpus.partitions:
            end_transaction(at)
            ended = {client: READERS[client](at, OPEN, "read_committed", None) for client in READERS}
        stamps = sorted({row[3] for row in rows["librdkafka", "assigned"] if row[3] >= 0})
        times = [*corpus.special, 0, *stamps[:: len(stamps) // 8], stamps[-1], stamps[-1] + 1]
        offsets = listed(corpus, cluster.port, times)
        batches = fetched(cluster.port, offsets)
        cluster.stop()
    return Heard(corpus, cluster.data, rows, consoles, offsets, batches, ended)


def end_transaction(bootstrap: str) -> None:
    """Connect as the producer that left it open: the broker aborts it before it answers."""
    from confluent_kafka import Producer

    Producer({"bootstrap.servers": bootstrap, "transactional.id": OPENED_BY, **SILENT}).init_transactions(WAIT_S)


@pytest.fixture(scope="module")
def disk(broker: Heard) -> Iterator[Serving]:
    """The disk as the broker found it."""
    with Serving(broker.corpus.folder, *broker.corpus.options) as serving:
        yield serving


@pytest.fixture(scope="module")
def left(broker: Heard) -> Iterator[Serving]:
    """The disk as the broker left it: with the epochs that it led in."""
    with Serving(broker.data) as serving:
        yield serving


# ---------------------------------------------------------------- questions


def read(corpus: Corpus, client: str, way: str, bootstrap: str, without: Sequence[str] = ()) -> list[Row]:
    isolation, group = WAYS[way]
    topics = [topic for topic in corpus.partitions if topic not in without]
    return READERS[client](bootstrap, topics, isolation, group and group.format(client))


def read_of_broker(corpus: Corpus, client: str, way: str, bootstrap: str) -> list[Row]:
    """Return the records that a real broker sent to a client. kafka-python loses requests: without records, it is run
    again."""
    without = (*LACKING.get(client, ()), *MIXED.get(client, ()))
    tries = (read(corpus, client, way, bootstrap, without) for _ in range(3))
    return next(rows for rows in tries if rows)


def printed_by_java(bootstrap: str) -> dict[str, list[bytes]]:
    with ThreadPoolExecutor() as pool:
        lines = pool.map(lambda version: with_console(version, bootstrap, f"java-{version}"), CONSOLES)
        return dict(zip(CONSOLES, lines, strict=True))


def listed(corpus: Corpus, port: int, times: Sequence[int]) -> dict[Place, Data]:
    """Return what ListOffsets answers for all partitions."""
    found: dict[Place, Data] = {}
    with Wire(port) as wire:
        for isolation, time_ms in ((isolation, time_ms) for isolation in (0, 1) for time_ms in times):
            topics = [
                {"name": name, "partitions": [{"partitionIndex": number, "timestamp": time_ms} for number in numbers]}
                for name, numbers in corpus.partitions.items()
            ]
            body = {"replicaId": -1, "isolationLevel": isolation, "topics": topics, "timeoutMs": 5000}
            for topic in wire.ask("ListOffsets", corpus.listing, body)["topics"]:
                for one in topic["partitions"]:
                    found[isolation, time_ms, topic["name"], one["partitionIndex"]] = one
    return found


def fetched(port: int, offsets: dict[Place, Data]) -> dict[Place, Data]:
    """Return what Fetch answers for each offset: limits smaller than all batches bring the one that holds it."""
    found: dict[Place, Data] = {}
    ends = {place[2:]: one["offset"] for place, one in offsets.items() if place[:2] == (0, -1)}
    with Wire(port) as wire:
        for (topic, number), end in ends.items():
            for offset in range(offsets[0, -2, topic, number]["offset"] - 1, end + 2):
                limits = {"version": 11, "partition_max_bytes": 10, "isolationLevel": 1}
                one = wire.fetch(topic, offset, partition=number, **limits)
                digest = hashlib.sha256(one["records"] or b"").hexdigest()
                found[1, offset, topic, number] = one | {"records": (len(one["records"] or b""), digest)}
    return found


def assert_same(found: Sequence[Any], expected: Sequence[Any]) -> None:
    """Each as often as expected; in few words, of thousands."""
    lacking, strange = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
    told = [f"{len(rows)} {what}: {list(rows)[:3]}" for what, rows in (("lacking", lacking), ("more", strange))]
    assert not lacking + strange, "\n".join(told)[:4000]


def different(found: dict[Place, Data], expected: dict[Place, Data]) -> list[tuple[Place, Data, Data]]:
    return [(place, found[place], one) for place, one in expected.items() if found[place] != one]


# ---------------------------------------------------------------- comparisons


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("client", READERS)
def test_clients_are_handed_what_the_broker_handed_them(broker: Heard, disk: Serving, client: str, way: str) -> None:
    found = read(broker.corpus, client, way, disk.bootstrap, LACKING.get(client, ()))
    assert_same(found, broker.rows_for(client, way))


def test_java_prints_what_it_printed_at_the_broker(broker: Heard, disk: Serving) -> None:
    found = printed_by_java(disk.bootstrap)
    for version in CONSOLES:
        assert_same(found[version], broker.consoles[version])


def test_offsets_by_time_are_those_of_the_broker(broker: Heard, left: Serving) -> None:
    """Both ends, the largest time and some in between, each with its leader's epoch."""
    found = listed(broker.corpus, left.port, broker.times)
    assert found.keys() == broker.offsets.keys()
    assert different(found, broker.offsets) == []


def test_offsets_by_time_are_the_same_before_a_broker_ran(broker: Heard, disk: Serving) -> None:
    """With the segments below a log's start, which a broker first has to remove; only the epochs are older."""
    found = listed(broker.corpus, disk.port, broker.times)
    without = ({place: one | {"leaderEpoch": 0} for place, one in them.items()} for them in (found, broker.offsets))
    assert [place for place, *_ in different(*without) if place[2] != OPEN] == []


def test_each_offset_leads_to_the_batch_that_the_broker_sent(broker: Heard, left: Serving) -> None:
    """Clients that read on begin where a batch begins; those with a committed offset may not."""
    assert different(fetched(left.port, broker.offsets), broker.batches) == []


@pytest.mark.parametrize("client", READERS)
@pytest.mark.parametrize("broker", [MODERN], indirect=True, ids=["modern"])
def test_what_nobody_ended_reads_as_if_the_broker_had_ended_it(broker: Heard, left: Serving, client: str) -> None:
    """A disk on which the transaction is open, and the one on which the broker has aborted it."""
    assert len(broker.ended[client]) > sum(row[0] == OPEN for row in broker.rows[client, "assigned, committed"])
    with Serving(broker.corpus.folder) as before:
        for serving in (before, left):
            assert_same(READERS[client](serving.bootstrap, OPEN, "read_committed", None), broker.ended[client])


def test_there_is_something_to_hand_out(broker: Heard) -> None:
    """Two empty answers are equal too."""
    uncommitted, committed, partitions = broker.corpus.counts
    counts = {way: len(broker.rows["librdkafka", way]) for way in WAYS}
    assert counts == {"assigned": uncommitted, "assigned, committed": committed, "in a group": committed}
    assert len({place[2:] for place in broker.offsets}) == partitions
    assert sum(one["records"][0] > 0 for one in broker.batches.values()) >= uncommitted
    assert {row[0] for row in broker.rows["librdkafka", "assigned"]} | {"empty"} >= broker.corpus.partitions.keys()
    assert all(len(lines) >= uncommitted for lines in broker.consoles.values())
