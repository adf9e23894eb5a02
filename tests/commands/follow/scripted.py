"""A made-up cluster of one broker: it answers as a leader does, unless a test changes its answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from klog.formats.structs.schema import Data
from klog.formats.wire_messages import ApiRequest

from tests.commands.follow.client.fake_broker import FakeBroker, Peer
from tests.conftest import FIXTURES

CLUSTER = "fXeC61JOQie3q2pvw8VSPQ"
OUT_OF_RANGE, UNKNOWN_TOPIC_ID, GROUP_DENIED = 1, 100, 30
Change = Callable[[ApiRequest, Data], "Data | bytes"]
"""Gets a request and the honest answer; returns another answer, or bytes to be sent in its place."""


def split(log: bytes) -> list[bytes]:
    """Return the batches of a log."""
    found, position = [], 0
    while position < len(log):
        size = 12 + int.from_bytes(log[position + 8 : position + 12], "big")
        found.append(log[position : position + size])
        position += size
    return found


def of_fixture(name: str = "plain-2") -> list[bytes]:
    """Return the batches of a real partition, which begin at 0."""
    return split((FIXTURES / "modern" / name / f"{0:020}.log").read_bytes())


def renumbered(batch: bytes, base: int, epoch: int = 0) -> bytes:
    """Return a batch elsewhere in a log; neither field is under its checksum."""
    return base.to_bytes(8, "big", signed=True) + batch[8:12] + epoch.to_bytes(4, "big", signed=True) + batch[16:]


def base_of(batch: bytes) -> int:
    return int.from_bytes(batch[:8], "big", signed=True)


def end_of(batch: bytes) -> int:
    """Return the offset behind a batch."""
    return base_of(batch) + int.from_bytes(batch[23:27], "big") + 1


def identity(topic: str) -> str:
    """Return a topic id of 22 letters."""
    return (topic.encode().hex() + "A" * 21)[:21] + "A"


class ScriptedCluster:
    """Leads *topics*, each with one partition of these batches; *changes*: by API, other answers.

    *asked*: how often each API was.  *settings*: by topic.  *counts*: of partitions, which all have the same batches;
    *ids*: of topics that were created again.  *starts*: log starts above the first batch.  *groups*: what each has
    committed, topics and offsets; *unseen*: of these groups the caller may see nothing.
    """

    def __init__(self, topics: Mapping[str, list[bytes]], changes: Mapping[str, Change] | None = None) -> None:
        self.topics, self.changes = dict(topics), dict(changes or {})
        self.asked: dict[str, int] = {}
        self.settings: dict[str, dict[str, str]] = {}
        self.counts: dict[str, int] = {}
        self.ids: dict[str, str] = {}
        self.starts: dict[str, int] = {}
        self.groups: dict[str, list[tuple[str, int]]] = {}
        self.unseen: set[str] = set()
        self._broker = FakeBroker(self._talk)
        self.bootstrap = self._broker.bootstrap

    def __enter__(self) -> ScriptedCluster:
        return self

    def __exit__(self, *exc: Any) -> None:
        self._broker.__exit__(None, None, None)

    @property
    def failed(self) -> list[Exception]:
        """Return the exceptions in a test's own part."""
        return self._broker.failed

    def _talk(self, peer: Peer) -> None:
        while True:
            request = peer.request()
            name = request.api.name
            self.asked[name] = self.asked.get(name, 0) + 1
            said: Data | bytes = self.answer(request)
            if name in self.changes:
                assert not isinstance(said, bytes)
                said = self.changes[name](request, said)
            if isinstance(said, bytes):
                peer.send(said)
            else:
                peer.answer(request, said)

    def answer(self, request: ApiRequest) -> Data:
        """Return what an honest broker would answer."""
        from klog.formats.wire_messages import offered

        made: dict[str, Callable[[Data], Data]] = {
            "ApiVersions": lambda _: {"apiKeys": offered()},
            "Metadata": self._metadata,
            "ListOffsets": self._list_offsets,
            "Fetch": self._fetch,
            "OffsetForLeaderEpoch": self._epoch_ends,
            "DescribeConfigs": self._configs,
            "ListGroups": lambda _: {"groups": [{"groupId": one} for one in self.groups if one not in self.unseen]},
            "FindCoordinator": self._coordinators,
            "OffsetFetch": self._committed,
        }
        return made[request.api.name](request.body or {})

    def _metadata(self, _: Data) -> Data:
        partition = {"partitionIndex": 0, "leaderId": 1, "leaderEpoch": 0, "replicaNodes": [1], "isrNodes": [1]}
        topics = [
            {"name": name, "topicId": self.id_of(name)}
            | {"partitions": [partition | {"partitionIndex": at} for at in range(self.counts.get(name, 1))]}
            for name in self.topics
        ]
        broker = {"nodeId": 1, "host": self._broker.host, "port": self._broker.port}
        return {"brokers": [broker], "clusterId": CLUSTER, "controllerId": 1, "topics": topics}

    def _each(self, body: Data, row: Callable[[str, Data], Data]) -> Data:
        return {
            "topics": [
                topic | {"partitions": [row(topic[name], one) for one in topic["partitions"]]}
                for topic in body["topics"]
                for name in ("name" if "name" in topic else "topic",)
            ]
        }

    def drop_connections(self) -> None:
        """Close all connections, as those of a stopped broker."""
        self._broker.drop()

    def id_of(self, topic: str) -> str:
        return self.ids.get(topic, identity(topic))

    def _bounds(self, topic: str) -> tuple[int, int]:
        batches, start = self.topics[topic], self.starts.get(topic, 0)
        return (max(start, base_of(batches[0])), end_of(batches[-1])) if batches else (start, start)

    def _list_offsets(self, body: Data) -> Data:
        def row(topic: str, asked: Data) -> Data:
            offset = self._bounds(topic)[-2 - asked["timestamp"]]
            return {"partitionIndex": asked["partitionIndex"], "offset": offset, "timestamp": -1, "leaderEpoch": 0}

        return self._each(body, row)

    def _epoch_ends(self, body: Data) -> Data:
        def row(topic: str, asked: Data) -> Data:
            return {"partition": asked["partition"], "leaderEpoch": 0, "endOffset": self._bounds(topic)[1]}

        return self._each(body, row)

    def _configs(self, body: Data) -> Data:
        kept = [{"resourceType": one["resourceType"], "resourceName": one["resourceName"]} for one in body["resources"]]
        return {
            "results": [
                one | {"errorCode": 0, "errorMessage": None, "configs": self._settings_of(one["resourceName"])}
                for one in kept
            ]
        }

    def _settings_of(self, topic: str) -> list[Data]:
        """Return the settings of a topic."""
        found = self.settings.get(topic, {})
        return [{"name": name, "value": value, "configSource": 1} for name, value in found.items()]

    def _coordinators(self, body: Data) -> Data:
        place = {"nodeId": 1, "host": self._broker.host, "port": self._broker.port}
        return {
            "coordinators": [
                {"key": key, **place, "errorCode": GROUP_DENIED if key in self.unseen else 0}
                for key in body["coordinatorKeys"]
            ]
        }

    def _committed(self, body: Data) -> Data:
        def group(name: str) -> Data:
            rows = [
                {"name": topic, "partitions": [{"partitionIndex": 0, "committedOffset": offset, "metadata": ""}]}
                for topic, offset in self.groups.get(name, [])
            ]
            return {"groupId": name, "topics": rows}

        return {"groups": [group(one["groupId"]) for one in body["groups"]]}

    def _fetch(self, body: Data) -> Data:
        names = {self.id_of(name): name for name in self.topics}
        responses = [
            {
                "topicId": topic["topicId"],
                "partitions": [self._rows(names.get(topic["topicId"], ""), one) for one in topic["partitions"]],
            }
            for topic in body["topics"]
        ]
        left = body["maxBytes"]
        for row in [one for topic in responses for one in topic["partitions"]]:
            if len(row["records"]) > left < body["maxBytes"]:
                row["records"] = b""
            left -= len(row["records"])
        if not any(one["records"] for topic in responses for one in topic["partitions"]):
            time.sleep(min(body["maxWaitMs"], 100) / 1000)
        return {"sessionId": 0, "responses": responses}

    def _rows(self, topic: str, asked: Data) -> Data:
        batches = self.topics.get(topic)
        row: Data = {"partitionIndex": asked["partition"], "highWatermark": -1, "logStartOffset": -1, "records": b""}
        if batches is None:
            return row | {"errorCode": UNKNOWN_TOPIC_ID}
        start, end = self._bounds(topic)
        offset = asked["fetchOffset"]
        if not start <= offset <= end:
            return row | {"errorCode": OUT_OF_RANGE}
        wanted, size = [], 0
        for batch in batches:
            if end_of(batch) > offset and (not wanted or size < asked["partitionMaxBytes"]):
                wanted.append(batch)
                size += len(batch)
        return row | {"highWatermark": end, "logStartOffset": start, "records": b"".join(wanted)}


def log_of(copy: Path, name: str) -> bytes:
    """Return all batches of a partition of a copy; none if there is no such directory."""
    return b"".join(path.read_bytes() for path in sorted((copy / name).glob("*.log")))
