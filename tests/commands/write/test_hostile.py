"""Hostile inputs: each ends in one line of error and leaves nothing, and none costs memory or time."""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from klog.base.errors import KlogError
from klog.commands.write.record_inputs import parquet_records

from tests.commands.write.sources import lines
from tests.conftest import Ran

Klog = Callable[..., Ran]
N = 50
TEXTS = [f"v{i}" for i in range(N)]


def refused(klog: Klog, file: Path, why: str, *words: str) -> None:
    """Write *file*, and see that it is refused in one line."""
    done = klog("write", file, "--to", file.parent / "out", "--topic", "t", *words)
    said = done.stderr.decode()
    assert (done.exit_code, said.count("\n"), why in said) == (8, 1, True), said
    assert [path.name for path in file.parent.iterdir()] == [file.name]


# Parquet


def parquet(folder: Path, columns: dict[str, Any], **how: Any) -> Path:
    """Make a file of *columns*; key and value are texts unless declared otherwise."""
    table = pa.table({name: one for name, one in {"key": TEXTS, "value": TEXTS, **columns}.items() if one is not None})
    pq.write_table(table, folder / "in.parquet", **how)
    return folder / "in.parquet"


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no value": ({"value": None}, "no column value"),
    "no key": ({"key": None}, "row 1: no key"),
    "numbers for keys": ({"key": list(range(N))}, "column key is int64"),
    "numbers for values, in a dictionary": (
        {"value": pa.array(list(range(N))).dictionary_encode()},
        "column value is int64",
    ),
    "nested values": ({"value": [{"a": 1}] * N}, "column value is struct"),
    "lists of values": ({"value": [["a"]] * N}, "column value is list"),
    "text for offsets": ({"offset": ["x"] * N}, "column offset is string"),
    "no numbers": ({"offset": [float("nan")] * N}, "column offset is double"),
    "halves": ({"offset": [i + 0.5 for i in range(N)]}, "column offset is double"),
    "too large numbers": ({"offset": pa.array([1 << 63] * N, pa.uint64())}, "column offset is uint64"),
    "partitions beyond int32": ({"partition": [1 << 40] * N}, "row 1: partition: a value of another type"),
    "dates": ({"timestamp": pa.array([1] * N, pa.date32())}, "column timestamp is date32"),
    "times before all time": ({"timestamp": [-5] * N}, "row 1: a timestamp below -1"),
    "words for flags": ({"transactional": ["yes"] * N}, "column transactional is string"),
    "headers as text": ({"headers": ["a"] * N}, "column headers is string"),
    "headers as a map": (
        {"headers": pa.array([[("a", b"b")]] * N, pa.map_(pa.string(), pa.binary()))},
        "headers is map",
    ),
    "headers of other names": ({"headers": [[{"k": "a", "v": "b"}]] * N}, "expected lists of key and value"),
    "headers without keys": (
        {"headers": [[{"key": None, "value": "b"}]] * N},
        "row 1: headers: a value of another type",
    ),
    "headers that are null": (
        {"headers": [[None, {"key": "a", "value": "b"}]] * N},
        "row 1: headers: a value of another type",
    ),
    "other markers": ({"control": ["LEADER_CHANGE"] * N}, "row 1: control: a value of another type"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_parquet_of_other_types_is_refused(name: str, klog: Klog, tmp_path: Path) -> None:
    """The message names the column, and its type."""
    columns, why = WRONG[name]
    refused(klog, parquet(tmp_path, columns), why, *(["--keep-offsets"] if "offset" in columns else []))


def test_two_columns_of_one_name_are_refused(klog: Klog, tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array(TEXTS)] * 3, names=["key", "value", "value"])
    pq.write_table(table, tmp_path / "in.parquet")
    refused(klog, tmp_path / "in.parquet", "there are 2 columns value")


RIGHT: dict[str, dict[str, Any]] = {
    "dictionaries": {name: pa.array(TEXTS).dictionary_encode() for name in ("key", "value")},
    "large": {"key": pa.array(TEXTS, pa.large_string()), "value": pa.array(TEXTS, pa.large_binary())},
    "bytes": {"key": pa.array([text.encode() for text in TEXTS]), "offset": pa.array(range(N), pa.int32())},
    "nested headers": {
        "headers": pa.array(
            [[{"value": b"y", "key": "x"}]] * N,
            pa.large_list(pa.struct([("value", pa.binary()), ("key", pa.large_string())])),
        )
    },
    "seconds": {"timestamp": pa.array([5] * N, pa.timestamp("s", "Europe/Berlin"))},
    "nanoseconds": {"timestamp": pa.array([5_000_000_000] * N, pa.timestamp("ns"))},
    "no times": {"timestamp": pa.nulls(N, pa.timestamp("ms"))},
}


@pytest.mark.parametrize("rows", [1, 7, 1000])
@pytest.mark.parametrize("name", RIGHT)
def test_what_others_write_is_read(name: str, rows: int, klog: Klog, tmp_path: Path) -> None:
    """Any way to write the same in Parquet, in row groups of any size."""
    file = parquet(tmp_path, RIGHT[name], row_group_size=rows)
    done = klog("write", file, "--to", tmp_path / "out", "--topic", "t", "--now", "77")
    assert done.exit_code == 0, done.stderr
    found = lines(klog, [tmp_path / "out/t-0"])
    assert [(one["key"], one["value"]) for one in found] == [(text, text) for text in TEXTS]
    time = {"seconds": 5000, "nanoseconds": 5000, "no times": -1}.get(name, 77)
    assert {one["timestamp"] for one in found} == {time}
    assert {str(one["headers"]) for one in found} == {"[['x', 'y']]" if name == "nested headers" else "[]"}


def test_damaged_parquet_ends_in_one_error(tmp_path: Path) -> None:
    """Any bytes: only our own errors; bytes that no checksum protects may be accepted."""
    columns = {"offset": list(range(N)), "headers": [[{"key": "a", "value": "b"}]] * N}
    content = parquet(tmp_path, columns, compression="zstd", row_group_size=20).read_bytes()
    chance, refusals = random.Random(1), 0
    for _ in range(150):
        damaged = bytearray(content)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(content)) if chance.random() < 0.6 else len(content) - 1 - chance.randrange(900)
            damaged[at] ^= 1 << chance.randrange(8)
        (tmp_path / "damaged.parquet").write_bytes(
            damaged[: chance.choice([len(content), chance.randrange(len(content))])]
        )
        try:
            assert sum(rows.count for rows in parquet_records(str(tmp_path / "damaged.parquet"))) >= 0
        except KlogError:
            refusals += 1
    assert refusals > 50


# lines


def limited(folder: Path, *words: str, megabytes: int) -> subprocess.CompletedProcess[bytes]:
    """Run klog where it gets no more than so much memory."""
    size = megabytes << 20
    command = [sys.executable, "-m", "klog_cli.app", "write", *words, "--to", str(folder / "out"), "--topic", "t"]
    return subprocess.run(
        command,
        env={"PYTHONPATH": ":".join(sys.path), "MALLOC_ARENA_MAX": "2"},
        capture_output=True,
        check=False,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (size, size)),
    )


@pytest.mark.parametrize("name", ["in.jsonl", "in.csv"])
def test_a_line_without_end_takes_no_memory_without_end(name: str, tmp_path: Path) -> None:
    """Two gigabytes of it, most of them a hole: refused once it is longer than any record may be."""
    file = tmp_path / name
    with open(file, "wb") as out:
        out.write(b'key,value\nk,"' if name == "in.csv" else b'{"key":"k","value":"')
        out.truncate(2 << 30)
    done = limited(tmp_path, str(file), megabytes=1500)
    assert (done.returncode, done.stderr.count(b"\n")) == (8, 1), done.stderr[-500:]
    assert b"a line of more than " in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_dictionary_of_one_large_value_takes_no_memory_without_end(tmp_path: Path) -> None:
    """A file of 50 kB whose 1500 records are a gigabyte."""
    file = tmp_path / "in.parquet"
    large = pa.DictionaryArray.from_arrays(pa.array([0] * 1500, pa.int32()), pa.array([b"x" * 900_000]))
    pq.write_table(pa.table({"key": pa.array(["k"] * 1500), "value": large}), file)
    assert file.stat().st_size < 60_000
    done = limited(tmp_path, str(file), "--codec", "zstd", megabytes=1200)
    assert done.returncode == 0, done.stderr[-500:]
    assert b"1500 records" in done.stdout


GOOD = '{"key":"k","value":"v"}'
LINES = {
    "deep": ('{"nobody":' + "[" * 1_000_000 + "]" * 1_000_000 + ',"key":"k","value":"v"}', None),
    "deep and cut": ('{"nobody":' + '{"a":' * 1_000_000, "not in the form of 'klog dump'"),
    "deep in headers": ('{"key":"k","value":"v","headers":' + "[" * 1_000_000, "headers: "),
    "NaN": ('{"key":"k","value":"v","timestamp":NaN}', "timestamp: a value of another type"),
    "a float": ('{"key":"k","value":"v","timestamp":1e3}', "timestamp: a value of another type"),
    "a million digits": ('{"key":"k","value":"v","offset":' + "9" * 1_000_000 + "}", "offset: a value of another type"),
    "a NUL": ('{"key":"k\x00","value":"v"}', "key: not in the form of 'klog dump'"),
    "a NUL between": ('{"key":"k",\x00"value":"v"}', "not in the form of 'klog dump'"),
    "names twice": ('{"key":"a","value":"b","key":"k","value":"v"}', None),
    "a long name": ('{"' + "n" * 1_000_000 + '":1,"key":"k","value":"v"}', None),
    "ten thousand fields": ("{" + "".join(f'"f{i}":{i},' for i in range(10_000)) + '"key":"k","value":"v"}', None),
}


@pytest.mark.parametrize("name", LINES)
def test_strange_json_is_read_or_refused(name: str, klog: Klog, tmp_path: Path) -> None:
    """Nested a million deep, with names twice (the last one counts), with numbers that are none."""
    line, why = LINES[name]
    (tmp_path / "in.jsonl").write_text(f"{GOOD}\n{line}\n")
    if why is not None:
        refused(klog, tmp_path / "in.jsonl", why)
        return
    done = klog("write", tmp_path / "in.jsonl", "--to", tmp_path / "out", "--topic", "t")
    assert done.exit_code == 0, done.stderr
    assert [(one["key"], one["value"]) for one in lines(klog, [tmp_path / "out/t-0"])] == [("k", "v")] * 2


ROWS = {
    "a NUL": (b"key,value\nk\0,v\n", None),
    "no UTF-8": (b"key,value\nk,\xff\n", "line 2, column 1: not UTF-8"),
    "quotes over lines": (b'key,value\nk,"v\n\n""\n"\n', None),
    "a quote without end": (b'key,value\nk,v\nk,"v\nk,v\n', "line 3"),
    "fewer fields": (b"key,value\nk\n", "not as many fields"),
    "more fields": (b"key,value\nk,v,w\n", "not as many fields"),
    "names twice": (b"key,value,value\nk,a,v\n", "there are 2 columns value"),
    "many columns": (b"key,value," + b"x," * 300 + b"\nk,v\n", "columns"),
    "a first line without end": (b"k" * 3_000_000, "line 1: expected the names of columns"),
}


@pytest.mark.parametrize("name", ROWS)
def test_strange_csv_is_read_or_refused(name: str, klog: Klog, tmp_path: Path) -> None:
    content, why = ROWS[name]
    (tmp_path / "in.csv").write_bytes(content)
    if why is not None:
        refused(klog, tmp_path / "in.csv", why)
        return
    done = klog("write", tmp_path / "in.csv", "--to", tmp_path / "out", "--topic", "t")
    assert done.exit_code == 0, done.stderr
    found = [(one["key"], one["value"]) for one in lines(klog, [tmp_path / "out/t-0"])]
    assert found == [("k\0", "v") if name == "a NUL" else ("k", 'v\n\n"\n')]


def test_a_million_bad_lines_are_told_one_by_one_and_left_out(klog: Klog, tmp_path: Path) -> None:
    """Skipped lines take no memory; here ten thousand do."""
    (tmp_path / "in.jsonl").write_text("{\n" * 10_000 + GOOD)
    done = klog(
        "write", tmp_path / "in.jsonl", "--to", tmp_path / "out", "--topic", "t", "--skip-bad", "--output", "json"
    )
    assert (done.exit_code, done.stderr.count(b"\n")) == (4, 10_000)
    assert json.loads(done.stdout)["skipped"] == 10_000


def test_a_name_or_a_digit_too_many_does_not_make_a_billion_directories(klog: Klog, tmp_path: Path) -> None:
    """A new topic gets a directory for each partition, also for all below the one that is named."""
    (tmp_path / "in.jsonl").write_text('{"key":"k","value":"v"}\n')
    refused(klog, tmp_path / "in.jsonl", "at most 100000", "--partitions", "100000000")
    made = klog("write", tmp_path / "in.jsonl", "--to", tmp_path / "made", "--topic", "t")
    assert made.exit_code == 0
    (tmp_path / "logs").mkdir()
    (tmp_path / "made" / "t-0").rename(tmp_path / "logs" / "t-2147483646")
    done = klog("write", tmp_path / "logs", "--to", tmp_path / "out")
    assert (done.exit_code, b"at most 100000" in done.stderr) == (8, True), done.stderr
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]
