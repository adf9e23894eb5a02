"""Handlers of requests about consumer groups: the coordinator, membership, offsets, lists."""

from __future__ import annotations

from typing import Final

from klog.commands.serve.group_coordinator import Offsets
from klog.commands.serve.handlers.context import Answer, RequestContext, ServerContext
from klog.commands.serve.handlers.refusals import READ_ONLY
from klog.formats.error_codes import ErrorCode
from klog.formats.structs.schema import Data

_MANY_COORDINATORS, _MANY_MEMBERS, _MANY_GROUPS, _GROUP_NOT_FOUND, _BY_ID = 4, 3, 8, 6, 10
"""The versions from which on FindCoordinator, LeaveGroup and OffsetFetch take several, DescribeGroups has an error for
a group that is not there, and topics of offsets are named by their ids."""
_GROUP: Final = 0
_CLASSIC: Final = "classic"


def find_coordinator(server: ServerContext, request: RequestContext) -> Answer:
    """Return this node for groups; transactions have no coordinator here."""
    if request.body["keyType"] == _GROUP:
        found = server.node()
    else:
        error = {
            "errorCode": ErrorCode.COORDINATOR_NOT_AVAILABLE,
            "errorMessage": f"{READ_ONLY}; it coordinates consumer groups only",
        }
        found = {"nodeId": -1, "host": "", "port": -1} | error
    if request.version < _MANY_COORDINATORS:
        return {"errorMessage": None} | found
    keys = dict.fromkeys(request.body["coordinatorKeys"])
    return {"coordinators": [{"errorMessage": None, "key": key} | found for key in keys]}


def join_group(server: ServerContext, request: RequestContext) -> Answer:
    """Wait for the group to be complete."""
    return server.groups.join(request.body, request.version, request.client_id, request.host, request.still_there)


def sync_group(server: ServerContext, request: RequestContext) -> Answer:
    """Wait for the leader's assignment."""
    return server.groups.sync(request.body, request.still_there)


def heartbeat(server: ServerContext, request: RequestContext) -> Answer:
    """Take a sign of life."""
    return {"errorCode": server.groups.heartbeat(request.body)}


def leave_group(server: ServerContext, request: RequestContext) -> Answer:
    """Remove members."""
    name = request.body["groupId"]
    if request.version < _MANY_MEMBERS:
        return {"errorCode": server.groups.leave(name, request.body["memberId"], None)}
    members = [(one["memberId"], one["groupInstanceId"]) for one in request.body["members"]]
    left = [
        {"memberId": member, "groupInstanceId": instance, "errorCode": server.groups.leave(name, member, instance)}
        for member, instance in members
    ]
    return {"members": left}


def offset_commit(server: ServerContext, request: RequestContext) -> Answer:
    """Keep offsets in memory, until this endpoint ends."""
    error = server.groups.may_commit(request.body)
    missing = ErrorCode.UNKNOWN_TOPIC_ID if request.version >= _BY_ID else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topics = []
    for wanted in request.body["topics"]:
        topic = server.topic(wanted["name"], wanted["topicId"])
        rows = []
        for row in wanted["partitions"]:
            code = error or missing
            if not error and topic is not None and row["partitionIndex"] in topic.indexes:
                committed = (row["committedOffset"], row["committedLeaderEpoch"], row["committedMetadata"] or "")
                code = server.groups.commit(request.body["groupId"], topic.name, row["partitionIndex"], committed)
            rows.append({"partitionIndex": row["partitionIndex"], "errorCode": code})
        topics.append({"name": wanted["name"], "topicId": wanted["topicId"], "partitions": rows})
    return {"topics": topics}


def offset_fetch(server: ServerContext, request: RequestContext) -> Answer:
    """Return the offsets that groups have committed, on the disk or since."""
    body = request.body
    if request.version < _MANY_GROUPS:
        return {"topics": _offsets(server, body["groupId"], body["topics"], request.version)}
    groups = {group["groupId"]: group["topics"] for group in body["groups"]}
    answers = [
        {"groupId": name, "topics": _offsets(server, name, topics, request.version)} for name, topics in groups.items()
    ]
    return {"groups": answers}


def _offsets(server: ServerContext, group: str, wanted: list[Data] | None, version: int) -> list[Data]:
    known = server.groups.offsets(group)
    if wanted is None:
        partitions: dict[str, list[int]] = {}
        topics = server.view.topics
        for name, index in sorted(known):
            # Kafka's tools request the ends of all partitions returned here, and fail as a whole if one is not served.
            if name in topics and index in topics[name].indexes:
                partitions.setdefault(name, []).append(index)
        wanted = [{"name": name, "partitionIndexes": indexes} for name, indexes in partitions.items()]
        if version >= _BY_ID:
            wanted = [one | {"topicId": topics[one["name"]].id} for one in wanted]
    return [_topic_offsets(server, known, one, version) for one in wanted]


def _topic_offsets(server: ServerContext, known: Offsets, wanted: Data, version: int) -> Data:
    name, error = wanted.get("name", ""), ErrorCode.NONE
    if version >= _BY_ID and not name:
        topic = server.topic(None, wanted["topicId"])
        name, error = ("", ErrorCode.UNKNOWN_TOPIC_ID) if topic is None else (topic.name, ErrorCode.NONE)
    rows = []
    for index in wanted["partitionIndexes"]:
        offset, epoch, text = known.get((name, index), (-1, -1, ""))
        row = {"partitionIndex": index, "committedOffset": offset, "committedLeaderEpoch": epoch, "metadata": text}
        rows.append(row | {"errorCode": error})
    answers: Data = {"name": name, "partitions": rows}
    return {"topicId": wanted["topicId"]} | answers if version >= _BY_ID else answers


def list_groups(server: ServerContext, request: RequestContext) -> Answer:
    """Return the groups of the disk and those created since."""
    states = {state.lower() for state in request.body["statesFilter"]}
    kinds = {kind.lower() for kind in request.body["typesFilter"]}
    rows = []
    for name in sorted({*server.view.groups, *server.groups.names()}):
        known = server.groups.known(name)
        kind, state = (known.kind, known.state) if known is not None else ("consumer", "Empty")
        if (not states or state.lower() in states) and (not kinds or _CLASSIC in kinds):
            row = {"groupId": name, "protocolType": kind, "groupState": state, "groupType": _CLASSIC}
            rows.append(row)
    return {"groups": rows}


def describe_groups(server: ServerContext, request: RequestContext) -> Answer:
    """Return members and state; a group of the disk is empty."""
    return {"groups": [_described(server, name, request.version) for name in dict.fromkeys(request.body["groups"])]}


def _described(server: ServerContext, name: str, version: int) -> Data:
    known = server.groups.known(name)
    if known is None and name not in server.view.groups:
        gone = {"groupId": name, "groupState": "Dead"}
        if version < _GROUP_NOT_FOUND:
            return gone
        return gone | {"errorCode": ErrorCode.GROUP_ID_NOT_FOUND, "errorMessage": f"Group {name} not found."}
    if known is None:
        return {"groupId": name, "groupState": "Empty", "protocolType": "consumer"}
    members = [
        {
            "memberId": member.id,
            "groupInstanceId": member.instance,
            "clientId": member.client,
            "clientHost": f"/{member.host}",
            "memberMetadata": member.protocols.get(known.protocol, b""),
            "memberAssignment": member.assignment,
        }
        for member in known.members
    ]
    answers = {"groupId": name, "groupState": known.state, "protocolType": known.kind, "members": members}
    return answers | {"protocolData": known.protocol}
