"""Small files that unpack to large ones, take for ever, or crash readers that trust their numbers."""

from __future__ import annotations

import functools
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace

from tests.oracles.plain import compress, encode, shapes
from tests.oracles.plain.encode import BatchHeader, raw_batch

ONE = BatchHeader(count=1, base_timestamp=1, max_timestamp=1)
MIB = 1 << 20


def _gzip_zeros(mebibytes: int, *, byte: bytes = b"\0", crc: int = 0) -> bytes:
    """Return a gzip member of so many MiB: a stretch that was compressed once, over and over."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    stretch = deflate.compress(byte * MIB) + deflate.flush(zlib.Z_FULL_FLUSH)
    trailer = struct.pack("<II", crc, mebibytes << 20 & 0xFFFFFFFF)
    return bytes.fromhex("1f8b08000000000000ff") + stretch * mebibytes + b"\x03\0" + trailer


def _zstd_zeros(mebibytes: int) -> bytes:
    """Return a zstd frame of so many MiB in blocks that repeat a byte: four bytes for 128 KiB each."""
    block = struct.pack("<I", 1 << 17 << 3 | 1 << 1)[:3] + b"\0"
    return bytes.fromhex("28b52ffd0058") + block * (8 * mebibytes) + b"\1\0\0"


def _snappy_zeros(mebibytes: int) -> bytes:
    block = compress.snappy_stream(bytes(MIB), framed=False)
    return compress.snappy_stream(b"") + (struct.pack(">i", len(block)) + block) * mebibytes


def _batch(codec: int, stream: bytes) -> bytes:
    return raw_batch(replace(ONE, codec=codec), stream)


_BOMBS: dict[str, Callable[[], bytes]] = {
    "gzip": lambda: _batch(1, _gzip_zeros(1024)),
    "snappy": lambda: _batch(2, _snappy_zeros(20)),
    "lz4": lambda: _batch(3, compress.lz4_stream(bytes(250 * MIB), block_code=7)),
    "zstd": lambda: _batch(4, _zstd_zeros(30_000)),
    "snappy that claims 4 GiB": lambda: _batch(2, encode.unsigned_varint(2**32 - 1) + b"\xfe\1\0" * 300_000),
    "gzip with 40000 empty members": lambda: _batch(
        1, _gzip_zeros(100, crc=zlib.crc32(bytes(100 * MIB))) + compress.gzip_stream(b"") * 40_000
    ),
    "zstd of 100000 empty frames": lambda: _batch(4, compress.zstd_stream(b"") * 100_000),
    "zstd of 120000 frames to skip": lambda: _batch(4, struct.pack("<II", 0x184D2A50, 0) * 120_000),
    "v1 wrapper": lambda: encode.message(0, 1, None, _gzip_zeros(1024), timestamp=1, attributes=1),
}
BOMBS = tuple(_BOMBS)


@functools.cache
def bomb(name: str) -> bytes:
    """Return a compressed batch of about 1 MB that holds as much as its codec allows."""
    return _BOMBS[name]()


@functools.cache
def claims() -> dict[str, bytes]:
    """Return small logs whose numbers promise too much, by name."""
    many = replace(ONE, count=2**31 - 1, last_offset_delta=2**31 - 2)
    few = compress.zstd_stream(encode.record() * 1000)
    start = encode.varint(1000) + b"\0\0\0"
    return {
        "a batch of 2 GiB": raw_batch(ONE, b"", length=2**31 - 1),
        "2147483647 records": raw_batch(many, encode.record(value=b"x") * 100),
        "2147483647 records, compressed": raw_batch(replace(many, codec=4), few),
        "a key of 2 GiB": raw_batch(ONE, start + encode.varint(2**31 - 1) + b"key"),
        "2147483647 headers": raw_batch(ONE, start + b"\1\1" + encode.varint(2**31 - 1) + b"\2h\2v" * 9),
        "a message of 2 GiB": struct.pack(">qiIbbiq", 0, 2**31 - 1, 0, 1, 0, -1, 0),
        "a message's key of 2 GiB": encode.message(0, 1, b"k" * 20, None).replace(
            struct.pack(">i", 20), struct.pack(">i", 2**31 - 1)
        ),
    }


def false_headers(mebibytes: int, claimed: int) -> bytes:
    """Return a log in which every 32 bytes may begin a message of *claimed* bytes, whose checksum must be computed."""
    head = struct.pack(">qiIbb", 5, claimed, 0, 0, 0) + b"\xff" * 8 + struct.pack(">i", -1) + b"\xff\xff"
    return head * (mebibytes * MIB // len(head))


@functools.cache
def one_value(mebibytes: int, byte: bytes) -> bytes:
    """Return a compressed batch with one value of so many MiB of *byte*."""
    size = mebibytes * MIB
    body = b"\0\0\0\1" + encode.varint(size)
    return _batch(1, compress.gzip_stream(encode.varint(len(body) + size + 1) + body + byte * size + b"\0", level=9))


@functools.cache
def healthy(mebibytes: int) -> bytes:
    """Return so many MiB of ordinary batches."""
    data = bytearray()
    part = encode.records_payload(shapes.some_records(0, 20, words=40), 0, shapes.MS)
    header = BatchHeader(last_offset_delta=19, base_timestamp=shapes.MS, max_timestamp=shapes.MS + 190, count=20)
    while len(data) < mebibytes * MIB:
        data += raw_batch(header, part)
        header = replace(header, base_offset=header.base_offset + 20)
    return bytes(data)
