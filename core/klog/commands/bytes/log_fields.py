"""The fields of a whole log, and of the one batch at a position of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from klog.base.errors import UnreadableError
from klog.base.read_only import ReadOnlyFile
from klog.commands.bytes.batch_fields import Extent, batch_fields
from klog.commands.bytes.byte_field import BytePart, ByteSource, Fields, plain
from klog.commands.bytes.log_context import LogContext, checksum
from klog.commands.bytes.message_fields import message_fields, unknown_fields
from klog.formats.batch import CRC_START, ENTRY, BatchFacts
from klog.formats.damage import Damage, DamageKind
from klog.formats.entry_header import HEADER_BYTES, read_header
from klog.formats.message_set import CRC_START as MESSAGE_CRC_START
from klog.formats.names import CLUSTER_METADATA, FileKind, FileName, parse_partition


class LogStretch(NamedTuple):
    """Bytes *start* to *end* of a log: a batch (*damage* None), or a stretch that is none."""

    start: int
    end: int
    damage: Damage | None = None


def log_context(source: ReadOnlyFile, name: FileName, is_full: bool) -> LogContext:
    """Return the context of a log: its topic is known from its directory, or from its kind."""
    if name.kind in (FileKind.KRAFT_SNAPSHOT, FileKind.BOOTSTRAP):
        return LogContext(source, CLUSTER_METADATA, None, is_full)
    partition = parse_partition(os.path.basename(os.path.dirname(os.path.abspath(source.path))))
    return LogContext(source, partition.topic if partition else None, name.offset, is_full)


def log_fields(log: LogContext) -> Fields:
    """Yield the fields of the whole log, a batch at a time."""
    log.previous = None
    for stretch in stretches(log.source):
        yield from stretch_fields(log, stretch)


def stretches(source: ReadOnlyFile, start: int = 0) -> Iterator[LogStretch]:
    """Yield the batches of a log from byte *start* on, and the stretches between them; they cover all bytes once."""
    from klog.log.segment import Segment

    at = start
    for found in Segment(source.path, bounded=False).batches(start):
        if isinstance(found, Damage):
            damage, begin, size = found, found.place.position or 0, found.size or 0
        else:
            damage, begin, size = None, found.position, found.size
        if begin > at:
            yield LogStretch(at, min(begin, source.size), _unclaimed(source, at))
        begin, end = max(begin, at), min(begin + size, source.size)
        if end > begin:
            yield LogStretch(begin, end, damage)
            at = end
    if at < source.size:
        yield LogStretch(at, source.size, _unclaimed(source, at))


def _unclaimed(source: ReadOnlyFile, at: int) -> Damage:
    from klog.formats.damage import Location

    return Damage(DamageKind.BAD_LENGTH, Location(source.path, at), "no batch begins there")


def stretch_fields(log: LogContext, stretch: LogStretch) -> Fields:
    """Yield the fields of a batch, or of damage as far as the structure carries."""
    source, at, damage = log.source, stretch.start, stretch.damage
    part = BytePart(damage.kind.value if damage else "batch", damage.detail if damage else None)
    fields = _stretch(log, stretch)
    try:
        for field in _unfinished(fields) if stretch.start in log.harmless else fields:
            yield field
            at = field.end
    except UnreadableError as error:
        yield from plain(source, at, stretch.end, part, str(error))
    log.previous = None if damage else _header(source, stretch.start)


def _unfinished(fields: Fields) -> Fields:
    """Yield the fields of a batch that a broker may be writing, or of preallocated zeros: they have no problem."""
    before = part = None
    for field in fields:
        if part is None or field.part is not before:
            before, part = field.part, BytePart(f"{field.part.title}, unfinished")
        yield field._replace(part=part, problem=None, wrong_bit=None)


def _header(source: ReadOnlyFile, start: int) -> BatchFacts | None:
    try:
        found = read_header(source.read(start, HEADER_BYTES), 0, start, source.size - start)
    except UnreadableError:
        return None
    return found if isinstance(found, BatchFacts) else None


def _stretch(log: LogContext, stretch: LogStretch) -> Fields:
    source, (start, end, damage) = log.source, stretch
    extent = Extent(start, end, source.size)
    if damage is not None and damage.kind in (DamageKind.ZEROED_TAIL, DamageKind.UNREADABLE):
        part = BytePart(f"{damage.kind.value} of {end - start} bytes", damage.detail)
        yield from plain(source, start, end, part, damage.detail, damage.kind.value)
        return
    head = source.read(start, min(ENTRY.size, end - start))
    magic = ENTRY.read(head)[3] if len(head) == ENTRY.size else -1
    if magic == 2:
        yield from batch_fields(log, extent)
    elif magic in (0, 1):
        yield from message_fields(log, source, extent)
    else:
        kind = damage.kind.value if damage else "bytes"
        part = BytePart(f"{end - start} bytes", f"{kind}: {damage.detail if damage else ''}".rstrip(": "))
        yield from unknown_fields(log, extent, part, "0, 1 or 2 was expected")


# one batch


def stretch_at(source: ReadOnlyFile, position: int, index: str | None) -> tuple[LogStretch | None, BatchFacts | None]:
    """Return the stretch with byte *position*, and the header of the batch before it if that is known.

    The walk begins at a batch that the offset index *index* names, if the log confirms that.
    """
    from klog.log.header_walk import walk_headers

    before = None
    try:
        for found in walk_headers(source, _walk_start(source, position, index)):
            if isinstance(found, Damage):
                break
            if found.position + found.size > position:
                if not _holds(source, found):
                    break
                return LogStretch(found.position, found.position + found.size), before
            before = found
    except UnreadableError:
        pass  # a byte before the position; the search below leaves it out
    start = before.position if before is not None and _holds(source, before) else 0
    return next((one for one in stretches(source, start) if one.start <= position < one.end), None), None


def _walk_start(source: ReadOnlyFile, position: int, index: str | None) -> int:
    """Return the position of a batch at or before *position* from which a walk is short."""
    if index is None or position == 0:
        return 0
    from klog.formats.index import OFFSET_ENTRY
    from klog.log.index import IndexEntries, leads_to

    with IndexEntries(index, OFFSET_ENTRY) as entries:
        slot = entries.search(position - 1, column=1).slot
        found = entries[slot][1] if slot >= 0 else 0
        before = entries[slot - 1][1] if slot > 0 else 0
    return found if 0 < found < position and leads_to(source, before, found) else 0


def _holds(source: ByteSource, header: BatchFacts) -> bool:
    start = header.position + (CRC_START if header.magic == 2 else MESSAGE_CRC_START)
    return checksum(source, start, header.position + header.size, header.magic == 2) == header.crc
