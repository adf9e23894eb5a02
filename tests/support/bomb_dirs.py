"""Log dirs of some kilobytes that unpack to gigabytes: readers must keep to a bound.

Each bomb is one partition beside `meta.properties`; its numbers are right, and its checksums match.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.oracles.plain import compress
from tests.oracles.plain.encode import BatchHeader, raw_batch, record, unsigned_varint, varint

CODECS = compress.CODECS[1:]
MS = 1_700_000_000_000
META = "version=1\nnode.id=1\ncluster.id=abcdefghijklmnopqrstuv\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n"
_COMMIT = struct.pack(">hqih", 3, 1, 0, 0) + struct.pack(">q", MS)
_LZ4_LARGE = 7


@dataclass(frozen=True)
class Bomb:
    """A bomb: the partition's directory, and the maker of its log for a codec."""

    directory: str
    log: Callable[[str], bytes]
    codecs: tuple[str, ...] = CODECS

    def write(self, folder: Path, codec: str) -> Path:
        """Make the log dir *folder*, and return it."""
        (folder / self.directory).mkdir(parents=True)
        (folder / "meta.properties").write_text(META)
        (folder / self.directory / f"{0:020d}.log").write_bytes(self.log(codec))
        return folder


def _stream(codec: str, content: bytes) -> bytes:
    if codec == "lz4":
        return compress.lz4_stream(content, block_code=_LZ4_LARGE)
    if codec == "gzip":
        return compress.gzip_stream(content, level=1)
    return compress.compress(codec, content)


def _batch(codec: str, content: bytes, count: int = 1, base_offset: int = 0) -> bytes:
    header = BatchHeader(
        base_offset=base_offset,
        codec=compress.CODECS.index(codec),
        last_offset_delta=count - 1,
        base_timestamp=MS,
        max_timestamp=MS,
        count=count,
    )
    return raw_batch(header, _stream(codec, content))


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _one(codec: str, key: bytes | None, value: bytes | None) -> bytes:
    return _batch(codec, record(key=key, value=value))


def _empty_topics(codec: str) -> bytes:
    """Return a transaction with three million topics of no name and no partition."""
    count = 3_000_000
    key = struct.pack(">h", 0) + _text("tx")
    head = struct.pack(">hqhib", 1, 1000, 0, 60000, 1) + unsigned_varint(count + 1)
    return _one(codec, key, head + b"\1\1\0" * count + struct.pack(">qqb", MS, MS, 0))


def _tags(codec: str) -> bytes:
    """Return a topic of the metadata log with twenty million unknown tags."""
    count = 20_000_000
    value = b"\1\2\0" + unsigned_varint(3) + b"t1" + b"\1" * 16 + unsigned_varint(count) + b"\x64\0" * count
    return _one(codec, None, value)


def _replicas(codec: str) -> bytes:
    """Return a partition of the metadata log with eight million replicas."""
    count = 8_000_000
    numbers = unsigned_varint(count + 1) + bytes(4 * count)
    value = b"\1\3\0" + struct.pack(">i", 0) + b"\1" * 16 + numbers + b"\1" * 3 + struct.pack(">iii", 1, 0, 0) + b"\0"
    return _one(codec, None, value)


def _members(codec: str) -> bytes:
    """Return a classic group of four million members without names."""
    count = 4_000_000
    member = _text("") + b"\xff\xff" + _text("") * 2 + bytes(8) + bytes(8)
    head = struct.pack(">h", 3) + _text("consumer") + struct.pack(">i", 1) + _text("range") + _text("") + bytes(8)
    value = head + struct.pack(">i", count) + member * count
    return _one(codec, struct.pack(">h", 2) + _text("g"), value)


def _share_state(codec: str) -> bytes:
    """Return a share group's partition with four million batches."""
    count = 4_000_000
    key = struct.pack(">h", 0) + _text("g") + b"\1" * 16 + struct.pack(">i", 0)
    batches = unsigned_varint(count + 1) + (bytes(19) + b"\0") * count
    value = struct.pack(">h", 0) + bytes(24) + batches + b"\0"
    return _one(codec, key, value)


def _with_headers(count: int, offset_delta: int = 0) -> bytes:
    """Return a record with *count* headers of no key and no value."""
    body = b"\0\0" + varint(offset_delta) + varint(1) + b"k" + varint(1) + b"v" + varint(count) + b"\0\1" * count
    return varint(len(body)) + body


def batch_with_headers(codec: str, count: int, base_offset: int) -> bytes:
    """Return a batch of one record with *count* empty headers."""
    return _batch(codec, _with_headers(count), base_offset=base_offset)


def _headers(codec: str) -> bytes:
    """Return a record with sixty million headers of no key and no value, between two plain ones."""
    plain = [_batch(codec, record(key=b"k", value=b"v"), base_offset=offset) for offset in (0, 2)]
    return plain[0] + batch_with_headers(codec, 60_000_000, 1) + plain[1]


def _headers_of_many(codec: str) -> bytes:
    """Return sixty records, each with almost as many headers as columns take."""
    return _batch(codec, b"".join(_with_headers(1_000_000, number) for number in range(60)), 60)


def _tiny_records(codec: str) -> bytes:
    """Return a batch of eighteen million records without anything."""
    count = 18_000_000
    return _batch(codec, b"\x0c\0\0\0\1\1\0" * count, count)


def _value(codec: str, byte: bytes = b"\xff", mebibytes: int = 120) -> bytes:
    return _one(codec, b"k", byte * (mebibytes << 20))


def batch_with_value(codec: str, mebibytes: int, base_offset: int) -> bytes:
    """Return a batch of one record with so large a value."""
    return _batch(codec, record(key=b"k", value=b"\xff" * (mebibytes << 20)), base_offset=base_offset)


def _key(codec: str) -> bytes:
    return _one(codec, b"\1" * (120 << 20), b"v")


def commits(codec: str, length: int, count: int = 300_000) -> bytes:
    """Return *count* offsets of as many groups, whose topics have names of *length* letters."""
    log = bytearray()
    each = min(10_000, (100 << 20) // (length + 100))
    for first in range(0, count, each):
        records = bytearray()
        for at in range(first, min(first + each, count)):
            key = struct.pack(">h", 1) + _text(f"g{at}") + _text("t" * length) + struct.pack(">i", at)
            records += record(offset_delta=at - first, key=key, value=_COMMIT)
        log += _batch(codec, bytes(records), min(each, count - first), first)
    return bytes(log)


def _tiny_internal(codec: str) -> bytes:
    """Return a batch of eight million records with keys of no known type."""
    count = 8_000_000
    one = record(key=b"\0\1", value=b"\0\0")
    return _batch(codec, one * count, count)


BOMBS: dict[str, Bomb] = {
    "topics of a transaction": Bomb("__transaction_state-0", _empty_topics),
    "tags of a topic": Bomb("__cluster_metadata-0", _tags),
    "replicas of a partition": Bomb("__cluster_metadata-0", _replicas),
    "members of a group": Bomb("__consumer_offsets-0", _members),
    "batches of a share group": Bomb("__share_group_state-0", _share_state),
    "headers": Bomb("headers-0", _headers),
    "headers of many records": Bomb("headers-0", _headers_of_many),
    "tiny records": Bomb("tiny-0", _tiny_records),
    "tiny records of a coordinator": Bomb("__consumer_offsets-0", _tiny_internal),
    "a large value": Bomb("value-0", _value),
    "a large key": Bomb("key-0", _key),
    "long names": Bomb("__consumer_offsets-0", lambda codec: commits(codec, 30_000, 100_000)),
    "many groups": Bomb("__consumer_offsets-0", lambda codec: commits(codec, 5)),
}


def bombs() -> Iterator[tuple[str, str]]:
    """Yield the name and codec of each."""
    for name, bomb in BOMBS.items():
        for codec in bomb.codecs:
            yield name, codec
