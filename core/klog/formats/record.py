"""The records of a record batch (magic 2), which follow each other from byte 61 of it on.

`RECORD` and `RECORD_HEADER` declare their fields.  Varints are base 128, least significant group first, zig-zag (0, -1,
1, -2 …).  The kernel reads them (`decode.pxi`).  The messages of older formats: `message_set`.  Kafka: DefaultRecord.
"""

from __future__ import annotations

from typing import NamedTuple

from klog.formats.layout import Field

RECORD = (
    Field("length", "varint", "bytes after this field"),
    Field("attributes", "int8", "unused"),
    Field("timestamp_delta", "varlong", "ms; less the base timestamp of the batch"),
    Field("offset_delta", "varint", "less the base offset of the batch"),
    Field("key", "bytes", "length (varint, below zero: null), then the key"),
    Field("value", "bytes", "length (varint, below zero: null, a tombstone), then the value"),
    Field("headers", "varint", "number of headers, which follow"),
)
"""The fields of a record.  `bytes`: a varint and so many bytes."""

RECORD_HEADER = (
    Field("header_key", "bytes", "length (varint), then the key, UTF-8"),
    Field("header_value", "bytes", "length (varint, below zero: null), then the value"),
)
"""The fields of a header of a record."""


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
