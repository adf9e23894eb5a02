"""Reads the end of a log to continue it: of a segment of any size only the last few KiB.

The indexes are trusted below the offset up to which the log is known to be on the disk.  Behind it every batch is read
and its checksum computed, and the entries about these batches are rebuilt.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from itertools import pairwise
from shlex import quote
from types import MappingProxyType
from typing import NamedTuple

from klog.base.errors import DamagedError
from klog.base.read_only import ReadableLog, ReadOnlyFile
from klog.change.partition_plan.strict_reader import StrictReader
from klog.change.plan.model import TEMPORARY
from klog.cluster.leader_epoch_cache import LeaderEpochCache
from klog.data_dir.partition import Partition, SegmentFiles
from klog.formats.damage import Damage, DamageKind, Location
from klog.formats.index import OFFSET_ENTRY, TIME_ENTRY
from klog.formats.names import FileKind, Stage, file_name
from klog.kernel import IndexBuilder, Window
from klog.log.header_walk import header_at, walk_headers
from klog.log.index import AbortedTxn, IndexEntries, offset_entries, read_txn_index, time_entries
from klog.log.records import intact_runs
from klog.log.segment import Segment
from klog.partition.append.appender import AppendSettings, LogState, empty_log
from klog.partition.transactions.markers import CompletedTxn
from klog.partition.transactions.producer_replay import nearest_state, replay
from klog.partition.transactions.producer_state import ProducerState


class Resumption(NamedTuple):
    """The state from which a log continues.

    *sizes*: the valid bytes of each index, by name; *entries*: the entries to append to them.  *torn*: the bytes in
    place of a batch at the end of the log; None if the file ends there.  *is_clean*: the partition is in the state
    after a clean stop. The producers of *log* are unknown.
    """

    log: LogState
    sizes: Mapping[str, int] = MappingProxyType({})
    entries: Mapping[str, bytes] = MappingProxyType({})
    torn: Damage | None = None
    is_clean: bool = True


class CutShortError(DamagedError):
    """A log ends at offset *end*, below the offset *known* up to which it had been on the disk."""

    def __init__(self, message: str, end: int, known: int) -> None:
        super().__init__(message)
        self.end, self.known = end, known


class _Start(NamedTuple):
    """The start in the active segment: a byte, the number of index entries before it, the last timestamp."""

    position: int = 0
    entries: int = 0
    times: int = 0
    last_time: int = -1
    last_time_offset: int = -1
    rolling_timestamp: int = -1


def resume(partition: Partition, settings: AppendSettings, window: Window, known: int) -> Resumption:
    """Return the state from which *partition* continues.  *window* is the read buffer; below offset *known* the files
    are trusted.

    Raises DamagedError if it must be recovered first, CutShortError for bytes below *known* that are no batch;
    UnreadableError.
    """
    epochs = _known_epochs(partition)
    if not partition.segments:
        return Resumption(empty_log(settings, partition.log_start_offset or 0), is_clean=False)
    files = partition.segments[-1]
    before = list(epochs.entries)
    _add_epochs(partition, known, epochs)
    segment, start, torn = _resume_segment(partition, files, settings, epochs, window, known)
    end = segment.last_offset + 1 if segment.batches else files.base_offset
    if torn is not None and end < known:
        advice = f"first: klog recover {quote(partition.path)}"
        raise CutShortError(f"{torn.place}: {torn.detail}; {advice}", end, known)
    latest = epochs.latest
    epochs.truncate_end(end)
    if epochs.latest != latest:  # the segment took an epoch for known that began behind its end
        segment, start, torn = _resume_segment(partition, files, settings, epochs, window, known)
    for epoch, offset in segment.epochs:
        epochs.assign(epoch, offset)
    state = LogState(settings, segment, partition.log_start_offset or 0, end, ProducerState(), epochs, is_there=True)
    sizes, entries = _index_rest(partition, files, start, segment)
    is_clean = torn is None and before == epochs.entries and not entries and _was_closed(partition, files, sizes, end)
    return Resumption(state, sizes, entries, torn, is_clean)


def load_producers(partition: Partition, log: LogState, known: int) -> None:
    """Find the producers at the end of *log*, and the aborted transactions of its active segment.

    Snapshots and transaction indexes are believed up to offset *known*; the rest is read.  Raises UnreadableError.
    """
    log.producers = nearest_state(partition, min(known, log.end))
    entries: list[AbortedTxn] = []
    if partition.segments and partition.segments[-1].txn_index is not None:
        found, _ = read_txn_index(partition.path, partition.segments[-1].txn_index)
        entries = [entry for entry in found if entry.last_offset < log.producers.end]
    for event in replay(log.producers, partition.path, partition.segments, end=log.end):
        if isinstance(event, CompletedTxn) and event.index_entry is not None:
            entries.append(event.index_entry)
    log.aborted = [entry for entry in entries if entry.last_offset >= log.segment.base]


def _known_epochs(partition: Partition) -> LeaderEpochCache:
    """Return the leader epochs of a log that can be continued.  Raises DamagedError if it must be recovered."""
    recover = f"first: klog recover {quote(partition.path)}"
    # Files that a broker is about to delete do not belong to the log.
    if any(file.stage not in (Stage.IN_USE, Stage.DELETED) for file in partition.log_files):
        raise DamagedError(f"{partition.path}: it has an interrupted operation; {recover}")
    if partition.epochs is not None and partition.epochs.malformed is not None:
        raise DamagedError(f"{partition.path}: leader-epoch-checkpoint, {partition.epochs.malformed}; {recover}")
    return LeaderEpochCache(partition.epochs.entries if partition.epochs is not None else ())


def _add_epochs(partition: Partition, known: int, epochs: LeaderEpochCache) -> None:
    """Add the leader epochs of segments that ended after the last flush, which alone writes them."""
    for files, after in pairwise(partition.segments):
        if after.base_offset > known:
            with ReadOnlyFile(partition.file(files.log)) as log:
                for header in walk_headers(log):
                    if isinstance(header, Damage):
                        break
                    if header.leader_epoch > epochs.latest:
                        epochs.assign(header.leader_epoch, header.base_offset)


def _was_closed(partition: Partition, files: SegmentFiles, sizes: Mapping[str, int], end: int) -> bool:
    """Whether the partition is in the state after a clean stop, as far as names and sizes show."""
    if partition.recovery_point != end or None in (files.offset_index, files.time_index):
        return False
    if any(file.name.endswith(TEMPORARY) for file in partition.files):
        return False
    if any(os.path.getsize(partition.file(name)) != size for name, size in sizes.items()):
        return False
    return end <= (partition.log_start_offset or 0) or any(file.offset == end for file in partition.snapshots)


def _index_rest(
    partition: Partition, files: SegmentFiles, start: _Start, segment: IndexBuilder
) -> tuple[dict[str, int], dict[str, bytes]]:
    """Return the number of valid bytes in the indexes, and the missing entries about the batches that were read.

    The last entry of the time index is written when a log is closed, perhaps behind an earlier recovery point: it
    counts only if it is found once more.
    """
    segment.finish()
    index, times = (file_name(files.base_offset, kind) for kind in (FileKind.INDEX, FileKind.TIME_INDEX))
    sizes = {index: start.entries * OFFSET_ENTRY.size, times: start.times * TIME_ENTRY.size}
    entries = {name: content for name, content in zip((index, times), segment.take_entries(), strict=True) if content}
    if tuple(entries) == (times,) and files.time_index is not None:
        with ReadOnlyFile(partition.file(files.time_index)) as source:
            if source.read(sizes[times], TIME_ENTRY.size + 1) == entries[times]:
                sizes[times] += len(entries.pop(times))
    return sizes, entries


def _resume_segment(
    partition: Partition,
    files: SegmentFiles,
    settings: AppendSettings,
    epochs: LeaderEpochCache,
    window: Window,
    known: int,
) -> tuple[IndexBuilder, _Start, Damage | None]:
    """Return the active segment, the start of the reading, and the damage at which its log ends."""
    path = partition.file(files.log)
    with ReadOnlyFile(path) as log:
        start = _find_start(partition, files, log, known - files.base_offset)
        segment = settings.segment(files.base_offset, epochs.latest)
        if start.entries:
            segment.continue_at(
                start.position, start.rolling_timestamp, start.entries, start.times, start.last_time,
                start.last_time_offset,
            )  # fmt: skip
        return segment, start, _walk(path, log, start.position, segment, window)


def _walk(path: str, log: ReadableLog, position: int, segment: IndexBuilder, window: Window) -> Damage | None:
    """Let *segment* read its log from *position* on; return the first bytes that are not a batch continuing it."""
    described = Segment(path)
    reader = described.reader(log, position)
    while piece := reader.next(window):
        for run in intact_runs(window, path, described.span):
            if run.damage is not None:
                return run.damage
            in_order = segment.resume(run.window, run.first, run.end)
            if in_order < run.end:
                facts = run.window.batch(in_order)
                place = Location(path, facts.position, facts.base_offset)
                return Damage(DamageKind.OFFSET_BACKWARDS, place, "the batch is not in order")
        if piece.damage is not None:
            return piece.damage
    return None


def _find_start(partition: Partition, files: SegmentFiles, log: ReadableLog, known: int) -> _Start:
    """Return the position of the last index entry below *known* (relative); the start if no batch is there."""
    if known <= 0 or files.offset_index is None or files.time_index is None:
        return _Start()
    with ExitStack() as stack:
        index = stack.enter_context(offset_entries(partition.file(files.offset_index), log.size))
        times = stack.enter_context(time_entries(partition.file(files.time_index)))
        count = _below(index, 0, known)
        if not count:
            return _Start()
        relative, position = index[count - 1]
        times_count = _below(times, 1, relative + 1)
        last_time, last_time_offset = times[times_count - 1] if times_count else (-1, 0)
        if index.unreadable or times.unreadable:
            return _Start()
    last_time_offset += files.base_offset
    header, first = header_at(log, position), header_at(log, 0)
    if header is None or first is None or header.last_offset != files.base_offset + relative:
        return _Start()
    return _Start(position, count, times_count, last_time, last_time_offset, first.max_timestamp)


def _below(entries: IndexEntries, column: int, limit: int) -> int:
    """Return how many entries, which ascend, are about offsets below *limit*, relative ones."""
    low, high = 0, entries.count
    while low < high:
        # The last entry first: nearly always it is the one.
        middle = high - 1 if high == entries.count else (low + high) // 2
        low, high = (middle + 1, high) if entries[middle][column] < limit else (low, middle)
    return low


_REFUSED = "nothing is appended"


def open_log(partition: Partition, settings: AppendSettings, window: Window, *, is_closed: bool) -> Resumption:
    """Return the state from which *partition*, which has segments, continues, with its producers.  *window* is used to
    read.

    *is_closed*: it was left as after a clean stop.  Then a broker checks nothing below the recovery point, and neither
    does this.  After any other stop its start reads the segment of the recovery point and all later ones from the
    beginning, and cuts the log at the first damage: all of that is read here, too.  Kafka: LogLoader.recoverLog.
    Raises DamagedError if it must be recovered first, UnreadableError.
    """
    known = partition.recovery_point or 0
    if not is_closed:
        known = max((files.base_offset for files in partition.segments if files.base_offset <= known), default=0)
        for files in partition.segments[:-1]:
            if files.base_offset >= known:
                with ReadOnlyFile(partition.file(files.log)) as log:
                    reader = StrictReader(log, partition.file(files.log), files.base_offset, _REFUSED)
                    while reader.next(window):
                        pass
    found = resume(partition, settings, window, known)
    if found.torn is not None:
        where, what = found.torn.place, found.torn.detail
        raise DamagedError(f"{where}: {what}; {_REFUSED}; first: klog recover {quote(partition.path)}")
    load_producers(partition, found.log, found.log.end if is_closed else known)
    return found
