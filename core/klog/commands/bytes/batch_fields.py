"""The fields of a record batch, magic 2: its header, then its records, decompressed if they are compressed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import NamedTuple, TypeAlias

from klog.commands.bytes.byte_field import (
    ByteField,
    BytePart,
    Fields,
    InsideBytes,
    MemorySource,
    Notes,
    WrongBit,
    cut_fields,
    layout_fields,
    plain,
)
from klog.commands.bytes.log_context import LogContext, checksum, unpack
from klog.commands.bytes.record_fields import RecordsOrigin, record_fields
from klog.formats.batch import BATCH, CODEC_BITS, CODEC_NAMES, CRC_START, ENTRY, OVERHEAD, BatchFacts
from klog.formats.entry_header import batch_facts
from klog.formats.java_integers import INT_MAX

FieldsOf: TypeAlias = Callable[[MemorySource], Fields]


class Extent(NamedTuple):
    """Bytes *start* to *end* of a log in which an entry begins.  *reach*: how far its size could lead."""

    start: int
    end: int
    reach: int


def batch_fields(log: LogContext, extent: Extent) -> Fields:
    """Yield the fields of the record batch in *extent*, whose bytes are all covered."""
    source, start = log.source, extent.start
    head = source.read(start, min(BATCH.size, extent.end - start))
    if len(head) < BATCH.size:
        yield from cut_fields(source, BATCH, start, extent.end, BytePart("batch", "cut inside of its header"))
        return
    claimed = ENTRY.read(head)[1] + OVERHEAD
    header = batch_facts(head, 0, start, claimed)
    stop = start + claimed if BATCH.size <= claimed <= extent.end - start else extent.end
    computed = checksum(source, start + CRC_START, stop, True) if stop == start + claimed else None
    holds = computed == header.crc
    bit = None if holds else log.wrong_bit(start, extent.end)
    part = BytePart(_title(header, claimed), None if holds else _verdict(computed, extent, claimed))
    inside = extent._replace(start=start + BATCH.size, end=stop)
    fields = chain(
        layout_fields(source, BATCH, start, stop, part, _notes(log, extent, header, claimed, computed)),
        _records(log, inside, header, part),
    )
    yield from with_bit(fields, bit)
    yield from plain(source, stop, extent.end, part, "bytes behind the batch, in which no other one begins")


def _verdict(computed: int | None, extent: Extent, claimed: int) -> str:
    if computed is not None:
        return "CRC does not match"
    return "torn" if claimed > extent.reach - extent.start else "its length cannot be"


def _title(header: BatchFacts, claimed: int) -> str:
    first, last = header.base_offset, header.last_offset
    offsets = f"offset {first}" if first == last else f"offsets {first}–{last}"
    return f"batch of {claimed} bytes, {offsets}"


def _notes(log: LogContext, extent: Extent, header: BatchFacts, claimed: int, computed: int | None) -> Notes:
    """Return texts and problems of the fields of a whole header."""
    delta, sequence = header.last_offset_delta, header.base_sequence
    is_empty = claimed == BATCH.size
    return {
        "base_offset": ("", _offset_problem(log, header)),
        "size": size_note(claimed, BATCH.size, extent),
        "leader_epoch": ("", _epoch_problem(log, header.leader_epoch)),
        "crc": crc_note(header.crc, computed),
        "attributes": _attributes(header),
        "last_offset_delta": (f"{delta} → {header.last_offset}", "it is below zero" if delta < 0 else None),
        "base_sequence": (f"{sequence} → {header.last_sequence}" if sequence >= 0 <= delta else "", None),
        "records_count": ("", _count_problem(header, is_empty)),
    }


def size_note(whole: int, smallest: int, extent: Extent) -> tuple[str, str | None]:
    """Return text and problem of the size of an entry, *whole* with the bytes that its size does not count."""
    room = extent.end - extent.start
    text = f"{whole - OVERHEAD} ({whole} with these {OVERHEAD} bytes)"
    if whole < smallest:
        return text, f"at least {smallest - OVERHEAD} was expected"
    if whole > extent.reach - extent.start:
        return text, f"leads {whole - (extent.reach - extent.start)} bytes beyond the end of the file"
    if whole != room:
        return text, f"leads to {extent.start + whole}, and the next batch begins at {extent.end}"
    return text, None


def crc_note(stored: int, computed: int | None) -> tuple[str, str | None]:
    """Return text and problem of a checksum; *computed* None: it cannot be computed."""
    if computed is None:
        return f"0x{stored:08x} (cannot be compared: the batch is not complete)", None
    return f"0x{stored:08x}", None if stored == computed else f"computed 0x{computed:08x}"


def _attributes(header: BatchFacts) -> tuple[str, str | None]:
    codec = header.codec
    words = ["uncompressed" if codec == "none" else codec, header.timestamp_type or ""]
    words += ["transactional"] * header.is_transactional + ["control"] * header.is_control
    words += ["delete horizon"] * (header.delete_horizon_ms is not None)
    return ", ".join(words), None if codec in CODEC_NAMES else "no such codec"


def _offset_problem(log: LogContext, header: BatchFacts) -> str | None:
    found = log.problems.get(header.position)
    if found is not None:
        return found
    base, previous = log.base_offset, log.previous
    if base is not None and not (base <= header.base_offset and header.last_offset <= base + INT_MAX):
        return f"outside of what the segment can hold, which begins at {base}"
    if previous is not None and header.base_offset <= previous.last_offset:
        return f"the batch before it ends with offset {previous.last_offset}"
    return None


def _epoch_problem(log: LogContext, epoch: int) -> str | None:
    before = log.previous.leader_epoch if log.previous is not None and log.previous.magic == 2 else -1
    return f"lower than {before} of the batch before it" if 0 <= epoch < before else None


def _count_problem(header: BatchFacts, is_empty: bool) -> str | None:
    count, offsets = header.records_count, max(header.last_offset_delta, -1) + 1
    if not 0 <= count <= offsets:
        return f"a count of {count}, but the offsets of the batch are {offsets}"
    return f"the header counts {count} records, the batch has 0" if count and is_empty else None


def with_bit(fields: Fields, bit: WrongBit | None) -> Fields:
    """Yield *fields*; the one with the byte that explains a wrong checksum has *bit*."""
    for field in fields:
        is_there = bit is not None and field.position <= bit.position < field.end
        yield field._replace(wrong_bit=bit) if is_there else field


def _records(log: LogContext, extent: Extent, header: BatchFacts, part: BytePart) -> Fields:
    """Yield the fields of the records, which fill *extent*; compressed ones are one field with all others inside."""
    codec = header.attributes & CODEC_BITS
    origin = RecordsOrigin(log.topic, header, log.most_fields, log.schemas)
    if not codec:
        yield from record_fields(log.source, extent.start, extent.end, origin, part)
    elif extent.start < extent.end:
        inside = BytePart("decompressed records")
        yield compressed(
            log, extent, codec, header.magic, "records", part,
            lambda memory: record_fields(
                memory, 0, memory.size, RecordsOrigin(log.topic, header, log.most_fields, log.schemas), inside
            ),
        )  # fmt: skip


def compressed(
    log: LogContext, extent: Extent, codec: int, magic: int, name: str, part: BytePart, fields_of: FieldsOf
) -> ByteField:
    """Return the field *name* of compressed bytes, with the fields of the decompressed ones inside of it."""
    size = extent.end - extent.start
    unpacked = unpack(log, log.source, extent.start, extent.end, codec, magic)
    codec_name = CODEC_NAMES[codec] if codec < len(CODEC_NAMES) else f"codec {codec}"
    meaning = f"compressed with {codec_name}"
    field = ByteField(log.source, extent.start, size, name, None, meaning, part, content_at=extent.start)
    if unpacked.content is None:
        return field._replace(text=f"{size} bytes of {codec_name}", problem=unpacked.problem)
    memory = MemorySource(unpacked.content)
    text = f"{size} bytes of {codec_name}, {memory.size} when decompressed"
    return field._replace(text=text, inside=InsideBytes(memory.size, lambda: fields_of(memory)))
