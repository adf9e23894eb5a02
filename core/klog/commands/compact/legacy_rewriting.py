"""Rewrites message sets (v0, v1) from which some messages are removed.

The result is that of the cleaners of their time (2.x), a wrapper of the same format and codec, or that of 4.x, a record
batch.  Kafka: MemoryRecords.buildRetainedRecordsInto, MemoryRecordsBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from klog.change.partition_plan.strict_reader import StrictReader
from klog.formats.batch import (
    CODEC_BITS,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    OVERHEAD,
    BatchFacts,
    BatchHead,
    write_batch,
)
from klog.formats.damage import DamageKind
from klog.formats.message_set import CRC_START as MESSAGE_CRC_START
from klog.formats.message_set import MESSAGE_V0, MESSAGE_V1
from klog.formats.record import write_record
from klog.kernel import DONE, MORE, Rewriter, Window, crc32, crc32c
from klog.log.records import batch_damage, broken_record, message_damages

Compress = tuple[Callable[[memoryview, int], bytes], ...]


class _Message(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def remade(
    window: Window, at: int, rewriter: Rewriter, compress: Compress, walk: StrictReader, horizon_ms: int | None
) -> Iterator[tuple[bytes, int]]:
    """Yield the remaining part of entry *at*, with the number of its records; nothing if nothing remains.

    *horizon_ms*: the delete horizon of tombstones in new record batches; None: the format is unchanged.  Raises
    DamagedError.
    """
    facts = window.batch(at)
    messages, is_whole = _kept(window, at, rewriter, walk)
    if not messages:
        return
    if horizon_ms is not None:
        yield _record_batch(facts, messages, compress, horizon_ms), len(messages)
    elif is_whole:
        start = window.at(at)
        yield window.copy(start, start + facts.size), len(messages)
    else:
        yield _wrapper(facts, messages, compress), len(messages)


def _kept(window: Window, at: int, rewriter: Rewriter, walk: StrictReader) -> tuple[list[_Message], bool]:
    """Return the messages that stay, and whether that is all of them."""
    window.begin(at, at + 1)
    messages: list[_Message] = []
    total, status = 0, MORE
    while status == MORE:
        status = window.decode()
        for damage in message_damages(window, walk.path):
            walk.refuse(damage)  # rewritten, it would have a matching checksum
        stays = rewriter.judged()
        total += len(stays)
        messages += [_Message(*window.record(i, False)[:4]) for i, stay in enumerate(stays) if stay]
    if status != DONE:
        walk.refuse(batch_damage(window, at, DamageKind.BAD_RECORD, broken_record(window, status), walk.path))
    return messages, len(messages) == total


def _wrapper(facts: BatchFacts, messages: list[_Message], compress: Compress) -> bytes:
    codec, by_append_time = facts.attributes & CODEC_BITS, facts.attributes & LOG_APPEND_TIME_BIT if facts.magic else 0
    first = messages[0].offset if facts.magic else 0
    inside = b"".join(
        _message(facts.magic, one.offset - first, by_append_time, one.timestamp, one.key, one.value) for one in messages
    )
    timestamp = facts.max_timestamp if by_append_time else max(one.timestamp for one in messages)
    value = compress[codec](memoryview(inside), facts.magic)
    return _message(facts.magic, messages[-1].offset, codec | by_append_time, timestamp, None, value)


def _message(magic: int, offset: int, attributes: int, timestamp: int, key: bytes | None, value: bytes | None) -> bytes:
    layout, times = (MESSAGE_V1, (timestamp,)) if magic else (MESSAGE_V0, ())
    content = (key or b"") + _length(value).to_bytes(4, "big", signed=True) + (value or b"")
    size = layout.size - OVERHEAD + len(content)
    draft = layout.write(offset, size, 0, magic, attributes, *times, _length(key)) + content
    crc = crc32(memoryview(draft)[MESSAGE_CRC_START:])
    return layout.write(offset, size, crc, magic, attributes, *times, _length(key)) + content


def _length(content: bytes | None) -> int:
    return -1 if content is None else len(content)


def _record_batch(facts: BatchFacts, messages: list[_Message], compress: Compress, horizon_ms: int) -> bytes:
    codec, by_append_time = facts.attributes & CODEC_BITS, facts.attributes & LOG_APPEND_TIME_BIT if facts.magic else 0
    base = messages[0].offset
    attributes = codec | by_append_time
    base_timestamp = facts.max_timestamp if by_append_time else messages[0].timestamp
    if any(one.value is None for one in messages):
        attributes, base_timestamp = attributes | DELETE_HORIZON_BIT, horizon_ms
    records = b"".join(
        write_record(one.timestamp - base_timestamp, one.offset - base, one.key, one.value) for one in messages
    )
    if codec:
        records = compress[codec](memoryview(records), 2)
    largest = facts.max_timestamp if by_append_time else max(one.timestamp for one in messages)
    head = BatchHead(base, -1, attributes, messages[-1].offset - base, base_timestamp, largest, len(messages))
    return write_batch(head, records, crc32c)
