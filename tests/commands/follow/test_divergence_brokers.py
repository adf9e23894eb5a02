"""Histories that part, among real brokers: unclean elections, over several epochs, and a disk that is lost.

Brokers 1 and 2 lead one after the other, each without the other one; copies are taken of both.  Broker 3 has a topic
of its own, and loses its directory.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from klog.commands.follow.client.cluster import Cluster
from klog.formats.structs.schema import Data

from tests.brokers import clients, kafka
from tests.brokers.quorum import Brokers
from tests.commands.follow.following import Row, batches, follow, followed
from tests.conftest import Ran

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
REPLICAS = {"short": [1, 2], "long": [1, 2], "epochs": [1, 2], "lost": [3]}
FORKED = ("--topic", "short", "--topic", "long")


def create(bootstrap: str) -> None:
    from confluent_kafka.admin import NewTopic

    config = {"unclean.leader.election.enable": "true"}
    wanted = [NewTopic(name, 1, replica_assignment=[on], config=config) for name, on in REPLICAS.items()]
    clients.make(bootstrap, wanted)


def led_by(bootstrap: str, node: int, topics: tuple[str, ...], isr: int) -> None:
    """Wait until *node* leads, with so many replicas in the ISR."""
    client = clients.admin(bootstrap)
    until = time.monotonic() + clients.WAIT_S
    while time.monotonic() < until:
        found = client.list_topics(timeout=clients.WAIT_S).topics
        if all(name in found and found[name].partitions for name in topics):
            leaders = [found[name].partitions[0] for name in topics]
            if all(one.leader == node and len(one.isrs) == isr for one in leaders):
                return
        time.sleep(0.2)
    raise TimeoutError(f"broker {node} does not lead {topics}")


def produce(bootstrap: str, tag: str, **counts: int) -> None:
    """Write so many records to each topic, three in a batch."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "1", "batch.num.messages": 3} | clients.SILENT)
    for topic, count in counts.items():
        for number in range(count):
            producer.produce(topic, f"{tag}-{number}".encode(), partition=0)
    assert producer.flush(clients.WAIT_S) == 0


def spliced(brokers: Brokers, node: int, topic: str, offset: int, last_epoch: int) -> Data:
    """Return what *node* answers to a fetch by somebody whose last batch is of *last_epoch*."""
    cluster = Cluster(brokers.bootstrap)
    found = {one.name: one for one in cluster.topics().topics}[topic]
    row = {"partition": 0, "currentLeaderEpoch": found.partitions[0].leader_epoch, "fetchOffset": offset}
    row |= {"lastFetchedEpoch": last_epoch, "partitionMaxBytes": 1 << 20}
    topics = [{"topic": topic, "topicId": found.topic_id, "partitions": [row]}]
    connection = cluster.connection(node)
    answer = connection.request("Fetch", {"maxWaitMs": 100, "minBytes": 1, "maxBytes": 1 << 20, "topics": topics})
    told: Data = dict(answer["responses"][0]["partitions"][0])
    told["records"] = bytes(told["records"] or b"")
    connection.close()
    cluster.close()
    return told


@dataclass
class Story:
    """The events, and the observations."""

    folder: Path
    runs: dict[str, dict[str, Row]] = field(default_factory=dict)
    stopped: Ran | None = None
    traces: dict[str, str] = field(default_factory=dict)
    leader: dict[str, bytes] = field(default_factory=dict)  # batches of a leader's disk, by run and topic
    copied: dict[str, bytes] = field(default_factory=dict)
    fetched: dict[tuple[str, int], Data] = field(default_factory=dict)

    @property
    def copy(self) -> Path:
        return self.folder / "copy"

    def look(self, when: str, disk: Path, *topics: str) -> None:
        """Keep the common part of the leader and the copy."""
        for topic in topics:
            self.leader[f"{when} {topic}"] = batches(disk / f"{topic}-0")
            self.copied[f"{when} {topic}"] = batches(self.copy / f"{topic}-0")

    def take(self, brokers: Brokers, when: str, node: int, *topics: str, exit_code: int) -> None:
        """Follow *topics*, which *node* leads."""
        words = [word for topic in topics for word in ("--topic", topic)]
        self.runs[when] = followed(brokers.bootstrap, self.copy, *words, exit_code=exit_code)
        self.look(when, brokers.disk(node), *topics)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Everything that happens, once."""
    told = Story(tmp_path_factory.mktemp("story"))
    at = (told.folder / "brokers").resolve()
    with Brokers(kafka.NEWEST, at) as brokers:
        brokers.start(1, 2, 3)
        create(brokers.bootstrap)
        both = ("short", "long", "epochs")
        led_by(brokers.bootstrap, 1, both, 2)
        produce(brokers.bootstrap, "all", short=20, long=20, epochs=20, lost=30)
        time.sleep(2)  # until broker 2 has it
        told.take(brokers, "before", 3, "lost", exit_code=0)
        brokers.stop(2, 3)
        led_by(brokers.bootstrap, 1, both, 1)
        produce(brokers.bootstrap, "one", short=15, long=15, epochs=5)
        told.take(brokers, "first", 1, *both, exit_code=0)

        brokers.stop(1)
        shutil.rmtree(brokers.disk(3) / "lost-0")
        brokers.start(2, 3)
        led_by(brokers.bootstrap, 2, both, 1)
        led_by(brokers.bootstrap, 3, ("lost",), 1)
        produce(brokers.bootstrap, "two", short=5, long=40, epochs=6, lost=4)
        epoch = told.runs["first"]["long-0"]["leader_epoch"]
        for topic in ("short", "long"):
            for last in (-1, epoch):
                told.fetched[topic, last] = spliced(brokers, 2, topic, 35, last)
        shutil.copytree(told.copy, told.folder / "left")
        told.stopped = follow(brokers.bootstrap, told.folder / "left", *FORKED, "--on-divergence", "stop")
        told.take(brokers, "lost", 3, "lost", exit_code=1)
        told.take(brokers, "parted", 2, "short", "long", exit_code=1)

        brokers.stop(2)
        brokers.start(1)
        led_by(brokers.bootstrap, 1, both, 1)
        produce(brokers.bootstrap, "three", epochs=5)
        told.take(brokers, "back", 1, "short", "long", exit_code=1)
        told.take(brokers, "went on", 1, "epochs", exit_code=0)

        brokers.stop(1)
        brokers.start(2)
        led_by(brokers.bootstrap, 2, both, 1)
        produce(brokers.bootstrap, "four", epochs=9)
        ran = follow(brokers.bootstrap, told.copy, "--topic", "epochs", "--trace")
        assert ran.exit_code == 1, ran
        told.traces["twice"] = ran.stdout.decode()
        told.look("twice", brokers.disk(2), "epochs")
        yield told


def test_a_leader_splices_histories_for_whoever_says_no_epoch(story: Story) -> None:
    """The reason for the epoch in each request: a copy of two histories would never be noticed."""
    epoch = max(last for _, last in story.fetched)
    for topic, error in (("short", 1), ("long", 0)):
        told = story.fetched[topic, -1]
        assert (told["errorCode"], bool(told["records"])) == (error, topic == "long")
        told = story.fetched[topic, epoch]
        assert (told["errorCode"], told["records"]) == (0, b"")
        assert told["divergingEpoch"]["endOffset"] == 20


@pytest.mark.parametrize("topic", ["short", "long"])
def test_a_copy_is_cut_where_histories_part(story: Story, topic: str) -> None:
    """20 is where they part, whichever history is longer; each batch from there on is in the backup."""
    row = story.runs["parted"][f"{topic}-0"]
    assert row["cut"] == [[20, 34]]
    assert row["error"] is None
    assert row["log_end_offset"] == {"short": 25, "long": 60}[topic]
    before, after = story.copied[f"first {topic}"], story.copied[f"parted {topic}"]
    assert before == story.leader[f"first {topic}"]
    assert after == story.leader[f"parted {topic}"]
    assert before != after[: len(before)]


def test_what_was_cut_is_in_the_backup_and_is_listed(story: Story, klog: Callable[..., Ran]) -> None:
    """The dump of the backup shows the records that broker 1 alone had."""
    (said,) = {row["said"] for row in story.runs["parted"].values()}
    for topic in ("short", "long"):
        assert f"{topic}-0: leader epoch " in said
        assert "ended at 20, and the copy continues to 34: offsets 20–34 were cut" in said
    backups = story.runs["parted"]["short-0"]["backups"]
    assert len(backups) == 2
    listed = klog("plans", story.copy).stdout.decode()
    values: set[str] = set()
    for backup in backups:
        assert Path(backup).name in listed
        ran = klog("dump", Path(backup) / "tails", "--output", "jsonl")
        assert ran.exit_code == 0, ran
        values |= {row["topic"] + row["value"] for row in map(json.loads, ran.stdout.splitlines())}
    assert values == {f"{topic}one-{number}" for topic in ("short", "long") for number in range(15)}
    for topic in ("short", "long"):
        kept = b"".join(batches(Path(backup) / "tails" / f"{topic}-0") for backup in backups)
        assert kept == story.copied[f"first {topic}"][-len(kept) :] != b""


def test_a_partition_is_left_as_it_is_where_that_is_wanted(story: Story) -> None:
    """Exit code 4, and the copy is unchanged."""
    assert story.stopped is not None
    assert story.stopped.exit_code == 4, story.stopped
    for topic in ("short", "long"):
        assert batches(story.folder / "left" / f"{topic}-0") == story.copied[f"first {topic}"]
        assert f"{topic}-0: leader epoch".encode() in story.stopped.stderr
    assert b"the copy stays unchanged" in story.stopped.stderr


@pytest.mark.parametrize("topic", ["short", "long"])
def test_a_copy_goes_back_to_the_history_it_had(story: Story, topic: str) -> None:
    """The first leader returned: its successor's own records are cut, and its own are fetched again."""
    row = story.runs["back"][f"{topic}-0"]
    assert row["cut"] == [[20, {"short": 24, "long": 59}[topic]]]
    assert story.copied[f"back {topic}"] == story.leader[f"back {topic}"]
    assert story.copied[f"back {topic}"] == story.copied[f"first {topic}"]


def test_epochs_that_interleave_take_several_rounds(story: Story) -> None:
    """The copy has epochs of one leader, which lie between those of the other one."""
    assert story.copied["went on epochs"] == story.leader["went on epochs"]
    lines = [line for line in story.traces["twice"].splitlines() if "diverging" in line or " truncate LEO=" in line]
    assert [line.rpartition(" ")[0].rpartition(" ")[2] for line in lines if " truncate LEO=" in line] == [
        "LEO=25",
        "LEO=20",
    ]
    assert sum("diverging" in line for line in lines) == 2
    assert story.copied["twice epochs"] == story.leader["twice epochs"]


def test_a_broker_that_lost_its_disk_has_another_history(story: Story) -> None:
    """Nothing of the copy is in it; the copy is kept whole in the backup, and begins anew."""
    row = story.runs["lost"]["lost-0"]
    assert row["cut"] == [[0, 29]]
    assert row["log_end_offset"] == 4
    assert story.copied["lost lost"] == story.leader["lost lost"]
    (backup,) = row["backups"]
    assert batches(Path(backup) / "tails" / "lost-0") == story.copied["before lost"]


def test_all_copies_are_in_order(story: Story, klog: Callable[..., Ran]) -> None:
    """After all of it."""
    for copy in (story.copy, story.folder / "left"):
        ran = klog("verify", copy, "--deep")
        assert ran.exit_code == 0, ran.stdout.decode()
