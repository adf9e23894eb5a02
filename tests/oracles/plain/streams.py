"""Compressed streams in every framing, to be mutated and read by different readers."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from tests.oracles.plain import compress, encode, mutate, shapes


class Stream(NamedTuple):
    """A compressed stream: the number of its codec, the magic of its batch, its bytes."""

    codec: int
    magic: int
    data: bytes


def whole_streams() -> list[Stream]:
    """Return streams that are whole, of little, of much and of incompressible content."""
    records = encode.records_payload(shapes.some_records(0, 50), 0, shapes.MS)
    noise = Random(5).randbytes(70_000)
    return [stream for data in (b"", b"a", records, bytes(70_000), noise) for stream in _framings(data)]


def _framings(data: bytes) -> Iterator[Stream]:
    for members in (1, 3):
        yield Stream(1, 2, compress.gzip_stream(data, members=members))
        yield Stream(1, 2, compress.gzip_stream(data, members=members, tail=b"long enough for a member"))
    if data:  # snappy-java has no empty chunk
        yield Stream(2, 2, compress.snappy_stream(data, framed=False))
    yield Stream(2, 2, compress.snappy_stream(data))
    yield Stream(2, 2, compress.snappy_stream(data, chunk=1024, headers=2))
    for magic in (0, 1, 2):
        broken = magic == 0
        plain = compress.lz4_stream(data, broken_header_checksum=broken)
        checked = compress.lz4_stream(data, block_checksum=True, broken_header_checksum=broken, tail=b"tail")
        full = compress.lz4_stream(
            data, block_code=5, content_size=True, content_checksum=True, broken_header_checksum=broken
        )
        yield from (Stream(3, magic, stream) for stream in (plain, checked, full))
    yield Stream(4, 2, compress.zstd_stream(data))
    yield Stream(4, 2, compress.zstd_stream(data, content_size=True, checksum=True))
    yield Stream(4, 2, compress.zstd_stream(data, frames=3, skippable=b"skip"))


def broken_streams(chance: Random, count: int) -> Iterator[Stream]:
    """Yield *count* streams with mistakes, half of them in the first bytes, the place of the framing."""
    streams = whole_streams()
    for _ in range(count):
        stream = chance.choice(streams)
        times = chance.choice((1, 1, 2))
        if chance.random() < 0.5:
            data = mutate.mutate(stream.data[:30], chance, times) + stream.data[30:]
        else:
            data = mutate.mutate(stream.data, chance, times)
        yield stream._replace(data=data)
