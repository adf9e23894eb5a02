"""The progress bar: on a terminal, with the total of all files, and out of the way of what is printed."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import FIXTURES

EAGER = """
import sys
from klog_cli import progress
progress._PATIENCE_SECONDS = progress._PAUSE_SECONDS = 0.0
from klog_cli.app import main
main()
"""
"""klog with a bar that does not wait for a second to pass."""
NAMES = ("plain-1", "zstd-0", "tx-0", "dense-0")
ESCAPE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


def run(*words: str | Path, stdout_is_terminal: bool = True) -> tuple[bytes, bytes]:
    """Return what a terminal was sent, and stdout if it is a pipe."""
    mine, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", EAGER, *map(str, words)],
        stdout=theirs if stdout_is_terminal else subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"},
    )
    os.close(theirs)
    piped = b""
    if process.stdout is not None:
        with process.stdout as pipe:
            piped = pipe.read()
    seen = b""
    while select.select([mine], [], [], 60)[0]:
        try:
            piece = os.read(mine, 65536)
        except OSError:  # the other side has closed it
            break
        seen += piece
    process.wait()
    os.close(mine)
    return seen, piped


def text_of(seen: bytes) -> str:
    return ESCAPE.sub(b"", seen).decode()


def total() -> int:
    return sum(log.stat().st_size for name in NAMES for log in (FIXTURES / "modern" / name).glob("*.log"))


def paths() -> list[Path]:
    return [FIXTURES / "modern" / name for name in NAMES]


def human(size: int) -> str:
    return f"{size / 1024:.1f} KiB"


def test_a_bar_is_drawn_where_stdout_is_a_terminal_too() -> None:
    """A person who waits sees how far it is, where the work is, and how much there is in all."""
    seen, _ = run("verify", *paths())
    assert f" of {human(total())}" in text_of(seen)
    assert any(f"· {name}" in text_of(seen) for name in NAMES)


def test_the_total_is_that_of_all_files_from_the_beginning() -> None:
    seen, piped = run("dump", *paths(), "--output", "jsonl", stdout_is_terminal=False)
    assert piped.count(b"\n") > 100
    assert set(re.findall(r" of ([0-9.]+ [KM]iB)", text_of(seen))) == {human(total())}


def test_records_on_the_same_terminal_end_the_bar() -> None:
    """The lines of a dump are all that is there from the first on."""
    seen, _ = run("dump", *paths(), "--output", "jsonl")
    assert b'"offset":' in seen
    assert " of " not in text_of(seen[seen.index(b'"offset":') :])


def test_findings_are_counted_and_printed_whole(tmp_path: Path) -> None:
    """A line of text clears the bar first, so that both can be read."""
    for name in NAMES[:2]:
        folder = tmp_path / name
        folder.mkdir()
        for file in (FIXTURES / "modern" / name).iterdir():
            content = bytearray(file.read_bytes())
            if file.suffix == ".log" and len(content) > 100:
                content[90] ^= 1
            (folder / file.name).write_bytes(content)
    seen, _ = run("verify", tmp_path / NAMES[0], tmp_path / NAMES[1])
    assert re.search(r"· [1-9][0-9]* findings?", text_of(seen))
    assert len(re.findall(r"^ *damage +bad-crc ", text_of(seen).replace("\r", "\n"), re.MULTILINE)) >= 2


@pytest.mark.parametrize("words", [("--quiet",), ("--output", "json", "--quiet")], ids=" ".join)
def test_quiet_draws_nothing(words: tuple[str, ...]) -> None:
    assert " of " not in text_of(run("verify", *words, *paths())[0])
