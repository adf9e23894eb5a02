"""The fields of the records of a record batch, one after the other, as `klog.formats.record` declares them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.commands.bytes.byte_field import (
    ByteCursor,
    ByteField,
    BytePart,
    ByteSource,
    ContentBytes,
    Fields,
    WrongBytesError,
    plain,
)
from klog.commands.bytes.content_fields import ContentOwner, content_fields
from klog.formats.batch import LOG_APPEND_TIME_BIT, BatchFacts
from klog.formats.layout import Field
from klog.formats.record import RECORD, RECORD_HEADER

if TYPE_CHECKING:
    from klog.commands.bytes.framing_fields import FramedContents

_HEAD_FIELDS = [field.type for field in RECORD].index("bytes")
"""The number of fields in front of the key."""


class RecordsOrigin:
    """The batch that records belong to: its topic and its header.  *most*: the largest number of fields to yield.

    *schemas*: keys and values are decoded by these.
    """

    def __init__(self, topic: str | None, header: BatchFacts, most: int, schemas: FramedContents | None = None) -> None:
        self.topic, self.header, self.most, self.schemas = topic, header, most, schemas
        self.are_missing = self.is_broken = False
        self.seen, self.last_delta = 0, -1


def record_fields(source: ByteSource, start: int, end: int, origin: RecordsOrigin, batch: BytePart) -> Fields:
    """Yield the fields of all records in bytes *start* to *end*; the last one has the problem if there are too few."""
    pending: ByteField | None = None
    for field in limited(_records(source, start, end, origin, batch), origin.most, end):
        if pending is not None:
            yield pending
        pending = field
    if pending is not None:
        missing = f"the header counts {origin.header.records_count} records, the batch has {origin.seen}"
        yield pending._replace(problem=missing if origin.are_missing else pending.problem)


def limited(fields: Fields, most: int, end: int) -> Fields:
    """Yield at most so many of *fields*, which reach to *end*, and one for all the others."""
    for shown, field in enumerate(fields):
        if shown == most:
            text = f"{end - field.position} bytes of further fields: --full shows them"
            yield from plain(field.source, field.position, end, field.part, text=text)
            return
        yield field


def _records(source: ByteSource, start: int, end: int, origin: RecordsOrigin, batch: BytePart) -> Fields:
    cursor = ByteCursor(source, start, end)
    while origin.seen < origin.header.records_count:
        if cursor.position >= end:
            origin.are_missing = not origin.is_broken
            return
        cursor.end = end
        yield from _record(cursor, origin)
        origin.seen += 1
    yield from plain(source, cursor.position, end, batch, "bytes behind the last record of the batch")


def _record(cursor: ByteCursor, origin: RecordsOrigin) -> Fields:
    """Yield the fields of the record at the cursor; it moves to the next one, or to its end if that is not known."""
    source, start, end = cursor.source, cursor.position, cursor.end
    head, problem = _head(cursor, BytePart(f"record {origin.seen}", "its structure is broken"))
    if problem is not None:
        yield from head
        yield from plain(source, head[-1].end if head else start, end, head[0].part if head else _BROKEN, problem)
        cursor.position, origin.is_broken = end, True
        return
    length, offset_delta = head[0], head[-1]
    stop = length.end + int(length.value or 0)
    offset = origin.header.base_offset + int(offset_delta.value or 0)
    is_whole = length.end < stop <= end and offset_delta.end <= stop
    where = f"{start}–{stop - 1}" if is_whole else f"from {start} on"
    part = BytePart(f"record {origin.seen}, offset {offset}, {where}", None if is_whole else "its length cannot be")
    if not is_whole:
        left = f"only {end - length.end} left" if stop > end else "its fields take more"
        head[0] = length._replace(problem=f"a length of {length.value}, but {left}")
    head[-1] = offset_delta._replace(text=f"{offset_delta.value} → {offset}", problem=_delta_problem(head[-1], origin))
    head = [field._replace(problem=field.problem or _time_problem(field, origin.header)) for field in head]
    yield from (field._replace(part=part) for field in head)
    cursor.end = stop if is_whole else end
    origin.is_broken = not is_whole
    yield from _rest(cursor, part, _owner(cursor, origin), is_whole)


def _owner(cursor: ByteCursor, origin: RecordsOrigin) -> ContentOwner:
    """Return the owner of the contents that follow the cursor."""
    owner = ContentOwner(origin.topic, origin.header.is_control, origin.schemas)
    if origin.schemas is not None and not owner.has_schema:
        from klog.commands.bytes.framing_fields import schema_headers

        owner.headers = schema_headers(cursor)
    return owner


_BROKEN = BytePart("record", "its structure is broken")


def _head(cursor: ByteCursor, part: BytePart) -> tuple[list[ByteField], str | None]:
    """Return the numbers in front of the key, and the problem with the one behind them."""
    found: list[ByteField] = []
    try:
        found.extend(_number(cursor, field, part) for field in RECORD[:_HEAD_FIELDS])
    except WrongBytesError as error:
        return found, str(error)
    return found, None


def _number(cursor: ByteCursor, field: Field, part: BytePart) -> ByteField:
    at = cursor.position
    value = cursor.scalar(field.type)
    return ByteField(cursor.source, at, cursor.position - at, field.name, value, field.meaning, part)


def _delta_problem(field: ByteField, origin: RecordsOrigin) -> str | None:
    before, origin.last_delta = origin.last_delta, int(field.value or 0)
    if not 0 <= origin.last_delta <= origin.header.last_offset_delta:
        return f"the offsets of the batch are {origin.header.base_offset}–{origin.header.last_offset}"
    return None if origin.last_delta > before else f"not above that of the record before it, {before}"


def _time_problem(field: ByteField, header: BatchFacts) -> str | None:
    if field.name != "timestamp_delta" or header.attributes & LOG_APPEND_TIME_BIT:
        return None
    is_late = header.base_timestamp + int(field.value or 0) > header.max_timestamp
    return "later than the max timestamp of the batch" if is_late else None


def _rest(cursor: ByteCursor, part: BytePart, owner: ContentOwner, is_whole: bool) -> Fields:
    """Yield the fields from the key on, up to the end of the cursor; *is_whole*: the record ends there."""
    at, end = cursor.position, cursor.end
    try:
        for field in RECORD[_HEAD_FIELDS:]:
            at = cursor.position
            if field.type == "bytes":
                yield from content_fields(_content(cursor, field), part, owner)
                continue
            count = _number(cursor, field, part)
            yield count._replace(problem="it is below zero" if int(count.value or 0) < 0 else None)
            for _ in range(int(count.value or 0)):
                side = None
                for inner in RECORD_HEADER:
                    at = cursor.position
                    found = _content(cursor, inner)
                    yield from _of_header(found, part, owner, side)
                    side = owner.side_of(found)
        at = cursor.position
    except WrongBytesError as error:
        yield from plain(cursor.source, at, end, part, str(error) if is_whole else None)
    else:
        yield from plain(cursor.source, at, end, part, "bytes behind the last field of the record")
    cursor.position = end


def _content(cursor: ByteCursor, field: Field) -> ContentBytes:
    at = cursor.position
    size = cursor.varint()
    content_at = cursor.position
    cursor.skip(max(size, 0))
    return ContentBytes(cursor.source, field.name, field.meaning, at, None if size < 0 else content_at, cursor.position)


def _of_header(found: ContentBytes, part: BytePart, owner: ContentOwner, side: str | None) -> Fields:
    """Yield the field of the key or the value of a header; those of a value that names the schema of *side*."""
    if side is not None and owner.schemas is not None:
        yield from owner.schemas.header_fields(found, part, side)
        return
    is_null_key = found.content_at is None and found.name == RECORD_HEADER[0].name
    yield found.field(part)._replace(problem="the key of a header is null" if is_null_key else None)
