"""The actions of clients on a real broker, by their own clocks, are the events of `klog timeline` for its disk."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from klog.commands.timeline.timeline import Timeline
from klog.commands.timeline.timeline_event import EventFilter, TimelineEvent
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.selection import PartitionQuery

from tests.brokers import clients, kafka
from tests.brokers.kafka import Cluster
from tests.conftest import run_klog, writable_copy

pytestmark = pytest.mark.kafka

SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "log.segment.delete.delay.ms": "1000",
    "transaction.state.log.num.partitions": "1",
}
SMALL = {"internal.segment.bytes": "2000"}


class Deed(NamedTuple):
    """Something that a client did, between two moments of its clock (ms)."""

    began: int
    ended: int


class Story:
    """The actions, by name, and the disk's events about them, beside the running broker and after it was killed."""

    def __init__(self) -> None:
        self.deeds: dict[str, Deed] = {}
        self.live: list[TimelineEvent] = []
        self.events: list[TimelineEvent] = []
        self.data = Path()
        self.exit_code_live = -1

    @contextmanager
    def deed(self, name: str) -> Iterator[None]:
        began = now()
        yield
        self.deeds[name] = Deed(began, now())

    def of(self, *kinds: str, **about: object) -> list[TimelineEvent]:
        """Return the events of *kinds* whose fields match *about*, with its text as a part of theirs."""
        return [
            event
            for event in self.events
            if event.kind in kinds
            and all(
                str(value) in event.message if name == "message" else getattr(event, name) == value
                for name, value in about.items()
            )
        ]


def now() -> int:
    return time.time_ns() // 1_000_000


def told(data: Path) -> list[TimelineEvent]:
    with Timeline(PartitionQuery([str(data)]).selections(), EventFilter(), Disk()) as timeline:
        timeline.read()
        assert timeline.problems == []
        return list(timeline.events())


# the actions


def _topics(story: Story, bootstrap: str, data: Path) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions

    client = clients.admin(bootstrap)
    with story.deed("create"):
        clients.create(bootstrap, {"orders": {}, "rolled": SMALL, "pairs": {}, "gone": {}, "txns": {}})
    entry = ConfigEntry("retention.ms", "7200000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "pairs", incremental_configs=[entry])
    with story.deed("config"):
        client.incremental_alter_configs([resource])[resource].result(clients.WAIT_S)
    with story.deed("grow"):
        client.create_partitions([NewPartitions("pairs", 3)])["pairs"].result(clients.WAIT_S)
    with story.deed("produce"):
        _produce(bootstrap, "orders", 120)
        _produce(bootstrap, "rolled", 400)
    with story.deed("delete records"):
        place = TopicPartition("orders", 0, 57)
        client.delete_records([place])[place].result(clients.WAIT_S)
        epochs = data / "orders-0" / "leader-epoch-checkpoint"
        _until(lambda: epochs.read_text().endswith(" 57\n"))  # the broker cuts them in another thread
    with story.deed("delete topic"):
        client.delete_topics(["gone"])["gone"].result(clients.WAIT_S)


def _produce(bootstrap: str, topic: str, count: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **clients.SILENT})
    for number in range(count):
        producer.produce(topic, b"value %d" % number, b"key", partition=0)
        producer.poll(0)
        if number % 5 == 0:
            assert producer.flush(clients.WAIT_S) == 0
    assert producer.flush(clients.WAIT_S) == 0


def _transactions(story: Story, bootstrap: str) -> None:
    from confluent_kafka import Producer

    def producer(name: str, **more: object) -> Producer:
        made = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, **clients.SILENT, **more})
        made.init_transactions(clients.WAIT_S)
        return made

    def begin(made: Producer) -> None:
        made.begin_transaction()
        made.produce("txns", b"value", partition=0)
        assert made.flush(clients.WAIT_S) == 0

    first = producer("tx-1")
    for round_number in range(4):
        with story.deed(f"tx-1 {round_number}"):
            begin(first)
            first.abort_transaction() if round_number % 2 else first.commit_transaction()
    late = producer("tx-late", **{"transaction.timeout.ms": 1500})
    with story.deed("tx-late"):
        begin(late)
        time.sleep(4)
    fenced = producer("tx-fenced")
    begin(fenced)
    with story.deed("tx-fenced"):
        producer("tx-fenced")
    hanging = producer("tx-open", **{"transaction.timeout.ms": 600_000})
    with story.deed("tx-open"):
        begin(hanging)


def _java_transactions(story: Story, cluster: Cluster) -> None:
    """A Java client of transactions v2, killed inside of one, and its successor, which commits all of its own."""

    def start(records: int) -> subprocess.Popen[bytes]:
        command = kafka.java(
            cluster.version, "org.apache.kafka.tools.ProducerPerformance", "--topic", "txns",
            "--num-records", str(records), "--record-size", "20", "--throughput", "10",
            "--transactional-id", "tx-java", "--transaction-duration-ms", "700",
            "--producer-props", f"bootstrap.servers={cluster.bootstrap}", "transaction.timeout.ms=300000",
        )  # fmt: skip
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    with story.deed("java killed"):
        process = start(100_000)
        _until(lambda: _is_caught_inside(process, cluster.data))
        process.kill()
        process.wait(30)
    with story.deed("java"):
        assert start(25).wait(120) == 0


def _until(holds: Callable[[], object], seconds: float = 90) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it never came to that"
        time.sleep(0.3)


def _is_caught_inside(process: subprocess.Popen[bytes], data: Path) -> bool:
    """Stop a client; let it continue unless it has committed twice, and is inside of a transaction."""
    process.send_signal(signal.SIGSTOP)
    time.sleep(0.3)  # its requests are answered
    kinds = [event.kind for event in told(data) if event.transactional_id == "tx-java"]
    is_inside = kinds.count("txn-commit") >= 2 and "txn-open" in kinds
    if not is_inside:
        process.send_signal(signal.SIGCONT)
    return is_inside


def _groups(story: Story, bootstrap: str) -> None:
    from confluent_kafka import Consumer

    def consumer(group: str, **more: object) -> Consumer:
        settings = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, **clients.SILENT}
        return Consumer({**settings, "auto.offset.reset": "earliest", **more})

    for group, more in (("g-classic", {}), ("g-new", {"group.protocol": "consumer"}), ("g-gone", {})):
        reader = consumer(group, **more)
        with story.deed(f"{group} joins"):
            reader.subscribe(["orders"])
            got: list[object] = []
            _until(lambda: got.extend(reader.consume(20, 1)) or len(got) >= 10)  # noqa: B023
        with story.deed(f"{group} commits"):
            for _ in range(3):
                reader.commit(asynchronous=False)
                reader.consume(1, 1)
            reader.commit(asynchronous=False)
        with story.deed(f"{group} leaves"):
            reader.close()
    client = clients.admin(bootstrap)
    with story.deed("g-gone deleted"):
        client.delete_consumer_groups(["g-gone"])["g-gone"].result(clients.WAIT_S)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("timeline")
    story = Story()
    cluster = Cluster(kafka.NEWEST, folder / "broker", settings=SETTINGS)
    with story.deed("start"), cluster:
        _topics(story, cluster.bootstrap, cluster.data)
        _transactions(story, cluster.bootstrap)
        _java_transactions(story, cluster)
        _groups(story, cluster.bootstrap)
        story.live = told(cluster.data)
        story.exit_code_live = run_klog("timeline", str(cluster.data)).exit_code
        with story.deed("stop"):
            cluster.stop()
        with story.deed("restart"):
            cluster.start()
            clients.admin(cluster.bootstrap)
            _produce(cluster.bootstrap, "orders", 3)
        cluster.kill()
        story.data = writable_copy(cluster.data, folder / "data")
        story.events = told(story.data)
        yield story


# the events


LINGER_MS = 25
"""controller.quorum.append.linger.ms: a record may be in a batch that was begun, and stamped, so long before."""


def inside(event: TimelineEvent, deed: Deed) -> bool:
    return deed.began - LINGER_MS <= event.time <= deed.ended


@pytest.mark.parametrize(
    ("deed", "kind", "about", "count"),
    [
        ("create", "topic-created", {"topic": "orders", "message": "1 partition"}, 1),
        ("create", "topic-created", {"topic": "gone"}, 1),
        ("create", "config-changed", {"topic": "rolled", "message": "internal.segment.bytes = 2000"}, 1),
        ("config", "config-changed", {"topic": "pairs", "message": "retention.ms = 7200000"}, 1),
        ("grow", "partition-changed", {"topic": "pairs", "message": "created"}, 2),
        ("produce", "producer", {"topic": "orders", "epoch": 0}, None),
        ("produce", "epoch", {"topic": "orders", "epoch": 0}, 1),
        ("delete topic", "topic-deleted", {"topic": "gone"}, 1),
        ("g-gone deleted", "group-deleted", {"group": "g-gone"}, 1),
        ("restart", "epoch", {"topic": "orders", "offset": 120}, 1),
        ("restart", "broker-registered", {"node": 1, "message": "after a start"}, 1),
        ("restart", "broker-unfenced", {"node": 1}, 1),
        ("stop", "broker-fenced", {"node": 1, "message": "controlled shutdown"}, 1),
    ],
)
def test_what_was_done_is_told_when_it_was_done(
    story: Story, deed: str, kind: str, about: dict[str, object], count: int | None
) -> None:
    """Once, at a time inside the client's own clock, and nothing of the kind at another time."""
    found = [event for event in story.of(kind, **about) if inside(event, story.deeds[deed])]
    assert len(found) == count or (count is None and found), [event for event in story.events if event.kind == kind]
    if count == 1 and kind not in ("broker-unfenced", "producer"):
        assert story.of(kind, **about) == found


def test_deleted_records_are_told_when_they_were(story: Story) -> None:
    """To the second by the epochs that a broker cuts; once it has written more epochs, only the latest possible time is
    known."""
    (event,) = [one for one in story.live if one.kind == "log-start"]
    assert (event.topic, event.partition, event.offset, event.clock) == ("orders", 0, 57, "file")
    assert inside(event, story.deeds["delete records"])
    (later,) = story.of("log-start")
    assert later.time >= event.time
    assert later.message == "the log start is 57, by then"


def test_segments_are_told_where_they_begin(story: Story) -> None:
    """Each but the first, by the file that a broker made for it."""
    files = sorted((story.data / "rolled-0").glob("*.log"))
    rolls = story.of("roll", topic="rolled")
    assert [event.file for event in rolls] == [f"rolled-0/{path.name}" for path in files[1:]]
    assert len(rolls) > 2
    assert all(inside(event, story.deeds["produce"]) for event in rolls)


def test_transactions_are_told_once_with_their_ends(story: Story) -> None:
    """Committed, aborted, timed out, fenced, open; begin and end inside the client's clock."""
    begins, ends = (
        story.of("txn-begin", transactional_id="tx-1"),
        story.of("txn-commit", "txn-abort", transactional_id="tx-1"),
    )
    for number, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        deed = story.deeds[f"tx-1 {number}"]
        assert inside(begin, deed), number
        assert inside(end, deed), number
        assert end.kind == ("txn-abort" if number % 2 else "txn-commit")
        assert (begin.topic, begin.partition) == ("txns", 0)
    (late,) = story.of("txn-abort", transactional_id="tx-late")
    assert inside(late, story.deeds["tx-late"])
    assert late.message.startswith("timed out after")
    (fenced,) = story.of("txn-fenced", transactional_id="tx-fenced")
    assert inside(fenced, story.deeds["tx-fenced"])
    (begun,), (opened,) = (story.of(kind, transactional_id="tx-open") for kind in ("txn-begin", "txn-open"))
    assert inside(begun, story.deeds["tx-open"])
    assert opened.time == begun.time
    assert "timeout 10 min" in opened.message


def test_a_java_client_of_transactions_v2_is_no_other(story: Story) -> None:
    """Each of its ends raises its epoch: no epoch shows that its successor ended the one in which it died."""
    commits, aborts = (story.of(kind, transactional_id="tx-java") for kind in ("txn-commit", "txn-abort"))
    assert story.of("txn-fenced", transactional_id="tx-java") == []
    assert len([event for event in commits if inside(event, story.deeds["java killed"])]) >= 2
    assert len([event for event in commits if inside(event, story.deeds["java"])]) >= 2
    assert [inside(event, story.deeds["java"]) for event in aborts] == [True]
    assert len(story.of("producer", topic="txns", producer_id=commits[0].producer_id)) == 1


def test_groups_are_told_as_they_came_and_committed(story: Story) -> None:
    """Rebalances at joining and leaving; commits within a second are one, with their number."""
    for group in ("g-classic", "g-new", "g-gone"):
        joins = [one for one in story.of("rebalance", group=group) if inside(one, story.deeds[f"{group} joins"])]
        leaves = [one for one in story.of("rebalance", group=group) if inside(one, story.deeds[f"{group} leaves"])]
        assert "1 member" in joins[-1].message, joins
        assert "0 members" in leaves[-1].message, leaves
        commits = story.of("commit", group=group)
        assert sum(one.commits or 0 for one in commits) == 4
        assert all(inside(one, story.deeds[f"{group} commits"]) for one in commits)
        assert {(one.topic, one.partition) for one in commits} == {("orders", 0)}


def test_beside_the_running_broker_the_same_was_told(story: Story) -> None:
    """Nothing is locked, nothing is damage because it is just being written, and nothing changes afterwards."""
    assert story.exit_code_live == 0
    assert [event for event in story.live if event.kind == "damage"] == []
    lasting = ("topic-created", "topic-deleted", "txn-commit", "txn-abort", "txn-fenced", "commit", "rebalance", "roll")
    before = [event.identity for event in story.live if event.kind in lasting]
    after = [event.identity for event in story.events if event.kind in lasting]
    assert len(before) > 30
    assert after[: len(before)] == before


def test_damage_that_is_planted_is_told_in_its_place(story: Story, tmp_path: Path) -> None:
    """Between earlier and later batches, and everything else is unchanged."""
    data = writable_copy(story.data, tmp_path / "data")
    log = data / "txns-0" / f"{0:020}.log"
    content = bytearray(log.read_bytes())
    begun = story.of("txn-begin", transactional_id="tx-late")[0]
    begins = [event for event in told(data / "txns-0") if event.kind == "txn-begin"]
    at = next(event.position for event in begins if event.producer_id == begun.producer_id)
    assert at
    content[at + 70] ^= 0xFF
    log.write_bytes(content)
    found = told(data)
    (damage,) = [event for event in found if event.kind == "damage"]
    assert (damage.topic, damage.position) == ("txns", at)
    last = story.of("txn-abort", transactional_id="tx-1")[-1]
    assert last.time - 100 <= damage.time <= begun.time + 100
    other = ("damage", "producer", "log-start")
    rest = [event.identity for event in found if event.kind not in other]
    assert rest == [event.identity for event in story.events if event.kind not in other]


def test_what_happened_is_found_by_time_and_name(story: Story) -> None:
    """The command's own filters, as an operator at three in the morning gives them."""
    deed = story.deeds["config"]
    done = run_klog(
        "timeline", str(story.data), "--around", str(deed.began), "--window", "1m", "--kind", "config-changed",
        "--topic", "pa*",
    )  # fmt: skip
    assert done.exit_code == 0
    assert done.stdout.decode().count("\n") == 1
    assert "topic pairs: retention.ms = 7200000" in done.stdout.decode()
