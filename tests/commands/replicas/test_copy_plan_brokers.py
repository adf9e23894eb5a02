"""Real brokers start on copies that were made equal: nothing is cut, all are in sync, and writes go through."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from klog.data_dir.log_dir import LogDir

from tests.brokers import kafka
from tests.brokers.quorum import BROKERS, CONTROLLER, Brokers
from tests.commands.replicas.test_copy_plan import batches, brokers, planned, taken

pytestmark = [pytest.mark.corpora, pytest.mark.kafka]
WAIT_S = 120


def copies(cluster: Brokers, topics: tuple[str, ...]) -> dict[tuple[str, int], list[tuple[Any, ...]]]:
    """Return the batches of each copy, by partition and node."""
    return {
        (partition.directory, node): batches(partition)
        for node in BROKERS
        for partition in LogDir(str(cluster.disk(node))).partitions
        if partition.topic in topics
    }


def await_full_isr(bootstrap: str, wanted: tuple[str, ...]) -> None:
    """Wait until every replica of these topics is in sync."""
    from confluent_kafka.admin import AdminClient

    admin, found = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2}), "nothing"
    ends = time.monotonic() + WAIT_S
    while time.monotonic() < ends:
        topics = admin.list_topics(timeout=WAIT_S).topics
        parts = [(name, part) for name in wanted if name in topics for part in topics[name].partitions.values()]
        behind = [f"{name}-{part.id}" for name, part in parts if {*part.isrs} != {*part.replicas} or part.leader < 0]
        if parts and not behind:
            return
        found = ", ".join(behind)
        time.sleep(0.5)
    raise AssertionError(f"not in sync: {found}")


def write(bootstrap: str, partitions: set[tuple[str, int]]) -> None:
    """Write a record into each partition, acknowledged by all."""
    from confluent_kafka import Producer

    errors: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 2})
    for topic, number in partitions:
        producer.produce(
            topic,
            b"value",
            b"key",
            partition=number,
            on_delivery=lambda error, _: errors.extend([error] if error else []),
        )
    assert producer.flush(WAIT_S) == 0
    assert not errors


TOPICS = ("orders", "pairs", "zipped")
CASES: dict[str, tuple[str, tuple[int, ...], tuple[str, ...], tuple[str, ...], bool]] = {
    "split": ("split", (1, 2, 3), TOPICS, ("--keep", "newest"), False),
    "split, marked": ("split", (3, 1, 2), TOPICS, ("--keep", "longest"), True),
    "behind": ("behind", (3, 1, 2), TOPICS, (), False),
    # The other damage there has no intact copy.
    "empty-leader": ("empty-leader", (1, 2, 3), ("orders", "zipped"), ("--repair",), False),
}


@pytest.mark.parametrize(
    "case",
    [*(pytest.param(name, marks=pytest.mark.long) for name in ("split", "empty-leader")), "split, marked", "behind"],
)
def test_brokers_take_copies_that_were_made_equal(
    case: str,
    image: Callable[[str], Path],
    tmp_path: Path,
    klog: Callable[..., Any],
) -> None:
    name, order, topics, options, is_marked = CASES[case]
    root = taken(image, name, tmp_path)
    narrowed = [word for topic in topics for word in ("--topic", topic)]
    assert not planned(klog, root, *options, *narrowed, "--apply")["left"]
    if is_marked:
        for broker in brokers(root):
            klog("recover", broker, "--mark-clean", "--broker-epoch", "registered", "--apply")
            assert (broker / ".kafka_cleanshutdown").exists()
    shutil.copytree(root, tmp_path / "cluster", symlinks=True)
    cluster = Brokers(kafka.NEWEST, tmp_path / "cluster")
    before = copies(cluster, topics)
    with cluster:
        for node in order:
            cluster.start(node)
        await_full_isr(cluster.bootstrap, topics)
        write(cluster.bootstrap, {(one.rpartition("-")[0], int(one.rpartition("-")[2])) for one, _ in before})
        for node in reversed(order):
            cluster.stop(node)
    after = copies(cluster, topics)
    assert after.keys() == before.keys()
    for copy, log in after.items():
        assert log[:-1] == before[copy], copy
    paths = [cluster.disk(node) for node in BROKERS]
    metadata = ("--metadata", cluster.disk(CONTROLLER))
    found = klog("replicas", "diff", *paths, *metadata, "--output", "json", *narrowed)
    assert json.loads(found.stdout)["summary"] == {"same": len({one for one, _ in before})}
