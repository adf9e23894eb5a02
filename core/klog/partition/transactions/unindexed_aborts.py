"""Compares transaction indexes with the headers of their logs: which aborted records would a consumer be given.

A broker reads the aborted transactions for a read_committed consumer only from the `.txnindex` files.  An index that
lacks an entry, or has a wrong one, shows aborted records or hides committed ones.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator

from klog.base.read_only import ReadableLog, ReadOnlyFile
from klog.data_dir.partition import Partition, SegmentFiles
from klog.formats.batch import CONTROL_BIT, BatchFacts
from klog.formats.damage import Damage
from klog.kernel import Window
from klog.log.header_walk import read_window, walk_windows
from klog.log.index import AbortedTxn, read_txn_index
from klog.partition.transactions.markers import Marker, read_marker

_MOST_MARKER_BYTES = 64 << 10


def wrong_txn_index(partition: Partition, start: int, end: int, rebuilt: Collection[int] = ()) -> str | None:
    """Return, in words, the first transaction of offsets from *start* below *end* that an index is wrong about.

    None if all are right.  Only headers and markers are read, without checksums; behind a damaged header the rest of a
    segment is unknown, and counts as right.  Entries for data that is no longer there are right.  *rebuilt*: base
    offsets of segments whose index counts as right.  Raises UnreadableError.
    """
    walk = _Walk(partition, start, end)
    for segment in partition.segments:
        wrong = walk.compare(segment)
        if wrong is not None and segment.base_offset not in rebuilt:
            return wrong
    return None


class _Walk:
    """The transactions along a log.

    *_open*: the first offset of data of each producer since its last marker.  *_commits*: the offset of the last COMMIT
    of each producer.  *_ends*: where a broker's search ends at an entry: its last stable offset, by the entry in words.
    A follower, which appends many batches at once, writes that of the next transaction, which ends no search too early.
    """

    def __init__(self, partition: Partition, start: int, end: int) -> None:
        self._partition, self._start, self._end = partition, start, end
        self._open: dict[int, int] = {}
        self._commits: dict[int, int] = {}
        self._ends: dict[str, int] = {}
        self._window = Window()

    def compare(self, segment: SegmentFiles) -> str | None:
        """Pass over *segment*, and return the first thing that its index is wrong about."""
        name = segment.txn_index
        entries = read_txn_index(self._partition.path, name)[0] if name is not None else []
        known = {(one.producer_id, one.last_offset): one for one in entries}
        wrong = [found for one in self._aborted(segment) if (found := self._missed(name, *one, known))]
        wrong += [
            self._hides(name, one)
            for one in known.values()
            if one.first_offset <= self._commits.get(one.producer_id, -1) <= one.last_offset
        ]
        return wrong[0] if wrong else None

    def _missed(
        self, name: str | None, producer: int, first: int, marker: int, known: dict[tuple[int, int], AbortedTxn]
    ) -> str | None:
        entry = known.pop((producer, marker), None)
        aborted = f"producer {producer} aborted offsets {first} to {marker}"
        if entry is None:
            place = "there is no .txnindex" if name is None else f"{name} has no entry for it"
            return f"{aborted}, and {place}"
        if entry.first_offset > first:
            return f"{aborted}, and the entry in {name} begins at {entry.first_offset}"
        # A broker looks for no more entries behind it.  Kafka: TransactionIndex.collectAbortedTxns.
        hiding = next((found for found, end in self._ends.items() if first < end), None)
        if hiding is not None:
            return hiding
        if entry.last_stable_offset > marker + 1:
            found = f"{aborted}, and the entry in {name} has the last stable offset {entry.last_stable_offset}"
            if entry.last_stable_offset > self._end:
                return found
            self._ends = {one: end for one, end in self._ends.items() if end > marker} | {
                found: entry.last_stable_offset
            }
        if entry.first_offset <= self._commits.get(producer, -1):
            return self._hides(name, entry)
        return None

    def _hides(self, name: str | None, entry: AbortedTxn) -> str:
        span = f"{entry.first_offset} to {entry.last_offset}"
        return f"{name} says that producer {entry.producer_id} aborted offsets {span}, where it committed records"

    def _aborted(self, segment: SegmentFiles) -> Iterator[tuple[int, int, int]]:
        """Yield producer, first offset and marker of the transactions with data that end aborted in *segment*."""
        with ReadOnlyFile(os.path.join(self._partition.path, segment.log)) as log:
            for window in walk_windows(log):
                if isinstance(window, Damage):
                    self._open.clear()
                    return
                for i in window.transactional(0, window.count):
                    batch = window.batch(i)
                    if not batch.attributes & CONTROL_BIT:
                        if batch.records_count and batch.last_offset >= self._start:
                            self._open.setdefault(batch.producer_id, max(batch.base_offset, self._start))
                        continue
                    if (aborts := self._aborts(log, batch)) is None:
                        continue
                    first = self._open.pop(batch.producer_id, None)
                    if not aborts:
                        if first is not None:
                            self._commits[batch.producer_id] = batch.base_offset
                    elif first is not None and batch.base_offset < self._end:
                        yield batch.producer_id, first, batch.base_offset

    def _aborts(self, log: ReadableLog, batch: BatchFacts) -> bool | None:
        """Whether a marker aborts; None for a batch that is no marker."""
        if batch.size > _MOST_MARKER_BYTES:
            return None
        if read_window(log, self._window, batch.position, batch.size) < batch.size:
            return None
        self._window.scan(0, False, 0)
        marker = read_marker(self._window, 0) if self._window.count else None
        return marker.aborts if isinstance(marker, Marker) else None
