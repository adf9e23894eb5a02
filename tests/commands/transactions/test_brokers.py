"""Transactions of real clients, v1 and v2, and hanging ones: klog's answers, those of the tools, and the remedy."""

from __future__ import annotations

import random
import shlex
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from klog.commands.transactions.transaction_details import TransactionDetail, TransactionQuery, describe_transactions
from klog.formats.java_hash_map import java_hash

from tests.brokers import clients, kafka
from tests.brokers.raw import Raw
from tests.oracles.plain.encode import Record, batch

pytestmark = pytest.mark.kafka
TOOL = "org.apache.kafka.tools.TransactionsCommand"
SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
    "transaction.partition.verification.enable": "false",  # else no transaction hangs on a broker so new
}
STRANGER = 999_000
"""A producer id that no coordinator gave out."""


class Made(NamedTuple):
    """A transaction as its client made it: partitions → records, how it ended, the client's clock around it, ms."""

    name: str
    parts: dict[tuple[str, int], int]
    state: str
    since: int
    until: int


class Disk(NamedTuple):
    """A log dir after a clean stop; *hanging*: the lines of find-hanging, *folder*: where the cluster lives."""

    data: Path
    made: list[Made]
    hanging: list[list[str]]
    cluster: kafka.Cluster


def now() -> int:
    return int(time.time() * 1000)


class LibrdkafkaProducer:
    """A producer of transactions v1."""

    def __init__(self, bootstrap: str, name: str, timeout_ms: int = 600_000) -> None:
        from confluent_kafka import Producer

        self.name, self.bootstrap = name, bootstrap
        config = {"bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": timeout_ms}
        self.producer = Producer({**config, **clients.SILENT})
        self.producer.init_transactions(clients.WAIT_S)

    def begin(self) -> None:
        self.since = now()
        self.parts: dict[tuple[str, int], int] = {}
        self.producer.begin_transaction()

    def send(self, number: int, count: int) -> None:
        for _ in range(count):
            self.producer.produce("t", b"value", partition=number)
        assert self.producer.flush(clients.WAIT_S) == 0
        if count:
            self.parts["t", number] = self.parts.get(("t", number), 0) + count

    def offsets(self, group: str, coordinator: int) -> None:
        from confluent_kafka import Consumer, TopicPartition

        reader = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group, **clients.SILENT})
        where = [TopicPartition("t", 0, 1)]
        self.producer.send_offsets_to_transaction(where, reader.consumer_group_metadata(), clients.WAIT_S)
        reader.close()
        self.parts["__consumer_offsets", coordinator] = 1

    def end(self, state: str) -> Made:
        if state == "committed":
            self.producer.commit_transaction(clients.WAIT_S)
        elif state == "aborted":
            self.producer.abort_transaction(clients.WAIT_S)
        return Made(self.name, self.parts, state, self.since, now())


def coordinator_of(group: str) -> int:
    """Return the partition of `__consumer_offsets`; test brokers have two."""
    return java_hash(group) % 2


def overlapping(bootstrap: str) -> list[Made]:
    """Three producers whose transactions overlap, one after another each, at once after the other's end."""
    chance, made = random.Random(5), []
    producers = [LibrdkafkaProducer(bootstrap, f"v1-{i}") for i in range(3)]
    for _ in range(8):
        for one in producers:
            one.begin()
        for _ in range(2):
            for one in producers:
                one.send(chance.randrange(3), chance.randrange(1, 4))
        if chance.random() < 0.4:
            producers[0].offsets("readers", coordinator_of("readers"))
        made += [one.end(chance.choice(["committed", "committed", "aborted"])) for one in producers]
    return made


def one_after_another(bootstrap: str) -> list[Made]:
    """A transaction in one partition, the next in another: the data does not distinguish them from a single one."""
    one, made = LibrdkafkaProducer(bootstrap, "v1-quick"), []
    for i in range(20):
        one.begin()
        one.send(i % 3, 1)
        made.append(one.end("committed"))
    one.begin()  # empty: it leaves no trace
    one.end("committed")
    return made


def ended_by_others(bootstrap: str) -> list[Made]:
    """One is fenced by a second producer of its id, one times out."""
    fenced = LibrdkafkaProducer(bootstrap, "fenced")
    fenced.begin()
    fenced.send(0, 2)
    made = [Made("fenced", fenced.parts, "aborted", fenced.since, 0)]
    LibrdkafkaProducer(bootstrap, "fenced")
    late = LibrdkafkaProducer(bootstrap, "late", 1000)
    late.begin()
    late.send(1, 3)
    made = [made[0]._replace(until=now()), Made("late", late.parts, "aborted", late.since, 0)]
    until = time.monotonic() + clients.WAIT_S
    with Raw(bootstrap) as broker:
        while broker.list_offset("t", 1, -1, committed=True)[0] != broker.list_offset("t", 1, -1)[0]:
            assert time.monotonic() < until, "it does not time out"
            time.sleep(0.1)
    return [made[0], made[1]._replace(until=now())]


JAVA = [
    "v2-a t:0:3 commit",
    "v2-a t:0:1,t:1:2 abort",
    "v2-b t:2:5,@v2readers:0:4 commit",
    "v2-a t:1:1 commit",
    "v2-a t:2:1 commit",
    "v2-b - commit",
    "v2-b t:0:1 abort",
    "v2-c t:0:2,t:2:2 open",
]


def with_java(bootstrap: str) -> list[Made]:
    """Transactions v2: each has an epoch of its own."""
    program = kafka.program(kafka.NEWEST, "ProduceTransactions", bootstrap)
    done = subprocess.run(program, input="\n".join(JAVA).encode(), capture_output=True, timeout=300, check=True)
    made = []
    for line, times in zip(JAVA, done.stdout.decode().splitlines(), strict=True):
        name, parts, end = line.split()
        since, until = map(int, times.split())
        counts = {}
        for topic, number, count in (part.split(":") for part in parts.split(",") if part != "-"):
            is_commit = topic.startswith("@")
            where = ("__consumer_offsets", coordinator_of(topic[1:])) if is_commit else (topic, int(number))
            counts[where] = 1 if is_commit else int(count)
        state = {"commit": "committed", "abort": "aborted", "open": "open"}[end]
        made += [Made(name, counts, state, since, until)] * bool(counts)
    return made


def hang(bootstrap: str) -> None:
    """Write data outside of any coordinator's transaction; it looks an hour old."""
    old = now() - 3_600_000
    with Raw(bootstrap) as broker:
        for number in (1, 2):
            rows = [Record(i, old, None, b"x") for i in range(2)]
            data = batch(rows, transactional=True, producer=(STRANGER + number, 0, 0))
            assert broker.produce("t", number, data, "nobody") == 0


def run(tool: kafka.Tools, cluster: kafka.Cluster, *arguments: str) -> list[list[str]]:
    """Return the lines of the tool's table, by words, without its header."""
    done = tool.run_class(TOOL, "--bootstrap-server", cluster.bootstrap, *arguments)
    assert (done.exit_code, done.died) == (0, ""), done
    return [line.split() for line in done.stdout.decode().splitlines()[1:]]


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Disk:
    tool = kafka.Tools(kafka.NEWEST)
    cluster = kafka.Cluster(kafka.NEWEST, tmp_path_factory.mktemp("transactions"), settings=SETTINGS)
    with cluster:
        clients.create(cluster.bootstrap, {"t": {}}, partitions=3)
        made = overlapping(cluster.bootstrap) + one_after_another(cluster.bootstrap)
        made += ended_by_others(cluster.bootstrap) + with_java(cluster.bootstrap)
        hang(cluster.bootstrap)
        hanging = run(tool, cluster, "find-hanging", "--broker-id", "1")
        cluster.stop()
    return Disk(cluster.data, made, hanging, cluster)


def described(data: Path, **query: Any) -> list[TransactionDetail]:
    said: list[str] = []
    found = list(describe_transactions([str(data)], TransactionQuery(now(), **query), said.append))
    assert said == []
    return found


def test_every_transaction_of_the_clients_is_there_once(disk: Disk) -> None:
    """With its parts, records, state, and times inside the client's own clock."""
    found = [one for one in described(disk.data) if one.state != "hanging"]
    found.sort(key=lambda one: (one.transactional_id or "", one.coordinator.started if one.coordinator else 0))
    wanted = sorted(disk.made, key=lambda one: (one.name, one.since))
    seen = [
        (one.transactional_id, one.state, {(p.topic, p.partition): p.records for p in one.partitions}) for one in found
    ]
    assert seen == [(one.name, one.state, one.parts) for one in wanted]
    for one, told in zip(found, wanted, strict=True):
        assert one.records == sum(told.parts.values())
        assert one.began is not None
        assert told.since <= one.began <= told.until, told
        # The client may have the answer about the end before the marker has been written.
        assert one.ended is None or told.since <= one.ended <= told.until + 1000, told


def test_parts_are_put_together_without_the_coordinator(disk: Disk) -> None:
    """Epochs distinguish transactions v2."""
    logs = [str(path) for path in disk.data.iterdir() if path.name.startswith(("t-", "__consumer_offsets-"))]
    found = list(describe_transactions(logs, TransactionQuery(now())))
    known = {one.producer_id for one in described(disk.data) if (one.transactional_id or "").startswith("v2-")}
    seen = sorted(
        (one.state, sorted((p.topic, p.partition, p.records) for p in one.partitions))
        for one in found
        if one.producer_id in known
    )
    wanted = [one for one in disk.made if one.name.startswith("v2-")]
    assert seen == sorted((one.state, sorted((*where, n) for where, n in one.parts.items())) for one in wanted)


def test_hanging_ones_are_those_of_the_tool(disk: Disk) -> None:
    found = [one for one in described(disk.data) if one.state == "hanging"]
    rows = [
        (p.topic, p.partition, one.producer_id, one.producer_epoch, p.first_offset)
        for one in found
        for p in one.partitions
    ]
    assert len(rows) == 2
    assert sorted([str(cell) for cell in row] for row in rows) == sorted(
        [line[0], line[1], line[2], line[3], line[5]] for line in disk.hanging
    )


def test_the_commands_given_end_what_hangs(disk: Disk) -> None:
    """A real broker writes the ABORT marker, and readers of committed data come to the end."""
    commands = [shlex.split(one.abort or "") for one in described(disk.data) if one.state == "hanging"]
    tool = kafka.Tools(kafka.NEWEST)
    with disk.cluster as cluster:
        with Raw(cluster.bootstrap) as broker:
            before = broker.list_offset("t", 1, -1, committed=True)[0]
            for words in commands:
                assert words[:4] == ["kafka-transactions", "--bootstrap-server", "HOST:PORT", "abort"]
                run(tool, cluster, *words[3:])
            until = time.monotonic() + clients.WAIT_S
            while broker.list_offset("t", 1, -1, committed=True)[0] == before:
                assert time.monotonic() < until, "a marker is not written"
                time.sleep(0.1)
        assert run(tool, cluster, "find-hanging", "--broker-id", "1") == []
        cluster.stop()
    after = described(disk.data)
    assert [one for one in after if one.state == "hanging"] == []
    ended = [one for one in after if one.producer_id >= STRANGER]
    assert [(one.state, one.records, one.transactional_id) for one in ended] == [("aborted", 2, None)] * 2
