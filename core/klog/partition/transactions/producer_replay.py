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

A `.txnindex` has the aborted transactions whose marker is in its segment's log.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence

from klog.base.read_only import ReadOnlyFile
from klog.data_dir.partition import Partition, SegmentFiles
from klog.formats.batch import CONTROL_BIT
from klog.formats.damage import Damage
from klog.kernel import Window
from klog.log.index import position_of_offset
from klog.log.records import intact_runs
from klog.log.segment import Segment
from klog.partition.transactions.markers import read_marker
from klog.partition.transactions.producer_state import BATCHES_KEPT, Event, ProducerState
from klog.partition.transactions.snapshot_files import read_snapshot_file

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
