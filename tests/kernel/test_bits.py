"""The flipped bit: found from the checksums alone, and never where more than one bit is wrong."""

from __future__ import annotations

import time
import zlib
from random import Random

import crc32c
import pytest
from klog.kernel import DONE, MORE, Window, ascending_run, crc32c_shift, flipped_bit, last_batch_end

from tests.kernel.windows import scanned
from tests.oracles.plain.encode import BatchHeader, Record, batch, message, raw_batch
from tests.oracles.plain.shapes import MS, some_records

LARGE_BYTES = 16 << 20


def plain_flipped_bit(difference: int, size: int, polynomial: int) -> int | None:
    """Walk back from the last bit to the first, a bit at a time; the slow, obvious way."""
    for bit in range(32):  # of the checksum itself, from the end
        if difference == 1 << 31 - bit:
            return -(bit // 8 + 1) * 8 + 7 - bit % 8
    value = 1
    for back in range(8 * size):
        value = value >> 1 ^ (polynomial if value & 1 else 0)
        if value == difference:
            return 8 * (size - 1 - back // 8) + 7 - back % 8
    return None


def flip(data: bytearray, bit: int) -> None:
    data[bit >> 3] ^= 1 << (bit & 7)


def flipped_in(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    flip(changed, bit)
    return bytes(changed)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 31, 61, 200, 511, 512, 513, 1030])
def test_every_bit_of_a_batch_is_found(size: int) -> None:
    """Bits near multiples of the giant step as well."""
    data = Random(size).randbytes(size)
    for bit in range(8 * size):
        changed = flipped_in(data, bit)
        assert flipped_bit(crc32c.crc32c(data) ^ crc32c.crc32c(changed), size) == bit
        assert flipped_bit(zlib.crc32(data) ^ zlib.crc32(changed), size, zlib=True) == bit


@pytest.mark.parametrize("bit", range(32))
def test_a_flipped_bit_of_the_checksum_itself_is_told_apart(bit: int) -> None:
    """The data is right then, and must not be touched.  The four bytes precede the data, and are below zero."""
    stored = bytearray((0x12345678).to_bytes(4, "big"))
    flip(stored, bit)
    difference = 0x12345678 ^ int.from_bytes(stored, "big")
    for size in (0, 1, 1000, LARGE_BYTES):
        assert flipped_bit(difference, size) == flipped_bit(difference, size, zlib=True) == bit - 32


def test_it_agrees_with_the_slow_way_on_anything() -> None:
    chance = Random(7)
    found = 0
    for _ in range(300):
        size, difference = chance.randrange(60), chance.getrandbits(32)
        assert flipped_bit(difference, size) == plain_flipped_bit(difference, size, 0x82F63B78)
        difference = crc32c.crc32c(bytes(61)) ^ crc32c.crc32c(flipped_in(bytes(61), chance.randrange(61 * 8)))
        expected = plain_flipped_bit(difference, size, 0x82F63B78)
        found += expected is not None
        assert flipped_bit(difference, size) == expected, "a bit of a longer batch is none of a shorter one"
    assert 0 < found < 300


def test_bits_of_a_large_batch_are_found_at_once() -> None:
    """A broker's largest batches are such, and a log can be full of them."""
    chance = Random(1)
    data = bytearray(chance.randbytes(LARGE_BYTES))
    right = crc32c.crc32c(data)
    took = 0.0
    for bit in (0, 1, 8 * LARGE_BYTES - 1, *(chance.randrange(8 * LARGE_BYTES) for _ in range(20))):
        flip(data, bit)
        difference = right ^ crc32c.crc32c(data)
        flip(data, bit)
        began = time.process_time()
        assert flipped_bit(difference, LARGE_BYTES) == bit
        took = max(took, time.process_time() - began)
    assert took < 0.05


def test_two_flipped_bits_are_never_taken_for_one() -> None:
    """A wrong guess would be a second error, with a checksum that holds."""
    data = Random(2).randbytes(40)
    right = crc32c.crc32c(data)
    singles = [crc32c.crc32c(flipped_in(data, bit)) ^ right for bit in range(8 * 40)]
    singles += [1 << bit for bit in range(32)]  # those of the checksum
    for i, first in enumerate(singles):
        for second in singles[:i]:
            assert flipped_bit(first ^ second, 40) is None
        assert flipped_bit(first ^ singles[i - 1], LARGE_BYTES) is None, "nor in a batch of any other size"


def test_other_damage_is_hardly_ever_taken_for_one_bit() -> None:
    """One chance in 2^31 for each bit: 16 KiB of noise, a thousand times, one in sixteen."""
    chance = Random(3)
    assert sum(flipped_bit(chance.getrandbits(32), 16 << 10) is not None for _ in range(1000)) <= 1


@pytest.mark.parametrize(("difference", "size"), [(0, 100), (5, -1), (5, 2**40), (0x82F63B78, (1 << 27) + 1)])
def test_what_cannot_be_answered_is_none(difference: int, size: int) -> None:
    """No difference, or more bytes than the powers of x distinguish."""
    assert flipped_bit(difference, size) is None


def test_powers_do_not_repeat_among_the_sizes_that_are_answered() -> None:
    """Otherwise the first bit of a batch of 128 MiB would be taken for another."""
    last_byte = crc32c.crc32c(b"\0") ^ crc32c.crc32c(b"\1")
    assert flipped_bit(crc32c_shift(last_byte, (1 << 27) - 1), 1 << 27) == 0


# the order of batches

ROWS = [batch(some_records(10 * i), leader_epoch=i // 2) for i in range(1, 6)]


def test_batches_in_order_pass_to_their_end() -> None:
    window = scanned(b"".join(ROWS))
    assert ascending_run(window, 0, 5, 9, 0, 2**63 - 1) == (5, 15)
    assert ascending_run(window, 2, 4, 22, 1, 42) == (4, 6)
    assert ascending_run(window, 3, 3, 999, 0, 0) == (3, 0)
    with pytest.raises(IndexError):
        ascending_run(window, 0, 6, 0, 0, 0)


@pytest.mark.parametrize(
    ("last_offset", "epoch", "ceiling", "stops"),
    [(10, 0, 100, 0), (9, 1, 100, 0), (9, 0, 11, 0), (9, 0, 12, 1), (9, 0, 31, 2), (9, -1, 52, 5)],
)
def test_the_neighbour_and_the_ceiling_count(last_offset: int, epoch: int, ceiling: int, stops: int) -> None:
    assert ascending_run(scanned(b"".join(ROWS)), 0, 5, last_offset, epoch, ceiling) == (stops, 3 * stops)


@pytest.mark.parametrize(
    ("odd", "stops"),
    [
        (batch(some_records(22)), 2),  # an offset that the batch before it has
        (batch(some_records(25), leader_epoch=0), 2),
        (batch(some_records(25), leader_epoch=-2), 2),
        (batch(some_records(25), leader_epoch=-1), 6),  # it means nothing, to the next one neither
        (batch(some_records(25), leader_epoch=9), 3),  # it is the next that falls back
        (batch(some_records(35)), 2),
        (raw_batch(BatchHeader(base_offset=25, leader_epoch=1, last_offset_delta=-1), b""), 2),
        (message(25, 1, b"k", b"v", timestamp=MS), 6),
    ],
)
def test_the_first_that_is_out_of_order_is_where_it_stops(odd: bytes, stops: int) -> None:
    window = scanned(b"".join([*ROWS[:2], odd, *ROWS[2:]]))
    assert ascending_run(window, 0, window.count, 0, -1, 2**40)[0] == stops


def test_records_are_counted_as_headers_tell_them() -> None:
    """A lie below zero takes nothing away."""
    liar = raw_batch(BatchHeader(base_offset=5, count=-7), b"")
    window = scanned(liar + batch([Record(6, MS)]) + message(7, 0, None, b"v"))
    assert ascending_run(window, 0, 3, 4, -1, 100) == (3, 2)


def test_the_last_whole_batch_says_where_to_go_on() -> None:
    """From headers alone: a batch that is cut, or has an impossible length, ends it; old message sets have no epoch."""
    whole = b"".join(ROWS)
    assert last_batch_end(whole) == (ascending_end(ROWS), 2)
    assert last_batch_end(memoryview(bytearray(whole + ROWS[0][:-1]))) == (ascending_end(ROWS), 2)
    assert last_batch_end(whole[:-1]) == (ascending_end(ROWS[:-1]), 2)
    assert last_batch_end(ROWS[0] + message(17, 1, b"k", b"v")) == (18, -1)
    for nothing in (b"", ROWS[0][:16], ROWS[0][:-1], bytes(61), b"\xff" * 200, bytes(8) + b"\x7f\xff\xff\xff" * 20):
        assert last_batch_end(nothing) == (-1, -1)


def ascending_end(batches: list[bytes]) -> int:
    """Return the offset behind the last of *batches*."""
    window = scanned(b"".join(batches))
    return window.batch(window.count - 1).last_offset + 1


def test_lent_bytes_are_scanned_where_they_are() -> None:
    """Until other bytes are loaded: the window then has those, and no lent ones."""
    window, lent = Window(16), bytearray(b"".join(ROWS))
    window.lend(memoryview(lent)[: len(lent) - 3])
    assert (window.scan(0, check=True), window.count, window.first_bad(0, 4)) == (MORE, 4, 4)
    assert bytes(window.content()) == lent[:-3]
    assert window.copy(61, 70) == lent[61:70]
    lent[70] ^= 0xFF
    assert window.content()[70] == lent[70]
    window.buffer(9)[:9] = b"something"
    window.load(0, 9)
    assert (bytes(window.content()), window.count) == (b"something", 0)
    window.lend(b"")
    assert (window.size, window.scan(0)) == (0, DONE)
