"""The part of a partition that is in remote storage, from `__remote_log_metadata` in the same log dir."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from klog.base.errors import KlogError
from klog.cluster.metadata.topic_config import TopicConfig
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.formats.checkpoint import epochs_in_force
from klog.formats.names import PartitionState

if TYPE_CHECKING:
    from klog.cluster.remote_log.remote_log import RemoteLog

_TOPIC = "__remote_log_metadata"


class RemotePart(NamedTuple):
    """*end_offset*: the last one, inclusive, that a broker reads from remote storage; None if it reads none there.

    *segments*: those that are not deleted; *bytes*: of the logs of finished ones.
    """

    end_offset: int | None = None
    segments: int | None = None
    bytes: int | None = None


class TieredTopics:
    """The topics of a log dir that are in remote storage; files are read when a partition makes it necessary.

    *with_remote*: `__remote_log_metadata` is read for `part`.
    """

    def __init__(self, log_dir: LogDir, settings: TopicConfig | None = None, *, with_remote: bool = True) -> None:
        self._log_dir, self._settings, self._with_remote = log_dir, settings or TopicConfig(log_dir), with_remote

    def log_start(self, partition: Partition) -> int | None:
        """Return the log start offset as a broker takes it."""
        local = partition.log_start_offset
        if local is None or partition.state is not PartitionState.CURRENT or partition.tiered_log_start() >= local:
            return local
        return partition.tiered_log_start() if self._has(partition.topic) else local

    def _has(self, topic: str | None) -> bool:
        return self._settings.value(topic, "remote.storage.enable").flag

    @cached_property
    def _remote_log(self) -> RemoteLog | None:
        """The content of the topic; None if the log dir has no part of it."""
        try:
            if self._with_remote and any(one.topic == _TOPIC for one in self._log_dir.partitions):
                from klog.cluster.remote_log.remote_log import read_remote_log

                return read_remote_log([self._log_dir], cluster=self._settings.metadata)
        except KlogError:  # a partition directory that is not in a log dir
            pass
        return None

    def part(self, partition: Partition) -> RemotePart:
        """Return the part of a partition in remote storage; its fields are None if that is not known here."""
        topic, topic_id, number = partition.topic, partition.topic_id, partition.number
        if topic is None or topic_id is None or number is None or partition.state is not PartitionState.CURRENT:
            return RemotePart()
        if self._remote_log is None or not self._has(topic):
            return RemotePart()
        from klog.cluster.remote_log.events import TopicIdPartition
        from klog.cluster.remote_log.lineage import chain
        from klog.formats.remote_log import SegmentState

        cache = self._remote_log.cache(TopicIdPartition(topic, number, topic_id))
        if cache is None:
            return RemotePart()
        finished = [one for one in cache.segments.values() if one.state is SegmentState.COPY_SEGMENT_FINISHED]
        epochs = partition.epochs
        known = epochs_in_force(epochs.entries) if epochs is not None and not epochs.malformed else []
        last = None
        for link in chain(cache, known, self.log_start(partition) or 0) if known else ():
            last = link.last
        return RemotePart(last, len(cache.segments), sum(one.size for one in finished))
