"""Committed offsets that real brokers remove at their first check, beside those that `klog doctor` names."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.formats.java_hash_map import java_hash

from tests.brokers import clients, kafka
from tests.conftest import Ran, writable_copy
from tests.support.group_records import DAY_MS, append, classic, commit, consumer

pytestmark = pytest.mark.kafka
Klog = Callable[..., Ran]
CHECK_S, SESSION_S = 5, 20
SETTINGS = {
    "offsets.retention.check.interval.ms": str(CHECK_S * 1000),
    "group.consumer.session.timeout.ms": str(SESSION_S * 1000),
    "group.consumer.min.session.timeout.ms": "1000",
}
NOW_MS = int(time.time() * 1000)
OLD, YOUNG = NOW_MS - 8 * DAY_MS, NOW_MS - 6 * DAY_MS


def groups(version: str, topic_id: str) -> dict[str, list[tuple[bytes, bytes]]]:
    """Return records by the group's name."""
    found = {
        "simple-old": [commit("simple-old", OLD)],
        "simple-young": [commit("simple-young", YOUNG)],
        "simple-both": [commit("simple-both", OLD), commit("simple-both", YOUNG, 1)],
        "empty-old": [commit("empty-old", OLD), classic("empty-old", OLD)],
        "empty-young": [commit("empty-young", OLD), classic("empty-young", YOUNG)],
        "empty-without-time": [commit("empty-without-time", OLD), classic("empty-without-time", -1, version=1)],
        "late-commit": [commit("late-commit", YOUNG), classic("late-commit", OLD)],
        "connect-old": [commit("connect-old", OLD), classic("connect-old", OLD, "connect")],
        "no-type": [commit("no-type", YOUNG), classic("no-type", OLD, "")],
        "member": [commit("member", OLD), classic("member", OLD, members=1)],
        "own-time-over": [commit("own-time-over", NOW_MS, expires_ms=NOW_MS - 1000)],
        "own-time-left": [commit("own-time-left", OLD, expires_ms=NOW_MS + DAY_MS)],
    }
    if version == kafka.NEWEST:
        found |= {
            "new-old": [commit("new-old", OLD), *consumer("new-old", topic_id, member=False)],
            "new-young": [commit("new-young", YOUNG), *consumer("new-young", topic_id, member=False)],
            "new-member": [commit("new-member", OLD), *consumer("new-member", topic_id, member=True)],
        }
    return found


def committed(bootstrap: str, names: list[str]) -> dict[str, list[int]]:
    """Return the partitions of t of which each group has an offset."""
    places = [("t", 0), ("t", 1)]
    return {name: sorted(number for _, number in clients.committed(bootstrap, name, places)) for name in names}


def first_commit(bootstrap: str) -> None:
    """Commit an offset in each of both partitions of the coordinators, which makes them."""
    from confluent_kafka import Consumer, TopicPartition

    for name in ("a", "b"):
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name, **clients.SILENT})
        clients.coordinated(consumer.commit, offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
        consumer.close()


def old_disk(cluster: kafka.Cluster) -> dict[str, list[int]]:
    """Leave a disk with `groups`, as after a kill; return the partitions of which each has an offset."""
    with cluster:
        clients.create(cluster.bootstrap, {"t": {}}, partitions=2)
        first_commit(cluster.bootstrap)
        cluster.stop()
    written = groups(cluster.version, Partition(str(cluster.data / "t-0")).topic_id or "")
    for part in LogDir(str(cluster.data)).partitions:
        if part.topic == "__consumer_offsets":
            pairs = [pair for name, rows in written.items() if java_hash(name) % 2 == part.number for pair in rows]
            assert part.log_end is not None
            append(Path(part.path), pairs, part.log_end.offset, NOW_MS)
    (cluster.data / ".kafka_cleanshutdown").unlink()
    return {name: [0, 1] if name == "simple-both" else [0] for name in written}


def after_checks(cluster: kafka.Cluster, written: dict[str, list[int]], seconds: float) -> dict[str, list[int]]:
    """Return the offsets when the broker has made a check, and one so much later."""
    until = time.monotonic() + clients.WAIT_S
    while committed(cluster.bootstrap, ["own-time-over"])["own-time-over"]:
        assert time.monotonic() < until, "no check"
        time.sleep(0.2)
    time.sleep(seconds)
    return committed(cluster.bootstrap, list(written))


@pytest.mark.parametrize("version", [kafka.NEWEST, kafka.BEFORE, pytest.param(kafka.LEGACY, marks=pytest.mark.long)])
def test_a_real_broker_removes_those_that_are_named(version: str, klog: Klog, tmp_path: Path) -> None:
    """At its first check, and none of the others; with the setting that the note names, it removes none of them."""
    cluster = kafka.Cluster(version, tmp_path / "first", settings=SETTINGS)
    written = old_disk(cluster)
    ask = ("doctor", "--kafka-version", version[:3], "--output", "json")
    told = json.loads(klog(*ask, cluster.data).stdout)
    due = {one["group"]: one for one in told["offsets"]}
    notes = [one["message"] for one in told["notes"] if one["id"] == "offsets-due"]

    kept = kafka.Cluster(version, tmp_path / "kept", settings=SETTINGS | dict([advice(notes[0]).split("=")]))
    writable_copy(cluster.data, kept.data)
    if not kept.kraft:
        writable_copy(cluster.folder / "zookeeper", kept.folder / "zookeeper")
    with kept:
        assert after_checks(kept, written, CHECK_S + 1) == written | {"own-time-over": []}
        kept.stop()

    with cluster:
        found = after_checks(cluster, written, 1)
        members = {name for name, one in due.items() if one["has_members"]}
        assert members == ({"new-member"} if version == kafka.NEWEST else set())
        assert {name: len(numbers) for name, numbers in found.items()} == {
            name: len(numbers) - (due[name]["offsets"] if name in due.keys() - members else 0)
            for name, numbers in written.items()
        }
        assert found["simple-both"] == [1], "each offset has its own time"
        time.sleep((SESSION_S if members else 6) + 2 * CHECK_S)
        assert committed(cluster.bootstrap, list(written)) == found | {name: [] for name in members}


def advice(note: str) -> str:
    """Return the setting that a note names."""
    return note.partition("first: set ")[2].split()[0]
