"""Handlers: a pure function per API, from context and request to the body of the response.  Kafka: KafkaApis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from klog.commands.serve.handlers import cluster_requests as topics
from klog.commands.serve.handlers import fetch_requests as logs
from klog.commands.serve.handlers import group_requests as groups
from klog.commands.serve.handlers import refusals
from klog.commands.serve.handlers.context import Answer, RequestContext, ServerContext
from klog.formats.error_codes import ErrorCode
from klog.formats.wire_messages import versions_response

ANSWERS: Final[dict[str, Callable[[ServerContext, RequestContext], Answer]]] = {
    "ApiVersions": lambda _server, _request: versions_response(ErrorCode.NONE),
    "Metadata": topics.metadata,
    "DescribeCluster": topics.describe_cluster,
    "DescribeConfigs": topics.describe_configs,
    "DescribeLogDirs": topics.describe_log_dirs,
    "Fetch": logs.fetch,
    "ListOffsets": logs.list_offsets,
    "OffsetForLeaderEpoch": logs.offset_for_leader_epoch,
    "FindCoordinator": groups.find_coordinator,
    "JoinGroup": groups.join_group,
    "SyncGroup": groups.sync_group,
    "Heartbeat": groups.heartbeat,
    "LeaveGroup": groups.leave_group,
    "OffsetCommit": groups.offset_commit,
    "OffsetFetch": groups.offset_fetch,
    "ListGroups": groups.list_groups,
    "DescribeGroups": groups.describe_groups,
}
REFUSED: Final[dict[str, Callable[[ServerContext, RequestContext], Answer]]] = {
    "Produce": refusals.produce,
    "CreateTopics": refusals.create_topics,
    "CreatePartitions": refusals.create_partitions,
    "DeleteTopics": refusals.delete_topics,
    "DeleteRecords": refusals.delete_records,
    "IncrementalAlterConfigs": refusals.incremental_alter_configs,
    "DeleteGroups": refusals.delete_groups,
    "OffsetDelete": refusals.offset_delete,
    "SaslHandshake": refusals.sasl_handshake,
    "SaslAuthenticate": refusals.sasl_authenticate,
}
"""APIs whose refusal is reported to the operator."""
QUIETLY_REFUSED: Final[dict[str, Callable[[ServerContext, RequestContext], Answer]]] = {
    "InitProducerId": refusals.init_producer_id,
    "DescribeAcls": refusals.describe_acls,
}
_ALL: Final = ANSWERS | REFUSED | QUIETLY_REFUSED


def answer(server: ServerContext, name: str, request: RequestContext) -> Answer:
    """Return the body of the response to the API *name*.  Raises HangUpError if there is no response."""
    return _ALL[name](server, request)
