"""Impossible batches, and sound ones between them."""

from __future__ import annotations

import struct

from klog.formats.batch import BATCH

from tests.oracles.plain import compress, encode
from tests.oracles.plain.encode import Record, batch, marker, raw_batch
from tests.oracles.plain.shapes import MS, some_records
from tests.partition.verify.test_matrix import with_good_crc


def rows(base: int, count: int = 10, **more: object) -> bytes:
    return batch(some_records(base, count), **more)  # type: ignore[arg-type]


def txn(base: int, count: int = 3, *, transactional: bool = True, first: int = 0) -> bytes:
    return rows(base, count, producer=(7, 1, first), transactional=transactional)


def ends(offset: int, *, commit: bool = True) -> bytes:
    return marker(offset, commit=commit, timestamp=MS + 50, producer_id=7, producer_epoch=1, coordinator_epoch=1)


def not_compressed(base: int, codec: int) -> bytes:
    """Return a batch whose header claims compression, but which has none."""
    header = encode.BatchHeader(
        base_offset=base, codec=codec, last_offset_delta=2, base_timestamp=MS, max_timestamp=MS, count=3
    )
    return raw_batch(header, b"not compressed")


def wrong_record(base: int) -> bytes:
    """Return a batch with a record whose offset is none of the batch's."""
    strange = bytearray(batch([Record(at, MS, b"k", b"v") for at in range(base, base + 3)]))
    strange[bytes(strange).index(b"\x02k\x02v") - 1] = 2 * 30
    return with_good_crc(bytes(strange))


def wrong_count(base: int) -> bytes:
    data = bytearray(rows(base, 3))
    struct.pack_into(">i", data, BATCH.offsets["records_count"], 7)
    return with_good_crc(bytes(data))


def wrong_wrapper(_: int) -> bytes:
    """Return a message whose inner message has a checksum that does not hold."""
    messages = bytearray(encode.message(0, 1, b"k", b"value") + encode.message(1, 1, b"k", b"value"))
    messages[-1] ^= 0xFF
    return encode.message(1, 1, None, compress.gzip_stream(bytes(messages)), attributes=1)


def bad_marker(offset: int) -> bytes:
    end = Record(offset, MS, struct.pack(">hh", 0, 1), b"\0")
    return batch([end], transactional=True, control=True, producer=(7, 1, -1))


def with_offset(data: bytes, offset: int) -> bytes:
    return offset.to_bytes(8, "big") + data[8:]


def with_epoch(data: bytes, epoch: int) -> bytes:
    return data[:12] + epoch.to_bytes(4, "big") + data[16:]


def broken(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 0xFF])


def late(base: int, after_ms: int) -> bytes:
    """Return a batch without a producer, so long after the others."""
    return batch([Record(base, MS + after_ms, b"k", b"v")])
