"""`klog doctor` on a directory that has the topic id of another topic: a broker loads it, and does not lead it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import clients, kafka
from tests.conftest import Ran
from tests.support.metadata_logs import topic, uuid, value
from tests.support.rolled_back import data, metadata, partition

Klog = Callable[..., Ran]


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Return the log dir of a broker with the topics orders and later, both with a partition."""
    folder = tmp_path / "data"
    log = metadata(folder, leader_epoch=0, next_producer_id=None)
    log.add(
        topic("later", 9),
        value(
            "Partition", topicId=uuid(9), partitionId=0, replicas=[1], isr=[1], leader=1, leaderEpoch=0,
            partitionEpoch=0, directories=[uuid(101)],
        ),
    )  # fmt: skip
    for name in ("orders", "later"):
        partition(folder, [data(0)], [(0, 0)], name=name)
    (folder / "later-0/partition.metadata").write_text(f"version: 0\ntopic_id: {uuid(9)}")
    return folder


def rows(klog: Klog, log_dir: Path) -> tuple[dict[str, dict[str, Any]], dict[str, Any], int]:
    """Return the rows by directory, the complete answer, and the exit code."""
    done = klog("doctor", "--output", "json", log_dir)
    found = json.loads(done.stdout)
    return {row["directory"]: row for row in found["partitions"]}, found, done.exit_code


def test_each_has_its_own(klog: Klog, log_dir: Path) -> None:
    found, _, code = rows(klog, log_dir)
    assert ({row["fate"] for row in found.values()}, code) == ({"serves"}, 0)


def test_the_file_of_another_topic(klog: Klog, log_dir: Path) -> None:
    shutil.copy(log_dir / "orders-0/partition.metadata", log_dir / "later-0")
    found, whole, code = rows(klog, log_dir)
    assert (found["orders-0"]["fate"], found["later-0"]["fate"], code) == ("serves", "leaderless", 4)
    assert (found["later-0"]["reason"], whole["starts"]) == ("topic-id-of-another", True)
    assert "that of orders" in found["later-0"]["message"]
    assert f"write the topic id of later into {log_dir / 'later-0/partition.metadata'}" in whole["next"][0]["manual"]


def test_a_directory_under_another_name(klog: Klog, log_dir: Path) -> None:
    """No topic has that name; the topic of the id has nothing."""
    (log_dir / "orders-0").rename(log_dir / "saved-0")
    found, _, code = rows(klog, log_dir)
    assert (found["saved-0"]["fate"], found["saved-0"]["reason"], code) == ("leaderless", "topic-id-of-another", 4)


@pytest.mark.kafka
def test_a_real_broker_does_not_lead_it(klog: Klog, tmp_path: Path) -> None:
    """Its records are served again with its own id."""
    given = [clients.Given(b"k", b"v", (), 1_700_000_000_000 + i) for i in range(10)]
    with kafka.Cluster(kafka.NEWEST, tmp_path) as cluster:
        clients.create(cluster.bootstrap, {"orders": {}, "later": {}})
        for name in ("orders", "later"):
            clients.with_librdkafka(cluster.bootstrap, name, "none", given)
    file = tmp_path / "data/later-0/partition.metadata"
    own = file.read_text()
    shutil.copy(tmp_path / "data/orders-0/partition.metadata", file)
    assert rows(klog, tmp_path / "data")[0]["later-0"]["reason"] == "topic-id-of-another"
    with cluster, pytest.raises((TimeoutError, RuntimeError)):
        clients.consume(cluster.bootstrap, "later", "read_committed", seconds=5)
    assert "InconsistentTopicIdException" in cluster.log()
    file.write_text(own)
    with cluster:
        assert len(clients.consume(cluster.bootstrap, "later", "read_committed")) == 10
