"""Beside a broker that writes, rolls and removes segments all the time: nothing is damage, nothing is misrouted."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import clients, kafka
from tests.conftest import run_klog

pytestmark = pytest.mark.kafka

TOPICS = [f"kept-{number}" for number in range(4)]
SETTINGS = {"internal.segment.bytes": "60000", "retention.bytes": "120000", "file.delete.delay.ms": "0"}
RUNS = 8


@contextlib.contextmanager
def filled(bootstrap: str) -> Iterator[None]:
    """Batches of ten records into each topic, one after another, for as long as this lasts."""
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.num.messages": 10, "acks": "1"}
    producer, is_over, failed = Producer(settings | clients.SILENT), threading.Event(), list[object]()

    def fill() -> None:
        number = 0
        while not is_over.is_set():
            for topic in TOPICS:
                for _ in range(50):
                    number += 1
                    text = b"%d of %s " % (number, topic.encode()) * 20
                    producer.produce(topic, text, on_delivery=lambda error, _: failed.append(error) if error else None)
            producer.flush(clients.WAIT_S)

    thread = threading.Thread(target=fill)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
    assert not failed, failed[:3]


def oldest(data: Path) -> dict[str, int]:
    """Return the base offset of each topic's first segment."""
    return {topic: min(int(log.stem) for log in data.glob(f"{topic}-0/*.log")) for topic in TOPICS}


def test_retention_takes_segments_while_they_are_audited(tmp_path: Path) -> None:
    removal = {"log.retention.check.interval.ms": "50", "log.initial.task.delay.ms": "50"}
    with kafka.Cluster(kafka.NEWEST, tmp_path / "broker", settings=removal) as cluster:
        clients.create(cluster.bootstrap, dict.fromkeys(TOPICS, SETTINGS))
        with filled(cluster.bootstrap):
            for command in (("audit",), ("audit", "misrouted")):
                for _ in range(RUNS):
                    before = oldest(cluster.data)
                    ran = run_klog(*command, cluster.data, "--output", "json")
                    while oldest(cluster.data) == before:
                        time.sleep(0.01)
                    assert ran.exit_code == 0, (ran.stderr, ran.stdout)
                    found = json.loads(ran.stdout)
                    assert found.get("findings", []) == found.get("misrouted", []) == [], found
