"""The copies of a compacted partition compared record by record.

The last record of each key in a copy, and whether it is a tombstone, decide about missing records.  Brokers clean at
different times; batches differ and records are missing legally.  A missing offset is explained if the
copy's cleaner has passed it, and the copy has a later record of the key, or the key is deleted in the copy, too: the
record was a tombstone, or a later tombstone was removed with it, and the copy has no live record of the key.  A missing
record that was aborted or without a key is explained, too.  Two contents at one offset are a divergence.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from klog.commands.replicas.batch_comparison import ComparedCopy, Comparison, HeldRecord, LostRecordSink, OffsetRanges
from klog.commands.replicas.copy_reader import BatchIdentity, CopyReader
from klog.formats.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchFacts
from klog.kernel import OffsetMap, Window
from klog.partition.transactions.isolation import AbortedRange, aborted_in_log

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


class CompactedComparison(Comparison):
    """The fields of a Comparison; by node, *explained* counts the records that a copy lacks legally, *unexplained* has
    the others.

    *cleaner_offsets*: by node, the offset below which its cleaner has cleaned; None if it never did.
    """

    def __init__(
        self,
        copies: Sequence[ComparedCopy],
        committed: int,
        cleaner_offsets: Mapping[int, int | None],
        sink: LostRecordSink | None = None,
        is_deep: bool = False,
    ) -> None:
        super().__init__(copies, committed, sink, is_deep)
        self.explained = dict.fromkeys(self.facts, 0)
        self.unexplained = {node: OffsetRanges() for node in self.facts}
        self._cleaned = {node: offset or 0 for node, offset in cleaner_offsets.items()}
        self._copies = {copy.node: copy for copy in copies}
        self._secret = os.urandom(16)
        self._keys: dict[tuple[int, int], LatestKeys] = {}
        self._aborted: dict[int, dict[int, list[AbortedRange]]] = {}

    def _note_differences(self, head: BatchIdentity, keepers: Sequence[int], start: int) -> None:
        pass  # of batches: these differ lawfully

    def shared_end(self, one: int, other: int) -> int:
        """Return 0: batches differ lawfully anywhere."""
        return 0

    def _counts_whole(self, head: BatchIdentity, keepers: Sequence[int]) -> bool:
        return len(keepers) == len(self.copies) or head.data_records == 0

    def _settle(self, offset: int, held: Sequence[HeldRecord]) -> None:
        keepers = {node for one in held for node in one.keepers}
        for one in held:
            lacking = [node for node, start in self._due.items() if node not in one.keepers and start <= offset]
            lost = [node for node in lacking if node in keepers or not self._explains(node, offset, one)]
            for node in lost:
                if node not in keepers and offset < self._ends[node]:
                    self.unexplained[node].add(offset, offset, 1)
                for other in one.keepers if self._starts[node] <= offset else ():
                    self.first_differences.setdefault((min(node, other), max(node, other)), offset)
            for node in set(lacking) - set(lost):
                self.explained[node] += 1
            self._lose(offset, one, lost)

    def _explains(self, node: int, offset: int, held: HeldRecord) -> bool:
        """Whether the cleaner of *node* may have taken a record away."""
        key, cleaned = held.record.key, self._cleaned.get(node, 0)
        if offset >= cleaned:
            return False
        if key is None or self._is_aborted(offset, held):
            return True
        mine = self._latest(node, self._ends[node])
        if mine.latest(key) > offset:
            return True
        if mine.is_alive(key):
            return False
        return held.record.value is None or any(
            self._latest(holder, cleaned).is_deleted(key, offset) for holder in held.nodes
        )

    def _latest(self, node: int, end: int) -> LatestKeys:
        """Return the latest records of keys below offset *end* in the copy of *node*."""
        if (node, end) not in self._keys:
            copy = self._copies[node]
            aborted = [each for ranges in self._aborted_by_producer(node).values() for each in ranges]
            self._keys[node, end] = LatestKeys(copy, end, aborted, self._secret)
        return self._keys[node, end]

    def _is_aborted(self, offset: int, held: HeldRecord) -> bool:
        if held.producer_id < 0:
            return False
        return any(
            each.first_offset <= offset <= each.last_offset
            for node in held.nodes
            for each in self._aborted_by_producer(node).get(held.producer_id, ())
        )

    def _aborted_by_producer(self, node: int) -> dict[int, list[AbortedRange]]:
        if node not in self._aborted:
            found: dict[int, list[AbortedRange]] = {}
            partition = self._copies[node].partition
            for number in range(len(partition.segments) if partition is not None else 0):
                assert partition is not None
                for each in aborted_in_log(partition, number, behind=True):
                    ranges = found.setdefault(each.producer_id, [])
                    if each not in ranges[-1:]:
                        ranges.append(each)
            self._aborted[node] = found
        return self._aborted[node]
