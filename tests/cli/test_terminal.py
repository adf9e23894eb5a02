"""Text from a disk never acts on a terminal: control characters of records, names and groups are shown as escapes."""

from __future__ import annotations

import json
import re
import unicodedata
from pathlib import Path

import pytest

from tests.cli.test_app import on_a_terminal
from tests.commands.serve.coordinator_logs import T, commit_of, write_batches
from tests.conftest import run_klog
from tests.oracles.plain.encode import Record, batch

HOSTILE = "\x00\x07\x08\x0b\x1b[2J\x1b[31mred\x1b[0m\x7f\x80\x85\x9b2J\u061c\u200e\u2028\u202eevil\u2066\r\t"
"""Clears the screen, sets a colour, rings, deletes, reverses: in ASCII, in Latin-1 and in Unicode."""
KLOGS_OWN = re.compile(r"\r\n|\x1b\[[013]?m")
"""Ends of lines, as a pseudo-terminal makes them, and the bold and italic print of tables; no colour is among them."""


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Make a log dir whose keys, values, headers, group and committed metadata are hostile."""
    log_dir = tmp_path / "data"
    text = HOSTILE.encode()
    logs = {
        "t-0": Record(0, T, text, text, ((text, text),)),
        "raw-0": Record(0, T, b"\x9b31m\x1b[2J", b"\x9b31m"),
        "__consumer_offsets-0": Record(0, T, *commit_of(1, 0, group=f"g{HOSTILE}", topic=f"t{HOSTILE}")[:2]),
    }
    for name, record in logs.items():
        write_batches(log_dir / name, batch([record]))
    (log_dir / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=abcdefghijklmnopqrstuv\n")
    return log_dir


COMMANDS = [
    ("search", "DIR"),
    ("search", "DIR/raw-0"),
    ("dump", "DIR/t-0", "--print-data-log"),
    ("dump", "DIR/raw-0", "--print-data-log"),
    ("dump", "DIR/t-0", "--output", "jsonl"),
    ("dump", "DIR/t-0", "--output", "csv"),
    ("dump", "DIR/__consumer_offsets-0", "--print-data-log", "--offsets-decoder"),
    ("groups", "DIR"),
    ("groups", "DIR", "--output", "csv"),
    ("groups", "DIR", "--output", "json"),
    ("timeline", "DIR"),
    ("lookup", "DIR/t-0", "--offset", "0"),
    ("stats", "DIR"),
    ("fetch", "DIR/t-0", "--offset", "0"),
    ("describe", "DIR"),
    ("verify", "DIR"),
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_control_character_of_a_disk_reaches_a_terminal(hostile: Path, words: tuple[str, ...]) -> None:
    """A key that clears the screen, or turns a line around, would hide klog's output."""
    arguments = [word.replace("DIR", str(hostile)) for word in words]
    shown = on_a_terminal(*arguments, NO_COLOR="1").decode("utf-8")
    assert "Traceback" not in shown
    assert not {char for char in KLOGS_OWN.sub("", shown) if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp")}


def test_metrics_have_no_colour_of_a_directorys_name(hostile: Path) -> None:
    """Each label is the name of a topic, which is that of a directory."""
    write_batches(hostile / "a\x1b[31mred-0", batch([Record(0, T, b"k", b"v")]))
    shown = on_a_terminal("space", hostile, "--output", "prometheus")
    assert b"red" in shown
    assert b"\x1b" not in shown


def test_colours_stay_klogs_own(hostile: Path) -> None:
    """Records are shown without the colours that their bytes ask for, and findings with those that klog gives them."""
    (hostile / "t-0" / f"{0:020}.log").write_bytes(b"\0" * 100)
    assert b"\x1b[" in on_a_terminal("verify", hostile)
    assert b"\x1b[" not in on_a_terminal("dump", hostile / "raw-0", "--print-data-log")


def test_json_lines_on_a_terminal_keep_their_meaning(hostile: Path) -> None:
    """A copy from the screen is the record: the escapes are JSON's."""
    shown = on_a_terminal("dump", hostile / "t-0", "--output", "jsonl", NO_COLOR="1").decode()
    assert json.loads(shown)["key"] == HOSTILE


def test_a_pipe_gets_the_bytes_as_they_are(hostile: Path) -> None:
    """`klog dump` into a file is the text of Kafka's own tool, byte for byte."""
    piped = run_klog("dump", hostile / "raw-0", "--print-data-log").stdout
    assert b"\x1b[2J" in piped
    assert HOSTILE[-2:].encode() in run_klog("dump", hostile / "t-0", "--print-data-log").stdout
