"""The part of a log from an offset on, as segments for another broker's copy.

The source's segment boundaries are kept.  If the part begins inside a segment, the rest of that segment becomes a
segment of its own: data that the other copy has already need not be copied with it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from klog.base.errors import DamagedError
from klog.base.read_only import ReadOnlyFile
from klog.data_dir.partition import Partition, SegmentFiles
from klog.formats.damage import Damage
from klog.formats.snapshot import Producer
from klog.kernel import IndexBuilder
from klog.log.index import position_of_offset
from klog.log.segment import Segment
from klog.log.txn_index import AbortedTxn

_STEP_BYTES = 1 << 20


class SegmentCopy(NamedTuple):
    """A future segment: bytes *start* to *end* of the log *file* in the source's directory, and its indexes."""

    base_offset: int
    file: str
    start: int
    end: int
    offset_index: bytes
    time_index: bytes


class SourceProducers(NamedTuple):
    """The producers in the log: their state at offsets, and its aborted transactions."""

    states: dict[int, tuple[Producer, ...]]
    aborted: tuple[AbortedTxn, ...]


def batch_base(partition: Partition, offset: int) -> int:
    """Return the base offset of the first batch that reaches *offset*, or *offset* where none begins below it.

    Raises UnreadableError.
    """
    for files in partition.segments[_segment_of(partition.segments, offset) :]:
        path = partition.file(files.log)
        for run in Segment(path, bounded=False).runs(position_in(partition, files, offset)):
            if isinstance(run, Damage):
                continue
            at = max(run.window.first_reaching(offset, run.first), run.first)
            if at < run.end:
                return min(run.window.batch(at).base_offset, offset)
    return offset


def segments_from(partition: Partition, offset: int, *, whole: bool, interval: int) -> list[SegmentCopy]:
    """Return the segments from *offset* on; *whole*: from the beginning of the one that contains it.

    *interval*: index.interval.bytes.  The bytes behind the last intact batch of the log are left out.  Raises
    DamagedError, UnreadableError.
    """
    segments = partition.segments
    at = max(_segment_of(segments, offset), 0)
    found = []
    for number, files in enumerate(segments[at:], at):
        is_first = number == at and not whole
        one = _segment(partition, files, offset if is_first else None, interval, is_last=number + 1 == len(segments))
        if one.start < one.end:
            found.append(one)
    return found


def _segment_of(segments: Sequence[SegmentFiles], offset: int) -> int:
    return max(bisect_right([files.base_offset for files in segments], offset) - 1, 0)


def position_in(partition: Partition, files: SegmentFiles, offset: int) -> int:
    """Return the position of a batch at or before the one that reaches *offset*, as the offset index leads there.

    Raises UnreadableError.
    """
    if files.offset_index is None or offset <= files.base_offset:
        return 0
    with ReadOnlyFile(partition.file(files.log)) as log:
        return position_of_offset(log, partition.file(files.offset_index), files.base_offset, offset)


def _segment(
    partition: Partition, files: SegmentFiles, offset: int | None, interval: int, *, is_last: bool
) -> SegmentCopy:
    """Return the part of a segment from *offset* on, all of it for None."""
    path = partition.file(files.log)
    builder: IndexBuilder | None = None
    start = end = 0
    for run in Segment(path, bounded=False).runs(position_in(partition, files, offset) if offset is not None else 0):
        if isinstance(run, Damage):
            if is_last and run.is_unfinished:
                break
            raise DamagedError(f"{run.place}: {run.detail}")
        first = run.first
        if builder is None:
            if offset is not None:
                first = max(run.window.first_reaching(offset, first), first)
            if first >= run.end:
                continue
            start = run.window.batch(first).position
            builder = IndexBuilder(offset if offset is not None and start else files.base_offset, interval, 2**31 - 1)
        if builder.walk(run.window, first, run.end) < run.end:
            raise DamagedError(f"{path}: batches are not in order")
        end = start + builder.size
    if builder is None:
        return SegmentCopy(files.base_offset, files.log, 0, 0, b"", b"")
    builder.finish()
    return SegmentCopy(builder.base, files.log, start, end, builder.offset_entries, builder.time_entries)


def content(partition: Partition, segment: SegmentCopy) -> Iterator[bytes]:
    """Yield the bytes of a segment's log.  Raises UnreadableError if they have changed since."""
    from klog.change.partition_plan.spliced import intact

    path = partition.file(segment.file)

    def read() -> Iterator[bytes]:
        with ReadOnlyFile(path) as file:
            for at in range(segment.start, segment.end, _STEP_BYTES):
                yield file.read(at, min(_STEP_BYTES, segment.end - at))

    return intact(read(), path)


def producers_at(
    partition: Partition, offsets: Sequence[int], begin: int, alike: Partition | None = None
) -> SourceProducers:
    """Return the state of the producers at *offsets*, ascending, and the transactions that were aborted up to the last.

    Only transactions that end at *begin* or behind it are returned; *begin* is not above the first of *offsets*.
    *alike*: a copy with the same batches below *begin*; its snapshots are equivalent.  Raises UnreadableError.
    """
    from klog.partition.transactions.markers import CompletedTxn
    from klog.partition.transactions.producer_replay import nearest_state, replay

    state = nearest_state(partition, begin)
    if alike is not None and (other := nearest_state(alike, begin)).end > max(state.end, alike.log_start_offset or 0):
        state = other
    states: dict[int, tuple[Producer, ...]] = {}
    aborted: list[AbortedTxn] = []
    for offset in offsets:
        for event in replay(state, partition.path, partition.segments, end=offset):
            entry = event.index_entry if isinstance(event, CompletedTxn) else None
            if entry is not None and entry.last_offset >= begin:
                aborted.append(entry)
        states[offset] = state.snapshot()
    return SourceProducers(states, tuple(aborted))
