"""Leaders that move among three live brokers, and a broker that compacts, while `klog follow` copies."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import clients, kafka
from tests.brokers.quorum import Brokers
from tests.commands.follow.following import Following, batches, followed
from tests.conftest import run_klog

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
PARTITIONS, EACH, KEYS = 3, 24, 5
MOVING, COMPACTED = "moving", "compacted"


def create(bootstrap: str) -> None:
    """Each broker leads one partition of the first topic; the other topic has small segments, and is compacted soon."""
    from confluent_kafka.admin import NewTopic

    replicas = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "100"}
    wanted = [
        NewTopic(MOVING, PARTITIONS, replica_assignment=replicas, config={"min.insync.replicas": "2"}),
        NewTopic(COMPACTED, 1, replica_assignment=[[2, 1, 3]], config=settings),
    ]
    clients.make(bootstrap, wanted)


@dataclass
class Story:
    """The events, and the observations; *turns*: how often records were written to each partition."""

    folder: Path
    turns: int = 0
    traced: str = ""
    ended: int = -1
    said: str = ""
    leaders: list[int] = field(default_factory=list)
    disks: dict[str, Path] = field(default_factory=dict)  # of who leads in the end, by partition

    @property
    def copy(self) -> Path:
        return self.folder / "copy"

    def produce(self, bootstrap: str) -> None:
        """Write to each partition, three records in a batch; all replicas that are in sync have them."""
        from confluent_kafka import Producer

        failed: list[object] = []
        settings = {"acks": "all", "enable.idempotence": True, "batch.num.messages": 3, "linger.ms": 5}
        producer = Producer({"bootstrap.servers": bootstrap, **settings} | clients.SILENT)
        for number in range(EACH):
            value = f"{self.turns} {number}".encode()
            for partition in range(PARTITIONS):
                producer.produce(MOVING, value, partition=partition)
            time_ms = clients.START_MS + 1000 * (self.turns * EACH + number)
            producer.produce(
                COMPACTED, value, f"k{number % KEYS}".encode(), 0, timestamp=time_ms,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )  # fmt: skip
        assert producer.flush(clients.WAIT_S) == 0
        assert not failed
        self.turns += 1

    def go_on(self, brokers: Brokers, running: Following) -> None:
        """Write more, and wait until the copy has it."""
        self.produce(brokers.bootstrap)
        for partition in range(PARTITIONS):
            running.wait_for(f"^{MOVING}-{partition} append .* LEO={self.turns * EACH}$")
        running.wait_for(f"^{COMPACTED}-0 append .* LEO={self.turns * EACH}$")


def leaders(bootstrap: str, topic: str = MOVING) -> list[int]:
    found = clients.admin(bootstrap).list_topics(timeout=clients.WAIT_S).topics[topic].partitions
    return [found[number].leader for number in sorted(found)]


def elect(bootstrap: str) -> None:
    """Let the first replica of each partition lead, as soon as all are in sync."""
    from confluent_kafka import ElectionType, TopicPartition

    client, until = clients.admin(bootstrap), time.monotonic() + clients.WAIT_S
    places = [TopicPartition(MOVING, number) for number in range(PARTITIONS)]
    while leaders(bootstrap) != [1, 2, 3]:
        assert time.monotonic() < until, leaders(bootstrap)
        client.elect_leaders(ElectionType.PREFERRED, places).result(clients.WAIT_S)
        time.sleep(0.5)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """One copy of all of it, which never ends."""
    told = Story(tmp_path_factory.mktemp("leaders"))
    at = (told.folder / "brokers").resolve()
    with Brokers(kafka.NEWEST, at, settings={"log.cleaner.backoff.ms": "100"}) as brokers:
        brokers.start(1, 2, 3)
        create(brokers.bootstrap)
        with Following(brokers.bootstrap, told.copy) as running:
            told.go_on(brokers, running)
            for node, leave in ((1, brokers.stop), (2, brokers.kill)):
                leave(node)
                told.go_on(brokers, running)
                brokers.start(node)
            elect(brokers.bootstrap)
            told.go_on(brokers, running)
            told.leaders = leaders(brokers.bootstrap)
            told.ended = running.end(signal.SIGINT)
            told.traced, told.said = running.traced, running.said
        (node,) = leaders(brokers.bootstrap, COMPACTED)
        told.disks = {f"{MOVING}-{number}": brokers.disk(leader) for number, leader in enumerate(told.leaders)}
        told.disks[f"{COMPACTED}-0"] = brokers.disk(node)
        followed(brokers.bootstrap, told.folder / "fresh", "--partition-bytes", "1")
        await_compaction(brokers.disk(node) / f"{COMPACTED}-0")
        followed(brokers.bootstrap, told.copy)
        yield told


def await_compaction(partition: Path) -> None:
    until = time.monotonic() + clients.WAIT_S
    while len(records(partition)) > 2 * EACH:
        assert time.monotonic() < until, "nothing was compacted"
        time.sleep(0.2)


def records(partition: Path) -> dict[int, dict[str, Any]]:
    """Return the records on a disk, by offset; a broker may be at work there."""
    ran, kept = run_klog("dump", partition, "--output", "jsonl"), ("key", "value", "timestamp")
    rows = map(json.loads, ran.stdout.splitlines())
    return {row["offset"]: {name: row[name] for name in kept} for row in rows if "offset" in row}


def test_no_move_of_a_leader_is_missed(story: Story) -> None:
    """One that stopped, one that was killed, an election: the copy of each partition is its leader's log."""
    assert (story.ended, story.leaders) == (0, [1, 2, 3]), story.said
    for name, disk in story.disks.items():
        if name.startswith(MOVING):
            assert batches(story.copy / name) == batches(disk / name) != b""
            assert len(records(story.copy / name)) == story.turns * EACH
    for number in (0, 1):  # whose leaders went away
        assert len({*re.findall(rf"(?m)^{MOVING}-{number} fetch .* epoch=(\d+)", story.traced)}) > 1
    assert "truncate" not in story.traced
    assert "Traceback" not in story.said


def test_leader_epochs_are_the_leaders(story: Story) -> None:
    """Those with batches: they show later at which offset histories diverge."""
    counts = []
    for number in range(PARTITIONS):
        name = f"{MOVING}-{number}"
        files = [folder / name / "leader-epoch-checkpoint" for folder in (story.copy, story.disks[name])]
        mine, its = (path.read_text().splitlines()[2:] for path in files)
        assert {*mine} <= {*its}
        counts.append(len(mine))
    assert min(counts[:2]) > 1


def test_a_copy_keeps_what_the_broker_compacts_meanwhile(story: Story) -> None:
    """Each record that the leader has, and those that it has no more: of each key the last one is the same."""
    name = f"{COMPACTED}-0"
    places = (story.disks[name], story.copy, story.folder / "fresh")
    leader, copied, fresh = (records(folder / name) for folder in places)
    assert KEYS <= len(leader) < len(copied) <= story.turns * EACH
    for found in (copied, fresh):
        assert {offset: found[offset] for offset in leader} == leader
        assert {row["key"]: row["value"] for row in found.values()} == {
            row["key"]: row["value"] for row in leader.values()
        }


def test_all_copies_are_in_order(story: Story) -> None:
    """Gaps of a compacted topic are no findings: klog-follow.json has its policy."""
    for copy in (story.copy, story.folder / "fresh"):
        ran = run_klog("verify", copy, "--deep")
        assert ran.exit_code == 0, ran.stdout.decode()
