"""One log for each shape that a batch can have on a healthy disk: for comparisons, and as seeds to mutate."""

from __future__ import annotations

import functools
import struct
from dataclasses import replace

from tests.oracles.plain import compress, encode
from tests.oracles.plain.encode import BatchHeader, Record, batch, empty_batch, marker, message, raw_batch, wrapper

MS = 1_700_000_000_000


def some_records(offset: int, count: int = 3, *, words: int = 3) -> list[Record]:
    """Return *count* records with keys and values of some size, from *offset* on."""
    return [Record(offset + i, MS + 10 * i, b"key-%d" % (i % 5), b"value " * words + b"%d" % i) for i in range(count)]


def varied_records(offset: int) -> list[Record]:
    """Return records with every kind of key, value and header, and times that go back."""
    return [
        Record(offset, MS + 50, None, None),
        Record(offset + 1, MS, b"", b""),
        Record(offset + 2, MS - 86_400_000, b"null value", None),
        Record(offset + 3, MS, None, b"null key"),
        Record(offset + 4, -1, b"\xff\xfe", b"\x00\x01\xed\xa0\x80\xc0\xaf", ((b"a", b"1"), (b"a", b"2"), (b"", b""))),
        Record(offset + 5, MS, "größe".encode(), b'quote " \\ tab \t line \n return \r', (("é".encode(), None),)),
        Record(offset + 6, 2**62, b"k" * 63, b"v" * 64, tuple((b"h%d" % i, b"x" * i) for i in range(70))),
        Record(offset + 7, MS, b"k" * 8191, b"v" * 8192),
    ]


@functools.cache
def plain_logs() -> dict[str, bytes]:
    """Return logs of uncompressed v2 batches, by name."""
    varied = varied_records(100)
    gaps = [Record(2002, MS, b"gone", None), Record(2005, MS + 1, b"live", b"z")]
    header = BatchHeader(base_offset=9, base_timestamp=MS, max_timestamp=MS, count=1)
    kraft = [Record(0, MS, struct.pack(">hh", 0, 3), bytes(2) + struct.pack(">q", 10000) + b"\0")]
    return {
        "plain": batch(some_records(0)) + batch(some_records(3), leader_epoch=7),
        "varied": batch(varied),
        "log append time": batch(varied, append_time_ms=MS + 99),
        "idempotent, sequence wraps": batch(some_records(0, 5), producer=(9001, 3, 2**31 - 3)),
        "transaction": batch(some_records(0), producer=(7, 1, 0), transactional=True)
        + marker(3, commit=False, timestamp=MS, producer_id=7, producer_epoch=1, coordinator_epoch=12)
        + batch(some_records(4), producer=(7, 2, 0), transactional=True)
        + marker(7, commit=True, timestamp=MS, producer_id=7, producer_epoch=2, coordinator_epoch=13),
        "compacted": batch(
            gaps, base_offset=2000, last_offset=2009, producer=(77, 0, 10), delete_horizon_ms=MS + 86_400_000
        )
        + empty_batch(2010, 2014, max_timestamp=MS)
        + empty_batch(2015, 2015, transactional=True, log_append_time=True),
        "far offsets": batch(some_records(2**31 - 2)) + batch(some_records(2**40)),
        "high attribute byte": raw_batch(
            replace(header, high_attributes=0x7F), encode.record(key=b"k", value=b"v", attributes=-1)
        ),
        "KRaft": batch(kraft, control=True),
    }


@functools.cache
def compressed_logs() -> dict[str, bytes]:
    """Return logs of compressed v2 batches, by name: every framing that Kafka reads."""
    records, varied = some_records(0, 200, words=100), varied_records(200)
    payload = encode.records_payload(records, 0, MS)
    streams = {
        "gzip members": ("gzip", compress.gzip_stream(payload, members=3)),
        "gzip tail": ("gzip", compress.gzip_stream(payload, tail=b"garbage that is long enough")),
        "gzip stored": ("gzip", compress.gzip_stream(payload, level=0)),
        "snappy raw": ("snappy", compress.snappy_stream(payload, framed=False)),
        "snappy small chunks": ("snappy", compress.snappy_stream(payload, chunk=1024)),
        "snappy repeated header": ("snappy", compress.snappy_stream(payload, headers=2)),
        "lz4 block checksum": ("lz4", compress.lz4_stream(payload, block_checksum=True)),
        "lz4 256K": ("lz4", compress.lz4_stream(payload, block_code=5, content_size=True)),
        "lz4 4M": (
            "lz4",
            compress.lz4_stream(payload, block_code=7, content_checksum=True, tail=b"after the end mark"),
        ),
        "zstd size and checksum": ("zstd", compress.zstd_stream(payload, content_size=True, checksum=True)),
        "zstd frames": ("zstd", compress.zstd_stream(payload, frames=3, skippable=b"skip me")),
        "zstd level 19": ("zstd", compress.zstd_stream(payload, level=19)),
    }
    logs = {codec: batch(records, codec=codec) + batch(varied, codec=codec) for codec in compress.CODECS[1:]}
    logs |= {name: batch(records, codec=codec, stream=stream) for name, (codec, stream) in streams.items()}
    gaps = [records[5], records[50], records[199]]
    logs["lz4 compacted"] = batch(gaps, codec="lz4", base_offset=0, last_offset=240, delete_horizon_ms=MS + 1)
    logs["zstd log append time"] = batch(varied, codec="zstd", append_time_ms=MS + 7)
    return logs


@functools.cache
def legacy_logs() -> dict[str, bytes]:
    """Return logs of magic 0 and 1, by name."""
    records = some_records(40, 6, words=30)
    bare = [replace(r, headers=()) for r in varied_records(0)]
    gaps = [records[0], records[3], records[5]]
    logs = {
        f"v{magic} plain": b"".join(message(r.offset, magic, r.key, r.value, timestamp=r.timestamp) for r in bare)
        for magic in (0, 1)
    }
    for magic in (0, 1):
        for codec in ("gzip", "snappy", "lz4"):
            logs[f"v{magic} {codec}"] = wrapper(records, magic, codec) + wrapper(varied_records(50), magic, codec)
    logs |= {
        "v1 log append time": wrapper(records, 1, "gzip", append_time_ms=MS + 77)
        + message(46, 1, b"k", b"v", timestamp=MS + 78, attributes=8),
        "v1 gaps": wrapper(gaps, 1, "snappy"),
        "v1 wrapper at 0": wrapper(some_records(0, 1), 1, "lz4"),
        "v0 in v1": wrapper(records, 1, "gzip", inner_magic=0),
        "v1 in v0": wrapper(records, 0, "lz4", inner_magic=1),
        "all magics": message(0, 0, b"k", b"v")
        + wrapper(some_records(1, 2), 1, "gzip")
        + batch(some_records(3))
        + message(6, 1, None, b"v"),
    }
    return logs


@functools.cache
def all_logs() -> dict[str, bytes]:
    """Return every log, by name."""
    return plain_logs() | compressed_logs() | legacy_logs()
