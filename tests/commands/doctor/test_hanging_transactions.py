"""`klog doctor` if a transaction is open that no coordinator has: read_committed consumers stop there for ever."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import clients, kafka
from tests.conftest import Ran
from tests.oracles.plain.encode import Record, batch, marker
from tests.support.metadata_logs import MetadataLog, topic, uuid, value
from tests.support.rolled_back import NOW_MS, metadata, partition

Klog = Callable[..., Ran]
COORDINATORS = "__transaction_state"


def data(offset: int, producer_id: int = 5) -> bytes:
    records = [Record(offset + i, NOW_MS, b"k", b"v") for i in range(2)]
    return batch(records, transactional=True, producer=(producer_id, 0, 0))


def end(offset: int, *, commit: bool) -> bytes:
    return marker(offset, commit=commit, timestamp=NOW_MS, producer_id=5, producer_epoch=0, coordinator_epoch=0)


OPEN = [data(0), end(2, commit=True), data(3)]


def disk(folder: Path, replicas: tuple[int, ...] = (1,)) -> Path:
    """Write a log dir after a kill, with an open transaction of producer 5 from offset 3 on, and its metadata log.

    *replicas*: of the only partition of the coordinators.
    """
    log = metadata(folder, leader_epoch=0, next_producer_id=1000)
    add_coordinators(log, replicas)
    (folder / ".kafka_cleanshutdown").unlink()
    return partition(folder, OPEN, [(0, 0)])


def add_coordinators(log: MetadataLog, replicas: tuple[int, ...]) -> None:
    log.add(
        topic(COORDINATORS, 8),
        value(
            "Partition", topicId=uuid(8), partitionId=0, replicas=[*replicas], isr=[*replicas], leader=replicas[0],
            leaderEpoch=0, partitionEpoch=0, directories=[uuid(100 + one) for one in replicas],
        ),
    )  # fmt: skip


def ask(klog: Klog, log_dir: Path, topic_name: str = "orders") -> tuple[dict[str, Any], dict[str, Any], int]:
    """Return the row of the partition, the complete answer, and the exit code."""
    done = klog("doctor", "--output", "json", log_dir)
    found = json.loads(done.stdout)
    assert found["starts"]
    (row,) = [one for one in found["partitions"] if one["topic"] == topic_name]
    return row, found, done.exit_code


def test_a_transaction_without_a_coordinator(klog: Klog, tmp_path: Path) -> None:
    """The directory is missing, and the broker creates it empty."""
    path = disk(tmp_path / "data")
    row, found, code = ask(klog, path.parent)
    assert (row["reason"], row["lost_records"], code) == ("transaction-hanging", 0, 4)
    assert "of producer 5 from offset 3 on" in row["message"]
    assert "abort --topic orders --partition 0 --start-offset 3" in row["message"]
    assert "kafka-transactions" in found["next"][0]["manual"]
    assert b"STOP AT A TRANSACTION THAT NEVER ENDS" in klog("doctor", path.parent).stdout


@pytest.mark.parametrize("replicas", [(1, 2), (2,)])
def test_another_node_may_have_its_coordinator(replicas: tuple[int, ...], klog: Klog, tmp_path: Path) -> None:
    path = disk(tmp_path / "data", replicas)
    row, _, code = ask(klog, path.parent)
    assert (row["reason"], code) == (None, 0)


def test_ended_transactions_need_none(klog: Klog, tmp_path: Path) -> None:
    path = disk(tmp_path / "data")
    (path / f"{0:020}.log").write_bytes(b"".join([*OPEN, end(5, commit=False)]))
    row, _, code = ask(klog, path.parent)
    assert (row["reason"], code) == (None, 0)


@pytest.mark.kafka
def test_a_real_broker_never_ends_it(klog: Klog, tmp_path: Path) -> None:
    """With its coordinator it is aborted after its timeout; without it only the tool ends it."""
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    log_dir = tmp_path / "one/data"
    given = [clients.Given(b"k", b"v", (), 1_700_000_000_000 + i) for i in range(5)]
    with kafka.Cluster(kafka.NEWEST, tmp_path / "one", settings=settings) as cluster:
        clients.create(cluster.bootstrap, {"orders": {}})
        with clients.open_transaction(cluster.bootstrap, "orders", given, timeout_ms=5000):
            cluster.stop()
        assert ask(klog, log_dir)[0]["reason"] is None
        for path in log_dir.glob(f"{COORDINATORS}-*"):
            shutil.rmtree(path)
        row, _, code = ask(klog, log_dir)
        assert (row["reason"], code) == ("transaction-hanging", 4)
        cluster.start()
        clients.with_librdkafka(cluster.bootstrap, "orders", "none", given)
        clients.with_librdkafka(cluster.bootstrap, "orders", "none", given, transaction="later")
        time.sleep(8)  # beyond its timeout
        assert not clients.consume(cluster.bootstrap, "orders", "read_committed")
        words = row["message"].partition("kafka-transactions ")[2].split()
        tool = kafka.Tools().run_class(
            "org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", cluster.bootstrap, *words
        )
        assert tool.exit_code == 0, tool
        assert len(clients.consume(cluster.bootstrap, "orders", "read_committed")) == 10
