"""Rows: the records of slices as Arrow record batches, each once, whatever the slices and the damage."""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from klog.base.errors import DamagedError, UsageError
from klog.base.read_only import ReadOnlyFile
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.jobs import slices as jobs_slices
from klog.jobs.slices import LogSlice, slice_partition
from klog.jobs.spark_rows import COLUMNS, KAFKA_COLUMNS, RowQuery, read, schema
from klog.log.records import RecordFilter
from pyarrow import compute

from tests.conftest import CORPORA, FIXTURES
from tests.data_dir.test_log_dir import held
from tests.jobs.test_slices import some_batches
from tests.kernel.windows import plain_batches
from tests.oracles.plain import compress, dump_text, encode, shapes
from tests.oracles.plain.encode import Record, batch
from tests.oracles.plain.shapes import MS, some_records
from tests.support import bad_sectors, bomb_dirs, lookup_logs

LOGS = shapes.all_logs()
ALL = RowQuery(COLUMNS, damage="column")
WHOLE = 1 << 40
SPLITS = (4096, 5000, 20_000, 100_000)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "orders-3"
    path.mkdir()
    return path


def table(unit: list[LogSlice], query: RowQuery = ALL) -> pa.Table:
    """Return all rows; the record batches are kept until the last has come."""
    return pa.Table.from_batches(list(read(unit, query)), schema(query.columns))


def rows_of(folder: Path, query: RowQuery = ALL, split: int = WHOLE) -> pa.Table:
    return table(slice_partition(Partition(str(folder)), split, query.wanted, query.isolation), query)


def damage_in(found: pa.Table) -> list[str]:
    return [text for text in found["damage"].to_pylist() if text is not None]


def none(number: int) -> int | None:
    return None if number == -1 else number


# the content of a row


def test_columns_have_the_types_of_the_kafka_source() -> None:
    """A job that reads topics with Spark must not notice that it reads a disk."""
    assert [(field.name, str(field.type)) for field in schema(COLUMNS)] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int32"),
        ("offset", "int64"),
        ("timestamp", "timestamp[us, tz=UTC]"),
        ("timestampType", "int32"),
        ("headers", "list<element: struct<key: string, value: binary>>"),
        ("leader_epoch", "int32"),
        ("producer_id", "int64"),
        ("producer_epoch", "int16"),
        ("sequence", "int32"),
        ("position", "int64"),
        ("file", "string"),
        ("damage", "string"),
    ]
    assert all(field.nullable for field in schema(COLUMNS))
    with pytest.raises(UsageError, match="no column ofset; did you mean offset"):
        schema(("ofset",))


@pytest.mark.parametrize("name", LOGS)
def test_rows_hold_what_an_independent_decoder_reads(folder: Path, name: str) -> None:
    """No markers; what Java has for a record of old (-1); null for no headers, and for times beyond microseconds."""
    path = folder / f"{0:020}.log"
    path.write_bytes(LOGS[name])
    found = rows_of(folder)
    expected: dict[str, list[object]] = {column: [] for column in COLUMNS}
    for plain in plain_batches(LOGS[name]):
        for record in plain.records if not plain.control else ():
            late = plain.timestamp_type == "LogAppendTime"
            fits = abs(record.timestamp) <= (2**63 - 1) // 1000
            pairs = [{"key": dump_text.java_text(key), "value": value} for key, value in record.headers]
            row = {
                "key": record.key,
                "value": record.value,
                "topic": "orders",
                "partition": 3,
                "offset": record.offset,
                "timestamp": 1000 * record.timestamp if fits else None,
                "timestampType": late if plain.magic else -1,
                "headers": pairs or None,
                "leader_epoch": none(plain.leader_epoch),
                "producer_id": none(plain.producer_id),
                "producer_epoch": none(plain.producer_epoch),
                "sequence": none(record.sequence),
                "position": plain.position,
                "file": str(path),
                "damage": None,
            }
            for column, value in row.items():
                expected[column].append(value)
    times = found["timestamp"].cast(pa.int64()).to_pylist()
    assert {column: times if column == "timestamp" else found[column].to_pylist() for column in COLUMNS} == expected


@pytest.mark.parametrize("columns", [("offset",), ("value", "key"), ("damage", "headers", "topic"), KAFKA_COLUMNS])
def test_only_the_columns_that_are_asked_for_come(folder: Path, columns: tuple[str, ...]) -> None:
    """In their order: unrequested columns cost nothing."""
    (folder / f"{100:020}.log").write_bytes(LOGS["varied"])
    found = rows_of(folder, RowQuery(columns))
    assert found.equals(rows_of(folder).select(columns))
    assert found.schema.equals(schema(columns))


# splits


@pytest.mark.parametrize("data", ["modern", "legacy", "v39/data", "compaction/before", "compaction/after"])
def test_any_split_gives_every_record_once(data: str) -> None:
    """The logs of real brokers: all codecs and formats, transactions, compacted and trimmed logs."""
    several = 0
    for partition in LogDir(str(FIXTURES / data)).partitions:
        whole = table(slice_partition(partition, WHOLE))
        assert damage_in(whole) == []
        for split in (700, *SPLITS):
            parts = slice_partition(partition, split)
            several += len(parts) > len(partition.segments)
            assert table(parts).equals(whole), (partition.path, split)
    assert several


@pytest.mark.corpora
@pytest.mark.parametrize("data", ["modern/data", "legacy/data", "v39/data", "v39/data1"])
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_any_split_of_the_corpora_gives_every_record_once(data: str, isolation: str) -> None:
    query = ALL._replace(isolation=isolation)  # type: ignore[arg-type]
    for partition in LogDir(str(CORPORA / data)).partitions:
        whole = table(slice_partition(partition, WHOLE, isolation=query.isolation), query)
        assert damage_in(whole) == []
        for split in SPLITS:
            assert table(slice_partition(partition, split, isolation=query.isolation), query).equals(whole)


def damaged(data: bytes, chance: Random) -> bytes:
    """Return *data* with one to three damages of any kind."""
    made = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        at, size = chance.randrange(len(made)), chance.choice((1, 4, 20, 600, 5000))
        kind = chance.randrange(5)
        if kind == 0:
            made[at] ^= 0xFF
        elif kind == 1:
            made[at : at + size] = bytes(min(size, len(made) - at))
        elif kind == 2:
            made[at:at] = chance.randbytes(size)
        elif kind == 3:
            del made[at : at + size]
        else:
            made[at : at + size] = made[chance.randrange(len(made)) :][:size]
    return bytes(made)


@pytest.mark.parametrize("by_index", [True, False])
@pytest.mark.parametrize("seed", range(40))
def test_damage_costs_the_same_records_whatever_the_split(
    folder: Path, monkeypatch: pytest.MonkeyPatch, seed: int, by_index: bool
) -> None:
    """The damage that a task finds, and the records around it, must not depend on the split."""
    if by_index:
        monkeypatch.setattr(jobs_slices, "CONFIRM_BYTES", 4096)
        monkeypatch.setattr(jobs_slices, "_INDEX_PAYS", 1)
    chance = Random(seed)
    groups = [some_records(100 + 6 * i, 5, words=chance.choice((1, 9, 90))) for i in range(60)]
    log = lookup_logs.write_segment(folder, 100, lookup_logs.of_records(groups, codec=chance.choice(("none", "lz4"))))
    log.write_bytes(damaged(log.read_bytes(), chance))
    whole = rows_of(folder)
    for split in (4096, 6000, 10_000, 30_000):
        found = rows_of(folder, split=split)
        assert found.equals(whole), (split, damage_in(found), damage_in(whole))


@pytest.mark.corpora
def test_rows_around_damage_are_the_same_for_any_split_of_the_wrecks(request: pytest.FixtureRequest) -> None:
    """Every log dir that was killed or damaged, as it was before a broker mended it."""
    image = request.getfixturevalue("image")
    seen = 0
    for wreck in sorted((CORPORA / "crash").iterdir()):
        for root in sorted(
            {path.parent for path in image(f"crash/{wreck.name}/before.tar.gz").rglob("meta.properties")}
        ):
            for partition in LogDir(str(root)).partitions:
                whole = table(slice_partition(partition, WHOLE))
                seen += len(damage_in(whole))
                for split in SPLITS[:3]:
                    assert table(slice_partition(partition, split)).equals(whole), (partition.path, split)
    assert seen >= 15


@pytest.mark.parametrize("confirm_bytes", [4096, 1 << 20])
def test_batches_that_a_damaged_length_swallowed_come_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, confirm_bytes: int
) -> None:
    """The length may lead to where another batch begins: behind where the log was cut, even, by its index."""
    monkeypatch.setattr(jobs_slices, "CONFIRM_BYTES", confirm_bytes)
    monkeypatch.setattr(jobs_slices, "_INDEX_PAYS", 1)
    made = some_batches(0, 40)
    log = lookup_logs.write_segment(folder, 0, made)
    data = bytearray(log.read_bytes())
    for swallowed in (3, 10, 25, 35):
        size = sum(len(content) for _, _, content in made[5 : 5 + swallowed])
        at = sum(len(content) for _, _, content in made[:5])
        struct.pack_into(">i", data, at + 8, size - 12)
        log.write_bytes(data)
        whole = rows_of(folder)
        assert [offset for offset in whole["offset"].to_pylist() if offset not in (20, 21, 22)] == [
            4 * i + j for i in range(40) for j in range(3) if i != 5
        ]
        assert len(damage_in(whole)) == 1
        for split in (4096, 8192, 16_384):
            assert rows_of(folder, split=split).equals(whole)


def test_a_damaged_length_that_leads_into_a_value_leads_every_reader_there(folder: Path) -> None:
    """If a walk is misled, a cut must not show one reader the batch around that value, and another its content."""
    image = b"".join(content for _, _, content in some_batches(200, 12, 200))
    host = batch([Record(300, MS, b"k", image)])
    made = [content for _, _, content in some_batches(0, 30)]
    data = bytearray(b"".join([*made, host, *(content for _, _, content in some_batches(400, 30))]))
    led_to = data.index(image)
    at = sum(len(content) for content in made[:20])
    struct.pack_into(">i", data, at + 8, led_to - at - 12)
    (folder / f"{0:020}.log").write_bytes(data)
    whole = rows_of(folder)
    for split in range(1000, 40_000, 700):
        assert rows_of(folder, split=split).equals(whole), split


# ranges


def test_ranges_hold_for_every_row(folder: Path) -> None:
    """Offsets and times inside a batch, not only whole batches."""
    lookup_logs.write_segment(folder, 0, some_batches(0, 100))
    lookup_logs.write_segment(folder, 400, some_batches(400, 100))
    everything = rows_of(folder)
    offsets, times = everything["offset"].to_pylist(), everything["timestamp"].cast(pa.int64()).to_pylist()
    for wanted in (
        RecordFilter(from_offset=17),
        RecordFilter(to_offset=402),
        RecordFilter(9, 605),
        RecordFilter(from_time=MS + 2501),
        RecordFilter(to_time=MS + 51),
        RecordFilter(5, 700, MS + 101, MS + 4002),
    ):
        expected = [
            offset
            for offset, time in zip(offsets, times, strict=True)
            if wanted.from_offset <= offset < wanted.to_offset and wanted.from_time <= time // 1000 < wanted.to_time
        ]
        for split in (4096, WHOLE):
            found = rows_of(folder, ALL._replace(wanted=wanted), split)
            assert found["offset"].to_pylist() == expected
    assert rows_of(folder, ALL._replace(wanted=RecordFilter(from_offset=10**6))).num_rows == 0


# record batches


def test_record_batches_are_about_as_large_as_asked(folder: Path) -> None:
    """Small ones each cost Spark as much as large ones; large ones wait in the memory of its JVM."""
    lookup_logs.write_segment(folder, 0, some_batches(0, 2000))
    for wanted in (1 << 16, 1 << 18, 1 << 20):
        sizes = [
            made.nbytes for made in read(slice_partition(Partition(str(folder))), ALL._replace(batch_bytes=wanted))
        ]
        assert all(wanted / 4 <= size <= 2 * wanted for size in sizes[:-1])
    few = list(read(slice_partition(Partition(str(folder)), 8192), RowQuery(("offset",))))
    assert [made.num_rows for made in few] == [6000]


def test_one_batch_of_the_log_may_be_many_record_batches(folder: Path) -> None:
    """A compressed batch grows a thousandfold."""
    records = [Record(i, MS, None, bytes(1000)) for i in range(20_000)]
    (folder / f"{0:020}.log").write_bytes(batch(records, codec="zstd"))
    made = list(read(slice_partition(Partition(str(folder))), RowQuery(("offset", "value"))))
    assert sum(part.num_rows for part in made) == 20_000
    assert max(part.nbytes for part in made) <= 2 << 20
    huge = Record(20_000, MS, None, bytes(5 << 20))
    (folder / f"{0:020}.log").write_bytes(batch([*records[:1], huge]))
    assert rows_of(folder)["value"].to_pylist() == [records[0].value, huge.value]


def test_tiny_logs_share_a_record_batch(tmp_path: Path) -> None:
    """Five thousand tiny partitions are a task of one record batch, each row with its own topic."""
    unit = []
    for number in range(20):
        lookup_logs.write_segment(tmp_path / f"t{number}-7", 0, some_batches(0, 2))
        unit += slice_partition(Partition(str(tmp_path / f"t{number}-7")))
    made = list(read(unit, RowQuery()))
    assert len(made) == 1
    assert made[0]["topic"].to_pylist() == [f"t{number}" for number in range(20) for _ in range(6)]


# damage


def broken(folder: Path) -> Path:
    """Write a log the second of whose three batches is broken."""
    made = some_batches(0, 3)
    log = lookup_logs.write_segment(folder, 0, made)
    data = bytearray(log.read_bytes())
    data[len(made[0][2]) + 100] ^= 0xFF
    log.write_bytes(data)
    return log


def test_damage_is_an_error_with_its_place(folder: Path) -> None:
    log = broken(folder)
    position = len(some_batches(0, 3)[0][2])
    reading = read(slice_partition(Partition(str(folder))), RowQuery())
    assert next(reading)["offset"].to_pylist() == [0, 1, 2]
    with pytest.raises(DamagedError) as raised:
        next(reading)
    assert str(raised.value).startswith(f"{log} @ {position} (offset 4): bad CRC: ")


def test_damage_can_be_passed_over(folder: Path) -> None:
    broken(folder)
    assert rows_of(folder, RowQuery(damage="skip"))["offset"].to_pylist() == [0, 1, 2, 8, 9, 10]


def test_damage_can_be_a_row_of_its_own(folder: Path) -> None:
    """Between the rows before and after it, with the known facts of its place."""
    log = broken(folder)
    found = rows_of(folder).to_pylist()
    assert [row["offset"] for row in found] == [0, 1, 2, 4, 8, 9, 10]
    told = {column: value for column, value in found[3].items() if value is not None}
    position = len(some_batches(0, 3)[0][2])
    text = told.pop("damage")
    assert text.startswith(f"{log} @ {position} (offset 4): bad CRC: CRC-32C 0x")
    assert told == {"topic": "orders", "partition": 3, "offset": 4, "position": position, "file": str(log)}


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_broken_record_costs_what_follows_it_in_its_batch(folder: Path, codec: str) -> None:
    """The checksum matches: the earlier part is good, and so is the next batch."""
    records = some_records(0, 5)
    stream = encode.records_payload(records, 0, records[0].timestamp)
    cut = len(encode.records_payload(records[:3], 0, records[0].timestamp)) + 1
    content = batch(records, codec=codec, stream=compress.compress(codec, stream[:cut]))
    (folder / f"{0:020}.log").write_bytes(content + batch(some_records(5, 2)))
    found = rows_of(folder).to_pylist()
    assert [row["offset"] for row in found if row["damage"] is None] == [0, 1, 2, 5, 6]
    assert [row["damage"] is None for row in found] == [True] * 3 + [False] + [True] * 2
    assert "bad record" in damage_in(rows_of(folder))[0]


def test_a_bad_message_in_an_intact_wrapper_is_told(folder: Path) -> None:
    """Messages of old have a checksum of their own; klog verify reports it too."""
    records = some_records(0, 2)
    inner = bytearray(b"".join(encode.message(r.offset, 1, r.key, r.value, timestamp=MS) for r in records))
    inner[-1] ^= 0xFF
    content = encode.wrapper(records, 1, "gzip", stream=compress.compress("gzip", bytes(inner), magic=1))
    (folder / f"{0:020}.log").write_bytes(content)
    assert "own CRC-32" in damage_in(rows_of(folder))[0]


def test_more_than_may_be_decompressed_is_damage(folder: Path) -> None:
    """A bomb must not eat the memory of the worker."""
    (folder / f"{0:020}.log").write_bytes(
        batch([Record(0, MS, None, bytes(3 << 20))], codec="zstd") + batch(some_records(1))
    )
    found = rows_of(folder, ALL._replace(max_batch_bytes=1 << 20))
    assert found["offset"].to_pylist() == [0, 1, 2, 3]
    assert "bad compression" in damage_in(found)[0]


# files that change


def test_a_log_that_has_vanished_is_damage(folder: Path) -> None:
    """Retention took it, or a disk: the other logs' rows arrive."""
    for base in (0, 400):
        lookup_logs.write_segment(folder, base, some_batches(base, 100))
    unit = slice_partition(Partition(str(folder)))
    (folder / f"{0:020}.log").unlink()
    found = table(unit)
    assert found.num_rows == 301
    assert damage_in(found) == [f"{folder}/{0:020}.log: unreadable: cannot open: No such file or directory"]
    assert found["partition"].to_pylist()[0] == 3
    with pytest.raises(DamagedError, match="cannot open"):
        table(unit, RowQuery())
    folder.rename(folder.with_name("gone"))
    assert len(damage_in(table(unit))) == 2


def test_a_directory_that_cannot_be_listed_is_damage(folder: Path) -> None:
    folder.rmdir()
    (said,) = damage_in(table(slice_partition(Partition(str(folder)))))
    assert "No such file or directory" in said


@pytest.mark.parametrize("split", [4096, 100_000, WHOLE])
def test_a_log_that_has_shrunk_gives_what_is_left(folder: Path, split: int) -> None:
    """A follower cuts its log; promised records that are missing must be reported."""
    log = lookup_logs.write_segment(folder, 0, some_batches(0, 100))
    unit = slice_partition(Partition(str(folder)), split)
    whole = table(unit)
    kept = sum(len(content) for _, _, content in some_batches(0, 100)[:60])
    os.truncate(log, kept + 10)
    found = table(unit)
    offsets = [offset for offset, text in zip(found["offset"], found["damage"], strict=True) if not text.is_valid]
    assert [offset.as_py() for offset in offsets] == whole["offset"].to_pylist()[:180]
    assert any("the log ends here" in text for text in damage_in(found))


def test_a_log_that_has_grown_gives_what_was_there(folder: Path) -> None:
    """A task that is repeated must give the same rows."""
    log = lookup_logs.write_segment(folder, 0, some_batches(0, 100))
    unit = slice_partition(Partition(str(folder)), 30_000)
    whole = table(unit)
    with log.open("ab") as file:
        file.write(batch(some_records(400)))
    assert table(unit).equals(whole)


def test_what_a_disk_cannot_read_costs_only_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lookup_logs.write_segment(folder, 0, some_batches(0, 100))
    unit = slice_partition(Partition(str(folder)), 40_000)
    bad_sectors.spoil(monkeypatch, range(81_920, 86_016))
    found = table(unit)
    assert "Input/output error" in damage_in(found)[0]
    assert 290 <= found.num_rows < 301


def test_a_cut_inside_a_batch_does_not_pass_in_silence(folder: Path) -> None:
    """No index is believed without the log; if all else fails, the reader that reaches the place reports it."""
    lookup_logs.write_segment(folder, 0, some_batches(0, 30))
    (whole,) = slice_partition(Partition(str(folder)))
    found = table([whole._replace(end=10_000)])
    assert "a batch reaches beyond byte 10000" in damage_in(found)[-1]


# the end of a log


def test_what_a_running_broker_has_not_finished_is_no_damage(folder: Path) -> None:
    log = lookup_logs.write_segment(folder, 0, some_batches(0, 10))
    log.write_bytes(log.read_bytes()[:-20])
    unit = slice_partition(Partition(str(folder)))
    assert len(damage_in(table(unit))) == 1
    assert damage_in(table([part._replace(live=True) for part in unit])) == []
    assert table(unit, ALL._replace(damage="skip"))["offset"].to_pylist()[-1] == 34


def test_a_held_lock_says_that_a_broker_runs(folder: Path) -> None:
    """Only the last log is written to."""
    for base in (0, 400):
        lookup_logs.write_segment(folder, base, some_batches(base, 10))
    lock = folder.parent / ".lock"
    lock.touch()
    with held(lock):
        assert [part.live for part in slice_partition(Partition(str(folder)))] == [False, True]
    assert [part.live for part in slice_partition(Partition(str(folder)))] == [False, False]


def test_a_log_that_a_running_broker_removes_has_no_records(folder: Path) -> None:
    """Retention does so between the listing and the reading; without a running broker, it has to be reported."""
    for base in (0, 400):
        lookup_logs.write_segment(folder, base, some_batches(base, 10))
    unit = slice_partition(Partition(str(folder)))
    (folder / f"{0:020}.log").unlink()
    assert "cannot open" in damage_in(table(unit))[0]
    lock = folder.parent / ".lock"
    lock.touch()
    with held(lock):
        found = table(unit)
    assert damage_in(found) == []
    assert found["offset"].to_pylist()[0] == 400


def test_zeros_behind_the_last_batch_are_room_unless_records_stood_there(folder: Path) -> None:
    """Preallocated logs end in zeros; after a power cut so do others, and there may be evidence."""
    for base in (0, 400):
        lookup_logs.write_segment(folder, base, some_batches(base, 10))
    log = folder / f"{400:020}.log"
    with log.open("ab") as file:
        file.write(bytes(5000))
    assert damage_in(rows_of(folder)) == []
    checkpoint = folder.parent / "replication-offset-checkpoint"
    checkpoint.write_text("0\n1\norders 3 450\n")
    assert "zeroed tail" in damage_in(rows_of(folder))[0]
    checkpoint.unlink()
    first = folder / f"{0:020}.log"
    first.write_bytes(first.read_bytes() + bytes(5000))
    assert "zeroed tail" in damage_in(rows_of(folder))[0]


# sent elsewhere


def test_a_query_can_be_sent_elsewhere() -> None:
    query = ALL._replace(wanted=RecordFilter(5, 9))
    assert pickle.loads(pickle.dumps(query)) == query


def test_planning_needs_no_arrow() -> None:
    """It happens in processes that have better things to load."""
    code = (
        "import sys, klog.jobs.slices, klog.jobs.spark_rows, klog.jobs.slice_scan; sys.exit('pyarrow' in sys.modules)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


def test_a_real_index_is_confirmed_in_little_of_the_log(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planning must not read the tasks' input."""
    log = lookup_logs.write_segment(folder, 0, some_batches(0, 3000, 5000))
    monkeypatch.setattr(jobs_slices, "CONFIRM_BYTES", 256 << 10)
    counted: list[int] = []
    original = ReadOnlyFile.read_into

    def counting(self: ReadOnlyFile, position: int, view: memoryview) -> int:
        counted.append(read := original(self, position, view))
        return read

    monkeypatch.setattr(ReadOnlyFile, "read_into", counting)
    parts = slice_partition(Partition(str(folder)), 8 << 20)
    assert len(parts) == -(-log.stat().st_size // (8 << 20))
    assert sum(counted) < 2 << 20


def crowded(folder: Path, headers: int) -> None:
    """Write a record with so many headers between two plain ones."""
    one = bomb_dirs.batch_with_headers("zstd", headers, base_offset=1)
    plain = [batch([Record(offset, MS, b"k", b"v")]) for offset in (0, 2)]
    (folder / f"{0:020}.log").write_bytes(plain[0] + one + plain[1])


def test_a_record_with_more_headers_than_columns_take_is_damage_of_its_own(folder: Path) -> None:
    """Its two megabytes would become a hundred; whoever does not ask for headers gets it."""
    crowded(folder, (1 << 20) + 1)
    found = rows_of(folder)
    assert sorted(found["offset"].to_pylist()) == [0, 1, 2]
    (told,) = damage_in(found)
    assert "(offset 1): bad record: the record has 1048577 headers" in told
    assert rows_of(folder, RowQuery(("offset",))).column(0).to_pylist() == [0, 1, 2]
    assert rows_of(folder, RowQuery(("offset", "headers"), damage="skip")).column(0).to_pylist() == [0, 2]
    with pytest.raises(DamagedError, match="1048577 headers"):
        rows_of(folder, RowQuery(("offset", "headers")))


def test_a_record_with_as_many_headers_as_columns_take_is_a_row(folder: Path) -> None:
    """The bound is no loss where there is room."""
    crowded(folder, 1 << 20)
    found = rows_of(folder, RowQuery(("offset", "headers")))
    assert compute.list_value_length(found["headers"]).to_pylist() == [None, 1 << 20, None]
