"""The transactions that still have data in a log: this decides how long markers and index entries are retained.

The rules are those of Kafka 4.3.1: CleanedTransactionMetadata.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import NamedTuple

from klog.formats.java_integers import LONG_MAX
from klog.kernel import OpenTransactions, Window
from klog.log.index import AbortedTxn
from klog.partition.transactions.markers import FlawedMarker, Marker


class MarkerFate(NamedTuple):
    """The decision about a batch of a transaction: *discardable* as far as transactions are concerned."""

    discardable: bool
    kept_entry: AbortedTxn | None = None


class CleanedTransactions:
    """Fed with entries of transaction indexes and then with batches, in offset order.

    `take` deals with most batches; `data` and `control` are for those that it leaves.  *special*: producers whose
    markers it always leaves.
    """

    def __init__(self, special: Iterable[int] = ()) -> None:
        self._waiting: list[tuple[int, int, AbortedTxn]] = []  # a heap by first offset, then in the order of arrival
        self._arrived = 0
        self._aborted: dict[int, AbortedTxn] = {}  # without a marker so far
        self._open = OpenTransactions(self._aborted, special)

    def add(self, entries: Iterable[AbortedTxn]) -> None:
        """Add aborted transactions; the same one may be added repeatedly."""
        for entry in entries:
            heapq.heappush(self._waiting, (entry.first_offset, self._arrived, entry))
            self._arrived += 1
        self._tell_next()

    def _tell_next(self) -> None:
        self._open.begins = self._waiting[0][0] if self._waiting else LONG_MAX

    def take(self, window: Window, first: int, decisions: bytearray | None = None, now_ms: int = -1) -> int:
        """Take batches of *window* from *first* on; return the first for `data` or `control`, or the window's count.

        Skips aborted data, and markers as far as nothing needs them.  `OpenTransactions.take` decides about the rest.
        """
        return self._open.take(window, first, decisions, now_ms)

    def _begin(self, up_to: int) -> None:
        while self._waiting and self._waiting[0][0] <= up_to:
            entry = heapq.heappop(self._waiting)[2]
            self._aborted.setdefault(entry.producer_id, entry)
        self._tell_next()

    def data(self, producer_id: int, last_offset: int) -> MarkerFate:
        """Take a transactional data batch, empty ones as well."""
        self._begin(last_offset)
        if producer_id in self._aborted:
            self._open.with_data.add(producer_id)
            return MarkerFate(True)
        self._open.committed.add(producer_id)
        return MarkerFate(False)

    def control(self, producer_id: int, last_offset: int, marker: Marker | FlawedMarker | None) -> MarkerFate:
        """Process a control batch; *marker*: its content, None when it is empty.

        The result refers to an entry that stays in the transaction index: there was data of the transaction.
        """
        self._begin(last_offset)
        if marker is None:
            return MarkerFate(True)
        if isinstance(marker, FlawedMarker):
            return MarkerFate(False)
        if not marker.aborts:
            if producer_id not in self._open.committed:
                return MarkerFate(True)
            self._open.committed.discard(producer_id)
            return MarkerFate(False)
        entry = self._aborted.pop(producer_id, None)
        if producer_id in self._open.with_data:
            self._open.with_data.discard(producer_id)
            return MarkerFate(False, entry)
        return MarkerFate(True)
