"""Consumers of three kinds, with and without a group: whatever a topic hands them, to its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from tests.clients import SILENT

Row = tuple[str, int, int, int, "bytes | None", "bytes | None", tuple[tuple[str, "bytes | None"], ...]]
"""Topic, partition, offset, timestamp, key, value, headers."""

QUIET_S = 0.5
"""Nothing more has come for so long: this is the end."""


def with_librdkafka(bootstrap: str, topic: str, isolation: str, group: str | None) -> list[Row]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group or "nobody",
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "check.crcs": True,
        "fetch.wait.max.ms": 50,
        **SILENT,
    }
    consumer, found = Consumer(config), []
    try:
        left = set(consumer.list_topics(topic, 20).topics[topic].partitions)
        if group is None:
            consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in left])
        else:
            consumer.subscribe([topic])
        until = time.monotonic() + 60
        while left and time.monotonic() < until:
            message = consumer.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append(_of_librdkafka(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition())
            else:
                raise RuntimeError(error)
        assert not left, f"{topic}: no end of {left} after {len(found)} records"
        if group is not None and found:
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return sorted(found, key=lambda row: row[:3])


def _of_librdkafka(message: Any) -> Row:
    place = message.topic(), message.partition(), message.offset()
    headers = tuple((name, value) for name, value in message.headers() or ())
    kind, timestamp = message.timestamp()
    return (*place, timestamp if kind else -1, message.key(), message.value(), headers)


def with_kafka_python(bootstrap: str, topic: str, isolation: str, group: str | None) -> list[Row]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        isolation_level=isolation,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=int(QUIET_S * 1000) if group is None else 3000,
        fetch_max_wait_ms=50,
        max_partition_fetch_bytes=20_000,
    )
    try:
        if group is None:
            consumer.assign([TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)])
        else:
            consumer.subscribe([topic])
        found = [_of_python(message) for message in consumer]
        if group is not None:
            consumer.commit()
    finally:
        consumer.close()
    return sorted(found, key=lambda row: row[:3])


def _of_python(message: Any) -> Row:
    headers = tuple((name, value) for name, value in message.headers)
    place = message.topic, message.partition, message.offset
    timestamp = -1 if message.timestamp is None else message.timestamp
    return (*place, timestamp, message.key, message.value, headers)


def with_aiokafka(bootstrap: str, topic: str, isolation: str, group: str | None) -> list[Row]:
    return asyncio.run(_with_aiokafka(bootstrap, topic, isolation, group))


async def _with_aiokafka(bootstrap: str, topic: str, isolation: str, group: str | None) -> list[Row]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        isolation_level=isolation,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        fetch_max_wait_ms=50,
    )
    if group is not None:
        consumer.subscribe([topic])
    await consumer.start()
    found: list[Row] = []
    try:
        if group is None:
            metadata = await consumer._client.fetch_all_metadata()
            consumer.assign([TopicPartition(topic, number) for number in metadata.partitions_for_topic(topic)])
        quiet = 0
        while quiet < 2:
            got = await consumer.getmany(timeout_ms=int(QUIET_S * 500))
            quiet = 0 if got else quiet + 1
            found += [_of_python(message) for messages in got.values() for message in messages]
        if group is not None:
            await consumer.commit()
    finally:
        await consumer.stop()
    return sorted(found, key=lambda row: row[:3])


READERS: Mapping[str, Callable[[str, str, str, str | None], list[Row]]] = {
    "librdkafka": with_librdkafka,
    "kafka-python": with_kafka_python,
    "aiokafka": with_aiokafka,
}
