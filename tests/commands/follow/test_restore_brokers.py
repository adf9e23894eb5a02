"""The backup of docs/follow.md, as on the page: made by cron and by systemd, served, and put back into a broker."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.brokers import clients, kafka
from tests.commands.follow.following import batches
from tests.commands.serve.serving import Serving
from tests.conftest import ROOT, Ran, run_klog

pytestmark = pytest.mark.kafka
ISOLATIONS = ("read_uncommitted", "read_committed")
TOPICS = {"orders": 2, "paid": 1, "stamped": 1}
GROUP, COMMITTED = "billing", 7
Lines = dict[str, list[str]]
"""The records of a Java consumer, by isolation level."""


def page() -> str:
    return (ROOT / "docs/follow.md").read_text(encoding="utf-8")


def blocks(title: str) -> list[str]:
    """Return the text between fences in a section."""
    return re.findall(r"```\n(.*?)```", page().partition(f"\n## {title}\n")[2].partition("\n## ")[0], re.DOTALL)


def java(bootstrap: str) -> Lines:
    """Return the records of all topics as a Java consumer has them."""
    found = {}
    for isolation in ISOLATIONS:
        program = kafka.program(kafka.NEWEST, "ReadRecords", bootstrap, isolation, *TOPICS)
        done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=180)
        assert done.returncode == 0, done.stderr[-2000:]
        found[isolation] = sorted(done.stdout.splitlines())
    return found


def fill(bootstrap: str) -> None:
    """All codecs, transactions that were committed and aborted, the broker's own timestamps, and a group."""
    from confluent_kafka import Consumer, TopicPartition

    for number, codec in enumerate(("lz4", "zstd", "gzip", "snappy", "none")):
        given = clients.records(codec, 40)
        clients.with_librdkafka(bootstrap, "orders", codec, given, partition=number % 2)
    clients.with_librdkafka(bootstrap, "paid", "lz4", clients.records("paid", 60), transaction="klog-tests")
    clients.with_librdkafka(bootstrap, "stamped", "none", clients.records("stamped", 30), enable_idempotence="true")
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, **clients.SILENT})
    consumer.commit(offsets=[TopicPartition("orders", 1, COMMITTED)], asynchronous=False)
    consumer.close()


def create(bootstrap: str) -> None:
    clients.create(bootstrap, {"orders": {"segment.ms": "600000"}}, partitions=2)
    clients.create(bootstrap, {"paid": {}, "stamped": {"message.timestamp.type": "LogAppendTime"}})


def remove(bootstrap: str) -> None:
    """Delete all topics; return when they are deleted."""
    client = clients.admin(bootstrap)
    for future in client.delete_topics([*TOPICS]).values():
        future.result(clients.WAIT_S)
    until = time.monotonic() + clients.WAIT_S
    while {*TOPICS} & {*client.list_topics(timeout=clients.WAIT_S).topics}:
        assert time.monotonic() < until
        time.sleep(0.1)


@dataclass
class Story:
    """The events, and the observations; *copied*: the copy after the cron line, and then after the service."""

    folder: Path
    wanted: Lines = field(default_factory=dict)
    served: Lines = field(default_factory=dict)
    restored: Lines = field(default_factory=dict)
    copied: list[tuple[int, dict[str, bytes]]] = field(default_factory=list)
    leader: list[dict[str, bytes]] = field(default_factory=list)
    resumed: int = -1
    writes: list[Ran] = field(default_factory=list)
    wrote: dict[str, bytes] = field(default_factory=dict)
    kept: dict[str, bytes] = field(default_factory=dict)
    said: str = ""
    appended: int = -1

    @property
    def copy(self) -> Path:
        return self.folder / "backup"

    @property
    def program(self) -> Path:
        return self.folder / "klog"

    def words(self, line: str, bootstrap: str) -> str:
        """Return a line of the page, with the places of this test."""
        line = line.replace("broker-1:9092,broker-2:9092", bootstrap).replace("/backup/kafka", str(self.copy))
        line = line.replace("/var/log/klog-follow.log", str(self.folder / "follow.log"))
        return line.replace("/usr/bin/klog", "klog").replace("klog ", f"{self.program} ", 1)

    def back_up(self, line: str, data: Path, bootstrap: str) -> None:
        """Run a line of the page in a shell, as cron does."""
        done = subprocess.run(self.words(line, bootstrap), shell=True, check=False, timeout=300, capture_output=True)
        self.copied.append((done.returncode, logs(self.copy)))
        self.leader.append(logs(data))


def logs(data: Path) -> dict[str, bytes]:
    """Return the batches of the topics' partitions."""
    return {path.name: batches(path) for topic in TOPICS for path in sorted(data.glob(f"{topic}-[0-9]"))}


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Backups, a disaster, and the way back: everything once."""
    told = Story(tmp_path_factory.mktemp("restore"))
    path = ":".join(one for one in sys.path if one)
    told.program.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(path)} exec {sys.executable} -m klog_cli.app "$@"\n')
    told.program.chmod(0o755)
    cron, service, _ = blocks("An hourly backup")
    with kafka.Cluster(kafka.NEWEST, told.folder / "broker") as cluster:
        create(cluster.bootstrap)
        fill(cluster.bootstrap)
        told.back_up(" ".join(cron.split()[5:]), cluster.data, cluster.bootstrap)
        clients.with_librdkafka(cluster.bootstrap, "orders", "zstd", clients.records("more", 20))
        told.back_up(service.partition("ExecStart=")[2].partition("\n")[0], cluster.data, cluster.bootstrap)
        told.wanted = java(cluster.bootstrap)
        with Serving(told.copy) as serving:
            told.served = java(serving.bootstrap)
            told.resumed = committed(serving.bootstrap)
        remove(cluster.bootstrap)
        create(cluster.bootstrap)
        cluster.stop()
        put_back(told, cluster.data)
        said = len(cluster.log())
        told.wrote = logs(cluster.data)
        cluster.start()
        told.restored = java(cluster.bootstrap)
        told.kept = logs(cluster.data)
        given = clients.records("new", 5)
        clients.with_librdkafka(cluster.bootstrap, "stamped", "none", given, enable_idempotence="true")
        told.appended = len(clients.consume(cluster.bootstrap, "stamped", "read_committed"))
        told.said = cluster.log()[said:]
        yield told


def put_back(told: Story, data: Path) -> None:
    """Run the recipe of the page, for each topic."""
    line = next(line for line in blocks("Restoring")[0].splitlines() if line.startswith("klog write"))
    for topic in TOPICS:
        places = line.replace("/backup/kafka/orders", f"{told.copy}/{topic}").replace("/var/lib/kafka/data", str(data))
        words = shlex.split(places)[1:]
        inputs = [str(path) for word in words if "*" in word for path in sorted(Path("/").glob(word[1:]))]
        assert len(inputs) == TOPICS[topic]
        told.writes.append(run_klog(words[0], *inputs, *(word for word in words[1:] if "*" not in word)))


def committed(bootstrap: str) -> int:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, **clients.SILENT})
    (found,) = consumer.committed([TopicPartition("orders", 1)], timeout=clients.WAIT_S)
    consumer.close()
    return int(found.offset)


def test_cron_and_systemd_make_the_backup(story: Story) -> None:
    """Both lines of the page: the first run copies all, the next one the new records, byte for byte."""
    for (code, copied), leader in zip(story.copied, story.leader, strict=True):
        assert code == 0, (story.folder / "follow.log").read_text()
        assert copied == leader
        assert all(copied.values())
    assert story.leader[0] != story.leader[1]
    assert " partitions of cluster " in (story.folder / "follow.log").read_text()
    assert (story.copy / "__consumer_offsets-0").is_dir()
    assert run_klog("verify", "--deep", story.copy).exit_code == 0


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    """On a machine with systemd: it accepts each word of both."""
    _, service, timer = blocks("An hourly backup")
    (tmp_path / "klog-follow.service").write_text(service.replace("/usr/bin/klog", sys.executable))
    (tmp_path / "klog-follow.timer").write_text(timer)
    words = re.findall(r"(?m)^(\w+)=", service + timer)
    assert {"ExecStart", "SuccessExitStatus", "OnCalendar", "Persistent"} <= {*words}
    if shutil.which("systemd-analyze"):
        units = [str(path) for path in sorted(tmp_path.glob("klog-follow.*"))]
        done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, check=False, timeout=60)
        assert b"klog-follow" not in done.stderr, done.stderr


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_java_consumers_of_a_served_copy_get_what_the_cluster_gave(story: Story, isolation: str) -> None:
    """Offsets, times and their types, keys, values, headers; groups resume where they were."""
    assert story.served[isolation] == story.wanted[isolation]
    assert len(story.wanted["read_uncommitted"]) > len(story.wanted["read_committed"]) > 200
    assert story.resumed == COMMITTED


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_broker_serves_what_was_put_back(story: Story, isolation: str) -> None:
    """The topics had been deleted and made anew: each record has its old offset, and the start changes no log."""
    assert [ran.exit_code for ran in story.writes] == [0] * len(TOPICS), story.writes
    assert story.restored[isolation] == story.wanted[isolation]
    assert story.kept == story.wrote


def test_the_broker_complains_of_nothing_and_goes_on(story: Story) -> None:
    """New producers append; none is treated as a duplicate."""
    lines = [line for line in story.said.splitlines() if any(f"{topic}-" in line for topic in TOPICS)]
    assert not [line for line in lines if "WARN" in line or "ERROR" in line]
    before = [line for line in story.wanted["read_committed"] if line.startswith("stamped ")]
    assert story.appended == len(before) + 5
