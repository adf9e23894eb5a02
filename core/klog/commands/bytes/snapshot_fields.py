"""The fields of a producer snapshot."""

from __future__ import annotations

from klog.commands.bytes.batch_fields import crc_note, with_bit
from klog.commands.bytes.byte_field import (
    BytePart,
    Fields,
    MemorySource,
    Notes,
    WrongBit,
    cut_fields,
    layout_fields,
    plain,
)
from klog.commands.bytes.log_context import bit_text
from klog.formats.producer_snapshot import CRC_START, HEADER, PRODUCER, VERSION, read_snapshot


def snapshot_fields(content: bytes) -> Fields:
    """Yield the fields of a snapshot with this content."""
    from klog.kernel import crc32c

    source, end = MemorySource(content), len(content)
    found = read_snapshot(content, crc32c)
    part = BytePart("header", found.problem and found.problem.strip())
    if len(content) < HEADER.size:
        yield from cut_fields(source, HEADER, 0, end, part)
        return
    stored = int.from_bytes(content[HEADER.offsets["crc"] : CRC_START], "big")
    computed = crc32c(content[CRC_START:])
    version, _, count = HEADER.read(content)
    room = (end - HEADER.size) // PRODUCER.size
    notes: Notes = {
        "version": ("", None if version == VERSION else f"{VERSION} was expected"),
        "crc": crc_note(stored, computed),
        "count": ("", None if 0 <= count <= room else f"the file has room for {room}"),
    }
    bit = _bit(content, stored, computed) if stored != computed else None
    yield from with_bit(_all(source, end, part, notes), bit)


def _all(source: MemorySource, end: int, part: BytePart, notes: Notes) -> Fields:
    at = 0
    count = 0
    for field in layout_fields(source, HEADER, 0, end, part, notes):
        yield field
        at = field.end
        count = int(field.value or 0) if field.name == "count" else 0
    number = 0
    while number < count and end - at >= PRODUCER.size:
        yield from layout_fields(source, PRODUCER, at, end, BytePart(f"producer {number}"))
        at, number = at + PRODUCER.size, number + 1
    yield from plain(source, at, end, BytePart("rest"), "bytes behind the last producer")


def _bit(content: bytes, stored: int, computed: int) -> WrongBit | None:
    from klog.kernel import flipped_bit

    found = flipped_bit(stored ^ computed, len(content) - CRC_START)
    if found is None:
        return None
    position = CRC_START + (found >> 3)
    return WrongBit(position, bit_text(content[position], content[position] ^ 1 << (found & 7)))
