"""Checksums: two instructions sets, one answer."""

from __future__ import annotations

import zlib
from random import Random

import crc32c as package
import pytest
from klog import kernel

NOISE = Random(1).randbytes(3200)
LENGTHS = [*range(70), 191, 192, 193, 255, 256, 257, 767, 768, 769, 1000, 4095, 4096, 65537, 1 << 20, 2**31, 2**40 + 5]


@pytest.mark.parametrize(
    ("data", "checksum"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_castagnolis_checksum_has_its_published_values(data: bytes, checksum: int) -> None:
    """RFC 3720, appendix B.4: what every broker computes too."""
    assert kernel.crc32c(data) == kernel.crc32c_portable(data) == checksum


def test_the_old_formats_checksum_has_its_published_value() -> None:
    assert kernel.crc32(b"123456789") == 0xCBF43926


def test_every_length_and_alignment_gives_one_answer() -> None:
    """The fast way runs three streams side by side and joins them: its mistakes would sit at the seams."""
    view = memoryview(NOISE)
    for length in range(3001):
        data = view[length % 16 : length % 16 + length]
        expected = package.crc32c(data)
        assert kernel.crc32c(data) == expected, length
        assert kernel.crc32c_portable(data) == expected, length
        assert kernel.crc32(data) == zlib.crc32(data), length
    for length in (0, 1, 7, 8, 9, 191, 192, 193, 767, 768, 769, 1000, 3000):
        for start in range(64):
            data = view[start : start + length]
            assert kernel.crc32c(data) == kernel.crc32c_portable(data) == package.crc32c(data), (start, length)


def test_a_checksum_can_be_continued() -> None:
    """Large batches are checked in pieces."""
    for cut in (0, 1, 7, 8, 500, 3000, 3200):
        first, second = NOISE[:cut], NOISE[cut:]
        assert kernel.crc32c(second, kernel.crc32c(first)) == package.crc32c(NOISE)
        assert kernel.crc32c_portable(second, kernel.crc32c_portable(first)) == package.crc32c(NOISE)
        assert kernel.crc32(second, kernel.crc32(first)) == zlib.crc32(NOISE)


def test_nothing_leaves_a_checksum_as_it_is() -> None:
    for function in (kernel.crc32c, kernel.crc32c_portable, kernel.crc32):
        assert function(b"", 0xDEADBEEF) == 0xDEADBEEF


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_of_bytes_is_taken(kind: type) -> None:
    assert kernel.crc32c(kind(b"123456789")) == 0xE3069283


@pytest.mark.parametrize("length", LENGTHS)
def test_a_part_s_checksum_follows_from_those_of_the_whole(length: int) -> None:
    """The search after damage is based on this: no range is read twice, and its cost cannot be driven up."""
    if length > 1 << 21:
        for shift in (kernel.crc32c_shift, kernel.crc32_shift):
            assert shift(shift(0x12345678, length - 1000), 1000) == shift(0x12345678, length)
        return
    head, tail = NOISE[:100], (NOISE * (length // len(NOISE) + 1))[:length]
    for crc, shift in ((kernel.crc32c, kernel.crc32c_shift), (kernel.crc32, kernel.crc32_shift)):
        assert crc(tail) == crc(head + tail) ^ shift(crc(head), length)


def test_a_shift_by_nothing_changes_nothing() -> None:
    assert kernel.crc32c_shift(0xDEADBEEF, 0) == kernel.crc32_shift(0xDEADBEEF, 0) == 0xDEADBEEF
    assert kernel.crc32c_shift(0, 12345) == kernel.crc32_shift(0, 12345) == 0


def test_whether_the_processor_helps_is_known() -> None:
    assert isinstance(kernel.hardware_crc(), bool)
