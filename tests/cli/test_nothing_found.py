"""Commands that look for something: an empty result is one line on stderr and exit code 4, whatever the form is."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import FIXTURES, Ran

Klog = Callable[..., Ran]
MODERN = FIXTURES / "modern"
LOG = MODERN / "__cluster_metadata-0"
SEARCHES = [
    (("transactions", MODERN, "--transactional-id", "zz"), "no transactions of zz in 23 partitions"),
    (("transactions", MODERN, "--producer-id", "7"), "no transactions of producer 7 in 23 partitions"),
    (
        ("transactions", MODERN, "--state", "open", "--state", "hanging", "--longer-than", "99999d"),
        "no open or hanging transactions of at least 99999.0 d in 23 partitions",
    ),
    (("groups", MODERN, "--group", "sharin"), "no group sharin; did you mean sharing?"),
    (("groups", MODERN, "--type", "streams"), "no streams group in 23 partitions"),
    (("groups", MODERN, "-t", "dense"), "no group with offsets of these partitions in 23 partitions"),
    (
        ("groups", MODERN / "plain-1"),
        f"{MODERN}/plain-1: no __consumer_offsets; groups are on the disks of their coordinators",
    ),
    (
        ("timeline", MODERN, "--from-time", "2090-01-01T00:00:00Z"),
        "no event since 2090-01-01 00:00:00.000Z in 23 partitions",
    ),
    (("metadata", "history", MODERN, "-p", "plain-9"), f"{LOG}: no partition plain-9; known are 0–2"),
    (
        ("metadata", "history", MODERN, "-p", "plain-1", "--from-offset", "99999"),
        f"{LOG}: no change from offset 99999; the last is 682",
    ),
]


@pytest.mark.parametrize("form", ["text", "json", "jsonl", "csv"])
@pytest.mark.parametrize(("words", "sentence"), SEARCHES, ids=[sentence for _, sentence in SEARCHES])
def test_nothing_found_is_one_line_and_4(klog: Klog, words: tuple[str | Path, ...], sentence: str, form: str) -> None:
    done = klog(*words, "--output", form)
    assert (done.exit_code, done.stderr.decode()) == (4, f"klog: {sentence}\n")
    if form == "json":
        assert list(json.loads(done.stdout).values()) == [[]]
    elif form == "csv":
        assert len(list(csv.reader(io.StringIO(done.stdout.decode())))) == 1
    else:
        assert done.stdout == b""
    quiet = klog(*words, "--output", form, "--quiet")
    assert (quiet.exit_code, quiet.stdout, quiet.stderr) == (4, done.stdout, b"")


def test_a_log_dir_without_transactions_has_none(klog: Klog, tmp_path: Path) -> None:
    """No state and no id is given, and still somebody looked for transactions."""
    done = klog("transactions", MODERN / "plain-1", MODERN / "plain-2")
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (4, b"klog: no transactions in 2 partitions")


def test_a_check_that_finds_no_problem_is_0(klog: Klog) -> None:
    """A monitor asks for hanging transactions: 4 says that there is one."""
    done = klog("transactions", MODERN, "--state", "hanging")
    assert (done.exit_code, done.stdout, done.stderr) == (0, b"", b"klog: no hanging transactions in 23 partitions\n")


def test_no_offsets_are_written_for_no_group(klog: Klog, tmp_path: Path) -> None:
    done = klog("groups", MODERN, "--group", "zz", "--output", "reset-offsets", "--to", tmp_path / "offsets")
    assert (done.exit_code, done.stderr) == (4, b"klog: no group zz\n")
    assert not (tmp_path / "offsets").exists()


def test_an_export_of_no_record_is_4(klog: Klog, tmp_path: Path) -> None:
    """A range that selects nothing is a mistake; an empty topic without a range is none."""
    done = klog("export", MODERN / "plain-1", "--from-offset", "5000", "--to", tmp_path / "a")
    assert (done.exit_code, done.stderr) == (4, b"klog: plain-1 ends at 113\n")
    assert done.stdout.startswith(b"0 records in 0 files")
    done = klog("export", MODERN, "-t", "plain", "--to-time", "1000", "--to", tmp_path / "b")
    sentence = "no record before 1970-01-01 00:00:01.000Z in 2 partitions"
    assert (done.exit_code, done.stderr.decode()) == (4, f"klog: {sentence}\n")
    assert klog("export", MODERN / "empty-0", "--to", tmp_path / "c").exit_code == 0


@pytest.mark.parametrize("form", ["text", "json", "jsonl", "csv"])
def test_a_log_dir_without_partitions_has_no_statistics(klog: Klog, tmp_path: Path, form: str) -> None:
    (tmp_path / "meta.properties").write_bytes((MODERN / "meta.properties").read_bytes())
    done = klog("stats", tmp_path, "--output", form)
    assert (done.exit_code, done.stderr.decode()) == (4, f"klog: no partition in {tmp_path}\n")
    assert len(done.stdout.splitlines()) == {"text": 0, "json": 1, "jsonl": 0, "csv": 1}[form]


def test_the_header_of_csv_is_that_of_rows(klog: Klog, tmp_path: Path) -> None:
    """Also where the header is not taken from a first row."""
    for words in (("stats", MODERN), ("metadata", "history", MODERN, "-p", "plain-1")):
        lines = klog(*words, "-o", "jsonl").stdout.splitlines()
        assert klog(*words, "-o", "csv").stdout.split(b"\n")[0].decode() == ",".join(json.loads(lines[0]))
