"""The header of a log entry in any of the three formats, without its content.

Enough to walk a log from entry to entry and to describe it; the kernel handles checksums and records.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from klog.formats.batch import BATCH, ENTRY, MIN_SIZE, OVERHEAD, Attributes
from klog.formats.damage import DamageKind
from klog.formats.legacy import MESSAGE_V0, MESSAGE_V1

HEADER_BYTES: Final = BATCH.size
"""As many bytes of an entry as its header can take up, whatever the format."""

_LAYOUTS = (MESSAGE_V0, MESSAGE_V1, BATCH)


class Header(NamedTuple):
    """The header of an entry.

    *position*: bytes from the start of the file.  *size*: bytes of the whole entry.  Timestamps in ms, -1 for none.
    *base_offset* of a compressed v0 or v1 entry is that of its last message, as the header has no other.
    *records* is -1 there: it is known only after decompressing.  *leader_epoch* and *producer_id*: -1 for none.
    """

    position: int
    size: int
    magic: int
    attributes: int
    base_offset: int
    last_offset: int
    base_timestamp: int
    max_timestamp: int
    records: int
    leader_epoch: int
    producer_id: int

    @property
    def codec(self) -> int:
        """The number of the codec; those up to 4 are known (`CODEC_NAMES`)."""
        return self.attributes & Attributes.CODEC


def read_header(buffer: bytes, at: int, position: int, left: int) -> Header | DamageKind:
    """Return the header that begins at *at* in *buffer*, or what is wrong with it.

    *position* is its position in the file, *left* the number of bytes from there to the end.  The buffer must contain
    `HEADER_BYTES` from *at* on, or all that is left.  Kafka: FileLogInputStream.nextBatch.
    """
    if left >= HEADER_BYTES:  # the usual case first
        offset, size, epoch, magic, _, attributes, delta, first, last, producer_id, _, _, count = BATCH.read(buffer, at)
        whole = OVERHEAD + size
        if magic == 2 and HEADER_BYTES <= whole <= left:
            return Header(
                position, whole, 2, attributes, offset, offset + delta, first, last, count, epoch, producer_id
            )
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
    if whole < _LAYOUTS[magic].size:
        return DamageKind.SHORT_HEADER
    timestamp = -1
    if magic == 1:
        *_, attributes, timestamp, _ = MESSAGE_V1.read(buffer, at)
    else:
        *_, attributes, _ = MESSAGE_V0.read(buffer, at)
    records = -1 if attributes & Attributes.CODEC else 1
    return Header(position, whole, magic, attributes, offset, offset, timestamp, timestamp, records, -1, -1)
