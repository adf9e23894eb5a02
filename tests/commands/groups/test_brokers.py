"""Groups as `kafka-consumer-groups` shows them, by brokers of three versions: at the end, at ten moments, cleaned."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from klog.commands.groups.group_details import GroupDetail, GroupQuery, describe_groups
from klog.data_dir.log_dir import LogDir
from klog.formats.java_hash_map import java_hash

from tests.brokers import clients, kafka
from tests.brokers.raw import Raw
from tests.conftest import run_klog, writable_copy

pytestmark = pytest.mark.kafka
TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
SHARE_TOOL = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
SETTINGS = {
    "log.cleaner.enable": "false",
    "offsets.retention.check.interval.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "2",
}
CLEANING = {
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.001",
    "log.roll.ms": "1000",
    "offsets.retention.check.interval.ms": "500",
}
VERSIONS = (kafka.NEWEST, pytest.param(kafka.BEFORE, marks=pytest.mark.long), kafka.LEGACY)
Row = tuple[str, str, str, str, str, str, str, str, str]
COLUMNS = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID")


def coordinator_of(group: str) -> int:
    """Return the partition of `__consumer_offsets`; test brokers have two."""
    return java_hash(group) % 2


PENDING = next(
    name for name in ("pending", "waiting", "open", "late") if coordinator_of(name) != coordinator_of("simple")
)
"""In another partition: the cleaner stops in front of an open transaction."""


class Told(NamedTuple):
    """The tool's output: offsets, states and members; *at*: its time, ms."""

    at: int
    offsets: list[Row]
    states: dict[str, tuple[str, str]]
    members: list[tuple[str, ...]]


class Lived(NamedTuple):
    """A disk after a clean stop, the answers in its life, and those after the cleaner had run over a copy of it."""

    version: str
    data: Path
    moments: list[Told]
    last: Told
    cleaned: Path
    after_cleaning: Told
    shares: list[tuple[str, ...]]


def tables(text: bytes, columns: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the lines of a tool's tables, the columns by their names in the header."""
    where: list[int] = []
    for line in text.decode().splitlines():
        words = line.split()
        if words[:1] == ["GROUP"]:
            # COORDINATOR (ID) is a name of two words over a cell of two words.
            where = [words.index(name) for name in columns]
        elif words and where and len(words) > max(where):
            yield tuple(words[i] for i in where)


def run(tool: kafka.Tools, name: str, bootstrap: str, *arguments: str) -> bytes:
    done = tool.run_class(name, "--bootstrap-server", bootstrap, "--timeout", "60000", *arguments)
    assert (done.exit_code, done.died) == (0, ""), done
    return done.stdout


def ask(tool: kafka.Tools, bootstrap: str, *, briefly: bool = False) -> Told:
    time.sleep(1)  # a marker may be written after its client has the answer about the end
    at = int(time.time() * 1000)
    every = ("--describe", "--all-groups")
    offsets = sorted(tables(run(tool, TOOL, bootstrap, *every), COLUMNS))
    if briefly:
        return Told(at, offsets, {}, [])
    states = tables(run(tool, TOOL, bootstrap, *every, "--state"), ("GROUP", "STATE", "#MEMBERS"))
    text = run(tool, TOOL, bootstrap, *every, "--members")
    members = sorted(tables(text, ("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS")))
    return Told(at, offsets, {group: (state, count) for group, state, count in states}, members)


class Life:
    """Clients of one broker: their actions from one moment to the next."""

    def __init__(self, cluster: kafka.Cluster) -> None:
        from confluent_kafka import Producer

        self.bootstrap, self.version = cluster.bootstrap, cluster.version
        self.producer = Producer({"bootstrap.servers": self.bootstrap, **clients.SILENT})
        self.admin = clients.admin(self.bootstrap)
        self.alive: list[object] = []
        self.transactional: dict[str, object] = {}

    def produce(self, count: int) -> None:
        for i in range(count):
            self.producer.produce("t", f"v{i}".encode(), partition=i % 3)
        assert self.producer.flush(clients.WAIT_S) == 0

    def commit(self, group: str, **offsets: int) -> None:
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group, **clients.SILENT})
        where = [TopicPartition("t", int(p[1:]), at) for p, at in offsets.items()]
        until = time.monotonic() + clients.WAIT_S
        while True:
            try:
                consumer.commit(offsets=where, asynchronous=False)
                break
            except KafkaException:  # the coordinator loads its log after a start
                assert time.monotonic() < until
                time.sleep(0.2)
        consumer.close()

    def join(self, group: str, **settings: str) -> None:
        """Have a member that stays: it owns its partitions when this returns."""
        from confluent_kafka import Consumer

        config = {"bootstrap.servers": self.bootstrap, "group.id": group, "client.id": f"c-{group}"}
        consumer = Consumer({**config, "auto.offset.reset": "earliest", **clients.SILENT, **settings})
        consumer.subscribe(["t"])
        until = time.monotonic() + clients.WAIT_S
        while len(consumer.assignment()) < 3:
            assert time.monotonic() < until, f"{group} owns {consumer.assignment()}"
            consumer.poll(0.1)
        self.alive.append(consumer)

    def leave(self) -> None:
        self.alive.pop().close()  # type: ignore[attr-defined]

    def transaction(self, name: str, group: str, number: int, offset: int, end: str | None) -> None:
        """Commit an offset in a transaction that is committed, aborted, or left open (None)."""
        from confluent_kafka import Consumer, Producer, TopicPartition

        config = {"bootstrap.servers": self.bootstrap, "transactional.id": name, "transaction.timeout.ms": 600_000}
        producer = Producer({**config, **clients.SILENT})
        producer.init_transactions(clients.WAIT_S)
        producer.begin_transaction()
        reader = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group, **clients.SILENT})
        where = [TopicPartition("t", number, offset)]
        producer.send_offsets_to_transaction(where, reader.consumer_group_metadata(), clients.WAIT_S)
        if end == "commit":
            producer.commit_transaction(clients.WAIT_S)
        elif end == "abort":
            producer.abort_transaction(clients.WAIT_S)
        else:
            self.transactional[name] = producer
        reader.close()

    def overtake(self, group: str) -> None:
        """Commit an offset while a transaction has one: the plain commit is the later record, and stays."""
        self.transaction("tx-4", group, 1, 9, None)
        self.commit(group, p1=4)
        self.transactional.pop("tx-4").commit_transaction(clients.WAIT_S)  # type: ignore[attr-defined]

    def expire(self, group: str) -> None:
        with Raw(self.bootstrap) as broker:
            assert broker.commit(group, "t", 0, 1, 60_000) == 0
            assert broker.commit(group, "t", 1, 1, 1) == 0
        self.expired(group)

    def expired(self, group: str) -> None:
        from confluent_kafka import ConsumerGroupTopicPartitions

        until = time.monotonic() + clients.WAIT_S
        while True:
            answer = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(60)
            if [one.partition for one in answer.topic_partitions] == [0]:
                return
            assert time.monotonic() < until
            time.sleep(0.1)

    def delete(self, group: str) -> None:
        self.admin.delete_consumer_groups([group])[group].result(clients.WAIT_S)


def steps(life: Life) -> list[Callable[[], object]]:
    """Return the actions before each of ten moments."""
    has_new_protocol = life.version == kafka.NEWEST
    return [
        lambda: life.commit("simple", p0=3, p1=4),
        lambda: (life.produce(9), life.commit("simple", p0=5), life.commit("gone", p2=1)),
        lambda: life.transaction("tx-1", "simple", 0, 7, "commit"),
        lambda: (life.transaction("tx-2", "simple", 0, 8, "abort"), life.produce(6)),
        lambda: life.join("classic", **{"group.instance.id": "one", "session.timeout.ms": "45000"}),
        lambda: life.join("modern", **{"group.protocol": "consumer"}) if has_new_protocol else life.join("second"),
        lambda: (life.delete("gone"), life.commit("simple", p2=2)),
        lambda: (life.expire("partly"), life.overtake("mixed")),
        lambda: (life.join("left"), life.commit("other", p1=1), life.leave()),
        lambda: (life.transaction("tx-3", PENDING, 2, 9, None), life.produce(3)),
    ]


def share(life: Life, tool: kafka.Tools, folder: Path) -> list[tuple[str, ...]]:
    """Let a share group read some records; return the tool's output."""
    alter = ("--alter", "--entity-type", "groups", "--entity-name", "shared", "--add-config")
    config = ("kafka.admin.ConfigCommand", "--bootstrap-server", life.bootstrap, *alter)
    done = kafka.java(life.version, *config, "share.auto.offset.reset=earliest")
    subprocess.run(done, check=True, capture_output=True, timeout=180, cwd=folder)
    console = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
    reads = ("--topic", "t", "--group", "shared", "--max-messages", "5", "--timeout-ms", "60000")
    done = kafka.java(life.version, console, "--bootstrap-server", life.bootstrap, *reads)
    subprocess.run(done, check=True, capture_output=True, timeout=180, cwd=folder)
    text = run(tool, SHARE_TOOL, life.bootstrap, "--describe", "--group", "shared")
    return sorted(tables(text, ("GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG")))


@pytest.fixture(scope="module", params=VERSIONS)
def lived(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Lived:
    version, folder = request.param, tmp_path_factory.mktemp(f"groups-{request.param}")
    tool = kafka.Tools(kafka.NEWEST)
    shares: list[tuple[str, ...]] = []
    with kafka.Cluster(version, folder / "first", settings=SETTINGS) as cluster:
        clients.create(cluster.bootstrap, {"t": {}}, partitions=3)
        life = Life(cluster)
        life.produce(30)
        moments = []
        for step in steps(life):
            step()
            moments.append(ask(tool, cluster.bootstrap, briefly=True))
        if version == kafka.NEWEST:
            shares = share(life, tool, folder)
        last = ask(tool, cluster.bootstrap)
        cluster.stop()
    again = kafka.Cluster(version, folder / "again", settings=CLEANING)
    writable_copy(cluster.data, again.data)
    if not again.kraft:
        writable_copy(folder / "first" / "zookeeper", folder / "again" / "zookeeper")
    with again:
        life.alive.clear()
        until = time.monotonic() + 2 * clients.WAIT_S
        later = Life(again)
        while not cleaned(again.data / f"__consumer_offsets-{coordinator_of('simple')}"):
            assert time.monotonic() < until, "the cleaner does not run"
            for group in ("simple", "other", "partly"):
                later.commit(group, p0=6)
            time.sleep(1.1)
        after = ask(tool, again.bootstrap)
        again.stop()
    return Lived(version, cluster.data, moments, last, again.data, after, shares)


def cleaned(partition: Path) -> bool:
    found = {one.directory: one for one in LogDir(str(partition.parent)).partitions}.get(partition.name)
    return found is not None and bool(found.cleaner_offset)


def described(data: Path, at: int | None = None) -> list[GroupDetail]:
    found = describe_groups([str(data)], GroupQuery(at_ms=at))
    assert found is not None
    return found


def as_rows(found: list[GroupDetail]) -> list[Row]:
    """Return the rows of the tool: a member without a partition has a line of its own, without offsets."""
    rows = []
    for one in found:
        owners = {where: member for member in one.image.members for where in member.partitions}
        for row in one.offsets if one.image.type != "share" else ():
            numbers = ("-" if each is None else str(each) for each in (row.offset, row.log_end, row.lag))
            owner = owners.get((row.topic, row.partition))
            who = (owner.member_id, owner.host, owner.client_id) if owner else ("-", "-", "-")
            rows.append((one.image.group, row.topic, str(row.partition), *numbers, *who))
    return sorted(rows)  # type: ignore[arg-type]


def test_offsets_states_and_members_are_those_of_the_tool(lived: Lived) -> None:
    """Commits plain and of transactions, an expired and a deleted one, members alive as the broker stops."""
    found = described(lived.data)
    assert as_rows(found) == lived.last.offsets
    states = {
        one.image.group: (one.image.state, str(len(one.image.members))) for one in found if one.image.type != "share"
    }
    assert states == lived.last.states
    members = [
        (one.image.group, member.member_id, member.host, member.client_id, str(len(member.partitions)))
        for one in found
        for member in one.image.members
    ]
    assert sorted(members) == lived.last.members
    (mixed,) = (one for one in found if one.image.group == "mixed")
    assert [row.offset for row in mixed.offsets] == [4]
    (waits,) = (one for one in found if one.image.group == PENDING)
    assert [(one.topic, one.partition, one.offset) for one in waits.pending] == [("t", 2, 9)]


def test_each_moment_is_as_the_tool_saw_it(lived: Lived) -> None:
    """Members of then too, and the ends of the logs."""
    for moment in lived.moments:
        assert as_rows(described(lived.data, moment.at)) == moment.offsets, moment.at


def test_after_the_cleaner_it_is_the_same(lived: Lived) -> None:
    """The offsets of an earlier moment are right, or marked as uncertain."""
    assert as_rows(described(lived.cleaned)) == lived.after_cleaning.offsets
    uncertain = 0
    for moment in lived.moments:
        told = {row[:3]: row[3] for row in moment.offsets}
        for one in described(lived.cleaned, moment.at):
            for row in one.offsets:
                if row.committed is not None and not row.committed.certain:
                    uncertain += 1
                elif row.offset is not None:
                    assert told[one.image.group, row.topic, str(row.partition)] == str(row.offset)
    assert uncertain


def test_share_groups_are_those_of_the_tool(lived: Lived) -> None:
    found = [one for one in described(lived.data) if one.image.type == "share"]
    rows = [
        (one.image.group, row.topic, str(row.partition), *("-" if x is None else str(x) for x in (row.offset, row.lag)))
        for one in found
        for row in one.offsets
    ]
    assert sorted(rows) == lived.shares
    if lived.version == kafka.NEWEST:
        assert [row[3] for row in rows].count("5") == 1, "five records were read, of one partition"


def test_the_export_goes_into_a_fresh_cluster(lived: Lived, tmp_path: Path) -> None:
    """The tool reads the file, and then the groups have these offsets."""
    file = tmp_path / "offsets.csv"
    assert run_klog("groups", lived.data, "--output", "reset-offsets", "--to", file).exit_code == 0
    wanted = sorted(row[:4] for row in as_rows(described(lived.data)) if row[3] != "-")
    tool = kafka.Tools(kafka.NEWEST)
    with kafka.Cluster(kafka.NEWEST, tmp_path / "fresh") as cluster:
        clients.create(cluster.bootstrap, {"t": {}}, partitions=3)
        life = Life(cluster)
        life.produce(60)
        names = [word for row in wanted for word in ("--group", row[0])]
        run(tool, TOOL, cluster.bootstrap, *names, "--reset-offsets", "--from-file", str(file), "--execute")
        found = [row[:4] for row in ask(tool, cluster.bootstrap, briefly=True).offsets]
    assert sorted(found) == wanted
