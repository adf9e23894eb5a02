"""The header of a log entry in any of the three formats, without its content.

One header at a time, and why bytes are none; the kernel reads many, and handles checksums and records.
"""

from __future__ import annotations

from typing import Final

from klog.formats.batch import BATCH, ENTRY, MIN_SIZE, OVERHEAD, BatchFacts
from klog.formats.damage import DamageKind
from klog.formats.message_set import MESSAGE_V0, MESSAGE_V1

HEADER_BYTES: Final = BATCH.size
"""The largest number of bytes that the header of an entry needs in any format."""

_LENGTH_BYTES = 4
_SMALLEST = (MESSAGE_V0.size + _LENGTH_BYTES, MESSAGE_V1.size + _LENGTH_BYTES, BATCH.size)
"""Bytes of the smallest entry of each format: of a message, its header and the length of a null value."""


def read_header(buffer: bytes, at: int, position: int, left: int) -> BatchFacts | DamageKind:
    """Return the header that begins at *at* in *buffer*, or its fault; no checksum is computed.

    *position* is its position in the file, *left* the number of bytes from there to the end.  The buffer must contain
    `HEADER_BYTES` from *at* on, or all remaining ones.  Kafka: FileLogInputStream.nextBatch.
    """
    if left <= ENTRY.size:
        return DamageKind.TORN_TAIL
    offset, size, _, magic = ENTRY.read(buffer, at)
    if size < MIN_SIZE:
        return DamageKind.BAD_LENGTH
    if not 0 <= magic <= 2:
        return DamageKind.BAD_MAGIC
    whole = OVERHEAD + size
    if whole > left:
        return DamageKind.TORN_TAIL
    if whole < _SMALLEST[magic]:
        return DamageKind.SHORT_HEADER
    if magic == 2:
        return batch_facts(buffer, at, position, whole)
    timestamp = -1
    if magic == 1:
        _, _, crc, _, attributes, timestamp, _ = MESSAGE_V1.read(buffer, at)
    else:
        _, _, crc, _, attributes, _ = MESSAGE_V0.read(buffer, at)
    return BatchFacts(
        position, offset, offset, timestamp, timestamp, -1, whole, -1, crc, 0, -1, 0, -1, attributes, -1, magic,
        crc_checked=False, crc_holds=False,
    )  # fmt: skip


def batch_facts(buffer: bytes, at: int, position: int, size: int) -> BatchFacts:
    """Return the header of the record batch of *size* bytes that begins at *at* in *buffer*; nothing is checked."""
    offset, _, epoch, magic, crc, attributes, delta, first, last, *producer, count = BATCH.read(buffer, at)
    producer_id, producer_epoch, sequence = producer
    last_offset = (offset + delta + 2**63) % 2**64 - 2**63  # a damaged sum wraps as Java's does
    return BatchFacts(
        position, offset, last_offset, first, last, producer_id, size, epoch, crc, 0, sequence, delta, count,
        attributes, producer_epoch, magic, crc_checked=False, crc_holds=False,
    )  # fmt: skip
