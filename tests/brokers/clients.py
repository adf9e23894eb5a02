"""Real clients: their input, and the records that a consumer receives."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confluent_kafka import Message
    from confluent_kafka.admin import AdminClient, NewTopic

# librdkafka reports every reconnection and deprecated setting on stderr; relevant messages reach the caller as an
# error.
SILENT = {"log_level": 2}
WAIT_S = 90
"""How long an answer of a broker is waited for: on a machine that does other things half a minute is too short."""
START_MS = 1_750_000_000_000
TEXTS = ("Kraków", "東京", 'tab\t "quoted" \\ back', "\x00\x1f\x7f\u2028", "🙂")
Headers = tuple[tuple[str, "bytes | None"], ...]


@dataclass(frozen=True)
class Given:
    """A record to send."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


@dataclass(frozen=True)
class Received:
    """A record as a consumer was handed it.  *timestamp_type* is Kafka's name; a v0 record has -1, NoTimestampType."""

    offset: int
    timestamp: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    leader_epoch: int | None


def records(who: str, count: int, *, headers: bool = True) -> Iterator[Given]:
    """Yield *count* records of every shape; the same ones whenever *who* is the same."""
    chance = random.Random(who)
    for i in range(count):
        text = {"who": who, "n": i, "text": chance.choice(TEXTS)}
        key: bytes | None = f"{who}-{i % 7}".encode()
        value: bytes | None = json.dumps(text, ensure_ascii=False).encode()
        if i % 16 == 3:
            key = None
        elif i % 16 == 5:
            value = None
        elif i % 16 == 7:
            key, value = b"", b""
        elif i % 16 == 9:
            key, value = b"\xff\x00" + chance.randbytes(5), chance.randbytes(300) + b"\xc3"
        elif i % 16 == 11:
            value = b"\xed\xa0\x80 surrogate, overlong \xc0\xaf, cut \xe6\x9d"
        elif i == 13:
            value = chance.randbytes(20_000) + b"long " * 4_000
        elif i % 16 == 15:
            key = value = None
        extra: Headers = ()
        if headers and i % 4 == 0:
            extra = (("trace", f"t-{i}".encode()), ("trace", b"again"), ("", b"no name"))
        elif headers and i % 4 == 2:
            extra = (("nothing", None), ("schlüssel-ключ", "grün".encode()), ("empty", b""), ("bytes", b"\x00\xff\n"))
        yield Given(key, value, extra, START_MS + i * 10 - (60_000 if i % 8 == 3 else 0))


def without_nulls(given: Iterable[Given]) -> Iterator[Given]:
    """Leave out records that the two pure Python clients refuse: null headers, and a null key with a null value."""
    for one in given:
        if (one.key, one.value) != (None, None):
            kept = tuple(header for header in one.headers if header[1] is not None)
            yield Given(one.key, one.value, kept, one.timestamp_ms)


def admin(bootstrap: str) -> AdminClient:
    """Return a client that has found the controller: one that asks before there is any asks no more for five
    minutes."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient

    made = AdminClient({"bootstrap.servers": bootstrap, **SILENT})
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        try:
            if made.list_topics(timeout=WAIT_S).controller_id >= 0:
                return made
        except KafkaException as error:
            # The answer of a broker that starts, and has not all of the metadata yet.
            if error.args[0].code() != KafkaError._PARTIAL:
                raise
        time.sleep(0.1)
    raise AssertionError("there is no controller")


def make(bootstrap: str, topics: list[NewTopic]) -> None:
    """Create topics."""
    from confluent_kafka import KafkaError, KafkaException

    client = admin(bootstrap)  # without a name it would be deleted before the answer arrives
    for future in client.create_topics(topics).values():
        try:
            future.result(WAIT_S)
        except KafkaException as error:
            # The client asks again when an answer is slow to come, and the broker has done it all the same.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def create(bootstrap: str, topics: dict[str, dict[str, str]], partitions: int = 1, replicas: int = 1) -> None:
    """Create *topics*, name → settings, of so many *partitions* and *replicas*, on a cluster that has none of them."""
    from confluent_kafka.admin import NewTopic

    make(bootstrap, [NewTopic(name, partitions, replicas, config=settings) for name, settings in topics.items()])
    time.sleep(1)  # until every part of the broker has them


# Each producer sends in batches of ten; with *transaction*, each batch is a transaction and every third of them aborts.


def with_librdkafka(
    bootstrap: str,
    topic: str,
    codec: str,
    given: Iterable[Given],
    *,
    transaction: str = "",
    partition: int = 0,
    **settings: object,
) -> None:
    from confluent_kafka import Producer

    config: dict[str, object] = {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20, **SILENT}
    if transaction:
        config["transactional.id"] = transaction
    producer = Producer(config | {name.replace("_", "."): value for name, value in settings.items()})
    producer.list_topics(topic, WAIT_S)  # else it asks for a producer id half a second after it begins
    failed: list[object] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    if transaction:
        producer.init_transactions(WAIT_S)
    for number, batch in enumerate(batches(given)):
        if transaction:
            producer.begin_transaction()
        for one in batch:
            producer.produce(
                topic,
                key=one.key,
                value=one.value,
                headers=list(one.headers) or None,
                timestamp=one.timestamp_ms,
                partition=partition,
                on_delivery=delivered,
            )
        producer.flush()
        if transaction:
            producer.abort_transaction() if number % 3 == 1 else producer.commit_transaction()
    assert not failed, failed[:3]


def with_kafka_python(bootstrap: str, topic: str, codec: str, given: Iterable[Given], *, transaction: str = "") -> None:
    from kafka import KafkaProducer

    config: dict[str, object] = {"transactional_id": transaction} if transaction else {}
    compression = None if codec == "none" else codec
    producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=compression, linger_ms=50, **config)
    if transaction:
        producer.init_transactions()
    for number, batch in enumerate(batches(without_nulls(given))):
        if transaction:
            producer.begin_transaction()
        sent = [producer.send(topic, one.value, one.key, list(one.headers), 0, one.timestamp_ms) for one in batch]
        producer.flush()
        for future in sent:
            future.get(WAIT_S)
        if transaction:
            producer.abort_transaction() if number % 3 == 1 else producer.commit_transaction()
    producer.close()


def with_aiokafka(bootstrap: str, topic: str, codec: str, given: Iterable[Given], *, transaction: str = "") -> None:
    asyncio.run(_with_aiokafka(bootstrap, topic, codec, given, transaction))


async def _with_aiokafka(bootstrap: str, topic: str, codec: str, given: Iterable[Given], transaction: str) -> None:
    from aiokafka import AIOKafkaProducer

    config: dict[str, object] = {"transactional_id": transaction} if transaction else {}
    compression = None if codec == "none" else codec
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type=compression, linger_ms=50, **config)
    async with producer:
        for number, batch in enumerate(batches(without_nulls(given))):
            if transaction:
                await producer.begin_transaction()
            sent = [
                await producer.send(topic, one.value, one.key, 0, one.timestamp_ms, list(one.headers)) for one in batch
            ]
            for future in sent:
                await future
            if transaction:
                await (producer.abort_transaction() if number % 3 == 1 else producer.commit_transaction())


PRODUCERS: dict[str, Callable[..., None]] = {
    "librdkafka": with_librdkafka,
    "kafka-python": with_kafka_python,
    "aiokafka": with_aiokafka,
}


def batches(given: Iterable[Given], size: int = 10) -> Iterator[list[Given]]:
    batch: list[Given] = []
    for one in given:
        batch.append(one)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


@contextlib.contextmanager
def open_transaction(bootstrap: str, topic: str, given: Iterable[Given], timeout_ms: int = 600_000) -> Iterator[None]:
    """Send *given* in a transaction that is never ended; *timeout_ms*: a coordinator aborts it after that."""
    from confluent_kafka import Producer

    config = {"bootstrap.servers": bootstrap, "transactional.id": "left-open", "transaction.timeout.ms": timeout_ms}
    producer = Producer(config | SILENT)
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    for one in given:
        producer.produce(topic, key=one.key, value=one.value, timestamp=one.timestamp_ms, partition=0)
    producer.flush()
    yield
    del producer


def coordinated(ask: Callable[..., Any], *words: Any, **options: Any) -> Any:
    """Ask a group's coordinator; as Kafka's own clients do, ask again while one is being found, or loads."""
    from confluent_kafka import KafkaError, KafkaException

    waiting = (
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    )
    end = time.monotonic() + WAIT_S
    while True:
        try:
            return ask(*words, **options)
        except KafkaException as error:
            if error.args[0].code() not in waiting or time.monotonic() > end:
                raise
        time.sleep(0.2)


def committed(bootstrap: str, group: str, places: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Return the offset that a group has committed in each of these partitions; without those in which it has none.

    A consumer asks: librdkafka's admin client ends the process when a broker answers that it is not the
    coordinator, as it does before it has loaded the group (rd_kafka_handle_OffsetFetch).
    """
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **SILENT})
    try:
        asked = [TopicPartition(*place) for place in places]
        told = coordinated(consumer.committed, asked, timeout=WAIT_S)
    finally:
        consumer.close()
    return {(one.topic, one.partition): one.offset for one in told if one.offset >= 0}


def consume(
    bootstrap: str,
    topic: str,
    isolation: str,
    *,
    partition: int = 0,
    start: int | None = None,
    seconds: float = WAIT_S,
    **settings: object,
) -> list[Received]:
    """Return all records for a consumer of a partition, from *start* (None: the first one) to the announced end.

    *settings*: of the consumer, with underscores.
    """
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    config = {
        "bootstrap.servers": bootstrap,
        "group.id": "klog-tests",
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "enable.auto.commit": False,
        "check.crcs": True,
        "fetch.wait.max.ms": 50,
        **SILENT,
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    consumer = Consumer(config)
    consumer.list_topics(topic, WAIT_S)  # else it asks for the leader half a second after it begins
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING if start is None else start)])
    found: list[Received] = []
    began = time.monotonic()
    try:
        while time.monotonic() - began < seconds:
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error() is None:
                found.append(_received(message))
            elif (error := message.error()) is not None and error.code() == KafkaError._PARTITION_EOF:
                return found
            else:
                raise RuntimeError(message.error())
    finally:
        consumer.close()
    raise TimeoutError(f"{topic}: no end after {len(found)} records")


def _received(message: Message) -> Received:
    from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME

    kind, timestamp = message.timestamp()
    names = {TIMESTAMP_CREATE_TIME: "CreateTime", TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime"}
    headers = tuple((name, value) for name, value in message.headers() or ())
    return Received(
        message.offset(),
        timestamp if kind in names else -1,
        names.get(kind, "NoTimestampType"),
        message.key(),
        message.value(),
        headers,
        message.leader_epoch(),
    )
