"""The log from which copies are filled: its part from an offset on, as segments, and a copy of it without bad batches.

The source's segment boundaries are kept.  If the part begins inside a segment, the rest of that segment becomes a
segment of its own: data that the other copy has already need not be copied with it.

A replacement of a bad batch has the same identity as that, as far as its header shows it: base offset, last offset,
leader epoch, CRC and size.  All positions are therefore unchanged.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from klog.base.errors import DamagedError
from klog.base.read_only import ReadOnlyFile
from klog.data_dir.disk.directory_tree import remove_tree
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.partition import Partition, SegmentFiles
from klog.formats.batch import BatchFacts
from klog.formats.damage import Damage
from klog.formats.entry_header import HEADER_BYTES, read_header
from klog.formats.names import FileKind, Stage
from klog.formats.producer_snapshot import Producer
from klog.kernel import IndexBuilder
from klog.log.index import AbortedTxn, position_of_offset
from klog.log.segment import Segment

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
    from klog.change.partition_plan.contents import intact

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


class Replacement(NamedTuple):
    """Bytes *position* to *position* + *size* of a log, and the place of the same batch, intact."""

    position: int
    size: int
    path: str
    start: int


@contextmanager
def merged_copy(partition: Partition, others: Sequence[Partition], disk: Disk) -> Iterator[tuple[Partition, int]]:
    """Yield a copy of *partition* without bad batches, which is deleted afterwards, and the offset where it ends.

    A batch that the log ends inside of is completed, too, if another copy has it.  Raises DamagedError for a bad batch
    that no other copy has intact, UnreadableError, OSError.
    """
    end = partition.log_start_offset or 0
    with scratch_directory(partition.directory, disk) as folder:
        for name in partition.files:
            if name.stage is Stage.IN_USE:
                found: list[Replacement] = []
                if name.kind is FileKind.LOG:
                    found, end_here = _replacements(partition, name.name, others)
                    end = max(end, end_here)
                copy_file(disk, partition.file(name.name), os.path.join(folder, name.name), found)
        yield Partition(folder, partition.checkpoints, partition.name), end


@contextmanager
def scratch_directory(name: str, disk: Disk) -> Iterator[str]:
    """Yield a new directory of that *name*, which is deleted afterwards.  Raises OSError."""
    place = disk.private_directory()
    try:
        folder = os.path.join(place, name)
        disk.make_directory(folder)
        yield folder
    finally:
        remove_tree(place, disk)


def copy_file(disk: Disk, source: str, target: str, found: Sequence[Replacement] = (), size: int | None = None) -> None:
    """Copy a file with its time, up to *size* bytes, but with the replacements *found*.  Raises OSError."""
    status, at = os.stat(source), 0
    with disk.closing(disk.create(target)) as file:
        for one in found:
            disk.copy(source, at, one.position, file)
            disk.copy(one.path, one.start, one.start + one.size, file)
            at = one.position + one.size
        disk.copy(source, at, max(at, status.st_size) if size is None else size, file)
        disk.set_metadata(file, 0o600, os.geteuid(), os.getegid(), status.st_mtime_ns)


def _replacements(partition: Partition, name: str, others: Sequence[Partition]) -> tuple[list[Replacement], int]:
    """Return the replacements of the bad batches in one log, and the offset behind its last batch."""
    path = partition.file(name)
    is_last = name == partition.segments[-1].log
    found, end = [], 0
    for run in Segment(path, bounded=False).runs():
        if not isinstance(run, Damage):
            end = run.window.batch(run.end - 1).last_offset + 1
            continue
        position = run.place.position or 0
        with ReadOnlyFile(path) as file:
            data = file.read(position, HEADER_BYTES)
        bad = read_header(data, 0, position, 2**31 - 1) if len(data) == HEADER_BYTES else None
        twin = _twin(bad, others) if isinstance(bad, BatchFacts) else None
        if twin is None or not isinstance(bad, BatchFacts):
            if is_last and run.is_unfinished:
                continue
            raise DamagedError(f"{run.place}: no other copy has this batch intact")
        found.append(Replacement(position, bad.size, *twin))
        end = bad.last_offset + 1
    return found, end


def _twin(bad: BatchFacts, others: Sequence[Partition]) -> tuple[str, int] | None:
    """Return where an intact batch of the same identity is: a log and its position there."""
    for other in others:
        kept = [files for files in other.segments if files.base_offset <= bad.base_offset]
        for files in kept[-1:]:
            path = other.file(files.log)
            for run in Segment(path, bounded=False).runs():
                if isinstance(run, Damage):
                    continue
                at = max(run.window.first_reaching(bad.base_offset, run.first), run.first)
                if at < run.end:
                    batch = run.window.batch(at)
                    if _identity(batch) == _identity(bad):
                        return path, batch.position
                    break
    return None


def _identity(batch: BatchFacts) -> tuple[int, int, int, int, int]:
    return batch.base_offset, batch.last_offset, batch.leader_epoch, batch.crc, batch.size
