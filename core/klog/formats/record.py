"""The record of a record batch (magic 2); records follow each other from byte 61 of the batch on.

    length          varint    bytes after this field
    attributes      int8      unused
    timestamp delta varlong   to the batch's base timestamp
    offset delta    varint    to the batch's base offset
    key             varint length (below zero: null), bytes
    value           varint length (below zero: null: a tombstone), bytes
    headers         varint count, then for each: varint key length, key (UTF-8),
                    varint value length (below zero: null), value

Varints are base 128, least significant group first, zig-zag (0, -1, 1, -2 …).  The kernel reads them. Kafka:
DefaultRecord.
"""

from __future__ import annotations

from typing import NamedTuple


class Record(NamedTuple):
    """One record, of any format.

    *timestamp* is ms since the epoch, -1 when there is none (v0).  *key* and *value*: None is null, which is not
    the same as b"".  *headers*: pairs of key and value in their order, keys may repeat, a value may be None.
    *sequence* is -1 when the batch has no producer.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    sequence: int = -1


def write_record(timestamp_delta: int, offset_delta: int, key: bytes | None, value: bytes | None) -> bytes:
    """Return a record of a record batch, without headers.  *timestamp_delta*: ms.  Kafka: DefaultRecord.writeTo."""
    content = b"\0" + _varlong(timestamp_delta) + _varlong(offset_delta)
    for part in (key, value):
        content += _varlong(-1) if part is None else _varlong(len(part)) + part
    content += b"\0"
    return _varlong(len(content)) + content


def _varlong(value: int) -> bytes:
    rest = (value << 1 ^ value >> 63) & 0xFFFFFFFFFFFFFFFF
    made = bytearray()
    while rest >= 0x80:
        made.append(rest & 0x7F | 0x80)
        rest >>= 7
    made.append(rest)
    return bytes(made)
