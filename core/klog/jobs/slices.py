"""Units of work: slices of logs, packed into tasks of about equal size.

    made = slices(partition)
    for task in pack([part.bytes for part in made]):
        process([made[i] for i in task])

A slice is plain data, which can be sent to another process or machine; what reads it is `klog.jobs.spark_rows`.

A log is split between two intact batches.  A cut inside a batch would lose and repeat records at once, since the value
of a record may contain the image of a batch.  The index therefore only proposes a cut.  A stretch before it, longer
than any batch has to be, is walked, checksums included; a log without a usable index entry is walked from the last cut
on.
"""

from __future__ import annotations

import heapq
import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from klog.base.errors import KlogError
from klog.base.read_only import ReadableLog, ReadOnlyFile
from klog.base.unusable import UNUSABLE, Unusable
from klog.data_dir.log_dir import lock_state
from klog.data_dir.partition import Partition, SegmentFiles, segments_between
from klog.formats.damage import Damage
from klog.formats.index import OFFSET_ENTRY
from klog.formats.java_integers import LONG_MAX, LONG_MIN
from klog.formats.names import FileKind
from klog.kernel import Window
from klog.log.header_walk import header_at, read_window, walk_headers
from klog.log.index import IndexEntries, position_of_offset
from klog.log.reader import REACH_BYTES, LogReader
from klog.log.records import OffsetRange, RecordFilter, start_position
from klog.log.segment import Segment
from klog.partition.transactions.isolation import AbortedRange, Isolation, IsolationState, visible_range

CONFIRM_BYTES = REACH_BYTES
"""The length of the walk before a cut: a reader follows the size of a broken batch that far, and the batch then ends
before the cut. It is four times the default size limit of a batch in a broker.

An index with only wrong entries could still mislead inside a larger batch; the reader that reaches it notices.
"""

_MOST_BYTES = 8 << 20
_INDEX_PAYS = 2  # parts of so many times CONFIRM_BYTES; smaller ones are found sooner by reading the log
_TRIES = 4
_POSITION = OFFSET_ENTRY.names.index("position")


class SplitPoint(NamedTuple):
    """A batch begins at *position* (bytes), with *offset*: the batch's base offset, or a wrapper's last one."""

    position: int
    offset: int


class SplitPoints:
    """The cuts of an open log.  *index*: its offset index, open too, None without one.  Offsets lie within *span*."""

    def __init__(self, log: ReadableLog, index: ReadOnlyFile | None, span: OffsetRange) -> None:
        self._log = log
        self._entries = IndexEntries(index, OFFSET_ENTRY) if index else None
        self._span = span

    @cached_property
    def _window(self) -> Window:
        return Window(CONFIRM_BYTES, 1, 1)

    def between(self, start: int, end: int, part_bytes: int) -> Iterator[SplitPoint]:
        """Yield cuts, positions ascending, that make about even parts of at most *part_bytes* of *start* to *end*.

        *start* must be the first byte of a batch.  A large batch, or damage, makes a part larger.  Raises
        UnreadableError where the log cannot be read.
        """
        parts = -(-(end - start) // part_bytes)
        step = -(-(end - start) // max(parts, 1))
        at = start
        while (target := at + step) < end - step // 4:
            by_index = self._by_index(target) if step >= _INDEX_PAYS * CONFIRM_BYTES else None
            cut = by_index or self._by_walk(at, target)
            if cut is None or cut.position >= end:
                return
            yield cut
            at = cut.position

    def is_boundary(self, position: int) -> bool:
        """Whether an intact batch begins at *position*, behind intact ones."""
        return self._confirmed(position) is not None

    def _by_index(self, target: int) -> SplitPoint | None:
        """Return the first cut at or after *target* that the index proposes and the log confirms."""
        entries = self._entries
        if entries is None:
            return None
        first = entries.search(target - 1, _POSITION).slot + 1
        for slot in range(first, min(first + _TRIES, entries.count)):
            position = entries[slot][1]
            if position >= target and (cut := self._confirmed(position)):
                return cut
        return None

    def _confirmed(self, position: int) -> SplitPoint | None:
        """Return the cut at *position*, None unless a walk over intact batches leads there."""
        log, window = self._log, self._window
        header = header_at(log, position)
        if header is None:
            return None
        start, size = self._before(position), header.size
        if position + size - start > _MOST_BYTES:
            return None
        try:
            read_window(log, window, start, position + size - start)
        except OSError:
            return None
        window.scan(0)
        row = window.row_at(position - start)
        holds = row >= 0 and not window.check(0, row + 1)
        return SplitPoint(position, window.batch(row).base_offset) if holds else None

    def _before(self, position: int) -> int:
        """Return the position from which to walk to *position*: that of a batch in the index, or the log's start."""
        slot = self._entries.search(position - CONFIRM_BYTES, _POSITION).slot if self._entries else -1
        return max(self._entries[slot][1], 0) if self._entries and slot >= 0 else 0

    def _by_walk(self, start: int, target: int) -> SplitPoint | None:
        """Return the first cut at or after *target*, by a walk from the batch at *start* on; None at the end."""
        window, log = self._window, self._log
        reader = LogReader(log, start, min_offset=self._span.min_offset, max_offset=self._span.max_offset)
        joined = False  # the window's first batch follows an intact one
        while piece := reader.next(window):
            first = max(0 if joined else 1, bisect_left(range(window.count), target - window.position, key=window.at))
            for row in range(first, window.count):
                if not window.check(max(row - 1, 0), row + 1):
                    return SplitPoint(window.position + window.at(row), window.batch(row).base_offset)
            joined = piece.damage is None
        return None


SPLIT_BYTES = 64 << 20
TASK_BYTES = 128 << 20
OPENING_BYTES = 64 << 10
"""The cost of opening another log, in bytes that could be read in that time."""

_MOST_HEADERS = 2000


class LogSlice(NamedTuple):
    """The batches of a log that begin from byte *start* up to, not including, byte *end*, as they were at planning.

    *path*: of the log; of a partition directory that could not be listed, so that its reader says why.  *topic* and
    *partition*: None if the directory's name does not have it.  *base*: the segment's base offset; *next_base*: that of
    the following one, which no offset of this one reaches, None in the last.  *log_bytes*: where the log ended.
    *live*: a broker is writing this very file, so that an unfinished last batch is no damage.  Offsets below
    *from_offset*, or from *to_offset* on, are not to be seen; nor are those of *aborted*, transactions by their
    markers' offsets, None where all data is wanted.  It has those with an offset from *aborted_from* up to, not
    including, *aborted_to*; the slice has no others, unless offsets go backwards.
    """

    path: str
    topic: str | None
    partition: int | None
    base: int
    next_base: int | None
    start: int
    end: int
    log_bytes: int
    live: bool = False
    from_offset: int = LONG_MIN
    to_offset: int = LONG_MAX
    aborted: tuple[AbortedRange, ...] | None = None
    aborted_from: int = LONG_MIN
    aborted_to: int = LONG_MAX

    @property
    def bytes(self) -> int:
        """How much there is to read."""
        return self.end - self.start

    @property
    def span(self) -> OffsetRange:
        """Which offsets the log can have."""
        return Segment(self.path).span.below(self.next_base)


def slice_partition(
    partition: Partition,
    split_bytes: int = SPLIT_BYTES,
    wanted: RecordFilter = RecordFilter(),  # noqa: B008  # it is immutable
    isolation: Isolation = "read_uncommitted",
    learnt: IsolationState | None = None,
) -> list[LogSlice]:
    """Return the slices of *partition*, offsets ascending, none much larger than *split_bytes*.

    Parts without a *wanted* record, and parts that no consumer sees, are left out as far as names, indexes and headers
    show them.  A log that cannot be read is one slice, whose reader reports the reason.  *learnt*: the state of earlier
    calls for this partition, kept up to date.  Raises nothing for content.
    """
    whole = LogSlice(partition.path, partition.topic, partition.number, 0, None, 0, 0, 0)
    if partition.unreadable is not None:
        return [whole]
    seen = visible_range(partition, isolation, learnt)
    wanted = wanted.before_end(lambda: end.offset if (end := partition.log_end) is not None else 0)
    asked, wanted = wanted, seen.within(wanted)
    if asked.from_offset < wanted.from_offset and (hides := partition.raised_start) is not None:
        UNUSABLE.note(Unusable(partition.path, hides, is_unreadable=False))
    segments = partition.segments
    following = {one.base_offset: two.base_offset for one, two in pairwise(segments)}
    held = bool(lock_state(os.path.join(partition.checkpoints.log_dir, FileKind.LOCK.value)).held)
    found: list[LogSlice] = []
    for files in segments_between(segments, wanted.from_offset, wanted.to_offset):
        next_base = following.get(files.base_offset)
        log = whole._replace(
            path=partition.file(files.log),
            base=files.base_offset,
            next_base=next_base,
            end=files.size,
            log_bytes=files.size,
            live=held and next_base is None,
            from_offset=max(seen.from_offset, asked.from_offset),
            to_offset=min(seen.to_offset, asked.to_offset),
            aborted=seen.aborted,
        )
        found += _cut(log, files, os.path.dirname(log.path), split_bytes, wanted)
    return found


def _cut(log: LogSlice, files: SegmentFiles, directory: str, split_bytes: int, wanted: RecordFilter) -> list[LogSlice]:
    """Return the slices of one log, which is given as a whole."""
    index, time_index = (
        os.path.join(directory, name) if name else None for name in (files.offset_index, files.time_index)
    )
    try:
        with ExitStack() as opened:
            source = opened.enter_context(ReadOnlyFile(log.path))
            log = log._replace(end=source.size, log_bytes=source.size)
            if source.missing_bytes and not source.size:
                return [log]
            cuts = SplitPoints(source, _open(index, opened), log.span)
            start, end = _range(source, cuts, index, time_index, log.base, wanted)
            marks = [(start, log.base), *cuts.between(start, end, split_bytes)]
    except KlogError:
        return [log] if log.end else []
    ends = [*marks[1:], (end, LONG_MAX)]
    return [
        log._replace(
            start=mark[0],
            end=stop[0],
            aborted=_overlapping(log.aborted, mark[1], stop[1]),
            aborted_from=mark[1],
            aborted_to=stop[1],
        )
        for mark, stop in zip(marks, ends, strict=True)
        if mark[0] < stop[0]
    ]


def _open(path: str | None, opened: ExitStack) -> ReadOnlyFile | None:
    try:
        return opened.enter_context(ReadOnlyFile(path)) if path else None
    except KlogError:
        return None


def _overlapping(aborted: tuple[AbortedRange, ...] | None, first: int, end: int) -> tuple[AbortedRange, ...] | None:
    """Return those with an offset from *first* up to, not including, *end*."""
    if aborted is None:
        return None
    return tuple(txn for txn in aborted if txn.first_offset < end and txn.last_offset >= first)


def _range(
    log: ReadOnlyFile, cuts: SplitPoints, index: str | None, time_index: str | None, base: int, wanted: RecordFilter
) -> tuple[int, int]:
    """Return from which byte to which one there may be something wanted: nothing when they are the same."""
    start, end = start_position(log, index, time_index, base, wanted), log.size
    if start and not cuts.is_boundary(start):
        start = 0
    if (wanted.from_offset > base or wanted.from_time > LONG_MIN) and not _any_wanted(log, start, wanted):
        return start, start
    if index and base < wanted.to_offset < LONG_MAX:
        end = _end(log, cuts, position_of_offset(log, index, base, wanted.to_offset), wanted.to_offset)
    return start, max(start, end)


def _any_wanted(log: ReadOnlyFile, start: int, wanted: RecordFilter) -> bool:
    """Whether the headers allow anything that is requested; also True if there are many headers, or damage."""
    for number, header in enumerate(walk_headers(log, start)):
        if isinstance(header, Damage) or number == _MOST_HEADERS:
            return True
        if header.last_offset >= wanted.from_offset and header.max_timestamp >= wanted.from_time:
            return True
    return False


def _end(log: ReadOnlyFile, cuts: SplitPoints, start: int, to_offset: int) -> int:
    """Return where the first batch begins that has nothing below *to_offset*; the log's end where that is far off."""
    for number, header in enumerate(walk_headers(log, start)):
        if isinstance(header, Damage) or number == _MOST_HEADERS:
            break
        if header.base_offset >= to_offset and not header.is_wrapper:
            return header.position if cuts.is_boundary(header.position) else log.size
    return log.size


def pack_tasks(sizes: Sequence[int], target_bytes: int = TASK_BYTES, least: int = 1) -> list[list[int]]:
    """Share out things of these *sizes* (bytes) among tasks of about *target_bytes*; return each task's indexes.

    At least *least* tasks, as far as there are things; none is empty, each ascends.  Small things cost more than their
    bytes, so there are never many in a task for their size alone.
    """
    weights = [size + OPENING_BYTES for size in sizes]
    count = min(len(sizes), max(least, -(-sum(weights) // max(target_bytes, 1))))
    tasks: list[list[int]] = [[] for _ in range(count)]
    loads = [(0, number) for number in range(count)]  # a heap: the smallest load gets the largest remaining slice
    for i in sorted(range(len(sizes)), key=lambda i: -weights[i]):
        load, number = loads[0]
        tasks[number].append(i)
        heapq.heapreplace(loads, (load + weights[i], number))
    return [sorted(task) for task in tasks]
