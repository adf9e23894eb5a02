"""A partition moves from one broker to another while `klog timeline` reads the disks of both, and of the controller."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from klog.commands.timeline.timeline import Timeline
from klog.commands.timeline.timeline_event import EventFilter, TimelineEvent
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.selection import PartitionQuery

from tests.brokers import clients, kafka
from tests.brokers.quorum import CONTROLLER, Brokers
from tests.commands.timeline.test_brokers import LINGER_MS, Deed, now

pytestmark = pytest.mark.kafka
TOOL = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
RECORDS, RECORD_BYTES, THROTTLE = 300, 10_000, 500_000


class Moved(NamedTuple):
    """The events while the partition moved, and afterwards; the time of the tool's run, and its output."""

    during: list[TimelineEvent]
    afterwards: list[TimelineEvent]
    began: Deed
    completed: Deed


def told(cluster: Brokers) -> list[TimelineEvent]:
    disks = [str(cluster.disk(node)) for node in (1, 2, CONTROLLER)]
    with Timeline(PartitionQuery(disks).selections(), EventFilter(topics=("moved",)), Disk()) as timeline:
        timeline.read()
        assert timeline.problems == []
        return list(timeline.events())


def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + clients.WAIT_S
    while not holds():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.2)


def fill(bootstrap: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **clients.SILENT})
    for _ in range(RECORDS):
        producer.produce("moved", os.urandom(RECORD_BYTES), partition=0)
        producer.poll(0)
    assert producer.flush(clients.WAIT_S) == 0


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moved]:
    from confluent_kafka.admin import NewTopic

    tool, folder = kafka.Tools(kafka.NEWEST), tmp_path_factory.mktemp("moving")
    plan = folder / "plan.json"
    parts = [{"topic": "moved", "partition": 0, "replicas": [2]}]
    plan.write_text(json.dumps({"version": 1, "partitions": parts}))
    with Brokers(kafka.NEWEST, folder / "cluster") as cluster:
        cluster.start(1, 2)
        words = ("--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(plan))
        client = clients.admin(cluster.bootstrap)
        topic = NewTopic("moved", num_partitions=1, replica_assignment=[[1]])
        client.create_topics([topic])["moved"].result(clients.WAIT_S)
        fill(cluster.bootstrap)
        began = now()
        done = tool.run_class(TOOL, *words, "--execute", "--throttle", str(THROTTLE))
        assert (done.exit_code, done.died) == (0, ""), done
        begun = Deed(began, now())
        until(lambda: size_of(cluster.disk(2)) > 0)
        during = told(cluster)
        assert b"still in progress" in tool.run_class(TOOL, *words, "--verify", "--preserve-throttles").stdout
        until(lambda: b"is completed" in tool.run_class(TOOL, *words, "--verify").stdout)
        completed = Deed(begun.ended, now())
        yield Moved(during, told(cluster), begun, completed)


def size_of(disk: Path) -> int:
    return sum(path.stat().st_size for path in disk.glob("moved-0/*.log"))


def test_its_beginning_is_told_once_and_what_is_copied_is_no_damage(moved: Moved) -> None:
    """All disks have the metadata log; the new replica has a part of the records."""
    (event,) = [one for one in moved.during if one.kind == "partition-changed"]
    assert (event.topic, event.partition, event.node) == ("moved", 0, 1)
    assert "a reassignment begins: +2 -1" in event.message
    assert moved.began.began - LINGER_MS <= event.time <= moved.began.ended
    assert [one for one in moved.during if one.kind == "damage"] == []
    ends = [one.offset for one in moved.during if one.kind == "last-record"]
    assert ends[1:] == [RECORDS - 1]
    assert 0 <= ends[0] < RECORDS - 1


def test_its_end_is_told_once_when_the_new_broker_leads(moved: Moved) -> None:
    """The earlier events are unchanged, except that the old replica's directory awaits its deletion."""
    changes = [one for one in moved.afterwards if one.kind == "partition-changed"]
    ends = [one for one in changes if "the reassignment is complete" in one.message]
    assert [(one.topic, one.partition, one.node) for one in ends] == [("moved", 0, 2)]
    assert moved.completed.began - LINGER_MS <= ends[0].time <= moved.completed.ended
    assert changes[-1] == ends[0]
    assert [one for one in moved.afterwards if one.kind == "damage"] == []
    lasting = ("topic-created", "partition-changed", "config-changed")
    before = [one for one in moved.during if one.kind in lasting]
    assert [one for one in moved.afterwards if one.kind in lasting][: len(before)] == before
    removed = [one.message for one in moved.afterwards if one.kind == "config-changed"][-2:]
    assert all("throttled.replicas not set" in one for one in removed)
