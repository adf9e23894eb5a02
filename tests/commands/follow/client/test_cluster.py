"""The cluster as a client sees it, without real brokers: addresses, old versions, answers about unknown partitions."""

from __future__ import annotations

from typing import Any

import pytest
from klog.base.errors import UsageError
from klog.commands.follow.client.broker_connection import BrokerConnection
from klog.commands.follow.client.client_requests import REQUESTS, LostConnectionError, RefusedRequestError
from klog.commands.follow.client.cluster import EARLIEST, Cluster, EpochAnswer, OffsetAnswer, parse_bootstrap
from klog.commands.follow.side_file import committed_offsets
from klog.formats.error_codes import ErrorCode, error_code
from klog.formats.follow_file import GroupOffset
from klog.formats.structs.schema import Data
from klog.formats.wire_messages import api_named

from tests.commands.follow.client.fake_broker import FakeBroker, Peer, only, speaking
from tests.conftest import ROOT


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:9092", (("a", 9092),)),
        ("a:1, b.example:65535", (("a", 1), ("b.example", 65535))),
        ("[::1]:9092,10.0.0.1:9093", (("::1", 9092), ("10.0.0.1", 9093))),
    ],
)
def test_bootstrap_addresses(text: str, expected: object) -> None:
    """As everywhere else in Kafka's world; IPv6 in brackets, because it has colons of its own."""
    assert parse_bootstrap(text) == expected


@pytest.mark.parametrize(
    "text", ["", "a", "a:", ":9092", "a:0", "a:65536", "a:x", "a:9092,", "::1:9092", "a:٩", "[a]:1"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    """Before anything is connected to."""
    with pytest.raises(UsageError, match="a broker is HOST:PORT"):
        parse_bootstrap(text)


def metadata(port: int, *leaders: int, more: list[Data] | None = None) -> Data:
    """Return an answer with the topic `t`, led by these nodes, and one broker, node 1."""
    partitions = [{"partitionIndex": n, "leaderId": node, "leaderEpoch": 4} for n, node in enumerate(leaders)]
    broker = {"nodeId": 1, "host": "localhost", "port": port}
    topic = {"name": "t", "topicId": "A" * 22, "partitions": partitions}
    return {"clusterId": "c", "brokers": [broker, *(more or [])], "topics": [topic]}


def test_what_nobody_asked_for_is_not_believed() -> None:
    """An answer may name other topics and partitions, or leave out ours."""
    asked: list[Data] = []

    def offsets(body: Data) -> Data:
        asked.append(body)
        strange = [{"partitionIndex": n, "offset": 99, "leaderEpoch": 1} for n in (0, 7)]
        return {"topics": [{"name": "t", "partitions": strange}, {"name": "../x", "partitions": strange}]}

    answers: dict[str, Any] = {"ListOffsets": offsets}
    with FakeBroker(speaking(answers)) as broker:
        answers["Metadata"] = metadata(broker.port, 1, 1, -1, 5)
        cluster = Cluster(broker.bootstrap)
        cluster.topics()
        found = cluster.offsets([("t", n) for n in range(5)], EARLIEST)
        nobody = OffsetAnswer(ErrorCode.LEADER_NOT_AVAILABLE, -1, -1)
        silent = OffsetAnswer(ErrorCode.NETWORK_EXCEPTION, -1, -1)
        assert list(found.values()) == [OffsetAnswer(ErrorCode.NONE, 99, 1), silent, nobody, nobody, nobody]
        (body,) = asked
        row = {"partitionIndex": 0, "currentLeaderEpoch": 4, "timestamp": EARLIEST}
        assert body["replicaId"] == -1
        assert body["topics"] == [{"name": "t", "partitions": [row, row | {"partitionIndex": 1}]}]
        cluster.close()
        assert broker.failed == []


def test_a_leader_that_cannot_be_reached_does_not_hide_the_others() -> None:
    """One dead broker out of three must not stop the copy of the others' partitions."""
    ends = {"topics": [{"topic": "t", "partitions": [{"partition": 0, "leaderEpoch": 3, "endOffset": 8}]}]}
    answers: dict[str, Any] = {"OffsetForLeaderEpoch": ends}
    with FakeBroker(speaking(answers)) as broker:
        dead = {"nodeId": 2, "host": "localhost", "port": 1}
        answers["Metadata"] = metadata(broker.port, 1, 2, more=[dead])
        cluster = Cluster(broker.bootstrap)
        cluster.topics()
        found = cluster.epoch_ends({("t", 0): 3, ("t", 1): 3})
        assert found["t", 0] == EpochAnswer(ErrorCode.NONE, 3, 8)
        assert found["t", 1] == EpochAnswer(ErrorCode.NETWORK_EXCEPTION, -1, -1)
        cluster.close()


def test_the_next_bootstrap_broker_is_asked_when_one_is_gone() -> None:
    """And the one that answered is asked first from then on."""
    answers: dict[str, Any] = {}
    with FakeBroker(speaking(answers)) as broker:
        answers["Metadata"] = metadata(broker.port, 1)
        cluster = Cluster(f"localhost:1,{broker.bootstrap}")
        for _ in range(3):
            assert cluster.topics().cluster_id == "c"
        assert broker.connections == 1
        cluster.close()
    with pytest.raises(LostConnectionError, match=rf"localhost:{broker.port}|localhost:1: "):
        cluster.topics()


def test_a_broker_that_moves_is_asked_at_its_new_address() -> None:
    """Metadata is the only truth about addresses."""
    offsets = {"topics": [{"name": "t", "partitions": [{"partitionIndex": 0, "offset": 1}]}]}
    answers: dict[str, Any] = {"ListOffsets": offsets}
    with FakeBroker(speaking(answers)) as first, FakeBroker(speaking(answers)) as second:
        cluster = Cluster(first.bootstrap)
        for broker in (first, second):
            answers["Metadata"] = metadata(broker.port, 1)
            cluster.topics()
            assert cluster.offsets([("t", 0)], EARLIEST)["t", 0].offset == 1
        assert (first.connections, second.connections) == (2, 1)
        cluster.close()


def test_a_request_that_is_refused_as_a_whole_says_so() -> None:
    """Version 13 of Metadata can refuse everything."""
    with FakeBroker(speaking({"Metadata": {"errorCode": 129}})) as broker:
        cluster = Cluster(broker.bootstrap)
        with pytest.raises(RefusedRequestError, match=r"Metadata: the cluster: REBOOTSTRAP_REQUIRED \(129\)") as caught:
            cluster.topics()
        cluster.close()
        assert caught.value.code == ErrorCode.REBOOTSTRAP_REQUIRED


OLD = {
    "ApiVersions": (0, 3),
    "Metadata": (0, 10),
    "ListGroups": (0, 4),
    "FindCoordinator": (0, 3),
    "OffsetFetch": (0, 7),
}


@pytest.mark.parametrize("old", [True, False])
def test_groups_are_asked_for_one_by_one_of_old_brokers(old: bool) -> None:
    """Until 3.0 a request names one group; share groups have no offsets, and deleted ones have lost theirs."""
    requests: list[Data] = []
    offset = {"partitionIndex": 2, "committedOffset": 7, "committedLeaderEpoch": 3, "metadata": None}
    rows = [{"name": "t", "partitions": [offset, offset | {"committedOffset": -1}, offset | {"errorCode": 29}]}]

    def coordinator(body: Data) -> Data:
        requests.append(body)
        keys = [{"key": key, "nodeId": 1} for key in body["coordinatorKeys"]]
        return {"nodeId": 1, "coordinators": keys}

    def committed(body: Data) -> Data:
        requests.append(body)
        of = {"a": {"topics": rows}, "b": {"topics": []}, "gone": {"errorCode": 69, "topics": []}}
        groups = [{"groupId": one["groupId"], **of[one["groupId"]]} for one in body["groups"]]
        return {"groups": groups, **of.get(body["groupId"], {})}

    listed = [{"groupId": name, "protocolType": "consumer", "groupType": "classic"} for name in ("b", "a", "gone")]
    shared = [{"groupId": "s", "protocolType": "share", "groupType": "Share"}]
    answers = {"ListGroups": {"groups": listed + shared}, "FindCoordinator": coordinator, "OffsetFetch": committed}
    apis = only(**OLD) if old else None
    with FakeBroker(speaking(answers | {"Metadata": lambda _body: metadata(broker.port, 1)}, apis)) as broker:
        cluster = Cluster(broker.bootstrap)
        cluster.topics()
        assert committed_offsets(cluster) == {"a": (GroupOffset("t", 2, 7, 3, ""),)}
        assert len(requests) == (6 if old else 2)
        cluster.close()
        assert broker.failed == []


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"ListGroups": {"errorCode": 14}}, "ListGroups: COORDINATOR_LOAD_IN_PROGRESS (14)"),
        ({"FindCoordinator": {"coordinators": [{"key": "a", "errorCode": 15}]}}, "group a: COORDINATOR_NOT_AVAILABLE"),
        ({"OffsetFetch": {"groups": [{"groupId": "a", "errorCode": 16}]}}, "OffsetFetch of group a: NOT_COORDINATOR"),
    ],
)
def test_a_coordinator_that_moves_is_an_error_with_a_number(answers: Data, said: str) -> None:
    """The caller asks again a minute later, and keeps its data until then."""
    listed = {"groups": [{"groupId": "a", "protocolType": "consumer"}]}
    right = {"ListGroups": listed, "FindCoordinator": {"coordinators": [{"key": "a", "nodeId": 1}]}}
    with FakeBroker(speaking(right | answers | {"Metadata": lambda _body: metadata(broker.port, 1)})) as broker:
        cluster = Cluster(broker.bootstrap)
        cluster.topics()
        with pytest.raises(RefusedRequestError) as caught:
            committed_offsets(cluster)
        assert said in str(caught.value)
        cluster.close()


def test_errors_that_are_not_known_are_called_so() -> None:
    """Newer brokers have newer errors."""
    assert error_code(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert error_code(30_000) is error_code(-77) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_no_request_changes_anything() -> None:
    """A copy writes nothing to the cluster and joins no group: what could is not in the list."""
    writing = ("Produce", "Create", "Delete", "Alter", "Commit", "Join", "Sync", "Heartbeat", "Leave", "Init", "Txn")
    assert not [name for name in REQUESTS if any(word in name for word in writing)]
    for name, versions in REQUESTS.items():
        assert api_named(name).lowest <= versions.lowest <= versions.highest <= api_named(name).highest


def test_the_page_about_following_lists_every_request_with_its_versions() -> None:
    """The operator of a cluster reads there which requests a stranger's client sends."""
    told: dict[str, str] = {}
    for line in (ROOT / "docs" / "follow.md").read_text(encoding="utf-8").partition("\n## Requests\n")[2].splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 3 and cells[0].partition(",")[0] in REQUESTS:
            told |= dict(zip(cells[0].split(", "), cells[1].split(", "), strict=True))
    ranges = {name: sorted({one.lowest, one.highest}) for name, one in REQUESTS.items()}
    assert told == {name: "\u2013".join(map(str, versions)) for name, versions in ranges.items()}


def test_views_of_records_lie_in_the_buffer_of_the_connection() -> None:
    """No copy is made of what goes to the disk; a larger answer gets a larger buffer, and old views stay intact."""
    sizes = iter((1000, 300_000, 1000, 400_000))

    def fetched(_body: Data) -> Data:
        size = next(sizes)
        return {"responses": [{"partitions": [{"abortedTransactions": None, "records": bytes([size % 251]) * size}]}]}

    with FakeBroker(speaking({"Fetch": fetched})) as broker:
        connection = BrokerConnection(broker.host, broker.port)
        kept = []
        for size in (1000, 300_000, 1000, 400_000):
            answer = connection.request("Fetch", {"maxWaitMs": 0, "minBytes": 0, "maxBytes": 0, "topics": []})
            view = answer["responses"][0]["partitions"][0]["records"]
            assert isinstance(view, memoryview)
            assert view == bytes([size % 251]) * size
            assert view.obj is connection._buffer
            kept.append(view)
        assert kept[0].obj is not kept[1].obj, "a buffer that grows is another one"
        assert kept[1].obj is kept[2].obj, "and is used again"
        connection.close()


def test_a_connection_that_was_closed_meanwhile_is_made_again() -> None:
    """Brokers close connections that were idle for ten minutes, and a copy that has caught up is idle."""

    def talk(peer: Peer) -> None:
        peer.greet()
        peer.answer(peer.request(), {"clusterId": "c"})
        peer.socket.close()

    with FakeBroker(talk) as broker:
        connection = BrokerConnection(broker.host, broker.port)
        for _ in range(3):
            assert connection.request("Metadata", {"topics": []})["clusterId"] == "c"
            connection._stream._poll_for(1, 5)  # until the end of the connection has arrived
        assert broker.connections == 3
        connection.close()
