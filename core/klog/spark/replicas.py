"""The partitions to read, one replica of each unless all are requested."""

from __future__ import annotations

from klog.data_dir.partition import Partition
from klog.data_dir.replicas import choose_replicas, find_partitions
from klog.spark.options import SourceOptions


def chosen(options: SourceOptions) -> list[Partition]:
    """Return the partitions that *options* ask for.  Raises UsageError, UnreadableError."""
    return choose_replicas(options.topics.choose(find_partitions(options.paths)), options.replicas)
