"""The examples that the project was given: each number in them has to be the result."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from klog.data_dir.partition import Partition
from klog.log.index import IndexEntries, offset_entries
from klog.partition.lookup import Lookup, LookupOutcome, Trail

from tests.oracles.plain import decode, encode
from tests.oracles.plain.encode import Record
from tests.support.lookup_logs import MS, batches_of, of_records, write_segment


def look_up(folder: Path, offset: int) -> Trail:
    with Lookup(Partition(str(folder))) as lookup:
        return lookup.offset(offset)


def index(folder: Path, entries: list[tuple[int, int]]) -> IndexEntries:
    path = folder / "x.index"
    path.write_bytes(encode.offset_entries(0, entries))
    return offset_entries(str(path), 1 << 30)


def test_1_the_sparse_index(tmp_path: Path) -> None:
    """The coarse step: the greatest entry that is not above the offset."""
    entries = index(tmp_path, [(100, 4000), (110, 8200), (120, 13000), (130, 18000)])
    led = {offset: entries.search(offset).slot for offset in (115, 110, 99, 135)}
    assert {offset: entries[slot][1] if slot >= 0 else 0 for offset, slot in led.items()} == {
        115: 8200,
        110: 8200,
        99: 0,
        135: 18000,
    }


def test_2_both_steps(tmp_path: Path) -> None:
    """A batch is the smallest unit of reading: the answer is where it starts, never inside."""
    folder = tmp_path / "orders-3"
    sizes = [(0, 4, 500), (5, 12, 800), (13, 18, 600), (19, 23, 500), (24, 30, 700)]
    write_segment(folder, 0, batches_of(sizes))
    (folder / f"{0:020}.index").write_bytes(encode.offset_entries(0, [(5, 500), (13, 1300), (24, 2400)]))
    trail = look_up(folder, 20)
    assert trail.offset_index
    assert (trail.offset_index.offset, trail.offset_index.position) == (13, 1300)
    assert trail.scan == (1300, 2)  # the batch 13…18 is passed by its header alone
    assert trail.batch
    assert (trail.position, trail.batch.base_offset, trail.batch.last_offset) == (1900, 19, 23)
    assert not trail.problems


def test_3_segment_then_index_then_scan(tmp_path: Path) -> None:
    folder = tmp_path / "orders-3"
    write_segment(folder, 0, batches_of([(0, 169, 400)]))
    write_segment(folder, 170, batches_of([(170, 344, 328), (345, 346, 120), (347, 360, 200)]))
    write_segment(folder, 600, batches_of([(600, 700, 400)]))
    (folder / f"{170:020}.index").write_bytes(encode.offset_entries(170, [(345, 328)]))
    trail = look_up(folder, 350)
    assert trail.segment == (f"{170:020}.log", 170, 600, 3)
    assert trail.offset_index
    assert (trail.offset_index.offset, trail.offset_index.position) == (345, 328)
    assert (trail.scan, trail.position) == ((328, 2), 448)
    assert not trail.problems


ENTRIES = [(54 * i, 4158 * i) for i in range(1, 10)]


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """500 batches of one record, 77 bytes each, indexed every 4096 bytes."""
    folder = tmp_path / "orders-3"
    write_segment(folder, 0, batches_of((offset, offset, 77) for offset in range(500)))
    return folder


def test_4_a_real_segment(real: Path) -> None:
    """Appending, recovering and compacting must all come to these entries."""
    assert ENTRIES[0] == (54, 4158)
    assert ENTRIES[-1] == (486, 37422)
    assert (real / f"{0:020}.index").read_bytes() == b"".join(struct.pack(">ii", *entry) for entry in ENTRIES)
    trail = look_up(real, 280)
    assert trail.offset_index
    assert (trail.offset_index.slot, trail.offset_index.offset, trail.offset_index.position) == (4, 270, 20790)
    assert (trail.scan, trail.position) == ((20790, 11), 21560)
    assert trail.record
    assert (trail.outcome, trail.record.offset) == (LookupOutcome.RECORD, 280)
    assert look_up(real, 491).position == 37807


def test_4_every_offset_lies_where_it_must(real: Path) -> None:
    with Lookup(Partition(str(real))) as lookup:
        for _, trail in lookup.many(range(500)):
            assert (trail.position, trail.problems) == (77 * trail.target, ())
            assert trail.scan
            assert trail.scan.batches <= 55


def test_5_the_warm_section(tmp_path: Path) -> None:
    """Look-ups near the end touch only the last 8 KiB; only offsets below them fall back to the rest."""
    entries = index(tmp_path, [(10 * i, 1000 * i) for i in range(1, 5001)])
    warm = 5000 - 1 - 1024
    touched: list[int] = []

    class Watched(IndexEntries):
        def __getitem__(self, slot: int) -> tuple[int, ...]:
            touched.append(slot)
            return super().__getitem__(slot)

    entries.__class__ = Watched
    for offset in (10 * (warm + 1) + 1, 45_000, 49_999, 50_000, 10**9):
        touched.clear()
        found = entries.search(offset)
        assert found.warm_from == warm
        assert found.slot == min(offset // 10, 5000) - 1
        assert min(touched) >= warm
        assert len(touched) == found.probes <= 12
    for offset in (10 * (warm + 1) - 1, 10, 25):
        touched.clear()
        found = entries.search(offset)
        assert (found.slot, found.warm_from) == (offset // 10 - 1, None)
        assert max(touched) <= warm
    assert entries.search(9) == (-1, 2, None)


def test_5_the_search_is_a_floor_search(tmp_path: Path) -> None:
    """Whatever the number of entries, warm or not, read one by one or whole."""
    for count in (0, 1, 2, 3, 1024, 1025, 1026, 3000):
        entries = index(tmp_path, [(3 * i, 7 * i) for i in range(1, count + 1)])
        for target in [*range(12), *range(3 * count - 3300, 3 * count + 4, 7)]:
            assert entries.search(target).slot == min(max(target, 2) // 3, count) - 1


def test_10_leader_epochs(tmp_path: Path) -> None:
    """Epoch 0 writes 100 records, then epoch 1 writes 200; a lookup shows which wrote a record."""
    folder = tmp_path / "orders-3"
    first = of_records([[Record(offset, MS, b"k", b"v")] for offset in range(100)], leader_epoch=0)
    second = of_records([[Record(offset, MS, b"k", b"v")] for offset in range(100, 300)], leader_epoch=1)
    write_segment(folder, 0, first + second)
    (folder / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 100\n")
    epochs = Partition(str(folder)).epochs
    assert epochs
    assert [(entry.epoch, entry.start_offset) for entry in epochs.entries] == [(0, 0), (1, 100)]
    log = (folder / f"{0:020}.log").read_bytes()
    with Lookup(Partition(str(folder))) as lookup:
        for offset, epoch in ((0, 0), (99, 0), (100, 1), (299, 1)):
            position = lookup.offset(offset).position
            assert position is not None
            (found,) = (one for one in decode.scan(log[position : position + len(first[0][2])]))
            assert isinstance(found, decode.Batch)
            assert found.leader_epoch == epoch
