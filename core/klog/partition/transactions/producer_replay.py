"""Replays a log into the state of its producers: windows, then whole segments, in order.

    state = ProducerState(partition.log_start_offset or 0)
    for event in replay(state, partition.path, partition.segments, end=1052):
        print(event)                            # a CompletedTxn, an Irregularity, a Damage
    state.snapshot() == snapshot_1052.producers

`replay` advances the state, `ProducerState.end`, over the segments up to *end*:

1. segments that end at or below the state's end are skipped, those from *end* on are not read;
2. a segment is read from its start, or, if the state is within it, from the position in its offset index;
3. batches below the state's end are skipped, those from *end* on are dropped;
4. intact batches are applied in runs (`apply_window`), damaged ones and stretches are yielded and skipped;
5. the state's end is set to *end*, also behind a gap.

`ProducerReplay` does the same during a pass over a partition that reads the batches anyway, for its checks.

A `.txnindex` has the aborted transactions whose marker is in its segment's log.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence

from klog.base.read_only import ReadOnlyFile
from klog.data_dir.partition import Partition, SegmentFiles
from klog.formats.batch import CONTROL_BIT, TRANSACTIONAL_BIT
from klog.formats.damage import Damage, Location
from klog.formats.java_integers import LONG_MAX
from klog.formats.producer_snapshot import Producer, Snapshot
from klog.kernel import Window
from klog.log.index import position_of_offset
from klog.log.records import intact_runs
from klog.log.segment import Segment
from klog.partition.transactions.markers import STOPS_BROKER, CompletedTxn, ProducerAnomaly, read_marker
from klog.partition.transactions.producer_state import BATCHES_KEPT, Event, ProducerState, read_snapshot_file

OpenTxns = tuple[tuple[int, int], ...]
"""The first offset and the producer id of each open transaction, by offset."""


def apply_window(
    state: ProducerState, window: Window, file: str = "", first: int = 0, end: int | None = None, briefly: bool = False
) -> list[Event]:
    """Apply the batches from *first* to *end* (all) whose checksums were computed and match; return the events.

    *briefly*: without batches that leave no trace in the state; the absence of anomalies then proves nothing.  Uses the
    window's record rows, for markers.  *file* is for places.  Content never raises.
    """
    end = window.count if end is None else end
    found: list[Event] = []
    for i in window.produced(first, end, most=BATCHES_KEPT if briefly else 0):
        batch = window.batch(i)
        events = state.apply(batch, read_marker(window, i) if batch.attributes & CONTROL_BIT else None, file)
        if events:
            found += events
    for i in range(end - 1, first - 1, -1):
        batch = window.batch(i)
        if batch.crc_holds:
            state.end = batch.last_offset + 1
            break
    return found


def nearest_state(partition: Partition, offset: int, without: Collection[int] = ()) -> ProducerState:
    """Return the state in the newest snapshot, not above *offset*, that a broker would take: `replay` continues it.

    Without one: no producers, at the log's start.  *without*: offsets of snapshots that do not count.  No producer is
    expired.  Kafka: ProducerStateManager.loadFromSnapshot.
    """
    start = partition.log_start_offset or 0
    for file in reversed(partition.snapshots):
        if file.offset is not None and start < file.offset <= offset and file.offset not in without:
            snapshot = read_snapshot_file(partition.file(file.name))
            if snapshot.problem is None:
                return ProducerState.load(snapshot, file.offset)
    return ProducerState(start)


def replay(
    state: ProducerState, directory: str, segments: Sequence[SegmentFiles], end: int | None = None
) -> Iterator[Event | Damage]:
    """Apply the batches of the segments (ascending) of *directory* from `state.end` up to, not including, *end*.

    Yields the events of the batches, and damaged stretches, which are skipped: the state after one is uncertain. It has
    reached *end* only once the iteration is over.  *end*: an offset at which a batch begins, as snapshots have it; None
    for the end of the log; if it is beyond that, the state's end is *end* all the same.  Raises UnreadableError for a
    log that cannot be opened.  Kafka: UnifiedLog.rebuildProducerState, which verifies no checksums.
    """
    bases = [segment.base_offset for segment in segments]
    for segment, following in zip(segments, [*bases[1:], *[None] * bool(bases)], strict=True):
        if following is not None and following <= state.end:
            continue
        if end is not None and segment.base_offset >= end:
            break
        start, state.end = state.end, max(state.end, segment.base_offset)
        within = end is not None and (following is None or end < following)
        yield from _replay_segment(state, directory, segment, start, end if within else None)
    if end is not None:
        state.end = end


def _replay_segment(
    state: ProducerState, directory: str, files: SegmentFiles, start: int, end: int | None
) -> Iterator[Event | Damage]:
    path = os.path.join(directory, files.log)
    segment = Segment(path)
    window = Window()
    with ReadOnlyFile(path) as source:
        position = 0
        if start > files.base_offset and files.offset_index:
            index = os.path.join(directory, files.offset_index)
            position = position_of_offset(source, index, files.base_offset, start)
        reader = segment.reader(source, position)
        begun = start <= files.base_offset
        while piece := reader.next(window):
            begun = begun or _skip_below(window, start)
            if not begun:
                continue
            stopped = end is not None and _drop_from(window, end)
            for run in intact_runs(window, path, segment.span):
                if run.damage:
                    yield run.damage
                else:
                    yield from apply_window(state, run.window, path, run.first, run.end)
            if stopped:
                return
            if piece.damage:
                yield piece.damage


def _skip_below(window: Window, offset: int) -> bool:
    """Leave out the batches before the first that reaches *offset*; False when that is none of them."""
    first = window.first_reaching(offset)
    for i in range(first):
        window.skip(i)
    return first < window.count


def _drop_from(window: Window, offset: int) -> bool:
    """Forget the batches from the first on that reaches *offset*; False when none does.  Kafka: translateOffset."""
    first = window.first_reaching(offset)
    reached = first < window.count
    window.drop(first)
    return reached


def open_txns(state: ProducerState) -> OpenTxns | None:
    """Return the open transactions of *state*; None if its producers contradict each other about them."""
    entries = state.producers.values()
    found = sorted(
        (entry.current_txn_first_offset, entry.producer_id) for entry in entries if entry.current_txn_first_offset != -1
    )
    return tuple(found) if tuple(found) == state.ongoing.all() else None


_MOST_ANOMALIES = 100_000
_TXN_FIELDS = 5


class EndedTxns:
    """The transactions of a partition that have ended: 40 bytes of memory each, for a log may have millions."""

    def __init__(self) -> None:
        self._rows = array("q")
        self._spans: dict[str, tuple[int, int]] = {}
        self._begun: list[tuple[int, int, int]] = []

    def add(self, log: str, ended: Iterable[CompletedTxn]) -> None:
        """Add transactions whose markers are in *log*; the logs follow each other."""
        begin, _ = self._spans.get(log, (len(self._rows), 0))
        for txn in ended:
            self._rows.extend((txn.producer_id, txn.first_offset, txn.last_offset, txn.aborted, txn.last_stable_offset))
        self._spans[log] = begin, len(self._rows)

    def of(self, log: str) -> Iterator[CompletedTxn]:
        """Yield the transactions whose markers are in *log*."""
        if log not in self._spans:
            return
        for at in range(*self._spans[log], _TXN_FIELDS):
            producer_id, first, last, aborted, stable = self._rows[at : at + _TXN_FIELDS]
            yield CompletedTxn(producer_id, first, last, bool(aborted), stable, Location(log, None, last))

    def begun_after(self, offset: int) -> Iterator[tuple[int, int, bool]]:
        """Yield the transactions that began after *offset*, in order: first offset, producer, whether aborted."""
        if not self._begun:
            firsts, producers, aborted = (self._rows[at::_TXN_FIELDS] for at in (1, 0, 3))
            self._begun = sorted(zip(firsts, producers, aborted, strict=True))
        for at in range(bisect_right(self._begun, (offset, LONG_MAX, 1)), len(self._begun)):
            first, producer_id, is_aborted = self._begun[at]
            yield first, producer_id, bool(is_aborted)


class ProducerReplay:
    """The producers' state during a pass over a partition.

    With *deep* every batch of a producer is applied, and the state is kept at the offsets of *snapshots*, else only
    transactions are followed.  `is_guess`: damage or a start in the middle makes the state uncertain.  `loaded`: the
    producers at `start`, from the snapshot there.  `state` is None as long as there was no producer: most logs have
    none.  `stops`: the logs with a batch at which a broker's recovery may stop or
    fail because of its producer.  `opened`: the transactions that are open at `start`.
    """

    def __init__(self, start: int, snapshots: list[tuple[str, int, Snapshot]], deep: bool) -> None:
        good = [(offset, snapshot) for _, offset, snapshot in snapshots if snapshot.problem is None]
        loaded = next((snapshot for offset, snapshot in good if offset == start), None)
        self.is_guess = loaded is None and start > 0
        self.start = self.end = start
        self.loaded: tuple[Producer, ...] = () if loaded is None else loaded.producers
        self.state: ProducerState | None = None
        self.ended = EndedTxns()
        self.anomalies: dict[str, list[ProducerAnomaly]] = {}
        self.states: dict[int, tuple[tuple[Producer, ...], bool]] = {}
        self.stops: set[str] = set()
        self._pending = sorted(offset for offset, _ in good if offset > start) if deep else []
        self._deep = deep
        self._count = 0
        self._is_damaged = False
        self._open_at_damage: OpenTxns | None = None
        if loaded is not None and loaded.producers:
            self.state = ProducerState.load(loaded, start)
        self.opened = self.open_now()

    def take(self, log: str, window: Window, first: int, end: int) -> None:
        """Apply intact batches of a window."""
        while self._pending and end > first:
            split = min(max(window.first_reaching(self._pending[0]), first), end)
            if split == end:
                break
            self._apply(log, window, first, split)
            self._keep()
            first = split
        self._apply(log, window, first, end)

    def damaged(self) -> None:
        """Pass over damage."""
        self.is_guess = True
        if not self._is_damaged:
            self._is_damaged, self._open_at_damage = True, self.open_now()

    def take_open_at_damage(self) -> OpenTxns | None:
        """Return the transactions that were open at the first damage since the last call.

        None if there was none, or if producers contradict each other.
        """
        found, self._is_damaged, self._open_at_damage = self._open_at_damage, False, None
        return found

    def open_now(self) -> OpenTxns | None:
        """Return the transactions that are open here; None if producers contradict each other about them."""
        if self.state is None:
            return ()
        return open_txns(self.state)

    def finish(self) -> None:
        """Finish at the end of the log."""
        while self._pending and self._pending[0] <= self.end:
            self._keep()

    def _keep(self) -> None:
        self.states[self._pending.pop(0)] = (self.state.snapshot() if self.state else (), self.is_guess)

    def _apply(self, log: str, window: Window, first: int, end: int) -> None:
        if first == end:
            return
        if self.state is None and window.produced(first, end):
            self.state = ProducerState(self.end)
        self.end = window.batch(end - 1).last_offset + 1
        found = self._events(self.state, log, window, first, end) if self.state is not None else []
        if found:
            self._note(log, found)

    def _note(self, log: str, found: list[Event]) -> None:
        self.ended.add(log, (event for event in found if isinstance(event, CompletedTxn)))
        anomalies = [event for event in found if not isinstance(event, CompletedTxn)]
        if any(event.kind in STOPS_BROKER for event in anomalies):
            self.stops.add(log)
        if anomalies and self._count < _MOST_ANOMALIES:
            self._count += len(anomalies)
            self.anomalies.setdefault(log, []).extend(anomalies)

    def _events(self, state: ProducerState, log: str, window: Window, first: int, end: int) -> list[Event]:
        if self._deep:
            return apply_window(state, window, log, first, end)
        found: list[Event] = []
        rows = window.transactional(first, end)
        # As long as no transaction is open, the producer fields of other batches are not read.
        for i in window.produced(first, end) if rows or state.ongoing else ():
            batch = window.batch(i)
            if not batch.attributes & TRANSACTIONAL_BIT:
                entry = state.producers.get(batch.producer_id)
                if batch.attributes & CONTROL_BIT or (entry is not None and entry.current_txn_first_offset >= 0):
                    self.stops.add(log)
                continue
            found += state.apply(batch, read_marker(window, i) if batch.attributes & CONTROL_BIT else None, log)
        state.end = self.end
        return found
