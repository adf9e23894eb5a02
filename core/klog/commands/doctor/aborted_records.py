"""The transaction indexes that a start keeps, compared with their logs: some show aborted records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from klog.base.errors import UnreadableError, counted
from klog.cluster.metadata.metadata_loader import ClusterMetadata
from klog.data_dir.partition import Partition
from klog.formats.internal_topics import TRANSACTION_STATE
from klog.formats.java_integers import LONG_MAX
from klog.partition.start.start_files import StartOutcome
from klog.partition.start.start_reasons import StartNote
from klog.partition.transactions.unindexed_aborts import wrong_txn_index

NOT_COMPARED: Final = "txn-index-not-compared"
"""The id of the note about logs that were not read for it."""
_MOST_BYTES: Final = 1 << 30
"""The most bytes of logs whose headers are read for it, in each log dir."""


class CheckedIndex(NamedTuple):
    """The faults of a partition's transaction indexes, in words, and whether they were compared."""

    wrong: str | None = None
    is_compared: bool = True


class TxnIndexCheck:
    """Compares the transaction indexes of one log dir, as long as its logs are not too large.

    *compare_all*: whatever their size.
    """

    def __init__(self, cluster: ClusterMetadata | None, compare_all: bool) -> None:
        self._cluster = cluster
        self._left_bytes = LONG_MAX if compare_all else _MOST_BYTES

    def of(self, partition: Partition, outcome: StartOutcome) -> CheckedIndex:
        """Compare those of *partition*; *outcome*: of its load.

        Logs that are too large count as compared if there never was a transaction.
        """
        if partition.size > self._left_bytes:
            return CheckedIndex(is_compared=not self._may_have_transactions(partition))
        self._left_bytes -= partition.size
        try:
            return CheckedIndex(wrong_txn_index(partition, outcome.log_start, outcome.log_end, outcome.recovered))
        except UnreadableError:
            return CheckedIndex(is_compared=False)  # refused files are named at the end of the command

    def _may_have_transactions(self, partition: Partition) -> bool:
        has_index = any(segment.txn_index is not None for segment in partition.segments)
        return has_index or self._cluster is None or TRANSACTION_STATE in self._cluster.topic_ids


def not_compared_notes(is_compared: Iterable[bool]) -> list[StartNote]:
    """Note it where transaction indexes were not compared with their logs; one flag for each partition."""
    count = sum(not one for one in is_compared)
    if not count:
        return []
    which = f"the transaction indexes of {counted(count, 'partition')} were not compared with the logs"
    return [StartNote(NOT_COMPARED, f"{which}: --records reads all logs for it, and so does klog verify")]
