"""Whether retention explains that a leader's log starts where it does: then it has deleted what the copy has below."""

from __future__ import annotations

import time

from klog.base.errors import UnreadableError
from klog.commands.follow.copied_partition import CopiedPartition
from klog.commands.follow.partition_plans import needed_from
from klog.data_dir.partition import Partition
from klog.partition.retention.first_pass import due_segments
from klog.partition.retention.policy import RetentionLimits
from klog.partition.retention.stored_segments import StoredSegment


def retention_explains(copy: CopiedPartition, limits: RetentionLimits | None) -> bool:
    """Whether a broker with *limits* would delete, of the copy's own segments, all that are below its log start.

    A copy's segments end elsewhere than the leader's.  But those below the log start have only records that the leader
    has deleted, and the others have at least as many bytes as the leader has left.  None: the limits are not known.
    """
    partition = Partition(copy.path)
    kept = needed_from(partition, copy.log_start)
    below = sum(files.base_offset < kept for files in partition.segments)
    if limits is None or not below:
        return not below
    # The last one has no whole time index while it is written.
    last = partition.segments[-1]
    segments = [StoredSegment(partition, files, files.size, files is last) for files in partition.segments]
    try:
        return below <= len(due_segments(segments, limits, 0, time.time_ns() // 1_000_000))
    except UnreadableError:
        return False
