"""`klog dump --output jsonl` against the records of a real consumer, one by one, from brokers started here."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import clients, kafka
from tests.brokers.clients import Received, records
from tests.conftest import Ran, run_klog
from tests.oracles.dump_compare import Comparison

pytestmark = pytest.mark.kafka

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ISOLATIONS = ("read_uncommitted", "read_committed")
OLD_CODECS = CODECS[:4]
FORMATS = {"v0": ("0.9.0", "0.9.0.1"), "v1": ("0.10.2", "0.10.0.0")}
MODERN_TOPICS = (*CODECS, "recompressed", "append-time", "tx-none", "tx-zstd", "tx-open")
BY_CODEC = {f"{magic}-{codec}": (magic, codec) for magic in FORMATS for codec in OLD_CODECS}
OLD_TOPICS = (*BY_CODEC, "v1-append-time", "v0-then-v2")


@dataclass(frozen=True)
class Stopped:
    """A stopped broker's log dir, and the records of a consumer before: (topic, isolation) → records."""

    data: Path
    handed: dict[tuple[str, str], list[Received]]


@pytest.fixture(scope="module")
def modern(tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    folder = tmp_path_factory.mktemp("modern")
    with kafka.Cluster(kafka.NEWEST, folder) as cluster:
        settings: dict[str, dict[str, str]] = {topic: {} for topic in MODERN_TOPICS}
        settings["recompressed"] = {"compression.type": "snappy"}
        settings["append-time"] = {"message.timestamp.type": "LogAppendTime", "compression.type": "gzip"}
        settings["tx-none"] = {"internal.segment.bytes": "60000"}
        clients.create(cluster.bootstrap, settings)
        for client, produce in clients.PRODUCERS.items():
            for codec in CODECS:
                produce(cluster.bootstrap, codec, codec, records(client, 50))
            produce(cluster.bootstrap, "recompressed", "none", records(client, 40))
            produce(cluster.bootstrap, "append-time", "none", records(client, 40))
            for codec in ("none", "zstd"):
                produce(cluster.bootstrap, f"tx-{codec}", codec, records(client, 60), transaction=f"{client}-{codec}")
        clients.with_librdkafka(cluster.bootstrap, "tx-open", "none", records("before", 20))
        with clients.open_transaction(cluster.bootstrap, "tx-open", records("undecided", 15)):
            clients.with_librdkafka(cluster.bootstrap, "tx-open", "lz4", records("after", 20))
            handed = {(t, i): clients.consume(cluster.bootstrap, t, i) for t in MODERN_TOPICS for i in ISOLATIONS}
            cluster.stop()
    return Stopped(cluster.data, handed)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    folder = tmp_path_factory.mktemp("old")
    # Not the port of the other broker: its transaction's producer may still be looking for it there.
    with kafka.Cluster(kafka.LEGACY, folder, port=kafka.PORT + 10) as cluster:
        at = cluster.bootstrap
        settings = {topic: {"message.format.version": FORMATS[magic][0]} for topic, (magic, _) in BY_CODEC.items()}
        settings["v1-append-time"] = {"message.format.version": "0.10.2", "message.timestamp.type": "LogAppendTime"}
        settings["v0-then-v2"] = {"message.format.version": "0.9.0"}
        clients.create(at, settings)
        for topic, (magic, codec) in BY_CODEC.items():
            # As a client of that age, which writes that magic itself; then as one of today, and the broker converts.
            age: dict[str, Any] = {"api_version_request": False, "broker_version_fallback": FORMATS[magic][1]}
            clients.with_librdkafka(at, topic, codec, records(f"old {magic}", 50, headers=False), **age)
            clients.with_librdkafka(at, topic, codec, records("new", 50, headers=False))
        for codec in OLD_CODECS:
            clients.with_librdkafka(at, "v1-append-time", codec, records(codec, 20, headers=False))
        clients.with_librdkafka(at, "v0-then-v2", "gzip", records("before", 30, headers=False))
        set_format(at, "v0-then-v2", "2.8")
        clients.with_librdkafka(at, "v0-then-v2", "zstd", records("after", 30))
        handed = {(topic, i): clients.consume(at, topic, i) for topic in OLD_TOPICS for i in ISOLATIONS}
        cluster.stop()
    return Stopped(cluster.data, handed)


def set_format(bootstrap: str, topic: str, version: str) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    entry = ConfigEntry("message.format.version", version, incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = clients.admin(bootstrap)
    for future in admin.incremental_alter_configs([changed]).values():
        future.result(clients.WAIT_S)
    time.sleep(2)  # the broker learns of it from ZooKeeper


def received(line: str) -> Received:
    """Return a line of jsonl as the record a consumer would have seen."""
    row = json.loads(line)
    headers = tuple((name, _bytes(value)) for name, value in row["headers"])
    kind = row.get("timestamp_type", "NoTimestampType" if row["timestamp"] == -1 else "CreateTime")
    key, value = (
        base64.b64decode(row[f"{name}_base64"], validate=True) if f"{name}_base64" in row else _bytes(row[name])
        for name in ("key", "value")
    )
    return Received(row["offset"], row["timestamp"], kind, key, value, headers, row.get("leader_epoch"))


def _bytes(value: str | dict[str, str] | None) -> bytes | None:
    if isinstance(value, dict):
        return base64.b64decode(value["base64"], validate=True)
    return None if value is None else value.encode()


def dumped(partition: Path, *options: str) -> list[Received]:
    ran = run_klog("dump", partition, "--output", "jsonl", "--no-control", *options)
    assert (ran.exit_code, ran.stderr) == (0, b"")
    return [received(line) for line in ran.stdout.decode().split("\n")[:-1]]


def check(stopped: Stopped, topic: str, isolation: str) -> None:
    handed = stopped.handed[topic, isolation]
    found = dumped(stopped.data / f"{topic}-0", "--isolation", isolation)
    assert [record.offset for record in found] == [record.offset for record in handed]
    for ours, theirs in zip(found, handed, strict=True):
        assert ours == theirs


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("topic", MODERN_TOPICS)
def test_every_record_is_what_a_consumer_was_handed(topic: str, isolation: str, modern: Stopped) -> None:
    """Offset, timestamp and its type, key, value, headers, leader epoch: of every record, and of no other."""
    check(modern, topic, isolation)


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("topic", OLD_TOPICS)
def test_every_record_of_an_old_format_is_what_a_consumer_was_handed(topic: str, isolation: str, old: Stopped) -> None:
    """Message sets of magic 0 and 1: nested, with relative offsets, and lz4 frames with the checksum of those days."""
    check(old, topic, isolation)


def test_the_topics_hold_what_they_are_for(modern: Stopped, old: Stopped) -> None:
    """Comparing two empty lists proves nothing."""
    counts = {key: len(handed) for key, handed in (modern.handed | old.handed).items()}
    assert all(counts[codec, "read_uncommitted"] >= 140 for codec in CODECS)
    assert all(counts[topic, "read_uncommitted"] >= 60 for topic in OLD_TOPICS)
    for topic in ("tx-none", "tx-zstd"):  # two of six transactions of each client abort
        assert 0.5 < counts[topic, "read_committed"] / counts[topic, "read_uncommitted"] < 0.8
    assert (counts["tx-open", "read_uncommitted"], counts["tx-open", "read_committed"]) == (55, 20)
    assert len(list((modern.data / "tx-none-0").glob("*.log"))) > 1
    magics = {
        topic: {line.split(" magic: ")[1][0] for line in batch_lines(old.data / f"{topic}-0")} for topic in OLD_TOPICS
    }
    assert magics == {topic: {topic[1]} for topic in OLD_TOPICS[:-1]} | {"v0-then-v2": {"0", "2"}}
    assert {record.timestamp_type for record in old.handed["v0-gzip", "read_committed"]} == {"NoTimestampType"}
    assert {record.timestamp_type for record in modern.handed["append-time", "read_committed"]} == {"LogAppendTime"}
    headers = [header for record in modern.handed["zstd", "read_committed"] for header in record.headers]
    assert ("nothing", None) in headers
    assert ("bytes", b"\x00\xff\n") in headers


def batch_lines(partition: Path) -> list[str]:
    logs = sorted(map(str, partition.glob("*.log")))
    lines = run_klog("dump", "--files", ",".join(logs)).stdout.decode().splitlines()
    return [line for line in lines if " magic: " in line]


def test_control_records_are_rows_of_their_own(modern: Stopped) -> None:
    """Markers take offsets; without them an operator would see gaps and think of loss."""
    ran = run_klog("dump", modern.data / "tx-none-0", "--output", "jsonl")
    rows = [json.loads(line) for line in ran.stdout.decode().split("\n")[:-1]]
    assert [row["offset"] for row in rows] == list(range(len(rows)))
    markers = [row for row in rows if "control" in row]
    data = {record.offset for record in modern.handed["tx-none", "read_uncommitted"]}
    assert {row["offset"] for row in rows} - data == {row["offset"] for row in markers}
    assert {row["control"] for row in markers} == {"COMMIT", "ABORT"}
    assert all(row["coordinator_epoch"] >= 0 and not {"key", "value", "headers"} & set(row) for row in markers)


@pytest.fixture(scope="module")
def comparison() -> Iterator[Comparison]:
    with kafka.DumpTool() as tool:
        yield Comparison(tool, run_klog)


def test_what_these_brokers_left_is_dumped_as_kafka_does(
    modern: Stopped, old: Stopped, comparison: Comparison, klog: Callable[..., Ran]
) -> None:
    """The whole log dirs, internal topics and all: fresh data, of other clients and sizes than the stored images."""
    comparison.tree(modern.data)
    comparison.tree(old.data)
    assert comparison.runs > 300
    assert not comparison.differences, comparison.report()
