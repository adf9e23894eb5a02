"""Real brokers of three versions, and `klog serve`: the client's answers are the content of the disk."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from klog.commands.follow.client.broker_connection import BrokerConnection
from klog.commands.follow.client.client_requests import REQUESTS, LostConnectionError
from klog.commands.follow.client.cluster import EARLIEST, LATEST, Cluster, EpochAnswer, LeaderOfPartition, OffsetAnswer
from klog.commands.follow.side_file import committed_offsets
from klog.formats.error_codes import ErrorCode
from klog.formats.follow_file import GroupOffset
from klog.formats.java_text import ZERO_UUID
from klog.formats.structs.schema import Data

from tests.brokers import kafka
from tests.brokers.clients import SILENT, create, records, with_librdkafka
from tests.commands.follow.client.recorded import own_settings
from tests.commands.serve.serving import Serving

TOPICS = ("lz4-one", "transactions")
RETENTION = {"retention.ms": "1234567890123", "cleanup.policy": "delete"}
FETCH_VERSION = {kafka.NEWEST: 18, kafka.BEFORE: 17, kafka.LEGACY: 12}


@dataclass
class Live:
    """A cluster that answers, and the log dir that it answers from."""

    version: str
    bootstrap: str
    data: Path

    def log(self, topic: str) -> bytes:
        return (self.data / f"{topic}-0" / f"{0:020}.log").read_bytes()

    def topic_id(self, topic: str) -> str:
        """Return the topic id on the disk.  2.8 has ids but does not write them; it fetches by name."""
        if self.version == kafka.LEGACY:
            return ZERO_UUID
        found = re.search(r"topic_id: (\S+)", (self.data / f"{topic}-0" / "partition.metadata").read_text())
        assert found is not None
        return found[1]


def fill(bootstrap: str) -> None:
    """Make two topics, records in both, and a group that has committed."""
    from confluent_kafka import Consumer, TopicPartition

    create(bootstrap, {TOPICS[0]: RETENTION, TOPICS[1]: {}}, partitions=2)
    with_librdkafka(bootstrap, TOPICS[0], "lz4", records("client", 300))
    with_librdkafka(bootstrap, TOPICS[1], "none", records("client", 100), transaction="client")
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", **SILENT})
    consumer.commit(offsets=[TopicPartition(TOPICS[0], 0, 123, "so far", 0)], asynchronous=False)
    consumer.commit(offsets=[TopicPartition(TOPICS[0], 1, 0)], asynchronous=False)
    consumer.close()


@pytest.fixture(scope="module", params=[kafka.NEWEST, kafka.BEFORE, kafka.LEGACY])
def live(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A broker of each version in turn."""
    version: str = request.param
    with kafka.Cluster(version, tmp_path_factory.mktemp("live")) as broker:
        fill(broker.bootstrap)
        yield Live(version, broker.bootstrap, broker.data)


def fetch(identity: str, topic: str, offset: int, **more: object) -> Data:
    """Return a Fetch of partition 0 with a megabyte."""
    partition: Data = {"partition": 0, "currentLeaderEpoch": 0, "fetchOffset": offset, "partitionMaxBytes": 1 << 20}
    topics = [{"topic": topic, "topicId": identity, "partitions": [partition | more]}]
    return {"maxWaitMs": 100, "minBytes": 1, "maxBytes": 1 << 20, "topics": topics}


def rows(answer: Data) -> list[Data]:
    return [row for topic in answer["responses"] for row in topic["partitions"]]


@pytest.mark.kafka
def test_topics_are_told_with_ids_leaders_and_settings(live: Live) -> None:
    """These name a copy, and the broker that it is fetched from."""
    cluster = Cluster(live.bootstrap)
    found = cluster.topics()
    assert found.cluster_id == re.search(r"(?m)^cluster.id=(.*)", (live.data / "meta.properties").read_text())[1]  # type: ignore[index]
    assert found.brokers == {1: ("localhost", int(live.bootstrap.rpartition(":")[2]))}
    topics = {topic.name: topic for topic in found.topics}
    assert {name for name, topic in topics.items() if not topic.internal} == set(TOPICS)
    assert topics["__consumer_offsets"].internal
    for name in TOPICS:
        assert topics[name].topic_id == live.topic_id(name) or live.version == kafka.LEGACY
        assert len(topics[name].topic_id) == len(ZERO_UUID)
        assert topics[name].topic_id != ZERO_UUID
        assert topics[name].partitions == tuple(LeaderOfPartition(n, 1, 0, ErrorCode.NONE) for n in (0, 1))
    assert own_settings(cluster, [*TOPICS, "missing"]) == {TOPICS[0]: RETENTION, TOPICS[1]: {}}
    (missing,) = cluster.topics(["missing"]).topics
    assert (missing.name, missing.error) == ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert not (live.data / "missing-0").exists(), "asking for a topic must not make it"
    cluster.close()


@pytest.mark.kafka
def test_offsets_and_ends_of_epochs_are_those_of_the_leader(live: Live) -> None:
    """300 records in one partition; in the other topic 100 in ten transactions, each with its marker."""
    cluster = Cluster(live.bootstrap)
    cluster.topics()
    asked = [(TOPICS[0], 0), (TOPICS[0], 1), (TOPICS[1], 0), (TOPICS[1], 7)]
    ends = dict(zip(asked, (300, 0, 110, -1), strict=True))
    nobody = OffsetAnswer(ErrorCode.LEADER_NOT_AVAILABLE, -1, -1)
    latest = cluster.offsets(asked, LATEST)
    assert {key: one.offset for key, one in latest.items()} == ends
    assert latest[asked[3]] == nobody
    earliest = cluster.offsets(asked, EARLIEST)
    assert [earliest[key].offset for key in asked] == [0, 0, 0, -1]
    epochs = cluster.epoch_ends(dict.fromkeys(asked[:3], 0) | {asked[3]: 0})
    assert epochs[asked[0]] == EpochAnswer(ErrorCode.NONE, 0, 300)
    assert epochs[asked[3]].error is ErrorCode.LEADER_NOT_AVAILABLE
    assert cluster.epoch_ends({asked[0]: 5})[asked[0]] == EpochAnswer(ErrorCode.NONE, -1, -1)
    cluster.close()


@pytest.mark.kafka
def test_what_groups_have_committed_is_told(live: Live) -> None:
    """It is part of a copy: a group continues at its offset."""
    cluster = Cluster(live.bootstrap)
    cluster.topics()
    found = committed_offsets(cluster)
    epoch = found["readers"][0].leader_epoch
    assert epoch in (0, -1), "librdkafka sends the epoch in some versions alone"
    first = GroupOffset(TOPICS[0], 0, 123, epoch, "so far\0")  # librdkafka sends C's end of a string, too
    assert found == {"readers": (first, GroupOffset(TOPICS[0], 1, 0, -1, ""))}
    cluster.close()


@pytest.mark.kafka
@pytest.mark.parametrize("topic", TOPICS)
def test_fetched_records_are_the_bytes_of_the_log(live: Live, topic: str) -> None:
    """In the highest version of each broker: topic ids in the newer ones, names in the oldest."""
    cluster = Cluster(live.bootstrap)
    cluster.topics()
    connection = cluster.connection(1)
    assert connection.version("Fetch") == FETCH_VERSION[live.version]
    (row,) = rows(connection.request("Fetch", fetch(live.topic_id(topic), topic, 0)))
    assert row["errorCode"] == 0
    assert isinstance(row["records"], memoryview)
    assert bytes(row["records"]) == live.log(topic)
    assert row["highWatermark"] == cluster.offsets([(topic, 0)], LATEST)[topic, 0].offset
    connection.close()
    cluster.close()


@pytest.mark.kafka
def test_a_fetch_session_tells_only_what_is_new(live: Live) -> None:
    """KIP-227: partitions that are caught up cost nothing, and can be taken out of the session."""
    identity, topic = live.topic_id(TOPICS[0]), TOPICS[0]
    connection = BrokerConnection(*_address(live.bootstrap))
    ask = fetch(identity, topic, 300)
    first = connection.request("Fetch", ask | {"sessionId": 0, "sessionEpoch": 0})
    session: Data = {"maxWaitMs": 100, "minBytes": 1, "maxBytes": 1 << 20, "sessionId": first["sessionId"]}
    assert first["sessionId"] != 0
    assert [row["partitionIndex"] for row in rows(first)] == [0]
    assert rows(connection.request("Fetch", session | {"sessionEpoch": 1})) == []
    moved = connection.request("Fetch", ask | session | {"sessionEpoch": 2, "topics": ask["topics"]})
    assert rows(moved) == []
    wrong = connection.request("Fetch", session | {"sessionEpoch": 9})
    assert wrong["errorCode"] == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    gone = [{"topic": topic, "topicId": identity, "partitions": [0]}]
    left = connection.request("Fetch", session | {"sessionEpoch": 3, "forgottenTopicsData": gone})
    assert (left["errorCode"], rows(left)) == (0, [])
    over = connection.request("Fetch", session | {"sessionEpoch": 4})
    assert over["errorCode"] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "a session without partitions is closed"
    connection.close()


@pytest.mark.kafka
def test_errors_of_partitions_are_told(live: Live) -> None:
    """They decide about a follower's next step."""
    identity, topic = live.topic_id(TOPICS[0]), TOPICS[0]
    connection = BrokerConnection(*_address(live.bootstrap))
    cases = {
        ErrorCode.OFFSET_OUT_OF_RANGE: fetch(identity, topic, 5000),
        ErrorCode.UNKNOWN_LEADER_EPOCH: fetch(identity, topic, 0, currentLeaderEpoch=5),
        ErrorCode.UNKNOWN_TOPIC_ID if FETCH_VERSION[live.version] > 12 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: fetch(
            "AAAAAAAAAAAAAAAAAAAAAg", "missing", 0
        ),
    }
    for error, body in cases.items():
        (row,) = rows(connection.request("Fetch", body))
        assert (row["errorCode"], row["highWatermark"], row["logStartOffset"]) == (error, -1, -1)
    connection.close()


@pytest.mark.kafka
def test_a_broker_that_is_gone_is_a_lost_connection(tmp_path: Path) -> None:
    """The same objects continue after its return."""
    with kafka.Cluster(kafka.NEWEST, tmp_path, port=kafka.PORT + 50) as broker:
        create(broker.bootstrap, {"here": {}})
        cluster = Cluster(f"127.0.0.1:1,{broker.bootstrap}")
        assert [topic.name for topic in cluster.topics().topics] == ["here"]
        connection = cluster.connection(1)
        connection.connect()
        cluster.offsets([("here", 0)], LATEST)
        broker.kill()
        with pytest.raises(LostConnectionError, match="Connection refused"):
            cluster.topics()
        with pytest.raises(LostConnectionError):
            connection.request("Fetch", fetch(ZERO_UUID, "here", 0))
        assert cluster.offsets([("here", 0)], LATEST)["here", 0].error is ErrorCode.NETWORK_EXCEPTION
        broker.start()
        assert [topic.name for topic in cluster.topics().topics] == ["here"]
        assert cluster.offsets([("here", 0)], LATEST)["here", 0][:2] == (ErrorCode.NONE, 0)
        connection.connect()
        connection.close()
        cluster.close()


def _address(bootstrap: str) -> tuple[str, int]:
    host, _, port = bootstrap.rpartition(":")
    return host, int(port)


@pytest.mark.kafka
def test_klog_serve_answers_like_the_broker_whose_disk_it_reads(tmp_path: Path) -> None:
    """A copy can be taken of a copy."""
    with kafka.Cluster(kafka.NEWEST, tmp_path, port=kafka.PORT + 50) as broker:
        fill(broker.bootstrap)
        cluster = Cluster(broker.bootstrap)
        before = cluster.topics()
        partitions = [
            (topic.name, one.partition) for topic in before.topics for one in topic.partitions if not topic.internal
        ]
        told = cluster.offsets(partitions, LATEST), committed_offsets(cluster), own_settings(cluster, TOPICS)
        cluster.close()
    with Serving(broker.data) as serving:
        cluster = Cluster(serving.bootstrap)
        after = cluster.topics()
        assert after.cluster_id == before.cluster_id
        of_broker = {
            (topic.name, topic.topic_id, len(topic.partitions)) for topic in before.topics if not topic.internal
        }
        assert {(topic.name, topic.topic_id, len(topic.partitions)) for topic in after.topics} == of_broker
        offsets, groups, configs = told
        served = cluster.offsets(partitions, LATEST)
        assert {key: one.offset for key, one in served.items()} == {key: one.offset for key, one in offsets.items()}
        assert committed_offsets(cluster) == groups
        assert own_settings(cluster, TOPICS) == configs
        connection = BrokerConnection(*_address(serving.bootstrap))
        assert all(connection.version(name) for name in REQUESTS if name not in ("ListGroups",))
        cluster.close()
        connection.close()
