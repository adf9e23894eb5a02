"""The common parts of the three formats, the arithmetic of sequence numbers, and headers read one by one."""

from __future__ import annotations

import struct
from random import Random

import pytest
from klog.formats.batch import CODEC_NAMES, Attributes, BatchFacts, Codec, decrement_sequence, increment_sequence
from klog.formats.damage import Damage, DamageKind, Location
from klog.formats.entry_header import HEADER_BYTES, read_header

from tests.kernel.windows import plain_batches, scanned
from tests.oracles.plain import compress, decode, encode, shapes
from tests.oracles.plain.encode import batch
from tests.oracles.plain.shapes import some_records

LAST = 2**31 - 1
LOGS = shapes.all_logs()


def test_codecs_have_kafkas_names_and_numbers() -> None:
    assert CODEC_NAMES == compress.CODECS
    assert [int(codec) for codec in Codec] == [0, 1, 2, 3, 4]


def test_flags_stand_where_kafka_has_them() -> None:
    header = encode.BatchHeader(codec=4, log_append_time=True, transactional=True, control=True, delete_horizon=True)
    assert header.attributes() == 4 | sum(int(flag) for name, flag in Attributes.__members__.items() if name != "CODEC")
    assert Attributes.CODEC == 7


@pytest.mark.parametrize(
    ("first", "steps", "last"),
    [(0, 0, 0), (0, 9, 9), (LAST, 0, LAST), (LAST, 1, 0), (LAST - 2, 5, 2), (5, LAST, 4), (LAST, LAST, LAST - 1)],
)
def test_sequences_go_from_the_largest_int_to_zero(first: int, steps: int, last: int) -> None:
    """A producer that runs for long wraps; treated as a gap, its last batch would look lost."""
    assert increment_sequence(first, steps) == last == decode.sequence_after(first, steps)


@pytest.mark.parametrize(
    ("first", "steps", "last"),
    [(0, -1, LAST), (5, -(2**31), 5), (-(2**31), -(2**31), 0), (-(2**31), LAST, -1), (-2, -3, LAST - 4)],
)
def test_damaged_sequences_are_added_as_java_adds_them(first: int, steps: int, last: int) -> None:
    """A number that does not fit an int could not be written to a snapshot."""
    assert increment_sequence(first, steps) == last


def test_there_and_back_again() -> None:
    chance = Random(2)
    for _ in range(2000):
        first, steps = chance.randrange(2**31), chance.randrange(2**31)
        assert decrement_sequence(increment_sequence(first, steps), steps) == first


@pytest.mark.parametrize("name", LOGS)
def test_a_header_says_what_the_kernel_says(name: str) -> None:
    """Two readers of headers, one of them in Python for lookups, must not differ."""
    data = LOGS[name]
    window = scanned(data)
    for i, plain in enumerate(plain_batches(data)):
        facts = window.batch(i)
        found = read_header(data, plain.position, 1000 + plain.position, len(data) - plain.position)
        assert isinstance(found, BatchFacts)
        unchecked = facts._replace(computed_crc=0, crc_checked=False, crc_holds=False)
        assert found == unchecked._replace(position=1000 + plain.position)
        assert found.codec == CODEC_NAMES[plain.codec]
        assert found.is_wrapper == (plain.magic < 2 and plain.codec > 0)
        assert found.records_count == (plain.count if plain.magic == 2 else -1)


@pytest.mark.parametrize(
    ("size", "magic", "left", "kind"),
    [
        (49, 2, 16, DamageKind.TORN_TAIL),
        (13, 2, 200, DamageKind.BAD_LENGTH),
        (-1, 0, 200, DamageKind.BAD_LENGTH),
        (50, 3, 200, DamageKind.BAD_MAGIC),
        (50, -1, 200, DamageKind.BAD_MAGIC),
        (189, 2, 200, DamageKind.TORN_TAIL),
        (2**31 - 1, 1, 200, DamageKind.TORN_TAIL),
        (48, 2, 200, DamageKind.SHORT_HEADER),
        (17, 1, 200, DamageKind.SHORT_HEADER),
        (21, 1, 200, DamageKind.SHORT_HEADER),
    ],
)
def test_what_is_no_header_says_why(size: int, magic: int, left: int, kind: DamageKind) -> None:
    buffer = struct.pack(">qiib", 5, size, 0, magic) + bytes(100)
    assert read_header(buffer, 0, 0, left) is kind


def test_a_header_fits_into_as_many_bytes_as_are_read_for_it() -> None:
    whole = batch(some_records(0))
    assert isinstance(read_header(whole[:HEADER_BYTES], 0, 0, len(whole)), BatchFacts)


# damage


def test_damage_prints_as_one_line_with_its_place() -> None:
    place = Location("orders-3/00000000000000001841.log", 8192, 1844)
    damage = Damage(DamageKind.BAD_CRC, place, "CRC-32C 0x5d1b0000, computed 0x90fe0000")
    assert str(damage) == (
        "orders-3/00000000000000001841.log @ 8192 (offset 1844): bad CRC: CRC-32C 0x5d1b0000, computed 0x90fe0000"
    )


def test_a_place_leaves_out_what_has_no_meaning() -> None:
    assert str(Location("f")) == "f"
    assert str(Location("f", 0)) == "f @ 0"
    assert str(Location("f", None, 0)) == "f (offset 0)"


def test_only_a_tail_may_be_what_a_running_broker_is_writing() -> None:
    """Anything else is damage, broker or not."""
    unfinished = {kind for kind in DamageKind if Damage(kind, Location("f"), "").is_unfinished}
    assert unfinished == {DamageKind.TORN_TAIL, DamageKind.ZEROED_TAIL}


def test_the_kinds_of_damage_are_a_closed_set() -> None:
    """Their names are in the output; users script against them."""
    assert [kind.value for kind in DamageKind] == [
        "torn tail", "zeroed tail", "short header", "bad length", "bad magic", "bad CRC", "bad compression",
        "bad record", "offset backwards", "offset overflow", "unreadable", "bad index",
    ]  # fmt: skip
