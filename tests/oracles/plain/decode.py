"""Reads a log's bytes by Kafka's rules, one field after another, and looks everywhere for intact entries."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from crc32c import crc32c

from tests.oracles.plain.decompress import LIMIT, BadStreamError, TooLargeError, decompress

Header = tuple[bytes, bytes | None]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd", "5", "6", "7")


@dataclass(frozen=True)
class Damage:
    """The damage from *position* (bytes) on; *size* if the stretch is known."""

    kind: str
    position: int
    detail: str = ""
    offset: int | None = None
    size: int | None = None
    stored: int | None = None
    computed: int | None = None


@dataclass(frozen=True)
class Record:
    """One record as a consumer would see it.

    *crc* and *crc_holds* are those of a v0 or v1 message, and *lengths* of its key and value as stored: any negative
    one is null.  In v2, -1 is.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    sequence: int = -1
    crc: int | None = None
    crc_holds: bool = True
    lengths: tuple[int, int] = (-1, -1)


@dataclass(frozen=True)
class Batch:
    """One entry of a log whose CRC holds.  *fault*: why its records could not be read to the end."""

    position: int
    size: int
    magic: int
    codec: int
    crc: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    timestamp_type: str
    count: int | None = None
    leader_epoch: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    base_timestamp: int = -1
    transactional: bool = False
    control: bool = False
    delete_horizon_ms: int | None = None
    records: tuple[Record, ...] = field(default=(), repr=False)
    fault: Damage | None = None


class BadRecordError(Exception):
    """Kafka would not read this record."""


# ---------------------------------------------------------------- entries

_SMALLEST = {0: 26, 1: 34, 2: 61}


def entry_damage(data: bytes, position: int) -> Damage | None:
    """Return what keeps the bytes at *position* from being an entry with a CRC that holds, None if nothing does."""
    left = len(data) - position
    offset = struct.unpack_from(">q", data, position)[0] if left >= 8 else None
    if not any(data[position : position + 1024]) and not any(data[position:]):
        return Damage("zeroed tail", position, f"{left} zeros", size=left)
    if left <= 17:
        return Damage("torn tail", position, f"{left} bytes", offset, left)
    size, magic = struct.unpack_from(">i4xb", data, position + 8)
    if size < 14:
        return Damage("bad length", position, f"size {size}", offset)
    if 12 + size > left:
        return Damage("torn tail", position, f"{12 + size} bytes announced, {left} left", offset, left)
    if magic not in _SMALLEST:
        return Damage("bad magic", position, f"magic {magic}", offset, 12 + size)
    if 12 + size < _SMALLEST[magic]:
        return Damage("short header", position, f"{12 + size} bytes", offset, 12 + size)
    stored, computed = _checksums(data[position : position + 12 + size], magic)
    if stored == computed:
        return None
    detail = f"{stored:#010x}, computed {computed:#010x}"
    return Damage("bad CRC", position, detail, offset, 12 + size, stored, computed)


def _checksums(entry: bytes, magic: int) -> tuple[int, int]:
    if magic == 2:
        return struct.unpack_from(">I", entry, 17)[0], crc32c(entry[21:])
    return struct.unpack_from(">I", entry, 12)[0], zlib.crc32(entry[16:])


def next_intact(data: bytes, position: int, offsets: range) -> int | None:
    """Return the first position from *position* on of an entry with one of *offsets* whose CRC holds: all are tried."""
    for at in range(position, len(data) - 25):
        cheap = data[at + 16] <= 2 and data[at + 8] < 0x80 and struct.unpack_from(">q", data, at)[0] in offsets
        if cheap and entry_damage(data, at) is None:
            return at
    return None


def scan(data: bytes, *, offsets: range = range(2**63), limit: int = LIMIT) -> Iterator[Batch | Damage]:
    """Yield the entries of a log, and between them whatever is damaged.

    After damage it continues at the next entry that is intact and has one of *offsets*, those that the segment can
    hold.
    """
    position = 0
    while position < len(data):
        damage = entry_damage(data, position)
        if damage is None:
            size = 12 + struct.unpack_from(">i", data, position + 8)[0]
            yield read_entry(data[position : position + size], position, limit)
            position += size
            continue
        found = next_intact(data, position + 1, offsets)
        if found is not None and damage.kind == "torn tail":
            damage = replace(damage, kind="bad length")
        yield damage if found is None else replace(damage, size=found - position)
        position = len(data) if found is None else found


def read_entry(entry: bytes, position: int, limit: int) -> Batch:
    """Return the batch or message that *entry* is, with its records."""
    batch = _header_v2(entry, position) if entry[16] == 2 else _header_legacy(entry, position)
    records: list[Record] = []
    try:
        # One by one: the records before the bad one stay.
        for record in _records_v2(batch, entry, limit) if entry[16] == 2 else _records_legacy(batch, entry, limit):
            records.append(record)  # noqa: PERF402
        return replace(batch, records=tuple(records))
    except BadRecordError as problem:
        fault = Damage("bad record", position, str(problem), batch.base_offset, len(entry))
    except BadStreamError as problem:
        fault = Damage("bad compression", position, str(problem), batch.base_offset, len(entry))
    except TooLargeError:
        fault = Damage("bad compression", position, f"more than {limit} bytes", batch.base_offset, len(entry))
    return replace(batch, records=tuple(records), fault=fault)


# ---------------------------------------------------------------- v2


def _wrap64(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _header_v2(entry: bytes, position: int) -> Batch:
    base, size, epoch, _, crc, _, attributes, delta, base_ms, max_ms, producer, producer_epoch, sequence, count = (
        struct.unpack_from(">qiibIBBiqqqhii", entry)
    )
    return Batch(
        position=position,
        size=12 + size,
        magic=2,
        codec=attributes & 7,
        crc=crc,
        base_offset=base,
        last_offset=_wrap64(base + delta),
        max_timestamp=max_ms,
        timestamp_type="LogAppendTime" if attributes & 8 else "CreateTime",
        count=count,
        leader_epoch=epoch,
        producer_id=producer,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        base_timestamp=base_ms,
        transactional=bool(attributes & 16),
        control=bool(attributes & 32),
        delete_horizon_ms=base_ms if attributes & 64 else None,
    )


def _wrap32(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def sequence_after(first: int, steps: int) -> int:
    """Return the sequence *steps* after *first*: they go from 2**31 - 1 to 0, and all sums are of 32 bits."""
    most = 2**31 - 1
    if first > _wrap32(most - steps):
        return _wrap32(steps - (most - first) - 1)
    return _wrap32(first + steps)


class _Reader:
    """A cursor over bytes that never leaves them."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, size: int) -> bytes:
        if not 0 <= size <= self.left():
            raise BadRecordError(f"{size} bytes where {self.left()} are left")
        self.at += size
        return self.data[self.at - size : self.at]

    def varint(self, groups: int = 5, bits: int = 32) -> int:
        value = 0
        for group, byte in enumerate(self.data[self.at : self.at + groups]):
            value |= (byte & 0x7F) << (7 * group)
            if byte < 0x80:
                self.at += group + 1
                value &= (1 << bits) - 1
                return (value >> 1) ^ -(value & 1)
        raise BadRecordError("a varint without an end")

    def varlong(self) -> int:
        return self.varint(10, 64)

    def counted(self) -> tuple[int, bytes | None]:
        size = max(-1, self.varint())
        return size, None if size < 0 else self.take(size)

    def counted_int32(self) -> tuple[int, bytes | None]:
        (size,) = struct.unpack(">i", self.take(4))
        return size, None if size < 0 else self.take(size)


def _records_v2(batch: Batch, entry: bytes, limit: int) -> Iterator[Record]:
    count = batch.count or 0
    if count < 0:
        raise BadRecordError(f"{count} records")
    if count == 0:
        return
    reader = _Reader(decompress(batch.codec, entry[61:], limit=limit))
    for _ in range(count):
        size = reader.varint()
        yield _record_v2(batch, _Reader(reader.take(size)))
    if reader.left():
        raise BadRecordError(f"{reader.left()} bytes after the last record")


def _record_v2(batch: Batch, reader: _Reader) -> Record:
    reader.take(1)
    timestamp = _wrap64(batch.base_timestamp + reader.varlong())
    delta = reader.varint()
    (key_length, key), (value_length, value) = reader.counted(), reader.counted()
    count = reader.varint()
    if not 0 <= count <= reader.left():
        raise BadRecordError(f"{count} headers")
    headers = []
    for _ in range(count):
        _, name = reader.counted()
        if name is None:
            raise BadRecordError("a header without a name")
        headers.append((name, reader.counted()[1]))
    if reader.left():
        raise BadRecordError(f"{reader.left()} bytes left in the record")
    if batch.timestamp_type == "LogAppendTime":
        timestamp = batch.max_timestamp
    sequence = -1 if batch.base_sequence < 0 else sequence_after(batch.base_sequence, delta)
    offset = _wrap64(batch.base_offset + delta)
    return Record(offset, timestamp, key, value, tuple(headers), sequence, lengths=(key_length, value_length))


# ---------------------------------------------------------------- v0 and v1


@dataclass(frozen=True)
class _Message:
    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    crc: int
    crc_holds: bool
    lengths: tuple[int, int]


def _message(entry: bytes) -> _Message:
    reader = _Reader(entry)
    offset, _, crc, magic, attributes = struct.unpack(">qiIbb", reader.take(18))
    # Inside a wrapper Kafka reads any other magic as it reads 1.
    timestamp = struct.unpack(">q", reader.take(8))[0] if magic else -1
    (key_length, key), (value_length, value) = reader.counted_int32(), reader.counted_int32()
    holds = crc == zlib.crc32(entry[16:])
    return _Message(offset, magic, attributes & 0xFF, timestamp, key, value, crc, holds, (key_length, value_length))


def _header_legacy(entry: bytes, position: int) -> Batch:
    offset, size, crc, magic, attributes = struct.unpack_from(">qiIbb", entry)
    append = magic == 1 and attributes & 8
    return Batch(
        position=position,
        size=12 + size,
        magic=magic,
        codec=attributes & 7,
        crc=crc,
        base_offset=offset,
        last_offset=offset,
        max_timestamp=struct.unpack_from(">q", entry, 18)[0] if magic else -1,
        timestamp_type="LogAppendTime" if append else "CreateTime" if magic else "NoTimestampType",
    )


def _records_legacy(batch: Batch, entry: bytes, limit: int) -> Iterator[Record]:
    outer = _message(entry)
    if batch.codec == 0:
        yield Record(outer.offset, outer.timestamp, outer.key, outer.value, crc=outer.crc, lengths=outer.lengths)
        return
    if batch.codec == 4:
        raise BadStreamError("zstd in a message of magic 0 or 1")
    if outer.value is None:
        raise BadRecordError("a wrapper without a value")
    inner = list(_inner(decompress(batch.codec, outer.value, magic=batch.magic, limit=limit)))
    base = _absolute_base(outer, struct.unpack_from(">q", inner[-1])[0])
    for one in map(_message, inner):
        if one.attributes & 7:
            raise BadRecordError("a compressed message inside a wrapper")
        append = batch.timestamp_type == "LogAppendTime" and one.magic == 1
        timestamp = outer.timestamp if append else one.timestamp
        yield Record(
            _wrap64(base + one.offset),
            timestamp,
            one.key,
            one.value,
            crc=one.crc,
            crc_holds=one.crc_holds,
            lengths=one.lengths,
        )


def _inner(data: bytes) -> Iterator[bytes]:
    """Yield the messages of a wrapper as bytes; a partial last one is dropped without a word."""
    at, some = 0, False
    while at + 12 <= len(data):
        (size,) = struct.unpack_from(">i", data, at + 8)
        if size < 14:
            raise BadRecordError(f"an inner message of {size} bytes")
        if at + 12 + size > len(data):
            break
        yield data[at : at + 12 + size]
        some = True
        at += 12 + size
    if not some:
        raise BadRecordError("a wrapper without messages")


def _absolute_base(outer: _Message, last: int) -> int:
    """Return the base of the inner messages' offsets; *last* is that of the last one."""
    if outer.magic == 0 or outer.offset == 0:
        return 0
    if outer.offset < last:
        raise BadRecordError(f"a wrapper at {outer.offset} whose last message is {last}")
    return _wrap64(outer.offset - last)
