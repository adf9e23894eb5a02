"""The fields of a message of the old formats, magic 0 and 1; the messages in a wrapper are inside of its value."""

from __future__ import annotations

from collections.abc import Iterator

from klog.commands.bytes.batch_fields import Extent, compressed, crc_note, size_note, with_bit
from klog.commands.bytes.byte_field import (
    BytePart,
    ByteSource,
    ContentBytes,
    Fields,
    MemorySource,
    cut_fields,
    layout_fields,
    plain,
)
from klog.commands.bytes.content_fields import ContentOwner, content_fields
from klog.commands.bytes.log_context import LogContext, checksum
from klog.commands.bytes.record_fields import limited
from klog.formats.batch import CODEC_BITS, CODEC_NAMES, ENTRY, LOG_APPEND_TIME_BIT, OVERHEAD
from klog.formats.layout import Layout
from klog.formats.message_set import CRC_START, MESSAGE_V0, MESSAGE_V1, MESSAGE_VALUE


class _Message:
    """A message in *extent* of *source*.

    *base*: the offset that the messages of its wrapper count from; None: it is in none.
    """

    def __init__(self, log: LogContext, source: ByteSource, extent: Extent, base: int | None) -> None:
        self.log, self.source, self.extent, self.base = log, source, extent, base
        self.is_inner = base is not None  # and cannot be a wrapper itself
        self.layout: Layout = MESSAGE_V0
        self.values: dict[str, int] = {}

    def read(self) -> bool:
        """Read the header; whether all of it is there."""
        head = self.source.read(self.extent.start, min(MESSAGE_V1.size, self.extent.end - self.extent.start))
        if len(head) > ENTRY.size and ENTRY.read(head)[3] == 1:
            self.layout = MESSAGE_V1
        if len(head) < self.layout.size:
            return False
        self.values = dict(zip(self.layout.names, self.layout.read(head), strict=True))
        return True

    @property
    def offset(self) -> int:
        return self.values["offset"] + (self.base or 0)

    @property
    def claimed(self) -> int:
        return self.values["size"] + OVERHEAD

    @property
    def codec(self) -> int:
        return self.values["attributes"] & CODEC_BITS

    @property
    def stop(self) -> int:
        """The end of the message, as far as it is in the extent."""
        start, end = self.extent.start, self.extent.end
        return start + self.claimed if self.layout.size <= self.claimed <= end - start else end


def message_fields(log: LogContext, source: ByteSource, extent: Extent, base: int | None = None) -> Fields:
    """Yield the fields of the message in *extent*, whose bytes are all covered; *base*: see _Message."""
    message = _Message(log, source, extent, base)
    start, end = extent.start, extent.end
    if not message.read():
        yield from cut_fields(source, message.layout, start, end, BytePart("message", "cut inside of its header"))
        return
    stop, values = message.stop, message.values
    is_known = stop == start + message.claimed
    computed = checksum(source, start + CRC_START, stop, False) if is_known else None
    holds = computed == values["crc"]
    bit = None if holds or message.is_inner else log.wrong_bit(start, end)
    part = BytePart(_title(message), None if holds else "CRC does not match" if is_known else "torn")
    yield from with_bit(_fields(message, part, computed), bit)
    yield from plain(source, stop, end, part, "bytes behind the message, in which no other one begins")


def _title(message: _Message) -> str:
    kind = "wrapper" if message.codec else "message"
    return f"{kind} of {message.claimed} bytes, offset {message.offset}, format v{message.values['magic']}"


def _fields(message: _Message, part: BytePart, computed: int | None) -> Fields:
    """Yield header, key and value."""
    source, start, stop = message.source, message.extent.start, message.stop
    smallest = message.layout.size + MESSAGE_VALUE.size
    notes = {
        "offset": _offset_note(message),
        "size": size_note(message.claimed, smallest, message.extent),
        "crc": crc_note(message.values["crc"], computed),
        "attributes": _attributes(message),
    }
    yield from layout_fields(source, message.layout, start, stop, part, notes)
    owner = ContentOwner(message.log.topic, False, message.log.schemas)
    key_at, size = start + message.layout.size, message.values["key_length"]
    key_end = key_at + max(size, 0)
    if key_end > stop:
        yield from plain(source, key_at, stop, part, f"a key of {size} bytes, but only {stop - key_at} left")
        return
    yield from content_fields(_content(source, "key", size, key_at, key_end), part, owner)
    lengths = list(layout_fields(source, MESSAGE_VALUE, key_end, stop, part))
    if lengths and message.codec and int(lengths[0].value or 0) <= 0:
        lengths[0] = lengths[0]._replace(problem="a wrapper without messages")
    yield from lengths
    value_at = lengths[0].end if lengths else key_end
    size = int(lengths[0].value or 0) if lengths else 0
    value_end = value_at + max(size, 0)
    if not lengths or value_end > stop:
        yield from plain(source, value_at, stop, part, f"a value of {size} bytes, but only {stop - value_at} left")
        return
    yield from _value(message, part, owner, _content(source, "value", size, value_at, value_end))
    yield from plain(source, value_end, stop, part, "bytes behind the value")


def _offset_note(message: _Message) -> tuple[str, str | None]:
    if not message.is_inner:
        return "", message.log.problems.get(message.extent.start)
    return f"{message.values['offset']} → {message.offset}" if message.base else "", None


def _attributes(message: _Message) -> tuple[str, str | None]:
    codec = message.codec
    words = [("uncompressed", *CODEC_NAMES[1:])[codec] if codec < len(CODEC_NAMES) else f"codec {codec}"]
    if message.layout is MESSAGE_V1:
        words.append("LogAppendTime" if message.values["attributes"] & LOG_APPEND_TIME_BIT else "CreateTime")
    problem = "a message in a wrapper is not compressed itself" if codec and message.is_inner else None
    return ", ".join(words), "no such codec" if codec >= len(CODEC_NAMES) else problem


def _content(source: ByteSource, name: str, size: int, at: int, end: int) -> ContentBytes:
    return ContentBytes(source, name, f"{name} of the message", at, at if size >= 0 else None, end)


def _value(message: _Message, part: BytePart, owner: ContentOwner, found: ContentBytes) -> Fields:
    """Yield the value, with the messages inside of it if it is compressed."""
    if not message.codec or message.is_inner or found.end == found.start:
        yield from content_fields(found, part, owner)
        return
    log, magic = message.log, message.values["magic"]
    extent = Extent(found.start, found.end, found.end)
    yield compressed(log, extent, message.codec, magic, "value", part, lambda memory: _inner(message, memory))


def _inner(wrapper: _Message, memory: MemorySource) -> Fields:
    return limited(_messages(wrapper, memory), wrapper.log.most_fields, memory.size)


def _messages(wrapper: _Message, memory: MemorySource) -> Fields:
    """Yield the fields of the messages in a wrapper."""
    base = _base(wrapper, memory)
    for start, end, _ in _entries(memory):
        yield from message_fields(wrapper.log, memory, Extent(start, end, memory.size), base)


def _base(wrapper: _Message, memory: MemorySource) -> int:
    """Return the offset that those in a wrapper count from: in v1 the last one is the wrapper's.

    It is 0 if they are absolute, and for more messages than are shown.
    """
    if wrapper.layout is not MESSAGE_V1 or wrapper.values["offset"] <= 0:
        return 0
    last = 0
    for number, entry in enumerate(_entries(memory)):
        last = entry[2]
        if number > wrapper.log.most_fields:
            return 0
    return wrapper.values["offset"] - last


def _entries(memory: MemorySource) -> Iterator[tuple[int, int, int]]:
    """Yield begin, end and offset of each message; the last one reaches to the end of the bytes."""
    start = 0
    while start < memory.size:
        head = memory.read(start, ENTRY.size)
        offset, size = ENTRY.read(head)[:2] if len(head) == ENTRY.size else (0, 0)
        is_whole = ENTRY.size <= size + OVERHEAD <= memory.size - start
        end = start + size + OVERHEAD if is_whole else memory.size
        yield start, end, offset
        start = end


def unknown_fields(log: LogContext, extent: Extent, part: BytePart, problem: str) -> Fields:
    """Yield the beginning that all entries have in common, of one whose format is not known, and the rest."""
    start, end = extent.start, extent.end
    if end - start < ENTRY.size:
        yield from cut_fields(log.source, ENTRY, start, end, part)
        return
    *fields, magic = layout_fields(log.source, ENTRY, start, end, part)
    yield from fields
    yield magic._replace(problem=problem)
    yield from plain(log.source, magic.end, end, part)
