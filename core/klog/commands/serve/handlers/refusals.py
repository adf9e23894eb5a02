"""Refuses requests that would write or authenticate, with an error code and a message that clients show.

Clients retry after some codes, such as NOT_LEADER and storage errors, and would loop.
"""

from __future__ import annotations

import random
from typing import Final

from klog.commands.serve.handlers.context import Answer, HangUpError, RequestContext, ServerContext
from klog.formats.error_codes import ErrorCode

READ_ONLY: Final = "klog serve is read-only: this endpoint shows a dead broker's disk, nothing can be written to it"
"""The message for requests that would write.  Clients do not retry after the error codes that go with it."""

_REFUSED: Final[Answer] = {"errorCode": ErrorCode.POLICY_VIOLATION, "errorMessage": READ_ONLY}
_TOPICS_WITH_IDS: Final = 6
_NO_RESPONSE: Final = 0
"""acks=0: a producer that expects no response."""


def produce(_server: ServerContext, request: RequestContext) -> Answer:
    """Refuse records.  Raises HangUpError for a producer that reads no response."""
    if request.body["acks"] == _NO_RESPONSE:
        raise HangUpError("a producer that wants no answer (acks=0)")
    refused = _REFUSED | {"baseOffset": -1}
    return {
        "responses": [
            {
                "name": topic["name"],
                "topicId": topic["topicId"],
                "partitionResponses": [refused | {"index": one["index"]} for one in topic["partitionData"]],
            }
            for topic in request.body["topicData"]
        ]
    }


def init_producer_id(_server: ServerContext, _request: RequestContext) -> Answer:
    """Give an id that is forgotten at once: an error here would keep clients from showing the text of the next."""
    return {"producerId": random.getrandbits(62), "producerEpoch": 0}


def create_topics(_server: ServerContext, request: RequestContext) -> Answer:
    """Refuse."""
    return {"topics": [_REFUSED | {"name": topic["name"]} for topic in request.body["topics"]]}


def create_partitions(_server: ServerContext, request: RequestContext) -> Answer:
    """Refuse."""
    return {"results": [_REFUSED | {"name": topic["name"]} for topic in request.body["topics"]]}


def delete_topics(_server: ServerContext, request: RequestContext) -> Answer:
    """Refuse."""
    if request.version < _TOPICS_WITH_IDS:
        return {"responses": [_REFUSED | {"name": name} for name in request.body["topicNames"]]}
    topics = [{"name": topic["name"], "topicId": topic["topicId"]} for topic in request.body["topics"]]
    return {"responses": [_REFUSED | topic for topic in topics]}


def delete_records(_server: ServerContext, request: RequestContext) -> Answer:
    """Refuse."""
    refused = {"lowWatermark": -1, "errorCode": ErrorCode.POLICY_VIOLATION}
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [refused | {"partitionIndex": one["partitionIndex"]} for one in topic["partitions"]],
            }
            for topic in request.body["topics"]
        ]
    }


def incremental_alter_configs(_server: ServerContext, request: RequestContext) -> Answer:
    """Refuse."""
    resources = [
        {"resourceType": one["resourceType"], "resourceName": one["resourceName"]} for one in request.body["resources"]
    ]
    return {"responses": [_REFUSED | resource for resource in resources]}


def delete_groups(_server: ServerContext, request: RequestContext) -> Answer:
    """Refuse."""
    names = request.body["groupsNames"]
    return {"results": [{"groupId": name, "errorCode": ErrorCode.GROUP_AUTHORIZATION_FAILED} for name in names]}


def offset_delete(_server: ServerContext, _request: RequestContext) -> Answer:
    """Refuse."""
    return {"errorCode": ErrorCode.GROUP_AUTHORIZATION_FAILED}


def sasl_handshake(_server: ServerContext, _request: RequestContext) -> Answer:
    """Refuse every mechanism: without an answer clients with SASL settings would retry for ever."""
    return {"errorCode": ErrorCode.UNSUPPORTED_SASL_MECHANISM}


def sasl_authenticate(_server: ServerContext, _request: RequestContext) -> Answer:
    """Refuse, as a broker does that requires no authentication."""
    told = "SaslAuthenticate request received after successful authentication"
    return {"errorCode": ErrorCode.ILLEGAL_SASL_STATE, "errorMessage": told, "authBytes": b""}


def describe_acls(_server: ServerContext, _request: RequestContext) -> Answer:
    """Return that there are none; MirrorMaker then does not copy them."""
    return {"errorCode": ErrorCode.SECURITY_DISABLED, "errorMessage": "klog serve has no authorizer"}
