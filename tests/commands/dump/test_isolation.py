"""read_committed: the records of a consumer of that kind, and no others."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.base.read_only import ReadOnlyFile
from klog.commands.dump.dump_files import dump_parquet
from klog.commands.dump.dump_request import CSV, JSON_LINES, PARQUET, TEXT, DumpRequest, DumpTarget, LogStyle, expand
from klog.data_dir.partition import Partition
from klog.kernel import Window
from klog.log.json_lines import LineStyle
from klog.log.reader import LogReader
from klog.log.records import RecordFilter
from klog.partition.transactions.isolation import AbortedFilter, visible_range

from tests.commands.dump.sinks import Kept, dump, dump_file
from tests.oracles.plain import encode
from tests.oracles.plain.encode import Record, batch
from tests.oracles.plain.shapes import MS, some_records

COMMITTED = DumpRequest(output=JSON_LINES, committed=True)
Seen = Callable[..., list[int]]


def data(offset: int, count: int = 2, *, producer: int = 0) -> bytes:
    """Return a batch of a transaction of *producer*, or a plain one when that is 0."""
    if not producer:
        return batch(some_records(offset, count))
    return batch(some_records(offset, count), transactional=True, producer=(producer, 0, 0), codec="lz4")


def end(offset: int, producer: int, *, commit: bool) -> bytes:
    return encode.marker(
        offset, commit=commit, timestamp=MS, producer_id=producer, producer_epoch=0, coordinator_epoch=0
    )


def commit(offset: int, producer: int) -> bytes:
    return end(offset, producer, commit=True)


def abort(offset: int, producer: int) -> bytes:
    return end(offset, producer, commit=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "orders-3"
    path.mkdir()
    return path


def write(folder: Path, *segments: bytes) -> None:
    """Write *segments*, each under its first offset."""
    for one in segments:
        (folder / f"{struct.unpack('>q', one[:8])[0]:020}.log").write_bytes(one)


def by_json(folder: Path, **wanted: int) -> list[int]:
    code, kept = dump([folder], COMMITTED._replace(wanted=RecordFilter(**wanted)))  # type: ignore[arg-type]
    assert (code, kept.reports) == (0, [])
    return [int(str(offset)) for offset in kept.offsets]


def by_csv(folder: Path, **wanted: int) -> list[int]:
    request = COMMITTED._replace(output=CSV, line_style=LineStyle(csv=True), wanted=RecordFilter(**wanted))  # type: ignore[arg-type]
    _, kept = dump([folder], request)
    return [int(line.split(b",")[0]) for line in bytes(kept.data).splitlines()]


def by_text(folder: Path, **wanted: int) -> list[int]:
    request = COMMITTED._replace(output=TEXT, log_style=LogStyle(deep=True), wanted=RecordFilter(**wanted))  # type: ignore[arg-type]
    _, kept = dump([folder], request)
    return [int(line.split()[2]) for line in bytes(kept.data).splitlines() if line.startswith(b"| ")]


def by_parquet(folder: Path, **wanted: int) -> list[int]:
    import pyarrow.parquet as pq

    request = COMMITTED._replace(output=PARQUET, wanted=RecordFilter(**wanted))  # type: ignore[arg-type]
    path = folder.parent / "out.parquet"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    assert dump_parquet(expand([str(folder)], (), (), False, request.wanted), request, Kept(), descriptor) == 0
    os.close(descriptor)
    return [int(offset) for offset in pq.read_table(path)["offset"].to_pylist()]


WAYS = pytest.mark.parametrize("seen", [by_json, by_csv, by_text, by_parquet])


@WAYS
def test_a_committed_transaction_is_seen_and_its_marker_is_not(folder: Path, seen: Seen) -> None:
    write(folder, data(0, producer=1) + commit(2, 1) + data(3))
    assert seen(folder) == [0, 1, 3, 4]


@WAYS
def test_an_aborted_transaction_is_not_seen(folder: Path, seen: Seen) -> None:
    write(folder, data(0) + data(2, producer=1) + data(4, producer=1) + abort(6, 1) + data(7))
    assert seen(folder) == [0, 1, 7, 8]


@WAYS
def test_the_same_producer_s_transactions_have_each_their_own_fate(folder: Path, seen: Seen) -> None:
    write(
        folder,
        data(0, producer=1) + abort(2, 1) + data(3, producer=1) + commit(5, 1) + data(6, producer=1) + abort(8, 1),
    )
    assert seen(folder) == [3, 4]


@WAYS
def test_transactions_that_interleave_are_told_apart(folder: Path, seen: Seen) -> None:
    write(
        folder,
        data(0, producer=1) + data(2, producer=2) + data(4) + data(6, producer=1) + abort(8, 2) + data(9, producer=2)
        + commit(11, 1) + abort(12, 2),
    )  # fmt: skip
    assert seen(folder) == [0, 1, 4, 5, 6, 7]


@WAYS
def test_nothing_is_seen_behind_a_transaction_that_is_still_open(folder: Path, seen: Seen) -> None:
    """Not even plain records: a consumer relies on the order."""
    write(folder, data(0) + data(2, producer=1) + data(4) + data(6, producer=2) + commit(8, 2) + data(9))
    assert seen(folder) == [0, 1]


@WAYS
def test_the_earliest_open_transaction_counts(folder: Path, seen: Seen) -> None:
    write(folder, data(0, producer=3) + commit(2, 3) + data(3, producer=1) + data(5, producer=2) + commit(7, 1))
    assert seen(folder) == [0, 1, 3, 4]


@WAYS
def test_a_transaction_may_end_in_a_later_segment(folder: Path, seen: Seen) -> None:
    """Its fate is learnt from all of the partition, whichever file is shown."""
    write(folder, data(0, producer=1) + data(2, producer=2), data(4) + abort(6, 1), commit(7, 2) + data(8))
    assert seen(folder) == [2, 3, 4, 5, 8, 9]
    assert seen(folder, to_offset=4) == [2, 3]


def test_one_file_of_a_partition_is_shown_as_the_whole_partition_would_show_it(folder: Path) -> None:
    write(folder, data(0, producer=1) + data(2, producer=2), data(4) + abort(6, 1), commit(7, 2) + data(8))
    code, kept = dump_file(folder / f"{0:020}.log", COMMITTED)
    assert (code, kept.offsets) == (0, [2, 3])


def test_a_file_alone_is_judged_by_itself(tmp_path: Path) -> None:
    """A copy with any name, treated as a log: its own markers count."""
    path = tmp_path / "copy.bin"
    path.write_bytes(data(0) + data(2, producer=1) + abort(4, 1) + data(5, producer=2) + commit(7, 2) + data(8))
    code, kept = dump_file(path, COMMITTED._replace(kind="log"))
    assert (code, kept.offsets) == (0, [0, 1, 5, 6, 8, 9])


@WAYS
def test_ranges_and_isolation_go_together(folder: Path, seen: Seen) -> None:
    write(folder, data(0) + data(2, producer=1) + abort(4, 1) + data(5) + data(7, producer=1))
    assert seen(folder, from_offset=1, to_offset=6) == [1, 5]
    assert seen(folder, from_offset=3) == [5, 6]
    assert seen(folder, limit=3) == [0, 1, 5]


def test_without_isolation_everything_is_seen(folder: Path) -> None:
    write(folder, data(0, producer=1) + abort(2, 1) + data(3, producer=2))
    _, kept = dump([folder], DumpRequest(output=JSON_LINES))
    assert kept.offsets == [0, 1, 2, 3, 4]


def test_a_marker_without_data_ends_nothing(folder: Path) -> None:
    """Compaction leaves them, and a coordinator may write them for nothing."""
    write(folder, abort(0, 1) + commit(1, 2) + data(2, producer=2) + commit(4, 2))
    assert by_json(folder) == [2, 3]


def test_a_control_batch_that_ends_no_transaction_ends_none(folder: Path) -> None:
    """KRaft's own are control batches as well."""
    kraft = batch([Record(2, MS, struct.pack(">hh", 0, 3), b"\0\0" + struct.pack(">q", 0) + b"\0")], control=True)
    write(folder, data(0, producer=1) + kraft + commit(3, 1))
    assert by_json(folder) == [0, 1]


def test_a_marker_whose_checksum_does_not_hold_is_none(folder: Path) -> None:
    """Its content is unknown: its transaction stays undecided, and the damage is reported."""
    broken = bytearray(abort(2, 1))
    broken[-1] ^= 0xFF
    write(folder, data(0, producer=1) + bytes(broken) + data(3))
    _, kept = dump([folder], COMMITTED)
    assert kept.offsets == []


def test_sequences_without_a_transaction_are_plain_data(folder: Path) -> None:
    """An idempotent producer has an id, and no marker ever comes."""
    write(folder, batch(some_records(0), producer=(5, 0, 0)) + data(3))
    assert by_json(folder) == [0, 1, 2, 3, 4]


def test_the_last_stable_offset_of_a_log_without_open_transactions_is_its_end(folder: Path) -> None:
    write(folder, data(0, 3) + data(3, 2, producer=1) + commit(5, 1))
    assert visible_range(Partition(str(folder)), "read_committed").to_offset == 6
    write(folder, data(6, 3) + data(9, 2, producer=1))
    assert visible_range(Partition(str(folder)), "read_committed").to_offset == 9


def test_aborted_batches_are_left_out_of_a_window(folder: Path) -> None:
    write(folder, data(0, producer=1) + data(2) + abort(4, 1))
    path = str(folder / f"{0:020}.log")
    aborted = AbortedFilter(visible_range(Partition(str(folder)), "read_committed").aborted or (), path)
    window = Window()
    with ReadOnlyFile(path) as source:
        LogReader(source).next(window)
    window.check(0, window.count)
    assert aborted.contradictions(aborted.skip(window)) == []
    window.begin(0, window.count)
    window.decode()
    assert [window.record(i)[0] for i in range(window.records)] == [2, 3, 4]


@WAYS
@pytest.mark.parametrize("jobs", [1, 3])
def test_an_abort_that_the_index_does_not_know_is_damage(folder: Path, seen: Seen, jobs: int) -> None:
    """A consumer of this copy is handed the records, so they are shown; that they were aborted must not go unsaid."""
    write(folder, data(0) + data(2, producer=1) + abort(4, 1) + data(5))
    (folder / f"{7:020}.log").touch()
    ended = encode.Producer(1, last_sequence=0, last_offset=3, timestamp=MS)
    (folder / f"{7:020}.snapshot").write_bytes(encode.snapshot([ended]))
    report = "bad index: an ABORT marker that the transaction index does not know"
    for request in (
        COMMITTED._replace(jobs=jobs),
        COMMITTED._replace(jobs=jobs, output=TEXT, log_style=LogStyle(deep=True)),
    ):
        code, kept = dump([folder], request)
        assert (code, [report in line for line in kept.reports]) == (4, [True])
    (folder / f"{0:020}.txnindex").write_bytes(encode.aborted_entries([(1, 2, 4, 5)]))
    assert seen(folder) == [0, 1, 5, 6]


def test_an_empty_partition_has_nothing_to_see(folder: Path) -> None:
    (folder / f"{0:020}.log").touch()
    assert by_json(folder) == []
    _, kept = dump_file(folder / f"{0:020}.log", COMMITTED)
    assert kept.offsets == []


def test_batches_as_rows_leave_out_what_is_aborted(folder: Path) -> None:
    write(folder, data(0, producer=1) + abort(2, 1) + data(3))
    _, kept = dump([folder], COMMITTED._replace(line_style=LineStyle(batches=True)))
    assert 0 not in [found["base_offset"] for found in kept.objects]
    assert 3 in [found["base_offset"] for found in kept.objects]


def test_targets_know_their_partition(folder: Path) -> None:
    write(folder, data(0), data(2))
    targets = list(expand([str(folder)], (), (), False, RecordFilter()))
    assert [len(target.segments) for target in targets] == [2, 2]
    assert DumpTarget("x").segments == ()
