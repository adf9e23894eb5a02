"""The pass over headers: a broker's rewriting leaves digest and CRC unchanged; nothing else does."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import pytest
from crc32c import crc32c
from klog.kernel import DONE, ENTRY_FULL, HeaderPass
from klog.log.header_walk import window_of

from tests.oracles.plain.encode import BatchHeader, raw_batch

SECRET = bytes(range(16))
FOREVER = (0, 0, 0, 2**62, -1, 2**62)


def entry(data: bytes) -> tuple[int, int]:
    """Return digest and CRC of a batch's entry."""
    headers = HeaderPass(SECRET)
    headers.begin(0, *FOREVER)
    window = window_of(data, 0)
    window.scan(0)
    assert (window.count, headers.take(window, 0, 1)) == (1, 1)
    headers.finish()
    digest, _, _, crc, _ = struct.unpack("=QIIII", headers.entries())
    return digest, crc


def stamped(data: bytes, now: int) -> bytes:
    """Return a batch as a broker with LogAppendTime writes it: bit 3, the largest timestamp, the CRC."""
    other = bytearray(data)
    other[22] |= 8
    other[35:43] = now.to_bytes(8, "big")
    other[17:21] = crc32c(bytes(other[21:])).to_bytes(4, "big")
    return bytes(other)


@pytest.mark.parametrize("producer", [-1, 4000])
def test_a_broker_that_stamps_a_batch_changes_neither_digest_nor_crc(producer: int) -> None:
    """CRCs are linear: the contribution of the largest timestamp and the bit is removed, for any later bytes."""
    chance = random.Random(producer)
    sizes = [
        0,
        1,
        2,
        3,
        100,
        2047 - 18,
        2048 - 18,
        2049 - 18,
        1 << 20,
        (1 << 22) + 5,
        *(chance.randrange(9000) for _ in range(300)),
    ]
    for size in sizes:
        header = BatchHeader(
            base_timestamp=chance.getrandbits(40), max_timestamp=chance.getrandbits(41), producer_id=producer, count=1
        )
        data = raw_batch(header, chance.randbytes(size))
        assert entry(stamped(data, chance.getrandbits(42))) == entry(data), size
        if size:
            other = bytearray(data)
            other[-1] ^= 1
            other[17:21] = crc32c(bytes(other[21:])).to_bytes(4, "big")
            digest, crc = entry(bytes(other))
            assert crc != entry(data)[1]
            assert (digest == entry(data)[0]) == (producer >= 0), "without a producer id the CRC is part of the digest"


@pytest.mark.parametrize("most", [1, 200_000, 1 << 62])
@pytest.mark.parametrize("size", [70, 300, 5000])
def test_a_file_is_passed_as_its_rows_are(size: int, tmp_path: Path, most: int) -> None:
    """Large batches are read by single headers, small ones by windows; in pieces when there are many."""
    chance = random.Random(size)
    batches = [
        raw_batch(BatchHeader(base_offset=i, base_timestamp=i, max_timestamp=i, count=1), chance.randbytes(size - 61))
        for i in range(40_000 if size == 70 else 400)
    ]
    path = tmp_path / "log"
    path.write_bytes(b"".join(batches))
    by_rows, by_file = HeaderPass(SECRET), HeaderPass(SECRET)
    for headers in (by_rows, by_file):
        headers.begin(7, *FOREVER)
    window = window_of(path.read_bytes(), 0)
    window.scan(0)
    taken, wanted = 0, b""
    while (taken := by_rows.take(window, taken, window.count)) < window.count:
        wanted += by_rows.entries()
    by_rows.finish()
    wanted += by_rows.entries()
    found, at, status, rounds = b"", 0, ENTRY_FULL, 0
    descriptor = os.open(path, os.O_RDONLY)
    while status == ENTRY_FULL:
        status, at = by_file.read(descriptor, at, path.stat().st_size, most)
        rounds += 1
        found += by_file.entries()
    os.close(descriptor)
    assert (status, at) == (DONE, path.stat().st_size)
    assert found == wanted
    assert by_file.bytes_read >= path.stat().st_size // 8
    assert rounds >= by_file.bytes_read // (most + (128 << 10))
    assert by_file.facts_found() == by_rows.facts_found()
