"""Scans a log from header to header: a summary of it, and where it ends.

Only headers are read, no content and no checksum, so this is cheap on any log: of large entries little more than their
first 61 bytes come from the disk.  LogReader reads whole batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from klog.errors import KlogError
from klog.files.read_only import ReadableLog, ReadOnlyFile
from klog.formats.damage import Damage, DamageKind
from klog.formats.header import HEADER_BYTES, Header, read_header
from klog.location import Location
from klog.log.index import header_at, offset_entries

_WINDOW_BYTES = 64 << 10
_SMALL_WINDOW_BYTES = 4 << 10
_TRIES = 8


class LogEnd(NamedTuple):
    """Where a log ends, by the headers of its last segment.

    *offset* is the next to be written, *position* where in the last segment that would be, in bytes.  *damage* is what
    stands there instead of the end of the file, None for nothing.  *walked_from* is where the walk began.
    """

    offset: int
    position: int
    damage: Damage | None
    walked_from: int


def walk_headers(log: ReadableLog, position: int = 0) -> Iterator[Header | Damage]:
    """Yield the header of each entry from *position* on; what is no entry is a Damage and ends it.

    Raises UnreadableError.
    """
    window, start, seen, expected, end = b"", position, 0, None, log.size
    while position < end:
        at = position - start
        if at + min(HEADER_BYTES, end - position) > len(window):
            size = _WINDOW_BYTES if at < seen * _SMALL_WINDOW_BYTES else _SMALL_WINDOW_BYTES
            window, start, at, seen = log.read(position, size), position, 0, 0
            if len(window) < size:  # near the end, which may have come nearer meanwhile
                end = min(end, position + len(window))
                continue
        header = read_header(window, at, position, end - position)
        if isinstance(header, DamageKind):
            yield _damage(header, Location(log.path, position, expected), end - position, window[at:])
            return
        yield header
        seen += 1
        position += header.size
        expected = header.last_offset + 1


def _damage(kind: DamageKind, place: Location, left: int, there: bytes) -> Damage:
    if not there.strip(b"\0"):
        return Damage(DamageKind.ZEROED_TAIL, place, f"{left} bytes that begin with zeros", left)
    return Damage(kind, place, f"{left} bytes that begin with no whole entry", left)


def find_log_end(log_path: str, index_path: str | None, base_offset: int) -> LogEnd:
    """Return where the log ends whose last segment this is: a walk from the last index entry but one that can be right.

    The log answers, not the index: one that is missing, short, full of zeros or of garbage only makes the walk longer.
    Raises UnreadableError.  Kafka: LogSegment.readNextOffset, which trusts the index.
    """
    with ReadOnlyFile(log_path) as log:
        start = _start_of_walk(log, index_path, base_offset) if index_path else 0
        end = _walk_to_end(log, base_offset, start)
        if start and end.damage and end.damage.kind is not DamageKind.ZEROED_TAIL:
            # An entry can lead into the middle of a batch and find there what looks like a header.
            end = _walk_to_end(log, base_offset, 0)
    return end


def _walk_to_end(log: ReadableLog, base_offset: int, start: int) -> LogEnd:
    offset, position, damage = base_offset, start, None
    for found in walk_headers(log, start):
        if isinstance(found, Damage):
            damage = found
        else:
            offset, position = found.last_offset + 1, found.position + found.size
    return LogEnd(offset, position, damage, start)


def _start_of_walk(log: ReadableLog, index_path: str, base_offset: int) -> int:
    """Return the position of the last index entry but one at which a fitting batch begins, 0 when there is none.

    Not of the last: inside the last batch of a log there may be a copy of another that reaches to its very end, and
    from there all would look well.
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
