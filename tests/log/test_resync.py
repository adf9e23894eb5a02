"""Damage: each kind in its place, with its size, and the next batch behind it is found."""

from __future__ import annotations

import struct
import time
from pathlib import Path
from random import Random

import pytest
from klog.base.read_only import ReadOnlyFile
from klog.formats.damage import Damage, DamageKind
from klog.kernel import Window
from klog.log.reader import LogReader
from klog.log.resync import FIRST_STEP_BYTES, STEP_BYTES, is_zero, next_entry, readable
from klog.log.segment import Batch, Segment

from tests.oracles.plain import decode
from tests.oracles.plain.encode import BatchHeader, Record, batch, message, raw_batch, record, wrapper
from tests.oracles.plain.shapes import MS, some_records
from tests.support.bad_sectors import spoil

BASE = 1000
A, B, C, D = (batch(some_records(BASE + 3 * i)) for i in range(4))
HIGHEST = 2**63 - 1
Found = tuple[str, int, int]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / f"{BASE:020}.log"


def parts(path: Path, data: bytes, **options: int) -> list[Batch | Damage]:
    path.write_bytes(data)
    return list(Segment(str(path)).batches(**options))


def shape(found: list[Batch | Damage]) -> list[Found]:
    """Return the findings: `batch` or the kind of damage, its beginning, its bytes."""
    return [
        (part.kind.value, part.place.position or 0, part.size or 0)
        if isinstance(part, Damage)
        else ("batch", part.position, part.size)
        for part in found
    ]


def only_damage(found: list[Batch | Damage]) -> Damage:
    (damage,) = (part for part in found if isinstance(part, Damage))
    return damage


def sized(data: bytes, size: int) -> bytes:
    """Return the entry with another size field, which no checksum covers."""
    return data[:8] + struct.pack(">i", size) + data[12:]


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes((data[at] ^ 0xFF,)) + data[at + 1 :]


# each kind in its place

BROKEN: dict[str, tuple[bytes, DamageKind]] = {
    "a flipped bit in a record": (flipped(B, -3 + len(B)), DamageKind.BAD_CRC),
    "a flipped bit in the header": (flipped(B, 30), DamageKind.BAD_CRC),
    "a flipped checksum": (flipped(B, 18), DamageKind.BAD_CRC),
    "a format version of the future": (B[:16] + b"\3" + B[17:], DamageKind.BAD_MAGIC),
    "a format version below zero": (flipped(B, 16), DamageKind.BAD_MAGIC),
    "another known format version": (B[:16] + b"\1" + B[17:], DamageKind.BAD_CRC),
    "a size of nothing": (sized(B, 0), DamageKind.BAD_LENGTH),
    "a size below zero": (sized(B, -5), DamageKind.BAD_LENGTH),
    "a size below the smallest": (sized(B, 13), DamageKind.BAD_LENGTH),
    "a size below its own header": (sized(B, 48), DamageKind.SHORT_HEADER),
    "a size beyond the file": (sized(B, 1 << 30), DamageKind.BAD_LENGTH),
    "the largest size": (sized(B, 2**31 - 1), DamageKind.BAD_LENGTH),
    "a size into the next batch": (sized(B, len(B)), DamageKind.BAD_CRC),
    "a size short of its end": (sized(B, 100), DamageKind.BAD_CRC),
    "zeros": (bytes(len(B)), DamageKind.BAD_LENGTH),
    "a few zeros": (bytes(16), DamageKind.BAD_LENGTH),
    "one byte too many": (b"\xaa", DamageKind.BAD_LENGTH),
    "garbage": (b"\xde\xad\xbe\xef" * 50, DamageKind.BAD_LENGTH),
    "the second half of a batch": (B[80:], DamageKind.BAD_LENGTH),
}


@pytest.mark.parametrize("before", [b"", A], ids=["first", "later"])
@pytest.mark.parametrize("name", BROKEN)
def test_damage_has_its_place_and_its_size_and_costs_nothing_else(path: Path, name: str, before: bytes) -> None:
    """From the first byte that is wrong to the next batch that is right."""
    broken, kind = BROKEN[name]
    found = parts(path, before + broken + C + D)
    at = len(before)
    assert [part[0] for part in shape(found)][: -2 or None] == ["batch"] * bool(before) + [
        only_damage(found).kind.value
    ]
    damage = only_damage(found)
    assert (damage.place.file, damage.place.position, damage.size) == (str(path), at, len(broken))
    assert shape(found)[-2:] == [("batch", at + len(broken), len(C)), ("batch", at + len(broken) + len(C), len(D))]
    if name not in ("garbage", "the second half of a batch", "one byte too many", "a few zeros"):
        assert damage.kind is kind
    expected = struct.unpack(">q", broken[:8])[0] if len(broken) >= 8 else None
    assert damage.place.offset in (expected or None, BASE + 3 if before else None)


@pytest.mark.parametrize("name", ["a flipped bit in a record", "a flipped checksum", "another known format version"])
@pytest.mark.parametrize("behind", [b"", C], ids=["last", "followed"])
def test_a_bad_checksum_says_what_is_stored_and_what_was_computed(path: Path, name: str, behind: bytes) -> None:
    """An operator who flips one bit back can see which."""
    broken, _ = BROKEN[name]
    damage = only_damage(parts(path, A + broken + behind))
    plain = decode.entry_damage(A + broken, len(A))
    assert plain is not None
    assert (damage.stored_crc, damage.computed_crc) == (plain.stored, plain.computed)
    assert f"0x{plain.stored:08x}, computed 0x{plain.computed:08x}" in damage.detail
    assert damage.detail.startswith("CRC-32C" if broken[16] == 2 else "CRC-32 ")
    assert damage.size == len(B)


@pytest.mark.parametrize("left", [8, 16, 17, 18, 60, 61, 62, 100, len(B) - 1])
def test_a_torn_tail_is_what_is_left_of_the_last_batch(path: Path, left: int) -> None:
    """A crash mid-append, at every length."""
    found = parts(path, A + B[:left])
    assert shape(found) == [("batch", 0, len(A)), ("torn tail", len(A), left)]
    assert only_damage(found).is_unfinished
    assert only_damage(found).place.offset == BASE + 3


def test_a_torn_large_batch_is_a_torn_tail_whatever_it_claims(path: Path) -> None:
    large = batch([Record(BASE, MS, None, Random(1).randbytes(3 << 20))])
    for left in (100, 70_000, len(large) - 1):
        assert shape(parts(path, A + large[:left])) == [("batch", 0, len(A)), ("torn tail", len(A), left)]


@pytest.mark.parametrize("count", [1, 17, 18, 61, 4096, 100_000, 3 << 20])
@pytest.mark.parametrize("before", [b"", A], ids=["nothing else", "behind a batch"])
def test_zeros_to_the_end_are_a_zeroed_tail(path: Path, before: bytes, count: int) -> None:
    """A preallocated segment, or a crash after the file grew and before its data was written: no batch was there."""
    found = parts(path, before + bytes(count))
    assert shape(found)[bool(before) :] == [("zeroed tail", len(before), count)]
    assert only_damage(found).place.offset is None


def test_a_gigabyte_of_zeros_is_known_in_no_time(path: Path) -> None:
    """A preallocated segment is a hole, and need not be read."""
    path.write_bytes(A)
    with path.open("r+b") as file:
        file.truncate(1 << 30)
    began = time.process_time()
    assert shape(list(Segment(str(path)).batches()))[1:] == [("zeroed tail", len(A), (1 << 30) - len(A))]
    assert time.process_time() - began < 2


@pytest.mark.parametrize("count", [4096, 1 << 20, 30 << 20])
def test_a_batch_behind_a_hole_is_found(path: Path, count: int) -> None:
    """Also one whose own first bytes are zeros and may lie in the hole."""
    first = batch(some_records(0))
    segment = path.with_name(f"{0:020}.log")
    with segment.open("wb") as file:
        for at in (0, 3, 12, 4095):
            file.truncate(0)
            file.seek(count + at)
            file.write(first)
            file.flush()
            found = shape(list(Segment(str(segment)).batches()))
            assert found == [("bad length", 0, count + at), ("batch", count + at, len(first))]


@pytest.mark.parametrize("tail", [b"\1", b"\0" * 100 + b"\1", b"\0" * 5000 + b"\1"])
def test_zeros_with_anything_behind_them_are_no_zeroed_tail(path: Path, tail: bytes) -> None:
    assert only_damage(parts(path, A + tail)).kind in (DamageKind.BAD_LENGTH, DamageKind.TORN_TAIL)


@pytest.mark.parametrize("name", BROKEN)
def test_damage_at_the_end_takes_all_that_is_left(path: Path, name: str) -> None:
    broken, _ = BROKEN[name]
    found = parts(path, A + broken)
    assert shape(found)[0] == ("batch", 0, len(A))
    damage = only_damage(found)
    assert (damage.place.position, damage.size) == (len(A), len(broken))
    assert (damage.kind is DamageKind.ZEROED_TAIL) == (not any(broken))


def test_each_damage_is_said_for_itself(path: Path) -> None:
    found = parts(path, A + flipped(B, 100) + C + sized(D, 5) + A + bytes(50))
    assert [part[0] for part in shape(found)] == ["batch", "bad CRC", "batch", "bad length", "batch", "zeroed tail"]
    ends = [position + size for _, position, size in shape(found)]
    assert [position for _, position, _ in shape(found)] == [0, *ends[:-1]]


def test_a_broken_record_is_said_in_its_batch(path: Path) -> None:
    """The checksum matches; the part before the break is kept."""
    header = BatchHeader(base_offset=BASE + 3, last_offset_delta=2, base_timestamp=MS, count=3)
    good = record(offset_delta=0, value=b"v")
    bad = raw_batch(header, good + record(offset_delta=1, value=b"v", length=99))
    (_, found, _) = parts(path, A + bad + C)
    assert isinstance(found, Batch)
    first, damage = found.records()
    assert not isinstance(first, Damage)
    assert isinstance(damage, Damage)
    assert (damage.kind, damage.size) == (DamageKind.BAD_RECORD, len(bad))
    assert (damage.place.position, damage.place.offset) == (len(A), BASE + 3)


def test_a_broken_stream_is_said_in_its_batch(path: Path) -> None:
    bad = batch(some_records(BASE + 3), codec="zstd", stream=b"no zstd")
    (_, found, _) = parts(path, A + bad + C)
    assert isinstance(found, Batch)
    (damage,) = found.records()
    assert isinstance(damage, Damage)
    assert (damage.kind, damage.place.position, damage.size) == (DamageKind.BAD_COMPRESSION, len(A), len(bad))


def test_without_going_on_damage_is_the_end(path: Path) -> None:
    for name, (broken, _) in BROKEN.items():
        found = parts(path, A + broken + C, resync=False)
        assert shape(found)[0][0] == "batch"
        assert len(found) == 2, name
        assert isinstance(found[1], Damage)


# damaged lengths


@pytest.mark.parametrize("far", [1, 2, 50, 500, 5000])
def test_a_damaged_length_that_ends_between_two_batches_hides_none(path: Path, far: int) -> None:
    """The worst length is one that looks right: the walk continues behind it, and all in between would be lost."""
    small = [batch([Record(BASE + i, MS, None, b"v%d" % i)]) for i in range(far + 3)]
    hidden = sum(map(len, small[1 : far + 1]))
    lying = sized(small[0], len(small[0]) - 12 + hidden)
    found = parts(path, lying + b"".join(small[1:]))
    expected = [("bad CRC", 0, len(small[0]))]
    at = len(small[0])
    for one in small[1:]:
        expected.append(("batch", at, len(one)))
        at += len(one)
    assert shape(found) == expected


def test_a_damaged_length_far_beyond_a_window_hides_nothing(path: Path) -> None:
    """It makes the reader read megabytes as one batch before the check."""
    content = Random(4).randbytes(9000)
    many = [batch([Record(BASE + i, MS, None, content)]) for i in range(500)]
    data = A + b"".join(many)
    for claimed in (100_000, 1_500_000, 4_000_000):
        found = parts(path, A + sized(many[0], claimed) + b"".join(many[1:]))
        assert [part[1] for part in shape(found) if part[0] == "batch"] == [
            0, *(len(A) + i * len(many[0]) for i in range(1, 500))
        ]  # fmt: skip
        damage = only_damage(found)
        assert (damage.place.position, damage.size) == (len(A), len(many[0])), claimed
    assert len(data) > 4_000_000


def test_a_log_inside_a_message_is_not_taken_for_the_log(path: Path) -> None:
    """Somebody's backup in a value: its offsets are not those that the segment can hold, or are taken already."""
    inside = batch(some_records(5))
    carrier = batch([Record(BASE + 3, MS, None, b"x" * 40 + inside + b"y" * 40)])
    for broken in (flipped(carrier, 70), sized(carrier, 3)):
        found = parts(path, A + broken + C)
        assert shape(found) == [
            ("batch", 0, len(A)),
            (only_damage(found).kind.value, len(A), len(broken)),
            ("batch", len(A) + len(broken), len(C)),
        ]


@pytest.mark.parametrize(
    "inside", [batch([Record(BASE + 2, MS, None, b"taken")]), C], ids=["the batch before", "the batch behind"]
)
def test_a_copy_of_a_neighbour_inside_a_broken_batch_is_not_the_log(path: Path, inside: bytes) -> None:
    """The offsets of a batch lie between its neighbours': a record must not come twice out of one log."""
    carrier = batch([Record(BASE + 3, MS, None, b"x" * 40 + inside + b"y" * 40)])
    found = parts(path, A + flipped(carrier, 70) + C)
    assert shape(found) == [
        ("batch", 0, len(A)),
        ("bad CRC", len(A), len(carrier)),
        ("batch", len(A) + len(carrier), len(C)),
    ]


# the search


def search(
    path: Path, data: bytes, start: int = 0, *, min_offset: int = 0, max_offset: int = HIGHEST, largest: int = 1 << 27
) -> int:
    path.write_bytes(data)
    with ReadOnlyFile(str(path)) as source:
        return next_entry(source, start, source.size, min_offset, max_offset, largest)


@pytest.mark.parametrize(
    "wanted",
    [
        B,
        message(BASE, 0, None, b"v"),
        message(BASE, 1, None, b"v", timestamp=MS),
        wrapper(some_records(BASE), 1, "lz4"),
        batch([Record(BASE, MS, None, Random(2).randbytes(5000))]),
        message(BASE, 1, None, Random(2).randbytes(5000)),
        batch([Record(BASE, MS, None, Random(2).randbytes(3 << 20))]),
    ],
    ids=["v2", "v0", "v1", "wrapper", "large", "large v1", "larger than a step"],
)
def test_an_entry_is_found_wherever_it_begins(path: Path, wanted: bytes) -> None:
    """At the seams of the steps in which a file is searched, too, and at its very end."""
    seams = [seam - left for seam in (FIRST_STEP_BYTES, STEP_BYTES) for left in (70, 61, 60, 26, 17, 16, 1, 0)]
    for at in (0, 1, 4095, 4096, *seams):
        garbage = b"\xee" * at
        assert search(path, garbage + wanted) == at
        assert search(path, garbage + wanted + A) == at
        assert search(path, garbage + wanted[:-1]) == at + len(wanted) - 1, "not cut short"


def test_only_offsets_and_sizes_that_can_be_count(path: Path) -> None:
    large = batch([Record(BASE, MS, None, bytes(5000))])
    data = b"##" + large + A
    assert search(path, data) == 2
    assert search(path, data, largest=len(large)) == 2
    assert search(path, data, largest=len(large) - 1) == 2 + len(large)
    assert search(path, data, min_offset=BASE + 1) == len(data)
    assert search(path, data, max_offset=BASE - 1) == len(data)
    assert search(path, data, 3) == 2 + len(large)


def test_a_segment_s_name_bounds_the_offsets(path: Path) -> None:
    """2^31 - 1 above its base at most: an index holds the difference in 32 bits."""
    for offset, there in ((BASE - 1, False), (BASE, True), (BASE + 2**31 - 1, True), (BASE + 2**31, False)):
        found = parts(path, b"#" * 30 + batch([Record(offset, MS, None, b"v")]))
        assert [part[0] for part in shape(found)][1:] == ["batch"] * there, offset


FAKES = {
    "v2": struct.pack(">qiibIhiqqqhii", BASE, 0, 0, 2, 1, 0, 5, MS, MS, -1, -1, -1, 3),
    "v1": struct.pack(">qiIbbqi", BASE, 0, 1, 1, 0, MS, -1),
    "v0": struct.pack(">qiIbbii", BASE, 0, 1, 0, 0, -1, -1),
}


@pytest.mark.parametrize("size", [100, 5000, 1 << 20])
@pytest.mark.parametrize("kind", FAKES)
def test_a_hostile_file_is_searched_in_time_in_proportion_to_its_size(path: Path, kind: str, size: int) -> None:
    """Plausible headers, each of which claims a batch of its own: not a checksum of all of it for every one."""
    fake = sized(FAKES[kind], size)
    data = fake * ((2 << 20) // len(fake)) + B
    began = time.process_time()
    assert search(path, data) == len(data) - len(B)
    assert time.process_time() - began < 8


def test_a_hostile_log_is_read_in_time(path: Path) -> None:
    fake = sized(FAKES["v1"], 1 << 20)
    began = time.process_time()
    found = parts(path, A + fake * ((4 << 20) // len(fake)) + C)
    assert time.process_time() - began < 8
    assert shape(found)[0][0] == "batch"
    assert shape(found)[-1][2] == len(C)


def test_damage_every_few_batches_costs_little_each(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the next intact batch is near, no megabytes are read to find it."""
    many = [batch([Record(BASE + i, MS, None, b"v" * 1500)]) for i in range(2000)]
    for i in range(0, 2000, 2):
        many[i] = sized(many[i], 5)
    read_into, counted = ReadOnlyFile.read_into, [0]

    def count(self: ReadOnlyFile, position: int, view: memoryview) -> int:
        counted[0] += len(view)
        return read_into(self, position, view)

    monkeypatch.setattr(ReadOnlyFile, "read_into", count)
    found = parts(path, b"".join(many))
    assert sum(isinstance(part, Batch) for part in found) == sum(isinstance(part, Damage) for part in found) == 1000
    assert counted[0] <= 1000 * (256 << 10)


def test_a_file_that_shrinks_during_the_search_ends_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(b"\xee" * (3 << 20) + B)
    with ReadOnlyFile(str(path)) as source:
        size = source.size
        read_into = ReadOnlyFile.read_into

        def shrink(self: ReadOnlyFile, position: int, view: memoryview) -> int:
            with path.open("r+b") as file:
                file.truncate(2 << 20)
            return read_into(self, position, view)

        monkeypatch.setattr(ReadOnlyFile, "read_into", shrink)
        assert next_entry(source, 0, size, 0, HIGHEST, 1 << 27) == size


def test_what_can_be_read_before_a_bad_sector_is_known_to_the_byte(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(bytes(50_000))
    with ReadOnlyFile(str(path)) as source:
        spoil(monkeypatch, range(8192, 12_288))
        for position, size, count in (
            (0, 50_000, 8192),
            (100, 50_000, 8092),
            (8192, 10, 0),
            (12_288, 1000, 1000),
            (0, 8192, 8192),
            (12_288, 90_000, 37_712),
        ):
            assert readable(source, position, size) == count


def test_zeros_that_cannot_be_read_are_not_known_to_be_zeros(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(bytes(3 << 20) + b"\1" + bytes(100))
    with ReadOnlyFile(str(path)) as source:
        assert is_zero(source, 0, 3 << 20)
        assert is_zero(source, 5, 5)
        assert not is_zero(source, 0, (3 << 20) + 1)
        assert is_zero(source, (3 << 20) + 1, source.size)
        spoil(monkeypatch, range(1 << 20, (1 << 20) + 512))
        assert not is_zero(source, 0, 3 << 20)
        assert is_zero(source, 2 << 20, 3 << 20)


def test_the_search_goes_on_behind_bad_sectors(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for wanted in (B, batch([Record(BASE, MS, None, Random(2).randbytes(9000))])):
        path.write_bytes(b"\xee" * 30_000 + wanted + b"\xee" * 100_000)
        with ReadOnlyFile(str(path)) as source:
            spoil(monkeypatch, range(4096, 8192), range(12_288, 20_480), range(90_112, 94_208))
            assert next_entry(source, 0, source.size, 0, HIGHEST, 1 << 27) == 30_000


def test_the_reader_s_place_is_behind_the_damage(path: Path) -> None:
    """No damaged part is read again."""
    path.write_bytes(A + sized(B, 5) + C)
    with ReadOnlyFile(str(path)) as source:
        reader, window = LogReader(source, min_offset=BASE), Window()
        piece = reader.next(window)
        assert piece
        assert piece.damage
        assert (window.count, reader.position) == (1, len(A) + len(B))
