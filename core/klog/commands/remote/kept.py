"""The bytes of partitions in remote storage: why each segment is still there, and what `retention.bytes` counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from klog.cluster.remote_log.lineage import epochs_with_data, is_within_lineage
from klog.commands.remote.partition_listing import RemoteFacts, list_partition
from klog.commands.remote.sources import RemoteQuery, RemoteSources
from klog.data_dir.partition import Partition
from klog.formats.remote_log import SegmentState


class RemoteUsage(NamedTuple):
    """A partition.  *bytes*: of all its objects, as stored; *reasons*: the same by the role of their segments.

    *counted_bytes*: what a leader compares with *retention_bytes*; None without a local log, or without that limit.
    """

    topic: str
    partition: int
    topic_id: str
    bytes: int
    reasons: Mapping[str, int]
    counted_bytes: int | None
    retention_bytes: int | None


def remote_usage(query: RemoteQuery) -> Iterator[RemoteUsage]:
    """Yield the partitions with objects or entries, by name.  Raises UsageError, KlogError."""
    sources = RemoteSources(query)
    for whose in sources.partitions():
        facts = sources.facts(whose)
        reasons: Counter[str] = Counter()
        for one in list_partition(facts).segment_list:
            reasons[one.role] += sum((one.objects or {}).values())
        limit = None if sources.cluster is None else sources.cluster.topic_config(whose.topic).get("retention.bytes")
        retention = int(limit) if limit is not None and int(limit) >= 0 else None
        counted = None if retention is None else _counted(facts, sources.local_log(whose))
        sizes = {role: size for role, size in sorted(reasons.items()) if size}
        yield RemoteUsage(*whose, sum(sizes.values()), sizes, counted, retention)


def _counted(facts: RemoteFacts, log: Partition | None) -> int | None:
    """Return the finished segments of the history, and the local ones that are not copied yet.

    Kafka: RemoteLogManager.RLMExpirationTask.buildRetentionSizeData.
    """
    if facts.local is None or facts.cache is None or log is None:
        return None
    epochs, end = epochs_with_data(facts.local.epochs), facts.local.log_end_offset
    finished = [one for one in facts.cache.segments.values() if one.state is SegmentState.COPY_SEGMENT_FINISHED]
    own = [one for one in finished if is_within_lineage(one, epochs, end)]
    last = max((one.end_offset for one in own), default=-1)
    return sum(one.size for one in own) + sum(one.size for one in log.segments if one.base_offset > last)
