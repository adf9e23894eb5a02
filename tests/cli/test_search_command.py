"""`klog search`: a line a record for people, the same records as data, and one line if there is none."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from klog.jobs.runner import TaskResult
from klog.jobs.search import LineLimit

from tests.conftest import FIXTURES, Ran
from tests.oracles.plain.encode import Record, batch
from tests.oracles.plain.shapes import MS
from tests.support.rolled_back import data, metadata, partition

Klog = Callable[..., Ran]
MODERN = FIXTURES / "modern"
FILE = "00000000000000000000.log"


def rows(done: Ran) -> list[list[str]]:
    """Return the fields of each line."""
    assert (done.exit_code, done.stderr) == (0, b"")
    return [[field.strip() for field in line.split("  ") if field] for line in done.stdout.decode().splitlines()]


def log(tmp_path: Path, *records: Record) -> Path:
    folder = tmp_path / "orders-3"
    folder.mkdir()
    (folder / FILE).write_bytes(batch(list(records)))
    return folder


def test_a_line_has_place_time_key_and_value(klog: Klog) -> None:
    """An operator sees which segment the position is in."""
    found = rows(klog("search", MODERN, "-t", "idempotent", "--key", "key-2", "-n", "2"))
    assert found[0] == [
        "idempotent-0", "2", "2025-06-15 15:06:40.020Z", "key-2", '{"number":2,"text":"abcdefghijabcdefghij"}',
        f"{FILE}:0",
    ]  # fmt: skip
    assert found[1][4].startswith('{"number":52,"text":"abcdefghij')
    assert found[1][4].endswith("…")
    assert len(found[1][4]) == 80


def test_what_is_no_text_is_hex_and_nothing_is_null(klog: Klog, tmp_path: Path) -> None:
    folder = log(
        tmp_path, Record(0, MS, None, b"\xff\x00"), Record(1, MS, b"a\x1b[2J\nb", None), Record(2, MS, b"", b"")
    )
    found = [line.split("Z  ")[1] for line in klog("search", folder).stdout.decode().splitlines()]
    assert found == [f"null  0xff00  {FILE}:0", f"a\\x1b[2J\\nb  null  {FILE}:0", f"    {FILE}:0"]


@pytest.mark.parametrize(
    ("values", "shown"), [("hex", "0x76"), ("base64", "dg=="), ("redacted", "(1 bytes)"), ("none", "")]
)
def test_values_have_the_chosen_form(klog: Klog, tmp_path: Path, values: str, shown: str) -> None:
    done = klog("search", log(tmp_path, Record(0, MS, b"k", b"v")), "--values", values)
    assert done.stdout.decode().split("k  ")[1] == f"{shown}  {FILE}:0\n"


def test_a_long_value_is_shown_around_its_hit(klog: Klog, tmp_path: Path) -> None:
    value = "é" * 5000 + "needle" + "ß" * 5000
    folder = log(tmp_path, Record(0, MS, b"k", value.encode()))
    shown = rows(klog("search", folder, "--regex", "needle"))[0][4]
    assert len(shown) == 80
    assert shown.strip("…éß") == "needle"
    assert (shown[0], shown[-1]) == ("…", "…")


def test_the_header_that_was_found_is_shown(klog: Klog) -> None:
    found = rows(klog("search", MODERN, "-t", "gzip", "--header", "trace", "-n", "1"))
    assert found[0][4] == "trace=t-0"


def on_terminal(columns: int, *words: str | Path) -> str:
    """Return the output of klog in a terminal of so many columns, which shows colours."""
    import fcntl
    import struct
    import subprocess
    import sys
    import termios

    here, there = pty.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    code = "import sys; from klog_cli.app import main; sys.exit(main())"
    environment = {name: text for name, text in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm"}
    done = subprocess.run([sys.executable, "-c", code, *words], stdout=there, env=environment, timeout=60, check=False)
    os.close(there)
    assert done.returncode == 0
    shown = os.read(here, 1 << 16).decode()
    os.close(here)
    return shown.replace("\r\n", "\n")


@pytest.mark.parametrize("columns", [60, 80, 100, 130, 200])
def test_in_a_terminal_a_record_takes_one_line(columns: int) -> None:
    """The value gets what is left of the width, and the file is there if there is room for it."""
    shown = on_terminal(columns, "search", MODERN, "-t", "plain", "--regex", "amount", "-n", "5")
    lines = shown.replace("\x1b[1m", "").replace("\x1b[2m", "").replace("\x1b[0m", "").splitlines()
    assert len(lines) == 5
    assert max(map(len, lines)) <= columns
    assert all((f"{FILE}:0" in line) == (columns > 100) for line in lines)
    assert shown.count("\x1b[1mamount\x1b[0m") == 5


def test_keys_that_were_looked_for_are_marked() -> None:
    shown = on_terminal(150, "search", MODERN, "-t", "idempotent", "--key", "key-2", "-n", "1")
    assert "\x1b[1mkey-2\x1b[0m" in shown
    assert "\x1b[1m" not in on_terminal(150, "search", MODERN, "-t", "idempotent", "-n", "1")


def test_json_is_one_document_and_csv_has_a_header(klog: Klog) -> None:
    words = ("search", MODERN, "-t", "plain", "--regex", "amount", "-n", "7", "-o")
    lines = [json.loads(line) for line in klog(*words, "jsonl").stdout.splitlines()]
    assert json.loads(klog(*words, "json").stdout) == {"records": lines}
    table = list(csv.DictReader(io.StringIO(klog(*words, "csv").stdout.decode(), newline="")))
    assert [row["offset"] for row in table] == [str(line["offset"]) for line in lines]
    assert list(map(json.loads, (row["value"] for row in table)))
    assert klog(*words, "table").exit_code == 16


def test_a_value_with_line_ends_is_one_row_of_csv(klog: Klog, tmp_path: Path) -> None:
    """A limit counts rows, not their lines."""
    folder = log(tmp_path, *(Record(i, MS, b'a"\nb', b"1\n2\r\n\n3") for i in range(5)))
    done = klog("search", folder, "-o", "csv", "-n", "3")
    assert len(list(csv.reader(io.StringIO(done.stdout.decode(), newline="")))) == 1 + 3


def test_a_limit_that_is_reached_between_results_leaves_no_part_of_a_line() -> None:
    limit = LineLimit(2)
    parts = [
        limit.cut(TaskResult("lines", content)).content for content in (b'{"a":', b"1}\n", b'{"a":2}\n{"a"', b":3}\n")
    ]
    assert b"".join(parts) == b'{"a":1}\n{"a":2}\n'
    limit = LineLimit(2, csv=True)
    parts = [limit.cut(TaskResult("lines", content)).content for content in (b'1,"a\n', b'b"\n2,"', b'"\n3,x\n')]
    assert b"".join(parts) == b'1,"a\nb"\n2,""\n'


EMPTY: dict[str, Any] = {"text": b"", "json": {"records": []}, "jsonl": b""}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--key", "zz"), 'no record with key "zz" in 2 partitions (200 records read)'),
        (("--regex", "z.z"), 'no record whose value matches "z.z" in 2 partitions (200 records read)'),
        (("--header", "zz=1"), 'no record with header "zz=1" in 2 partitions (200 records read)'),
        (("-p", "1", "--from-offset", "5000"), "plain-1 ends at 113"),
        (("-p", "1", "--to-offset", "0"), "plain-1 begins at 0"),
    ],
)
def test_nothing_found_is_4_and_says_where_it_looked(klog: Klog, words: tuple[str, ...], sentence: str) -> None:
    for form, expected in EMPTY.items():
        done = klog("search", MODERN, "-t", "plain", *words, "-o", form)
        assert (done.exit_code, done.stderr.decode()) == (4, f"klog: {sentence}\n")
        assert (json.loads(done.stdout) if form == "json" else done.stdout) == expected
        quiet = klog("search", MODERN, "-t", "plain", *words, "-o", form, "--quiet")
        assert (quiet.exit_code, quiet.stdout, quiet.stderr) == (4, done.stdout, b"")
    assert klog("search", MODERN, "-t", "plain", *words, "-o", "csv").stdout.count(b"\n") == 1


def test_the_keys_of_a_file_are_named_by_it(klog: Klog, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("a\nb\n")
    done = klog("search", MODERN / "plain-1", "--keys-from", tmp_path / "keys")
    assert done.stderr.decode() == (f"klog: no record with key one of {tmp_path}/keys in plain-1 (113 records read)\n")


def test_one_record_is_one_record(klog: Klog, tmp_path: Path) -> None:
    done = klog("search", log(tmp_path, Record(0, MS, b"k", b"v")), "--key", "z")
    assert done.stderr == b'klog: no record with key "z" in orders-3 (1 record read)\n'


def test_a_record_of_a_bare_segment_is_named_by_its_directory(klog: Klog, tmp_path: Path) -> None:
    log(tmp_path, Record(0, MS, b"k", b"v")).rename(tmp_path / "copy")
    assert rows(klog("search", tmp_path / "copy"))[0][0] == "copy"


@pytest.mark.parametrize(
    ("epochs", "more", "is_named"),
    [
        ([(0, 2), (1, 4)], (), True),
        ([(0, 2), (1, 4)], ("--from-offset", "6"), False),  # nothing that was asked for is left out
        ([(1, 6)], (), False),  # DeleteRecords
        ([(0, 0), (1, 4)], (), False),  # epochs that were rebuilt from the log
    ],
)
def test_records_below_a_log_start_that_no_broker_has_raised(
    epochs: list[tuple[int, int]], more: tuple[str, ...], is_named: bool, klog: Klog, tmp_path: Path
) -> None:
    """They are left out, and that is named; `stats`, `export` and `audit` share it."""
    metadata(tmp_path / "data", leader_epoch=1, next_producer_id=None)
    path = partition(tmp_path / "data", [data(offset, offset // 4) for offset in range(0, 8, 2)], epochs)
    (tmp_path / "data/log-start-offset-checkpoint").write_text("0\n1\norders 0 6\n")
    done = klog("search", path, *more)
    assert len(done.stdout.splitlines()) == 2
    said = f"klog: {path}: the log start 6 hides records, and the leader epochs begin at 2 (log-start-raised)"
    assert (done.exit_code, done.stderr.decode().splitlines()) == ((4, [said]) if is_named else (0, []))
    if not more:
        assert klog("stats", path).exit_code == done.exit_code
        assert klog("export", path, "--to", tmp_path / "out").exit_code == done.exit_code
        for words in (("audit", "--check", "sequence-gap"), ("audit", "misrouted")):
            audited = klog(*words, path)
            assert (audited.exit_code, audited.stderr) == (done.exit_code, done.stderr)
