"""The offsets that a partition has in remote storage alone, for a reader of its local log.

below_local_log(Partition("house/broker-1/data/plain-0"))    # BelowLocalLog(first=0, last=148)
"""

from __future__ import annotations

from typing import NamedTuple

from klog.base.errors import KlogError
from klog.cluster.metadata.topic_config import TopicConfig
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.formats.names import PartitionState


class BelowLocalLog(NamedTuple):
    """The offsets *first* to *last* of a log, both inclusive, which the local log does not have."""

    first: int
    last: int

    def __str__(self) -> str:
        if self.first == self.last:
            return f"offset {self.first} is in remote storage: --remote TIER"
        return f"offsets {self.first} to {self.last} are in remote storage: --remote TIER"


def below_local_log(partition: Partition, offset: int) -> BelowLocalLog | None:
    """Return the offsets below the local log, if *offset* is below it; None if the partition is not tiered."""
    if partition.state is not PartitionState.CURRENT or not partition.segments:
        return None
    first, local_start = partition.tiered_log_start(), partition.segments[0].base_offset
    if not 0 <= offset < local_start or first >= local_start or not _is_tiered(partition):
        return None
    return BelowLocalLog(first, local_start - 1)


def _is_tiered(partition: Partition) -> bool:
    """Whether the topic is, by the metadata log in the log dir."""
    try:
        settings = TopicConfig(LogDir(partition.log_dir))
        return settings.value(partition.topic, "remote.storage.enable").flag
    except KlogError:  # a partition directory that is not in a log dir
        return False
