"""The state of a cluster as one JSON document, written in parts: it may have a hundred thousand partitions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from klog.cluster.metadata.metadata_directory import MetadataDirectory
from klog.cluster.metadata.metadata_image import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    MetadataImage,
)
from klog.cluster.metadata.metadata_loader import ClusterMetadata, LogPoint
from klog.formats.checkpoint import Malformed
from klog.formats.properties import QuorumState

RESOURCES = {
    TOPIC_RESOURCE: "topic",
    BROKER_RESOURCE: "broker",
    CLIENT_METRICS_RESOURCE: "client-metrics",
    GROUP_RESOURCE: "group",
}


def document(
    directory: MetadataDirectory, found: ClusterMetadata, end: LogPoint, topics: Sequence[str]
) -> Iterator[bytes]:
    """Yield the parts of the document; *end*: of the log; *topics*: those to show, by name."""
    before = [_line(name, value) for name, value in (*_place(directory, found, end), *_nodes(found))]
    yield ("{\n" + "".join(before) + '  "topics": [').encode()
    for number, topic in enumerate(topics):
        yield (b",\n    " if number else b"\n    ") + _topic(found.state, topic)
    ending = "\n  " if topics else ""
    after = [_line(name, value) for name, value in _settings(found)]
    yield (f"{ending}],\n" + "".join(after).removesuffix(",\n") + "\n}\n").encode()


def _line(name: str, value: object) -> str:
    return f"  {json.dumps(name)}: {json.dumps(value)},\n"


def point(place: LogPoint | None) -> dict[str, int] | None:
    """Return a place in the log."""
    return None if place is None else {"offset": place.offset, "epoch": place.epoch}


def quorum_state(found: QuorumState | Malformed | None) -> dict[str, object] | None:
    """Return the content of quorum-state, -1 for none as in the file; None if there is no sound one."""
    if not isinstance(found, QuorumState):
        return None
    leader, voted = (-1 if node is None else node for node in (found.leader_id, found.voted_id))
    return {"leader_id": leader, "leader_epoch": found.leader_epoch, "voted_id": voted}


def _place(directory: MetadataDirectory, found: ClusterMetadata, end: LogPoint) -> Iterator[tuple[str, object]]:
    log_dir, quorum = directory.log_dir, found.quorum
    yield "node", None if log_dir is None else log_dir.node_id
    yield "cluster_id", None if log_dir is None else log_dir.cluster_id
    yield "directory_id", None if log_dir is None else log_dir.directory_id
    yield "end", point(end)
    yield "snapshot", point(found.snapshot)
    yield "at", found.end_offset
    yield "kraft_version", quorum.kraft_version
    yield "voters", None if quorum.voters is None else [one.as_json() for one in sorted(quorum.voters)]
    yield "quorum", {"leader": quorum.leader, "epoch": quorum.epoch}
    yield "quorum_state", quorum_state(directory.quorum_state)


def _nodes(found: ClusterMetadata) -> Iterator[tuple[str, object]]:
    settings, cluster = found.state.settings, found.state.cluster
    yield "features", dict(sorted(settings.features.items()))
    yield "metadata_version", settings.metadata_version
    yield "brokers", [{"id": id_, **one.as_json()} for id_, one in sorted(cluster.brokers.items()) if one.registered]
    yield (
        "controllers",
        [
            {"id": id_, "incarnation": one.incarnation_id, "endpoints": list(map(str, one.endpoints))}
            for id_, one in sorted(cluster.controllers.items())
        ],
    )


def _topic(state: MetadataImage, topic: str) -> bytes:
    """Return a topic with its partitions as one line."""
    topic_id = state.topics.ids[topic]
    head = f'{{"topic":{json.dumps(topic)},"topic_id":"{topic_id}","partitions":'
    return head.encode() + state.topics.partitions[topic_id].json() + b"}"


def _settings(found: ClusterMetadata) -> Iterator[tuple[str, object]]:
    settings = found.state.settings
    configs: dict[str, dict[str, dict[str, str]]] = {name: {} for name in RESOURCES.values()}
    for (kind, name), texts in sorted(settings.configs.items()):
        configs.setdefault(RESOURCES.get(kind, str(kind)), {})[name] = dict(sorted(texts.items()))
    yield "configs", configs
    yield (
        "quotas",
        [
            {"entity": dict(entity), "values": dict(sorted(values.items()))}
            for entity, values in sorted(settings.quotas.items(), key=lambda one: str(one[0]))
        ],
    )
    yield (
        "scram",
        [
            {"user": user, "mechanism": mechanism, "iterations": iterations}
            for (user, mechanism), iterations in sorted(settings.scram.items())
        ],
    )
    yield "acls", [{"id": id_, **one._asdict()} for id_, one in sorted(settings.acls.items(), key=lambda one: one[1])]
    yield "next_producer_id", settings.next_producer_id
    yield "delegation_tokens", len(settings.tokens)
    yield "unknown", {str(number): count for number, count in sorted(found.state.unknown.items())}
    yield "open_transaction", found.open_transaction
    yield "damage", list(found.damage)
