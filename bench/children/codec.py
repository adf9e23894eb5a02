"""A codec library's own time on a segment: ``codec.py CODEC FILE [compress]``; prints bytes made and CPU seconds.

All payloads are in memory before the clock starts, and only the library's calls are between two looks at the clock.
The fastest known calls of each library are used, with everything reusable reused.
"""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Callable, Sized

HEADER_BYTES = 61
XERIAL_HEADER_BYTES = 16


def payloads(path: str) -> list[bytes]:
    found = []
    with open(path, "rb") as file:
        log = file.read()
    position = 0
    while position < len(log):
        end = position + 12 + struct.unpack_from(">i", log, position + 8)[0]
        found.append(log[position + HEADER_BYTES : end])
        position = end
    return found


def xerial_chunks(payload: bytes) -> list[bytes]:
    found = []
    position = XERIAL_HEADER_BYTES
    while position < len(payload):
        start = position + 4
        position = start + int.from_bytes(payload[position:start], "big")
        found.append(payload[start:position])
    return found


def lz4_call() -> Callable[[bytes], bytes]:
    import lz4.frame

    context, decompress = lz4.frame.create_decompression_context(), lz4.frame.decompress_chunk
    return lambda payload: decompress(context, payload)[0]


def zstd_call() -> Callable[[bytes], bytes]:
    import zstandard

    decompress = zstandard.ZstdDecompressor().decompress
    return lambda payload: decompress(payload, 1 << 20)  # for frames without their size, as Kafka's own


def gzip_call() -> Callable[[bytes], bytes]:
    from isal import isal_zlib

    decompress = isal_zlib.decompress
    return lambda payload: decompress(payload, 31)


def snappy_call() -> Callable[[bytes], Sized]:
    import cramjam

    return cramjam.snappy.decompress_raw


CALLS: dict[str, Callable[[], Callable[[bytes], Sized]]] = {
    "gzip": gzip_call,
    "snappy": snappy_call,
    "lz4": lz4_call,
    "zstd": zstd_call,
}


def compressor(codec: str) -> Callable[[bytes], Sized]:
    """Return the library's call that compresses as Kafka does at its default levels."""
    if codec == "lz4":
        import lz4.frame

        size = lz4.frame.BLOCKSIZE_MAX64KB
        return lambda plain: lz4.frame.compress(plain, block_size=size, block_linked=False, store_size=False)
    if codec == "zstd":
        import zstandard

        return zstandard.ZstdCompressor(level=3).compress
    if codec == "snappy":
        import snappy

        return snappy.compress
    import zlib

    return zlib.compress


def main(codec: str, path: str, what: str = "decompress") -> None:
    pieces: list[bytes] = payloads(path)
    if codec == "snappy":
        pieces = [chunk for payload in pieces for chunk in xerial_chunks(payload)]
    call = CALLS[codec]()
    if what == "compress":
        pieces = [bytes(call(piece)) for piece in pieces]  # type: ignore[call-overload]  # a Sized that is a buffer
        call = compressor(codec)
    size = sum(len(call(piece)) for piece in pieces)
    began = time.process_time()
    for piece in pieces:
        call(piece)
    print(size, time.process_time() - began)


main(*sys.argv[1:])
