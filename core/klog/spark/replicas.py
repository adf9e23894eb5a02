"""The partitions to read, one replica of each unless all are requested."""

from __future__ import annotations

import warnings

from klog.data_dir.partition import Partition
from klog.data_dir.replicas import choose_identity, find_partitions
from klog.partition.start.replica_choice import choose_replicas
from klog.spark.source_options import SourceOptions


def chosen(options: SourceOptions) -> list[Partition]:
    """Return the partitions that *options* select; a warning names those that their ids exclude.

    Raises UsageError, UnreadableError; IdentityError for several different partitions of one name.
    """
    found, sentence = choose_identity(find_partitions(options.paths), options.identity)
    if sentence is not None:
        warnings.warn(f"klog: {sentence}", stacklevel=1)
    return choose_replicas(options.topics.choose(found), options.replicas, options.identity)
