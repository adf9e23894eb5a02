"""The clients' hashes in plain Python, each from its definition."""

from __future__ import annotations

import zlib
from collections.abc import Callable

U32 = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """The 32-bit MurmurHash2 with Kafka's seed."""
    m = 0x5BD1E995
    h = 0x9747B28C ^ len(key)
    whole = len(key) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * m & U32
        k = (k ^ k >> 24) * m & U32
        h = (h * m & U32) ^ k
    rest = key[whole:]
    for i in reversed(range(len(rest))):
        h ^= rest[i] << 8 * i
    if rest:
        h = h * m & U32
    h = (h ^ h >> 13) * m & U32
    return h ^ h >> 15


def fnv1a(key: bytes) -> int:
    """The 32-bit FNV-1a."""
    h = 0x811C9DC5
    for byte in key:
        h = (h ^ byte) * 0x01000193 & U32
    return h


def absolute(h: int) -> int:
    """The absolute value of h as Java's int."""
    return abs(h - (h >> 31 << 32))


RULES: dict[str, Callable[[bytes], int]] = {
    "java": lambda key: murmur2(key) & 0x7FFFFFFF,
    "librdkafka": zlib.crc32,
    "consistent": zlib.crc32,
    "fnv1a": lambda key: absolute(fnv1a(key)),
    "fnv1a-mask": lambda key: fnv1a(key) & 0x7FFFFFFF,
    "fnv1a-unsigned": fnv1a,
    "murmur2-unsigned": murmur2,
    "murmur2-abs": lambda key: absolute(murmur2(key)),
}


def partition(name: str, key: bytes, partitions: int) -> int:
    """The partition in which partitioner *name* puts a key that is not empty."""
    return RULES[name](key) % partitions
