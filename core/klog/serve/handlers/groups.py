"""Handlers of requests about consumer groups: the coordinator, membership, offsets, lists."""

from __future__ import annotations

from typing import Final

from klog.formats.error_codes import ErrorCode
from klog.formats.structs.schema import Data
from klog.serve.groups import Offsets
from klog.serve.handlers.context import Answer, RequestContext, ServerContext
from klog.serve.handlers.refusals import READ_ONLY

_MANY_COORDINATORS, _MANY_MEMBERS, _MANY_GROUPS, _GROUP_NOT_FOUND, _BY_ID = 4, 3, 8, 6, 10
"""The versions from which on FindCoordinator, LeaveGroup and OffsetFetch take several, DescribeGroups has an error for
a group that is not there, and topics of offsets are named by their ids."""
_GROUP: Final = 0
_CLASSIC: Final = "classic"


def find_coordinator(here: ServerContext, asked: RequestContext) -> Answer:
    """Return this node for groups; transactions have no coordinator here."""
    if asked.body["keyType"] == _GROUP:
        found = here.node()
    else:
        error = {
            "errorCode": ErrorCode.COORDINATOR_NOT_AVAILABLE,
            "errorMessage": f"{READ_ONLY}; it coordinates consumer groups only",
        }
        found = {"nodeId": -1, "host": "", "port": -1} | error
    if asked.version < _MANY_COORDINATORS:
        return {"errorMessage": None} | found
    keys = dict.fromkeys(asked.body["coordinatorKeys"])
    return {"coordinators": [{"errorMessage": None, "key": key} | found for key in keys]}


def join_group(here: ServerContext, asked: RequestContext) -> Answer:
    """Wait for the group to gather."""
    return here.groups.join(asked.body, asked.version, asked.client_id, asked.host, asked.still_there)


def sync_group(here: ServerContext, asked: RequestContext) -> Answer:
    """Wait for the leader's word."""
    return here.groups.sync(asked.body, asked.still_there)


def heartbeat(here: ServerContext, asked: RequestContext) -> Answer:
    """Take a sign of life."""
    return {"errorCode": here.groups.heartbeat(asked.body)}


def leave_group(here: ServerContext, asked: RequestContext) -> Answer:
    """Let members leave."""
    name = asked.body["groupId"]
    if asked.version < _MANY_MEMBERS:
        return {"errorCode": here.groups.leave(name, asked.body["memberId"], None)}
    members = [(one["memberId"], one["groupInstanceId"]) for one in asked.body["members"]]
    left = [
        {"memberId": member, "groupInstanceId": instance, "errorCode": here.groups.leave(name, member, instance)}
        for member, instance in members
    ]
    return {"members": left}


def offset_commit(here: ServerContext, asked: RequestContext) -> Answer:
    """Keep offsets in memory, until this endpoint ends."""
    error = here.groups.may_commit(asked.body)
    topics = []
    for wanted in asked.body["topics"]:
        topic = here.topic(wanted["name"], wanted["topicId"])
        rows = []
        for row in wanted["partitions"]:
            code = error or _not_there(asked.version)
            if not error and topic is not None and row["partitionIndex"] in topic.indexes:
                committed = (row["committedOffset"], row["committedLeaderEpoch"], row["committedMetadata"] or "")
                code = here.groups.commit(asked.body["groupId"], topic.name, row["partitionIndex"], committed)
            rows.append({"partitionIndex": row["partitionIndex"], "errorCode": code})
        topics.append({"name": wanted["name"], "topicId": wanted["topicId"], "partitions": rows})
    return {"topics": topics}


def _not_there(version: int) -> ErrorCode:
    return ErrorCode.UNKNOWN_TOPIC_ID if version >= _BY_ID else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def offset_fetch(here: ServerContext, asked: RequestContext) -> Answer:
    """Return what groups have committed, on the disk or since."""
    body = asked.body
    if asked.version < _MANY_GROUPS:
        return {"topics": _offsets(here, body["groupId"], body["topics"], asked.version)}
    groups = {group["groupId"]: group["topics"] for group in body["groups"]}
    told = [{"groupId": name, "topics": _offsets(here, name, topics, asked.version)} for name, topics in groups.items()]
    return {"groups": told}


def _offsets(here: ServerContext, group: str, wanted: list[Data] | None, version: int) -> list[Data]:
    known = here.groups.offsets(group)
    if wanted is None:
        partitions: dict[str, list[int]] = {}
        topics = here.view.topics
        for name, index in sorted(known):
            # Kafka's tools request the ends of all partitions returned here, and fail as a whole if one is not served.
            if name in topics and index in topics[name].indexes:
                partitions.setdefault(name, []).append(index)
        wanted = [{"name": name, "partitionIndexes": indexes} for name, indexes in partitions.items()]
        if version >= _BY_ID:
            wanted = [one | {"topicId": topics[one["name"]].id} for one in wanted]
    return [_topic_offsets(here, known, one, version) for one in wanted]


def _topic_offsets(here: ServerContext, known: Offsets, wanted: Data, version: int) -> Data:
    name, error = wanted.get("name", ""), ErrorCode.NONE
    if version >= _BY_ID and not name:
        topic = here.topic(None, wanted["topicId"])
        name, error = ("", ErrorCode.UNKNOWN_TOPIC_ID) if topic is None else (topic.name, ErrorCode.NONE)
    rows = []
    for index in wanted["partitionIndexes"]:
        offset, epoch, text = known.get((name, index), (-1, -1, ""))
        row = {"partitionIndex": index, "committedOffset": offset, "committedLeaderEpoch": epoch, "metadata": text}
        rows.append(row | {"errorCode": error})
    told: Data = {"name": name, "partitions": rows}
    return {"topicId": wanted["topicId"]} | told if version >= _BY_ID else told


def list_groups(here: ServerContext, asked: RequestContext) -> Answer:
    """Return the groups of the disk and those created since."""
    states = {state.lower() for state in asked.body["statesFilter"]}
    kinds = {kind.lower() for kind in asked.body["typesFilter"]}
    rows = []
    for name in sorted({*here.view.groups, *here.groups.names()}):
        known = here.groups.known(name)
        kind, state = (known.kind, known.state) if known is not None else ("consumer", "Empty")
        if (not states or state.lower() in states) and (not kinds or _CLASSIC in kinds):
            row = {"groupId": name, "protocolType": kind, "groupState": state, "groupType": _CLASSIC}
            rows.append(row)
    return {"groups": rows}


def describe_groups(here: ServerContext, asked: RequestContext) -> Answer:
    """Return members and state; a group of the disk is empty."""
    return {"groups": [_described(here, name, asked.version) for name in dict.fromkeys(asked.body["groups"])]}


def _described(here: ServerContext, name: str, version: int) -> Data:
    known = here.groups.known(name)
    if known is None and name not in here.view.groups:
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
    told = {"groupId": name, "groupState": known.state, "protocolType": known.kind, "members": members}
    return told | {"protocolData": known.protocol}
