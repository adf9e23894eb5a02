"""The output: its content, its destination, and its form."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from klog_cli import output
from klog_cli.output import human_size, printable, time_text
from klog_cli.progress import Bar


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[Path]]:
    """Send stdout and stderr of this module to files."""
    paths = [tmp_path / "stdout", tmp_path / "stderr"]
    descriptors = [os.open(path, os.O_WRONLY | os.O_CREAT) for path in paths]
    monkeypatch.setattr(output, "STDOUT", descriptors[0])
    monkeypatch.setattr(output, "STDERR", descriptors[1])
    write = output.write
    monkeypatch.setattr(
        output, "write", lambda data, descriptor=descriptors[0], **more: write(data, descriptor, **more)
    )
    yield paths
    for descriptor in descriptors:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (734, "734 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1 << 20, "1.0 MiB"),
        (1_288_490_189, "1.2 GiB"),
        (5 << 40, "5.0 TiB"),
        (7 << 50, "7.0 PiB"),
        (9000 << 50, "9000.0 PiB"),
    ],
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert human_size(size) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "1970-01-01 00:00:00.000Z"),
        (1_795_237_819_123, "2026-11-21 05:10:19.123Z"),
        (-1, "1969-12-31 23:59:59.999Z"),
        (253402300799999, "9999-12-31 23:59:59.999Z"),
        (253402300800000, "253402300800000"),
        (2**63 - 1, "9223372036854775807"),
        (-(2**63), "-9223372036854775808"),
    ],
)
def test_times_for_people(ms: int, text: str) -> None:
    """A damaged timestamp is shown as the number it is."""
    assert time_text(ms) == text


def test_a_hostile_name_cannot_move_the_cursor() -> None:
    assert printable("a\x1b[2Jb\nc\r\x07\u202e") == "a\\x1b[2Jb\\nc\\r\\x07\\u202e"
    assert printable("größe 日本\t.") == "größe 日本\\t."
    assert printable("\udcff") == "\\udcff"


def test_errors_are_one_line_on_stderr_and_quiet_does_not_silence_them(
    printed: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output.Quiet, "on", True)
    output.error("two\nlines")
    output.note("good to know")
    assert printed[1].read_bytes() == b"klog: two\\nlines\n"
    monkeypatch.setattr(output.Quiet, "on", False)
    output.note("good to know")
    assert printed[1].read_bytes().endswith(b"klog: good to know\n")
    assert printed[0].read_bytes() == b""


def test_a_line_with_undecodable_bytes_is_printed_with_them(printed: list[Path]) -> None:
    output.plain("/data/\udcff.log")
    output.text("\udcff")
    assert printed[1].read_bytes() == b"/data/\xff.log\n"
    assert printed[0].read_bytes() == b"\xff"


def test_json_csv_and_tables_read_back(printed: list[Path]) -> None:
    rows: list[dict[str, object]] = [
        {"topic": 'a,"b"\nc', "size": 5, "none": None},
        {"topic": "größe", "size": -1, "none": None},
    ]
    output.emit_jsonl(rows)
    assert [json.loads(line) for line in printed[0].read_text().splitlines()] == rows
    os.truncate(printed[0], 0)
    output.emit_json(rows)
    assert json.loads(printed[0].read_text().strip("\0")) == rows
    os.truncate(printed[0], 0)
    output.emit_csv(["topic", "size"], ['a,"b"\nc', None])
    assert list(csv.reader(io.StringIO(printed[0].read_text().strip("\0"), newline=""))) == [
        ["topic", "size"],
        ['a,"b"\nc', ""],
    ]


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n"], ids=ascii)
def test_a_line_end_in_a_cell_makes_no_row(printed: list[Path], end: str) -> None:
    """Many readers take a carriage return alone for the end of a row, and any client may put one into a name."""
    rows = [["group", "metadata"], ["billing", f"checkpoint{end}EVIL-GROUP"], ["plain", "none"]]
    output.emit_csv(rows[0], rows[1])
    output.emit_csv(None, rows[2])
    text = printed[0].read_bytes().decode()
    assert list(csv.reader(io.StringIO(text, newline=""))) == rows
    assert list(csv.reader(io.StringIO(text.replace("\r", "\n"), newline=None))) == [
        ["group", "metadata"],
        ["billing", f"checkpoint{end.replace(chr(13), chr(10))}EVIL-GROUP"],
        ["plain", "none"],
    ]
    assert text.endswith("plain,none\n")


def test_a_table_in_a_pipe_is_plain_columns(printed: list[Path]) -> None:
    """Numbers to the right, text to the left, no line drawn, nothing cut."""
    output.emit_table(["cluster abc"], ["topic", "size"], [["orders", 5], ["p" * 200, 1234], ["x\x1b", None]])
    lines = printed[0].read_text().splitlines()
    assert lines[:2] == ["cluster abc", ""]
    assert lines[2] == "topic".ljust(200) + "  size"
    assert lines[3] == "orders".ljust(200) + "     5"
    assert lines[4] == "p" * 200 + "  1234"
    assert lines[5] == "x\\x1b"


def test_a_table_without_rows_has_its_head(printed: list[Path]) -> None:
    output.emit_table([], ["topic", "size"], [])
    assert printed[0].read_text() == "topic  size\n"


def test_all_is_written_though_the_system_takes_little_at_once(
    printed: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data[:3])))
    output.text("more than three bytes")
    assert printed[0].read_bytes() == b"more than three bytes"


def test_a_pipe_that_nobody_reads_is_told_from_other_failures() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(output.ClosedPipeError):
        output.write(b"x", writing)
    os.close(writing)
    with pytest.raises(OSError, match="Bad file descriptor"):
        output.write(b"x", writing)


def test_a_bar_that_is_not_to_be_seen_draws_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    bar = Bar(shown=False)
    bar.expect(100)
    for _ in range(10):
        bar.advance(10)
    bar.clear()
    bar.close()
    assert capfd.readouterr() == ("", "")


def test_a_bar_is_drawn_only_when_the_work_is_long(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """About a second; and it is taken away again."""
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    bar = Bar(shown=True)
    bar.expect(1000)
    now[0] += 0.5
    bar.advance(400)
    assert bar._progress is None
    now[0] += 1.0
    bar.advance(200)
    assert bar._progress is not None
    bar.close()
    assert bar._progress is None
    assert capfd.readouterr().out == ""


def test_a_pipe_is_widened_and_anything_else_is_left_alone(tmp_path: Path) -> None:
    """Output goes through either way."""
    fcntl = pytest.importorskip("fcntl")
    if not hasattr(fcntl, "F_GETPIPE_SZ"):
        pytest.skip("pipes have one size here")
    reader, writer = os.pipe()
    output._widen_pipe(writer)
    assert fcntl.fcntl(reader, fcntl.F_GETPIPE_SZ) == 1 << 20
    os.close(writer)
    output._widen_pipe(os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT))
    output._widen_pipe(os.open(os.devnull, os.O_WRONLY))
