"""The four codecs' streams as clients write them, and in every other form that Kafka's readers take."""

from __future__ import annotations

import struct
import zlib

import lz4.block
import snappy
import zstandard

from tests.oracles.plain.xxh32 import xxh32

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""A codec's place here is its number in the attributes."""

XERIAL_MAGIC = bytes.fromhex("82534e4150505900")
LZ4_MAGIC = bytes.fromhex("04224d18")


def gzip_stream(data: bytes, *, level: int = 6, members: int = 1, tail: bytes = b"") -> bytes:
    """Return *data* as gzip in *members* streams, one after another, then *tail* (garbage that readers ignore)."""
    step = max(1, -(-len(data) // members))
    stream = b""
    for at in range(0, max(1, len(data)), step):
        piece = data[at : at + step]
        deflate = zlib.compressobj(level, zlib.DEFLATED, -15)
        stream += bytes.fromhex("1f8b08000000000000ff") + deflate.compress(piece) + deflate.flush()
        stream += struct.pack("<II", zlib.crc32(piece), len(piece) & 0xFFFFFFFF)
    return stream + tail


def snappy_stream(data: bytes, *, framed: bool = True, chunk: int = 32 * 1024, headers: int = 1) -> bytes:
    """Return *data* as snappy: framed as Java's library does, or as one raw block (*framed* false).

    More than one in *headers*: as if streams were concatenated, the magic is repeated before each chunk.
    """
    if not framed:
        return bytes(snappy.compress(data))
    head = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
    stream = head
    for at in range(0, len(data), chunk):
        block = bytes(snappy.compress(data[at : at + chunk]))
        stream += (head if headers > 1 and at else b"") + struct.pack(">i", len(block)) + block
    return stream


def lz4_stream(
    data: bytes,
    *,
    block_code: int = 4,
    block_checksum: bool = False,
    content_size: bool = False,
    content_checksum: bool = False,
    broken_header_checksum: bool = False,
    tail: bytes = b"",
) -> bytes:
    """Return *data* as an lz4 frame of independent blocks of at most `1 << (2 * block_code + 8)` bytes.

    *broken_header_checksum*: computed over the frame's magic too, as Kafka did in messages of magic 0.
    """
    flags = 0x60 | block_checksum << 4 | content_size << 3 | content_checksum << 2
    head = bytes([flags, block_code << 4]) + (struct.pack("<Q", len(data)) if content_size else b"")
    hashed = LZ4_MAGIC + head if broken_header_checksum else head
    stream = LZ4_MAGIC + head + bytes([xxh32(hashed) >> 8 & 0xFF])
    step = 1 << (2 * block_code + 8)
    for at in range(0, len(data), step):
        piece = data[at : at + step]
        packed = lz4.block.compress(piece, store_size=False)
        stored = len(packed) >= len(piece)
        block = piece if stored else packed
        stream += struct.pack("<I", len(block) | stored << 31) + block
        stream += struct.pack("<I", xxh32(block)) if block_checksum else b""
    stream += b"\0\0\0\0" + (struct.pack("<I", xxh32(data)) if content_checksum else b"")
    return stream + tail


def zstd_stream(
    data: bytes,
    *,
    level: int = 3,
    content_size: bool = False,
    checksum: bool = False,
    frames: int = 1,
    skippable: bytes | None = None,
) -> bytes:
    """Return *data* as zstd in *frames* frames, behind a skippable frame holding *skippable* if given."""
    packer = zstandard.ZstdCompressor(level=level, write_content_size=content_size, write_checksum=checksum)
    step = max(1, -(-len(data) // frames))
    stream = b"" if skippable is None else struct.pack("<II", 0x184D2A50, len(skippable)) + skippable
    for at in range(0, max(1, len(data)), step):
        piece = data[at : at + step]
        if content_size:
            stream += packer.compress(piece)
        else:
            flow = packer.compressobj()
            stream += flow.compress(piece) + flow.flush()
    return stream


def compress(codec: str, data: bytes, *, magic: int = 2) -> bytes:
    """Return *data* as Kafka's own writer would compress it for a batch of *magic*."""
    if codec == "none":
        return data
    if codec == "gzip":
        return gzip_stream(data)
    if codec == "snappy":
        return snappy_stream(data)
    if codec == "lz4":
        return lz4_stream(data, broken_header_checksum=magic == 0)
    return zstd_stream(data)
