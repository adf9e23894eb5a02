"""The four codecs' streams read by the rules of Kafka's own readers, with a limit on the output."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import lz4.block
import snappy
import zstandard

from tests.oracles.plain.xxh32 import xxh32

LIMIT = 64 << 20


class BadStreamError(Exception):
    """Kafka's reader would not get to the end of this stream."""


class TooLargeError(Exception):
    """The output would exceed the limit."""


def _gzip_header(data: bytes) -> int:
    """Return where the member's deflate stream begins, 0 if this is no header.

    Reserved flags mean nothing, as they do to Java.
    """
    if len(data) < 10 or data[:3] != b"\x1f\x8b\x08":
        return 0
    flags, at = data[3], 10
    if flags & 4:  # extra field
        at += 2 + int.from_bytes(data[at : at + 2], "little")
    for flag in (8, 16):  # name, comment: up to a zero
        if flags & flag:
            at = data.find(0, at) + 1 or len(data) + 1
    if flags & 2:  # checksum of the header
        if int.from_bytes(data[at : at + 2], "little") != zlib.crc32(data[:at]) & 0xFFFF:
            return 0
        at += 2
    return at if at <= len(data) else 0


def _ungzip(stream: bytes, magic: int, limit: int) -> bytes:
    """Members one after another; bytes behind a whole member without a member's header are ignored."""
    output, rest = b"", stream
    start = _gzip_header(rest)
    if not start:
        raise BadStreamError("gzip: no header")
    while start:
        inflate = zlib.decompressobj(-15)
        try:
            member = inflate.decompress(rest[start:], limit + 1 - len(output))
        except zlib.error as problem:
            raise BadStreamError(f"gzip: {problem}") from None
        output += member
        if len(output) > limit:
            raise TooLargeError
        trailer = inflate.unused_data[:8]
        if not inflate.eof or len(trailer) < 8:
            raise BadStreamError("gzip: the stream ends too early")
        if struct.unpack("<II", trailer) != (zlib.crc32(member), len(member) & 0xFFFFFFFF):
            raise BadStreamError("gzip: the content's checksum or size")
        rest = inflate.unused_data[8:]
        start = _gzip_header(rest) if len(rest) > 18 else 0
    return output


def _unsnappy_block(block: bytes, limit: int) -> bytes:
    """One raw block; the length that it announces is compared with *limit* before anything is done."""
    announced, shift = 0, 0
    for byte in block[:5]:
        announced |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise BadStreamError("snappy: no length")
    if announced > limit:
        raise TooLargeError
    try:
        return bytes(snappy.decompress(block))
    except Exception as problem:
        raise BadStreamError(f"snappy: {problem}") from None


def _unsnappy(stream: bytes, magic: int, limit: int) -> bytes:
    """Java's framing if its magic and a whole header are in front, else one raw block."""
    if len(stream) < 16 or stream[:8] != bytes.fromhex("82534e4150505900"):
        return _unsnappy_block(stream, limit)
    output, at = b"", 16
    while at + 4 <= len(stream):
        if stream[at : at + 4] == stream[:4]:  # streams that were joined: four bytes of the magic are looked at
            if at + 16 > len(stream) or struct.unpack_from(">i", stream, at + 8)[0] < 1:
                raise BadStreamError("snappy: a later header")
            at += 16
            continue
        (size,) = struct.unpack_from(">i", stream, at)
        if size <= 0 or at + 4 + size > len(stream):
            raise BadStreamError(f"snappy: a chunk of {size} bytes where {len(stream) - at - 4} are left")
        output += _unsnappy_block(stream[at + 4 : at + 4 + size], limit - len(output))
        at += 4 + size
    return output


def _lz4_header(stream: bytes, magic: int) -> tuple[int, int, bool, bool]:
    """Return where the blocks begin, the largest block's size, and whether blocks and content carry checksums."""
    if len(stream) < 7 or stream[:4] != bytes.fromhex("04224d18"):
        raise BadStreamError("lz4: no frame")
    flags, descriptor = stream[4], stream[5]
    if flags & 0xE3 != 0x60 or descriptor & 0x8F or not 4 <= descriptor >> 4 <= 7:
        raise BadStreamError(f"lz4: a frame of kind {flags:02x} {descriptor:02x}")
    end = 14 if flags & 8 else 6
    if len(stream) <= end:
        raise BadStreamError("lz4: the header ends too early")
    # Messages of magic 0 have the wrong checksum there, so Kafka does not look.
    if magic and xxh32(stream[4:end]) >> 8 & 0xFF != stream[end]:
        raise BadStreamError("lz4: the header's checksum")
    return end + 1, 1 << (2 * (descriptor >> 4) + 8), bool(flags & 0x10), bool(flags & 4)


def _unlz4(stream: bytes, magic: int, limit: int) -> bytes:
    """One frame of independent blocks up to its end mark; the content's checksum must be there, right or wrong."""
    at, largest, checked, tailed = _lz4_header(stream, magic)
    output = b""
    while True:
        if at + 4 > len(stream):
            raise BadStreamError("lz4: no end mark")
        (word,) = struct.unpack_from("<I", stream, at)
        size, at = word & 0x7FFFFFFF, at + 4
        if size == 0:
            if at + 4 * tailed > len(stream):
                raise BadStreamError("lz4: no checksum of the content")
            return output
        if size > largest or at + size + 4 * checked > len(stream):
            raise BadStreamError(f"lz4: a block of {size} bytes")
        block, at = stream[at : at + size], at + size
        if checked and struct.unpack_from("<I", stream, at)[0] != xxh32(block):
            raise BadStreamError("lz4: a block's checksum")
        at += 4 * checked
        try:
            output += block if word >> 31 else lz4.block.decompress(block, uncompressed_size=largest)
        except lz4.block.LZ4BlockError as problem:
            raise BadStreamError(f"lz4: {problem}") from None
        if len(output) > limit:
            raise TooLargeError


def _unzstd(stream: bytes, magic: int, limit: int) -> bytes:
    """Frames one after another, skippable ones too; nothing else may follow, nothing at all is nothing."""
    output, at = b"", 0
    # A few bytes at a time: a handful of them can unpack to megabytes.
    step = 64
    while at < len(stream):
        flow = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
        while not flow.eof:
            if at >= len(stream):
                raise BadStreamError("zstd: the stream ends too early")
            try:
                output += flow.decompress(stream[at : at + step])
            except zstandard.ZstdError as problem:
                raise BadStreamError(f"zstd: {problem}") from None
            if len(output) > limit:
                raise TooLargeError
            at += step
        at = min(at, len(stream)) - len(flow.unused_data)
    return output


_READERS: dict[int, Callable[[bytes, int, int], bytes]] = {1: _ungzip, 2: _unsnappy, 3: _unlz4, 4: _unzstd}


def decompress(codec: int, stream: bytes, *, magic: int = 2, limit: int = LIMIT) -> bytes:
    """Return what *stream* holds; raises BadStreamError or TooLargeError."""
    if codec == 0:
        return stream
    if codec not in _READERS:
        raise BadStreamError(f"codec {codec}")
    return _READERS[codec](stream, magic, limit)
