"""The steps of the operator after a plan of a quorum: the lines for `server.properties`, and warnings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Final

from klog.cluster.metadata.metadata_loader import ClusterMetadata
from klog.commands.replicas.voter_addresses import VoterAddress
from klog.formats.names import CLUSTER_METADATA
from klog.partition.start.metadata_log import snapshot_fault

if TYPE_CHECKING:
    from klog.commands.replicas.quorum_plan import QuorumPlanner

_MOST_NAMES: Final = 10


def next_steps(planner: QuorumPlanner) -> list[str]:
    """Return the lines for `server.properties`, and the other steps before and after the start."""
    if planner.gathering is None:
        return list(_of_quorum(planner))
    return list(_of_one(planner, planner.gathering.node))


def _addresses(planner: QuorumPlanner) -> str:
    return ",".join(
        str(VoterAddress(voter.endpoints[0].host, voter.endpoints[0].port))
        for voter in planner.voters
        if voter.endpoints
    )


def _of_quorum(planner: QuorumPlanner) -> Iterator[str]:
    if planner.configured_voters is not None:
        yield f"on every node, including brokers: controller.quorum.voters={planner.configured_voters}"
        return
    yield f"on every node, including brokers: controller.quorum.bootstrap.servers={_addresses(planner)}"
    for voter in planner.voters:
        for endpoint in voter.endpoints:
            yield f"on node {voter.id}, in listeners: {endpoint}"
    if planner.former_voters:
        yield f"on node {planner.voters[0].id}: controller in process.roles; it alone for now"
        yield (
            "once it is running: further controllers, on disks that kafka-storage has formatted with"
            " --no-initial-controllers, join with kafka-metadata-quorum add-controller"
        )


def _of_one(planner: QuorumPlanner, node: int) -> Iterator[str]:
    state, prefix = planner.state, f"on node {node}"
    yield f"{prefix}: process.roles=broker,controller"
    if state.quorum.voters is not None:
        yield f"{prefix}: controller.quorum.bootstrap.servers={_addresses(planner)}"
        yield from (f"{prefix}, in listeners: {endpoint}" for endpoint in planner.voters[0].endpoints)
    else:
        registered = state.state.cluster.controllers.get(node)
        known = registered.endpoints[0] if registered is not None and registered.endpoints else None
        address = planner.address or (VoterAddress(known.host, known.port) if known is not None else "HOST:PORT")
        yield f"{prefix}: controller.quorum.voters={node}@{address}"
    yield f"{prefix}: offsets.topic.replication.factor=1"
    yield f"{prefix}: transaction.state.log.replication.factor=1"
    yield f"{prefix}: transaction.state.log.min.isr=1"
    yield f"{prefix}: min.insync.replicas=1"
    yield from _of_min_insync(state)
    if planner.gathering is not None:
        yield from _of_lost(state, planner.gathering.lost)


def _of_min_insync(state: ClusterMetadata) -> Iterator[str]:
    """One replica takes no write with acks=all where two must be in sync."""
    settings = {"--entity-type brokers --entity-default": state.broker_config(None)}
    settings |= {
        f"--entity-type topics --entity-name {topic}": state.topic_config(topic) for topic in sorted(state.topic_ids)
    }
    for entity, config in settings.items():
        least = config.get("min.insync.replicas", "1")
        if least != "1":
            yield f"once it is running: kafka-configs --alter {entity} --add-config min.insync.replicas=1 (now {least})"


def _of_unknown(unknown: Sequence[tuple[str, int]]) -> Iterator[str]:
    """Yield a warning about the partitions on the disks that the metadata log does not have."""
    if unknown:
        names = [f"{topic}-{number}" for topic, number in unknown]
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        yield (
            f"the metadata log does not have {', '.join(names[:_MOST_NAMES])}{more}: deleted, or created after its end;"
            " copies on other disks stay there, and a start sets those on this node aside as -stray"
        )


def _of_lost(state: ClusterMetadata, lost: Sequence[tuple[str, int]]) -> Iterator[str]:
    for topic, count in sorted(Counter(topic for topic, _ in lost).items()):
        partitions = len(state.partitions[state.topic_ids[topic]])
        if count == partitions:
            yield f"once it is running: no disk has records of {topic}; kafka-topics --delete --topic {topic}"
        else:
            yield (
                f"{count} of {partitions} partitions of {topic} have no copy, and stay without a leader; deleting the"
                " topic would also delete the others"
            )


def _left_out(planner: QuorumPlanner) -> str:
    if planner.gathering is None and planner.former_voters:
        nodes = ", ".join(map(str, planner.former_voters))
        missing = ", ".join(str(node) for node in planner.former_voters if node not in planner.written)
        unless = f"; first move {CLUSTER_METADATA}-0 away on nodes whose log the plan leaves as it is ({missing})"
        return (
            f"the former voters (nodes {nodes}) must never start as controllers with their old logs: a"
            " majority of them would elect another leader; they may start as brokers only (process.roles=broker)"
            f"{unless if missing else ''}"
        )
    cluster = planner.base.disk.log_dir.cluster_id
    return f"no disk of cluster {cluster} that was left out may start again with this cluster id"


def warnings(planner: QuorumPlanner) -> list[str]:
    """Return the warnings that must be read before anything is started."""
    base = planner.base
    return [
        _left_out(planner),
        f"uncommitted records below offset {base.log_end} of the base are committed from now on",
        "once a controller has started on these logs, undo is impossible",
        *(
            f"node {copy.node} stops on its newest snapshot, which the plan does not change: klog doctor"
            f" {quote(copy.disk.log_dir.path)}"
            for copy in planner.copies
            if snapshot_fault(copy.partition) is not None
        ),
        *_of_unknown(planner.gathering.unknown if planner.gathering is not None else ()),
        *(
            f"the log of node {copy.node} is truncated after its last complete batch"
            f"{f': {copy.gone} offsets, which its own start would also truncate' if copy.gone else ''}"
            for copy in planner.copies
            if copy.has_rest and copy.node in planner.written
        ),
        *(
            f"node {node} may start later with its old log, as long as that does not reach beyond offset"
            f" {base.log_end} of epoch {base.epoch}"
            for node in sorted(planner.without if planner.gathering is None else ())
        ),
        *(
            f"the log of node {copy.node} is ahead of the base (offset {copy.log_end}, epoch {copy.epoch}): its later"
            " records are truncated when it follows the new leader"
            for copy in planner.ahead
        ),
    ]
