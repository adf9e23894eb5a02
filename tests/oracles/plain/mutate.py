"""Breaks bytes on purpose: flips, cuts, inserts, zeros, and entries whose CRC was put right again afterwards."""

from __future__ import annotations

import struct
import zlib
from random import Random

from crc32c import crc32c

_TELLING = (0x00, 0x01, 0x02, 0x7E, 0x7F, 0x80, 0xFE, 0xFF)


def flip(data: bytes, chance: Random) -> bytes:
    """Return *data* with one bit turned over."""
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def overwrite(data: bytes, chance: Random) -> bytes:
    """Return *data* with one byte replaced, often by one that means something in a varint or a length."""
    at = chance.randrange(len(data))
    byte = chance.choice(_TELLING) if chance.random() < 0.5 else chance.randrange(256)
    return data[:at] + bytes([byte]) + data[at + 1 :]


def cut(data: bytes, chance: Random) -> bytes:
    """Return *data* without a few bytes, anywhere."""
    at = chance.randrange(len(data))
    return data[:at] + data[at + chance.randrange(1, 9) :]


def insert(data: bytes, chance: Random) -> bytes:
    """Return *data* with a few more bytes, anywhere."""
    at = chance.randrange(len(data) + 1)
    return data[:at] + bytes(chance.choice(_TELLING) for _ in range(chance.randrange(1, 9))) + data[at:]


def zeros(data: bytes, chance: Random) -> bytes:
    """Return *data* with a stretch that reads as zeros: a block that never reached the disk."""
    at = chance.randrange(len(data))
    size = min(len(data) - at, chance.choice((1, 4, 8, 100, 512)))
    return data[:at] + bytes(size) + data[at + size :]


def swap(data: bytes, chance: Random) -> bytes:
    """Return *data* with one stretch copied over another."""
    size = min(len(data), chance.choice((1, 2, 4, 8, 64)))
    source, target = chance.randrange(len(data)), chance.randrange(len(data))
    piece = data[source : source + size]
    return data[:target] + piece + data[target + len(piece) :]


WAYS = (flip, overwrite, cut, insert, zeros, swap)


def mutate(data: bytes, chance: Random, times: int = 1) -> bytes:
    """Return *data* changed in *times* ways."""
    for _ in range(times):
        if data:
            data = chance.choice(WAYS)(data, chance)
    return data


def with_crc(entry: bytes) -> bytes:
    """Return *entry* (a batch or message of at least 22 bytes) with size and CRC that fit its present content."""
    size = struct.pack(">i", len(entry) - 12)
    if entry[16] == 2:
        return entry[:8] + size + entry[12:17] + struct.pack(">I", crc32c(entry[21:])) + entry[21:]
    return entry[:8] + size + struct.pack(">I", zlib.crc32(entry[16:])) + entry[16:]


def mutate_inside(entry: bytes, chance: Random, times: int = 1) -> bytes:
    """Return *entry* changed behind its CRC, which is repaired, so that the broken part reaches the decoder."""
    start = 21 if entry[16] == 2 else 17
    if chance.random() < 0.3:  # in the header, or not far from it
        end = min(len(entry), start + 60)
        return with_crc(entry[:start] + mutate(entry[start:end], chance, times) + entry[end:])
    return with_crc(entry[:start] + mutate(entry[start:], chance, times))
