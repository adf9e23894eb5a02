"""A cluster for a client: its brokers, topics and leaders, and their answers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from threading import Event
from typing import Final, NamedTuple, TypeAlias, TypeVar

from klog.base.errors import UsageError
from klog.commands.follow.client.broker_connection import BrokerConnection, refused
from klog.commands.follow.client.client_requests import LostConnectionError
from klog.commands.follow.client.client_security import Security
from klog.commands.follow.client.tcp_stream import PORTS
from klog.formats.error_codes import ErrorCode, error_code
from klog.formats.java_text import ZERO_UUID
from klog.formats.structs.schema import Data

EARLIEST: Final = -2
LATEST: Final = -1
"""Timestamps of ListOffsets: the log start, and for a consumer the high watermark."""
_CONSUMER: Final = -1
_FETCH_BYTES: Final = 1 << 20
_LARGEST_FETCH: Final = 256 << 20
"""A batch that is larger than the limit is sent whole."""
_SEVERAL: Final = 1000
"""How many partitions or topics one request names: an answer then has a bounded size."""

_LONGEST_HOST: Final = 255
_NOBODY: Final = -1
_TOPIC_RESOURCE: Final = 2
_OWN: Final = 1
"""ConfigSource: set on the topic itself."""
_T = TypeVar("_T")

TopicPartition: TypeAlias = "tuple[str, int]"


class LeaderOfPartition(NamedTuple):
    """Who leads a partition.  *leader* is a node id, -1 when there is none; *leader_epoch* -1 when it is unknown."""

    partition: int
    leader: int
    leader_epoch: int
    error: ErrorCode


class TopicOfCluster(NamedTuple):
    """A topic.  *topic_id* has 22 letters, ZERO_UUID if the cluster has none; partitions ascend."""

    name: str
    topic_id: str
    internal: bool
    error: ErrorCode
    partitions: tuple[LeaderOfPartition, ...]


class ClusterTopics(NamedTuple):
    """An answer to Metadata.  *brokers*: node id → host and port."""

    cluster_id: str
    brokers: dict[int, tuple[str, int]]
    topics: tuple[TopicOfCluster, ...]


class TopicSettings(NamedTuple):
    """Settings of a topic: its *own*, and all effective ones, with those of its brokers."""

    own: dict[str, str]
    effective: dict[str, str]


class OffsetAnswer(NamedTuple):
    """An offset, -1 when there is none, and the epoch of its record, -1 when it is unknown."""

    error: ErrorCode
    offset: int
    leader_epoch: int


class EpochAnswer(NamedTuple):
    """The largest epoch up to the requested one, and its end; -1 and -1 when the leader has none."""

    error: ErrorCode
    epoch: int
    end_offset: int


def parse_bootstrap(text: str) -> tuple[tuple[str, int], ...]:
    """Return hosts and ports out of `host:port,[::1]:port`.  Raises UsageError."""
    found = []
    for part in text.split(","):
        host, colon, port = part.strip().rpartition(":")
        bare = host[1:-1] if host[:1] == "[" and host[-1:] == "]" else host
        right = colon and bare and (bare == host) == (":" not in host) and port.isascii() and port.isdigit()
        if not right or len(port) > 5 or int(port) not in PORTS:
            raise UsageError(f"{part.strip() or text!r}: a broker is HOST:PORT, or [ADDRESS]:PORT for IPv6")
        found.append((bare, int(port)))
    return tuple(found)


class Cluster:
    """A cluster by its *bootstrap* brokers, for use on one thread.

    Its methods send requests to the broker with the answer, over connections of its own; a fetching thread takes one
    for itself with `connection`.  They raise the errors of BrokerConnection, and RefusedRequestError for errors of a
    whole answer; errors of single topics or partitions are values.
    """

    def __init__(
        self,
        bootstrap: str,
        security: Security | None = None,
        *,
        stop: Event | None = None,
        connect: Callable[[str, int], BrokerConnection] | None = None,
    ) -> None:
        self._bootstrap = parse_bootstrap(bootstrap)
        self._connect = connect or (lambda host, port: BrokerConnection(host, port, security, stop=stop))
        self._brokers: dict[int, tuple[str, int]] = {}
        self._leaders: dict[TopicPartition, LeaderOfPartition] = {}
        self._connections: dict[int, BrokerConnection] = {}
        self._any: BrokerConnection | None = None

    def close(self) -> None:
        """End all connections, except those that `connection` returned."""
        for each in (*self._connections.values(), *([self._any] if self._any is not None else ())):
            each.close()
        self._connections, self._any = {}, None

    def connection(self, node: int) -> BrokerConnection:
        """Return a new connection to the broker *node*, for the caller to use and to close; see `topics`.

        Raises LostConnectionError if the last answer to `topics` does not name it.
        """
        if node not in self._brokers:
            raise LostConnectionError(f"node {node}: the cluster has no address for it")
        return self._connect(*self._brokers[node])

    # ------------------------------------------------------------ topics

    def topics(self, names: Sequence[str] | None = None) -> ClusterTopics:
        """Request the brokers and the topics of these *names* from any broker, None: all topics; the leaders are kept.

        Does not create a topic.
        """
        body: Data = {"topics": None, "allowAutoTopicCreation": False}
        if names is not None:
            body["topics"] = [{"name": name, "topicId": ZERO_UUID} for name in names]
        answer = self.ask_any("Metadata", body)
        if answer["errorCode"]:
            raise refused("Metadata", "the cluster", answer["errorCode"])
        named = ((one["nodeId"], one["host"], one["port"]) for one in answer["brokers"])
        self._brokers = {node: (host, port) for node, host, port in named if _is_host(host)}
        for node, connection in list(self._connections.items()):
            host, port = self._brokers.get(node, ("", 0))
            if (connection.host, connection.port) != (host, port):
                self._connections.pop(node).close()
        topics = tuple(_topic(one) for one in answer["topics"] if one["name"] is not None)
        leaders = {(topic.name, one.partition): one for topic in topics for one in topic.partitions}
        self._leaders = leaders if names is None else self._leaders | leaders
        return ClusterTopics(answer["clusterId"] or "", dict(self._brokers), topics)

    def settings(self, topics: Iterable[str]) -> dict[str, TopicSettings]:
        """Return the settings of *topics*; a deleted topic is left out.

        Raises RefusedRequestError when a topic's settings may not be read.
        """
        found: dict[str, TopicSettings] = {}
        for some in _parts(topics):
            wanted = [
                {"resourceType": _TOPIC_RESOURCE, "resourceName": name, "configurationKeys": None} for name in some
            ]
            for one in self.ask_any("DescribeConfigs", {"resources": wanted})["results"]:
                if one["errorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    continue
                if one["errorCode"]:
                    raise refused("DescribeConfigs", f"topic {one['resourceName'][:249]}", one["errorCode"])
                known = [each for each in one["configs"] if each["value"] is not None]
                own = {each["name"]: each["value"] for each in known if each["configSource"] == _OWN}
                found[one["resourceName"]] = TopicSettings(own, {each["name"]: each["value"] for each in known})
        return found

    # ------------------------------------------------------------ offsets and epochs

    def offsets(self, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, OffsetAnswer]:
        """Request EARLIEST or LATEST of each of *partitions* from the leaders.

        LEADER_NOT_AVAILABLE: it has no leader, according to the last call of `topics`; NETWORK_EXCEPTION: its leader
        did not answer.
        """

        def row(key: TopicPartition, epoch: int) -> Data:
            return {"partitionIndex": key[1], "currentLeaderEpoch": epoch, "timestamp": timestamp}

        return {
            key: OffsetAnswer(error, one.get("offset", -1), one.get("leaderEpoch", -1))
            for key, error, one in self._ask_leaders("ListOffsets", partitions, row, ("name", "partitionIndex"))
        }

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochAnswer]:
        """Request the ends of these *epochs* from the leaders; errors as in `offsets`."""

        def row(key: TopicPartition, epoch: int) -> Data:
            return {"partition": key[1], "currentLeaderEpoch": epoch, "leaderEpoch": epochs[key]}

        return {
            key: EpochAnswer(error, one.get("leaderEpoch", -1), one.get("endOffset", -1))
            for key, error, one in self._ask_leaders("OffsetForLeaderEpoch", epochs, row, ("topic", "partition"))
        }

    def fetch(self, node: int, topic: str, topic_id: str, number: int, offset: int) -> memoryview:
        """Return the batches that the broker *node* sends from the one with *offset* on, empty if it has none there.

        Valid until the next request to that broker.  Raises RefusedRequestError for an error of the partition, too.
        """
        row = {"partition": number, "currentLeaderEpoch": -1, "fetchOffset": offset}
        row |= {"lastFetchedEpoch": -1, "partitionMaxBytes": _FETCH_BYTES}
        body: Data = {"replicaId": _CONSUMER, "maxWaitMs": 0, "minBytes": 1, "maxBytes": _FETCH_BYTES}
        body |= {"sessionId": 0, "sessionEpoch": -1, "forgottenTopicsData": []}
        body["topics"] = [{"topic": topic, "topicId": topic_id, "partitions": [row]}]
        answer = self.at(node).request("Fetch", body, most_bytes=_LARGEST_FETCH)
        rows = [one for each in answer["responses"] for one in each["partitions"]]
        error = answer["errorCode"] or next((one["errorCode"] for one in rows), 0)
        if error:
            raise refused(self.at(node).name, f"Fetch of {topic}-{number}", error)
        return memoryview(rows[0]["records"] or b"") if rows else memoryview(b"")

    def _ask_leaders(
        self,
        request: str,
        partitions: Iterable[TopicPartition],
        row: Callable[[TopicPartition, int], Data],
        fields: tuple[str, str],
    ) -> Iterator[tuple[TopicPartition, ErrorCode, Data]]:
        """Yield each of *partitions* with its error and its part of an answer, which is empty when there is none.

        *row* makes the partition's part of the request, with the leader epoch; *fields*: the names of its name and
        number there.
        """
        by_leader: dict[int, list[TopicPartition]] = {}
        for key in partitions:
            known = self._leaders.get(key)
            by_leader.setdefault(known.leader if known is not None else _NOBODY, []).append(key)
        for leader, keys in by_leader.items():
            for some in _parts(keys):
                found: dict[TopicPartition, Data] = {}
                missing = ErrorCode.LEADER_NOT_AVAILABLE
                if leader in self._brokers:
                    rows = [(key[0], row(key, self._leaders[key].leader_epoch)) for key in some]
                    body: Data = {"replicaId": _CONSUMER, "isolationLevel": 0, "topics": _by_topic(rows, fields[0])}
                    missing = ErrorCode.NETWORK_EXCEPTION
                    with contextlib.suppress(LostConnectionError):
                        answer = self.at(leader).request(request, body)
                        found = {
                            (topic[fields[0]], one[fields[1]]): one
                            for topic in answer["topics"]
                            for one in topic["partitions"]
                        }
                for key in some:
                    one = found.get(key, {})
                    yield key, error_code(one["errorCode"]) if one else missing, one

    # ------------------------------------------------------------ brokers

    def at(self, node: int) -> BrokerConnection:
        """Return the connection to the broker *node* that this object keeps; see `connection`."""
        found = self._connections.get(node)
        if found is None:
            found = self._connections[node] = self.connection(node)
        return found

    def nodes(self) -> list[int]:
        """Return the node ids of the brokers that the last answer to `topics` named."""
        return sorted(self._brokers)

    def ask_any(self, request: str, body: Data) -> Data:
        """Return the answer of the first broker that gives one: the last one, the bootstrap brokers, then all others.

        Raises LostConnectionError with the first failure when there is none.
        """
        last = ((self._any.host, self._any.port),) if self._any is not None else ()
        failures: list[LostConnectionError] = []
        for host, port in dict.fromkeys((*last, *self._bootstrap, *self._brokers.values())):
            if self._any is None or (self._any.host, self._any.port) != (host, port):
                self._any = self._connect(host, port)
            try:
                return self._any.request(request, body)
            except LostConnectionError as failure:
                failures.append(failure)
        raise failures[0]

    def any_version(self, request: str) -> int:
        """Return the version in which `ask_any` sends *request*, once it has sent one."""
        return self._any.version(request) if self._any is not None else 0


def _is_host(name: str) -> bool:
    """Whether a broker's host may be looked up, and shown."""
    return 0 < len(name) <= _LONGEST_HOST and name.isprintable() and not any(letter.isspace() for letter in name)


def _topic(one: Data) -> TopicOfCluster:
    leaders = [
        LeaderOfPartition(each["partitionIndex"], each["leaderId"], each["leaderEpoch"], error_code(each["errorCode"]))
        for each in one["partitions"]
    ]
    error, internal = error_code(one["errorCode"]), one["isInternal"]
    return TopicOfCluster(one["name"], one["topicId"], internal, error, tuple(sorted(leaders)))


def _by_topic(rows: Iterable[tuple[str, Data]], name: str) -> list[Data]:
    """Return the rows of a request below their topics, whose field is *name*."""
    topics: dict[str, list[Data]] = {}
    for topic, row in rows:
        topics.setdefault(topic, []).append(row)
    return [{name: topic, "partitions": partitions} for topic, partitions in topics.items()]


def _parts(items: Iterable[_T]) -> Iterator[list[_T]]:
    """Yield *items* in lists that one request may name."""
    rest = iter(items)
    while some := list(islice(rest, _SEVERAL)):
        yield some
