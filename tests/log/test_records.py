"""From a window's batches to its records: intact ones and broken ones, each in its place."""

from __future__ import annotations

import struct
from itertools import accumulate

import pytest
from klog.formats.damage import Damage, DamageKind
from klog.kernel import DONE, MORE
from klog.log import records
from klog.log.records import OffsetRange, decode_window, drop_crowded

from tests.kernel.windows import CODECS, begun, loaded
from tests.oracles.plain import compress
from tests.oracles.plain.encode import BatchHeader, Record, batch, raw_batch, record, varint
from tests.oracles.plain.shapes import MS, some_records
from tests.support import bomb_dirs

A, B, C, D = (batch(some_records(3 * i)) for i in range(4))
LARGE = batch([Record(3, MS, None, b"v" * 20_000)])


def steps(
    data: bytes, span: OffsetRange | None = None, *, records: int = 8192, skip: tuple[int, ...] = ()
) -> list[list[int] | Damage]:
    """Return what decoding *data* yields: offsets of records, and damage."""
    window = loaded(data, records=records)
    window.scan(0)
    for i in skip:
        window.skip(i)
    found: list[list[int] | Damage] = []
    for rows, damage in decode_window(window, CODECS, "f.log", span or OffsetRange()):
        found.append(damage or [rows.record(i)[0] for i in range(rows.records)])
    return found


def flat(found: list[list[int] | Damage]) -> list[int | tuple[str, int | None, int | None]]:
    """Return the same, step after step, damage as its kind, place and size."""
    out: list[int | tuple[str, int | None, int | None]] = []
    for one in found:
        if isinstance(one, Damage):
            assert one.place.file == "f.log"
            out.append((one.kind.value, one.place.position, one.size))
        else:
            assert one, "an empty step says nothing"
            out += one
    return out


def flipped(data: bytes, at: int = -1) -> bytes:
    at %= len(data)
    return data[:at] + bytes((data[at] ^ 0xFF,)) + data[at + 1 :]


def lying(data: bytes, more: int) -> bytes:
    return data[:8] + struct.pack(">i", len(data) - 12 + more) + data[12:]


@pytest.mark.parametrize("records", [1, 2, 5, 8192])
def test_records_and_damage_come_in_the_order_of_the_log(records: int) -> None:
    bad_stream = batch(some_records(6), codec="lz4", stream=b"no lz4")
    bad_record = raw_batch(
        BatchHeader(base_offset=9, last_offset_delta=3, base_timestamp=MS, count=3),
        record(offset_delta=0) + record(offset_delta=1) + record(length=99),
    )
    data = A + flipped(B) + bad_stream + bad_record + batch(some_records(20), codec="zstd")
    at = len(A)
    assert flat(steps(data, records=records)) == [
        0, 1, 2,
        ("bad CRC", at, len(B)),
        ("bad compression", at + len(B), len(bad_stream)),
        9, 10,
        ("bad record", at + len(B + bad_stream), len(bad_record)),
        20, 21, 22,
    ]  # fmt: skip


def test_what_is_left_out_is_not_looked_at() -> None:
    """A batch outside the wanted range may be broken in any way."""
    bad = batch(some_records(3), codec="gzip", stream=b"no gzip")
    assert flat(steps(A + flipped(B) + bad + C, skip=(1, 2))) == [0, 1, 2, 6, 7, 8]


def test_broken_batches_at_both_ends() -> None:
    assert flat(steps(flipped(A) + B + flipped(C))) == [
        ("bad CRC", 0, len(A)),
        3,
        4,
        5,
        ("bad CRC", len(A + B), len(C)),
    ]
    assert flat(steps(flipped(A))) == [("bad CRC", 0, len(A))]
    assert flat(steps(b"")) == []


def test_batches_that_a_damaged_length_has_swallowed_are_read() -> None:
    """If it ends exactly at the beginning of another, nothing else shows it; the damage's size is up to the first of
    them."""
    assert flat(steps(A + lying(B, len(C)) + C + D)) == [0, 1, 2, ("bad CRC", len(A), len(B)), 6, 7, 8, 9, 10, 11]
    assert flat(steps(lying(A, len(B + C + D)) + B + C + D)) == [("bad CRC", 0, len(A)), *range(3, 12)]
    more = A + lying(B, len(C + flipped(D) + A)) + C + flipped(D) + batch(some_records(12))
    assert flat(steps(more)) == [
        0,
        1,
        2,
        ("bad CRC", len(A), len(B)),
        6,
        7,
        8,
        ("bad CRC", len(A + B + C), len(D)),
        12,
        13,
        14,
    ]


def test_a_large_batch_that_a_damaged_length_has_swallowed_is_read() -> None:
    """Larger than the batches that the kernel's search settles alone."""
    assert flat(steps(lying(A, len(LARGE + C)) + LARGE + C + D)) == [("bad CRC", 0, len(A)), 3, *range(6, 12)]
    assert flat(steps(lying(A, len(C + LARGE)) + LARGE + C + D)) == [("bad CRC", 0, len(A)), 3, *range(6, 12)]
    assert flat(steps(lying(A, len(LARGE)) + LARGE)) == [("bad CRC", 0, len(A)), 3]


def test_swallowed_batches_lie_between_their_neighbours() -> None:
    """Otherwise a log inside a damaged batch's value would be taken for the log."""
    inside = batch(some_records(7))
    carrier = batch([Record(3, MS, None, b"x" * 50 + inside + b"y" * 50)])
    assert flat(steps(A + flipped(carrier) + C)) == [0, 1, 2, ("bad CRC", len(A), len(carrier)), 6, 7, 8]
    assert flat(steps(flipped(carrier), OffsetRange(0, 6))) == [("bad CRC", 0, len(carrier))]
    assert flat(steps(flipped(carrier), OffsetRange(8, 99))) == [("bad CRC", 0, len(carrier))]
    at = carrier.index(inside)
    assert flat(steps(flipped(carrier), OffsetRange(0, 99))) == [("bad CRC", 0, at), 7, 8, 9]


def test_neighbours_with_offsets_at_the_very_ends_of_what_there_is_are_no_obstacle() -> None:
    """No checksum covers an offset: it can be anything."""
    lowest, highest = (offset.to_bytes(8, "big", signed=True) for offset in (-(2**63), 2**63 - 1))
    for before in (lowest + A[8:], highest + A[8:]):
        for behind in (lowest + C[8:], highest + C[8:]):
            kinds = [found[0] for found in flat(steps(before + flipped(B) + behind)) if isinstance(found, tuple)]
            assert kinds == ["bad CRC"]


def test_a_broken_record_is_named_by_its_number() -> None:
    def said(payload: bytes, count: int, codec: str = "none") -> Damage:
        header = BatchHeader(base_offset=5, last_offset_delta=9, count=count, codec=compress.CODECS.index(codec))
        found = steps(raw_batch(header, compress.compress(codec, payload)))[-1]
        assert isinstance(found, Damage)
        assert (found.place.offset, found.kind) == (5, DamageKind.BAD_RECORD)
        return found

    good = record(value=b"v")
    for codec in ("none", "snappy"):
        assert said(good + record(length=50), 2, codec).detail == "the structure of record 1 is broken"
        assert said(good + good + good, 2, codec).detail == "its records do not fill it, or overfill it (record 1)"


def test_much_that_is_compressed_is_made_in_parts() -> None:
    """A window of bombs, each within its limit, is decoded a few at a time."""
    bombs = b"".join(batch([Record(i, MS, None, bytes(5 << 20))], codec="zstd") for i in range(6))
    found = steps(bombs)
    assert flat(found) == list(range(6))
    assert len(found) >= 3


def test_only_a_record_with_too_many_headers_is_dropped() -> None:
    """The records around it stay, and its place is that of its own batch."""
    crowded = [bomb_dirs.batch_with_headers("zstd", (1 << 20) + more, at) for at, more in ((1, 0), (2, 1))]
    window = begun(batch([Record(0, MS, b"k", b"v")]) + crowded[0] + crowded[1] + batch([Record(3, MS, b"k", b"v")]))
    kept, told = list[int](), list[Damage]()
    status = MORE
    while status == MORE:
        status = window.decode()
        told += drop_crowded(window, "f.log")
        kept += [window.record(i, False)[0] for i in range(window.records)]
    assert (kept, [damage.place.offset for damage in told]) == ([0, 1, 3], [2])
    assert told[0].place.position == window.batch(2).position
    assert drop_crowded(window, "f.log") == []


def test_rows_end_where_they_have_very_many_headers() -> None:
    """Columns are made of rows at a time: sixteen thousand with a million headers each would have no room."""
    bodies = (b"\0\0%b\2k\2v%b" % (varint(at), varint(100_000)) + b"\0\1" * 100_000 for at in range(25))
    crowded = b"".join(varint(len(body)) + body for body in bodies)
    window = begun(raw_batch(BatchHeader(count=25, last_offset_delta=24, base_timestamp=MS, max_timestamp=MS), crowded))
    sizes = []
    status = MORE
    while status == MORE:
        status = window.decode()
        sizes.append(window.records)
    assert (sizes, status) == ([11, 11, 3], DONE)


@pytest.mark.parametrize(
    ("counts", "kept", "left_out_at"),
    [
        ([9000], 9000, []),
        ([10_000], 10_000, []),
        ([30_000], 10_000, [10_000]),
        ([9000, 9000, 9000], 27_000, []),
        ([9000, 30_000, 9000], 28_000, [19_000]),
        ([30_000, 30_000], 20_000, [10_000, 40_000]),
    ],
)
def test_rows_of_one_batch_have_a_bound(
    counts: list[int], kept: int, left_out_at: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of a batch with more is left out, and its first record is named once."""
    monkeypatch.setattr(records, "MOST_ROWS", 10_000)
    starts = list(accumulate(counts, initial=0))
    batches = [batch(some_records(start, count)) for start, count in zip(starts, counts, strict=False)]
    window = loaded(b"".join(batches), records=1000)
    window.scan(0)
    limit, found, offsets = records.BatchRowLimit("x.log"), [], []
    for rows, broken in decode_window(window, CODECS, "x.log", OffsetRange()):
        assert broken is None
        if (damage := limit.cut(rows)) is not None:
            found.append(damage)
        offsets += [rows.record(i)[0] for i in range(rows.records)]
    assert [one.place.offset for one in found] == left_out_at
    assert all("more than 10,000 records in one batch" in one.detail for one in found)
    assert len(offsets) == len(set(offsets)) == kept
