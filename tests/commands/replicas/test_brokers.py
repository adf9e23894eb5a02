"""A new cluster of three real brokers: the predictions about their disks, and their actions."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from klog.formats.damage import Damage
from klog.log.segment import Segment

from tests.brokers import clients, kafka
from tests.brokers.quorum import BROKERS, CONTROLLER, Brokers
from tests.conftest import Ran
from tests.support.samples import sampled

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
ASSIGNMENT = [[1, 2, 3], [2, 3, 1]]
UNCLEAN = "unclean.leader.election.enable"
# Forked by unclean elections; appended to while broker 1 was alone; left alone.
TOPICS = {"forked": {UNCLEAN: "true"}, "late": {UNCLEAN: "false"}, "quiet": {UNCLEAN: "false"}}
ORDERS = ("1,2,3", "2 then 1,3", "3 then 2 then 1")
Record = tuple[int, int, "bytes | None", "bytes | None"]


def create(bootstrap: str) -> None:
    from confluent_kafka.admin import NewTopic

    wanted = [
        NewTopic(name, len(ASSIGNMENT), replica_assignment=ASSIGNMENT, config=config) for name, config in TOPICS.items()
    ]
    clients.make(bootstrap, wanted)


def in_sync(bootstrap: str, replicas: int, topics: tuple[str, ...] = tuple(TOPICS)) -> None:
    """Wait until each partition has a leader and so many replicas in its ISR."""
    client = clients.admin(bootstrap)
    until = time.monotonic() + clients.WAIT_S
    while time.monotonic() < until:
        found = client.list_topics(timeout=clients.WAIT_S).topics
        partitions = [one for topic in topics if topic in found for one in found[topic].partitions.values()]
        if len(partitions) == len(topics) * len(ASSIGNMENT) and all(
            one.leader >= 0 and len(one.isrs) == replicas for one in partitions
        ):
            return
        time.sleep(0.2)
    raise TimeoutError(f"no {replicas} in-sync replicas")


def produce(bootstrap: str, topic: str, tag: str, count: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "1", "batch.num.messages": 3} | clients.SILENT)
    for number in range(count):
        for partition in range(len(ASSIGNMENT)):
            producer.produce(topic, f"{tag}-{number}".encode(), f"{number % 5}".encode(), partition=partition)
    assert producer.flush(clients.WAIT_S) == 0


@pytest.fixture(scope="module")
def wreck(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The disks of four nodes, all of them stopped; of `quiet-0` broker 2 has lost its directory."""
    folder = tmp_path_factory.mktemp("wreck")
    with Brokers(kafka.NEWEST, folder) as brokers:
        brokers.start(*BROKERS)
        create(brokers.bootstrap)
        in_sync(brokers.bootstrap, 3)
        for topic in TOPICS:
            produce(brokers.bootstrap, topic, "all", 30)
        time.sleep(2)  # until followers have it
        brokers.stop(2, 3)
        in_sync(brokers.bootstrap, 1)
        produce(brokers.bootstrap, "forked", "one", 20)
        produce(brokers.bootstrap, "late", "one", 20)
        for node, tag, count in ((2, "two", 15), (3, "three", 10)):
            brokers.stop(node - 1)
            brokers.start(node)
            in_sync(brokers.bootstrap, 1, ("forked",))
            produce(brokers.bootstrap, "forked", tag, count)
        brokers.stop(3)
    shutil.rmtree(brokers.disk(2) / "quiet-0")
    return folder


def content(partition: Path) -> set[Record]:
    """Return the data records of a copy."""
    found: set[Record] = set()
    for log in sorted(partition.glob("*.log")):
        for batch in Segment(str(log)).batches():
            assert not isinstance(batch, Damage)
            for record in batch.records():
                assert not isinstance(record, Damage)
                found.add((record.offset, record.timestamp, record.key, record.value))
    return found


def diff(klog: Callable[..., Ran], brokers: Brokers, *words: str) -> dict[str, dict[str, Any]]:
    disks = [brokers.disk(node) for node in BROKERS]
    metadata = ("--metadata", brokers.disk(CONTROLLER))
    ran = klog("replicas", "diff", *disks, *metadata, "--output", "json", *words)
    return {f"{one['topic']}-{one['partition']}": one for one in json.loads(ran.stdout)["partitions"]}


@pytest.fixture
def again(wreck: Path, tmp_path: Path) -> Iterator[Brokers]:
    """The same nodes on copies of the disks, stopped."""
    folder = tmp_path / "again"
    shutil.copytree(wreck, folder)
    brokers = Brokers(kafka.NEWEST, folder)
    try:
        yield brokers
    finally:
        brokers.__exit__()


def offsets(ranges: list[list[int]]) -> set[int]:
    return {offset for first, last in ranges for offset in range(first, last + 1)}


@pytest.mark.parametrize("order", sampled(ORDERS, 4))
def test_brokers_do_one_of_the_things_that_were_said(klog: Callable[..., Ran], again: Brokers, order: str) -> None:
    """They keep the copy of an outcome, lose exactly its records, and then all copies are equal."""
    said = diff(klog, again, "--up", order)
    assert {name: one["verdict"] for name, one in said.items() if name[-1] == "0"} == {
        "forked-0": "diverged",
        "late-0": "behind",
        "quiet-0": "missing",
    }
    before = {
        name: {node: content(again.disk(node) / name) for node in BROKERS if (again.disk(node) / name).exists()}
        for name in said
    }
    again.start(CONTROLLER)
    for group in order.split(" then "):
        again.start(*map(int, group.split(",")))
        time.sleep(2)
    in_sync(again.bootstrap, 3)
    again.stop(*BROKERS)
    again.stop(CONTROLLER)
    after = diff(klog, again)
    for name, one in said.items():
        assert after[name]["verdict"] == "same", name
        kept = content(again.disk(1) / name)
        outcomes = one["what_if"]["outcomes"]
        assert one["unclean"] or len(outcomes) == 1
        fitting = [each for each in outcomes if before[name].get(each["leader"], set()) == kept]
        assert fitting, (name, outcomes)
        lost = set().union(*before[name].values()) - kept
        for each in fitting:
            assert each["lost"]["records"] == len(lost)
            assert offsets(each["lost"]["ranges"]) == {offset for offset, *_ in lost}
