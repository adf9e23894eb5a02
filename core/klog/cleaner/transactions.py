"""Which transactions a cleaning has seen data of: what decides how long their markers and index entries stay.

The rules are those of Kafka 4.3.1: CleanedTransactionMetadata.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import NamedTuple

from klog.transactions import FlawedMarker, Marker

Entry = tuple[int, int, int, int, int]
"""The values of an `ABORTED_TXN`: version, producer id, first, last and last stable offset."""


class _Aborted:
    """An aborted transaction whose marker has not come yet, and whether data of it has."""

    __slots__ = ("entry", "has_data")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.has_data = False


class Fate(NamedTuple):
    """What becomes of a batch that belongs to a transaction: *discardable* as far as transactions go."""

    discardable: bool
    kept_entry: Entry | None = None


class CleanedTransactions:
    """Fed with entries of transaction indexes and then with batches, in offset order."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, Entry]] = []  # a heap by first offset, then in the order of arrival
        self._arrived = 0
        self._aborted: dict[int, _Aborted] = {}
        self._committed: set[int] = set()

    def add(self, entries: Iterable[Entry]) -> None:
        """Hear of aborted transactions; of the same one as often as may be."""
        for entry in entries:
            heapq.heappush(self._waiting, (entry[2], self._arrived, entry))
            self._arrived += 1

    def _begin(self, up_to: int) -> None:
        while self._waiting and self._waiting[0][0] <= up_to:
            entry = heapq.heappop(self._waiting)[2]
            if entry[1] not in self._aborted:
                self._aborted[entry[1]] = _Aborted(entry)

    def data(self, producer_id: int, last_offset: int) -> Fate:
        """Take a transactional data batch, empty ones as well."""
        self._begin(last_offset)
        aborted = self._aborted.get(producer_id)
        if aborted is not None:
            aborted.has_data = True
            return Fate(True)
        self._committed.add(producer_id)
        return Fate(False)

    def control(self, producer_id: int, last_offset: int, marker: Marker | FlawedMarker | None) -> Fate:
        """Take a control batch; *marker*: what it says, None when it is empty.

        The entry is one that stays in the transaction index: there was data of the transaction.
        """
        self._begin(last_offset)
        if marker is None:
            return Fate(True)
        if isinstance(marker, FlawedMarker):
            return Fate(False)
        if not marker.aborts:
            if producer_id not in self._committed:
                return Fate(True)
            self._committed.discard(producer_id)
            return Fate(False)
        aborted = self._aborted.pop(producer_id, None)
        if aborted is not None and aborted.has_data:
            return Fate(False, aborted.entry)
        return Fate(True)
