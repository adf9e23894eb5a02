"""The same questions to a real broker and, once it is stopped, to its disk: clients of four kinds, and raw requests."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from klog.formats.structs.schema import Data

from tests.brokers import clients, kafka
from tests.brokers.clients import START_MS, records
from tests.commands.serve.readers import READERS, Row
from tests.commands.serve.serving import Serving, Wire

pytestmark = pytest.mark.kafka

TOPICS: dict[str, dict[str, str]] = {
    "none": {"retention.ms": "-1"},
    "zstd": {"segment.bytes": "1048576"},
    "lz4": {"compression.type": "lz4"},
    "append-time": {"message.timestamp.type": "LogAppendTime"},
    "tx": {},
    "empty": {"cleanup.policy": "compact", "retention.ms": "86400000"},
}
ISOLATIONS = ("read_uncommitted", "read_committed")
GROUP = "readers-of-a-broker"
TIMES = (0, START_MS, START_MS + 95, START_MS + 200, START_MS + 10**9)
NOT_FOUND = "nowhere"


@dataclass(frozen=True)
class Heard:
    """The answers of a live broker: rows by client, topic and isolation; raw answers; the output of Java's tools."""

    data: Path
    rows: dict[tuple[str, str, str], list[Row]]
    raw: dict[str, Data]
    java: dict[str, list[str]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Heard:
    with kafka.Cluster(kafka.NEWEST, tmp_path_factory.mktemp("broker")) as cluster:
        at = cluster.bootstrap
        clients.create(at, TOPICS)
        for topic in ("none", "zstd", "lz4", "append-time"):
            codec = topic if topic in ("zstd", "lz4") else "none"
            clients.with_librdkafka(at, topic, codec, records(topic, 60))
        clients.with_librdkafka(at, "tx", "none", records("plain", 20))
        clients.with_librdkafka(at, "tx", "zstd", records("tx", 60), transaction="tx")
        rows = {(c, t, i): READERS[c](at, t, i, None) for c in READERS for t in TOPICS for i in ISOLATIONS}
        READERS["librdkafka"](at, "none", "read_committed", GROUP)
        java, raw = tools(at), asked(cluster.port)
        cluster.stop()
    return Heard(cluster.data, rows, raw, java)


@pytest.fixture(scope="module")
def disk(broker: Heard) -> Iterator[Serving]:
    with Serving(broker.data) as serving:
        yield serving


# ---------------------------------------------------------------- raw requests


def asked(port: int) -> dict[str, Data]:
    """Return the answers to requests that do not depend on the client."""
    found: dict[str, Data] = {}
    with Wire(port) as wire:
        topics = [{"name": name, "topicId": "A" * 22} for name in (*TOPICS, NOT_FOUND)]
        for version in (1, 5, 9, 12, 13):
            body = {"topics": topics, "allowAutoTopicCreation": False}
            found[f"Metadata {version}"] = _placeless(wire.ask("Metadata", version, body))
        names = [(name, wire.topic_id(name)) for name in TOPICS]
        for isolation in (0, 1):
            for timestamp in (-1, -2, -3, -4, -5, *TIMES):
                rows = [{"partitionIndex": number, "timestamp": timestamp} for number in (0, 5)]
                wanted = [{"name": name, "partitions": rows} for name in (*TOPICS, NOT_FOUND)]
                body = {"replicaId": -1, "isolationLevel": isolation, "topics": wanted, "timeoutMs": 5000}
                found[f"ListOffsets {isolation} {timestamp}"] = wire.ask("ListOffsets", 10, body)
        for version in (4, 11, 12, 13, 17, 18):
            for isolation in (0, 1):
                rows = [{"partition": 0, "fetchOffset": offset, "partitionMaxBytes": 1 << 20} for offset in (0,)]
                wanted = [{"topic": name, "topicId": ids, "partitions": rows} for name, ids in names]
                body = {"maxWaitMs": 0, "minBytes": 0, "isolationLevel": isolation, "topics": wanted}
                found[f"Fetch {version} {isolation}"] = wire.ask("Fetch", version, body)
        for offset in (3, 17, 59, 60, 61, -1):
            rows = [{"partition": 0, "fetchOffset": offset, "partitionMaxBytes": 10}]
            body = {"maxWaitMs": 0, "minBytes": 0, "topics": [{"topic": "none", "partitions": rows}]}
            found[f"Fetch from {offset}"] = wire.ask("Fetch", 12, body)
        for offset, last_epoch in ((17, 0), (59, 0), (60, 0), (61, 0), (900, 0), (17, 3), (900, 3), (-1, 0)):
            rows = [{"partition": 0, "fetchOffset": offset, "lastFetchedEpoch": last_epoch, "partitionMaxBytes": 10}]
            body = {"maxWaitMs": 0, "minBytes": 0, "topics": [{"topic": "none", "partitions": rows}]}
            found[f"Fetch from {offset} after epoch {last_epoch}"] = wire.ask("Fetch", 12, body)
        body = {"maxWaitMs": 0, "minBytes": 0, "sessionId": 77, "sessionEpoch": 5, "topics": []}
        found["Fetch in a session"] = wire.ask("Fetch", 12, body)
        rows = [{"partition": 0, "leaderEpoch": epoch, "currentLeaderEpoch": -1} for epoch in (0, 9)]
        wanted = [{"topic": name, "partitions": rows[:1]} for name in TOPICS]
        found["OffsetForLeaderEpoch"] = wire.ask("OffsetForLeaderEpoch", 4, {"replicaId": -1, "topics": wanted})
        for version in (1, 5, 7):
            wanted = [{"name": "none", "partitionIndexes": [0]}, {"name": "zstd", "partitionIndexes": [0]}]
            found[f"OffsetFetch {version}"] = wire.ask("OffsetFetch", version, {"groupId": GROUP, "topics": wanted})
        groups = [{"groupId": name, "topics": None} for name in (GROUP, NOT_FOUND)]
        found["OffsetFetch 8"] = wire.ask("OffsetFetch", 8, {"groups": groups})
        for version in (4, 6):
            found[f"DescribeGroups {version}"] = wire.ask("DescribeGroups", version, {"groups": [GROUP, NOT_FOUND]})
        groups = wire.ask("ListGroups", 5, {"statesFilter": ["Empty"]})["groups"]
        # The console consumer's own group: it has no offsets from which to continue.
        found["ListGroups"] = {"groups": [one for one in groups if not one["groupId"].startswith("console-consumer-")]}
        member = {"groupId": NOT_FOUND, "memberId": "x", "generationId": 3, "groupInstanceId": None}
        found["Heartbeat"] = wire.ask("Heartbeat", 4, member)
        found["SyncGroup"] = wire.ask("SyncGroup", 5, member | {"protocolType": "consumer", "protocolName": "range"})
        found["JoinGroup"] = wire.ask("JoinGroup", 7, _joining("x", 10_000, "consumer"))
        found["JoinGroup too short"] = wire.ask("JoinGroup", 7, _joining("", 1, "consumer"))
        found["JoinGroup without a kind"] = wire.ask("JoinGroup", 7, _joining("", 10_000, ""))
        found["DescribeAcls"] = {"errorCode": wire.ask("DescribeAcls", 3, _all_acls())["errorCode"]}
    return found


def _joining(member: str, session_ms: int, kind: str) -> Data:
    protocols = [{"name": "range", "metadata": b""}]
    who = {"groupId": NOT_FOUND, "memberId": member, "protocolType": kind, "protocols": protocols}
    return who | {"sessionTimeoutMs": session_ms, "rebalanceTimeoutMs": 1000}


def _all_acls() -> Data:
    return {"resourceTypeFilter": 1, "patternTypeFilter": 1, "operation": 1, "permissionType": 1}


def in_order(value: Any) -> Any:
    """Return an answer with its lists sorted: a broker has many of them in the order of some hash."""
    if isinstance(value, dict):
        return {key: in_order(one) for key, one in value.items()}
    if isinstance(value, list):
        return sorted(map(in_order, value), key=repr)
    return value


def _placeless(metadata: Data) -> Data:
    """Return an answer without where the node is, which is elsewhere by now."""
    brokers = [{"nodeId": one["nodeId"], "rack": one["rack"]} for one in metadata["brokers"]]
    return metadata | {"brokers": brokers}


def test_raw_answers_are_those_of_the_broker(broker: Heard, disk: Serving) -> None:
    """Member for member, records byte for byte."""
    found = asked(disk.port)
    different = [name for name in broker.raw if in_order(found[name]) != in_order(broker.raw[name])]
    assert different == [], "\n".join(
        f"{n}\n  {str(broker.raw[n])[:1500]}\n  {str(found[n])[:1500]}" for n in different
    )


# ---------------------------------------------------------------- clients


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("client", READERS)
def test_clients_are_handed_what_the_broker_handed_them(
    broker: Heard, disk: Serving, client: str, topic: str, isolation: str
) -> None:
    assert READERS[client](disk.bootstrap, topic, isolation, None) == broker.rows[client, topic, isolation]


def tool(bootstrap: str, name: str, *arguments: str) -> list[str]:
    """Return the lines that a tool of Kafka's prints."""
    given = ("--bootstrap-server", bootstrap, *arguments)
    if name == "ConfigCommand":
        command = kafka.java(kafka.NEWEST, f"kafka.admin.{name}", *given)
        stdout = subprocess.run(command, capture_output=True, timeout=120, check=False).stdout
    else:
        stdout = kafka.Tools().run_class(f"org.apache.kafka.tools.{name}", *given).stdout
    lines = stdout.decode("utf-8", "surrogateescape").split("\n")
    return sorted(line for line in lines if line)


def group_of(bootstrap: str) -> str:
    """Return a group's name: records that one has read at the broker it would not read again from its disk."""
    return f"java-{bootstrap.rpartition(':')[2]}"


def tools(bootstrap: str) -> dict[str, list[str]]:
    """Return the output of Java's tools for a broker."""
    shown = ("print.offset", "print.partition", "print.timestamp", "print.key", "print.headers")
    properties = [word for name in shown for word in ("--formatter-property", f"{name}=true")]
    console = ("--from-beginning", "--timeout-ms", "6000", *properties)
    group = "consumer.group.ConsumerGroupCommand"
    return {
        "console, in a group": tool(
            bootstrap, "consumer.ConsoleConsumer", "--topic", "none", "--group", group_of(bootstrap), *console
        ),
        "console, committed": tool(
            bootstrap, "consumer.ConsoleConsumer", "--topic", "tx", "--isolation-level", "read_committed", *console
        ),
        "offsets": tool(bootstrap, "GetOffsetShell", "--topic", "|".join(TOPICS)),
        "offsets by time": tool(bootstrap, "GetOffsetShell", "--topic", "|".join(TOPICS), "--time", str(TIMES[2])),
        "offsets of the largest times": tool(bootstrap, "GetOffsetShell", "--topic", "|".join(TOPICS), "--time", "-3"),
        "topics": tool(bootstrap, "TopicCommand", "--list", "--exclude-internal"),
        "groups": tool(bootstrap, group, "--describe", "--group", GROUP),
        "topics in full": _described(tool(bootstrap, "TopicCommand", "--describe", "--exclude-internal")),
        "settings": _described(tool(bootstrap, "ConfigCommand", "--describe", "--topic", "empty")),
    }


def _described(lines: list[str]) -> list[str]:
    """Return lines without parts that only a live broker has: eligible leaders, and its own settings behind a
    topic's."""
    return sorted(re.split(r"\tElr: |\tConfigs: | synonyms=", line)[0] for line in lines if "__" not in line)


def test_java_is_told_what_the_broker_told_it(broker: Heard, disk: Serving) -> None:
    """Console consumer with and without a group, offsets, topics, groups: Kafka's own tools, unchanged."""
    found = tools(disk.bootstrap)
    assert all(broker.java.values()), broker.java
    for name in broker.java:
        assert found[name] == broker.java[name], name


def test_a_java_producer_is_told_why_at_once(disk: Serving) -> None:
    name = "org.apache.kafka.tools.ConsoleProducer"
    command = kafka.java(kafka.NEWEST, name, "--bootstrap-server", disk.bootstrap, "--topic", "none", logged="error")
    done = subprocess.run(command, input="x\n", capture_output=True, text=True, timeout=60, check=False)
    assert "PolicyViolationException: klog serve is read-only" in done.stdout + done.stderr
