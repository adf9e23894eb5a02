"""Writes batches, messages, indexes and snapshots, right or wrong: every field can be set to anything."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from crc32c import crc32c

from tests.oracles.plain.compress import CODECS, compress

Header = tuple[bytes, bytes | None]


@dataclass(frozen=True)
class Record:
    """One record to be written: *timestamp* in ms, *offset* absolute; both become deltas in a v2 batch."""

    offset: int
    timestamp: int = -1
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()


# ---------------------------------------------------------------- varints


def unsigned_varint(value: int) -> bytes:
    """Return *value* in groups of seven bits, lowest first."""
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def varint(value: int) -> bytes:
    """Return a zig-zag varint of a 32-bit value."""
    return unsigned_varint((value << 1 ^ value >> 31) & 0xFFFFFFFF)


def varlong(value: int) -> bytes:
    """Return a zig-zag varint of a 64-bit value."""
    return unsigned_varint((value << 1 ^ value >> 63) & 0xFFFFFFFFFFFFFFFF)


# ---------------------------------------------------------------- v2


def _counted(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(
    *,
    timestamp_delta: int = 0,
    offset_delta: int = 0,
    key: bytes | None = None,
    value: bytes | None = None,
    headers: Sequence[Header] = (),
    attributes: int = 0,
    length: int | None = None,
) -> bytes:
    """Return the bytes of a record of a v2 batch; *length* instead of the true one where given."""
    body = struct.pack(">b", attributes) + varlong(timestamp_delta) + varint(offset_delta)
    body += _counted(key) + _counted(value) + varint(len(headers))
    for name, content in headers:
        body += varint(len(name)) + name + _counted(content)
    return varint(len(body) if length is None else length) + body


@dataclass(frozen=True)
class BatchHeader:
    """The header of a v2 batch but for length and CRC; the flags are bits 3 to 6 of the attributes."""

    base_offset: int = 0
    leader_epoch: int = 0
    codec: int = 0
    log_append_time: bool = False
    transactional: bool = False
    control: bool = False
    delete_horizon: bool = False
    last_offset_delta: int = 0
    base_timestamp: int = 0
    max_timestamp: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    count: int = 0
    high_attributes: int = 0

    def attributes(self) -> int:
        """Return the attributes as an unsigned 16-bit number."""
        low = self.codec | self.log_append_time << 3 | self.transactional << 4 | self.control << 5
        return low | self.delete_horizon << 6 | self.high_attributes << 8


def raw_batch(header: BatchHeader, payload: bytes, *, crc: int | None = None, length: int | None = None) -> bytes:
    """Return a v2 batch around *payload*, which is compressed already; *crc*, *length*: instead of the true ones."""
    h = header
    times = (h.base_timestamp, h.max_timestamp)
    producer = (h.producer_id, h.producer_epoch, h.base_sequence)
    rest = struct.pack(">Hiqqqhii", h.attributes(), h.last_offset_delta, *times, *producer, h.count) + payload
    size = 9 + len(rest) if length is None else length
    checksum = crc32c(rest) if crc is None else crc
    return struct.pack(">qiibI", h.base_offset, size, h.leader_epoch, 2, checksum) + rest


def records_payload(records: Iterable[Record], base_offset: int, base_timestamp: int) -> bytes:
    """Return the records of a v2 batch, not compressed."""
    return b"".join(
        record(
            timestamp_delta=r.timestamp - base_timestamp,
            offset_delta=r.offset - base_offset,
            key=r.key,
            value=r.value,
            headers=r.headers,
        )
        for r in records
    )


def batch(
    records: Sequence[Record],
    *,
    codec: str = "none",
    stream: bytes | None = None,
    base_offset: int | None = None,
    last_offset: int | None = None,
    delete_horizon_ms: int | None = None,
    append_time_ms: int | None = None,
    leader_epoch: int = 0,
    transactional: bool = False,
    control: bool = False,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """Return *records* as one v2 batch.

    *stream* replaces the compressed records; *base_offset* and *last_offset* are wider than the records in compacted
    batches; *append_time_ms* makes it a LogAppendTime batch; *producer* is id, epoch and base sequence.
    """
    base = records[0].offset if base_offset is None else base_offset
    last = records[-1].offset if last_offset is None else last_offset
    start_ms = records[0].timestamp if delete_horizon_ms is None else delete_horizon_ms
    payload = records_payload(records, base, start_ms)
    header = BatchHeader(
        base_offset=base,
        leader_epoch=leader_epoch,
        codec=CODECS.index(codec),
        log_append_time=append_time_ms is not None,
        transactional=transactional,
        control=control,
        delete_horizon=delete_horizon_ms is not None,
        last_offset_delta=last - base,
        base_timestamp=start_ms,
        max_timestamp=max(r.timestamp for r in records) if append_time_ms is None else append_time_ms,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        count=len(records),
    )
    return raw_batch(header, compress(codec, payload) if stream is None else stream)


def empty_batch(
    base_offset: int,
    last_offset: int,
    *,
    max_timestamp: int = -1,
    producer: tuple[int, int, int] = (77, 0, 20),
    **flags: bool,
) -> bytes:
    """Return the 61 bytes that compaction leaves of a producer's last batch."""
    header = BatchHeader(
        base_offset=base_offset,
        last_offset_delta=last_offset - base_offset,
        base_timestamp=-1,
        max_timestamp=max_timestamp,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        **flags,
    )
    return raw_batch(header, b"")


def marker(
    offset: int,
    *,
    commit: bool,
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    leader_epoch: int = 0,
) -> bytes:
    """Return the control batch that ends a transaction."""
    end = Record(offset, timestamp, struct.pack(">hh", 0, commit), struct.pack(">hi", 0, coordinator_epoch))
    producer = (producer_id, producer_epoch, -1)
    return batch([end], transactional=True, control=True, producer=producer, leader_epoch=leader_epoch)


# ---------------------------------------------------------------- v0 and v1


def _counted_int32(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def message(
    offset: int,
    magic: int,
    key: bytes | None,
    value: bytes | None,
    *,
    timestamp: int = -1,
    attributes: int = 0,
    crc: int | None = None,
) -> bytes:
    """Return one v0 or v1 message behind its offset and size."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    body += _counted_int32(key) + _counted_int32(value)
    checksum = zlib.crc32(body) if crc is None else crc
    return struct.pack(">qiI", offset, len(body) + 4, checksum) + body


def wrapper(
    records: Sequence[Record],
    magic: int,
    codec: str,
    *,
    append_time_ms: int | None = None,
    inner_magic: int | None = None,
    stream: bytes | None = None,
    offset: int | None = None,
) -> bytes:
    """Return *records* compressed into one v0 or v1 message: relative inner offsets and the last one outside for v1."""
    first = records[0].offset if magic else 0
    inside = magic if inner_magic is None else inner_magic
    inner = b"".join(message(r.offset - first, inside, r.key, r.value, timestamp=r.timestamp) for r in records)
    outer_ms = max(r.timestamp for r in records) if append_time_ms is None else append_time_ms
    attributes = CODECS.index(codec) | (append_time_ms is not None) << 3
    value = compress(codec, inner, magic=magic) if stream is None else stream
    last = records[-1].offset if offset is None else offset
    return message(last, magic, None, value, timestamp=outer_ms, attributes=attributes)


# ---------------------------------------------------------------- beside the log


def offset_entries(base_offset: int, entries: Iterable[tuple[int, int]]) -> bytes:
    """Return an `.index` of (offset, position)."""
    return b"".join(struct.pack(">ii", offset - base_offset, position) for offset, position in entries)


def time_entries(base_offset: int, entries: Iterable[tuple[int, int]]) -> bytes:
    """Return a `.timeindex` of (timestamp in ms, offset)."""
    return b"".join(struct.pack(">qi", timestamp, offset - base_offset) for timestamp, offset in entries)


def aborted_entries(entries: Iterable[tuple[int, int, int, int]]) -> bytes:
    """Return a `.txnindex` of (producer id, first offset, last offset, last stable offset)."""
    return b"".join(struct.pack(">hqqqq", 0, *entry) for entry in entries)


@dataclass(frozen=True)
class Producer:
    """One producer of a snapshot; -1 where there is nothing."""

    producer_id: int
    epoch: int = 0
    last_sequence: int = -1
    last_offset: int = -1
    offset_delta: int = 0
    timestamp: int = -1
    coordinator_epoch: int = -1
    transaction_start: int = -1


def snapshot(producers: Sequence[Producer], *, version: int = 1, crc: int | None = None) -> bytes:
    """Return a producer snapshot."""
    body = struct.pack(">i", len(producers))
    for p in producers:
        body += struct.pack(">qhiqiqiq", p.producer_id, p.epoch, p.last_sequence, p.last_offset, p.offset_delta,
                            p.timestamp, p.coordinator_epoch, p.transaction_start)  # fmt: skip
    return struct.pack(">hI", version, crc32c(body) if crc is None else crc) + body
