"""The segments that a round cleans, and the transactions that still have data in them.

From the second round on they are those written by the round before.  The transactions decide how long markers and index
entries are retained, by the rules of Kafka 4.3.1: CleanedTransactionMetadata.
"""

from __future__ import annotations

import heapq
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from klog.base.errors import UnreadableError
from klog.change.partition_plan.contents import StoredContent, txn_entries
from klog.data_dir.partition import Partition, SegmentFiles
from klog.formats.java_integers import LONG_MAX
from klog.kernel import OpenTransactions, Window
from klog.log.index import AbortedTxn
from klog.partition.transactions.markers import FlawedMarker, Marker

REFUSED: Final = "nothing is compacted"
"""The consequence of damage, in messages."""


class SourceSegment(NamedTuple):
    """A segment to clean.

    *path*: of its log.  *size*: the log's, in bytes.  *modified_ns*: of the log.  *index_bytes*, *time_index_bytes*: of
    its indexes.  *aborted*: the entries of its transaction index.  *originals*: base offsets of the segments on disk
    that it combines.
    """

    base: int
    path: str
    size: int
    modified_ns: int
    index_bytes: int
    time_index_bytes: int
    aborted: tuple[AbortedTxn, ...]
    originals: tuple[int, ...]

    @property
    def modified_ms(self) -> int:
        """When the log was last changed, ms since the epoch, as a broker takes it."""
        return self.modified_ns // 1_000_000


def sources(partition: Partition) -> list[SourceSegment]:
    """Return all segments: the transaction indexes of those that are not cleaned count too.  Raises UnreadableError."""
    return [_source(partition, files) for files in partition.segments]


def _source(partition: Partition, files: SegmentFiles) -> SourceSegment:
    path = partition.file(files.log)
    try:
        status = os.stat(path)
        aborted: tuple[AbortedTxn, ...] = ()
        if files.txn_index is not None:
            size = os.path.getsize(partition.file(files.txn_index))
            aborted = tuple(txn_entries(partition.path, StoredContent(files.txn_index, size)))
        return SourceSegment(
            files.base_offset,
            path,
            status.st_size,
            status.st_mtime_ns,
            _size(partition, files.offset_index),
            _size(partition, files.time_index),
            aborted,
            (files.base_offset,),
        )
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}") from error


def _size(partition: Partition, name: str | None) -> int:
    return 0 if name is None else os.path.getsize(partition.file(name))


def between(segments: Sequence[SourceSegment], start: int, end: int) -> list[SourceSegment]:
    """Return the segments from the one with *start* on, as far as they begin below *end*.

    Kafka: LogSegments.values.
    """
    first = _holding(segments, start)
    return list(segments[first : max(bisect_left(segments, end, key=_base), first)])


def _holding(segments: Sequence[SourceSegment], offset: int) -> int:
    return max(bisect_right(segments, offset, key=_base) - 1, 0)


def _base(segment: SourceSegment) -> int:
    return segment.base


def end_of(segments: Sequence[SourceSegment], base: int, otherwise: int) -> int:
    """Return the base offset of the segment after *base*; *otherwise* behind the last one."""
    at = bisect_right(segments, base, key=_base)
    return segments[at].base if at < len(segments) else otherwise


def aborted_between(segments: Sequence[SourceSegment], log_start: int, start: int, end: int) -> list[AbortedTxn]:
    """Return the aborted transactions that may reach into [*start*, *end*).

    Kafka: LocalLog.collectAbortedTransactions.
    """
    found = []
    for at in range(_holding(segments, start), len(segments)):
        for entry in segments[at].aborted:
            if entry.last_offset >= log_start and entry.first_offset < end:
                found.append(entry)
            if entry.last_stable_offset >= end:
                return found
    return found


def grouped(
    segments: Sequence[SourceSegment], segment_bytes: int, index_bytes: int, first_uncleanable: int
) -> list[list[SourceSegment]]:
    """Return *segments*, ascending, in groups that become one segment each.

    The sizes are those before: the output is not larger.  Kafka: Cleaner.groupSegmentsBySize.
    """
    groups: list[list[SourceSegment]] = []
    sizes = (0, 0, 0)
    for at, segment in enumerate(segments):
        upper = segments[at + 1].base if at + 1 < len(segments) else first_uncleanable
        own = (segment.size, segment.index_bytes, segment.time_index_bytes)
        total = tuple(one + other for one, other in zip(sizes, own, strict=True))
        fits = total[0] <= segment_bytes and max(total[1:]) <= index_bytes
        if groups and fits and (segment.size == 0 or upper - 1 - groups[-1][0].base <= 2**31 - 1):
            groups[-1].append(segment)
            sizes = (total[0], total[1], total[2])
        else:
            groups.append([segment])
            sizes = own
    return groups


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
