"""A checksum that names a bit by chance is not believed if that happens often: sound bytes are unchanged.

Damage here is a sector or a block overwritten, and only such is looked at for which the checksum names a single bit:
found by looking, or made so by choosing the last four bytes of the noise.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import crc32c
import pytest
from klog.formats.batch import BATCH, CRC_START
from klog.formats.damage import Damage
from klog.kernel import crc32_shift, crc32c_shift, flipped_bit
from klog.log.bit_flips import offer, whole
from klog.log.reader import MAX_BATCH_BYTES
from klog.log.segment import Segment

from tests.commands.recover.salvaged import only, partition_of, result
from tests.oracles.plain.compress import gzip_stream
from tests.oracles.plain.encode import Record, batch, message, records_payload, wrapper
from tests.oracles.plain.shapes import MS

KIB = 1 << 10
BOUND = 100 * KIB  # of bytes that the checksum covers
BEFORE, BEHIND = batch([Record(0, MS, b"k", b"before")]), batch([Record(2, MS, b"k", b"behind")])
Sum = tuple[Callable[[bytes], int], Callable[[int, int], int], int, bool]
"""A checksum, how it moves on over zeros, where in a batch it begins, and whether it is zlib's."""
OF_BATCHES: Sum = (crc32c.crc32c, crc32c_shift, CRC_START, False)
OF_MESSAGES: Sum = (zlib.crc32, crc32_shift, 16, True)


def photo(size: int, seed: int = 1, codec: str = "none") -> bytes:
    """Return a batch of offset 1 around one record of *size* random bytes."""
    return batch([Record(1, MS, b"photo", Random(seed).randbytes(size))], codec=codec)


def covering(size: int) -> bytes:
    """Return such a batch whose checksum covers so many bytes."""
    data = photo(2 * size + CRC_START - len(photo(size)))
    assert len(data) == size + CRC_START
    return data


def flipped(data: bytes, at: int, bit: int = 0) -> bytes:
    return data[:at] + bytes((data[at] ^ 1 << bit,)) + data[at + 1 :]


def put(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def named_bit(whole_batch: bytes, damaged: bytes, kind: Sum = OF_BATCHES) -> int | None:
    checksum, _, start, is_zlib = kind
    changed = checksum(whole_batch[start:]) ^ checksum(damaged[start:])
    return flipped_bit(changed, len(damaged) - start, zlib=is_zlib)


def made_to_name(
    bit: int, data: bytes, at: int, size: int, kind: Sum = OF_BATCHES, damaged: bytes | None = None
) -> bytes:
    """Overwrite *size* bytes at *at* with noise that does to the checksum of *data* what flipping *bit* would.

    *bit*: in the numbering of `flipped_bit`.  *damaged*: what *data* has become already.  The last four bytes of the
    noise are chosen: what each of their bits does is linear, so they are the answer to 32 equations.
    """
    checksum, shift, start, _ = kind
    broken = put(data if damaged is None else damaged, at, Random(bit).randbytes(size))
    wanted = checksum(data[start:]) ^ checksum(broken[start:])
    if bit < 0:
        wanted ^= 1 << (-1 - (bit >> 3)) * 8 + (bit & 7)
    else:
        wanted ^= checksum(data[start:]) ^ checksum(flipped(data, start + (bit >> 3), bit & 7)[start:])
    basis: dict[int, tuple[int, int]] = {}
    for mask in (1 << one for one in range(32)):
        row = shift(checksum(bytes(4)) ^ checksum(mask.to_bytes(4, "big")), len(data) - at - size)
        while row.bit_length() in basis:
            row, mask = row ^ basis[row.bit_length()][0], mask ^ basis[row.bit_length()][1]
        basis[row.bit_length()] = row, mask
    chosen = int.from_bytes(broken[at + size - 4 : at + size], "big")
    while wanted:
        row, mask = basis[wanted.bit_length()]
        wanted, chosen = wanted ^ row, chosen ^ mask
    return put(broken, at + size - 4, chosen.to_bytes(4, "big"))


def sectors_that_name_a_bit(data: bytes, size: int, seed: int | None) -> Iterator[bytes]:
    """Yield *data* with one aligned sector overwritten, wherever its checksum then names a bit; no *seed*: by zeros."""
    chance = Random(seed)
    for at in range(size, len(data) - size, size):
        new = bytes(size) if seed is None else chance.randbytes(size)
        changed = crc32c_shift(crc32c.crc32c(data[at : at + size]) ^ crc32c.crc32c(new), len(data) - at - size)
        if flipped_bit(changed, len(data) - CRC_START) is not None:
            yield put(data, at, new)


def log_with(tmp_path: Path, damaged: bytes) -> str:
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(BEFORE + damaged + BEHIND)
    return str(path)


def stays_as_it_is(tmp_path: Path, damaged: bytes) -> None:
    """Assert that nothing of a log with a damaged batch is repaired, nor claimed to be, and that this is reported."""
    partition = partition_of(tmp_path, _0=BEFORE + damaged + BEHIND)
    found = only(partition, repair_bits=True)
    assert found.patches == ()
    assert result(partition, found) == BEFORE + BEHIND
    damage = next(part for part in Segment(log_with(tmp_path, damaged)).batches() if isinstance(part, Damage))
    assert offer(damage, MAX_BATCH_BYTES) is None


def put_right(tmp_path: Path, damaged: bytes) -> tuple[bytes, str]:
    """Return the repaired content of a damaged batch, and the message."""
    partition = partition_of(tmp_path, _0=BEFORE + damaged + BEHIND)
    found = only(partition, repair_bits=True)
    (patch,) = found.patches
    assert found.unsure == ()
    return result(partition, found)[len(BEFORE) : -len(BEHIND)], patch.description


# the odds of chance


@pytest.mark.parametrize("at", [512, 60_000])
def test_the_choice_of_noise_does_what_one_flipped_bit_does(at: int) -> None:
    """The tests below are based on this."""
    data, old = photo(128 * KIB), message(1, 1, b"photo", Random(1).randbytes(128 * KIB))
    for bit in (-32, -1, 8 * 40, 8 * 100_000 + 3):
        damaged = made_to_name(bit, data, at, 512)
        assert sum(a != b for a, b in zip(data, damaged, strict=True)) > 400
        assert named_bit(data, damaged) == bit
        assert named_bit(old, made_to_name(bit, old, at, 512, OF_MESSAGES), OF_MESSAGES) == bit


@pytest.mark.parametrize(("kib", "at_least"), [(1024, 4), (128, 1)])
@pytest.mark.parametrize("is_noise", [False, True])
def test_a_sector_lost_in_a_large_batch_is_never_put_right(
    tmp_path: Path, kib: int, at_least: int, is_noise: bool
) -> None:
    """One in 500 such sectors of a batch of 1 MiB names a bit that was sound, one in 4000 of 128 KiB."""
    began, found, n = time.process_time(), 0, 0
    while found < at_least:
        data = photo(kib * KIB, seed=n)
        for damaged in sectors_that_name_a_bit(data, 512, n if is_noise else None):
            found += 1
            stays_as_it_is(tmp_path, damaged)
        n += 1
        assert time.process_time() - began < 60


@pytest.mark.parametrize("size", [BOUND, 128 * KIB - BATCH.size, 1 << 20])
@pytest.mark.parametrize("lost", [512, 4096])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_damage_that_is_made_to_look_like_one_bit_is_never_put_right(
    tmp_path: Path, size: int, lost: int, codec: str
) -> None:
    """All codecs store random bytes unchanged: their replacements are decompressed as well."""
    data = photo(size, codec=codec)
    chance = Random(size + lost)
    for bit in (-5, 8 * (len(data) - 200), 8 * chance.randrange(1000, size)):
        at = lost * chance.randrange(1, len(data) // lost - 1)
        damaged = made_to_name(bit, data, at, lost)
        assert named_bit(data, damaged) == bit
        stays_as_it_is(tmp_path, damaged)


def test_several_lost_sectors_that_look_like_one_bit_are_never_put_right(tmp_path: Path) -> None:
    data = photo(1 << 20)
    damaged = put(put(data, 8192, bytes(512)), 40 * 4096, Random(9).randbytes(4096))
    damaged = made_to_name(8 * 70_000, data, 99 * 512, 512, damaged=damaged)
    assert named_bit(data, damaged) == 8 * 70_000
    stays_as_it_is(tmp_path, damaged)


# the repaired part


@pytest.mark.parametrize(
    ("covered", "odds"),
    [(200, "2 500 000"), (KIB, "520 000"), (16 * KIB, "32 000"), (64 * KIB, "8 100"), (BOUND, "5 200")],
)
def test_a_bit_of_a_batch_up_to_the_bound_is_put_right_with_its_odds(tmp_path: Path, covered: int, odds: str) -> None:
    data, chance = covering(covered), Random(covered)
    for at in (17, 20, 60, len(data) - 1, chance.randrange(BATCH.size, len(data))):
        new, told = put_right(tmp_path, flipped(data, at, chance.randrange(8)))
        assert new == data
        assert told.endswith(f" (chance of misdiagnosis: 1 in {odds})")


def test_one_byte_beyond_the_bound_nothing_is_put_right(tmp_path: Path) -> None:
    """For any bit: nothing proves that it was one.  But it is reported."""
    data = covering(BOUND + 1)
    for at in (17, 40, len(data) - 1):
        stays_as_it_is(tmp_path, flipped(data, at, 3))
        found = only(partition_of(tmp_path, _0=BEFORE + flipped(data, at, 3) + BEHIND), repair_bits=True)
        (unsure,) = found.unsure
        named = f"one flipped bit: bit 3 of byte {len(BEFORE) + at} (the "
        assert unsure.description.startswith(f"not repaired, because its batch is too large: {named}")
        assert unsure.description.endswith(" (chance of misdiagnosis: 1 in 5 200; at the bound, 100 KiB: 1 in 5 200)")


@pytest.mark.parametrize("bit", [0, 3, 16])
def test_the_size_of_a_large_batch_is_put_right(tmp_path: Path, bit: int) -> None:
    """With another size the checksum matches unchanged, and there are 32 of them: that is no matter of chance."""
    data = photo(1 << 20)
    new, told = put_right(tmp_path, flipped(data, 11 - bit // 8, bit % 8))
    assert new == data
    assert told.endswith("(the size) (chance of misdiagnosis: 1 in 67 000 000)")


def test_the_checksum_of_gzip_vouches_for_a_large_batch(tmp_path: Path) -> None:
    """It has another polynomial, so that chance would have to deceive both."""
    data = photo(1 << 20, codec="gzip")
    for at in (18, 30, 100, 700_000, len(data) - 3):
        new, told = put_right(tmp_path, flipped(data, at, 6))
        assert new == data
        assert told.endswith(" (chance of misdiagnosis: 1 in 11 000 000)")
    wrong_sum = gzip_stream(records_payload([Record(1, MS, b"photo", b"v")], 1, MS))[:-8] + bytes(8)
    assert whole(batch([Record(1, MS, b"photo", b"v")], codec="gzip", stream=wrong_sum), 0, MAX_BATCH_BYTES) is None


def test_the_checksums_of_old_formats_deceive_together(tmp_path: Path) -> None:
    """The message, the gzip stream and the message in it have one polynomial: all take the same damage for a bit."""
    value = Random(3).randbytes(200 * KIB)
    stream = gzip_stream(message(0, 1, b"photo", value, timestamp=MS), level=0)
    data = wrapper([Record(1, MS, b"photo", value)], 1, "gzip", stream=stream)
    at, bit = 20 * 512, 8 * (21 * 512)
    damaged = made_to_name(bit, data, at, 512, OF_MESSAGES)
    certified = flipped(damaged, OF_MESSAGES[2] + bit // 8)
    assert certified != data
    assert whole(certified, 0, MAX_BATCH_BYTES) is not None
    stays_as_it_is(tmp_path, damaged)


def test_a_bit_of_an_old_message_is_put_right_up_to_the_bound(tmp_path: Path) -> None:
    small, large = (message(1, 1, b"photo", Random(1).randbytes(kib * KIB), timestamp=MS) for kib in (16, 128))
    new, told = put_right(tmp_path, flipped(small, 9000, 2))
    assert new == small
    assert told.endswith("(the message) (chance of misdiagnosis: 1 in 32 000)")
    stays_as_it_is(tmp_path, flipped(large, 9000, 2))
    stays_as_it_is(tmp_path, made_to_name(8 * 5000, large, 512, 512, OF_MESSAGES))
