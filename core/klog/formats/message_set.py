"""The messages of formats v0 (before 0.10) and v1 (0.10), which are still on the disks of upgraded clusters.

An entry of a message set contains one message.  When the codec bits of its attributes are set, it is a wrapper: its
value, decompressed, is a sequence of entries of the same form, uncompressed.

    offset of an entry          of the message; for a wrapper that of its last message
    offset inside a v0 wrapper  absolute
    offset inside a v1 wrapper  relative: last message's absolute offset = the wrapper's offset
                                (a wrapper's offset of 0 means that the first message has offset 0: old librdkafka)
    timestamp                   v0 has none (-1); inside a wrapper of LogAppendTime the wrapper's counts

A length below zero is null.  Kafka: LegacyRecord, AbstractLegacyRecordBatch.
"""

from __future__ import annotations

from klog.formats.layout import Layout

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
