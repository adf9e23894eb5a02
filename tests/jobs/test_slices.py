"""Units of work: every batch of a log in one slice and no other, tasks of about one size."""

from __future__ import annotations

import os
import pickle
import time
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from klog.base.read_only import ReadOnlyFile
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.jobs import slices as jobs_slices
from klog.jobs.slices import OPENING_BYTES, TASK_BYTES, LogSlice, pack_tasks, slice_partition
from klog.kernel import KeySet
from klog.log.reader import LogReader
from klog.log.records import RecordFilter
from klog.log.segment import Segment

from tests.conftest import CORPORA
from tests.oracles.plain import encode
from tests.oracles.plain.encode import Record, batch
from tests.oracles.plain.shapes import MS
from tests.support import lookup_logs

SPLITS = (4096, 10_000, 65_536, 1 << 20)


def some_batches(first: int, count: int, value_bytes: int = 900) -> list[tuple[int, int, bytes]]:
    chance = Random(first)
    groups = (
        [Record(first + 4 * i + j, MS + 50 * i + j, b"k", chance.randbytes(value_bytes)) for j in range(3)]
        for i in range(count)
    )
    return lookup_logs.of_records(groups)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "orders-3"


@pytest.fixture
def confirmed_by_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes propose cuts of small logs too."""
    monkeypatch.setattr(jobs_slices, "CONFIRM_BYTES", 4096)


def batches_read(part: LogSlice) -> list[int]:
    """Return the positions of the batches of a slice's reader; nothing may be damaged."""
    found: list[int] = []
    with ReadOnlyFile(part.path) as source:
        reader = LogReader(source, part.start, part.log_bytes, stop=part.end)
        window = jobs_slices.Window()
        while piece := reader.next(window):
            assert piece.damage is None
            found += [window.batch(i).position for i in range(window.count)]
            assert window.check(0, window.count) == 0
    return found


def whole(folder: Path) -> dict[str, list[int]]:
    logs = sorted(folder.glob("*.log"))
    return {str(log): [b.position for b in Segment(str(log)).batches()] for log in logs}  # type: ignore[union-attr]


def read_all(parts: list[LogSlice]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for part in parts:
        found.setdefault(part.path, []).extend(batches_read(part))
    return found


@pytest.mark.parametrize("split", SPLITS)
def test_each_batch_is_in_one_slice(folder: Path, split: int) -> None:
    """Whatever the size of the slices, the records of a log are there once."""
    lookup_logs.write_segment(folder, 100, some_batches(100, 80))
    lookup_logs.write_segment(folder, 1000, some_batches(1000, 80))
    parts = slice_partition(Partition(str(folder)), split)
    assert read_all(parts) == whole(folder)
    assert [part.base for part in parts] == sorted(part.base for part in parts)
    assert all(0 < part.bytes <= split + 2 * 3000 for part in parts)
    assert {(part.topic, part.partition) for part in parts} == {("orders", 3)}
    assert {(part.base, part.next_base) for part in parts} == {(100, 1000), (1000, None)}


@pytest.mark.usefixtures("confirmed_by_little")
@pytest.mark.parametrize("index", ["as it is", "missing", "empty", "cut", "zeros", "garbage", "foreign", "off by one"])
def test_an_index_that_lies_costs_nothing_but_time(folder: Path, index: str) -> None:
    """Cuts in the middle of a batch would lose records, and show some twice."""
    log = lookup_logs.write_segment(folder, 100, some_batches(100, 200))
    path = log.with_suffix(".index")
    content = path.read_bytes()
    other = lookup_logs.write_segment(folder.parent / "other-0", 100, some_batches(100, 200, 700))
    replaced = {
        "as it is": content,
        "missing": None,
        "empty": b"",
        "cut": content[: len(content) // 2 + 3],
        "zeros": bytes(len(content)),
        "garbage": Random(1).randbytes(len(content)),
        "foreign": other.with_suffix(".index").read_bytes(),
        "off by one": bytes(byte ^ (i % 8 == 7) for i, byte in enumerate(content)),
    }[index]
    path.unlink() if replaced is None else path.write_bytes(replaced)
    parts = slice_partition(Partition(str(folder)), 40_000)
    assert read_all(parts) == whole(folder)
    assert 12 <= len(parts) <= 16


def test_a_batch_inside_a_value_is_no_place_to_cut(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever writes values may write what looks like a log; an index that leads there must not make records of it."""
    monkeypatch.setattr(jobs_slices, "CONFIRM_BYTES", 32_768)
    monkeypatch.setattr(jobs_slices, "_INDEX_PAYS", 0)
    image = b"".join(content for _, _, content in some_batches(104, 30, 200))
    starts, at = [], 0
    for _, _, content in some_batches(104, 30, 200):
        starts.append(at)
        at += len(content)
    before = some_batches(0, 25)
    host = batch([Record(100, MS, b"k", image)])
    after = [(last, time, content) for last, time, content in some_batches(300, 60)]
    log = lookup_logs.write_segment(folder, 0, [*before, (100, MS, host), *after])
    inside = sum(len(content) for _, _, content in before) + host.index(image)
    entries = [(104 + 4 * i + 2, inside + start) for i, start in enumerate(starts)]
    log.with_suffix(".index").write_bytes(encode.offset_entries(0, entries))
    for split in (16_384, 20_000, 40_000, 80_000):
        assert read_all(slice_partition(Partition(str(folder)), split)) == whole(folder)
    for wanted in (110, 150, 200, 299):
        kept = slice_partition(Partition(str(folder)), 40_000, RecordFilter(wanted, wanted + 1))
        assert inside not in {part.start for part in kept}


def test_batches_larger_than_any_window_are_cut_apart(folder: Path) -> None:
    """A reader takes each alone, and parts that it does not see together must not be joined for that."""
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(
        b"".join(batch([Record(i, MS, None, bytes([i]) * (3 << 20))]) for i in range(6))
    )
    parts = slice_partition(Partition(str(folder)), 4 << 20)
    assert read_all(parts) == whole(folder)
    assert len(parts) >= 3


@pytest.mark.usefixtures("confirmed_by_little")
def test_an_index_does_not_cut_at_what_is_broken(folder: Path) -> None:
    """The part that ends there could not distinguish a torn batch from one of the next part."""
    made = some_batches(0, 200)
    log = lookup_logs.write_segment(folder, 0, made)
    data, starts, at = bytearray(log.read_bytes()), [], 0
    for _, _, content in made:
        starts.append(at)
        at += len(content)
    for broken in range(20, 180):
        spoiled = bytearray(data)
        spoiled[starts[broken] + 100] ^= 0xFF
        log.write_bytes(spoiled)
        bounds = {part.start for part in slice_partition(Partition(str(folder)), 40_000)}
        assert not bounds & {starts[broken], starts[broken + 1]}


def test_ranges_leave_out_segments_and_what_lies_beyond(folder: Path) -> None:
    """A question about ten records must not read a terabyte."""
    for base in (0, 400, 800, 1200):
        lookup_logs.write_segment(folder, base, some_batches(base, 100))
    partition = Partition(str(folder))
    few = slice_partition(partition, wanted=RecordFilter(900, 910))
    assert [part.base for part in few] == [800]
    assert few[0].bytes < 20_000
    assert set(batches_read(few[0])) <= set(whole(folder)[few[0].path])
    assert slice_partition(partition, wanted=RecordFilter(from_offset=5000)) == []
    newest = MS + 50 * 99 + 2
    assert slice_partition(partition, wanted=RecordFilter(from_time=newest + 1)) == []
    assert len(slice_partition(partition, wanted=RecordFilter(from_time=newest))) == 4
    assert sum(part.bytes for part in slice_partition(partition, wanted=RecordFilter(from_time=newest - 1))) < 80_000


def test_records_below_the_log_start_are_nobodys(folder: Path) -> None:
    """Deleted records stay on the disk until their segment is deleted; no consumer receives them."""
    lookup_logs.write_segment(folder, 0, some_batches(0, 50))
    lookup_logs.write_segment(folder, 200, some_batches(200, 50))
    (folder.parent / "log-start-offset-checkpoint").write_text("0\n1\norders 3 210\n")
    parts = slice_partition(Partition(str(folder)))
    assert [(part.base, part.from_offset) for part in parts] == [(200, 210)]


def test_what_cannot_be_read_is_a_slice_all_the_same(folder: Path) -> None:
    """Its reader reports the reason; planning that raises would cost everybody else's records."""
    lookup_logs.write_segment(folder, 0, some_batches(0, 50))
    log = folder / f"{200:020}.log"
    log.symlink_to(folder / "gone")
    (folder / f"{300:020}.log").write_bytes(b"")
    log.unlink()
    partition = Partition(str(folder))
    assert partition.segments
    for file in folder.iterdir():
        file.unlink()
    assert [(part.start, part.end) for part in slice_partition(partition)] == [(0, partition.segments[0].size)]
    folder.rmdir()
    assert [part.path for part in slice_partition(Partition(str(folder)))] == [str(folder)]


def test_slices_and_what_is_wanted_can_be_sent_elsewhere(folder: Path) -> None:
    """Tasks run in other processes."""
    lookup_logs.write_segment(folder, 0, some_batches(0, 50))
    parts = slice_partition(Partition(str(folder)), 8192, isolation="read_committed")
    assert pickle.loads(pickle.dumps(parts)) == parts
    wanted = pickle.loads(pickle.dumps(RecordFilter(keys=KeySet([b"k"]))))
    window = jobs_slices.Window()
    content = batch([Record(0, MS, b"k"), Record(1, MS, b"other")])
    window.buffer(len(content))[: len(content)] = content
    window.load(0, len(content))
    window.scan(0)
    window.begin(0, 1)
    window.decode()
    wanted.keep(window)
    assert [window.record(i)[2] for i in range(window.records)] == [b"k"]


@pytest.mark.corpora
@pytest.mark.parametrize("data", ["modern/data", "legacy/data", "v39/data", "v39/data1"])
def test_every_log_of_real_brokers_can_be_cut_anywhere(data: str) -> None:
    """All codecs, formats, clients; compacted, trimmed, preallocated."""
    for partition in LogDir(str(CORPORA / data)).partitions:
        expected = whole(Path(partition.path))
        for split in SPLITS:
            # the part that the log start hides is cut off only in whole segments
            found = read_all(slice_partition(partition, split))
            assert {path: at for path, at in found.items() if at} == {
                path: at for path, at in expected.items() if at and path in found
            }
            hidden = {path for path in expected if path not in found and expected[path]}
            bases = [int(os.path.basename(path).split(".")[0]) for path in hidden]
            assert all(base < (partition.log_start_offset or 0) for base in bases)


# tasks


@given(st.lists(st.integers(0, 200 << 20), max_size=60), st.integers(1, 128 << 20), st.integers(0, 8))
def test_tasks_share_everything_evenly(sizes: list[int], target: int, least: int) -> None:
    """Each thing once, in its order, and no task with more than the average and one thing."""
    tasks = pack_tasks(sizes, target, least)
    assert sorted(i for task in tasks for i in task) == list(range(len(sizes)))
    assert all(task and task == sorted(task) for task in tasks)
    assert len(tasks) >= min(least, len(sizes))
    weights = [size + (64 << 10) for size in sizes]
    loads = [sum(weights[i] for i in task) for task in tasks]
    assert all(load <= sum(weights) / len(tasks) + max(weights) for load in loads)


def test_thousands_of_tiny_partitions_beside_a_large_one_are_a_few_even_tasks() -> None:
    """A task for each costs minutes, and one task for all of them is one core's work."""
    sizes = [16 << 10] * 5000 + [64 << 20] * 32
    tasks = pack_tasks(sizes)
    loads = [sum(sizes[i] for i in task) for task in tasks]
    assert 16 <= len(tasks) <= 24
    assert max(loads) < 2 * min(loads)


def test_a_fleet_of_tiny_partitions_is_planned_in_seconds(tmp_path: Path) -> None:
    """From directories to tasks: 5 000 partitions of one small batch, and one with half a gigabyte."""
    content = batch([Record(0, MS, b"k", bytes(12_000))])
    for number in range(5000):
        folder = tmp_path / f"tiny-{number}"
        folder.mkdir()
        (folder / f"{0:020}.log").write_bytes(content)
    (tmp_path / "large-0").mkdir()
    with (tmp_path / "large-0" / f"{0:020}.log").open("wb") as log:
        for first in range(512):
            log.write(batch([Record(first, MS, None, bytes(1 << 20))]))
    start = time.process_time()
    parts = [part for partition in LogDir(str(tmp_path)).partitions for part in slice_partition(partition)]
    tasks = pack_tasks([part.bytes for part in parts], least=4)
    spent = time.process_time() - start
    assert sum(parts[i].bytes for task in tasks for i in task) == 512 * len(
        batch([Record(0, MS, None, bytes(1 << 20))])
    ) + 5000 * len(content)
    loads = [sum(parts[i].bytes + OPENING_BYTES for i in task) for task in tasks]
    assert 7 <= len(tasks) <= 10
    assert max(loads) <= TASK_BYTES
    assert max(loads) < 1.5 * min(loads)
    assert max(len(task) for task in tasks) < 2000
    assert spent < 10  # it is one: no machine is that busy, and a quadratic plan takes minutes


def test_the_order_of_tasks_is_the_same_each_time() -> None:
    """A task that is repeated elsewhere must be the same one."""
    sizes = [Random(3).randrange(1 << 24) for _ in range(500)]
    assert pack_tasks(sizes) == pack_tasks(sizes)
