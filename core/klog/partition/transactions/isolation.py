"""The records that a consumer can see: everything from the log start offset; with read_committed, no aborted and no
open transactions.

It is decided before the log is read: the last stable offset is computed from the newest producer snapshot and the log
behind it, aborted transactions are read from the `.txnindex` files.  A part of a log can therefore be read without the
rest, and all commands that dump, fetch or split a partition see the same records.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from klog.base.errors import KlogError, UnreadableError
from klog.base.read_only import ReadOnlyFile
from klog.data_dir.partition import Partition, SegmentFiles, segments_between
from klog.formats.batch import Attributes, BatchFacts
from klog.formats.damage import Damage, DamageKind, Location
from klog.formats.index import ABORTED_TXN
from klog.formats.java_integers import LONG_MAX, LONG_MIN
from klog.kernel import Window
from klog.log.header_walk import walk_headers
from klog.log.index import read_txn_index
from klog.log.records import RecordFilter
from klog.log.segment import Segment
from klog.partition.transactions.markers import CompletedTxn, Marker, read_marker
from klog.partition.transactions.producer_replay import nearest_state, replay
from klog.partition.transactions.producer_state import ProducerState

Isolation = Literal["read_uncommitted", "read_committed"]


class AbortedRange(NamedTuple):
    """An aborted transaction: the offsets of its first known data and of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


class VisibleRange(NamedTuple):
    """Offsets from … up to, not including, to; without those of *aborted*, which is None if all data is seen."""

    from_offset: int = LONG_MIN
    to_offset: int = LONG_MAX
    aborted: tuple[AbortedRange, ...] | None = None

    def within(self, wanted: RecordFilter) -> RecordFilter:
        """Return *wanted*, restricted to the visible records."""
        return wanted._replace(
            from_offset=max(wanted.from_offset, self.from_offset), to_offset=min(wanted.to_offset, self.to_offset)
        )


class IsolationState:
    """The known facts about a log's transactions: of a growing log, only the new part is read the next time."""

    def __init__(self) -> None:
        self._state: ProducerState | None = None
        self._began = 0  # the offset of the snapshot from which the state was loaded
        self._aborted: set[AbortedRange] = set()

    @property
    def open_txns(self) -> tuple[tuple[int, int], ...]:
        """The transactions that are open at the end of the known part: (first offset, producer id)."""
        return () if self._state is None else tuple(self._state.ongoing.all())

    def catch_up(self, partition: Partition) -> tuple[int, set[AbortedRange]]:
        """Return the last stable offset, and the ranges aborted behind the newest snapshot."""
        try:
            end = partition.log_end
            offset, is_whole = (end.offset, end.damage is None) if end else (0, True)
        except UnreadableError:
            offset, is_whole = partition.segments[-1].base_offset, False
        state = nearest_state(partition, offset)
        if self._state is not None and state.end == self._began and self._state.end <= offset:
            state = self._state
        else:  # the first time, after a roll, or when the log was cut back
            self._began, self._aborted = state.end, set()
        # After a clean stop the newest snapshot is of the log's end, and no log is read for it.
        for i in range(len(partition.segments)) if state.end != offset or not is_whole else ():
            if not _is_below(partition, i, state.end):
                self._aborted.update(_replayed(state, partition.path, partition.segments[i : i + 1]))
        self._state = state
        return state.last_stable_offset, set(self._aborted)


def visible_range(
    partition: Partition, isolation: Isolation = "read_uncommitted", learnt: IsolationState | None = None
) -> VisibleRange:
    """Return the records of *partition* that a consumer sees, once a broker runs on it.  *learnt*: from earlier calls,
    updated.

    The last stable offset is computed from the newest producer snapshot and the log behind it, aborted transactions are
    read from the `.txnindex` files; from the log instead of one that cannot be right.  Neither content nor unreadable
    files raise an error. Kafka: UnifiedLog.read, LocalLog.addAbortedTransactions.
    """
    start = partition.log_start_offset
    # A log that begins with its first segment hides nothing, not even an offset below that one's: it is an odd one.
    if start is not None and partition.segments and start <= partition.segments[0].base_offset:
        start = None
    seen = VisibleRange(LONG_MIN if start is None else start)
    if isolation == "read_uncommitted":
        return seen
    stable, aborted = (learnt or IsolationState()).catch_up(partition)
    for i, segment in enumerate(partition.segments):
        if segment.txn_index is not None:
            indexed = _in_index(partition, segment)
            aborted.update(aborted_in_log(partition, i) if indexed is None else indexed)
    return seen._replace(to_offset=stable, aborted=tuple(sorted(aborted, key=lambda txn: txn.last_offset)))


def committed_in_file(path: str) -> VisibleRange:
    """Return the records that read_committed shows of a log that is no segment of a partition: only its own markers
    count.

    Raises nothing for content.
    """
    base_offset = Segment(path).base_offset or 0
    alone = SegmentFiles(base_offset, 0, os.path.basename(path), None, None, None)
    state = ProducerState(base_offset)
    aborted = tuple(_replayed(state, os.path.dirname(path), (alone,)))
    return VisibleRange(to_offset=state.last_stable_offset, aborted=aborted)


def _is_below(partition: Partition, i: int, offset: int) -> bool:
    following = partition.segments[i + 1 : i + 2]
    return bool(following) and following[0].base_offset <= offset


def _replayed(state: ProducerState, directory: str, segments: Sequence[SegmentFiles]) -> Iterator[AbortedRange]:
    """Apply segments to *state*, as far as they can be read, and yield the transactions that are aborted in them."""
    try:
        for event in replay(state, directory, segments):
            if isinstance(event, CompletedTxn) and event.aborted:
                yield AbortedRange(event.producer_id, event.first_offset, event.last_offset)
    except UnreadableError:
        return  # the reader of the log reports it


def _in_index(partition: Partition, segment: SegmentFiles) -> list[AbortedRange] | None:
    """Return the entries of a transaction index, None if it cannot be right."""
    try:
        entries, size = read_txn_index(partition.path, segment.txn_index or "")
    except KlogError:
        return None
    last = segment.base_offset - 1
    for entry in entries:
        if entry.version != 0 or entry.last_offset <= last or not 0 <= entry.first_offset <= entry.last_offset:
            return None
        last = entry.last_offset
    if size != len(entries) * ABORTED_TXN.size:
        return None
    return [AbortedRange(entry.producer_id, entry.first_offset, entry.last_offset) for entry in entries]


def aborted_in_log(partition: Partition, number: int, *, behind: bool = False) -> Iterator[AbortedRange]:
    """Yield the aborted ranges of segment *number*, and before it from the nearest snapshot on, by the log alone.

    *behind*: also the transactions with data in the segment that are aborted in a later one.
    """
    segments = partition.segments
    state = nearest_state(partition, segments[number].base_offset)
    for i in range(len(segments)):
        if _is_below(partition, i, state.end):
            continue
        if i > number:
            first = state.ongoing.first_offset()
            if not behind or first is None or first >= segments[number + 1].base_offset:
                return
        yield from _replayed(state, partition.path, segments[i : i + 1])


def indexed_abort(directory: str, segments: Sequence[SegmentFiles], producer_id: int, offset: int) -> int | None:
    """Return the offset of the ABORT marker of the transaction that data at *offset*, in the first segment, belongs to.

    It reads the transaction indexes of *segments*, which follow each other in *directory*; None if none contains it.
    """
    for segment in segments:
        if segment.txn_index is None:
            continue
        try:
            entries, _ = read_txn_index(directory, segment.txn_index)
        except KlogError:
            continue
        for txn in entries:
            if txn.producer_id == producer_id and txn.first_offset <= offset <= txn.last_offset:
                return txn.last_offset
    return None


class _Ranges:
    """The aborted transactions of a producer: perhaps thousands, and searched for each of its batches."""

    def __init__(self) -> None:
        self._ends: list[int] = []  # of each, with its sign turned: ascending
        self._starts: list[int] = []  # the lowest of each and of all that end later

    def add(self, txn: AbortedRange) -> None:
        """Take a transaction that ends before all others."""
        self._ends.append(-txn.last_offset)
        self._starts.append(min([txn.first_offset, *self._starts[-1:]]))

    def meet(self, first: int, last: int) -> bool:
        """Whether an offset from *first* to *last* belongs to one of them."""
        later = bisect_right(self._ends, -first)
        return later > 0 and self._starts[later - 1] <= last

    def end_at(self, offset: int) -> bool:
        """Whether the marker of one has this offset."""
        at = bisect_left(self._ends, -offset)
        return at < len(self._ends) and self._ends[at] == -offset


def _by_producer(aborted: Iterable[AbortedRange]) -> dict[int, _Ranges]:
    ranges: dict[int, _Ranges] = {}
    for txn in sorted(aborted, key=lambda txn: -txn.last_offset):
        ranges.setdefault(txn.producer_id, _Ranges()).add(txn)
    return ranges


class TxnBatch(NamedTuple):
    """A batch of a transaction that was not skipped: data, or a marker if *marker* is set to its result."""

    facts: BatchFacts
    marker: Marker | None = None


class AbortedFilter:
    """Removes aborted data from the windows of a part of a log, and reports markers that contradict the index.

    The index is trusted, as a consumer trusts it.  If it lacks an abort whose data is there, however, aborted records
    are shown as committed ones, and that must be reported.

    *aborted*: all ranges that concern offsets from *known_from* up to, not including, *known_to*; if the part has
    others, because its offsets go backwards, one thread then reads the rest.  *path*: the log, in its partition
    directory.
    """

    def __init__(
        self,
        aborted: Iterable[AbortedRange],
        path: str,
        known_from: int = LONG_MIN,
        known_to: int = LONG_MAX + 1,  # even the highest offset is below it
    ) -> None:
        self._path = path
        self._ranges = _by_producer(aborted)
        self._known_from, self._known_to = known_from, known_to
        self._is_whole = False
        self._first: int | None = None  # the first offset of a transaction's batch in the part
        self._with_data: set[int] = set()  # producers with data that was not hidden, and no marker since
        self._ended: set[int] = set()  # producers that had a marker within the part
        self._before: dict[int, int] | None = None  # first offsets of those open before the part, by producer

    def for_log(self, path: str) -> AbortedFilter:
        """Return a filter for a whole log of the same partition, which shares the known ranges."""
        other = AbortedFilter((), path, self._known_from, self._known_to)
        other._ranges, other._is_whole = self._ranges, True
        return other

    def hides(self, producer_id: int, offset: int) -> bool:
        """Whether data of a producer at *offset* is aborted."""
        ranges = self._ranges.get(producer_id)
        return ranges is not None and ranges.meet(offset, offset)

    def skip(self, window: Window) -> list[TxnBatch]:
        """Leave out the aborted batches of *window*, its checksums computed; return the other ones of transactions.

        Several threads may call it if all is known.  Uses the window's record rows.
        """
        found = []
        for i in window.transactional(0, window.count):
            batch = window.batch(i)
            if not batch.crc_holds:
                continue
            if batch.base_offset < self._known_from or batch.last_offset >= self._known_to:
                self._learn_all()
            if batch.attributes & Attributes.CONTROL:
                marker = read_marker(window, i)
                found += [TxnBatch(batch, marker)] if isinstance(marker, Marker) else []
            elif self._is_aborted(batch):
                window.skip(i)
            elif batch.records_count:  # compaction leaves an empty one, with nothing in it to be aborted
                found.append(TxnBatch(batch))
        return found

    def contradictions(self, batches: Iterable[TxnBatch]) -> list[Damage]:
        """Return the markers in *batches* (of all windows, in the order of the log) that the index contradicts."""
        found = []
        for batch, marker in batches:
            if self._first is None:
                self._first = batch.base_offset
            if marker is not None:
                found += self._marker(batch, marker)
            else:
                self._with_data.add(batch.producer_id)
        return found

    def _learn_all(self) -> None:
        partition = Partition(os.path.dirname(self._path))
        self._ranges = _by_producer(visible_range(partition, "read_committed").aborted or ())
        self._known_from, self._known_to = LONG_MIN, LONG_MAX + 1

    def _is_aborted(self, batch: BatchFacts) -> bool:
        ranges = self._ranges.get(batch.producer_id)
        return ranges is not None and ranges.meet(batch.base_offset, batch.last_offset)

    def _marker(self, batch: BatchFacts, marker: Marker) -> list[Damage]:
        producer = batch.producer_id
        ranges = self._ranges.get(producer)
        what = ""
        if not marker.aborts:
            # A right entry has no COMMIT of its producer within it.
            if ranges is not None and ranges.meet(batch.base_offset, batch.base_offset):
                what = "a COMMIT marker that the transaction index takes for an ABORT: records before it were skipped"
        elif ranges is None or not ranges.end_at(batch.base_offset):
            if self._had_data(producer):
                what = "an ABORT marker that the transaction index does not know"
        elif self._is_whole and producer in self._with_data:  # of slices each would see another part of it
            what = "an ABORT marker whose transaction begins earlier than in the transaction index"
        if what and marker.aborts:
            what += ": records before it were taken for committed"
        self._with_data.discard(producer)
        self._ended.add(producer)
        if not what:
            return []
        detail = f"{what} (producer {producer}); klog recover rebuilds the index"
        return [
            Damage(DamageKind.BAD_INDEX, Location(self._path, batch.position, batch.base_offset), detail, batch.size)
        ]

    def _had_data(self, producer: int) -> bool:
        if producer in self._with_data:
            return True
        if producer in self._ended:
            return False
        partition, end = Partition(os.path.dirname(self._path)), self._first or 0
        if self._before is None:
            self._before = open_at(partition, end)
        first = self._before.get(producer)
        return first is not None and _has_records(partition, producer, first, end)


def open_at(partition: Partition, offset: int) -> dict[int, int]:
    """Return the first offsets of the transactions that are open at *offset*, by producer, as far as can be read."""
    state = nearest_state(partition, offset)
    try:
        for _ in replay(state, partition.path, partition.segments, offset):
            pass
    except UnreadableError:
        pass  # its reader reports it
    return {producer_id: first for first, producer_id in state.ongoing.all()}


def _has_records(partition: Partition, producer: int, first: int, end: int) -> bool:
    """Whether there are records of *producer* from offset *first* up to, not including, *end*."""
    for files in segments_between(partition.segments, first, end):
        try:
            with ReadOnlyFile(partition.file(files.log)) as log:
                for header in walk_headers(log):
                    if isinstance(header, Damage) or header.base_offset >= end:
                        break
                    is_data = header.magic >= 2 and header.producer_id == producer and header.records_count > 0
                    if is_data and header.base_offset >= first and not header.attributes & Attributes.CONTROL:
                        return True
        except KlogError:
            continue  # its reader reports it
    return False
