"""Unfinished copies on the way between log dirs: the records that are lost because such a copy is damaged.

The broker continues such a copy from the log end that the start finds, and deletes the partition in the other log dir
once the copy is complete.  The part that recovery cuts is copied again, and damage below the log end stays.
"""

from __future__ import annotations

from typing import Final

from klog.base.errors import counted
from klog.cluster.metadata.metadata_loader import ClusterMetadata
from klog.commands.doctor.diagnosis import COPY_DAMAGED, TORN_TAIL, PartitionFate
from klog.commands.doctor.partition_loader import LoadedPartition
from klog.formats.java_integers import LONG_MAX
from klog.partition.start.record_tally import CopiedLog, OffsetSpan, RecordTally, served_log, tally_records

_MOST_BYTES: Final = 1 << 30
"""The most bytes of copies that are compared with their partitions."""
_NOT_COMPARED: Final = "its records were not compared with those of the partition: --records reads both for it"


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


class UnfinishedCopies:
    """Counts the records of copies, and those that are lost when a copy replaces its partition.

    *compare_all*: whatever the size of the copies.
    """

    def __init__(self, cluster: ClusterMetadata | None, compare_all: bool) -> None:
        self._cluster, self._compares_all = cluster, compare_all
        self._left_bytes = LONG_MAX if compare_all else _MOST_BYTES

    def counted(self, row: PartitionFate, copy: LoadedPartition, current: LoadedPartition) -> PartitionFate:
        """Return the *row* of *copy* with its records and losses; *current*: the served partition.

        Raises UnreadableError.
        """
        if self._compares_all or copy.is_cut or copy.torn is not None or not copy.size:
            found = tally_copy(copy, current, self._cluster)
            row = row._replace(records=found.records, lost_records=found.lost_records, lost_bytes=found.lost_bytes)
        if copy.torn is not None and not becomes_unreadable(copy):
            return row  # it does not replace the partition
        if copy.size > self._left_bytes:
            return row._replace(message="; ".join(filter(None, (row.message, _NOT_COMPARED))))
        self._left_bytes -= copy.size
        lost = self._lost(copy, current)
        if not lost.lost_records:
            return row
        some = counted(lost.lost_records, "intact record")
        why = f"it becomes the partition later, without {some} that the partition has below offset"
        return row._replace(
            reason=COPY_DAMAGED,
            message=f"{why} {copy.outcome.log_end}",
            lost_records=row.lost_records + lost.lost_records,
            lost_bytes=row.lost_bytes + lost.lost_bytes,
        )

    def _lost(self, copy: LoadedPartition, current: LoadedPartition) -> RecordTally:
        """Count the intact records of *current* below the log end of *copy* that no client gets from it."""
        start = current.outcome.log_start
        if self._cluster is not None and self._cluster.is_tiered(copy.name.topic):
            start = max(start, copy.outcome.log_start)  # earlier ones are in remote storage
        twin = CopiedLog(copy.read_again(), OffsetSpan(copy.outcome.log_start, copy.outcome.log_end), copy.pieces)
        return tally_records(current.read_again(), OffsetSpan(start), OffsetSpan(start), twin=twin)


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
