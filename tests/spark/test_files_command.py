"""`klog spark search`, `export`, `compact`: the words of a request decide its action, and its end."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.data_dir.disk.disk_changes import Disk
from klog.jobs.output_commit import lock_target
from pyspark.sql import SparkSession

from tests.commands.compact.compacting import NOW_MS, ORIGINAL
from tests.conftest import FIXTURES, Ran, writable_copy
from tests.jobs.pieces import bytes_of, dumped, folder_of, lines, partitions, rows

pytestmark = pytest.mark.spark
Klog = Callable[..., Ran]
MODERN = FIXTURES / "modern"


def test_finds_are_lines_of_a_dump(spark: SparkSession, klog: Klog) -> None:
    how = ("--topic", "[dgpsz]*", "--key", "key-17", "--key", "hex:6b65792d33", "--from-offset", "2")
    done = klog("spark", "search", "-o", "jsonl", MODERN, *how)
    expected = klog("dump", MODERN, "--output", "jsonl", *how)
    assert (done.exit_code, done.stderr) == (0, b"")
    assert re.sub(rb',"file":"[^"]*"', b"", done.stdout) == expected.stdout != b""


def test_headers_and_values_are_searched(spark: SparkSession, klog: Klog) -> None:
    done = klog(
        "spark", "search", "-o", "jsonl", MODERN, "--regex", '^[{]"number":7,', "--values", "none", "--limit", "2"
    )
    assert done.exit_code == 0
    assert [("value" in line, line["offset"] >= 0) for line in map(json.loads, done.stdout.splitlines())] == [
        (False, True)
    ] * 2
    found = klog("spark", "search", "-o", "jsonl", MODERN, "--header", "trace")
    expected = [
        line
        for one in partitions(MODERN)
        for line in dumped(one)
        if any(pair[0] == "trace" for pair in line.get("headers") or [])
    ]
    assert [json.loads(line)["offset"] for line in found.stdout.splitlines()] == [line["offset"] for line in expected]


def test_committed_finds_alone(spark: SparkSession, klog: Klog) -> None:
    every, committed = (
        klog("spark", "search", "-o", "jsonl", MODERN / "tx-0", "--isolation", isolation).stdout.count(b"\n")
        for isolation in ("read_uncommitted", "read_committed")
    )
    assert every > committed > 0


def test_damage_is_told_and_is_4(spark: SparkSession, klog: Klog, tmp_path: Path) -> None:
    data = FIXTURES / "crash/flip-middle"
    found = klog("spark", "search", "-o", "jsonl", data)
    assert (found.exit_code, found.stderr.count(b"\n")) == (4, 1)
    exported = klog("spark", "export", data, "--to", tmp_path / "out")
    assert (exported.exit_code, exported.stderr) == (4, found.stderr)
    assert found.stdout.count(b"\n") == int(exported.stdout.split()[0])


def test_an_export_says_what_it_wrote(spark: SparkSession, klog: Klog, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = klog("spark", "export", MODERN, "--to", out, "--output", "jsonl", "--topic", "plain")
    assert (done.exit_code, done.stderr) == (0, b"")
    expected = [one for one in partitions(MODERN) if one.topic == "plain"]
    assert [lines(folder_of(out, one)) for one in expected] == [dumped(one) for one in expected]
    count = sum(len(dumped(one)) for one in expected)
    assert done.stdout.startswith(f"{count} records in 2 files, ".encode())
    again = klog("spark", "export", MODERN, "--to", out)
    assert (again.exit_code, again.stdout) == (16, b"")
    assert b"exists, and is not an empty directory" in again.stderr


def test_a_table_of_latest_values(spark: SparkSession, klog: Klog, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert klog("spark", "compact", ORIGINAL, "--to", out).exit_code == 0
    for one in partitions(ORIGINAL):
        found = rows(folder_of(out, one))
        last = {bytes_of(line, "key"): line for line in dumped(one, committed=True)}
        assert {row["key"]: row["offset"] for row in found} == {
            key: line["offset"] for key, line in last.items() if key is not None and bytes_of(line, "value") is not None
        }


def test_compacted_partitions(spark: SparkSession, klog: Klog, tmp_path: Path) -> None:
    """The files that `klog compact --to` makes of the same."""
    data = writable_copy(ORIGINAL, tmp_path / "data")
    how = ("--policy", "compact", "--segment-size", "8700", "--now", str(NOW_MS), "--map-memory", "1000")
    done = klog("spark", "compact", data, "--output", "log", "--to", tmp_path / "out", *how)
    expected = klog("compact", data, "--to", tmp_path / "expected", *how)
    assert done.exit_code == expected.exit_code == 0
    assert contents(tmp_path / "out") == contents(tmp_path / "expected")
    assert b"idempotent-0: compacted, " in done.stdout


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_is_not_known_to_be_compacted_is_left_out_and_said(
    spark: SparkSession, klog: Klog, tmp_path: Path
) -> None:
    data = writable_copy(ORIGINAL, tmp_path / "data")
    done = klog("spark", "compact", data / "idempotent-0", "--output", "log", "--to", tmp_path / "out")
    assert done.exit_code == 16
    assert b"the topic's cleanup.policy is unknown here" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("search",), "nothing to search"),
        (("search", MODERN, "--regex", "("), "not a regular expression"),
        (("search", MODERN, "--values", "loud"), "expected one of text, base64"),
        (("search", MODERN, "--isolation", "some"), "expected one of read_uncommitted"),
        (("search", MODERN, "--replicas", "longst"), "did you mean longest"),
        (("search", MODERN, "--key", "hex:zz"), "--key hex:zz"),
        (("search", MODERN, "--topic", "plian"), "did you mean plain"),
        (("search", MODERN, "--spark-conf", "x"), "expected a name and a value"),
        (("export",), "needs --to DIR"),
        (("export", MODERN), "--to"),
        (("export", MODERN, "--to", "/nowhere", "--output", "csv"), "expected one of jsonl, parquet"),
        (("compact", MODERN, "--to", "/nowhere", "--output", "logs"), "expected one of jsonl, parquet"),
        (("compact", MODERN, "--to", "/nowhere", "--all"), "go with --output log"),
    ],
)
def test_what_makes_no_sense_is_said_before_spark_starts(klog: Klog, arguments: tuple[str, ...], said: str) -> None:
    done = klog("spark", *arguments)
    assert (done.exit_code, done.stdout) == (16, b"")
    assert said in done.stderr.decode()
    assert not os.path.exists("/nowhere")


@pytest.mark.parametrize("command", ["export", "compact"])
def test_a_directory_that_another_run_writes_is_left_to_it(
    spark: SparkSession, klog: Klog, tmp_path: Path, command: str
) -> None:
    """Two operators, or a scheduler that starts a job twice: the result is one of theirs."""
    to = tmp_path / "out"
    with lock_target(str(to), Disk()):
        done = klog("spark", command, MODERN / "plain-1", "--to", to)
        assert (done.exit_code, done.stdout) == (8, b"")
        assert f"{to}: another run writes there" in done.stderr.decode()
        assert os.listdir(to) == [".lock"]
    done = klog("spark", command, MODERN / "plain-1", "--to", to)
    assert (done.exit_code, done.stderr) == (0, b"")
    assert ".lock" not in os.listdir(to)


@pytest.mark.parametrize("data", [MODERN, FIXTURES / "crash/flip-middle"], ids=lambda path: path.name)
def test_what_spark_does_this_machine_does_alone(spark: SparkSession, klog: Klog, tmp_path: Path, data: Path) -> None:
    """The same lines, files, reports and exit codes: an operator changes from one to the other by one word."""
    for words in (
        ("search", data),
        ("search", data, "--isolation", "read_committed", "--limit", "50", "--values", "hex"),
        ("search", data, "--regex", "1", "--from-offset", "3"),
        ("stats", data, "--topic", "[a-z]*", "--output", "jsonl"),
    ):
        here, there = klog(*words), klog("spark", *words)
        assert here == there, words
        assert here.stdout or data != MODERN
    for form in ("jsonl", "parquet"):
        done = {
            place: klog(*place.split(), data, "--output", form, "--to", tmp_path / place / form)
            for place in ("export", "spark export")
        }
        here, there = done["export"], done["spark export"]
        assert (here.exit_code, here.stderr) == (there.exit_code, there.stderr)
        assert content(tmp_path / "export" / form) == content(tmp_path / "spark export" / form) != {}


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
