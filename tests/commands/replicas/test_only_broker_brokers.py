"""One real broker owns everything after `klog metadata plan --only-broker`: it serves all records, and continues."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import clients, kafka
from tests.brokers.quorum import BROKERS, Combined
from tests.commands.replicas import serving
from tests.commands.replicas.test_copy_plan_brokers import await_full_isr
from tests.conftest import CORPORA

pytestmark = [pytest.mark.kafka]


def applied(klog: Callable[..., Any], cluster: Combined, node: int, *options: str) -> Any:
    """Make *node* the owner of everything; return the plan."""
    disks = [cluster.disk(each) for each in BROKERS]
    address = f"localhost:{cluster.controller_port + node}"
    words = ("--only-broker", str(node), "--voter", address, *options, "--apply", "--output", "json")
    ran = klog("metadata", "plan", *disks, *words)
    assert ran.exit_code in (0, 5), ran.stderr
    found = json.loads(ran.stdout)
    assert ran.exit_code == (5 if found["metadata"]["lost"] else 0)
    for other in BROKERS:
        if other != node:
            shutil.rmtree(cluster.disk(other))  # they must never come up again
    return found


def goes_on(cluster: Combined, node: int, written: Mapping[serving.Key, list[serving.Record]]) -> None:
    """See that the broker, which runs, leads all of it alone, takes writes and new topics, and restarts with them."""
    found = clients.admin(cluster.bootstrap).list_topics(timeout=clients.WAIT_S)
    assert {*found.brokers} == {node}
    for topic in {topic for topic, _ in written}:
        for one in found.topics[topic].partitions.values():
            assert (one.leader, one.replicas, one.isrs) == (node, [node], [node])
    serving.create(cluster.bootstrap, {"fresh": (1, 1)})
    known = {place: list(records) for place, records in written.items()}
    for place, records in serving.write(cluster.bootstrap, [*written, ("fresh", 0)], 3, "after", acks="1").items():
        known.setdefault(place, []).extend(records)
    cluster.stop(node)
    cluster.start(node)
    assert serving.read(cluster.bootstrap, known) == known
    cluster.stop(node)


@pytest.mark.corpora
@pytest.mark.parametrize(("name", "node"), [("three-combined-static", 2), ("quorum", 1)])
def test_a_disk_of_the_corpora_serves_what_any_disk_held(
    name: str, node: int, image: Callable[[str], Path], tmp_path: Path, klog: Callable[..., Any], state_home: Path
) -> None:
    """A reader of its own recorded the content of the disks, a digest over the records of each copy."""
    for each in BROKERS:
        shutil.copytree(image(f"replicas/{name}.tar.xz") / f"broker-{each}", tmp_path / f"broker-{each}")
    truth = json.loads(gzip.decompress((CORPORA / "replicas" / f"{name}.truth.json.gz").read_bytes()))
    cluster = Combined(kafka.NEWEST, tmp_path, is_dynamic=name == "quorum", alone=node)
    applied(klog, cluster, node)
    held = {
        (place.rpartition("-")[0], int(place.rpartition("-")[2])): max(
            copies.values(), key=lambda copy: copy["log_end"]
        )
        for place, copies in truth["replicas"].items()
    }
    with cluster:
        cluster.start(node)
        await_full_isr(cluster.bootstrap, tuple({topic for topic, _ in held}))
        found = serving.read_whole(cluster.bootstrap, held)
        for place, copy in held.items():
            for run in copy.get("runs", ()):
                digest = hashlib.sha256()
                some = [one for one in found[place] if run["first"] <= one[0] <= run["last"]]
                assert len(some) == run["records"], place
                for one in some:
                    assert not one[4]
                    digest.update(repr((*one[:4], b"\0")).encode())  # a count of no headers
                assert digest.hexdigest() == run["sha256"], place
        goes_on(
            cluster, node, {place: [(one[0], one[2], one[3]) for one in records] for place, records in found.items()}
        )


def moves_to_other_ports(klog: Callable[..., Any], cluster: Combined) -> None:
    """Move the controllers of a killed cluster to other addresses: all brokers start, by the addresses of a plan."""
    cluster.controller_port += 20
    disks = [cluster.disk(node) for node in BROKERS]
    made = klog("metadata", "plan", *disks, "--voters", cluster.voters, "--apply", "--output", "json")
    assert made.exit_code == 0, made.stderr
    assert [one["records"] for one in json.loads(made.stdout)["metadata"]["appended"]] == [["VOTERS"]]
    cluster.start(*BROKERS)


def test_a_cluster_of_3_9_moves_and_comes_down_to_one_broker(
    tmp_path: Path, klog: Callable[..., Any], state_home: Path
) -> None:
    """With its versions of the records, and with its internal topics: consumer groups keep their offsets."""
    from confluent_kafka import Consumer, TopicPartition

    cluster = Combined(kafka.BEFORE, tmp_path)
    places = [("orders", 0), ("orders", 1), ("orders", 2), ("solo", 0), ("solo", 1), ("solo", 2)]
    group = {"group.id": "readers", **clients.SILENT}
    with cluster:
        cluster.start(*BROKERS)
        serving.create(cluster.bootstrap, {"orders": (3, 2), "solo": (3, 1)})
        await_full_isr(cluster.bootstrap, ("orders", "solo"))
        written = serving.write(cluster.bootstrap, places, 30, "before")
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, **group})
        consumer.list_topics(timeout=clients.WAIT_S)  # a request to the broker it begins with may get lost
        clients.coordinated(consumer.commit, offsets=[TopicPartition("orders", 1, 17)], asynchronous=False)
        consumer.close()
        cluster.kill(*BROKERS)
        moves_to_other_ports(klog, cluster)
        await_full_isr(cluster.bootstrap, ("orders", "solo"))
        assert serving.read(cluster.bootstrap, written) == written
        for place, records in serving.write(cluster.bootstrap, places, 5, "moved").items():
            written[place] += records
        cluster.kill(*BROKERS)
    cluster.alone = 3
    plan = applied(klog, cluster, 3)["metadata"]
    assert plan["lost"] == []
    assert {name for batch in plan["appended"] for name in batch["records"]} == {
        "VOTERS",
        "PARTITION_CHANGE",
        "UNREGISTER_BROKER",
    }
    with cluster:
        cluster.start(3)
        await_full_isr(cluster.bootstrap, ("orders", "solo"))
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, **group})
        consumer.list_topics(timeout=clients.WAIT_S)
        (committed,) = consumer.committed([TopicPartition("orders", 1)], timeout=clients.WAIT_S)
        consumer.close()
        assert committed.offset == 17
        assert serving.read(cluster.bootstrap, written) == written
        goes_on(cluster, 3, written)
