"""Handlers of requests about the cluster: Metadata, DescribeCluster, DescribeConfigs, DescribeLogDirs."""

from __future__ import annotations

from typing import Final

from klog.base.overlays import remote_object
from klog.commands.serve.handlers.context import ZERO_ID, Answer, RequestContext, ServerContext
from klog.commands.serve.view import Topic
from klog.data_dir.partition import Partition
from klog.formats.error_codes import ErrorCode
from klog.formats.structs.schema import Data

_NULL_IS_ALL: Final = 1
"""Before this version of Metadata an empty list of topics requests every one."""
_UNNAMED: Final = 12
"""From this version of Metadata on, a topic that is requested by its id may have no name."""
_TOPIC, _DYNAMIC_TOPIC_CONFIG = 2, 1


def metadata(server: ServerContext, request: RequestContext) -> Answer:
    """Return the one node and the topics."""
    wanted = request.body["topics"]
    if wanted is None or (not wanted and request.version < _NULL_IS_ALL):
        topics = [_describe_topic(server, server.view.topics[name]) for name in sorted(server.view.topics)]
    else:  # each once: a request that repeats one name a thousand times would have a thousand large answers
        names = dict.fromkeys((one["name"], one["topicId"]) for one in wanted)
        topics = [_requested_topic(server, name, topic_id, request.version) for name, topic_id in names]
    node = server.view.node_id
    return {"brokers": [server.node()], "clusterId": server.view.cluster_id, "controllerId": node, "topics": topics}


def _requested_topic(server: ServerContext, name: str | None, topic_id: str, version: int) -> Data:
    topic = server.topic(name, topic_id)
    if topic is not None:
        return _describe_topic(server, topic)
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic_id == ZERO_ID else ErrorCode.UNKNOWN_TOPIC_ID
    return {"errorCode": error, "name": name if version >= _UNNAMED else name or "", "topicId": topic_id}


def _describe_topic(server: ServerContext, topic: Topic) -> Data:
    partitions = [_partition(server, topic, index) for index in topic.indexes]
    return {"name": topic.name, "topicId": topic.id, "isInternal": topic.internal, "partitions": partitions}


def _partition(server: ServerContext, topic: Topic, index: int) -> Data:
    partition = server.view.partition(topic.name, index)
    if partition is None:
        return {"errorCode": ErrorCode.LEADER_NOT_AVAILABLE, "partitionIndex": index, "leaderId": -1}
    node = server.view.node_id
    return {
        "partitionIndex": index,
        "leaderId": node,
        "leaderEpoch": partition.leader_epoch,
        "replicaNodes": [node],
        "isrNodes": [node],
    }


def describe_cluster(server: ServerContext, request: RequestContext) -> Answer:
    """Return the one node."""
    view, kind = server.view, request.body["endpointType"]
    nodes = [server.node("brokerId")]
    return {"endpointType": kind, "clusterId": view.cluster_id, "controllerId": view.node_id, "brokers": nodes}


def describe_configs(server: ServerContext, request: RequestContext) -> Answer:
    """Return the topics' own settings, as far as they are on the disk.

    None of them is marked read-only: MirrorMaker does not copy such settings.
    """
    resources = {
        (one["resourceType"], one["resourceName"]): one["configurationKeys"] for one in request.body["resources"]
    }
    return {"results": [_configs(server, *resource, keys) for resource, keys in resources.items()]}


def _configs(server: ServerContext, kind: int, name: str, keys: list[str] | None) -> Data:
    result: Data = {"errorMessage": None, "resourceType": kind, "resourceName": name}
    if kind != _TOPIC:
        return result
    topic = server.view.topics.get(name)
    if topic is None:
        return result | {"errorCode": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    told = [(key, value) for key, value in sorted(topic.configs.items()) if keys is None or key in keys]
    source = _DYNAMIC_TOPIC_CONFIG
    return result | {"configs": [{"name": key, "value": value, "configSource": source} for key, value in told]}


def _local_size(partition: Partition) -> int:
    """Return the bytes of the segments on the disk."""
    here = (one for one in partition.segments if remote_object(partition.file(one.log)) is None)
    return sum(one.size for one in here)


def describe_log_dirs(server: ServerContext, request: RequestContext) -> Answer:
    """Return the data dirs with the size of each partition."""
    wanted = request.body["topics"]
    only = None if wanted is None else {one["topic"]: set(one["partitions"]) for one in wanted}
    dirs: dict[str, list[Data]] = {path: [] for path in server.view.log_dirs}
    for name in sorted(server.view.topics):
        if only is not None and name not in only:
            continue
        rows: dict[str, list[Data]] = {}
        for index, copies in sorted(server.view.topics[name].copies.items()):
            for copy in copies if only is None or index in only[name] else ():
                row = {"partitionIndex": index, "partitionSize": _local_size(copy)}
                rows.setdefault(copy.checkpoints.log_dir, []).append(row)
        for path, partitions in rows.items():
            dirs.setdefault(path, []).append({"name": name, "partitions": partitions})
    return {"results": [{"logDir": path, "topics": topics} for path, topics in dirs.items()]}
