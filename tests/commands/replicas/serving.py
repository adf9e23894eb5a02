"""The writes of clients to a cluster and their reads from it, partition by partition."""

from __future__ import annotations

import time
from collections.abc import Iterable

from tests.brokers import clients
from tests.brokers.clients import SILENT, WAIT_S

Record = tuple[int, "bytes | None", "bytes | None"]
WholeRecord = tuple[int, int, "bytes | None", "bytes | None", "list[tuple[bytes, bytes | None]]"]
Key = tuple[str, int]
TRY_S = 10


_DESTROY_BROKER = -137
"""librdkafka: RD_KAFKA_RESP_ERR__DESTROY_BROKER, which its Python client has no name for."""


def create(bootstrap: str, topics: dict[str, tuple[int, int]]) -> None:
    """Create topics, each with so many partitions and replicas."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import NewTopic

    until = time.monotonic() + WAIT_S
    left = dict(topics)
    while left:
        admin = clients.admin(bootstrap)
        shapes = [NewTopic(name, *shape) for name, shape in left.items()]
        made = admin.create_topics(shapes, request_timeout=TRY_S)
        for name, future in made.items():
            try:
                future.result(WAIT_S)
                del left[name]
            except KafkaException as error:
                # Brokers name one of them as the controller, for some seconds one that is dead as well; and a request
                # to the broker that the client begins with gets lost when it learns the names of all.
                code = error.args[0].code()
                if code == KafkaError.TOPIC_ALREADY_EXISTS:
                    del left[name]
                elif code not in (KafkaError._TIMED_OUT, _DESTROY_BROKER) or time.monotonic() > until:
                    raise


def await_fenced(bootstrap: str, node: int) -> None:
    """Wait until the controller treats a killed node as dead: before, it may place new replicas there."""
    until = time.monotonic() + WAIT_S
    while node in clients.admin(bootstrap).list_topics(timeout=WAIT_S).brokers:
        assert time.monotonic() < until, f"node {node} is not fenced"
        time.sleep(0.2)


def write(
    bootstrap: str, partitions: Iterable[Key], count: int, who: str, acks: str = "all"
) -> dict[Key, list[Record]]:
    """Write *count* records into each partition; return the acknowledged ones."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 0, **SILENT})
    found: dict[Key, list[Record]] = {}
    failed: list[object] = []

    def delivered(error: object, message: object) -> None:
        if error is not None:
            failed.append(error)
            return
        place = message.topic(), message.partition()  # type: ignore[attr-defined]
        found.setdefault(place, []).append((message.offset(), message.key(), message.value()))  # type: ignore[attr-defined]

    wanted = list(partitions)
    for number in range(count):
        for topic, partition in wanted:
            producer.produce(topic, f"{who} {number}", f"k{number % 7}", partition=partition, on_delivery=delivered)
        producer.flush(WAIT_S if number % 5 == 0 else 0.001)
    assert producer.flush(WAIT_S) == 0
    assert not failed, failed[:3]
    return found


def read_whole(bootstrap: str, partitions: Iterable[Key]) -> dict[Key, list[WholeRecord]]:
    """Read each partition from its beginning to its end, with timestamps and headers."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    config = {"bootstrap.servers": bootstrap, "group.id": "reads-all", "enable.partition.eof": True}
    consumer = Consumer({**config, "enable.auto.commit": False, "check.crcs": True, "fetch.wait.max.ms": 50, **SILENT})
    found: dict[Key, list[WholeRecord]] = {place: [] for place in partitions}
    consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in found])
    left, ends = {*found}, time.monotonic() + WAIT_S
    try:
        while left and time.monotonic() < ends:
            message = consumer.poll(1)
            if message is None:
                continue
            error, place = message.error(), (message.topic() or "", message.partition() or 0)
            if error is None:
                headers = [(name.encode(), value) for name, value in message.headers() or ()]
                one = message.offset() or 0, message.timestamp()[1], message.key(), message.value(), headers
                found[place].append(one)
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(place)
            else:
                raise RuntimeError(error)
    finally:
        consumer.close()
    assert not left, f"no end of {sorted(left)}"
    return found


def read(bootstrap: str, partitions: Iterable[Key]) -> dict[Key, list[Record]]:
    """Read each partition from its beginning to its end: offsets, keys and values."""
    found = read_whole(bootstrap, partitions)
    return {place: [(one[0], one[2], one[3]) for one in records] for place, records in found.items()}


def is_in(written: dict[Key, list[Record]], found: dict[Key, list[Record]]) -> bool:
    """Whether every record that was written is found at its offset."""
    return all({*records} <= {*found[place]} for place, records in written.items())
