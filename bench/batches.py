"""Batches of small records, as brokers write them into topics of their own."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from klog.kernel import crc32c


def varint(value: int) -> bytes:
    """Return a number as records have it."""
    encoded = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while encoded > 0x7F:
        out.append(encoded & 0x7F | 0x80)
        encoded >>= 7
    out.append(encoded)
    return bytes(out)


def batch(
    first: int,
    given: Iterable[tuple[bytes | None, bytes]],
    now: int,
    *,
    attributes: int = 0,
    producer: int = -1,
    leader_epoch: int = 0,
) -> bytes:
    """Return keys and values as one batch from offset *first* on, of time *now*, ms."""
    records, count = bytearray(), 0
    for key, value in given:
        told = varint(-1) if key is None else varint(len(key)) + key
        body = b"\0\0" + varint(count) + told + varint(len(value)) + value + b"\0"
        records += varint(len(body)) + body
        count += 1
    epoch = 0 if producer >= 0 else -1
    checked = struct.pack(">hiqqqhii", attributes, count - 1, now, now, producer, epoch, -1, count) + records
    return struct.pack(">qiibI", first, 9 + len(checked), leader_epoch, 2, crc32c(checked)) + checked
