"""Finds the index entries that make a broker skip records, by the headers of the log.

A start takes the indexes of a segment as they are, unless it recovers that segment.  A fetch begins at the position of
the last entry that is not above its offset.  If records from that offset on are before the position, or no batch begins
there, consumers and followers receive later records, or those of the next segment, without an error.  Kafka:
LogSegment.translateOffset, LocalLog.read.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Collection, Iterator
from typing import NamedTuple

from klog.base.errors import time_text
from klog.base.read_only import ReadOnlyFile
from klog.data_dir.partition import Partition, SegmentFiles
from klog.formats.damage import Damage
from klog.formats.index import OFFSET_ENTRY, TIME_ENTRY
from klog.formats.java_integers import LONG_MAX
from klog.formats.layout import Layout
from klog.kernel import SegmentSurvey, Window, offset_index_used, time_index_used
from klog.log.header_walk import walk_windows
from klog.log.index import content_before_zeros


def misleading_index(partition: Partition, start: int, rebuilt: Collection[int] = ()) -> str | None:
    """Return, in words, the first index entry that makes a fetch or a lookup by time begin behind records.

    None if there is none.  *start*: the log start offset; segments below it are not read.  *rebuilt*: base offsets of
    segments whose indexes the start makes again.  Raises UnreadableError.
    """
    found = (_wrong(partition, files, next_base) for files, next_base in _segments(partition, start, rebuilt))
    return next(filter(None, found), None)


def impossible_entry(partition: Partition, start: int, end: int, rebuilt: Collection[int] = ()) -> str | None:
    """Return, in words, the first index entry that leads beyond its log or backwards, to which no batch can belong.

    Logs are not read for it.  *end*: the log end offset; the rest is as in `misleading_index`.
    """
    for files, next_base in _segments(partition, start, rebuilt):
        content = _content(partition, files.offset_index, files.size, OFFSET_ENTRY)
        rest = _used(content, OFFSET_ENTRY, *offset_index_used(content, files.size)).rest
        if rest is not None and files.base_offset + rest[0] < min(next_base, end):
            return _leads(files, files.base_offset + rest[0], rest[1])
    return None


def _segments(partition: Partition, start: int, rebuilt: Collection[int]) -> Iterator[tuple[SegmentFiles, int]]:
    """Yield the segments from *start* on whose indexes stay as they are, with the base offset of the next one."""
    segments = partition.segments
    for files, next_base in zip(segments, [*(one.base_offset for one in segments[1:]), LONG_MAX], strict=False):
        if files.base_offset not in rebuilt and next_base > start:
            yield files, next_base


def rebuilt_by_recovery(partition: Partition, is_clean: bool) -> Collection[int]:
    """Return the base offsets of the segments that a start recovers, as far as the recovery point decides it."""
    bases = [one.base_offset for one in partition.segments]
    return () if is_clean else bases[max(bisect_right(bases, partition.recovery_point or 0) - 1, 0) :]


class _Used(NamedTuple):
    """The entries of an index in order; *rest*: the first entry behind them, *why* they end before it."""

    entries: bytes
    rest: tuple[int, ...] | None
    why: str


class SegmentIndexes:
    """The indexes of a segment, compared with its batches while these are read, from the first one on.

    *is_empty*: there is no entry to compare.  *next_base*: the base offset of the next segment.
    """

    def __init__(self, partition: Partition, files: SegmentFiles, next_base: int) -> None:
        offsets = _content(partition, files.offset_index, files.size, OFFSET_ENTRY)
        times = _content(partition, files.time_index, files.size, TIME_ENTRY)
        self.is_empty = not offsets and not times
        self._files = files
        self._index = _used(offsets, OFFSET_ENTRY, *offset_index_used(offsets, files.size))
        by_time = _used(times, TIME_ENTRY, *time_index_used(times))
        self._survey = SegmentSurvey(files.base_offset, next_base, self._index.entries, by_time.entries)

    def take(self, window: Window, first: int, end: int) -> None:
        """Take the batches of a window from row *first* up to *end*."""
        self._survey.walk(window, first, end)

    def take_damage(self, start: int, end: int) -> None:
        """Take a damaged part of the log, bytes; entries that lead into it count as right."""
        self._survey.damaged(start, end)

    def wrong(self) -> str | None:
        """Return the first entry that misleads, in words, once all batches were taken; None without one."""
        self._survey.finish()
        return _by_offset(self._files, self._survey, self._index) or _by_time(self._files, self._survey)


def _wrong(partition: Partition, files: SegmentFiles, next_base: int) -> str | None:
    indexes = SegmentIndexes(partition, files, next_base)
    if indexes.is_empty:
        return None
    with ReadOnlyFile(partition.file(files.log)) as log:
        for window in walk_windows(log):
            if isinstance(window, Damage):  # the rest of the segment is unknown
                indexes.take_damage(window.place.position or 0, log.size)
            else:
                indexes.take(window, 0, window.count)
    return indexes.wrong()


def _content(partition: Partition, name: str | None, log_bytes: int, layout: Layout) -> bytes:
    """Return the entries that are not zeros, over which no search goes wrong; an index is never larger than its log."""
    if name is None or _is_empty(partition.file(name)):
        return b""
    with ReadOnlyFile(partition.file(name)) as file:
        file.size = min(file.size, log_bytes)
        content, _ = content_before_zeros(file, layout.size)
    zeros = bytes(layout.size)
    if zeros not in content:
        return content
    entries = (content[at : at + layout.size] for at in range(0, len(content), layout.size))
    return b"".join(one for one in entries if one != zeros)


def _is_empty(path: str) -> bool:
    try:
        return os.stat(path).st_size == 0
    except OSError:
        return False  # to open it shows why


def _used(content: bytes, layout: Layout, count: int, why: str) -> _Used:
    rest = content[count * layout.size :][: layout.size]
    return _Used(content[: count * layout.size], layout.read(rest) if len(rest) == layout.size else None, why)


def _by_offset(files: SegmentFiles, survey: SegmentSurvey, index: _Used) -> str | None:
    wrong = [(offset, at) for event, at, _, offset in survey.events if event in ("index no batch", "index skips")]
    if index.rest is not None:
        relative, position = index.rest
        wrong.append((files.base_offset + relative, position))
    for offset, position in wrong:
        if offset <= survey.last_offset:
            return _leads(files, offset, position)
    return None


def _leads(files: SegmentFiles, offset: int, position: int) -> str:
    return (
        f"{files.offset_index} leads from offset {offset} to position {position}, behind records from there on"
        " or into a batch: fetches skip records without an error"
    )


def _by_time(files: SegmentFiles, survey: SegmentSurvey) -> str | None:
    for event, _, _, largest in survey.events:
        if event == "time misses":
            return f"{files.time_index} leads behind records with timestamps up to {time_text(largest)}"
    return None
