"""Nothing that a broker has acknowledged is lost by an adoption, before or after it, by real brokers and producers."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from klog.cluster.coordinator.coordinator_records import records_until
from klog.data_dir.partition import Partition
from klog.formats.transaction_state import VALUE_HEAD, TransactionStatus

from tests.brokers import clients, kafka
from tests.commands.adopt.disks import adopted, doctor
from tests.conftest import run_klog
from tests.oracles.plain.encode import Record, batch

pytestmark = [pytest.mark.kafka, pytest.mark.long]
TOPICS = ("orders", "payments")


def send(bootstrap: str, topic: str, values: Iterable[bytes], transaction: str = "") -> list[bytes]:
    """Send each value of a new producer in a batch of its own; return those that were acknowledged."""
    from confluent_kafka import Producer

    config = {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True} | clients.SILENT
    producer = Producer(config | ({"transactional.id": transaction} if transaction else {}))
    if transaction:
        producer.init_transactions(clients.WAIT_S)
        producer.begin_transaction()
    acknowledged: list[bytes] = []
    for value in values:
        said: list[object] = []
        producer.produce(topic, value=value, partition=0, on_delivery=lambda error, _, said=said: said.append(error))
        producer.flush(clients.WAIT_S)
        acknowledged += [value] if said == [None] else []
    if transaction:
        producer.commit_transaction(clients.WAIT_S)
    return acknowledged


def served(bootstrap: str, topic: str) -> list[bytes | None]:
    return [one.value for one in clients.consume(bootstrap, topic, "read_committed")]


def await_quiet(cluster: kafka.Cluster, wanted: int, seconds: float = 30) -> None:
    """Wait until a broker has set all unknown partitions aside."""
    until = time.monotonic() + seconds
    while len(list(cluster.data.glob("*-stray"))) < wanted:
        assert time.monotonic() < until, "they are not set aside"
        time.sleep(0.3)


@pytest.mark.parametrize("handed_out", [False, True])
def test_new_producers_after_the_loss_of_the_metadata_log(handed_out: bool, tmp_path: Path) -> None:
    """The new metadata log assigns the same ids, from 0 on: their producers' records are appended all the same.

    *handed_out*: the new log has already, for another topic, so that the former ids are below its next one.
    """
    cluster = kafka.Cluster(kafka.NEWEST, tmp_path / "broker")
    sent: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}
    with cluster:
        clients.create(cluster.bootstrap, {topic: {} for topic in TOPICS})
        for topic in TOPICS:
            for number in range(3):
                values = [b"old-%d-%d" % (number, at) for at in range(number + 1)]
                sent[topic] += send(cluster.bootstrap, topic, values, "app" if number == 2 else "")
    shutil.rmtree(cluster.data / "__cluster_metadata-0")
    with cluster:
        await_quiet(cluster, len(TOPICS))
        clients.create(cluster.bootstrap, {topic: {} for topic in (*TOPICS, "others")})
        if handed_out:
            assert send(cluster.bootstrap, "others", [b"x"]) == [b"x"]
    aside = tmp_path / "aside"
    aside.mkdir()
    for stray in [*cluster.data.glob("*-stray")]:
        shutil.move(stray, aside)
    found = adopted(*(next(aside.glob(f"{topic}-0.*")) for topic in TOPICS), "--to", cluster.data, "--apply")
    assert {one["producers"] for one in found["adopted"]} == {"drop"}
    assert doctor(cluster.data)["loses"] == 0
    with cluster:
        for _ in range(2):
            for topic in TOPICS:
                for number in range(4):
                    values = [b"new-%d-%d" % (len(sent[topic]), at) for at in range(number + 1)]
                    done = send(cluster.bootstrap, topic, values, "app" if number == 3 else "")
                    assert done == values, "a producer of this cluster was refused"
                    sent[topic] += done
            cluster.kill()
            cluster.start()
        for topic in TOPICS:
            assert served(cluster.bootstrap, topic) == sent[topic], topic


@pytest.mark.parametrize("decision", ["ongoing", "prepare-commit", "prepare-abort"])
def test_a_transaction_under_way_ends_as_its_coordinator_says(decision: str, tmp_path: Path) -> None:
    """One of its two partitions is adopted from lost+found; the coordinator ends it in both."""
    from confluent_kafka import Producer

    cluster = kafka.Cluster(kafka.NEWEST, tmp_path / "broker")
    config = {"bootstrap.servers": cluster.bootstrap, "transactional.id": "app", "transaction.timeout.ms": 600_000}
    with cluster:
        clients.create(cluster.bootstrap, {topic: {} for topic in TOPICS})
        producer = Producer(config | clients.SILENT)
        producer.init_transactions(clients.WAIT_S)
        producer.begin_transaction()
        for topic in TOPICS:
            for at in range(5):
                producer.produce(topic, value=b"%d" % at, partition=0)
        producer.flush(clients.WAIT_S)
    if decision != "ongoing":
        decide(
            cluster.data, TransactionStatus.PREPARE_COMMIT if "commit" in decision else TransactionStatus.PREPARE_ABORT
        )
    found = tmp_path / "#131073"
    (cluster.data / "orders-0").rename(found)
    done = run_klog("adopt", found, "--as", "orders-0", "--to", cluster.data, "--apply")
    assert done.exit_code == 0
    assert b"is left open: its coordinator has it in progress" in done.stderr
    with cluster:
        if decision == "ongoing":
            producer.commit_transaction(clients.WAIT_S)
        wanted = [] if decision == "prepare-abort" else [b"%d" % at for at in range(5)]
        until = time.monotonic() + 60
        while any(served(cluster.bootstrap, topic) != wanted for topic in TOPICS):
            assert time.monotonic() < until, [served(cluster.bootstrap, topic) for topic in TOPICS]
        for topic in TOPICS:
            values = [b"behind"]
            assert send(cluster.bootstrap, topic, values) == values
            assert served(cluster.bootstrap, topic) == [*wanted, *values], "the transaction is still open"
    del producer


def decide(data: Path, status: TransactionStatus) -> None:
    """Append the decision to the log of the coordinator, as it does before it writes markers."""
    (log,) = [one for one in data.glob("__transaction_state-*/*.log") if one.stat().st_size]
    records = [(key, value) for key, value in records_until(Partition(str(log.parent))) if value is not None]
    key, value = records[-1]
    *head, before = VALUE_HEAD.read(value)
    assert before == TransactionStatus.ONGOING
    decided = VALUE_HEAD.write(*head, int(status)) + value[VALUE_HEAD.size :]
    now_ms = int(time.time() * 1000)
    with log.open("ab") as file:
        file.write(batch([Record(len(records), now_ms, key, decided)]))
