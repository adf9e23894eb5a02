"""The upper bounds of a broker's searches for aborted transactions.

A search passes over the entries of the transaction indexes, and ends at the first one whose last stable offset is not
below its upper bound.  Kafka: TransactionIndex.collectAbortedTxns, LocalLog.addAbortedTransactions.
"""

from __future__ import annotations

from bisect import bisect_right

from klog.base.read_only import ReadOnlyFile
from klog.data_dir.partition import Partition
from klog.log.header_walk import header_at
from klog.log.index import offset_entries


def search_may_end(partition: Partition, first: int, stable: int, log_end: int) -> bool:
    """Return whether a search ends at an entry with the last stable offset *stable*, although the fetch needs more.

    The fetch contains the batch that begins at offset *first*, and other batches, or none.  Its upper bound is the next
    entry in the `.index` of the segment, without one the next segment or the log end offset.  Kafka:
    LogSegment.fetchUpperBoundOffset.  Raises UnreadableError.
    """
    segments = partition.segments
    number = bisect_right([one.base_offset for one in segments], first)
    behind = segments[number].base_offset if number < len(segments) else log_end
    segment = segments[max(number - 1, 0)]
    if behind <= stable:
        return True
    if segment.offset_index is None:
        return False
    with (
        ReadOnlyFile(partition.file(segment.log)) as log,
        offset_entries(partition.file(segment.offset_index), log.size) as entries,
    ):
        for slot in range(entries.search(first - segment.base_offset).slot + 1, entries.count):
            relative, position = entries[slot]
            if segment.base_offset + relative > stable:
                return False
            header = header_at(log, position)
            if header is None or header.base_offset > first:  # otherwise it is that batch, which such a fetch lacks
                return True
    return False
