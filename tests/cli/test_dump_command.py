"""`klog dump`: what its options ask for."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from klog.commands.dump.log_lines import CSV_BATCH_COLUMNS, CSV_COLUMNS

from tests.conftest import FIXTURES, Ran
from tests.oracles.plain import encode
from tests.oracles.plain.encode import Record, batch, marker
from tests.oracles.plain.shapes import MS, some_records

Klog = Callable[..., Ran]
A, B, C = (batch(some_records(3 * i)) for i in range(3))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "orders-3"
    path.mkdir()
    (path / f"{0:020}.log").write_bytes(A + B)
    (path / f"{6:020}.log").write_bytes(C)
    (path / f"{0:020}.index").write_bytes(encode.offset_entries(0, [(5, len(A))]))
    return path


@pytest.fixture
def log(folder: Path) -> Path:
    return folder / f"{0:020}.log"


def objects(done: Ran) -> list[dict[str, object]]:
    assert (done.exit_code, done.stderr) == (0, b"")
    return [json.loads(line) for line in done.stdout.splitlines()]


def offsets(done: Ran) -> list[object]:
    return [found["offset"] for found in objects(done)]


def test_ranges_and_limits(klog: Klog, folder: Path) -> None:
    for options, expected in (
        ([], list(range(9))),
        (["--from-offset", "4"], [4, 5, 6, 7, 8]),
        (["--to-offset", "4"], [0, 1, 2, 3]),
        (["--from-offset", "2", "--to-offset", "7"], [2, 3, 4, 5, 6]),
        (["--from-time", str(MS + 20)], [2, 5, 8]),
        (["--to-time", str(MS + 10)], [0, 3, 6]),
        (["--from-time", "2023-11-14T22:13:20.010Z", "--to-time", "2023-11-14T22:13:20.020Z"], [1, 4, 7]),
        (["--limit", "5"], [0, 1, 2, 3, 4]),
        (["--tail"], [6, 7, 8]),
        (["--tail", "--limit", "2"], [7, 8]),
        (["--tail", "--limit", "5"], [4, 5, 6, 7, 8]),
        (["--tail", "--limit", "2", "--key", "key-1"], [4, 7]),
        (["--tail", "--limit", "2", "--to-offset", "5"], [3, 4]),
        (["--tail", "--limit", "99", "--from-offset", "2"], [2, 3, 4, 5, 6, 7, 8]),
        (["--key", "key-1"], [1, 4, 7]),
        (["--key", "key-1", "--key", "hex:6b65792d32"], [1, 2, 4, 5, 7, 8]),
        (["--key", "base64:a2V5LTA="], [0, 3, 6]),
        (["--from-time", "1000000000000 ms ago"], [*range(9)]),
    ):
        assert offsets(klog("dump", "--output", "jsonl", *options, folder)) == expected, options


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--key", "zz"], 'no record with key "zz" in orders-3'),
        (["--key", "zz", "--key", "yy"], 'no record with key "zz" or "yy" in orders-3'),
        (["--from-offset", "9"], "orders-3 ends at 9"),
        (["--from-offset", "5", "--to-offset", "5"], "no record from offset 5 and below offset 5 in orders-3"),
        (["--to-offset", "0"], "orders-3 begins at 0"),
        (["--from-time", "2030-01-01T00:00:00Z"], "no record since 2030-01-01 00:00:00.000Z in orders-3"),
        (["--to-time", "1000"], "no record before 1970-01-01 00:00:01.000Z in orders-3"),
        (["--isolation", "read_committed", "--key", "z"], 'no committed record with key "z" in orders-3'),
        (
            ["--batches", "--from-offset", "5", "--to-offset", "5"],
            "no batch from offset 5 and below offset 5 in orders-3",
        ),
    ],
)
def test_nothing_found_is_said_in_one_line(klog: Klog, folder: Path, options: list[str], sentence: str) -> None:
    """grep exits with 1; here it is 4, and the line says what was looked for, and where."""
    for form in ("jsonl", "csv"):
        done = klog("dump", "--output", form, *options, folder)
        header = b"" if form == "jsonl" else done.stdout
        assert (done.exit_code, done.stdout, done.stderr.decode()) == (4, header, f"klog: {sentence}\n")
        assert header.count(b"\n") == (form == "csv")
        quiet = klog("dump", "--output", form, "--quiet", *options, folder)
        assert (quiet.exit_code, quiet.stdout, quiet.stderr) == (4, header, b"")


def test_nothing_found_in_several_places(klog: Klog, folder: Path, log: Path) -> None:
    second = folder.parent / "orders-4"
    second.mkdir()
    (second / log.name).write_bytes(A)
    done = klog("dump", "--print-data-log", "--key", "zz", folder, second)
    assert (done.exit_code, done.stderr) == (4, b'klog: no record with key "zz" in 2 partitions\n')
    done = klog("dump", "--from-offset", "100", log, second / log.name)
    assert (done.exit_code, done.stderr) == (4, b"klog: no batch from offset 100 in 2 files\n")
    done = klog("dump", "--output", "parquet", "--to", folder.parent / "out.parquet", "--key", "zz", folder)
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (4, b'klog: no record with key "zz" in orders-3')
    assert pq.read_table(folder.parent / "out.parquet").num_rows == 0


def test_an_empty_log_without_conditions_is_no_problem(klog: Klog, folder: Path, log: Path) -> None:
    """Kafka's tool exits with 0 as well: the command has not looked for a record."""
    for one in folder.iterdir():
        one.unlink()
    log.touch()
    assert klog("dump", folder).exit_code == 0
    assert klog("dump", "--output", "jsonl", folder).exit_code == 0
    done = klog("dump", "--output", "jsonl", "--tail", folder)
    assert (done.exit_code, done.stderr) == (4, b"klog: no record in orders-3\n")


def test_conditions_are_for_logs(klog: Klog, folder: Path) -> None:
    """An index that is named itself is printed, whatever range of records is given."""
    done = klog("dump", "--from-offset", "100", "--output", "jsonl", folder / f"{0:020}.index")
    assert (done.exit_code, done.stderr, done.stdout.count(b"\n")) == (0, b"", 1)
    assert klog("dump", "--from-offset", "100", "--with-indexes", "--output", "jsonl", folder).exit_code == 4


def test_batches_of_the_text_are_limited_behind_those_left_out(klog: Klog, folder: Path) -> None:
    """--limit counted the batches below --from-offset, and nothing was printed."""
    done = klog("dump", "--from-offset", "3", "--limit", "1", folder / f"{0:020}.log")
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith(b"baseOffset")] == [b"3"]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_the_newest_batches_of_every_segment(klog: Klog, folder: Path, count: int) -> None:
    """The last segment has one: more are in the one before."""
    rows = objects(klog("dump", "--output", "jsonl", "--batches", "--tail", "--limit", str(count), folder))
    assert [row["base_offset"] for row in rows] == [0, 3, 6][-count:]
    done = klog("dump", "--tail", "--limit", str(count), folder)
    bases = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith(b"baseOffset")]
    assert bases == [0, 3, 6][-count:]


def test_the_newest_records_of_each_partition(klog: Klog, folder: Path, log: Path) -> None:
    second = folder.parent / "orders-4"
    second.mkdir()
    (second / log.name).write_bytes(A + B)
    found = objects(klog("dump", "--output", "jsonl", "--tail", "--limit", "4", folder, second, log))
    assert [(one["partition"], one["offset"]) for one in found] == [
        *((3, offset) for offset in range(5, 9)),
        *((4, offset) for offset in range(2, 6)),
        *((3, offset) for offset in range(2, 6)),
    ]


def test_the_newest_records_beside_damage(klog: Klog, folder: Path, log: Path) -> None:
    """A broken batch is named, and others are counted."""
    content = bytearray(log.read_bytes())
    content[len(A) + 70] ^= 0xFF
    log.write_bytes(content)
    done = klog("dump", "--output", "jsonl", "--tail", "--limit", "5", folder)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["offset"] for one in found if "damage" not in one] == [1, 2, 6, 7, 8]
    assert done.exit_code == 4
    assert sum("damage" in one for one in found) == 1


def test_keys_from_a_file_one_a_line(klog: Klog, folder: Path, tmp_path: Path) -> None:
    """With either line end, the last with or without."""
    for content in (b"key-1\nkey-2\n", b"key-1\r\nkey-2", b"other\nkey-2\nkey-1"):
        (tmp_path / "keys").write_bytes(content)
        assert offsets(klog("dump", "--output", "jsonl", "--keys-from", tmp_path / "keys", folder)) == [
            1,
            2,
            4,
            5,
            7,
            8,
        ]
    (tmp_path / "keys").write_bytes(b"")
    done = klog("dump", "--output", "jsonl", "--keys-from", tmp_path / "keys", folder)
    assert (done.exit_code, done.stdout) == (4, b"")


def test_blanks_at_the_end_of_a_key_belong_to_it(klog: Klog, folder: Path, tmp_path: Path) -> None:
    """A line ends in its line end; everything before that may be what somebody took for a key."""
    (tmp_path / "keys").write_bytes(b"key-1 \nkey-2\t\r\n")
    done = klog("dump", "--output", "jsonl", "--keys-from", tmp_path / "keys", folder)
    assert (done.exit_code, done.stdout) == (4, b"")


def test_csv_begins_with_its_columns(klog: Klog, folder: Path) -> None:
    done = klog("dump", "--output", "csv", folder)
    rows = list(csv.DictReader(io.StringIO(done.stdout.decode(), newline="")))
    assert done.stdout.split(b"\n")[0].decode() == CSV_COLUMNS
    assert [row["offset"] for row in rows] == [str(i) for i in range(9)]
    done = klog("dump", "--output", "csv", "--batches", folder)
    assert done.stdout.split(b"\n")[0].decode() == CSV_BATCH_COLUMNS
    assert done.stdout.count(b"\n") == 4


def test_batches_as_rows(klog: Klog, folder: Path) -> None:
    found = objects(klog("dump", "--output", "jsonl", "--batches", folder))
    assert [(one["base_offset"], one["last_offset"], one["crc_holds"]) for one in found] == [
        (0, 2, True),
        (3, 5, True),
        (6, 8, True),
    ]
    assert list(found[0]) == CSV_BATCH_COLUMNS.split(",")


def test_values_can_be_hidden(klog: Klog, folder: Path) -> None:
    for values in ("redacted", "none"):
        for form in ("jsonl", "csv"):
            done = klog("dump", "--output", form, "--values", values, folder)
            assert done.exit_code == 0
            assert b"value value" not in done.stdout


@pytest.mark.parametrize("values", ["redacted", "none", "hex", "base64"])
def test_values_that_were_to_be_hidden_are_in_no_parquet_file(
    klog: Klog, folder: Path, tmp_path: Path, values: str
) -> None:
    """Either it is refused, or the values are not there: a file that goes to somebody else must not hold them."""
    done = klog("dump", "--output", "parquet", "--values", values, "--to", tmp_path / "out", folder)
    if done.exit_code == 16:
        return
    assert b"value value" not in b"".join(
        value or b"" for value in pq.read_table(tmp_path / "out")["value"].to_pylist()
    )


def test_batches_are_not_silently_records(klog: Klog, folder: Path, tmp_path: Path) -> None:
    """Parquet has a schema for records; a request for batches has its own schema, or is refused."""
    done = klog("dump", "--output", "parquet", "--batches", "--to", tmp_path / "out", folder)
    if done.exit_code == 16:
        return
    assert pq.read_table(tmp_path / "out").num_rows == 3


def test_markers_can_be_left_out(klog: Klog, log: Path) -> None:
    end = marker(3, commit=True, timestamp=MS, producer_id=1, producer_epoch=0, coordinator_epoch=0)
    log.write_bytes(batch(some_records(0), transactional=True, producer=(1, 0, 0)) + end)
    assert offsets(klog("dump", "--output", "jsonl", log)) == [0, 1, 2, 3]
    assert offsets(klog("dump", "--output", "jsonl", "--no-control", log)) == [0, 1, 2]
    assert offsets(klog("dump", "--output", "jsonl", "--isolation", "read_committed", log)) == [0, 1, 2]


def test_a_file_of_any_name_is_read_as_what_it_is_said_to_be(klog: Klog, log: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.bin"
    copy.write_bytes(log.read_bytes())
    assert klog("dump", "--output", "jsonl", copy).exit_code == 8
    assert offsets(klog("dump", "--output", "jsonl", "--as", "log", copy)) == list(range(6))
    done = klog("dump", "--as", "log", copy)
    assert done.exit_code == 0
    assert done.stdout.count(b"baseOffset: ") == 2
    copy.write_bytes((log.with_suffix(".index")).read_bytes())
    assert objects(klog("dump", "--output", "jsonl", "--as", "index", copy)) == [{"offset": 5, "position": len(A)}]


def test_indexes_come_along_when_they_are_asked_for(klog: Klog, folder: Path) -> None:
    assert klog("dump", folder).stdout.count(b"Dumping ") == 2
    done = klog("dump", "--with-indexes", folder)
    assert [line.rpartition(b"/")[2] for line in done.stdout.splitlines() if line.startswith(b"Dumping ")] == [
        b"00000000000000000000.log", b"00000000000000000000.index", b"00000000000000000006.log",
    ]  # fmt: skip


def test_files_and_arguments_are_one_list(klog: Klog, folder: Path) -> None:
    first, second = sorted(folder.glob("*.log"))
    done = klog("dump", "--files", f"{first},{second},", folder / f"{0:020}.index")
    assert [line.rpartition(b"/")[2] for line in done.stdout.splitlines() if line.startswith(b"Dumping ")] == [
        b"00000000000000000000.log", b"00000000000000000006.log", b"00000000000000000000.index",
    ]  # fmt: skip


def test_only_so_many_bytes_of_each_log(klog: Klog, folder: Path) -> None:
    for size in (str(len(A)), f"{len(A)}b"):
        assert klog("dump", "--max-bytes", size, folder).stdout.count(b"baseOffset") == 2


def test_a_batch_beyond_the_limit_is_named_with_the_option_that_helps(klog: Klog, log: Path) -> None:
    log.write_bytes(A + batch([Record(3, MS, None, bytes(200_000))]) + C)
    for form in ("text", "jsonl"):
        done = klog("dump", "--output", form, "--max-batch-bytes", "100KiB", log)
        assert done.exit_code == 4
        assert b"--max-batch-bytes" in done.stderr
    assert klog("dump", "--output", "jsonl", "--max-batch-bytes", "200KiB", log).exit_code == 0


def test_a_stream_beyond_the_limit_is_named_with_the_option_that_helps(klog: Klog, log: Path) -> None:
    log.write_bytes(A + batch([Record(3, MS, None, bytes(200_000))], codec="gzip") + C)
    done = klog("dump", "--output", "jsonl", "--max-batch-bytes", "100KiB", log)
    assert done.exit_code == 4
    assert b"more than 102400 bytes when decompressed (--max-batch-bytes raises the limit)" in done.stderr
    assert done.stdout.count(b'"offset"') == 7


def test_workers_do_not_change_the_output(klog: Klog, log: Path) -> None:
    log.write_bytes(b"".join(batch([Record(i, MS, None, bytes([i % 256]) * 9000)]) for i in range(1200)))
    alone = klog("dump", "--output", "jsonl", "--jobs", "1", log)
    assert klog("dump", "--output", "jsonl", "--jobs", "4", log) == alone
    assert alone.stdout.count(b"\n") == 1200


def test_the_first_decoder_given_counts(klog: Klog, folder: Path) -> None:
    """As in Kafka's tool, a decoder prints the data, too."""
    done = klog("dump", "--offsets-decoder", folder)
    assert b"keySize" in done.stdout


def test_an_export_without_the_library_says_what_to_install(
    klog: Klog, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    done = klog("export", "--to", tmp_path / "out", folder)
    assert done.exit_code == 8
    assert done.stderr == b"klog: Parquet needs pyarrow: pip install 'klog[parquet]'\n"


def test_parquet_without_its_library_says_what_to_install(
    klog: Klog, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    done = klog("dump", "--output", "parquet", "--to", tmp_path / "out", folder)
    assert done.exit_code == 8
    assert done.stderr == b"klog: Parquet needs pyarrow: pip install 'klog[parquet]'\n"
    assert not (tmp_path / "out").exists()


def test_a_topic_may_be_on_any_of_several_disks(klog: Klog, tmp_path: Path) -> None:
    """A node has log dirs in which not every topic is."""
    for number, name in enumerate(("orders-0", "payments-0")):
        shutil.copytree(FIXTURES / "modern" / "plain-1", tmp_path / str(number) / name)
    disks = (tmp_path / "0", tmp_path / "1")
    for paths in (disks, disks[::-1]):
        for topic in ("orders", "payments"):
            done = klog("dump", *paths, "-t", topic, "-o", "jsonl", "--values", "none")
            assert done.exit_code == 0, done.stderr
            assert {row["topic"] for row in objects(done)} == {topic}
        done = klog("dump", *paths, "-t", "order", "-o", "jsonl")
        assert (done.exit_code, done.stdout, done.stderr) == (16, b"", b"klog: no topic order; did you mean orders?\n")
