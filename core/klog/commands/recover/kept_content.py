"""The indexes, leader epochs, aborted transactions and producers that follow from the kept batches of a segment."""

from __future__ import annotations

from klog.kernel import IndexBuilder, Window
from klog.log.txn_index import AbortedTxn
from klog.partition.transactions.markers import CompletedTxn
from klog.partition.transactions.producer_replay import apply_window
from klog.partition.transactions.producer_state import ProducerState

_NEVER_FULL = 2**31 - 1


class KeptContent:
    """The content that follows from the kept batches of one segment; *state*: of the producers, brought along.

    *aborted*: entries of the transaction index, by the offsets of their markers.  `end_offset`: behind the last batch.
    """

    def __init__(self, log: str, base: int, interval: int, state: ProducerState) -> None:
        self.builder: IndexBuilder | None = IndexBuilder(base, interval, _NEVER_FULL)
        self.aborted: dict[int, AbortedTxn] = {}
        self.epochs: list[tuple[int, int]] = []
        self.end_offset = base
        self._state, self._log, self._base = state, log, base

    def take(self, window: Window, first: int, end: int) -> None:
        """Take batches *first* to *end* of a window, which are intact."""
        assert self.builder is not None
        self.builder.walk(window, first, end)
        for event in apply_window(self._state, window, self._log, first, end):
            if isinstance(event, CompletedTxn) and event.index_entry is not None:
                self.aborted[event.last_offset] = event.index_entry

    def finish(self) -> None:
        """End the segment."""
        assert self.builder is not None
        self.builder.finish()
        self.epochs = self.builder.epochs
        self.end_offset = max(self.builder.last_offset + 1, self._base)

    def set_known(self, epochs: list[tuple[int, int]], end_offset: int) -> None:
        """Set the results for a segment that need not be read; its indexes are known otherwise."""
        self.builder, self.epochs, self.end_offset = None, epochs, end_offset
