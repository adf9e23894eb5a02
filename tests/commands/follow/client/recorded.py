"""Answers of real brokers, as bytes: recorded once, played back to the client without a socket.

python -m tests.commands.follow.client.recorded 4.3.1      records `answers/4.3.1.jsonl` again
"""

from __future__ import annotations

import json
import struct
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from klog.commands.follow.client.broker_connection import BrokerConnection
from klog.commands.follow.client.cluster import EARLIEST, LATEST, Cluster
from klog.commands.follow.side_file import committed_offsets
from klog.formats.structs.schema import Data
from klog.formats.wire_messages import api_named

ANSWERS = Path(__file__).parent / "answers"
VERSIONS = ("4.3.1", "2.8.2")
TOPIC = "small"
Answers = dict[tuple[int, int], bytes]
"""API and version → an answer without its size."""


@cache
def answers(version: str) -> Answers:
    """Return the answers of a broker of this version to `everything`."""
    lines = [json.loads(line) for line in (ANSWERS / f"{version}.jsonl").read_text().splitlines()]
    return {(api_named(line["api"]).key, line["version"]): bytes.fromhex(line["answer"]) for line in lines}


def own_settings(cluster: Cluster, topics: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the settings that are set on each of *topics* itself."""
    return {topic: found.own for topic, found in cluster.settings(topics).items()}


def everything(connect: Callable[[str, int], BrokerConnection]) -> list[Any]:
    """Ask for everything that the client can ask for; return it all."""
    cluster = Cluster("localhost:9092", connect=connect)
    topics = cluster.topics()
    partitions = [(topic.name, one.partition) for topic in topics.topics for one in topic.partitions]
    offsets = cluster.offsets(partitions, EARLIEST), cluster.offsets(partitions, LATEST)
    ends = cluster.epoch_ends(dict.fromkeys(partitions, 0))
    found = [topics, own_settings(cluster, [TOPIC]), offsets, ends, committed_offsets(cluster)]
    identity = next((topic.topic_id for topic in topics.topics if topic.name == TOPIC), "A" * 22)
    partition: Data = {"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 1 << 20}
    rows = [{"topic": TOPIC, "topicId": identity, "partitions": [partition]}]
    body = {"maxWaitMs": 100, "minBytes": 1, "maxBytes": 1 << 20, "sessionEpoch": 0, "topics": rows}
    connection = connect("localhost", 9092)
    found.append(connection.request("Fetch", body, most_bytes=1 << 21, elements=1000))
    for one in found[-1]["responses"]:
        for row in one["partitions"]:
            row["records"] = bytes(row["records"] or b"")
    return found


class Playback:
    """Replaces a `Stream`: each request has the recorded answer of its API and version, changed by *change*."""

    def __init__(self, known: Answers, change: Callable[[bytes], bytes]) -> None:
        self.host, self.port, self.name = "localhost", 9092, "localhost:9092"
        self._known, self._change, self._left = known, change, memoryview(b"")
        self._opened = False

    def connect(self, _until: float) -> None:
        self._opened = True

    def close(self) -> None:
        self._opened, self._left = False, memoryview(b"")

    def is_dropped(self) -> bool:
        return not self._opened or bool(self._left)

    def send(self, data: bytes | bytearray, _until: float) -> None:
        key, _, number = struct.unpack_from(">hhi", data, 4)
        # Damaged versions may lead to requests that were not recorded.
        answer = bytearray(next(data for (known, _), data in self._known.items() if known == key))
        struct.pack_into(">i", answer, 0, number)
        self._left = memoryview(self._change(struct.pack(">i", len(answer)) + answer))

    def read_into(self, view: memoryview, _until: float) -> None:
        from klog.commands.follow.client.client_requests import LostConnectionError

        if len(view) > len(self._left):
            self.close()
            raise LostConnectionError(f"{self.name}: closed the connection")
        view[:] = self._left[: len(view)]
        self._left = self._left[len(view) :]


def played(known: Answers, change: Callable[[bytes], bytes] = bytes) -> Callable[[str, int], BrokerConnection]:
    """Return what connects to a broker that answers as recorded."""

    def connect(host: str, port: int) -> BrokerConnection:
        connection = BrokerConnection(host, port)
        connection._stream = Playback(known, change)  # type: ignore[assignment]
        return connection

    return connect


def record(version: str) -> None:
    """Start a broker with a small topic and a group, ask it for everything, and keep each first answer."""
    from tests.brokers import kafka
    from tests.brokers.clients import SILENT, create, records, with_librdkafka

    kept: dict[tuple[str, int], bytes] = {}

    class Recorder(BrokerConnection):
        def _received(self, size: int, until: float) -> memoryview:
            data = super()._received(size, until)
            assert self._asked is not None
            kept.setdefault((self._asked, self._version(self._asked)), bytes(data))
            return data

        def _receive(self, name: str, most_bytes: int, elements: int) -> Data:
            self._asked = name
            return super()._receive(name, most_bytes, elements)

    with tempfile.TemporaryDirectory() as folder, kafka.Cluster(version, Path(folder) / "broker") as broker:
        from confluent_kafka import Consumer, TopicPartition

        create(broker.bootstrap, {TOPIC: {"retention.ms": "1234567890123"}}, partitions=2)
        with_librdkafka(broker.bootstrap, TOPIC, "none", records("recorded", 12))
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers", **SILENT})
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, 7)], asynchronous=False)
        consumer.close()
        everything(lambda _host, _port: Recorder("localhost", broker.port))
    lines = [{"api": name, "version": number, "answer": data.hex()} for (name, number), data in kept.items()]
    ANSWERS.mkdir(exist_ok=True)
    (ANSWERS / f"{version}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


if __name__ == "__main__":
    record(sys.argv[1])
