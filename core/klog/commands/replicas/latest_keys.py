"""The last record of each key in a copy, and whether it is a tombstone: they decide about missing records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from klog.commands.replicas.comparison import ComparedCopy
from klog.commands.replicas.copy_reader import CopyReader
from klog.formats.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchFacts
from klog.kernel import OffsetMap, Window
from klog.partition.transactions.isolation import AbortedRange

_MAP_BYTES: Final = 4 << 30
"""Allocated as keys are added: 24 to 96 bytes for each, as a broker's cleaner needs."""


class LatestKeys:
    """The last records of keys among those that *copy* keeps, up to *end*.  Aborted records, *aborted*, count as
    absent, as for the cleaner.

    *secret*: the key of the hash; 16 bytes.
    """

    def __init__(self, copy: ComparedCopy, end: int, aborted: Iterable[AbortedRange], secret: bytes) -> None:
        self._latest, self._tombstones = OffsetMap(_MAP_BYTES, secret), OffsetMap(_MAP_BYTES, secret)
        self._log_start, self._end = copy.log_start, end
        self._aborted: dict[int, list[AbortedRange]] = {}
        for each in aborted:
            self._aborted.setdefault(each.producer_id, []).append(each)
        if copy.partition is not None and copy.partition.segments:
            reader = CopyReader(copy.partition, copy.log_start, kept=copy.kept)
            for window in reader.record_windows(self._leave_out):
                self._take(window)

    def latest(self, key: bytes) -> int:
        """Return the offset of the last record of *key*; -1 for none."""
        return self._latest.get(key)

    def is_alive(self, key: bytes) -> bool:
        """Whether *key* has a record, and the last one is no tombstone."""
        latest = self._latest.get(key)
        return latest >= 0 and self._tombstones.get(key) != latest

    def is_deleted(self, key: bytes, after: int) -> bool:
        """Whether the last record of *key* is a tombstone, and behind offset *after*."""
        latest = self._latest.get(key)
        return latest > after and self._tombstones.get(key) == latest

    def _leave_out(self, window: Window, first: int, end: int) -> None:
        """Skip markers and aborted data."""
        for row in window.produced(first, end):
            batch = window.batch(row)
            if batch.attributes & CONTROL_BIT or (batch.attributes & TRANSACTIONAL_BIT and self._is_aborted(batch)):
                window.skip(row)

    def _is_aborted(self, batch: BatchFacts) -> bool:
        ranges = self._aborted.get(batch.producer_id, ())
        return any(each.first_offset <= batch.base_offset <= each.last_offset for each in ranges)

    def _take(self, window: Window) -> None:
        is_whole = window.batch(window.count - 1).last_offset < self._end
        if is_whole:
            self._latest.fill(window, 0, self._log_start)
        for row in range(window.records):
            offset, _, key, value, *_ = window.record(row, False)
            if key is None or not self._log_start <= offset < self._end:
                continue
            if not is_whole:
                self._latest.put(key, offset)
            if value is None:
                self._tombstones.put(key, offset)
