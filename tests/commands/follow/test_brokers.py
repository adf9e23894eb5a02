"""Copies of what real brokers of three versions, and `klog serve`, give: equal to the leader's disk, byte for byte."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.brokers import clients, kafka
from tests.commands.serve.serving import Serving
from tests.conftest import run_klog

pytestmark = pytest.mark.kafka
PATIENCE_S = 60
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SMALL = {kafka.NEWEST: "internal.segment.bytes", kafka.BEFORE: "segment.bytes", kafka.LEGACY: "segment.bytes"}
"""How topics get small segments."""


class Copied(NamedTuple):
    """A broker that runs, with an open transaction, and the copy of its topics."""

    cluster: kafka.Cluster
    path: Path
    result: dict[str, object]

    def follow(self, *options: str) -> dict[str, object]:
        return follow(self.cluster.bootstrap, self.path, *options)


def follow(bootstrap: str, path: Path, *options: str) -> dict[str, object]:
    """Run klog follow until it has caught up; return its result."""
    done = run_klog("follow", bootstrap, "--to", path, "--output", "json", *options)
    assert done.exit_code == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def log(directory: Path) -> bytes:
    """Return the batches of all segments of a partition."""
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def partitions(data: Path) -> dict[str, bytes]:
    """Return the logs of the partitions of a log dir, by directory."""
    return {path.name: log(path) for path in sorted(data.glob("t.*-*"))}


def times(path: Path) -> dict[str, int]:
    """Return when each file of the partitions was changed."""
    return {str(file.relative_to(path)): file.stat().st_mtime_ns for file in path.rglob("*/*")}


def produce(cluster: kafka.Cluster) -> None:
    """Topics of all codecs, transactions, log append time, small segments, and a compacted one."""
    small = {SMALL[cluster.version]: "60000"}
    topics = {f"t.{codec}": small for codec in CODECS}
    topics |= {"t.tx": small, "t.open": {}, "t.stamp": {"message.timestamp.type": "LogAppendTime"}, "t.empty": {}}
    compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "200"}
    clients.create(cluster.bootstrap, {**topics, "t.compact": compacted}, partitions=2)
    for codec in CODECS:
        for number in range(2):
            given = clients.records(f"{codec}-{number}", 200)
            clients.with_librdkafka(cluster.bootstrap, f"t.{codec}", codec, given, partition=number)
    clients.with_librdkafka(cluster.bootstrap, "t.tx", "lz4", clients.records("tx", 90), transaction="klog-tests")
    clients.with_librdkafka(cluster.bootstrap, "t.stamp", "zstd", clients.records("stamp", 100))
    for turn in range(3):
        keyed = [one for one in clients.records(f"keys-{turn % 2}", 200) if one.key and len(one.value or b"") < 5000]
        clients.with_librdkafka(cluster.bootstrap, "t.compact", "none", keyed)
        time.sleep(0.3)
    until = time.monotonic() + PATIENCE_S
    while (cluster.data / "t.compact-0" / ("0" * 20 + ".log")).stat().st_size > 12_000:
        assert time.monotonic() < until, "nothing was compacted"
        time.sleep(0.1)


@pytest.fixture(scope="module", params=[kafka.NEWEST, kafka.BEFORE, kafka.LEGACY])
def copied(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copied]:
    """The first run takes pieces of any size; batches that are larger come all the same."""
    folder = tmp_path_factory.mktemp(f"follow-{request.param}")
    settings = {"log.cleaner.backoff.ms": "100"}
    with kafka.Cluster(request.param, folder, settings=settings) as cluster:
        produce(cluster)
        with clients.open_transaction(cluster.bootstrap, "t.open", clients.records("open", 30)):
            path = folder / "copy"
            result = follow(cluster.bootstrap, path, "--partition-bytes", "3001", "--fetch-bytes", "20007")
            yield Copied(cluster, path, result)


def test_a_copy_has_the_leaders_batches(copied: Copied) -> None:
    """All codecs, transactions committed, aborted and open, broker's timestamps, holes of the cleaner: every byte."""
    wanted = partitions(copied.cluster.data)
    assert partitions(copied.path) == wanted
    assert sum(map(bool, wanted.values())) >= 14
    rows = copied.result["partitions"]
    assert isinstance(rows, list)
    assert {f"{row['topic']}-{row['partition']}": row["copied_bytes"] for row in rows} == {
        name: len(content) for name, content in wanted.items()
    }
    assert all(row["high_watermark"] == row["log_end_offset"] and row["error"] is None for row in rows)


def test_topic_ids_and_leader_epochs_are_the_leaders(copied: Copied) -> None:
    """These show later whether a directory is a copy of another, and at which offset histories diverge."""
    for directory in sorted(copied.path.glob("t.*-*")):
        leader = copied.cluster.data / directory.name
        names = ["partition.metadata"] if log(directory) == b"" else ["partition.metadata", "leader-epoch-checkpoint"]
        if directory.name == "t.compact-0":
            names.remove("leader-epoch-checkpoint")  # begins at the first batch that is left
        for name in names:
            if name == "partition.metadata" and copied.cluster.version == kafka.LEGACY:
                continue  # Kafka 2.8 gives ids to topics only without ZooKeeper
            assert (directory / name).read_bytes() == (leader / name).read_bytes(), (directory.name, name)


def test_another_run_writes_nothing(copied: Copied) -> None:
    """Nor does it touch: time decides in backups, in --since, and in retention by time."""
    before = times(copied.path)
    result = copied.follow()
    assert times(copied.path) == before
    rows = result["partitions"]
    assert isinstance(rows, list)
    assert {row["copied_bytes"] for row in rows} == {0}


def test_nothing_is_wrong_with_a_copy(copied: Copied) -> None:
    """Its compacted topics have gaps, which is no finding if klog-follow.json lists them as compacted."""
    done = run_klog("verify", "--deep", copied.path)
    assert done.exit_code == 0, done.stdout


def test_a_copy_is_served_and_copied_again(copied: Copied) -> None:
    """`klog serve` gives no fetch sessions, and the bytes are still the broker's."""
    again = copied.path.parent / "again"
    with Serving(copied.path) as serving:
        follow(serving.bootstrap, again)
        before = times(again)
        follow(serving.bootstrap, again)
    assert partitions(again) == partitions(copied.path)
    assert times(again) == before


def test_a_copy_is_written_back(copied: Copied) -> None:
    """`klog write` takes its batches, with their offsets, into another log dir."""
    restored = copied.path.parent / "restored"
    done = run_klog("write", copied.path, "--to", restored, "--keep-offsets")
    assert done.exit_code == 0, done.stderr
    wanted = {name: content for name, content in partitions(copied.path).items() if content}
    assert {name: content for name, content in partitions(restored).items() if content} == wanted
    # Small segments, as in the topics' settings in klog-follow.json.
    segments = [len(list((path / "t.tx-0").glob("*.log"))) for path in (copied.path, restored)]
    assert segments[0] == segments[1] > 1


def test_internal_topics_are_copied_when_that_is_asked_for(copied: Copied) -> None:
    """With the transaction's coordinator log and the groups' offsets a copy serves the same as the cluster would."""
    path = copied.path.parent / "internal"
    follow(copied.cluster.bootstrap, path, "--internal", "--topic", "__transaction_state")
    for number in range(2):
        name = f"__transaction_state-{number}"
        assert log(path / name) == log(copied.cluster.data / name)
    assert sorted(one.name for one in path.glob("*-*") if one.is_dir()) == [
        "__transaction_state-0",
        "__transaction_state-1",
    ]


def test_groups_and_settings_are_kept_beside_the_logs(copied: Copied) -> None:
    """The committed offsets of groups, and the settings of topics themselves."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": copied.cluster.bootstrap, "group.id": "klog-group", **clients.SILENT}
    consumer = Consumer(settings)
    consumer.commit(offsets=[TopicPartition("t.none", 1, 17)], asynchronous=False)
    consumer.close()
    copied.follow()
    found = json.loads((copied.path / "klog-follow.json").read_text())
    assert [{**one, "leader_epoch": -1} for one in found["groups"]["klog-group"] if one["topic"] == "t.none"] == [
        {"topic": "t.none", "partition": 1, "offset": 17, "leader_epoch": -1, "metadata": ""}
    ]
    assert found["topics"]["t.compact"]["partitions"] == 2
    assert found["topics"]["t.compact"]["config"]["cleanup.policy"] == "compact"
    assert found["topics"]["t.open"]["config"] == {}


def test_it_goes_on_until_it_is_stopped(copied: Copied) -> None:
    """--continuous follows new records, and new topics too; SIGTERM ends it soon, with everything on the disk."""
    path = copied.path.parent / "continuous"
    command = [sys.executable, "-m", "klog_cli.app", "follow", copied.cluster.bootstrap, "--to", str(path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(one for one in sys.path if one)}
    process = subprocess.Popen(
        [*command, "--continuous", "--topic", "t.none", "--topic", "later.*", "--max-wait", "20s"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    try:
        _await(lambda: log(path / "t.none-0") == log(copied.cluster.data / "t.none-0") != b"")
        clients.create(copied.cluster.bootstrap, {"later.one": {}})
        clients.with_librdkafka(copied.cluster.bootstrap, "later.one", "gzip", clients.records("later", 50))
        wanted = log(copied.cluster.data / "later.one-0")
        _await(lambda: log(path / "later.one-0") == wanted)
        process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        said, complained = process.communicate(timeout=PATIENCE_S)
        assert time.monotonic() - began < 19  # it does not wait for the answer to its fetch
        assert process.returncode == 0, complained
        assert re.search(r"later.one-0  offsets 0–49,", said)
    finally:
        process.kill()
        process.communicate()
    assert run_klog("verify", "--deep", path).exit_code == 0


def _await(holds: object) -> None:
    assert callable(holds)
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.1)
