"""Real clients read from a disk the same as `klog dump`: assigned, in groups, by time; and none can write."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import clients
from tests.brokers.clients import SILENT, WAIT_S
from tests.commands.dump.test_consumer import received
from tests.commands.serve.readers import READERS, Row, with_librdkafka
from tests.commands.serve.serving import Serving
from tests.conftest import FIXTURES, run_klog

MODERN, LEGACY = FIXTURES / "modern", FIXTURES / "legacy"
MODERN_TOPICS = ("zstd", "gzip", "tx", "dense", "idempotent", "logappend", "lz4-broker", "trimmed", "empty")
CASES = [
    *((topic, "read_uncommitted") for topic in (*MODERN_TOPICS, "tx-open")),
    *((topic, "read_committed") for topic in ("tx", "tx-open", "zstd")),
]
LEGACY_TOPICS = sorted(path.name.removesuffix("-0") for path in LEGACY.glob("*-0"))
NOT_FOR_THEM = (("kafka-python", "v0-lz4"), ("aiokafka", "v0-lz4"))
LOG_STARTS = {("trimmed", 0): 137, ("trimmed", 1): 5}
TEXT = "klog serve is read-only: this endpoint shows a dead broker's disk, nothing can be written to it"


@pytest.fixture(scope="module")
def modern() -> Iterator[Serving]:
    """The disk has only some partitions left; an open transaction is hidden, as a dump hides it."""
    with Serving(MODERN, "--open-transactions", "hide") as serving:
        yield serving


@pytest.fixture(scope="module")
def legacy() -> Iterator[Serving]:
    with Serving(LEGACY) as serving:
        yield serving


def on_disk(folder: Path, topic: str, isolation: str = "read_uncommitted") -> list[Row]:
    """Return the output of `klog dump` for all partitions of a topic."""
    rows: list[Row] = []
    for partition in sorted(folder.glob(f"{topic}-[0-9]*")):
        ran = run_klog("dump", partition, "--output", "jsonl", "--no-control", "--isolation", isolation)
        assert (ran.exit_code, ran.stderr) == (0, b"")
        for line in ran.stdout.decode().split("\n")[:-1]:
            one, number = received(line), json.loads(line)["partition"]
            if one.offset >= LOG_STARTS.get((topic, number), 0):
                rows.append((topic, number, one.offset, one.timestamp, one.key, one.value, one.headers))
    return sorted(rows, key=lambda row: row[:3])


@pytest.mark.parametrize("client", READERS)
@pytest.mark.parametrize(("topic", "isolation"), CASES)
def test_a_client_is_handed_what_is_on_the_disk(modern: Serving, client: str, topic: str, isolation: str) -> None:
    found = READERS[client](modern.bootstrap, topic, isolation, None)
    assert found == on_disk(MODERN, topic, isolation)
    assert found or topic == "empty"


@pytest.mark.parametrize(
    ("client", "topic"),
    # The two others do not support the oldest frames of LZ4.
    [(one, topic) for one in READERS for topic in LEGACY_TOPICS if (one, topic) not in NOT_FOR_THEM],
)
def test_old_formats_go_out_as_they_are(legacy: Serving, client: str, topic: str) -> None:
    """No broker of today converts them down or up, and every client still reads them."""
    assert READERS[client](legacy.bootstrap, topic, "read_uncommitted", None) == on_disk(LEGACY, topic)


@pytest.mark.parametrize("client", READERS)
def test_a_group_reads_all_partitions_and_resumes(client: str) -> None:
    """plain-0 is on another disk: the group is given it all the same, and finds it empty."""
    with Serving(MODERN) as serving:
        group = f"readers-{client}"
        assert READERS[client](serving.bootstrap, "plain", "read_committed", group) == on_disk(MODERN, "plain")
        assert READERS[client](serving.bootstrap, "plain", "read_committed", group) == []
        assert serving.says("commits offsets: they are kept in memory")


def test_a_group_of_the_disk_goes_on_where_it_was() -> None:
    """Its last commit before the crash is the position, without any other information."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    with Serving(MODERN) as serving:
        admin = clients.admin(serving.bootstrap)
        asked = [ConsumerGroupTopicPartitions("loses-one")]
        told = admin.list_consumer_group_offsets(asked)["loses-one"].result(WAIT_S).topic_partitions
        committed = {(one.topic, one.partition): one.offset for one in told}
        assert committed["plain", 1] == 93
        assert {one.group_id for one in admin.list_consumer_groups().result(WAIT_S).valid} >= {"classic", "sticky"}
        left = [row for row in on_disk(MODERN, "plain") if row[2] >= committed.get((row[0], row[1]), 0)]
        assert 0 < len(left) < len(on_disk(MODERN, "plain"))
        assert with_librdkafka(serving.bootstrap, "plain", "read_committed", "loses-one") == left


def test_offsets_by_time(modern: Serving) -> None:
    """The first record as late, inside of a compressed batch, too."""
    from confluent_kafka import Consumer, TopicPartition

    rows = on_disk(MODERN, "zstd")
    consumer = Consumer({"bootstrap.servers": modern.bootstrap, "group.id": "times", **SILENT})
    try:
        for time_ms in (0, rows[0][3], rows[40][3], rows[41][3] + 1, rows[-1][3], max(row[3] for row in rows) + 1):
            (found,) = consumer.offsets_for_times([TopicPartition("zstd", 0, time_ms)], WAIT_S)
            expected = next((row[2] for row in rows if row[3] >= time_ms), -1)
            assert found.offset == expected, time_ms
        assert consumer.get_watermark_offsets(TopicPartition("trimmed", 0), WAIT_S)[0] == 137
    finally:
        consumer.close()


def test_the_cluster_is_the_one_of_the_disk(modern: Serving) -> None:
    from confluent_kafka import TopicCollection, TopicPartition
    from confluent_kafka.admin import ConfigResource, OffsetSpec, ResourceType

    admin = clients.admin(modern.bootstrap)
    assert admin.describe_cluster().result(WAIT_S).cluster_id == "fXeC61JOQie3q2pvw8VSPQ"
    (topic,) = admin.describe_topics(TopicCollection(["plain"])).values()
    assert len(topic.result(WAIT_S).partitions) == 3
    (config,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "lz4-broker")]).values()
    assert {name: entry.value for name, entry in config.result(WAIT_S).items()} == {"compression.type": "lz4"}
    (latest,) = admin.list_offsets({TopicPartition("zstd", 0): OffsetSpec.latest()}).values()
    assert latest.result(WAIT_S).offset == on_disk(MODERN, "zstd")[-1][2] + 1
    internal = {name for name in admin.list_topics(timeout=WAIT_S).topics if name.startswith("__")}
    assert internal == set()


# ---------------------------------------------------------------- writers


def test_librdkafka_is_refused_at_once(modern: Serving) -> None:
    from confluent_kafka import KafkaError, Producer
    from confluent_kafka.admin import NewTopic

    told: list[Any] = []
    for idempotent in (False, True):
        config = {"bootstrap.servers": modern.bootstrap, "enable.idempotence": idempotent, **SILENT}
        producer = Producer(config)
        producer.produce("zstd", b"x", on_delivery=lambda error, _: told.append(error))
        assert producer.flush(WAIT_S) == 0
    assert [error.code() for error in told] == [KafkaError.POLICY_VIOLATION] * 2
    assert not any(error.retriable() for error in told)
    admin = clients.admin(modern.bootstrap)
    (created,) = admin.create_topics([NewTopic("new", 1, 1)]).values()
    assert TEXT in str(created.exception(WAIT_S))
    assert modern.says("Produce was refused")
    assert modern.says("CreateTopics was refused")


def test_kafka_python_is_told_why(modern: Serving) -> None:
    from kafka import KafkaProducer
    from kafka.errors import PolicyViolationError

    producer = KafkaProducer(bootstrap_servers=modern.bootstrap, max_block_ms=WAIT_S * 1000)
    try:
        with pytest.raises(PolicyViolationError, match="klog serve is read-only"):
            producer.send("zstd", b"x").get(WAIT_S)
    finally:
        producer.close()


def test_aiokafka_is_refused_at_once(modern: Serving) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import PolicyViolationError

    async def produce() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=modern.bootstrap)
        await producer.start()
        try:
            await producer.send_and_wait("zstd", b"x")
        finally:
            await producer.stop()

    with pytest.raises(PolicyViolationError):
        asyncio.run(asyncio.wait_for(produce(), WAIT_S))
