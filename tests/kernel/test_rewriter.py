"""The notes about offsets in the first pass change nothing in the second but its speed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from klog.kernel import DONE, OffsetMap, Rewriter, Window

from tests.kernel.windows import CODECS, filled, scanned
from tests.oracles.plain.encode import Record, batch
from tests.oracles.plain.shapes import MS
from tests.support.examples import examples

SECRET = bytes(range(16))
START = 1000
COUNTS = ("batches_in", "batches_out", "records_in", "records_out", "superseded", "keyless", "tombstones", "untouched")
Batches = Sequence[bytes]

keys = st.none() | st.sampled_from([b"", b"a", b"b", b"key-of-16-bytes!", b"a longer key than one of two words"])
records = st.tuples(keys, st.none() | st.just(b"value"), st.integers(1, 40))
logs = st.lists(st.tuples(st.lists(records, min_size=1, max_size=40), st.sampled_from(["none", "gzip"])), min_size=1)


def written(log: Sequence[tuple[Sequence[tuple[bytes | None, bytes | None, int]], str]]) -> list[bytes]:
    """Return batches of records (key, value, offsets to the one before)."""
    made, offset = [], START
    for contents, codec in log:
        rows = []
        for key, value, step in contents:
            offset += step
            rows.append(Record(offset, MS + offset, key, value))
        made.append(batch(rows, codec=codec))
    return made


def noted(data: bytes, start: int = START) -> OffsetMap:
    """Return the map that a first pass makes."""
    table = OffsetMap(24 * 2000, SECRET)
    table.clear(start)
    window = filled(data)
    assert table.fill(window, 0, start) == window.records
    return table


def without_notes(data: bytes) -> OffsetMap:
    """Return the same map, filled backwards, so that nothing was noted."""
    table = OffsetMap(24 * 2000, SECRET)
    window = filled(data)
    for i in reversed(range(window.records)):
        offset, _, key = window.record(i)[:3]
        if key is not None and table.get(key) < 0:
            table.put(key, offset)
    table.put(b"another", 2**62)
    table.put(b"another", 0)  # below the one before: from here on no note counts
    return table


def rewritten(data: bytes, table: OffsetMap) -> tuple[bytes, list[int], list[int]]:
    """Return the remains of *data*, the counts, and the number of bytes in each call of a codec."""
    window, target, calls = scanned(data), Window(1 << 20, 1, 0), list[int]()

    def gunzip(content: memoryview, magic: int) -> bytes | bytearray:
        calls.append(len(content))
        return CODECS[1](content, magic)

    rewriter = Rewriter(table, target, 2**62, MS, 1000)
    rewriter.skip_superseded(window)
    assert window.decompress(0, window.count, (CODECS[0], gunzip, *CODECS[2:]), 1 << 30) == window.count
    rewriter.begin(window, 0, window.count, bytearray(window.count))
    while (status := rewriter.run()) != DONE:
        assert status == 17  # TO_COMPRESS
        rewriter.compressed(bytes(rewriter.plain_records()))
    made = bytes(target.buffer(0)[: rewriter.used])
    return made, [getattr(rewriter, name) for name in COUNTS], calls


@examples(200)
@given(logs)
def test_notes_leave_what_a_look_at_every_key_leaves(log: list[tuple[list[tuple[bytes, bytes, int]], str]]) -> None:
    data = b"".join(written(log))
    assert rewritten(data, noted(data))[:2] == rewritten(data, without_notes(data))[:2]


def test_a_batch_whose_records_all_have_later_ones_is_not_decompressed() -> None:
    one, two = ([Record(START + base + i, MS, b"%d" % i, b"v") for i in range(40)] for base in (0, 40))
    data = batch(one, codec="gzip") + batch(two, codec="gzip")
    made, counts, calls = rewritten(data, noted(data))
    assert (made, calls) == (batch(two, codec="gzip"), [len(made) - 61])
    assert dict(zip(COUNTS, counts, strict=True)) == {
        "batches_in": 2,
        "batches_out": 1,
        "records_in": 80,
        "records_out": 40,
        "superseded": 40,
        "keyless": 0,
        "tombstones": 0,
        "untouched": 1,
    }


@pytest.mark.parametrize("odd", ["keyless", "late", "before the start"])
def test_one_record_of_which_nothing_is_noted_has_its_batch_looked_at(odd: str) -> None:
    first = [Record(START + i, MS, b"%d" % i, b"v") for i in range(20)]
    if odd == "keyless":
        first[7] = Record(START + 7, MS, None, b"v")
    again = [Record(START + 40 + i, MS, b"%d" % i, b"v") for i in range(19 if odd == "late" else 20)]
    data = batch(first, codec="gzip") + batch(again, codec="gzip")
    table = noted(data, START + 1 if odd == "before the start" else START)
    assert len(rewritten(data, table)[2]) == 2


@pytest.mark.parametrize("offsets", [(5, 4), (5, 5), (0, 9)], ids=["backwards", "twice", "outside"])
def test_a_batch_whose_offsets_are_not_in_order_is_looked_at(offsets: tuple[int, int]) -> None:
    """For any number of later records: the broken one is found."""
    broken = batch(
        [Record(START + at, MS, b"%d" % i, b"v") for i, at in enumerate(offsets)],
        base_offset=START,
        last_offset=START + 5,
    )
    later = batch([Record(START + 20 + i, MS, b"%d" % i, b"v") for i in range(2)])
    table = noted(broken + later)
    window = scanned(broken + later)
    rewriter = Rewriter(table, Window(1 << 20, 1, 0), 2**62, MS, 1000)
    rewriter.skip_superseded(window)
    rewriter.begin(window, 0, 2, bytearray(2))
    assert rewriter.run() == 5  # BAD_RECORD


def test_batches_of_very_many_offsets_and_of_any_are_taken() -> None:
    """A few records spread over more offsets than notes are kept of, or beyond them."""
    far = START + (1 << 27) - 40
    rows = [Record(far + i, MS, b"%d" % (i % 10), b"v") for i in range(100)]
    data = b"".join(batch(rows[at : at + 10]) for at in range(0, 100, 10))
    wide = batch([Record(START, MS, b"0", b"v"), Record(START + 2**31 - 1, MS, b"1", b"v")])
    for log in (data, wide + batch([Record(START + 2**31 + i, MS, b"%d" % i, b"v") for i in range(2)])):
        assert rewritten(log, noted(log))[:2] == rewritten(log, without_notes(log))[:2]


def test_a_map_that_is_emptied_has_no_notes() -> None:
    data = b"".join(batch([Record(START + i, MS, b"k", b"v")]) for i in range(100))
    table = noted(data)
    table.clear(START)
    assert rewritten(data, table)[1][:5] == [100, 100, 100, 100, 0]
