"""What a log may have of a producer next: its transactions begin with data and end with a marker."""

from __future__ import annotations

from klog.partition.transactions.producer_state import ProducerState


class ProducerRules:
    """The open transactions of one partition, by producer id, each with its producer epoch."""

    def __init__(self, state: ProducerState) -> None:
        self._open = {
            producer_id: entry.producer_epoch
            for producer_id, entry in state.producers.items()
            if entry.current_txn_first_offset != -1
        }

    def fault(
        self, producer_id: int, epoch: int, *, is_transactional: bool, is_marker: bool, has_gap: bool = False
    ) -> str | None:
        """Take in a batch; return why a broker could not, in words, and then it is not taken.

        *has_gap*: offsets are missing before it, as after a compaction, which may leave no more than the marker.
        """
        begun = self._open.get(producer_id)
        if is_marker:
            if begun is None and has_gap:
                return None
            if begun is None:
                return f"a marker of producer {producer_id}, which has no open transaction"
            if epoch < begun:
                return f"a marker of producer epoch {epoch}, but the transaction is of epoch {begun}"
            del self._open[producer_id]
        elif is_transactional:
            self._open[producer_id] = epoch
        elif begun is not None:
            return f"not transactional, but producer {producer_id} has an open transaction"
        return None
