"""A broker that is killed under busy clients, which continue after its return.

with Wreck("4.3.1", folder) as wreck:
    wreck.restore()                  the log dir as the kill left it, as often as you like
    ...                              repair wreck.data
    said = wreck.start()             what the broker says about its logs
    wreck.state()                    what it knows of its producers and transactions
    wreck.go_on()                    the same clients, their next records
"""

from __future__ import annotations

import re
import shutil
import socket
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.brokers import clients, kafka

if TYPE_CHECKING:
    from confluent_kafka import Message, Producer

TOPICS = ("sequence", "open", "ended")
WAIT_S = clients.WAIT_S
# A broker prints these only when it reads the data of logs itself.
RECOVERY = re.compile(
    r"Recovering (?:unflushed|\d+ logs)|Attempting recovery|Found invalid|Corruption found|Rebuilding"
)


class State(NamedTuple):
    """The state of a broker.

    *ends*: by topic, the last stable offset and the log end.  *producers*: by topic, rows of the broker's own tool (id,
    epoch, coordinator epoch, last sequence, last time, start of the open transaction); empty before 3.0.  *duplicate*:
    error code and offset in the answer to a batch that was sent before: that offset again, if it was recognised.
    """

    ends: dict[str, tuple[int, int]]
    producers: dict[str, list[tuple[str, ...]]]
    duplicate: tuple[int, int]


class Wreck:
    """A killed broker and its clients: an idempotent producer, an open transaction, others that ended both ways."""

    def __init__(self, version: str, folder: Path, settings: dict[str, str] | None = None) -> None:
        small = {"log.index.interval.bytes": "512", "log.index.size.max.bytes": "65536"}
        # A broker that was killed may return only when its session is over.
        soon = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
        if version == kafka.LEGACY:
            soon = {"zookeeper.session.timeout.ms": "6000"}
        self.settings = small | (settings or {})
        self.cluster = kafka.Cluster(version, folder / "broker", settings=small | soon | (settings or {}))
        self.data, self.killed = self.cluster.data, folder / "killed"
        self._clients: tuple[Producer, Producer] | None = None
        self._sent = 0

    def __enter__(self) -> Wreck:
        self.cluster.__enter__()
        try:
            self._work()
        except BaseException:
            self.__exit__()
            raise
        self.cluster.kill()
        shutil.copytree(self.data, self.killed)
        return self

    def _work(self) -> None:
        """Let clients begin their work, and some of them end it."""
        from confluent_kafka import Producer

        at = self.cluster.bootstrap
        name = "internal.segment.bytes" if self.cluster.version == kafka.NEWEST else "segment.bytes"
        clients.create(at, {topic: {name: "100000"} for topic in TOPICS})
        records = list(clients.records("wreck", 60))
        for topic in ("ended", "open"):
            clients.with_librdkafka(at, topic, "lz4", records, transaction=f"ended-{topic}")
        common = {"bootstrap.servers": at, "linger.ms": 1, **clients.SILENT}
        sequence = Producer({**common, "enable.idempotence": True})
        transaction = Producer({**common, "transactional.id": "open", "transaction.timeout.ms": 600_000})
        self._clients = sequence, transaction
        self._send(500)
        transaction.init_transactions(WAIT_S)
        transaction.begin_transaction()
        self._decide_nothing(b"before", 20)

    def __exit__(self, *exc: object) -> None:
        if self._clients is not None:
            for client in self._clients:
                client.purge()
        self.cluster.kill()
        self.cluster.__exit__()

    def _send(self, count: int) -> None:
        """Send records with the idempotent producer; every one has to arrive."""
        assert self._clients is not None
        failed: list[object] = []

        def delivered(error: object, _: Message) -> None:
            failed.extend([error] if error is not None else [])

        producer = self._clients[0]
        await_topic(producer, "sequence")
        for number in range(self._sent, self._sent + count):
            producer.produce("sequence", value=b"%d " % number * 40, on_delivery=delivered)
            if number % 10 == 9:
                producer.flush(WAIT_S)
        self._sent += count
        assert producer.flush(WAIT_S) == 0
        assert not failed, failed[:3]

    def _decide_nothing(self, value: bytes, count: int) -> None:
        assert self._clients is not None
        producer = self._clients[1]
        await_topic(producer, "open")
        for number in range(count):
            producer.produce("open", value=b"%b %d" % (value, number))
        assert producer.flush(WAIT_S) == 0

    def restore(self) -> None:
        """Restore the log dir after the kill."""
        self.cluster.kill()
        shutil.rmtree(self.data)
        shutil.copytree(self.killed, self.data)

    def start(self) -> list[str]:
        """Start the broker; return its messages about its recovery.

        The metadata log does not count: a broker recovers it at every start, marker or not.
        """
        if not self.cluster.kraft:
            time.sleep(8)  # ZooKeeper keeps the dead broker's registration until its session is over
        said = len(self.cluster.log())
        self.cluster.start()
        self._ends(TOPICS[0])  # until it leads
        lines = self.cluster.log()[said:].splitlines()
        return [line for line in lines if RECOVERY.search(line) and "__cluster_metadata" not in line]

    def _ends(self, topic: str) -> tuple[int, int]:
        """Return the last stable offset and the log end, as soon as there is a leader to ask."""
        stable, end = (self._end(topic, isolation) for isolation in ("read_committed", "read_uncommitted"))
        return stable, end

    def _end(self, topic: str, isolation: str) -> int:
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        config = {"bootstrap.servers": self.cluster.bootstrap, "group.id": "wreck", "isolation.level": isolation}
        consumer = Consumer(config | clients.SILENT)
        began = time.monotonic()
        try:
            while True:
                try:
                    return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=5)[1])
                except KafkaException:
                    if time.monotonic() - began > WAIT_S:
                        raise
                    time.sleep(0.5)
        finally:
            consumer.close()

    def _producers(self, topic: str) -> list[tuple[str, ...]]:
        if not self.cluster.kraft:
            return []
        asked = (
            "--bootstrap-server",
            self.cluster.bootstrap,
            "describe-producers",
            "--topic",
            topic,
            "--partition",
            "0",
        )
        done = kafka.Tools().run_class("org.apache.kafka.tools.TransactionsCommand", *asked)
        assert (done.exit_code, done.died) == (0, ""), done
        return sorted(tuple(line.split()) for line in done.stdout.decode().splitlines()[1:])

    def state(self) -> State:
        """Return the running broker's state."""
        ends = {topic: self._ends(topic) for topic in TOPICS}
        producers = {topic: self._producers(topic) for topic in TOPICS}
        return State(ends, producers, send_again(self.cluster.port, "sequence", self.killed / "sequence-0"))

    def go_on(self) -> tuple[int, int]:
        """Let the clients continue; return last stable offset and end of `open` while its transaction is still open."""
        assert self._clients is not None
        before = self._ends("sequence")[1]
        self._send(50)
        assert self._ends("sequence") == (before + 50, before + 50)
        self._decide_nothing(b"after", 5)
        ends = self._ends("open")
        self._clients[1].commit_transaction(WAIT_S)
        return ends


def await_topic(producer: Producer, topic: str) -> None:
    """Wait until a producer finds *topic*: a broker that has just started may deny it for a moment."""
    end = time.monotonic() + WAIT_S
    while producer.list_topics(topic, WAIT_S).topics[topic].error is not None:
        assert time.monotonic() < end, topic
        time.sleep(0.1)


def send_again(port: int, topic: str, partition: Path) -> tuple[int, int]:
    """Send the last batch of *partition* once more, as a producer does that got no answer; return error and offset."""
    batch = bytearray(last_batch(max(partition.glob("*.log")).read_bytes()))
    struct.pack_into(">q", batch, 0, 0)
    struct.pack_into(">i", batch, 12, -1)
    name = struct.pack(">h", len(topic)) + topic.encode()
    to = struct.pack(">i", 1) + name + struct.pack(">iii", 1, 0, len(batch))
    # Produce, version 3: no transactional id, acks of all, ten seconds.
    request = struct.pack(">hhih", 0, 3, 1, -1) + struct.pack(">hhi", -1, -1, 10_000) + to + batch
    with socket.create_connection(("localhost", port), WAIT_S) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
        answer = connection.recv(size, socket.MSG_WAITALL)
    _, error, offset = struct.unpack_from(">ihq", answer, 4 + 4 + len(name) + 4)
    return error, offset


def last_batch(log: bytes) -> bytes:
    """Return the last whole batch of an undamaged log."""
    at, found = 0, b""
    while len(log) - at > 12 and 0 < (length := struct.unpack_from(">i", log, at + 8)[0]) <= len(log) - at - 12:
        found = log[at : at + 12 + length]
        at += 12 + length
    return found
