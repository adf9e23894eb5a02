"""The history of a small cluster, lived once: disks at several moments, and the ledger of acknowledged records.

Rounds work on copies of these disks.  The moments:

    early     a clean stop after the first part; what older copies of a metadata log or of a partition are taken from
    killed    all nodes killed at once at the end, transactions open, one node behind where there are several
    clean     started again, and stopped cleanly
    copy-early, copy-late   copies by `klog follow` of these two times
    reborn    of a single node: the metadata log lost, the topics made again, so that everything has turned -stray
"""

from __future__ import annotations

import contextlib
import random
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.brokers import clients
from tests.proof.ledger import Fate, Ledger, Sent, Topic
from tests.proof.nodes import Host, NoCleanStopError, Nodes
from tests.proof.reading import leaders
from tests.proof.words import Klog

if TYPE_CHECKING:
    from confluent_kafka import Message, Producer

HOUR_MS = 3_600_000
SEGMENT = "2000"
PARTITIONS = 3


class Shape(NamedTuple):
    """How many nodes, and log dirs of each."""

    nodes: int
    log_dirs: int


SETTINGS = {
    "plain": {"cleanup.policy": "delete", "retention.ms": "-1"},
    "idem": {"cleanup.policy": "delete", "retention.ms": "-1"},
    "txn": {"cleanup.policy": "delete", "retention.ms": "-1"},
    "state": {"cleanup.policy": "compact", "delete.retention.ms": "100", "min.compaction.lag.ms": "0"},
    "kept": {"cleanup.policy": "compact", "delete.retention.ms": "86400000", "min.compaction.lag.ms": "0"},
    "trim": {"cleanup.policy": "delete", "retention.ms": "-1"},
    "gone": {"cleanup.policy": "delete", "retention.ms": "-1"},
    "short": {"cleanup.policy": "delete", "retention.ms": str(HOUR_MS)},
    "size": {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "2000"},
}


@dataclass
class History:
    """A cluster's past.  *reborn*: the ids of the topics that were made again, by those of old."""

    shape: Shape
    folder: Path
    ledger: Ledger = field(default_factory=Ledger)
    reborn: dict[str, str] = field(default_factory=dict)

    def disks(self, moment: str) -> Path:
        """Return the folder with the disks of all nodes at a moment."""
        return self.folder / moment


class _Writer:
    """Lives the history."""

    def __init__(self, host: Host, klog: Klog, shape: Shape, folder: Path, port: int, seed: int) -> None:
        self.klog = klog
        self.chance = random.Random(seed)
        self.nodes = Nodes(host, folder / "live", *shape, port=port, is_quiet=True)
        self.history = History(shape, folder)
        self.ledger = self.history.ledger
        self.phase = 0
        self.open: list[Producer] = []
        self.down: set[int] = set()

    # topics

    def create(self, *names: str, partitions: int = PARTITIONS) -> None:
        from confluent_kafka.admin import NewTopic

        nodes = self.nodes.numbers
        made, replicas = [], {}
        for name in names:
            spread = [[*nodes[at % len(nodes) :], *nodes[: at % len(nodes)]] for at in range(partitions)]
            size = self.chance.choice((1, 2, 3))
            replicas[name] = [each[:size] for each in spread]
            settings = SETTINGS[name] | {"internal.segment.bytes": SEGMENT}
            made.append(NewTopic(name, partitions, replica_assignment=replicas[name], config=settings))
        clients.make(self.nodes.bootstrap, made)
        wanted = dict.fromkeys(names, partitions)
        for name, identity in identities(self.nodes, wanted).items():
            self.ledger.topics[identity] = Topic(name, identity, replicas[name], SETTINGS[name])

    def delete(self, name: str) -> None:
        client = clients.admin(self.nodes.bootstrap)  # without a name it would be deleted before the answer arrives
        for future in client.delete_topics([name]).values():
            future.result(clients.WAIT_S)
        self.ledger.named(name).is_deleted = True
        end = time.monotonic() + 30
        while any(path for disk in self.nodes.all_disks for path in disk.glob(f"{name}-*")):
            assert time.monotonic() < end, f"{name} is still there"
            time.sleep(0.1)

    def trim(self, name: str, partition: int, offset: int) -> None:
        """Have DeleteRecords move a log start."""
        from confluent_kafka import TopicPartition

        client = clients.admin(self.nodes.bootstrap)
        for future in client.delete_records([TopicPartition(name, partition, offset)]).values():
            assert future.result(clients.WAIT_S).low_watermark == offset
        self.ledger.trimmed[self.ledger.named(name).identity, partition] = offset

    # records

    def producer(self, **more: object) -> Producer:
        from confluent_kafka import Producer

        config = {"bootstrap.servers": self.nodes.bootstrap, "acks": "all", "linger.ms": 1, **clients.SILENT}
        config["batch.num.messages"] = 10  # on a slow machine more would wait: a batch larger than a segment is refused
        return Producer(config | {name.replace("_", "."): value for name, value in more.items()})

    def send(
        self,
        producer: Producer,
        name: str,
        count: int,
        *,
        fate: Fate = Fate.PLAIN,
        transaction: str = "",
        age_ms: int = 0,
        partitions: tuple[int, ...] = (),
    ) -> list[Sent]:
        """Send so many records to each partition, in small batches, and record the acknowledged ones."""
        topic, found = self.ledger.named(name), list[Sent]()

        def delivered(error: object, message: Message) -> None:
            assert error is None, error
            one = Sent(
                message.offset(), message.key(), message.value(), message.timestamp()[1], self.phase, fate, transaction
            )
            self.ledger.sent[topic.identity, message.partition()][one.offset] = one
            found.append(one)

        led = [number for number, nodes in enumerate(topic.replicas) if set(nodes) - self.down]
        for number in partitions or led:
            for at in range(count):
                key, value = self._content(topic, at)
                stamp = int(time.time() * 1000) - age_ms
                producer.produce(name, value, key, partition=number, timestamp=stamp, on_delivery=delivered)
                if self.chance.random() < 0.2:
                    producer.flush(clients.WAIT_S)
        assert producer.flush(clients.WAIT_S) == 0
        return found

    def _content(self, topic: Topic, at: int) -> tuple[bytes | None, bytes | None]:
        value = b"%s-%d-%d " % (topic.name.encode(), self.phase, at) + self.chance.randbytes(self.chance.randrange(90))
        if topic.is_compacted:
            key = b"key-%d" % self.chance.randrange(25)
            return key, None if self.chance.random() < 0.15 else value
        return self.chance.choice((None, b"", b"k%d" % at)), value

    def transact(
        self, name: str, transaction: str, count: int, fate: Fate, producer: Producer | None = None
    ) -> Producer:
        """Run a transaction in each partition of a topic; one that is to stay open is left to its coordinator."""
        if producer is None:
            producer = self.producer(transactional_id=transaction, transaction_timeout_ms=HOUR_MS * 20)
            producer.init_transactions(clients.WAIT_S)
        producer.begin_transaction()
        self.send(producer, name, count, fate=fate, transaction=transaction)
        if fate is Fate.COMMITTED:
            producer.commit_transaction(clients.WAIT_S)
        elif fate is Fate.ABORTED:
            producer.abort_transaction(clients.WAIT_S)
        return producer

    def work(self) -> None:
        """Let producers of every kind write to every topic."""
        plain, idempotent = self.producer(), self.producer(enable_idempotence=True)
        other = self.producer(enable_idempotence=True)
        few = self.chance.randrange(6, 14)
        for name in ("plain", "trim", "gone", "state", "kept"):
            self.send(plain, name, few)
        for name in ("idem", "state", "plain"):
            self.send(idempotent, name, few)
        self.send(other, "idem", few // 2)
        transactional = self.transact("txn", f"t-{self.phase}", few // 2, Fate.COMMITTED)
        for fate in self.chance.choices((Fate.COMMITTED, Fate.ABORTED), k=3):
            name = self.chance.choice(("txn", "state", "kept"))
            self.transact(name, f"t-{self.phase}", 3, fate, transactional)
            self.send(idempotent, "txn", 2)
        self.phase += 1

    # moments

    def start(self) -> None:
        failed = self.nodes.start()
        assert not failed, failed

    def save(self, moment: str) -> None:
        shutil.copytree(self.nodes.folder, self.history.disks(moment))

    def copy(self, name: str) -> None:
        run = self.klog("follow", self.nodes.bootstrap, "--to", self.history.folder / name, "--timeout", "5s")
        assert not run.code & 8, run.said

    def live(self) -> History:
        self.nodes.format()
        self.start()
        self.create("plain", "idem", "txn", "state", "kept", "trim", "gone")
        self.work()
        self.work()
        self.copy("copy-early")
        self.nodes.stop()
        self.save("early")
        self.nodes.is_quiet = False
        self.start()
        self.work()
        self.delete("gone")
        self.create("gone", partitions=PARTITIONS - 1)
        self.trim("trim", 1, 10)
        self.trim("trim", 2, max(self.ledger.sent[self.ledger.named("trim").identity, 2]) + 1)
        self.work()
        self.nodes.pause()
        self.nodes.stop()
        self.nodes.is_quiet = True
        self.start()
        self.create("short", "size")
        self._shorten()
        self.work()
        self.copy("copy-late")
        if len(self.nodes.numbers) > 2:
            self.down.add(self.nodes.numbers[-1])
            self.nodes.stop(*self.down)
            self.work()
        self._leave_open()
        time.sleep(0.5)
        self.nodes.kill()
        self.open.clear()
        self.save("killed")
        self.start()
        leaders(self.nodes.bootstrap, 20)  # a node that is stopped before it is unfenced may take for ever
        time.sleep(2)
        self.nodes.stop()
        self.save("clean")
        if len(self.nodes.numbers) == 1:
            self._be_reborn()
        shutil.rmtree(self.nodes.folder)
        return self.history

    def _shorten(self) -> None:
        """Write records that retention takes at its first pass, all or some of it, and others that it leaves."""
        plain = self.producer()
        self.send(plain, "short", 30, age_ms=HOUR_MS * 2, partitions=(0, 1))
        self.send(plain, "short", 20, partitions=(1, 2))
        self.send(plain, "size", 60, partitions=(0,))
        self.send(plain, "size", 8, partitions=(1, 2))

    def _leave_open(self) -> None:
        for name in self.chance.sample(("txn", "kept", "idem"), 2):
            self.open.append(self.transact(name, f"open-{name}", 3, Fate.OPEN))
            self.send(self.producer(), name, 2)

    def _be_reborn(self) -> None:
        for disk in self.nodes.all_disks:
            shutil.rmtree(disk / "__cluster_metadata-0", ignore_errors=True)
        self.start()
        ledger, before = self.ledger, dict(self.ledger.topics)
        self.ledger = Ledger()  # objects created from here on are not of the history
        names = {topic.name: topic for topic in before.values() if not topic.is_deleted}
        for name, topic in names.items():
            self.create(name, partitions=len(topic.replicas))
        self.history.reborn = {names[new.name].identity: new.identity for new in self.ledger.topics.values()}
        self.ledger = ledger
        self.nodes.stop()
        self.save("reborn")


def identities(nodes: Nodes, wanted: dict[str, int]) -> dict[str, str]:
    """Return the topic ids that the disks have, as soon as each wanted topic has a directory."""
    end = time.monotonic() + 30
    while True:
        found: dict[str, str] = {}
        for path in (path for disk in nodes.all_disks for path in disk.glob("*-[0-9]*/partition.metadata")):
            name = path.parent.name.rpartition("-")[0]
            if name in wanted and "." not in path.parent.name:
                with contextlib.suppress(OSError, IndexError):
                    found[name] = path.read_text().split("topic_id:")[1].strip()
        if set(found) == set(wanted):
            return found
        assert time.monotonic() < end, f"no directory of {set(wanted) - set(found)}"
        time.sleep(0.1)


def live(host: Host, klog: Klog, shape: Shape, folder: Path, port: int, seed: int) -> History:
    """Have a cluster of this shape live, and return its history; again where its nodes do not stop cleanly."""
    for _ in range(3):
        with contextlib.suppress(NoCleanStopError):
            return _Writer(host, klog, shape, folder, port, seed).live()
        shutil.rmtree(folder)
        folder.mkdir()
    raise NoCleanStopError
