"""A real broker's cleaner leaves a part of the copy's last batch: it is the same history, whatever the codec."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.brokers import clients, kafka
from tests.commands.follow.following import batches, followed
from tests.commands.follow.scripted import base_of, end_of, split

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.long]
CLEANER = {"log.cleaner.backoff.ms": "300", "log.initial.task.delay.ms": "500"}
STATE = {
    "cleanup.policy": "compact",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
}


def produce(bootstrap: str, topic: str, count: int, tag: str, codec: str = "none") -> None:
    """Write a batch: seven keys again and again, each fifth record a deletion."""
    from confluent_kafka import Producer

    config = {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 200, "enable.idempotence": True}
    producer = Producer(config | clients.SILENT)
    for number in range(count):
        producer.produce(
            topic, key=b"k%d" % (number % 7), value=None if number % 5 == 4 else f"{tag}-{number}".encode()
        )
    assert producer.flush(clients.WAIT_S) == 0


def test_a_last_batch_that_was_cleaned_is_the_same_history(tmp_path: Path) -> None:
    """No cut, no backup: the batch has other bytes, a delete horizon and fewer records."""
    copy, topics = tmp_path / "copy", ("none", "gzip", "snappy", "lz4", "zstd")
    with kafka.Cluster(kafka.NEWEST, tmp_path / "broker", settings=CLEANER) as broker:
        clients.create(broker.bootstrap, dict.fromkeys(topics, STATE))
        for codec in topics:
            produce(broker.bootstrap, codec, 20, "first", codec)
        followed(broker.bootstrap, copy)
        copied = {codec: split(batches(copy / f"{codec}-0"))[-1] for codec in topics}
        for turn in range(6):
            time.sleep(1.2)
            for codec in topics:
                produce(broker.bootstrap, codec, turn % 3 + 1, f"turn {turn}")
        until = time.monotonic() + clients.WAIT_S
        while True:
            logs = {codec: split(batches(broker.data / f"{codec}-0")) for codec in topics}
            left = {codec: [one for one in log if end_of(one) == end_of(copied[codec])] for codec, log in logs.items()}
            if all(one and one[0] != copied[codec] for codec, one in left.items()):
                break
            assert time.monotonic() < until, "the cleaner has cleaned nothing"
            time.sleep(0.5)
        rows = followed(broker.bootstrap, copy)
    assert [row["cut"] for row in rows.values()] == [[]] * len(topics)
    assert not (tmp_path / "klog-backup").exists()
    for codec, last in copied.items():
        mine = split(batches(copy / f"{codec}-0"))
        assert last in mine
        assert end_of(mine[-1]) == end_of(logs[codec][-1])
        assert base_of(mine[0]) == 0
