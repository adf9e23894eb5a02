"""The records of all three formats; those of a record batch (magic 2) follow each other from byte 61 of it on.

`RECORD` and `RECORD_HEADER` declare their fields.  Varints are base 128, least significant group first, zig-zag (0, -1,
1, -2 …).  The kernel reads them. Kafka: DefaultRecord.

Message sets, formats v0 (before 0.10) and v1 (0.10), are still on the disks of upgraded clusters.  An entry contains
one message.  When the codec bits of its attributes are set, it is a wrapper: its value, decompressed, is a sequence of
entries of the same form, uncompressed.

    offset of an entry          of the message; for a wrapper that of its last message
    offset inside a v0 wrapper  absolute
    offset inside a v1 wrapper  relative: last message's absolute offset = the wrapper's offset
                                (a wrapper's offset of 0 means that the first message has offset 0: old librdkafka)
    timestamp                   v0 has none (-1); inside a wrapper of LogAppendTime the wrapper's counts

A length below zero is null.  Kafka: LegacyRecord, AbstractLegacyRecordBatch.
"""

from __future__ import annotations

from typing import NamedTuple

from klog.formats.layout import Field, Layout

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


MESSAGE_V0 = Layout(
    "message v0",
    ("offset", "int64", "see above; not in the checksum"),
    ("size", "int32", "bytes after this field, at least 14; not in the checksum"),
    ("crc", "uint32", "CRC-32 (zlib's) of everything after it"),
    ("magic", "int8", "0"),
    ("attributes", "int8", "low three bits: codec (zstd is not allowed)"),
    ("key_length", "int32", "bytes of the key, which follows; below zero: null"),
)
"""Up to the key's length; then the key, `MESSAGE_VALUE`, the value."""

MESSAGE_V1 = Layout(
    "message v1",
    ("offset", "int64", "see above; not in the checksum"),
    ("size", "int32", "bytes after this field, at least 22; not in the checksum"),
    ("crc", "uint32", "CRC-32 (zlib's) of everything after it"),
    ("magic", "int8", "1"),
    ("attributes", "int8", "low three bits: codec; 0x08: LogAppendTime"),
    ("timestamp", "int64", "ms since the epoch, -1: none"),
    ("key_length", "int32", "bytes of the key, which follows; below zero: null"),
)
"""Up to the key's length; then the key, `MESSAGE_VALUE`, the value."""

MESSAGE_VALUE = Layout(
    "value of a message",
    ("value_length", "int32", "bytes of the value, which follows; below zero: null"),
)
"""Behind the key of a message."""

CRC_START = MESSAGE_V0.offsets["magic"]
"""The first byte of the checksummed part of a message; that part ends with the entry."""
