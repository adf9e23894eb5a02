"""`klog doctor` over the transaction index of a follower that appended several transactions at once.

The entry of the first transaction then has a last stable offset behind the next one of the same producer.  A broker
looks for no more aborted transactions at that entry if the upper bound of its search is not above that offset.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.brokers import clients, kafka
from tests.brokers.quorum import BROKERS, Brokers
from tests.conftest import Ran

if TYPE_CHECKING:
    from confluent_kafka import Producer

pytestmark = pytest.mark.kafka

LEADER, FOLLOWER, _ = BROKERS
GIVEN = [clients.Given(b"k", b"v", (), 1_700_000_000_000 + i) for i in range(6)]
TOPICS = {"small": {}, "dense": {"index.interval.bytes": "10"}}
"""The offset index of the second one has an entry for each batch: the upper bounds of searches."""


def write(bootstrap: str) -> Producer:
    """Abort two transactions of one producer, of several batches each; return another, whose transaction is open."""
    aborts, stays = (_producer(bootstrap, name) for name in ("aborts", "stays"))
    for _ in range(2):
        aborts.begin_transaction()
        for one in GIVEN:
            for topic in TOPICS:
                aborts.produce(topic, key=one.key, value=one.value, partition=0)
            aborts.flush(clients.WAIT_S)
        aborts.abort_transaction(clients.WAIT_S)
    stays.begin_transaction()
    for topic in TOPICS:
        stays.produce(topic, value=b"open", partition=0)
    stays.flush(clients.WAIT_S)
    return stays


def _producer(bootstrap: str, name: str) -> Producer:
    from confluent_kafka import Producer

    config = {"bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": 600_000}
    made = Producer(config | clients.SILENT)
    made.init_transactions(clients.WAIT_S)
    return made


def in_sync(bootstrap: str, topic: str) -> set[int]:
    found = clients.admin(bootstrap).list_topics(topic, timeout=clients.WAIT_S).topics[topic].partitions[0]
    return {*found.isrs}


def served(bootstrap: str) -> dict[str, int]:
    """Return the number of records that a consumer gets which asks for one batch at a time; all of them are aborted."""
    fetch = {"max_partition_fetch_bytes": 1}
    return {topic: len(clients.consume(bootstrap, topic, "read_committed", **fetch)) for topic in TOPICS}


def test_a_follower_that_appended_it_all_at_once(klog: Callable[..., Ran], tmp_path: Path) -> None:
    with Brokers(kafka.NEWEST, tmp_path / "cluster") as brokers:
        brokers.start(LEADER)
        _producer(brokers.bootstrap, "first")  # the coordinators' topic is then on this broker
        brokers.start(FOLLOWER)
        clients.create(brokers.bootstrap, TOPICS, replicas=2)
        brokers.stop(FOLLOWER)
        stays = write(brokers.bootstrap)
        brokers.start(FOLLOWER)
        until = time.monotonic() + clients.WAIT_S
        while any(in_sync(brokers.bootstrap, topic) != {LEADER, FOLLOWER} for topic in TOPICS):
            assert time.monotonic() < until
            time.sleep(0.2)
        del stays
        brokers.stop(LEADER)
        brokers.stop(FOLLOWER)
        disk = brokers.disk(FOLLOWER)
        rows = json.loads(klog("doctor", "--output", "json", disk).stdout)["partitions"]
        reasons = {row["topic"]: row["reason"] for row in rows if row["topic"] in TOPICS}
        assert reasons == {"small": None, "dense": "txn-index-wrong"}
        found = {topic: b"txn-index-disagrees" in klog("verify", disk / f"{topic}-0").stdout for topic in TOPICS}
        assert found == {"small": False, "dense": True}
        brokers.start(FOLLOWER)
        assert served(brokers.bootstrap) == {"small": 0, "dense": len(GIVEN)}
        brokers.stop(FOLLOWER)
        assert klog("recover", disk / "dense-0", "--apply").exit_code == 1
        assert klog("doctor", disk).exit_code == 0
        brokers.start(FOLLOWER)
        assert served(brokers.bootstrap) == {"small": 0, "dense": 0}
