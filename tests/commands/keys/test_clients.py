"""Real producers of five kinds: the rule of each is named, alone in a topic and among others, and so is growth."""

from __future__ import annotations

import asyncio
import random
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.brokers import clients, kafka
from tests.commands.keys.placing import Placed, agrees, check, verdict
from tests.conftest import run_klog

pytestmark = pytest.mark.kafka
PARTITIONS = 7
GROWN_FROM, GROWN_TO = 4, 10


def keys(who: str, count: int) -> list[bytes]:
    """Return different keys of many lengths; the same ones whenever *who* is the same."""
    chance = random.Random(who)
    return [who.encode() + b"-%d-" % i + chance.randbytes(chance.randrange(12)) for i in range(count)]


def with_java(bootstrap: str, topic: str, sent: Sequence[bytes]) -> None:
    lines = "".join(f"{key.hex()}\n" for key in sent)
    program = kafka.program(kafka.NEWEST, "ProduceKeys", bootstrap, topic)
    done = subprocess.run(program, input=lines, capture_output=True, text=True, check=True, timeout=clients.WAIT_S)
    assert len(done.stdout.splitlines()) == len(sent), done.stderr


def with_librdkafka(bootstrap: str, topic: str, sent: Sequence[bytes], **settings: str) -> None:
    from confluent_kafka import Producer

    failed: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, **clients.SILENT, **settings})
    for key in sent:
        producer.produce(
            topic, key=key, value=b"v", on_delivery=lambda error, _: failed.append(error) if error else None
        )
    assert producer.flush(clients.WAIT_S) == 0
    assert not failed


def with_fnv1a(bootstrap: str, topic: str, sent: Sequence[bytes]) -> None:
    with_librdkafka(bootstrap, topic, sent, partitioner="fnv1a_random")


def with_kafka_python(bootstrap: str, topic: str, sent: Sequence[bytes]) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=20)
    for future in [producer.send(topic, b"v", key) for key in sent]:
        future.get(clients.WAIT_S)
    producer.close()


def with_aiokafka(bootstrap: str, topic: str, sent: Sequence[bytes]) -> None:
    asyncio.run(_with_aiokafka(bootstrap, topic, sent))


async def _with_aiokafka(bootstrap: str, topic: str, sent: Sequence[bytes]) -> None:
    from aiokafka import AIOKafkaProducer

    async with AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=20) as producer:
        for future in [await producer.send(topic, b"v", key) for key in sent]:
            await asyncio.wait_for(future, clients.WAIT_S)


class Client(NamedTuple):
    """Who sends, and the rule that has to be named."""

    send: Callable[[str, str, Sequence[bytes]], None]
    rule: str


CLIENTS = {
    "java": Client(with_java, "java"),
    "kafka-python": Client(with_kafka_python, "java"),
    "aiokafka": Client(with_aiokafka, "java"),
    "librdkafka": Client(with_librdkafka, "librdkafka"),
    "fnv1a": Client(with_fnv1a, "fnv1a"),
}
MIXED = {"java": 400, "librdkafka": 120, "fnv1a": 60, "kafka-python": 50, "aiokafka": 50}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The log dir of a broker that all have written to, stopped."""
    with kafka.Cluster(kafka.NEWEST, tmp_path_factory.mktemp("keys")) as cluster:
        topics = [f"of-{name}" for name in CLIENTS]
        clients.create(cluster.bootstrap, {name: {} for name in (*topics, "mixed")}, PARTITIONS)
        clients.create(cluster.bootstrap, {"grown": {}}, GROWN_FROM)
        for name, client in CLIENTS.items():
            client.send(cluster.bootstrap, f"of-{name}", keys(name, 300))
            client.send(cluster.bootstrap, "mixed", keys(name, MIXED[name]))
        with_kafka_python(cluster.bootstrap, "grown", keys("before", 200))
        grow(cluster.bootstrap, "grown", GROWN_TO)
        with_java(cluster.bootstrap, "grown", keys("after", 400))
        cluster.stop()
        yield cluster.data


def grow(bootstrap: str, topic: str, partitions: int) -> None:
    from confluent_kafka.admin import NewPartitions

    client = clients.admin(bootstrap)
    for future in client.create_partitions([NewPartitions(topic, partitions)]).values():
        future.result(clients.WAIT_S)


@pytest.fixture(scope="module")
def rows(data: Path) -> dict[str, dict[str, Any]]:
    return check(data, exit_code=4)


@pytest.mark.parametrize("name", CLIENTS)
def test_the_rule_of_a_topics_only_client_is_named(rows: dict[str, dict[str, Any]], name: str) -> None:
    """Every one of its keys is where the rule puts it."""
    row = rows[f"of-{name}"]
    assert (row["rule"], row["share"], row["keys"]) == (CLIENTS[name].rule, 1.0, 300)
    assert (row["partitions"], row["partitions_from"], row["misplaced"]["keys"]) == (PARTITIONS, "metadata", 0)


def test_of_clients_in_one_topic_each_rule_is_named(rows: dict[str, dict[str, Any]], data: Path) -> None:
    """Most follow Java's; the others are named with the number of keys in plain Python."""
    row = rows["mixed"]
    placed = dumped(data, "mixed")
    agrees(row, verdict(placed, PARTITIONS))
    assert (row["rule"], row["keys"]) == ("java", sum(MIXED.values()))
    assert set(row["misplaced"]["another_rule"]) == {"librdkafka", "fnv1a"}
    assert (row["misplaced"]["none"], row["misplaced"]["unframed"], row["misplaced"]["grown_from"]) == (0, 0, {})


def test_a_topic_that_was_given_partitions_says_how_many_it_had(rows: dict[str, dict[str, Any]], data: Path) -> None:
    row = rows["grown"]
    agrees(row, verdict(dumped(data, "grown"), GROWN_TO, grown=(GROWN_FROM,)))
    assert list(row["misplaced"]["grown_from"]) == [str(GROWN_FROM)]
    assert {one["why"] for one in row["examples"]} == {f"grown_from {GROWN_FROM}"}


def dumped(data: Path, topic: str) -> list[Placed]:
    """Return each record's key and partition by the decoder that shares no code with klog."""
    from tests.oracles.plain import decode

    placed: list[Placed] = []
    for folder in data.glob(f"{topic}-*"):
        for log in folder.glob("*.log"):
            batches = (one for one in decode.scan(log.read_bytes()) if isinstance(one, decode.Batch))
            placed += [(record.key, int(folder.name.rpartition("-")[2])) for one in batches for record in one.records]
    return placed


PARTITIONERS = {
    "java": ("java", "murmur2_random", "murmur2"),
    "librdkafka": ("consistent_random", "consistent"),
    "fnv1a": ("fnv1a_random", "fnv1a"),
}
"""The names that `klog write` has for the rule of a client."""


@pytest.mark.parametrize("name", CLIENTS)
def test_klog_write_puts_keys_where_the_client_has_put_them(name: str, data: Path, tmp_path: Path) -> None:
    """Every key of a topic, written again without its partition."""
    topic, file = f"of-{name}", tmp_path / "records.jsonl"
    assert run_klog("dump", data, "--topic", topic, "--output", "jsonl", "--to", file).exit_code == 0
    sent = dict(dumped(data, topic))
    assert len({*sent.values()}) == PARTITIONS
    for partitioner in PARTITIONERS[CLIENTS[name].rule]:
        words = ("--partitions", str(PARTITIONS), "--repartition", "--partitioner", partitioner)
        done = run_klog("write", file, "--to", tmp_path / partitioner, *words)
        assert done.exit_code == 0, done.stderr
        assert dict(dumped(tmp_path / partitioner, topic)) == sent
