"""The kept part, and the way through it."""

from __future__ import annotations

from pathlib import Path

import pytest
from klog.base.read_only import ReadOnlyFile
from klog.change.partition_plan.contents import PatchedLog
from klog.commands.recover.kept_ranges import KeptGap, KeptRanges, batches
from klog.log.bit_flips import Patch

from tests.oracles.plain.encode import Record, batch
from tests.oracles.plain.shapes import MS, some_records
from tests.support.bad_sectors import spoil


def kept(*stretches: tuple[int, int, int, int]) -> KeptRanges:
    found = KeptRanges()
    for stretch in stretches:
        found.add(*stretch)
    return found


def test_stretches_that_touch_are_one() -> None:
    found = kept((0, 10, 0, 4), (10, 30, 5, 9), (40, 50, 12, 13))
    assert list(found.pairs()) == [(0, 30), (40, 50)]
    assert (list(found.firsts), list(found.lasts), found.bytes) == ([0, 12], [9, 13], 40)
    assert list(found.gaps(60)) == [KeptGap(30, 40, 9, 12), KeptGap(50, 60, 13, None)]
    assert list(kept().gaps(5)) == [KeptGap(0, 5, None, None)]
    assert list(kept((3, 5, 1, 1)).gaps(5)) == [KeptGap(0, 3, None, 1)]
    assert list(kept().gaps(0)) == []


@pytest.mark.parametrize(
    ("position", "left"),
    [
        (0, []),
        (4, [(0, 4, 0, 2)]),
        (10, [(0, 10, 0, 9)]),
        (20, [(0, 10, 0, 9)]),
        (25, [(0, 10, 0, 9), (20, 25, 20, 2)]),
        (30, [(0, 10, 0, 9), (20, 30, 20, 29)]),
    ],
)
def test_what_is_kept_can_be_cut_back(position: int, left: list[tuple[int, int, int, int]]) -> None:
    found = kept((0, 10, 0, 9), (20, 30, 20, 29))
    found.cut_back(position, 2)
    assert list(zip(found.starts, found.ends, found.firsts, found.lasts, strict=True)) == left


def test_the_stretch_of_an_offset_is_the_last_that_begins_at_it_or_before() -> None:
    found = kept((0, 10, 5, 9), (20, 30, 20, 29))
    assert [found.stretch_of(offset) for offset in (4, 5, 19, 20, 99)] == [-1, 0, 0, 1, 1]


def test_all_batches_of_a_stretch_come_by_however_large_they_are(tmp_path: Path) -> None:
    """With the size of one of them put right on the way."""
    log = [batch(some_records(3 * i)) for i in range(9)]
    log[4] = batch([Record(12, MS, None, bytes(5 << 20))])
    log[7] = batch([Record(21, MS, None, bytes((1 << 20) - 100))])
    data = b"".join(log)
    at = len(b"".join(log[:6])) + 8
    path = tmp_path / "log"
    path.write_bytes(data[:at] + b"\xff" + data[at + 1 :])
    with ReadOnlyFile(str(path)) as source:
        patched = PatchedLog(source, [Patch(at, b"\xff", data[at : at + 1], "")])
        found = [window.batch(i).base_offset for window in batches(patched, 0, len(data)) for i in range(window.count)]
        assert found == [3 * i for i in range(9)]
        broken = batches(source, 0, len(data))
        assert sum(window.count for window in broken) == 6
        assert sum(window.count for window in batches(patched, 0, len(data) - 1)) == 8


def test_what_cannot_be_read_any_more_ends_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"".join(batch(some_records(3 * i)) for i in range(20_000)))
    with ReadOnlyFile(str(path)) as source:
        spoil(monkeypatch, range(2_500_000, 2_500_001))
        last = [window.batch(window.count - 1) for window in batches(source, 0, source.size)][-1]
        assert last.position + last.size <= 2_500_000
