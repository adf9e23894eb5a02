"""The events in the metadata log, record by record: brokers, topics, partitions, settings, the quorum."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from klog.commands.timeline.metadata_events import read_metadata_events
from klog.commands.timeline.timeline_event import TimelineEvent
from klog.data_dir.partition import Partition

from tests.support.metadata_logs import MetadataLog, config, topic, uuid, value

NO_OP = value("NoOp")


@pytest.fixture
def log(tmp_path: Path) -> MetadataLog:
    return MetadataLog(tmp_path / "data")


def told(log: MetadataLog) -> list[TimelineEvent]:
    found: list[TimelineEvent] = []
    problems = read_metadata_events(Partition(str(log.path)), str(log.log_dir), False, found.append)
    assert problems.sentences() == ()
    return found


def broker(node: int, epoch: int, incarnation: int = 9, fenced: bool = True) -> bytes:
    endpoint = {"name": "PLAIN", "host": "h", "port": 9092, "securityProtocol": 0}
    more = {"features": [], "rack": None, "logDirs": [], "fenced": fenced, "endPoints": [endpoint]}
    return value("RegisterBroker", brokerId=node, brokerEpoch=epoch, incarnationId=uuid(incarnation), **more)


def registration(node: int, epoch: int, **fields: object) -> bytes:
    return value("BrokerRegistrationChange", brokerId=node, brokerEpoch=epoch, **fields)


def partition(number: int, topic_number: int = 1, replicas: tuple[int, ...] = (1, 2)) -> bytes:
    nodes = list(replicas)
    more = {"replicas": nodes, "isr": nodes, "leader": nodes[0], "leaderEpoch": 0, "partitionEpoch": 0}
    return value("Partition", partitionId=number, topicId=uuid(topic_number), **more)


def change(number: int, **fields: object) -> bytes:
    return value("PartitionChange", partitionId=number, topicId=uuid(1), **fields)


def test_a_broker_comes_and_goes(log: MetadataLog) -> None:
    """Registered fenced, unfenced, shut down, fenced, started again, unregistered; each with its node and epoch."""
    log.add_control()
    log.add(broker(1, 1))
    log.add(registration(1, 1, fenced=-1))
    log.add(registration(1, 1, inControlledShutdown=1))
    log.add(registration(1, 1, fenced=1))
    log.add(broker(1, 5, incarnation=10))
    log.add(value("UnregisterBroker", brokerId=1, brokerEpoch=5))
    events = told(log)
    assert [(event.kind, event.node, event.epoch, event.offset) for event in events] == [
        ("epoch", 1, 0, 0),
        ("broker-registered", 1, 1, 1),
        ("broker-unfenced", 1, 1, 2),
        ("broker-fenced", 1, 1, 4),
        ("broker-registered", 1, 5, 5),
        ("broker-unregistered", 1, 5, 6),
    ]
    assert events[1].message == "broker 1: registered; PLAIN://h:9092"
    assert events[3].message == "broker 1 was fenced after a controlled shutdown"
    assert "after a start" in events[4].message
    assert {event.clock for event in events} == {"broker"}


def test_a_topic_is_told_once_with_its_size(log: MetadataLog) -> None:
    """Its partitions are created with it; later ones are changes, and so are their leaders and members."""
    log.add(topic("orders", 1), partition(0), partition(1))
    log.add(partition(2))
    log.add(change(0, leader=2, isr=[2]))
    events = told(log)
    assert [(event.kind, event.topic, event.partition) for event in events] == [
        ("topic-created", "orders", None), ("partition-changed", "orders", 2), ("partition-changed", "orders", 0),
    ]  # fmt: skip
    assert events[0].message == "2 partitions, replication factor 2"
    assert events[0].topic_id == uuid(1)
    assert events[2].message.endswith("leader 1 → 2; ISR 1,2 → 2")
    assert (events[2].node, events[2].epoch) == (2, 1)


def test_a_deleted_topic_keeps_its_name_and_id(log: MetadataLog) -> None:
    """The record has only the id; and the name may exist again with another."""
    log.add(topic("orders", 1), partition(0))
    log.add(value("RemoveTopic", topicId=uuid(1)))
    log.add(topic("orders", 2), partition(0, 2))
    events = told(log)
    assert [(event.kind, event.topic, event.topic_id) for event in events] == [
        ("topic-created", "orders", uuid(1)),
        ("topic-deleted", "orders", uuid(1)),
        ("topic-created", "orders", uuid(2)),
    ]


@pytest.mark.parametrize(
    ("record", "message", "about"),
    [
        (config(2, "orders", "retention.ms", "5"), "topic orders: retention.ms = 5", ("orders", None, None)),
        (config(4, "", "log.cleaner.threads", "2"), "all brokers: log.cleaner.threads = 2", (None, None, None)),
        (config(4, "3", "log.cleaner.threads", "2"), "broker 3: log.cleaner.threads = 2", (None, 3, None)),
        (config(4, "3", "ssl.key.password", "hush"), "broker 3: ssl.key.password = …", (None, 3, None)),
        (config(32, "g", "consumer.rack", "9"), "group g: consumer.rack = 9", (None, None, "g")),
        (value("FeatureLevel", name="group.version", featureLevel=1), "feature group.version = 1", (None, None, None)),
    ],
)  # fmt: skip
def test_settings_say_whose_they_are(
    log: MetadataLog, record: bytes, message: str, about: tuple[str | None, int | None, str | None]
) -> None:
    """Passwords are not shown."""
    log.add(record)
    (event,) = told(log)
    assert (event.kind, event.message) == ("config-changed", message)
    assert (event.topic, event.node, event.group) == about


def test_a_setting_says_what_it_was(log: MetadataLog) -> None:
    """The changed setting is half of the question; an unchanged one is no event."""
    for text in ("5", "5", "7", None):
        log.add(config(2, "orders", "retention.ms", text))
    assert [event.message for event in told(log)] == [
        "topic orders: retention.ms = 5", "topic orders: retention.ms = 7 (was 5)",
        "topic orders: retention.ms not set (was 7)",
    ]  # fmt: skip


def test_what_was_taken_back_never_happened(log: MetadataLog) -> None:
    """A transaction of the metadata log that was aborted, or is open at the end."""
    log.add(value("BeginTransaction", name="x"), topic("no", 1), value("AbortTransaction"))
    log.add(value("BeginTransaction", name="x"), topic("yes", 2))
    log.add(partition(0, 2), value("EndTransaction"))
    log.add(value("BeginTransaction", name="x"), topic("open", 3))
    assert [event.topic for event in told(log) if event.kind == "topic-created"] == ["yes"]


def test_a_log_that_begins_late_begins_with_its_snapshot(tmp_path: Path) -> None:
    """The content of the snapshot is no event, but names later ones."""
    log = MetadataLog(tmp_path / "data", start=50)
    log.snapshot(50, topic("orders", 1), partition(0))
    log.add(NO_OP, NO_OP)
    log.add(change(0, isr=[1]))
    (event,) = told(log)
    assert (event.topic, event.partition, event.offset) == ("orders", 0, 52)


def test_a_log_without_its_begin_is_said(tmp_path: Path) -> None:
    """No snapshot leads to it: no state is known, and that is reported."""
    log = MetadataLog(tmp_path / "data", start=50)
    log.add(change(0, isr=[1]))
    problems = read_metadata_events(Partition(str(log.path)), "x", False, _never)
    assert "no complete snapshot" in problems.sentences(only_damage=True)[0]


_never: Callable[[TimelineEvent], None] = pytest.fail  # type: ignore[assignment]  # it takes anything
