"""Lists partitions in remote storage."""

from __future__ import annotations

from dataclasses import dataclass, field

from klog.cluster.remote_log.remote_log import RemoteLog
from klog.commands.remote.partition_listing import PartitionListing, list_partition
from klog.commands.remote.sources import RemoteQuery, RemoteSources
from klog.tier.tier import TierListing


@dataclass(frozen=True)
class RemoteListing:
    """Partitions in remote storage, by name.  *objects*: of the tier, None without one; *metadata* likewise."""

    partitions: list[PartitionListing] = field(default_factory=list)
    objects: TierListing | None = None
    metadata: RemoteLog | None = None


def list_remote(query: RemoteQuery) -> RemoteListing:
    """Return the partitions that the metadata, the tier or a tiered topic's log dirs have.

    A problem is looked at twice: a broker may have been copying or deleting between two looks.  Raises UsageError for
    paths that are no log dirs, or a topic that fits nothing; KlogError for log dirs of several clusters.
    """
    found = _listing(query)
    if not any(one.verdict.is_problem for one in found.partitions):
        return found
    again = _listing(query)
    first = {(one.topic, one.topic_id, one.partition): one for one in found.partitions}
    for number, one in enumerate(again.partitions):
        before = first.get((one.topic, one.topic_id, one.partition))
        if before is not None and one.verdict.is_problem and not before.verdict.is_problem:
            again.partitions[number] = before
    return again


def _listing(query: RemoteQuery) -> RemoteListing:
    sources = RemoteSources(query)
    rows = [list_partition(sources.facts(whose)) for whose in sources.partitions()]
    return RemoteListing(rows, sources.objects, sources.metadata)
