"""Answers as functions of a disk and a question: those of real brokers, and the differences here."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from klog.commands.serve.group_coordinator import GroupCoordinator
from klog.commands.serve.handlers import QUIETLY_REFUSED, REFUSED, answer
from klog.commands.serve.handlers.context import HangUpError, RequestContext, ServerContext
from klog.commands.serve.handlers.fetch_requests import fetch_wait_ms
from klog.commands.serve.handlers.refusals import READ_ONLY
from klog.commands.serve.view import ServeOptions, View
from klog.formats.error_codes import ErrorCode
from klog.formats.structs.schema import Data, Struct, load, names_by_key
from klog.formats.structs.write import Hole
from klog.formats.wire_messages import ApiRequest, api, read_request, write_response

from tests.conftest import FIXTURES
from tests.formats.struct_writer import made_up_struct

ZERO = "A" * 22


@pytest.fixture(scope="module")
def here() -> Iterator[ServerContext]:
    with View.open([str(FIXTURES / "modern")], ServeOptions(open_transactions="hide")) as view:
        yield ServerContext(view, GroupCoordinator(view.committed), "somewhere", 9999)


def filled(struct: Struct, given: Data) -> Data:
    """Return *given* as after reading: omitted members have their defaults, and there are no others."""
    assert given.keys() <= {field.name for field in struct.fields}, given.keys()
    value = struct.default() | given
    for field in struct.fields:
        if field.struct is not None and value[field.name] is not None:
            rows = value[field.name] if field.array else [value[field.name]]
            made = [filled(field.struct, one) for one in rows]
            value[field.name] = made if field.array else made[0]
    return value


def ask(here: ServerContext, name: str, version: int, **body: object) -> Data:
    """Return the answer, whose members are all those of the response, and which can be written."""
    request, response = load("wire", f"{name}Request"), load("wire", f"{name}Response")
    found = answer(here, name, RequestContext(filled(request.struct, body), version, "me", "127.0.0.1"))
    assert request.key is not None
    known = api(request.key)
    assert known is not None
    write_response(ApiRequest(known, version, 1, "me", {}), found)
    return filled(response.struct, found)


def topic(name: str, **more: object) -> Data:
    return {"name": name, "topicId": ZERO, **more}


# ---------------------------------------------------------------- topics


@pytest.mark.parametrize("version", range(14))
def test_metadata_in_every_version(here: ServerContext, version: int) -> None:
    found = ask(here, "Metadata", version, topics=[topic("plain"), topic("nowhere"), topic("plain")])
    assert found["clusterId"] == "fXeC61JOQie3q2pvw8VSPQ"
    assert [(one["nodeId"], one["host"], one["port"]) for one in found["brokers"]] == [(1, "somewhere", 9999)]
    plain, nowhere = found["topics"]
    assert (nowhere["errorCode"], nowhere["name"]) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nowhere")
    assert [one["partitionIndex"] for one in plain["partitions"]] == [0, 1, 2]
    assert {(one["leaderId"], one["errorCode"]) for one in plain["partitions"]} == {(1, 0)}
    epochs = (FIXTURES / "modern" / "plain-1" / "leader-epoch-checkpoint").read_text().split("\n")
    assert plain["partitions"][1]["leaderEpoch"] == int(epochs[-2].split()[0])


def test_no_topics_means_all_of_them_or_none(here: ServerContext) -> None:
    every = list(here.view.topics)
    assert [one["name"] for one in ask(here, "Metadata", 0, topics=[])["topics"]] == every
    assert ask(here, "Metadata", 1, topics=[])["topics"] == []
    assert [one["name"] for one in ask(here, "Metadata", 12, topics=None)["topics"]] == every
    assert "__consumer_offsets" not in every


def test_topics_are_found_by_their_ids(here: ServerContext) -> None:
    known = here.view.topics["zstd"].id
    wanted = [{"name": None, "topicId": known}, {"name": None, "topicId": "B" * 21 + "A"}]
    found, unknown = ask(here, "Metadata", 12, topics=wanted)["topics"]
    assert (found["name"], found["topicId"], found["errorCode"]) == ("zstd", known, 0)
    assert (unknown["name"], unknown["errorCode"]) == (None, ErrorCode.UNKNOWN_TOPIC_ID)
    assert ask(here, "Metadata", 10, topics=wanted)["topics"][1]["name"] == ""


def test_partitions_elsewhere_have_no_leader_when_that_is_asked_for() -> None:
    with View.open([str(FIXTURES / "modern")], ServeOptions(missing="offline")) as view:
        (found,) = ask(
            ServerContext(view, GroupCoordinator(view.committed), "h", 1), "Metadata", 9, topics=[topic("plain")]
        )["topics"]
        first, second, _ = found["partitions"]
        assert (first["errorCode"], first["leaderId"]) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert (second["errorCode"], second["leaderId"]) == (0, 1)


def test_configs_are_those_of_the_topic_and_none_is_read_only(here: ServerContext) -> None:
    wanted = [{"resourceType": 2, "resourceName": name, "configurationKeys": None} for name in ("lz4-broker", "no")]
    node = {"resourceType": 4, "resourceName": "1", "configurationKeys": None}
    found, unknown, broker = ask(here, "DescribeConfigs", 4, resources=[*wanted, node])["results"]
    assert [(one["name"], one["value"], one["readOnly"]) for one in found["configs"]] == [
        ("compression.type", "lz4", False)
    ]
    assert unknown["errorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (broker["errorCode"], broker["configs"]) == (0, [])
    nothing = [wanted[0] | {"configurationKeys": ["retention.ms"]}]
    assert ask(here, "DescribeConfigs", 4, resources=nothing)["results"][0]["configs"] == []


def test_log_dirs_tell_sizes(here: ServerContext) -> None:
    (every,) = ask(here, "DescribeLogDirs", 4, topics=None)["results"]
    assert every["logDir"] == str(FIXTURES / "modern")
    assert {one["name"] for one in every["topics"]} == set(here.view.topics)
    (some,) = ask(here, "DescribeLogDirs", 4, topics=[{"topic": "plain", "partitions": [1]}])["results"]
    size = sum(path.stat().st_size for path in (FIXTURES / "modern" / "plain-1").glob("*.log"))
    assert some["topics"] == [
        {
            "name": "plain",
            "partitions": [{"partitionIndex": 1, "partitionSize": size, "offsetLag": 0, "isFutureKey": False}],
        }
    ]


# ---------------------------------------------------------------- logs


def fetch(here: ServerContext, *rows: Data, version: int = 12, **body: object) -> list[Data]:
    """Return the rows of partitions; each of *rows* may name a topic (by its id, too), zstd is meant else."""
    topics = []
    for row in rows:
        name = row.get("topic", "zstd")
        one = {"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 1 << 20}
        one |= {key: value for key, value in row.items() if key not in ("topic", "topicId")}
        topics.append({"topic": name, "topicId": row.get("topicId", ZERO), "partitions": [one]})
    found = ask(here, "Fetch", version, maxWaitMs=0, minBytes=0, topics=topics, **body)
    assert found["errorCode"] == 0
    return [one for each in found["responses"] for one in each["partitions"]]


def size(row: Data) -> int:
    return row["records"].size if isinstance(row["records"], Hole) else len(row["records"])


def test_a_fetch_tells_where_the_records_are(here: ServerContext) -> None:
    (row,) = fetch(here, {})
    (piece,) = row["records"].filling
    assert (piece.path, piece.position) == (str(FIXTURES / "modern" / "zstd-0" / f"{0:020}.log"), 0)
    assert (row["errorCode"], row["logStartOffset"]) == (0, 0)
    assert row["abortedTransactions"] is None
    assert row["preferredReadReplica"] == -1


def test_a_reader_with_another_history_is_told_where_it_parts(here: ServerContext) -> None:
    """The epoch of its last batch decides: leaders were 0 up to 274, then 4.  Consumers send none, and are not
    asked."""

    def told(offset: int, last_epoch: int) -> tuple[int, int, Data]:
        (row,) = fetch(here, {"fetchOffset": offset, "lastFetchedEpoch": last_epoch})
        return row["errorCode"], size(row), row["divergingEpoch"]

    nowhere, (_, sent, _) = {"epoch": -1, "endOffset": -1}, told(200, -1)
    assert sent > 0
    assert told(200, 0) == (0, sent, nowhere)
    assert told(274, 0)[2] == told(274, 4)[2] == nowhere
    assert told(275, 0) == (0, 0, {"epoch": 0, "endOffset": 274})
    assert told(280, 3) == told(100, 3) == (0, 0, {"epoch": 0, "endOffset": 274})
    assert told(10_000, 4)[:2] == (0, 0)
    assert told(10_000, 4)[2]["epoch"] == 4
    assert told(200, 9) == (ErrorCode.OFFSET_OUT_OF_RANGE, 0, nowhere)
    (row,) = fetch(here, {"fetchOffset": 280, "lastFetchedEpoch": 3})
    assert (row["highWatermark"], row["logStartOffset"]) == (fetch(here, {})[0]["highWatermark"], 0)


def test_limits_hold_for_all_but_the_first_batch(here: ServerContext) -> None:
    """A consumer whose limit is smaller than a batch must still get on (KIP-74)."""
    (small,) = fetch(here, {"partitionMaxBytes": 0})
    assert size(small) > 0
    first, second = fetch(here, {"partitionMaxBytes": 1}, {"topic": "gzip", "partitionMaxBytes": 1})
    assert size(first) == size(small)
    assert size(second) == 0
    assert (second["errorCode"], second["highWatermark"] > 0) == (0, True)
    first, second = fetch(here, {"topic": "empty"}, {"topic": "gzip", "partitionMaxBytes": 1})
    assert (size(first), size(second) > 0) == (0, True)
    first, second = fetch(here, {}, {"topic": "gzip"}, maxBytes=size(small))
    assert (size(first), size(second)) == (size(small), 0)


def test_what_cannot_be_fetched_has_an_error_and_no_offsets(here: ServerContext) -> None:
    unknown = {"topic": "nowhere"}
    wrong = [
        {"fetchOffset": 10**9},
        {"topic": "gzip", "fetchOffset": -1},
        {"partition": 9},
        unknown,
        {"topic": "trimmed"},
    ]
    rows = fetch(here, *wrong)
    assert [row["errorCode"] for row in rows] == [
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OFFSET_OUT_OF_RANGE,
    ]
    assert {(row["highWatermark"], row["lastStableOffset"], row["logStartOffset"]) for row in rows} == {(-1, -1, -1)}
    assert [size(row) for row in rows] == [0] * 5


def test_from_version_13_on_topics_have_ids(here: ServerContext) -> None:
    known = here.view.topics["zstd"].id
    rows = fetch(here, {"topic": "", "topicId": known}, {"topic": "", "topicId": "B" * 21 + "A"}, version=13)
    assert [row["errorCode"] for row in rows] == [0, ErrorCode.UNKNOWN_TOPIC_ID]
    (named,) = fetch(here, {"topic": "zstd"}, version=13)
    assert named["errorCode"] == ErrorCode.UNKNOWN_TOPIC_ID


def test_nobody_replicates_from_here(here: ServerContext) -> None:
    """A broker that took this for its leader would cut its own log."""
    assert [row["errorCode"] for row in fetch(here, {}, replicaId=2)] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    later = fetch(here, {}, version=15, replicaState={"replicaId": 2}, replicaId=-1)
    assert [row["errorCode"] for row in later] == [ErrorCode.UNKNOWN_TOPIC_ID]
    known = {"topic": "", "topicId": here.view.topics["zstd"].id}
    later = fetch(here, known, version=15, replicaState={"replicaId": 2}, replicaId=-1)
    assert [row["errorCode"] for row in later] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_later_epoch_of_the_old_cluster_is_no_error(here: ServerContext) -> None:
    (row,) = fetch(here, {"currentLeaderEpoch": 99})
    assert (row["errorCode"], size(row) > 0) == (0, True)


def test_there_are_no_sessions(here: ServerContext) -> None:
    """Asking for one brings the data and no session; going on in one brings error 70, and clients begin anew."""
    found = ask(here, "Fetch", 12, maxWaitMs=0, minBytes=0, sessionId=0, sessionEpoch=0, topics=[])
    assert (found["errorCode"], found["sessionId"]) == (0, 0)
    found = ask(here, "Fetch", 12, maxWaitMs=0, minBytes=0, sessionId=77, sessionEpoch=3, topics=[])
    assert (found["errorCode"], found["responses"]) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
    found = ask(here, "Fetch", 12, maxWaitMs=0, minBytes=0, sessionId=77, sessionEpoch=-1, topics=[])
    assert found["errorCode"] == 0, "closing one that is gone"


def test_read_committed_is_told_what_aborted_and_stops_where_nothing_is_decided(here: ServerContext) -> None:
    (row,) = fetch(here, {"topic": "tx"}, isolationLevel=1)
    assert row["abortedTransactions"]
    assert set(row["abortedTransactions"][0]) == {"producerId", "firstOffset"}
    (row,) = fetch(here, {"topic": "zstd"}, isolationLevel=1)
    assert row["abortedTransactions"] == []
    (all_there,) = fetch(here, {"topic": "tx-open"})
    assert all_there["lastStableOffset"] < all_there["highWatermark"]
    (decided,) = fetch(here, {"topic": "tx-open", "fetchOffset": all_there["lastStableOffset"]}, isolationLevel=1)
    assert (decided["errorCode"], size(decided)) == (0, 0)


def waited(here: ServerContext, **body: object) -> int:
    """Return how long a fetch at the end of zstd is kept waiting, in ms."""
    end = here.view.partition("zstd", 0)
    assert end is not None
    row = {"partition": 0, "partitionMaxBytes": 1 << 20, "fetchOffset": end.high_watermark}
    given = {"topics": [{"topic": "zstd", "partitions": [row | dict(body.pop("row", {}))]}], **body}
    request = filled(load("wire", "FetchRequest").struct, given)
    return fetch_wait_ms(request, answer(here, "Fetch", RequestContext(request, 12, "me", "h")))


def test_how_long_a_fetch_waits(here: ServerContext) -> None:
    """As at a broker, or a client at the end would ask without pause; but not for long, since nothing will come."""
    assert waited(here, maxWaitMs=300, minBytes=1) == 300
    assert waited(here, maxWaitMs=60_000, minBytes=1) == 5000
    assert waited(here, maxWaitMs=-5, minBytes=1) == 0
    assert waited(here, maxWaitMs=300, minBytes=0) == 0
    assert waited(here, maxWaitMs=300, minBytes=1, row={"fetchOffset": 0}) == 0
    assert waited(here, maxWaitMs=300, minBytes=1 << 30, row={"fetchOffset": 0}) == 300
    assert waited(here, maxWaitMs=300, minBytes=1, row={"fetchOffset": 10**9}) == 0, "an error is told at once"
    assert waited(here, maxWaitMs=300, minBytes=1, topics=[]) == 0
    assert waited(here, maxWaitMs=300, minBytes=1, sessionEpoch=4) == 0


def test_list_offsets(here: ServerContext) -> None:
    def listed(name: str, timestamp: int, isolation: int = 0, partition: int = 0) -> Data:
        rows = [{"partitionIndex": partition, "timestamp": timestamp}]
        found = ask(here, "ListOffsets", 10, isolationLevel=isolation, topics=[{"name": name, "partitions": rows}])
        return dict(found["topics"][0]["partitions"][0])

    end, start = listed("trimmed", -1), listed("trimmed", -2)
    assert (start["offset"], start["timestamp"], end["offset"] > 137) == (137, -1, True)
    assert listed("trimmed", -4)["offset"] == 137
    assert listed("tx-open", -1, isolation=1)["offset"] < listed("tx-open", -1)["offset"]
    latest = listed("zstd", -3)
    assert listed("zstd", latest["timestamp"])["offset"] == latest["offset"]
    nothing = listed("zstd", latest["timestamp"] + 1)
    assert (nothing["errorCode"], nothing["offset"], nothing["timestamp"]) == (0, -1, -1)
    assert listed("zstd", -5)["offset"] == -1
    assert listed("plain", -1)["offset"] == 0, "a stand-in is empty"
    assert listed("nowhere", -1)["errorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert listed("zstd", -1, partition=7)["errorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_where_an_epoch_ended(here: ServerContext) -> None:
    rows = [{"partition": number, "leaderEpoch": epoch} for number, epoch in ((0, 0), (0, 99), (7, 0))]
    found = ask(here, "OffsetForLeaderEpoch", 4, topics=[{"topic": "zstd", "partitions": rows}])
    known, later, elsewhere = found["topics"][0]["partitions"]
    assert (known["leaderEpoch"], known["endOffset"] > 0) == (0, True)
    assert (later["errorCode"], later["leaderEpoch"], later["endOffset"]) == (0, -1, -1)
    assert elsewhere["errorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# ---------------------------------------------------------------- groups


def test_this_is_the_coordinator_of_groups_and_of_nothing_else(here: ServerContext) -> None:
    for version in range(4):
        found = ask(here, "FindCoordinator", version, key="g")
        assert (found["errorCode"], found["nodeId"], found["port"]) == (0, 1, 9999)
    keys = ask(here, "FindCoordinator", 6, coordinatorKeys=["a", "b", "a"])["coordinators"]
    assert [(one["key"], one["nodeId"], one["errorCode"]) for one in keys] == [("a", 1, 0), ("b", 1, 0)]
    (refused,) = ask(here, "FindCoordinator", 6, keyType=1, coordinatorKeys=["tx"])["coordinators"]
    assert (refused["errorCode"], refused["nodeId"]) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    assert refused["errorMessage"].startswith(READ_ONLY)


def test_offsets_of_the_disk_in_every_version(here: ServerContext) -> None:
    rows = {"name": "plain", "partitionIndexes": [0, 1, 2]}
    for version in range(1, 8):
        (found,) = ask(here, "OffsetFetch", version, groupId="classic", topics=[rows])["topics"]
        assert [one["committedOffset"] for one in found["partitions"]] == [134, 113, 87]
    for version in (8, 9):
        groups = [{"groupId": "classic", "topics": [rows]}, {"groupId": "unknown", "topics": [rows]}]
        known, unknown = ask(here, "OffsetFetch", version, groups=groups)["groups"]
        assert [one["committedOffset"] for one in known["topics"][0]["partitions"]] == [134, 113, 87]
        assert [one["committedOffset"] for one in unknown["topics"][0]["partitions"]] == [-1] * 3
    (every,) = ask(here, "OffsetFetch", 9, groups=[{"groupId": "classic", "topics": None}])["groups"]
    assert [one["name"] for one in every["topics"]] == ["plain"]
    by_id = {"topicId": here.view.topics["plain"].id, "partitionIndexes": [1]}
    nowhere = {"topicId": "B" * 21 + "A", "partitionIndexes": [1]}
    (found,) = ask(here, "OffsetFetch", 10, groups=[{"groupId": "classic", "topics": [by_id, nowhere]}])["groups"]
    assert [one["partitions"][0]["committedOffset"] for one in found["topics"]] == [113, -1]
    assert found["topics"][1]["partitions"][0]["errorCode"] == ErrorCode.UNKNOWN_TOPIC_ID


def test_all_offsets_of_a_group_are_those_of_what_is_served(here: ServerContext) -> None:
    """Kafka's group tool asks for the ends of all of them and fails as a whole where one is not known."""
    assert here.view.committed("next-generation-static") == {("lz4", 0): (200, -1, "\0")}
    for version in (9, 10):
        groups = [{"groupId": name, "topics": None} for name in ("next-generation-static", "classic")]
        elsewhere, classic = ask(here, "OffsetFetch", version, groups=groups)["groups"]
        assert elsewhere["topics"] == []
        assert [len(one["partitions"]) for one in classic["topics"]] == [3]
    rows = {"name": "lz4", "partitionIndexes": [0]}
    (named,) = ask(here, "OffsetFetch", 7, groupId="next-generation-static", topics=[rows])["topics"]
    assert named["partitions"][0]["committedOffset"] == 200
    with View.open([str(FIXTURES / "modern")], ServeOptions(missing="omit")) as view:
        omitting = ServerContext(view, GroupCoordinator(view.committed), "somewhere", 9999)
        (every,) = ask(omitting, "OffsetFetch", 9, groups=groups[1:])["groups"]
        assert [one["partitionIndex"] for one in every["topics"][0]["partitions"]] == [1, 2]


@pytest.mark.parametrize("version", range(2, 11))
def test_commits_stay_until_the_end(here: ServerContext, version: int) -> None:
    named = {"name": "zstd"} if version < 10 else {"topicId": here.view.topics["zstd"].id}
    rows = [{"partitionIndex": n, "committedOffset": version, "committedMetadata": None} for n in (0, 7)]
    group = f"commits-{version}"
    topics = [named | {"partitions": rows}]
    (found,) = ask(here, "OffsetCommit", version, groupId=group, generationIdOrMemberEpoch=-1, topics=topics)["topics"]
    there, elsewhere = found["partitions"]
    assert there["errorCode"] == 0
    assert elsewhere["errorCode"] in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
    assert here.groups.offsets(group) == {("zstd", 0): (version, -1, "")}
    assert group not in here.view.groups


def test_groups_are_listed_and_described(here: ServerContext) -> None:
    found = ask(here, "ListGroups", 5)["groups"]
    assert {one["groupId"]: one["groupState"] for one in found}["classic"] == "Empty"
    assert ask(here, "ListGroups", 4, statesFilter=["Stable"])["groups"] == []
    assert ask(here, "ListGroups", 5, typesFilter=["share"])["groups"] == []
    empty, dead = ask(here, "DescribeGroups", 5, groups=["classic", "nobody", "classic"])["groups"]
    assert (empty["groupState"], dead["groupState"], dead["errorCode"]) == ("Empty", "Dead", 0)
    (dead,) = ask(here, "DescribeGroups", 6, groups=["nobody"])["groups"]
    assert dead["errorCode"] == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_member_through_its_life(here: ServerContext) -> None:
    joining = {"groupId": "life", "sessionTimeoutMs": 10_000, "protocolType": "consumer"}
    protocols = [{"name": "range", "metadata": b"what"}]
    joined = ask(here, "JoinGroup", 3, **joining, protocols=protocols)
    who = {"groupId": "life", "memberId": joined["memberId"], "generationId": joined["generationId"]}
    assert joined["leader"] == joined["memberId"]
    rows = [{"memberId": joined["memberId"], "assignment": b"mine"}]
    assert ask(here, "SyncGroup", 3, **who, assignments=rows)["assignment"] == b"mine"
    assert ask(here, "Heartbeat", 3, **who)["errorCode"] == 0
    (described,) = ask(here, "DescribeGroups", 5, groups=["life"])["groups"]
    assert (described["groupState"], described["protocolData"]) == ("Stable", "range")
    assert [(one["clientId"], one["clientHost"], one["memberAssignment"]) for one in described["members"]] == [
        ("me", "/127.0.0.1", b"mine")
    ]
    (listed,) = ask(here, "ListGroups", 4, statesFilter=["stable"])["groups"]
    assert listed["groupId"] == "life"
    left = ask(here, "LeaveGroup", 5, groupId="life", members=[{"memberId": joined["memberId"]}, {"memberId": "x"}])
    assert [one["errorCode"] for one in left["members"]] == [0, ErrorCode.UNKNOWN_MEMBER_ID]
    assert ask(here, "LeaveGroup", 1, groupId="life", memberId="x")["errorCode"] == ErrorCode.UNKNOWN_MEMBER_ID


# ---------------------------------------------------------------- refusals


def test_producers_are_told_and_not_made_to_try_again(here: ServerContext) -> None:
    rows = [{"index": 3, "records": b"x"}]
    found = ask(here, "Produce", 9, acks=-1, topicData=[{"name": "zstd", "partitionData": rows}])
    (row,) = found["responses"][0]["partitionResponses"]
    assert (row["index"], row["errorCode"], row["errorMessage"], row["baseOffset"]) == (3, 44, READ_ONLY, -1)
    with pytest.raises(HangUpError, match="acks=0"):
        ask(here, "Produce", 9, acks=0, topicData=[])
    given = ask(here, "InitProducerId", 4)
    assert (given["errorCode"], given["producerId"] >= 0) == (0, True)


def test_administrators_are_told(here: ServerContext) -> None:
    both = ("errorCode", "errorMessage")
    (row,) = ask(here, "CreateTopics", 7, topics=[{"name": "new"}])["topics"]
    assert [row[name] for name in both] == [44, READ_ONLY]
    (row,) = ask(here, "CreatePartitions", 3, topics=[{"name": "zstd", "count": 5}])["results"]
    assert [row[name] for name in both] == [44, READ_ONLY]
    (row,) = ask(here, "DeleteTopics", 5, topicNames=["zstd"])["responses"]
    assert [row["name"], *(row[name] for name in both)] == ["zstd", 44, READ_ONLY]
    (row,) = ask(here, "DeleteTopics", 6, topics=[{"name": "zstd"}])["responses"]
    assert [row["name"], *(row[name] for name in both)] == ["zstd", 44, READ_ONLY]
    rows = [{"partitionIndex": 0, "offset": 5}]
    (found,) = ask(here, "DeleteRecords", 2, topics=[{"name": "zstd", "partitions": rows}])["topics"]
    assert [(one["errorCode"], one["lowWatermark"]) for one in found["partitions"]] == [(44, -1)]
    resource = {"resourceType": 2, "resourceName": "zstd", "configs": []}
    (row,) = ask(here, "IncrementalAlterConfigs", 1, resources=[resource])["responses"]
    assert [row[name] for name in both] == [44, READ_ONLY]
    assert ask(here, "DeleteGroups", 2, groupsNames=["classic"])["results"][0]["errorCode"] == 30
    assert ask(here, "OffsetDelete", 0, groupId="classic")["errorCode"] == 30
    assert ask(here, "SaslHandshake", 1, mechanism="PLAIN")["errorCode"] == 33
    assert ask(here, "DescribeAcls", 3)["errorCode"] == 54
    assert "classic" in here.view.groups


def test_every_api_is_answered_in_every_version_whatever_is_asked(here: ServerContext) -> None:
    """With made-up content: there is an answer, it has only members that the response has, and it can be written."""
    chance = random.Random(8)
    for key, (name, _) in names_by_key("wire").items():
        schema, api_name = load("wire", name), name.removesuffix("Request")
        if api_name in ("JoinGroup", "SyncGroup"):
            continue  # they wait for others
        for version in range(schema.lowest, schema.highest + 1):
            for _ in range(20):
                body = made_up_struct(schema.struct, version, chance)
                known = {field.name: body[field.name] for field in schema.struct.fields}
                if api_name == "Produce" and known["acks"] == 0:
                    continue
                found = answer(here, api_name, RequestContext(known, version, "me", "h"))
                one = api(key)
                assert one is not None
                assert write_response(ApiRequest(one, version, 1, "me", {}), found)
    assert not set(REFUSED) & set(QUIETLY_REFUSED)
    assert read_request.__doc__
