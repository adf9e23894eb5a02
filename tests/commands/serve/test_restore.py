"""A new cluster from a dead broker's disk: MirrorMaker 2 out of `klog serve`, with the very file of docs/serve.md."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.brokers import clients, jars, kafka
from tests.brokers.clients import SILENT, WAIT_S
from tests.commands.follow.following import followed
from tests.commands.serve.readers import Row, with_librdkafka
from tests.commands.serve.serving import Serving
from tests.commands.serve.test_clients import on_disk
from tests.conftest import CORPORA, FIXTURES
from tests.test_docs import blocks

pytestmark = pytest.mark.kafka

DISKS = {"fixtures": FIXTURES / "modern", "corpus": CORPORA / "modern" / "data", "copy": CORPORA / "modern" / "data"}
"""A disk that lacks some partitions and topics, one that has all of them, and one that is copied first."""
AT_THE_END = {("classic", "plain", 1): 113, ("classic", "plain", 2): 87, ("sticky", "snappy", 1): 124}
BEFORE_THE_END = {("loses-one", "plain", 1): 93, ("classic-static", "gzip", 0): 200}
PATIENCE_S = 400

Offsets = dict[tuple[str, str, int], int]
"""Group, topic, partition → offset."""


@dataclass(frozen=True)
class Restored:
    """The disk's endpoint and the cluster that was filled from it.  *mirrored*: the groups' offsets at that time."""

    folder: Path
    disk: Serving
    bootstrap: str
    mirrored: Offsets

    @property
    def topics(self) -> list[str]:
        return topics_in(self.folder)


def topics_in(folder: Path) -> list[str]:
    return sorted({path.name.rpartition("-")[0] for path in folder.glob("[!_]*-[0-9]")})


def recipe(dead: str, new: str) -> str:
    """Return the properties file that people copy, for a cluster of one broker."""
    (text,) = blocks("docs/serve.md", "properties")
    text = text.replace("127.0.0.1:9092", dead).replace("new-1:9092,new-2:9092", new)
    return re.sub(r"(?m)(replication\.factor) = 3$", r"\1 = 1", text)


@contextmanager
def mirror_maker(folder: Path, dead: str, new: str) -> Iterator[Callable[[], str]]:
    """Run MirrorMaker in dedicated mode; gives what returns its log."""
    properties, log = folder / "mirror.properties", folder / "mirror.log"
    properties.write_text(recipe(dead, new))
    name = "org.apache.kafka.connect.mirror.MirrorMaker"
    libs = jars.install_mirror_maker(kafka.NEWEST)
    command = kafka.java(kafka.NEWEST, name, str(properties), logged="warn", libs=libs)
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            yield lambda: log.read_text(errors="replace")
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def expected(disk: Path, topic: str) -> list[Row]:
    """Return the records of a topic that have to arrive: the committed ones, and those behind a transaction that is
    never ended."""
    if topic == "tx-open":
        return [row for row in on_disk(disk, topic) if row[4] != b"open"]
    return on_disk(disk, topic, "read_committed")


def committed(bootstrap: str) -> Offsets:
    """Return what all groups have committed."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    admin = clients.admin(bootstrap)
    names = [one.group_id for one in admin.list_consumer_groups().result(WAIT_S).valid]
    found: Offsets = {}

    for name in names:
        clients.committed(bootstrap, name, [("any", 0)])  # its coordinator has loaded it: see there
        told = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)])[name].result(WAIT_S)
        found |= {(name, one.topic, one.partition): one.offset for one in told.topic_partitions}
    return found


def counts(bootstrap: str, wanted: Sequence[str]) -> Mapping[str, int]:
    """Return how many records each of these topics has so far; a topic that is being created has no leader at first."""
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "counting", **SILENT})
    try:
        topics = consumer.list_topics(timeout=WAIT_S).topics.items()
        places = [
            TopicPartition(name, number) for name, topic in topics for number in topic.partitions if name in wanted
        ]
        found = dict.fromkeys(wanted, 0)
        for place in places:
            try:
                low, high = consumer.get_watermark_offsets(place, WAIT_S)
            except KafkaException as error:
                if error.args[0].code() not in (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE):
                    raise
            else:
                found[place.topic] += high - low
        return found
    finally:
        consumer.close()


def wait_for(what: str, done: Callable[[], bool], log: Callable[[], str]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < until, f"{what} did not arrive:\n{log()[-4000:]}"
        time.sleep(1)


@pytest.fixture(
    scope="module",
    params=[
        # The corpora, if present, include the fixtures, and more.
        pytest.param("fixtures", marks=[pytest.mark.long] * (CORPORA / "manifest.json").exists()),
        pytest.param("corpus", marks=pytest.mark.corpora),
        pytest.param("copy", marks=[pytest.mark.corpora, pytest.mark.long]),
    ],
)
def restored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restored]:
    folder, old = tmp_path_factory.mktemp("restored"), DISKS[request.param]
    if request.param == "copy":
        with Serving(old) as source:
            old = folder / "copy"
            followed(source.bootstrap, old)
    jars.install_mirror_maker(kafka.NEWEST)  # before the clocks of the next steps run
    with Serving(old) as disk, kafka.Cluster(kafka.NEWEST, folder / "new") as new:
        wanted = {topic: len(expected(old, topic)) for topic in topics_in(old)}
        with mirror_maker(folder, disk.bootstrap, new.bootstrap) as log:
            wait_for("all records", lambda: counts(new.bootstrap, list(wanted)) == wanted, log)
            wait_for("the groups", lambda: AT_THE_END.items() <= committed(new.bootstrap).items(), log)
        yield Restored(old, disk, new.bootstrap, committed(new.bootstrap))


def test_what_was_committed_is_in_the_new_cluster(restored: Restored) -> None:
    """Keys, values, headers and times, in their order; offsets close up where markers and gaps were."""
    assert len(restored.topics) >= 12
    for topic in restored.topics:
        found = with_librdkafka(restored.bootstrap, topic, "read_uncommitted", None)
        assert [(row[1], *row[3:]) for row in found] == [
            (row[1], *row[3:]) for row in expected(restored.folder, topic)
        ], topic
        for number in {row[1] for row in found}:
            offsets = [row[2] for row in found if row[1] == number]
            assert offsets == list(range(len(offsets))), (topic, number)


def test_topics_have_their_partitions_and_settings(restored: Restored) -> None:
    """Partitions without data on this disk as well: keys are sent to the same partitions as before."""
    from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType

    admin = clients.admin(restored.bootstrap)
    topics = admin.list_topics(timeout=WAIT_S).topics
    assert {name: len(topics[name].partitions) for name in ("plain", "snappy", "tx", "empty", "zstd")} == {
        "plain": 3, "snappy": 2, "tx": 2, "empty": 3, "zstd": 1,
    }  # fmt: skip
    came = (("lz4-broker", "compression.type", "lz4"), ("dense", "index.interval.bytes", "1"))
    # These stay with the old cluster: the new broker would write its own times otherwise, or delete old records.
    stayed = (("logappend", "message.timestamp.type", "CreateTime"), ("plain", "retention.ms", "-1"))
    for topic, name, value in (*came, *stayed):
        (told,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        entry = told.result(WAIT_S)[name]
        its_own = entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        assert (entry.value, its_own) == (value, (topic, name, value) in came), topic


def test_groups_skip_nothing_in_the_new_cluster(restored: Restored) -> None:
    """MirrorMaker has only some of the offsets: groups at the end stay there, others read some records again."""
    before = committed(restored.disk.bootstrap)
    assert AT_THE_END.items() | BEFORE_THE_END.items() <= before.items()
    assert AT_THE_END.items() <= restored.mirrored.items()
    assert {place: offset for place, offset in restored.mirrored.items() if offset > before[place]} == {}


def reset(bootstrap: str, *arguments: str) -> str:
    name = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    tools = kafka.Tools(seconds=PATIENCE_S)
    done = tools.run_class(name, "--bootstrap-server", bootstrap, "--reset-offsets", *arguments)
    assert (done.exit_code, done.died, b"Error" in done.stdout + done.stderr) == (0, "", False), done
    return done.stdout.decode()


def test_groups_go_on_exactly_where_offsets_are_the_same(restored: Restored, tmp_path: Path) -> None:
    """Kafka's own tool carries offsets over, from the disk to the cluster."""
    exported = reset(restored.disk.bootstrap, "--all-groups", "--all-topics", "--to-current", "--dry-run", "--export")
    offsets = tmp_path / "offsets.csv"
    offsets.write_text(exported)
    groups = sorted({line.split(",")[0] for line in exported.splitlines() if line})
    named = [word for group in groups for word in ("--group", group)]
    reset(restored.bootstrap, *named, "--from-file", str(offsets), "--execute")
    assert (AT_THE_END | BEFORE_THE_END).items() <= committed(restored.bootstrap).items()
    group, topic = "loses-one", "plain"
    resumes = committed(restored.disk.bootstrap)
    left = [row for row in on_disk(restored.folder, topic) if row[2] >= resumes[group, topic, row[1]]]
    assert 0 < len(left) < len(on_disk(restored.folder, topic))
    assert with_librdkafka(restored.bootstrap, topic, "read_committed", group) == left
