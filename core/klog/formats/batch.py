"""The record batch (format v2), and the fields that all three formats share.

A `.log` is a plain sequence of entries, with no header, padding or footer.  In every format an entry begins with
the same 17 bytes (`ENTRY`), so a reader can walk any log: read an entry's first 17 bytes, take `size`, and the next
entry starts 12 + size bytes later.

    magic 0, 1   the old message sets (see `record`): one message, or one compressed wrapper around many
    magic 2      a record batch: the 61 bytes of `BATCH`, then the records (see `record`), compressed or not

A batch is the smallest unit of writing, of reading and of the checksum.  The checksum does not cover its offset, size,
leader epoch and magic, so that a broker can set them without touching the rest.

    base offset      offset of the batch; never changes, even when compaction removes the record that had it
    last offset      base offset + last offset delta; survives compaction likewise
    next offset      last offset + 1
    record offset    base offset + the record's offset delta
    sequence         base sequence + the record's offset delta, from 2^31 - 1 on to 0

A batch without records is legal: compaction leaves it to remember a producer's last sequence number.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum, IntFlag
from typing import NamedTuple, TypeAlias

from klog.formats.layout import Layout

Crc: TypeAlias = Callable[["bytes | memoryview"], int]
"""A CRC-32C function.  The kernel has the fast one, and formats are below the kernel: so callers pass it in."""

ENTRY = Layout(
    "log entry",
    ("offset", "int64", "v2: base offset; v0, v1: offset of the message, of a wrapper's last message"),
    ("size", "int32", "bytes after this field"),
    ("crc_or_epoch", "int32", "v0, v1: CRC-32; v2: partition leader epoch"),
    ("magic", "int8", "format version: 0, 1 or 2"),
)
"""The fields at the beginning of every entry of a log."""

OVERHEAD = ENTRY.offsets["crc_or_epoch"]
"""Bytes that `size` does not count: the offset and the size itself."""

MIN_SIZE = 14
"""No entry of any format has a smaller `size`; a broker takes one that has for corrupt.  Kafka: FileLogInputStream."""

BATCH = Layout(
    "record batch",
    ("base_offset", "int64", "offset of the batch; not in the checksum"),
    ("size", "int32", "bytes after this field, at least 49; not in the checksum"),
    ("leader_epoch", "int32", "set by the leader on append, -1 unknown; not in the checksum"),
    ("magic", "int8", "2; not in the checksum"),
    ("crc", "uint32", "CRC-32C of everything after it"),
    ("attributes", "int16", "see Attributes; only the low byte counts"),
    ("last_offset_delta", "int32", "last offset - base offset; kept by compaction"),
    ("base_timestamp", "int64", "ms; of the first record, or the delete horizon when that flag is set"),
    ("max_timestamp", "int64", "ms; of all records, or the time of the append (LogAppendTime)"),
    ("producer_id", "int64", "-1: none"),
    ("producer_epoch", "int16", "-1: none"),
    ("base_sequence", "int32", "-1: none"),
    ("records_count", "int32", "records that are really there; compaction lowers it"),
)
"""The header of a record batch, magic 2."""

CRC_START = BATCH.offsets["attributes"]
"""The first byte of a record batch that its checksum covers; the covered part ends with the batch."""


class Attributes(IntFlag):
    """Flags of a batch; the low three bits are its codec."""

    CODEC = 0x07
    LOG_APPEND_TIME = 0x08
    TRANSACTIONAL = 0x10
    CONTROL = 0x20
    DELETE_HORIZON = 0x40


# plain numbers for hot loops: the & of an IntFlag makes a new member each time
CODEC_BITS, LOG_APPEND_TIME_BIT = int(Attributes.CODEC), int(Attributes.LOG_APPEND_TIME)
TRANSACTIONAL_BIT, CONTROL_BIT = int(Attributes.TRANSACTIONAL), int(Attributes.CONTROL)
DELETE_HORIZON_BIT = int(Attributes.DELETE_HORIZON)


class Codec(IntEnum):
    """How a batch's records are compressed."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODEC_NAMES = tuple(codec.name.lower() for codec in Codec)


class BatchHead(NamedTuple):
    """The values for the header of a new record batch; timestamps are ms since the epoch."""

    base_offset: int
    leader_epoch: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    records_count: int
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1


def write_batch(head: BatchHead, records: bytes, crc32c: Crc) -> bytes:
    """Return the record batch around *records*, which its codec has already compressed.  Kafka: DefaultRecordBatch."""
    size = BATCH.size - OVERHEAD + len(records)
    values = (
        head.attributes, head.last_offset_delta, head.base_timestamp, head.max_timestamp,
        head.producer_id, head.producer_epoch, head.base_sequence, head.records_count,
    )  # fmt: skip
    draft = BATCH.write(head.base_offset, size, head.leader_epoch, 2, 0, *values) + records
    return BATCH.write(head.base_offset, size, head.leader_epoch, 2, crc32c(memoryview(draft)[CRC_START:]), *values) + (
        records
    )


class BatchFacts(NamedTuple):
    """The header of an entry of any format, and whether its checksum matches.

    *position* and *size* are bytes, the latter with the overhead; timestamps are ms since the epoch.  Fields that a
    format does not have are -1.  Both offsets of a v0 or v1 wrapper are the last message's, until its messages have
    been decoded.
    """

    position: int
    base_offset: int
    last_offset: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    size: int
    leader_epoch: int
    crc: int
    computed_crc: int
    base_sequence: int
    last_offset_delta: int
    records_count: int
    attributes: int
    producer_epoch: int
    magic: int
    crc_checked: bool
    crc_holds: bool

    @property
    def codec(self) -> str:
        """How the records are compressed: none, gzip, snappy, lz4 or zstd."""
        number = self.attributes & CODEC_BITS
        return CODEC_NAMES[number] if number < len(CODEC_NAMES) else f"unknown ({number})"

    @property
    def is_wrapper(self) -> bool:
        """Whether it is a compressed entry of v0 or v1: its header has the last message's offset, and no first one."""
        return self.magic < 2 and bool(self.attributes & CODEC_BITS)

    @property
    def is_control(self) -> bool:
        """Whether the records are markers (COMMIT, ABORT, …), which no consumer sees."""
        return self.magic >= 2 and bool(self.attributes & CONTROL_BIT)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction; its marker does too."""
        return self.magic >= 2 and bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def timestamp_type(self) -> str | None:
        """CreateTime or LogAppendTime; None for magic 0."""
        if self.magic == 0:
            return None
        return "LogAppendTime" if self.attributes & LOG_APPEND_TIME_BIT else "CreateTime"

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop the tombstones of this batch (ms since the epoch), None if that is not set."""
        return self.base_timestamp if self.magic >= 2 and self.attributes & DELETE_HORIZON_BIT else None

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, -1 when there is no producer."""
        return -1 if self.base_sequence == -1 else increment_sequence(self.base_sequence, self.last_offset_delta)


MAX_SEQUENCE = 2**31 - 1


def increment_sequence(sequence: int, by: int) -> int:
    """Return the sequence number *by* records after *sequence*: after 2^31 - 1 comes 0.

    For damaged numbers the result is that of Java's int arithmetic.  Kafka: DefaultRecordBatch.incrementSequence.
    """
    if sequence >= 0 and by >= 0:
        return (sequence + by) & MAX_SEQUENCE
    last = by - (MAX_SEQUENCE - sequence) - 1 if sequence > _int32(MAX_SEQUENCE - by) else sequence + by
    return _int32(last)


def _int32(value: int) -> int:
    return ((value + 2**31) & (2**32 - 1)) - 2**31


def decrement_sequence(sequence: int, by: int) -> int:
    """Return the sequence number *by* records before *sequence*.  Kafka: DefaultRecordBatch.decrementSequence."""
    return MAX_SEQUENCE - (by - sequence) + 1 if sequence < by else sequence - by
