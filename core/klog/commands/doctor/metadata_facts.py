"""Facts of the cluster metadata for doctor: the directory of each replica, lone nodes, logs that are ahead."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from klog.cluster.metadata.metadata_loader import ClusterMetadata
from klog.commands.doctor.diagnosis import SERVED, KafkaVersion, PartitionFate
from klog.commands.doctor.partition_loader import LoadedPartition
from klog.data_dir.log_dir import LogDir
from klog.formats.java_integers import INT_MAX
from klog.formats.names import PartitionState
from klog.partition.start.metadata_behind import metadata_lag
from klog.partition.start.metadata_log import DIRECTORY
from klog.partition.start.start_reasons import StartFailure, StartNote

UNSUPPORTED: Final = "metadata-version-unsupported"
"""The id of the failure over a `metadata.version` that a broker's version does not know."""
VERSION_STEP: Final = {UNSUPPORTED: "start a broker of a version that has this metadata.version (klog metadata show)"}
_LEVELS: Final = {KafkaVersion.V4_3: (7, INT_MAX), KafkaVersion.V3_9: (1, 21)}
"""The levels of `metadata.version` that a broker starts with: from 3.3-IV3 on, and up to 3.9-IV0.  Kafka:
MetadataVersion.fromFeatureLevel, MINIMUM_VERSION, LATEST_PRODUCTION."""


def version_failure(cluster: ClusterMetadata | None, version: KafkaVersion, log_dir: str) -> StartFailure | None:
    """Return why a broker of *version* stops on the finalized `metadata.version`; None if it does not."""
    level = None if cluster is None else cluster.features.get("metadata.version")
    low, high = _LEVELS.get(version, (0, INT_MAX))
    if cluster is None or level is None or low <= level <= high:
        return None
    known = cluster.state.settings.metadata_version or f"level {level}"
    message = f"the metadata log has metadata.version {known}, which a broker {version.value} does not support"
    return StartFailure(UNSUPPORTED, message, log_dir, DIRECTORY)


def directories_of(cluster: ClusterMetadata, node_id: int) -> Mapping[tuple[str, int], str | None]:
    """Return the directory id that the metadata have for each partition of broker *node_id*, by topic and number.

    None if they have none, as before 3.7.  Kafka: PartitionRegistration.directory.
    """
    found: dict[tuple[str, int], str | None] = {}
    for topic, topic_id in cluster.topic_ids.items():
        for number, partition in cluster.partitions.get(topic_id, {}).items():
            if node_id in partition.replicas:
                at = partition.replicas.index(node_id)
                found[topic, number] = partition.directories[at] if partition.directories else None
    return found


def lag_notes(
    log_dir: str, cluster: ClusterMetadata | None, loaded: Sequence[LoadedPartition], fates: Iterable[PartitionFate]
) -> list[StartNote]:
    """Note that the metadata log in *log_dir* is behind the logs that the broker will serve, if it is."""
    if cluster is None:
        return []
    served = {(row.log_dir, row.directory) for row in fates if row.fate in SERVED}
    logs = (one for one in loaded if (one.log_dir, one.name.name) in served)
    lag = metadata_lag(cluster, ((one.name.topic, one.name.partition, one.used) for one in logs))
    message = f"{os.path.join(log_dir, DIRECTORY)} is behind the logs: {lag.description}"
    if len(_nodes(cluster)) > 1:
        message += (
            "; the log of another voter may have the rest, which these disks do not show: run klog metadata compare"
            " with the disks of all voters"
        )
    return [StartNote("metadata-log-behind", message)] if lag else []


def is_only_node(cluster: ClusterMetadata, node_id: int) -> bool:
    """Whether no other node is in the cluster: no broker, no controller, no replica."""
    partitions = (one for some in cluster.partitions.values() for one in some.values())
    return _nodes(cluster) == {node_id} and all(one.replicas == (node_id,) for one in partitions)


def _nodes(cluster: ClusterMetadata) -> set[int]:
    """Return the ids of all brokers and controllers that are known."""
    nodes = {node for node, broker in cluster.brokers.items() if broker.registered}
    return nodes | {voter.id for voter in cluster.quorum.voters or ()} | set(cluster.state.cluster.controllers)


def most_wanted_id(cluster: ClusterMetadata | None, node_id: int, log_dir: str, free: Collection[str]) -> str | None:
    """Return which of *free* directory ids the metadata have for most partitions of a log dir; None for none."""
    assert cluster is not None, "there are metadata"
    ids = directories_of(cluster, node_id)
    names = (one.name for one in LogDir(log_dir).partitions) if os.path.isdir(log_dir) else ()
    found = Counter(
        ids.get((name.topic, name.partition))
        for name in names
        if name is not None and name.state is PartitionState.CURRENT
    )
    return next((one for one, _ in found.most_common() if one in free), None)
