"""The producers of one segment in remote storage: during the pass over its log, and in its snapshot."""

from __future__ import annotations

from collections.abc import Mapping

from klog.formats.batch import CONTROL_BIT
from klog.formats.producer_snapshot import Snapshot
from klog.kernel import Window
from klog.partition.transactions.producer_replay import ProducerReplay


class SegmentProducers(ProducerReplay):
    """Follows transactions through a segment up to *end_offset*, inclusive, and keeps its last data batches.

    `last`: by producer the last offset of the last data batch among those that are read together with the end; none if
    the end is missing.  `is_transactional`: it has batches of transactions.  *only_end*: transactions are not followed.
    """

    def __init__(
        self, start: int, end_offset: int, known: list[tuple[str, int, Snapshot]], *, only_end: bool = False
    ) -> None:
        super().__init__(start, known, deep=False)
        self._end_offset, self._only_end = end_offset, only_end
        self.last: dict[int, int] = {}
        self.is_transactional = False

    def take(self, log: str, window: Window, first: int, end: int) -> None:
        """Apply intact batches of a window."""
        if not self._only_end:
            super().take(log, window, first, end)
        if first == end:
            return
        self.is_transactional = self.is_transactional or bool(window.transactional(first, end))
        if window.batch(end - 1).last_offset != self._end_offset:
            return  # compaction removed the last batches, or the log is another segment's
        for row in window.produced(first, end, most=1):
            batch = window.batch(row)
            if not batch.attributes & CONTROL_BIT:
                self.last[batch.producer_id] = batch.last_offset


def snapshot_contradiction(snapshot: Snapshot, end_offset: int, last: Mapping[int, int]) -> str | None:
    """Return the first contradiction between a segment and the snapshot behind its *end_offset*, inclusive.

    *last*: see `SegmentProducers`.  A producer may be missing, because a broker forgets idle ones, and have no last
    offset, because a marker with a higher epoch removes it.  Kafka: ProducerStateManager, ProducerStateEntry.
    """
    for one in snapshot.producers:
        if one.last_offset > end_offset:
            return f"producer {one.producer_id} has offset {one.last_offset}, beyond the end of the segment"
        if 0 <= one.last_offset < last.get(one.producer_id, -1):
            return f"producer {one.producer_id} has offset {one.last_offset}, the log has {last[one.producer_id]}"
    return None
