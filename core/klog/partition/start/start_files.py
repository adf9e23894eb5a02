"""The input of a broker's start, the files of a partition during it, and its result, all in memory.

A file that exists afterwards is either one that exists now, perhaps truncated or under another name
(`StoredContent`), or new bytes.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from klog.change.partition_plan.contents import Content, FileRange, tail
from klog.formats.index import OFFSET_ENTRY
from klog.log.index import IndexEntries

NOTHING: Mapping[str, Any] = MappingProxyType({})


class StartState(NamedTuple):
    """The facts that a broker has before it opens the partition.

    *clean*: it was stopped cleanly.  *recovery_point*, *log_start*: from the checkpoints, 0 without an entry.
    """

    clean: bool = False
    recovery_point: int = 0
    log_start: int = 0


class SegmentCut(NamedTuple):
    """A segment that lost its end: its base offset, the offset that becomes its end, the bytes it has then and had."""

    base: int
    offset: int
    size: int
    before: int


class StartOutcome(NamedTuple):
    """The result of a start and a clean stop for a partition.

    *fails*: the reason why the broker does not complete the start; the other fields are then invalid except *reason*
    and *offline*, which are those of the FailsError.  *logs*: the pieces of each log, *files*: every other file of the
    log (none, if the settings do not ask for them), both by name.  *epochs*: the new `leader-epoch-checkpoint`, None if
    it is unchanged.  *cuts*, *dropped*: the lost parts, by base offset.  *recovered*: base offsets of the segments that
    were read.  *highest_offset*: the greatest offset in the last segment, None if it was not recovered.
    """

    fails: str | None = None
    logs: Mapping[str, tuple[FileRange, ...]] = NOTHING
    files: Mapping[str, Content] = NOTHING
    epochs: bytes | None = None
    cuts: tuple[SegmentCut, ...] = ()
    dropped: tuple[int, ...] = ()
    recovered: tuple[int, ...] = ()
    log_start: int = 0
    log_end: int = 0
    highest_offset: int | None = None
    reason: str | None = None
    offline: bool = False


class ReadSettings(NamedTuple):
    """The settings of a broker that decide about indexes, and the number of threads that read a large log.

    *interval*: index.interval.bytes; *index_bytes*: segment.index.bytes.  *with_files*: the outcome has the content of
    every file; otherwise the indexes of thousands of recovered segments take no memory.
    """

    interval: int = 4096
    index_bytes: int = 10 << 20
    jobs: int = 1
    with_files: bool = True


class FailsError(Exception):
    """The broker would not complete the start: an exception ends it or takes the log dir offline.

    *reason*: the id of the cause, as in the doctor's table.  *offline*: only the log dir becomes offline, because the
    exception is an IOException; the broker continues with the others.
    """

    def __init__(self, message: str, reason: str = "log-refused", offline: bool = False) -> None:
        super().__init__(message)
        self.reason, self.offline = reason, offline


class StartSegment:
    """A segment during a start.

    *log*: the pieces of its log; more than one only for the parts of a segment that was split.  *next_offset*: None
    until it is known.  *highest_offset*: the greatest offset of the batches that the recovery kept, None without one.
    *is_open*: its offset index was read, and a clean stop therefore trims it.
    """

    def __init__(self, base: int, log: tuple[FileRange, ...]) -> None:
        self.base = base
        self.log = log
        self.offset_index: Content | None = None
        self.time_index: Content | None = None
        self.txn_index: Content | None = None
        self.next_offset: int | None = None
        self.highest_offset: int | None = None
        self.is_open = False

    @property
    def size(self) -> int:
        """Bytes of the log."""
        return sum(piece.end - piece.start for piece in self.log)


def index_floor(folder: str, index: Content | None, base: int, offset: int) -> tuple[int, int]:
    """Return the entry of an offset index with the greatest offset up to *offset*: (offset, position).

    The search is a broker's, which relies on the order.  Without an entry the result is (base, 0).  Kafka:
    OffsetIndex.lookup.
    """
    if isinstance(index, bytes):
        return _floor_of_entries(index, base, offset)
    if index is None:
        return base, 0
    with IndexEntries(os.path.join(folder, index.name), OFFSET_ENTRY, None) as entries:
        slot = entries.search(offset - base).slot
        relative, position = entries[slot] if slot >= 0 else (0, 0)
    return base + relative, position


def _floor_of_entries(index: bytes, base: int, offset: int) -> tuple[int, int]:
    """Return the same of a rebuilt index, whose entries ascend."""
    count = len(index) // OFFSET_ENTRY.size

    def relative(slot: int) -> int:
        return OFFSET_ENTRY.read(index[slot * OFFSET_ENTRY.size : (slot + 1) * OFFSET_ENTRY.size])[0]

    slot = bisect_right(range(count), offset - base, key=relative) - 1
    if slot < 0:
        return base, 0
    found, position = OFFSET_ENTRY.read(index[slot * OFFSET_ENTRY.size : (slot + 1) * OFFSET_ENTRY.size])
    return base + found, position


def index_last_offset(folder: str, index: Content | None, base: int) -> int:
    """Return the offset of the last entry of an offset index, zeros or not; the base without one."""
    content = tail(folder, index, OFFSET_ENTRY.size)
    return base + OFFSET_ENTRY.read(content)[0] if content else base
