"""Repairs: only proven ones, and never a batch that does not decode from its first record to its last."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random

import pytest
from klog.base.read_only import ReadOnlyFile
from klog.commands.recover.header_repairs import proven_epoch, proven_offset, with_epoch, with_magic, with_offset
from klog.formats.damage import Damage, DamageKind, Location
from klog.log.bit_flips import Patch, offer, repair_bit, whole
from klog.log.segment import Segment

from tests.conftest import FIXTURES
from tests.oracles.plain.compress import compress
from tests.oracles.plain.encode import BatchHeader, Record, batch, empty_batch, message, raw_batch, record, wrapper
from tests.oracles.plain.shapes import MS, plain_logs, some_records, varied_records
from tests.support.bad_sectors import spoil

LARGEST = 128 << 20
A, B, C = (batch(varied_records(1000 + 10 * i), codec=codec) for i, codec in enumerate(("none", "gzip", "none")))


def flipped(data: bytes, at: int, bit: int = 0) -> bytes:
    return data[:at] + bytes((data[at] ^ 1 << bit,)) + data[at + 1 :]


def source_of(tmp_path: Path, data: bytes) -> ReadOnlyFile:
    path = tmp_path / f"{1000:020}.log"
    path.write_bytes(data)
    return ReadOnlyFile(str(path))


# the whole parts


@pytest.mark.parametrize("name", plain_logs())
def test_every_shape_of_a_healthy_batch_is_whole(tmp_path: Path, name: str) -> None:
    data = plain_logs()[name]
    (tmp_path / "0.log").write_bytes(data)
    for found in Segment(str(tmp_path / "0.log")).batches():
        assert not isinstance(found, Damage)
        facts = whole(found.content(), found.position, LARGEST)
        assert facts is not None
        assert (facts.position, facts.base_offset, facts.size) == (found.position, found.base_offset, found.size)


def test_all_that_real_brokers_wrote_is_whole() -> None:
    for path in sorted(FIXTURES.glob("modern/*-[0-9]/*.log")) + sorted(FIXTURES.glob("legacy/v*/*.log")):
        for found in Segment(str(path)).batches():
            assert not isinstance(found, Damage)
            assert whole(found.content(), found.position, LARGEST) is not None, (path, found.position)


def crooked(*payload: bytes, count: int = 2, delta: int = 2, codec: int = 0) -> bytes:
    header = BatchHeader(base_offset=5, last_offset_delta=delta, base_timestamp=MS, count=count, codec=codec)
    return raw_batch(header, b"".join(payload))


ONE, TWO = record(offset_delta=0, value=b"v"), record(offset_delta=1, value=b"w")
CROOKED = {
    "a record too many": crooked(ONE, TWO, TWO),
    "a record too few": crooked(ONE),
    "a byte behind": crooked(ONE, TWO, b"\0"),
    "more records than offsets": crooked(ONE, TWO, delta=0),
    "offsets that fall": crooked(TWO, ONE),
    "an offset twice": crooked(ONE, ONE),
    "an offset behind the last": crooked(ONE, record(offset_delta=3)),
    "no such codec": crooked(ONE, TWO, codec=6),
    "not compressed": crooked(ONE, TWO, codec=1),
    "a last offset below the first": crooked(count=0, delta=-1),
    "a broken record": crooked(ONE, record(offset_delta=1, value=b"v", length=99)),
    "two batches": A + C,
    "half a batch": A[:-1],
    "a byte more": A + b"\0",
    "nothing": b"",
    "a bad checksum": flipped(A, 100),
    "a bad message in a good wrapper": wrapper(
        some_records(3), 1, "gzip", stream=compress("gzip", message(0, 1, b"k", b"v", crc=7), magic=1)
    ),
}


@pytest.mark.parametrize("name", CROOKED)
def test_a_batch_with_anything_wrong_in_it_is_not_whole(name: str) -> None:
    assert whole(CROOKED[name], 0, LARGEST) is None


def test_offsets_that_begin_again_are_seen_in_the_largest_batches_too() -> None:
    """The boundary of the rows that are decoded at once does not matter, either."""
    once = b"".join(record(offset_delta=i) for i in range(8192))
    assert whole(crooked(once, count=8192, delta=8191), 0, LARGEST) is not None
    assert whole(crooked(once, once, count=16384, delta=8191), 0, LARGEST) is None


def test_without_its_checksum_a_batch_can_still_be_whole() -> None:
    """People have to judge the rescued records."""
    assert whole(flipped(A, 18), 0, LARGEST) is None
    assert whole(flipped(A, 18), 0, LARGEST, needs_checksum=False) is not None
    assert whole(CROOKED["a record too few"], 0, LARGEST, needs_checksum=False) is None


def test_what_would_grow_beyond_all_bounds_is_not_whole() -> None:
    large = batch([Record(5, MS, None, bytes(1 << 20))], codec="gzip")
    assert whole(large, 0, LARGEST) is not None
    assert whole(large, 0, 1 << 16) is None


# a single bit


SHAPES = (
    A,
    B,
    empty_batch(1000, 1004),
    message(1000, 1, b"key", b"value", timestamp=MS),
    message(1000, 0, None, b"value"),
    wrapper(some_records(1000), 1, "snappy"),
)


@pytest.mark.parametrize("data", SHAPES)
def test_every_single_bit_is_put_right(tmp_path: Path, data: bytes) -> None:
    """The bits of the checksum, of all that it covers, and of the size; the neighbours show those of other fields."""
    chance = Random(len(data))
    covered = [*range(8, 12), *range(17, len(data))] if data[16] == 2 else [*range(8, 16), *range(17, len(data))]
    places = [(at, bit) for at in covered for bit in range(8)]
    for at, bit in chance.sample(places, min(len(places), 400)):
        with source_of(tmp_path, A + flipped(data, at, bit) + C) as source:
            found = repair_bit(source, len(A), len(A) + len(data), LARGEST)
        assert found is not None, (at, bit)
        old = flipped(data, at, bit)[at : at + 1]
        assert found.patch[:3] == (len(A) + at, old, data[at : at + 1])
        assert (found.facts.position, found.facts.size, found.facts.crc_holds) == (len(A), len(data), True)
        assert found.patch.what.startswith(f"one flipped bit: bit {bit} of byte {len(A) + at} (the ")


@pytest.mark.parametrize(
    ("at", "name"),
    [(8, "the size"), (20, "the crc"), (24, "the last offset delta"), (60, "the records count"), (61, "the records")],
)
def test_a_bit_is_told_by_the_field_that_it_is_in(tmp_path: Path, at: int, name: str) -> None:
    with source_of(tmp_path, flipped(A, at, 4)) as source:
        found = repair_bit(source, 0, len(A), LARGEST)
    assert found is not None
    assert found.patch.what == f"one flipped bit: bit 4 of byte {at} ({name})"


def test_a_bit_of_a_large_batch_is_found(tmp_path: Path) -> None:
    """Its checksum is computed in steps, and sizes beyond its own are tried.  Whether it is sure is another matter."""
    large = batch([Record(1000, MS, None, Random(1).randbytes(3 << 20))])
    for at in (9, 18, 61, 2 << 20, len(large) - 1):
        with source_of(tmp_path, A + flipped(large, at, 6) + C) as source:
            found = repair_bit(source, len(A), len(A) + len(large), LARGEST)
        assert found is not None, at
        assert found.patch.position == len(A) + at
        assert found.patch.is_sure == (at == 9)


def test_two_bits_are_nothing_that_can_be_put_right(tmp_path: Path) -> None:
    chance = Random(4)
    for _ in range(300):
        first, second = chance.sample(range(8 * 21, 8 * len(A)), 2)
        with source_of(tmp_path, flipped(flipped(A, first >> 3, first & 7), second >> 3, second & 7)) as source:
            assert repair_bit(source, 0, len(A), LARGEST) is None


def test_a_guess_of_the_checksum_is_no_repair_when_the_records_do_not_decode(tmp_path: Path) -> None:
    """Any damage can look like one bit by chance: here the checksum of a broken batch is off by one."""
    for name in ("a record too few", "offsets that fall", "an offset behind the last"):
        with source_of(tmp_path, flipped(CROOKED[name], 20)) as source:
            assert repair_bit(source, 0, len(CROOKED[name]), LARGEST) is None


def test_a_repair_keeps_to_its_bounds(tmp_path: Path) -> None:
    """A batch that extends into an intact one is none."""
    with source_of(tmp_path, flipped(A, 100) + C) as source:
        assert repair_bit(source, 0, len(A) - 1, LARGEST) is None
        assert repair_bit(source, 0, len(A), len(A) - 1) is None
        assert repair_bit(source, 0, len(A), len(A)) is not None
        for end in range(30):
            assert repair_bit(source, 0, end, LARGEST) is None
        assert repair_bit(source, 0, 1 << 40, LARGEST) is not None
        assert repair_bit(source, len(A) + len(C) + 100, 1 << 40, LARGEST) is None


def test_what_cannot_be_read_cannot_be_put_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with source_of(tmp_path, flipped(A, 100)) as source:
        spoil(monkeypatch, range(200, 300))
        assert repair_bit(source, 0, len(A), LARGEST) is None
        assert with_magic(source, 0, len(A), LARGEST) is None


# the offer


def damage_in(path: str) -> Damage:
    return next(part for part in Segment(path).batches() if isinstance(part, Damage))


@pytest.mark.parametrize("at", [8, 9, 10, 18, 100])
def test_a_single_bit_is_offered_by_name(tmp_path: Path, at: int) -> None:
    with source_of(tmp_path, A + flipped(B, at, 5) + C) as source:
        text = offer(damage_in(source.path), LARGEST)
    assert text is not None
    assert text.startswith(f"one flipped bit: bit 5 of byte {len(A) + at} (")


def test_other_damage_gets_no_offer(tmp_path: Path) -> None:
    for broken in (flipped(flipped(B, 100), 101), bytes(300), B[:100], b"\xff" * 300):
        with source_of(tmp_path, A + broken + C) as source:
            assert offer(damage_in(source.path), LARGEST) is None
    gone = Damage(DamageKind.BAD_CRC, Location(str(tmp_path / "gone"), 0), "", 100)
    assert offer(gone, LARGEST) is None
    assert offer(gone._replace(place=Location(source.path)), LARGEST) is None
    assert offer(gone._replace(kind=DamageKind.UNREADABLE), LARGEST) is None


def test_an_offer_reads_no_more_than_the_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hostile log has a thousand batches that claim to be huge."""
    claims = flipped(A, 8, 3)
    with source_of(tmp_path, claims + bytes(4 << 20)) as source:
        read = []
        plain = ReadOnlyFile.read
        monkeypatch.setattr(ReadOnlyFile, "read", lambda self, at, size: (read.append(size), plain(self, at, size))[1])
        offer(Damage(DamageKind.BAD_CRC, Location(source.path, 0), "", len(A) + 10), LARGEST)
        assert sum(read) < 3 * len(A) + 1000


# header fields


@pytest.mark.parametrize(
    ("stored", "delta", "before", "after", "proven"),
    [
        (7, 9, 99, 110, 100),  # fills the room exactly
        (7, 8, 99, 110, None),
        (100 ^ 1 << 40, 0, 99, 200, 100),  # one bit, one value
        (100 - 2**63, 0, 99, 200, 100),
        (96, 0, 99, 200, None),  # 97, 98: too low; 100, 104, 112, 160
        (200, 9, 209, 400, None),  # 216, 232
        (100, 9, 99, 109, None),  # too large for the room
        (100, 0, 99, 100, None),
        (100, 0, 99, 5, None),
        (2**63 - 1, 0, 99, 200, None),
    ],
)
def test_a_base_offset_is_proven_by_the_room_that_there_is(
    stored: int, delta: int, before: int, after: int, proven: int | None
) -> None:
    assert proven_offset(stored, delta, before, after) == proven


@pytest.mark.parametrize(
    ("stored", "before", "after", "proven"),
    [
        (99, 3, 3, 3),
        (-7, 0, 0, 0),
        (18, 2, 2, 2),
        (18, 2, 3, 2),
        (18, 1, 2, 2),
        (7, 3, 5, None),
        (0x555, 1, 2, None),
        (5, 4, 3, None),
    ],
)
def test_a_leader_epoch_is_proven_by_its_neighbours(stored: int, before: int, after: int, proven: int | None) -> None:
    assert proven_epoch(stored, before, after) == proven


def test_header_repairs_say_what_stands_there_and_what_is_to(tmp_path: Path) -> None:
    broken = struct.pack(">q", 77) + A[8:12] + struct.pack(">i", 9) + A[16:]
    with source_of(tmp_path, b"xyz" + broken) as source:
        facts = whole(broken, 3, LARGEST)
        assert facts is not None
        offset, epoch = with_offset(source, facts, 1000, LARGEST), with_epoch(source, facts, 0, LARGEST)
    assert offset is not None
    assert offset.patch == Patch(3, struct.pack(">q", 77), struct.pack(">q", 1000), offset.patch.what)
    assert (offset.facts.base_offset, offset.facts.last_offset) == (1000, 1007)
    assert epoch is not None
    assert epoch.patch == Patch(15, struct.pack(">i", 9), struct.pack(">i", 0), epoch.patch.what)
    assert epoch.facts.leader_epoch == 0
    assert "77" in offset.patch.what
    assert "1000" in offset.patch.what


def test_a_batch_whose_records_are_broken_gets_no_other_offset(tmp_path: Path) -> None:
    """With its offset put right it would pass for whole."""
    broken = CROOKED["a record too few"]
    with source_of(tmp_path, broken) as source:
        (found,) = Segment(source.path).batches()
        assert not isinstance(found, Damage)
        facts = found.window.batch(found.row)
        assert with_offset(source, facts, 1000, LARGEST) is None
        assert with_epoch(source, facts, 1, LARGEST) is None


@pytest.mark.parametrize("magic", [0, 1, 3, 130, 255])
def test_a_format_version_is_put_right_by_the_checksum_alone(tmp_path: Path, magic: int) -> None:
    with source_of(tmp_path, A[:16] + bytes((magic,)) + A[17:] + C) as source:
        found = with_magic(source, 0, len(A), LARGEST)
        assert found is not None
        assert found.patch[:3] == (16, bytes((magic,)), b"\2")
        assert with_magic(source, 0, len(A) - 1, LARGEST) is None
        assert with_magic(source, len(A), len(A) + len(C), LARGEST) is None
    with source_of(tmp_path, flipped(A[:16] + bytes((magic,)) + A[17:], 100)) as source:
        assert with_magic(source, 0, len(A), LARGEST) is None
