"""Unfinished copies on the way between log dirs: the records that are lost because of a tail in such a copy.

The broker continues such a copy from the log end that the start finds, and deletes the partition in the other log dir
once the copy is complete.  A tail that recovery cuts is copied again.
"""

from __future__ import annotations

from klog.cluster.metadata.metadata_loader import ClusterMetadata
from klog.commands.doctor.diagnosis import TORN_TAIL
from klog.commands.doctor.partition_loader import LoadedPartition
from klog.partition.start.record_tally import OffsetSpan, RecordTally, served_log, tally_records


def becomes_unreadable(copy: LoadedPartition) -> bool:
    """Whether the broker completes *copy* behind a tail that clients cannot read, or that hides records from them.

    If an index entry leads it to a log end before intact batches, it does not: the new entries would go backwards, and
    the appends fail.  Kafka: OffsetIndex.append, ReplicaAlterLogDirsThread.
    """
    if copy.torn is None or copy.unserved is None:
        return copy.torn is not None
    by_headers = copy.read_again().log_end
    return by_headers is not None and by_headers.offset == copy.outcome.log_end


def later_fault(copy: LoadedPartition, is_complete: bool) -> tuple[str, str] | None:
    """Return the fault that the partition has once *copy* is the partition, a reason and words; None without one."""
    if copy.indexes.wrong is None and copy.torn is not None and (is_complete or becomes_unreadable(copy)):
        return TORN_TAIL, copy.torn
    return copy.indexes.wrong


def tally_copy(copy: LoadedPartition, current: LoadedPartition, cluster: ClusterMetadata | None) -> RecordTally:
    """Count the records of *copy*, and those that are lost because of its tail; *current*: the served partition.

    Those behind a tail that stays in the middle cannot be read any more; others are lost if *current* lacks them.
    Raises UnreadableError.
    """
    log, partition = copy.read_again(), current.read_again()
    own = OffsetSpan(copy.outcome.log_start, copy.outcome.log_end)
    served = OffsetSpan(current.outcome.log_start, current.outcome.log_end)
    found = tally_records(log, own, own, copy.pieces, copy.unserved)
    if becomes_unreadable(copy):
        lost = (
            found
            if copy.unserved is not None
            else tally_records(partition, OffsetSpan(own.end), OffsetSpan(served.end))
        )
    else:
        lost = tally_records(log, OffsetSpan(own.end), served, twin=served_log(partition, cluster))
    return RecordTally(found.records, lost.lost_records, lost.lost_bytes)
