"""`klog lookup --timestamp` against what real brokers answer to ListOffsets on the same data."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from klog.data_dir.partition import Partition
from klog.partition.lookup import Lookup

from tests.brokers import clients, kafka
from tests.brokers.clients import Given, records
from tests.commands.dump.test_consumer import set_format

pytestmark = pytest.mark.kafka

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SMALL_INDEX = {"index.interval.bytes": "512"}
ASKED = 300


@dataclass(frozen=True)
class Asked:
    """A stopped broker's log dir, and its answers: topic → timestamp (ms) → offset, None for none."""

    data: Path
    answers: dict[str, dict[int, int | None]]


def shuffled(who: str, count: int, start_ms: int = clients.START_MS) -> list[Given]:
    """Return records whose timestamps are out of order by up to a minute, and equal in places."""
    chance = Random(who)
    return [
        Given(
            given.key,
            (given.value or b"")[:300],
            (),
            start_ms + i // 3 * 100 + chance.choice((0, 0, -60_000, 5_000)),
        )
        for i, given in enumerate(records(who, count, headers=False))
    ]


def ask(bootstrap: str, wanted: dict[str, list[int]]) -> dict[str, dict[int, int | None]]:
    """Return a broker's answers of partition 0 of each topic; one request asks a timestamp of each."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "klog-tests", **clients.SILENT})
    answers: dict[str, dict[int, int | None]] = {topic: {} for topic in wanted}
    try:
        for at in range(max(map(len, wanted.values()))):
            asked = {topic: timestamps[at] for topic, timestamps in wanted.items() if at < len(timestamps)}
            places = [TopicPartition(topic, 0, timestamp) for topic, timestamp in asked.items()]
            for found in consumer.offsets_for_times(places, timeout=clients.WAIT_S):
                assert found.error is None
                answers[found.topic][asked[found.topic]] = found.offset if found.offset >= 0 else None
    finally:
        consumer.close()
    assert {topic: sorted(found) for topic, found in answers.items()} == wanted
    return answers


def moments(bootstrap: str, topic: str) -> list[int]:
    """Return timestamps at, between and around those of the records."""
    chance = Random(topic)
    consumed = clients.consume(bootstrap, topic, "read_uncommitted")
    there = [record.timestamp for record in consumed if record.timestamp >= 0]
    now = int(time.time() * 1000)
    spread = [max(0, moment) for moment in (min(there), max(there))]
    around = [chance.randrange(spread[0], spread[1] + 2) for _ in range(ASKED // 3)]
    near = [max(0, chance.choice(there) + chance.choice((-1, 0, 0, 1))) for _ in range(ASKED * 2 // 3)]
    return sorted({0, *spread, spread[1] + 1, *around, *near, now - 5000, now + 3_600_000})


def answered(cluster: kafka.Cluster, topics: list[str]) -> Asked:
    """Ask the broker, then once more after a restart: all its facts are then from the disk."""
    wanted = {topic: moments(cluster.bootstrap, topic) for topic in topics}
    before = ask(cluster.bootstrap, wanted)
    cluster.stop()
    cluster.start()
    time.sleep(3)  # until it leads its partitions again
    assert ask(cluster.bootstrap, wanted) == before
    cluster.stop()
    return Asked(cluster.data, before)


MODERN = {
    **{f"shuffled-{codec}": {"internal.segment.bytes": "6000", **SMALL_INDEX} for codec in CODECS},
    "whole": {},
    "append-time": {"message.timestamp.type": "LogAppendTime", "internal.segment.bytes": "10000", **SMALL_INDEX},
    "transactions": {"internal.segment.bytes": "10000", **SMALL_INDEX},
}
OLD = {
    **{
        f"{kind}-{codec}": {"message.format.version": version, "segment.bytes": "14000", **SMALL_INDEX}
        for kind, version in (("v0.then.v1", "0.9.0"), ("v0.then.v2", "0.9.0"), ("v1", "0.10.2"))
        for codec in CODECS[:4]
    },
    "v1-append-time": {
        "message.format.version": "0.10.2",
        "message.timestamp.type": "LogAppendTime",
        "segment.bytes": "14000",
    },
    "v2": {"segment.bytes": "14000", **SMALL_INDEX},
}


@pytest.fixture(scope="module")
def modern(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    with kafka.Cluster(kafka.NEWEST, tmp_path_factory.mktemp("modern"), port=kafka.PORT + 40) as cluster:
        clients.create(cluster.bootstrap, MODERN)
        for topic in MODERN:
            codec = topic.partition("-")[2]
            codec = codec if codec in CODECS else "none"
            transaction = "klog" if topic == "transactions" else ""
            clients.with_librdkafka(cluster.bootstrap, topic, codec, shuffled(topic, 300), transaction=transaction)
        return answered(cluster, list(MODERN))


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    with kafka.Cluster(kafka.LEGACY, tmp_path_factory.mktemp("old"), port=kafka.PORT + 50) as cluster:
        clients.create(cluster.bootstrap, OLD)
        for topic in OLD:
            codec = topic.partition("-")[2]
            codec = codec if codec in CODECS else "none"
            clients.with_librdkafka(cluster.bootstrap, topic, codec, shuffled(topic, 300))
        changing = [topic for topic in OLD if topic.startswith("v0")]
        for topic in changing:
            set_format(cluster.bootstrap, topic, "0.10.2" if "v1" in topic else "2.8")
        for topic in changing:  # half an hour behind and half an hour ahead of when the first segments were modified
            now = int(time.time() * 1000)
            for start in (now - 1_800_000, now + 1_800_000):
                clients.with_librdkafka(cluster.bootstrap, topic, topic.partition("-")[2], shuffled(topic, 150, start))
        return answered(cluster, list(OLD))


def check(asked: Asked, topic: str) -> None:
    answers = asked.answers[topic]
    with Lookup(Partition(str(asked.data / f"{topic}-0"))) as lookup:
        for timestamp, offset in answers.items():
            trail = lookup.timestamp(timestamp)
            assert (trail.offset if trail.found else None) == offset, (timestamp, trail)
            assert trail.problems == ()


@pytest.mark.parametrize("topic", MODERN)
def test_every_time_is_answered_as_the_broker_does(topic: str, modern: Asked) -> None:
    """Timestamps out of order, equal ones, the broker's own, compressed batches, markers."""
    check(modern, topic)


@pytest.mark.parametrize("topic", OLD)
def test_every_time_is_answered_as_a_broker_of_old_does(topic: str, old: Asked) -> None:
    """Magic 0 has no timestamps at all: there the broker goes by when the file was modified."""
    check(old, topic)


def test_the_answers_are_worth_comparing(modern: Asked, old: Asked) -> None:
    """Many segments, many answers, and both kinds: an offset and none."""
    for asked in (modern, old):
        assert sum(len(answers) for answers in asked.answers.values()) > 1500
        for topic, answers in asked.answers.items():
            segments = len(list((asked.data / f"{topic}-0").glob("*.log")))
            assert segments > 1 or topic == "whole"
            assert None in answers.values()
            assert len(set(answers.values())) > 5
