"""Compares the indexes that a start takes as they are with the headers of the logs, if these are not too large."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final, NamedTuple

from klog.base.errors import UnreadableError, counted
from klog.cluster.metadata.metadata_loader import ClusterMetadata
from klog.commands.doctor.diagnosis import INDEX_WRONG, TXN_INDEX_WRONG
from klog.data_dir.partition import Partition
from klog.formats.internal_topics import TRANSACTION_STATE
from klog.formats.java_integers import LONG_MAX
from klog.partition.start.misleading_index import impossible_entry, misleading_index
from klog.partition.start.start_files import StartOutcome
from klog.partition.start.start_reasons import StartNote
from klog.partition.transactions.spans import wrong_txn_index

_MOST_BYTES: Final = 1 << 30
"""The most bytes of logs whose headers are read for it, in each log dir."""


class CheckedIndexes(NamedTuple):
    """The worst fault of a partition's indexes: its reason and words; None without one.

    *is_compared*: the offset and time indexes were compared with the logs, *are_txns_compared*: the transaction
    indexes.
    """

    wrong: tuple[str, str] | None = None
    is_compared: bool = True
    are_txns_compared: bool = True


class IndexCheck:
    """Compares the indexes of one log dir.

    *compare_all*: whatever the size of its logs.  *plain*: paths of partitions that are known to have no transactions.
    *is_clean*: it was stopped cleanly.
    """

    def __init__(
        self, cluster: ClusterMetadata | None, compare_all: bool, plain: Container[str] = (), *, is_clean: bool = False
    ) -> None:
        self._cluster, self._plain, self._is_clean = cluster, plain, is_clean
        self._left_bytes = LONG_MAX if compare_all else _MOST_BYTES

    def of(self, partition: Partition, outcome: StartOutcome) -> CheckedIndexes:
        """Compare those of *partition*; *outcome*: of its load.

        Logs that are too large are not read: entries of offset indexes that can belong to no batch are found, and
        transaction indexes count as compared if there never was a transaction.
        """
        start, end = outcome.log_start, outcome.log_end
        try:
            if partition.size > self._left_bytes:
                wrong = impossible_entry(partition, start, end, outcome.recovered)
                found = None if wrong is None else (INDEX_WRONG, wrong)
                return CheckedIndexes(found, False, not self._may_have_transactions(partition))
            self._left_bytes -= partition.size
            if (wrong := misleading_index(partition, start, outcome.recovered)) is not None:
                return CheckedIndexes((INDEX_WRONG, wrong))
            if partition.path not in self._plain:
                wrong = wrong_txn_index(partition, start, end, outcome.recovered, is_clean=self._is_clean)
        except UnreadableError:
            return CheckedIndexes(None, False, False)  # refused files are named at the end of the command
        return CheckedIndexes(None if wrong is None else (TXN_INDEX_WRONG, wrong))

    def _may_have_transactions(self, partition: Partition) -> bool:
        has_index = any(segment.txn_index is not None for segment in partition.segments)
        if partition.path in self._plain:
            return False
        return has_index or self._cluster is None or TRANSACTION_STATE in self._cluster.topic_ids


def not_compared_notes(checked: Sequence[CheckedIndexes]) -> list[StartNote]:
    """Note it where indexes were not compared with their logs."""
    counts = {
        "txn-index": ("transaction indexes", "", sum(not one.are_txns_compared for one in checked)),
        "index": ("offset and time indexes", ", only with their sizes", sum(not one.is_compared for one in checked)),
    }
    return [
        StartNote(
            f"{name}-not-compared",
            f"the {which} of {counted(count, 'partition')} were not compared with the logs{but}: --records reads all"
            " logs for it, and so does klog verify",
        )
        for name, (which, but, count) in counts.items()
        if count
    ]
