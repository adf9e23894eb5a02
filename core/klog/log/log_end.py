"""Finds the end of a log, by the headers of its last segment."""

from __future__ import annotations

from typing import NamedTuple

from klog.base.errors import KlogError
from klog.base.read_only import ReadableLog, ReadOnlyFile
from klog.formats.batch import BatchFacts
from klog.formats.damage import Damage, DamageKind
from klog.log.header_walk import header_at, walk_windows
from klog.log.index import offset_entries

_TRIES = 8


class LogEnd(NamedTuple):
    """The end of a log, found by the headers of its last segment.

    *offset* is the next to be written, *position* the place of its batch in the last segment, in bytes.  *damage*
    describes the bytes that prevent the walk from reaching the end of the file, None without damage.  *walked_from* is
    the first position of the walk; *last*: the last entry that it passed, None if it passed none.
    """

    offset: int
    position: int
    damage: Damage | None
    walked_from: int
    last: BatchFacts | None = None


def find_log_end(log_path: str, index_path: str | None, base_offset: int) -> LogEnd:
    """Return the end of the log with this last segment: a walk from the last index entry but one that can be right.

    The log answers, not the index: one that is missing, short, full of zeros or of garbage only makes the walk longer.
    Raises UnreadableError.  Kafka: LogSegment.readNextOffset, which trusts the index.
    """
    with ReadOnlyFile(log_path) as log:
        start = _start_of_walk(log, index_path, base_offset) if index_path else 0
        end = _walk_to_end(log, base_offset, start)
        if start and end.damage and end.damage.kind is not DamageKind.ZEROED_TAIL:
            # An entry can point into the middle of a batch, to bytes that look like a header.
            end = _walk_to_end(log, base_offset, 0)
    return end


def _walk_to_end(log: ReadableLog, base_offset: int, start: int) -> LogEnd:
    offset, position, damage, last = base_offset, start, None, None
    for found in walk_windows(log, start):
        if isinstance(found, Damage):
            damage = found
        else:
            last = found.batch(found.count - 1)
            offset, position = last.last_offset + 1, last.position + last.size
    return LogEnd(offset, position, damage, start, last)


def _start_of_walk(log: ReadableLog, index_path: str, base_offset: int) -> int:
    """Return the position of the last index entry but one at which a fitting batch begins, 0 without such an entry.

    The last entry is not used: the last batch of a log may contain a copy of another batch that ends where it ends, and
    a walk from there would find no fault.
    """
    fitting = 0
    try:
        with offset_entries(index_path, log.size) as entries:
            for slot in range(entries.count - 1, max(entries.count - 1 - _TRIES, -1), -1):
                relative, position = entries[slot]
                header = header_at(log, position) if relative > 0 and position > 0 else None
                fitting += header is not None and base_offset <= header.base_offset <= base_offset + relative
                if fitting == 2:
                    return position
    except KlogError:
        pass  # a walk from the start needs no index
    return 0
