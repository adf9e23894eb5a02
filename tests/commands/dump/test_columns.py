"""Parquet: the same records, column by column."""

from __future__ import annotations

import os
from pathlib import Path

import klog.log.arrow
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from klog.commands.dump.dump_files import dump_parquet
from klog.commands.dump.dump_request import PARQUET, DumpRequest, DumpTarget, expand
from klog.kernel import KeySet
from klog.log.arrow import RowGroup, Sizes, schema
from klog.log.records import RecordFilter

from tests.commands.dump.sinks import Kept, bytes_read
from tests.kernel.windows import filled, plain_batches
from tests.oracles.plain import dump_text, shapes
from tests.oracles.plain.compress import gzip_stream
from tests.oracles.plain.control import control_type, coordinator_epoch
from tests.oracles.plain.encode import Record, batch, marker, message
from tests.oracles.plain.shapes import MS, some_records

LOGS = shapes.all_logs()
ASKED = DumpRequest(output=PARQUET)
A, B, C, D = (batch(some_records(3 * i)) for i in range(4))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "orders-3"
    folder.mkdir()
    return folder / f"{0:020}.log"


def write(targets: list[DumpTarget], tmp_path: Path, request: DumpRequest = ASKED) -> tuple[int, pq.ParquetFile, Kept]:
    """Dump *targets*; return the exit code, the resulting file, and the messages."""
    sink, out = Kept(), tmp_path / "out.parquet"
    descriptor = os.open(out, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        code = dump_parquet(targets, request, sink, descriptor)
    finally:
        os.close(descriptor)
    assert sink.data == b""
    return code, pq.ParquetFile(out), sink


def columns(file: pq.ParquetFile) -> dict[str, list[object]]:
    """Return the columns as lists; timestamps as ms."""
    table = file.read()
    at = table.schema.get_field_index("timestamp")
    table = table.set_column(at, "timestamp", table["timestamp"].cast(pa.int64()))
    return {name: table[name].to_pylist() for name in table.column_names}


def none(number: int) -> int | None:
    return None if number == -1 else number


@pytest.mark.parametrize("name", LOGS)
def test_columns_hold_what_an_independent_decoder_reads(path: Path, tmp_path: Path, name: str) -> None:
    """Null for what there is not; markers without key, value or headers; header keys valid, as Arrow demands."""
    path.write_bytes(LOGS[name])
    code, file, sink = write([DumpTarget(str(path))], tmp_path)
    assert (code, sink.reports) == (0, [])
    expected: dict[str, list[object]] = {field: [] for field in schema().names}
    for plain in plain_batches(LOGS[name]):
        for record in plain.records:
            control = control_type(record.key) if plain.control else None
            for field, value in {
                "topic": "orders",
                "partition": 3,
                "offset": record.offset,
                "timestamp": none(record.timestamp),
                "timestamp_type": plain.timestamp_type if plain.magic else None,
                "key": None if control else record.key,
                "value": None if control else record.value,
                "headers": [] if control else [{"key": dump_text.java_text(k), "value": v} for k, v in record.headers],
                "leader_epoch": none(plain.leader_epoch),
                "producer_id": none(plain.producer_id),
                "producer_epoch": none(plain.producer_epoch),
                "sequence": none(record.sequence),
                "transactional": plain.transactional,
                "control": control,
                "position": plain.position,
                "coordinator_epoch": coordinator_epoch(record.value) if control in ("ABORT", "COMMIT") else None,
            }.items():
                expected[field].append(value)
    assert columns(file) == expected


def test_the_columns_have_their_types() -> None:
    """Spark and other readers see these types."""
    types = {field.name: (str(field.type), field.nullable) for field in schema()}
    assert types == {
        "topic": ("dictionary<values=string, indices=int32, ordered=0>", True),
        "partition": ("int32", True),
        "offset": ("int64", False),
        "timestamp": ("timestamp[ms, tz=UTC]", True),
        "timestamp_type": ("dictionary<values=string, indices=int8, ordered=0>", True),
        "key": ("binary", True),
        "value": ("binary", True),
        "headers": ("list<item: struct<key: string not null, value: binary>>", True),
        "leader_epoch": ("int32", True),
        "producer_id": ("int64", True),
        "producer_epoch": ("int16", True),
        "sequence": ("int32", True),
        "transactional": ("bool", False),
        "control": ("dictionary<values=string, indices=int8, ordered=0>", True),
        "position": ("int64", False),
        "coordinator_epoch": ("int32", True),
    }


def test_nothing_to_write_is_a_file_without_rows(path: Path, tmp_path: Path) -> None:
    """A reader of many such files need not check which are empty."""
    path.touch()
    for targets in ([], [DumpTarget(str(path))]):
        code, file, _ = write(targets, tmp_path)
        assert (code, file.metadata.num_rows) == (0, 0)
        assert file.schema_arrow.names == schema().names


@pytest.mark.parametrize(("rows", "size"), [(1, 64 << 20), (7, 64 << 20), (128 << 10, 1), (128 << 10, 2000)])
def test_row_groups_follow_one_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, size: int) -> None:
    """Their buffers are used again: nothing of an earlier one is left, neither nulls nor lengths."""
    paths = []
    for i, name in enumerate(LOGS):
        (tmp_path / f"topic{i}-{i}").mkdir()
        paths.append(tmp_path / f"topic{i}-{i}" / f"{0:020}.log")
        paths[-1].write_bytes(LOGS[name])
    targets = [DumpTarget(str(path)) for path in paths]
    _, whole, _ = write(targets, tmp_path)
    expected = columns(whole)
    assert whole.num_row_groups == 1
    monkeypatch.setattr(klog.log.arrow, "ROW_GROUP_ROWS", rows)
    monkeypatch.setattr(klog.log.arrow, "ROW_GROUP_BYTES", size)
    _, file, _ = write(targets, tmp_path)
    assert file.num_row_groups > 5
    assert columns(file) == expected


def test_several_files_become_one(tmp_path: Path) -> None:
    """Each with its own topic and partition."""
    paths = []
    for name, data in (("orders-3", A), ("orders-4", B), ("plain", C)):
        (tmp_path / name).mkdir()
        paths.append(tmp_path / name / f"{0:020}.log")
        paths[-1].write_bytes(data)
    _, file, _ = write([DumpTarget(str(path)) for path in paths], tmp_path)
    found = columns(file)
    assert found["offset"] == list(range(9))
    assert found["topic"] == ["orders"] * 6 + [None] * 3
    assert found["partition"] == [3] * 3 + [4] * 3 + [None] * 3


def test_a_topic_that_is_no_utf_8_is_written_as_well_as_may_be(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/\xff-3"
    os.mkdir(folder)
    path = os.fsdecode(folder + b"/00000000000000000000.log")
    with open(path, "wb") as file:
        file.write(A)
    assert columns(write([DumpTarget(path)], tmp_path)[1])["topic"] == ["?"] * 3


def test_ranges_keys_and_limits_hold_here_too(path: Path, tmp_path: Path) -> None:
    end = marker(12, commit=True, timestamp=MS, producer_id=1, producer_epoch=0, coordinator_epoch=0)
    path.write_bytes(A + B + C + D + end)
    for wanted, offsets in (
        (RecordFilter(2, 7), [2, 3, 4, 5, 6]),
        (RecordFilter(limit=4), [0, 1, 2, 3]),
        (RecordFilter(5, limit=2), [5, 6]),
        (RecordFilter(keys=KeySet([b"key-1"])), [1, 4, 7, 10]),
        (RecordFilter(9, controls=False), [9, 10, 11]),
        (RecordFilter(from_time=MS + 20, to_time=MS + 21), [2, 5, 8, 11]),
        (RecordFilter(100), []),
    ):
        _, file, _ = write([DumpTarget(str(path))], tmp_path, ASKED._replace(wanted=wanted))
        assert columns(file)["offset"] == offsets
    _, file, _ = write([DumpTarget(str(path))] * 3, tmp_path, ASKED._replace(wanted=RecordFilter(limit=15)))
    assert columns(file)["offset"] == [*range(13), 0, 1]


def test_damage_is_said_and_the_rest_is_written(path: Path, tmp_path: Path) -> None:
    broken = bytearray(B)
    broken[-1] ^= 0xFF
    bad_stream = batch(some_records(20), codec="lz4", stream=b"no lz4")
    path.write_bytes(A + broken + bad_stream + C + b"garbage" * 9 + D + A[:40])
    code, file, sink = write([DumpTarget(str(path))], tmp_path)
    assert code == 4
    assert columns(file)["offset"] == [0, 1, 2, *range(6, 12)]
    assert len(sink.reports) == 4
    assert all(report.startswith(f"{path} @ ") for report in sink.reports)


def test_a_message_inside_whose_checksum_does_not_hold_is_said(path: Path, tmp_path: Path) -> None:
    """As in the other forms of output: the same file must not be whole in one and damaged in another."""
    inner = message(0, 1, b"a", b"1") + message(1, 1, b"b", b"2", crc=5)
    path.write_bytes(message(1, 1, None, gzip_stream(inner), attributes=1))
    code, file, sink = write([DumpTarget(str(path))], tmp_path)
    assert columns(file)["offset"] == [0, 1]
    assert (code, len(sink.reports)) == (4, 1)


def test_an_unfinished_end_of_a_log_that_a_broker_is_writing_is_no_damage(path: Path, tmp_path: Path) -> None:
    path.write_bytes(A + B[:50])
    for live, code in ((True, 0), (False, 4)):
        found, _, sink = write([DumpTarget(str(path), live=live)], tmp_path)
        assert (found, bool(sink.reports)) == (code, bool(code))


def test_what_is_no_log_is_refused_and_the_logs_are_written(path: Path, tmp_path: Path) -> None:
    path.write_bytes(A)
    index = path.with_suffix(".index")
    index.write_bytes(bytes(8))
    code, file, sink = write(
        [DumpTarget(str(index)), DumpTarget(str(path)), DumpTarget(str(tmp_path / "0.log"))], tmp_path
    )
    assert code == 8
    assert columns(file)["offset"] == [0, 1, 2]
    assert "Parquet is for logs" in sink.reports[0]
    assert "0.log: cannot open" in sink.reports[1]


def test_rows_go_into_groups_of_some_size(path: Path, tmp_path: Path) -> None:
    """Readers work by row group; and what waits for one stays in memory."""
    one = batch(some_records(0, 5000))  # no checksum covers the base offset
    path.write_bytes(b"".join((5000 * i).to_bytes(8, "big") + one[8:] for i in range(60)))
    _, file, _ = write([DumpTarget(str(path))], tmp_path)
    groups = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    assert sum(groups) == 300_000
    assert all(128 << 10 <= rows < 160 << 10 for rows in groups[:-1])
    assert file.read(["offset"])["offset"].to_pylist() == list(range(300_000))


def test_large_values_do_not_wait_for_many_rows(path: Path, tmp_path: Path) -> None:
    """A group of 128 Ki rows of a megabyte each would take all the memory there is."""
    value = bytes(1 << 20)
    path.write_bytes(b"".join(batch([Record(i, MS, None, value)], codec="zstd") for i in range(200)))
    _, file, _ = write([DumpTarget(str(path))], tmp_path)
    assert file.metadata.num_rows == 200
    assert file.num_row_groups > 1


def test_what_was_taken_is_gone_and_stays_what_it_was() -> None:
    """A row group must not grow with the log, nor change when the next one is gathered."""
    group = RowGroup(schema())
    taken = []
    for i in range(20):
        window = filled(batch([Record(i, MS, b"k" * 50_000, b"v" * 50_000, ((b"h" * 50_000, b"%d" % i),))]))
        group.add(window, Sizes(*window.content_sizes()), "orders", 3)
        taken.append(group.take())
    assert [table["offset"].to_pylist() for table in taken] == [[i] for i in range(20)]
    assert [table["headers"].to_pylist()[0][0]["value"] for table in taken] == [b"%d" % i for i in range(20)]
    assert len({table.get_total_buffer_size() for table in taken[:10]}) == 1


def test_reading_ends_where_the_limit_is_reached(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten records of a hundred gigabytes are not to cost the hundred gigabytes."""
    one = batch([Record(0, MS, None, bytes(100_000))])
    path.write_bytes(b"".join(i.to_bytes(8, "big") + one[8:] for i in range(80)))
    counted = bytes_read(monkeypatch)
    _, file, _ = write([DumpTarget(str(path))], tmp_path, ASKED._replace(wanted=RecordFilter(limit=1)))
    assert file.metadata.num_rows == 1
    assert sum(counted) < 1_000_000


def test_values_that_end_at_the_limits_of_a_window(path: Path, tmp_path: Path) -> None:
    """Rows of many windows, with and without nulls, make one column."""
    records = [
        Record(i, MS, None if i % 3 else b"%d" % i, None if i % 5 == 0 else b"v" * (i % 700)) for i in range(20_000)
    ]
    data = b"".join(batch(records[at : at + 250], codec="lz4") for at in range(0, 20_000, 250))
    path.write_bytes(data)
    found = columns(write([DumpTarget(str(path))], tmp_path)[1])
    assert found["key"] == [record.key for record in records]
    assert found["value"] == [record.value for record in records]


def test_a_directory_gives_all_its_segments(path: Path, tmp_path: Path) -> None:
    path.write_bytes(A)
    path.with_name(f"{3:020}.log").write_bytes(B)
    targets = list(expand([str(path.parent)], (), (), False, RecordFilter()))
    assert columns(write(targets, tmp_path)[1])["offset"] == list(range(6))
