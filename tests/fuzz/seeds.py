"""The fuzzer's start: small entries of every shape."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.oracles.plain import encode, mutate, shapes
from tests.oracles.plain.decode import scan

SMALL = 600
"""Bytes: larger entries hold no other code paths, only more of the same."""


def _entries(data: bytes) -> list[bytes]:
    return [data[part.position : part.position + (part.size or 0)] for part in scan(data)]


def real_entries() -> list[bytes]:
    """Return entries as they are on disk, compressed ones with their real streams."""
    return [entry for data in shapes.all_logs().values() for entry in _entries(data) if len(entry) <= 4 * SMALL]


def _bare(records: list[encode.Record]) -> list[encode.Record]:
    return [r for r in records if sum(len(part or b"") for part in (r.key, r.value)) < 200 and len(r.headers) < 20]


def named_entries() -> list[bytes]:
    """Return entries whose codec is only claimed: their "streams" are the records themselves.

    With codecs that return their input, mutations reach the decoder of decompressed data at full speed.
    """
    varied = _bare(shapes.varied_records(100))
    found = []
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        for records in (varied, shapes.some_records(5, 4)):
            payload = encode.records_payload(records, records[0].offset, records[0].timestamp)
            found.append(encode.batch(records, codec=codec, stream=payload))
    for magic in (0, 1):
        for inner in (0, 1):
            messages = b"".join(
                encode.message(i, inner, r.key, r.value, timestamp=r.timestamp) for i, r in enumerate(varied)
            )
            found.append(encode.wrapper(varied, magic, "gzip", stream=messages))
            found.append(encode.wrapper(varied, magic, "lz4", stream=messages, append_time_ms=5))
    return found


def plain_entries() -> list[bytes]:
    """Return uncompressed entries."""
    old = shapes.legacy_logs()
    logs = [*shapes.plain_logs().values(), old["v0 plain"], old["v1 plain"]]
    small = [entry for data in logs for entry in _entries(data) if len(entry) <= SMALL]
    varied = _bare(shapes.varied_records(100))
    small.append(encode.batch(varied, control=True, transactional=True, producer=(5, 0, 2**31 - 2)))
    small += [encode.batch([r]) for r in varied]
    # Bits without a meaning in a message: the control and transactional bits of a batch must not be in it.
    small += [encode.message(3, magic, None, b"", attributes=bits) for magic in (0, 1) for bits in (0x20, 0x78, -8)]
    small += [encode.batch([replace(r, headers=((b"h", b"v"), (b"", None)))], append_time_ms=7) for r in varied]
    return small


def wide_entries() -> list[bytes]:
    """Return entries whose lines are much longer than they are: what must be escaped, replaced, doubled."""
    found = []
    for part in (b"\xff" * 700, b"\x01" * 700, b'"' * 700, b"\xe2\x82" * 350):
        headers = ((part, part), (b"", None), (part[:50], part[:90]))
        found.append(encode.batch([encode.Record(7, 8, part, part, headers), encode.Record(8, 9, None, part)]))
        found.append(encode.batch([encode.Record(7, 8, None, b"", tuple((part[:2], part[:3]) for _ in range(150)))]))
        found.append(encode.message(7, 1, part, part, timestamp=8))
    return found


def broken(entries: list[bytes], chance: Random, count: int) -> list[bytes]:
    """Return *count* of *entries* with stretches cut out, put in, zeroed or copied, their sizes put right."""
    found: list[bytes] = []
    while len(found) < count:
        entry = mutate.mutate(chance.choice(entries), chance, chance.choice((0, 1, 1, 2)))
        if len(entry) >= 26:
            magic = entry[16:17] if entry[16] <= 2 or chance.random() < 0.1 else b"\2"
            found.append(entry[:8] + (len(entry) - 12).to_bytes(4, "big") + entry[12:16] + magic + entry[17:])
    return found
