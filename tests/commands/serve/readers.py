"""Consumers of three kinds, with and without a group: whatever topics hand them, to the end; and Java's, as lines."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.brokers import kafka
from tests.brokers.clients import SILENT, WAIT_S

Row = tuple[str, int, int, int, "bytes | None", "bytes | None", tuple[tuple[str, "bytes | None"], ...]]
"""Topic, partition, offset, timestamp, key, value, headers."""

Topics = str | Sequence[str]


class Patience:
    """The end of a client that does not reach its announced end: no more records for a long time.

    It is then behind an open transaction, or behind damage.  A long time is some seconds, or some times that of the
    first records, on a busy machine.  Before the first it outlasts a client's unanswered request, which is sent again
    after 40 s.
    """

    FIRST_S, MORE_S, TIMES = 120.0, 5.0, 5.0

    def __init__(self) -> None:
        self._until, self._assigned, self._more = time.monotonic() + WAIT_S, 0.0, 0.0

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._until

    def assigned(self) -> None:
        """From now on records may come."""
        if not self._more:
            self._assigned = time.monotonic()
            self._until = self._assigned + self.FIRST_S

    def came(self) -> None:
        """Records have come."""
        now = time.monotonic()
        self._more = self._more or max(self.MORE_S, self.TIMES * (now - (self._assigned or now)))
        self._until = now + self._more


def names_of(topics: Topics) -> list[str]:
    return [topics] if isinstance(topics, str) else list(topics)


def with_librdkafka(bootstrap: str, topics: Topics, isolation: str, group: str | None) -> list[Row]:
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
    consumer, found, names = Consumer(config), [], names_of(topics)
    try:
        left = {(name, one) for name in names for one in consumer.list_topics(name, WAIT_S).topics[name].partitions}
        if group is None:
            consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in left])
        else:
            consumer.subscribe(names)
        until = time.monotonic() + 60
        while left and time.monotonic() < until:
            message = consumer.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append(_of_librdkafka(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard((message.topic(), message.partition()))
            else:
                raise RuntimeError(error)
        assert not left, f"no end of {left} after {len(found)} records"
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


def with_kafka_python(bootstrap: str, topics: Topics, isolation: str, group: str | None) -> list[Row]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        isolation_level=isolation,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        fetch_max_wait_ms=50,
        max_partition_fetch_bytes=20_000,
    )
    names = names_of(topics)
    try:
        if group is None:
            consumer.assign(
                [TopicPartition(name, one) for name in names for one in consumer.partitions_for_topic(name)]
            )
        else:
            consumer.subscribe(names)
        found: list[Row] = []
        patience, ends = Patience(), {}
        while not patience.is_over:
            if got := consumer.poll(timeout_ms=100):
                found += [_of_python(message) for messages in got.values() for message in messages]
                patience.came()
            elif places := consumer.assignment():
                if not ends:
                    ends = consumer.end_offsets(places)
                    patience.assigned()
                if all(consumer.position(place) >= ends[place] for place in places):
                    break
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


def with_aiokafka(bootstrap: str, topics: Topics, isolation: str, group: str | None) -> list[Row]:
    return asyncio.run(_with_aiokafka(bootstrap, names_of(topics), isolation, group))


async def _with_aiokafka(bootstrap: str, names: list[str], isolation: str, group: str | None) -> list[Row]:
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
        consumer.subscribe(names)
    await consumer.start()
    found: list[Row] = []
    try:
        if group is None:
            metadata = await consumer._client.fetch_all_metadata()
            consumer.assign(
                [TopicPartition(name, one) for name in names for one in metadata.partitions_for_topic(name)]
            )
        patience, ends = Patience(), {}
        while not patience.is_over:
            if got := await consumer.getmany(timeout_ms=100):
                found += [_of_python(message) for messages in got.values() for message in messages]
                patience.came()
            elif places := consumer.assignment():
                if not ends:
                    ends = await consumer.end_offsets(places)
                    patience.assigned()
                if all([await consumer.position(place) >= ends[place] for place in places]):
                    break
        if group is not None:
            await consumer.commit()
    finally:
        await consumer.stop()
    return sorted(found, key=lambda row: row[:3])


READERS: Mapping[str, Callable[[str, Topics, str, str | None], list[Row]]] = {
    "librdkafka": with_librdkafka,
    "kafka-python": with_kafka_python,
    "aiokafka": with_aiokafka,
}


# Java's console consumers of now and then, in a group of all topics, Kafka's own left out.
SHOWN = ("print.partition", "print.offset", "print.timestamp", "print.key", "print.headers")
PATIENCE_MS = (4_000, 16_000, 64_000)
"""How long it waits for the first record, and for each more; longer where it was handed none: on a busy machine."""
CONSOLES = {
    kafka.LEGACY: ("kafka.tools.ConsoleConsumer", "--whitelist", ".*", "--consumer-property", "group.id={group}"),
    kafka.NEWEST: ("org.apache.kafka.tools.consumer.ConsoleConsumer", "--include", ".*", "--group", "{group}"),
}
PROPERTY = {kafka.LEGACY: "--property", kafka.NEWEST: "--formatter-property"}


def with_console(version: str, bootstrap: str, group: str) -> list[bytes]:
    """Return the lines that the console consumer prints of all records, sorted."""
    name, *consume = CONSOLES[version]
    shown = [word for one in SHOWN for word in (PROPERTY[version], f"{one}=true")]
    consume = [word.format(group=group) for word in consume]
    for patience_ms in PATIENCE_MS:
        wait = ("--from-beginning", "--timeout-ms", str(patience_ms))
        if found := printed(version, name, "--bootstrap-server", bootstrap, *consume, *wait, *shown):
            return found
    raise AssertionError(f"{name}: no record")


def printed(version: str, *command: str) -> list[bytes]:
    """Return the lines that a tool of Kafka's prints, sorted."""
    done = subprocess.run(kafka.java(version, *command), capture_output=True, timeout=300, check=False)
    return sorted(line for line in done.stdout.split(b"\n") if line)
