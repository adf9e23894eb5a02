"""Log starts as brokers raise them are no loss to `klog doctor`; one that is raised by hand costs what it names."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import clients, kafka
from tests.commands.serve.serving import Serving, Wire
from tests.conftest import run_klog

pytestmark = pytest.mark.kafka
TOPIC = "orders"
SETTINGS = {"log.flush.start.offset.checkpoint.interval.ms": "500"}
OLDER = [pytest.param(version, marks=pytest.mark.long) for version in ("2.8.2", "3.9.1")]


def until(truth: Any) -> None:
    """Wait for what a broker does in another thread."""
    end = time.monotonic() + clients.WAIT_S
    while not truth():
        assert time.monotonic() < end
        time.sleep(0.1)


def harm(log_dir: Path, start: int) -> None:
    (log_dir / "log-start-offset-checkpoint").write_text(f"0\n1\n{TOPIC} 0 {start}\n")


def ask(log_dir: Path, version: str) -> tuple[str | None, int, int]:
    """Return reason and lost records of the partition, and the exit code."""
    named = ["--kafka-version", version.rpartition(".")[0]]
    done = run_klog("doctor", "--output", "json", *named, str(log_dir))
    rows = [row for row in json.loads(done.stdout)["partitions"] if row["topic"] == TOPIC]
    assert len(rows) == 1
    return rows[0]["reason"], rows[0]["lost_records"], done.exit_code


def is_named(log_dir: Path) -> bool:
    """Whether `klog serve` and `klog audit` name the log start of the partition; they agree."""
    with Serving(log_dir) as serving, Wire(serving.port) as wire:
        wire.ask("ApiVersions", 0, {})
        assert serving.end() == 0
    audited = run_klog("audit", "misrouted", "--topic", TOPIC, log_dir)
    found = b"log-start-raised" in audited.stderr
    assert (audited.exit_code, "log-start-raised" in serving.said) == (4 if found else 0, found)
    return found


def first_offset(bootstrap: str) -> int:
    """Return the earliest offset that the broker serves, once it leads the partition."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", **clients.SILENT})
    found: list[int] = []

    def ask_broker() -> bool:
        with contextlib.suppress(KafkaException):
            found.append(consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), clients.WAIT_S)[0])
        return bool(found)

    until(ask_broker)
    consumer.close()
    return found[0]


@pytest.mark.parametrize("version", [kafka.NEWEST, *OLDER])
def test_the_log_start_of_a_broker_and_one_above_it(version: str, tmp_path: Path) -> None:
    from confluent_kafka import TopicPartition

    cluster = kafka.Cluster(version, tmp_path, settings=SETTINGS)
    checkpoint = cluster.data / "log-start-offset-checkpoint"
    epochs = cluster.data / f"{TOPIC}-0" / "leader-epoch-checkpoint"
    with cluster:
        client = clients.admin(cluster.bootstrap)
        clients.create(cluster.bootstrap, {TOPIC: {}})
        clients.with_librdkafka(cluster.bootstrap, TOPIC, "none", clients.records("one", 40))
        place = TopicPartition(TOPIC, 0, 13)
        client.delete_records([place])[place].result(clients.WAIT_S)
        until(lambda: checkpoint.read_text().endswith(" 13\n") and epochs.read_text().endswith(" 13\n"))
        unclean = shutil.copytree(cluster.data, tmp_path / "unclean")
        assert (*ask(unclean, version), is_named(unclean)) == (None, 0, 0, False)
        harm(unclean, 31)
        assert (*ask(unclean, version), is_named(unclean)) == ("log-start-raised", 18, 4, True)
        cluster.stop()
        assert ask(cluster.data, version) == (None, 0, 0)
        harm(cluster.data, 29)
        assert ask(cluster.data, version) == ("log-start-raised", 16, 4)
        cluster.start()
        assert first_offset(cluster.bootstrap) == 29  # offsets 13 to 28: the 16 records that were named
