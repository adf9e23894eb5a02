"""How often each command opens and reads the logs of a partition: a second pass over a TiB is hours."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.conftest import FIXTURES, run_klog
from tests.support.reads import count_reads

PARTITION = "tx-0"
"""Transactions in eleven segments."""
SMALL_READS = 0.03
"""The part of a log that is read again: headers, and batches that did not fit the end of a window."""

# A command; how often it opens a log at most, and for all but the last one; how many times it reads all of them.
COMMANDS = (
    ("describe", 2, 1, 1.1),
    ("dump", 1, 1, 1),
    ("dump --output jsonl", 1, 1, 1),
    ("dump --output csv", 1, 1, 1),
    ("dump --batches --output jsonl", 1, 1, 1),
    # The end of the log is looked for first.
    ("dump --isolation read_committed", 2, 1, 1.1),
    ("dump --isolation read_committed --output jsonl", 2, 1, 1.1),
    ("dump --isolation read_committed --output csv", 2, 1, 1.1),
    ("verify", 1, 1, 1),
    ("verify --deep", 1, 1, 1),
    ("recover", 1, 1, 1),
    ("recover --repair-bits", 1, 1, 1),
    ("recover --salvage", 1, 1, 1),
    # The broker's recovery of the last segment, its look for the log's end, and the producers from the snapshot on.
    ("recover --like-broker", 3, 0, 0.3),
    # The cut, the producers, the digest of what is cut, and what goes; the segment behind it goes.
    ("truncate --to-offset 600", 4, 4, 0.65),
    # Two passes, and the digest of what is replaced.
    ("compact --policy compact --all", 3, 3, 2.8),
    ("lookup --offset 500", 2, 2, 0.2),
    ("lookup --timestamp 1700000000000", 2, 2, 0.2),
    ("fetch --offset 0", 3, 3, 0.4),
    ("fetch --offset 0 --isolation read_committed", 3, 3, 0.4),
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log dir whose broker was killed."""
    folder = tmp_path_factory.mktemp("reads") / "data"
    shutil.copytree(FIXTURES / "modern" / PARTITION, folder / PARTITION)
    for path in (FIXTURES / "modern").iterdir():
        if path.is_file() and path.name != ".kafka_cleanshutdown":
            shutil.copy2(path, folder)
    return folder


@pytest.mark.parametrize(("command", "opens", "opens_before", "times"), COMMANDS, ids=[row[0] for row in COMMANDS])
def test_a_command_reads_no_log_more_often_than_it_has_to(
    data: Path, monkeypatch: pytest.MonkeyPatch, command: str, opens: int, opens_before: int, times: float
) -> None:
    name, *options = command.split()
    logs = sorted((data / PARTITION).glob("*.log"))
    with monkeypatch.context() as patches:
        reads = count_reads(patches)
        ran = run_klog(name, data / PARTITION, *options)
    assert ran.exit_code in (0, 4), ran.stderr
    assert max(reads.of(log)[0] for log in logs) <= opens
    assert max(reads.of(log)[0] for log in logs[:-1]) <= opens_before
    size = sum(os.path.getsize(log) for log in logs)
    assert sum(reads.of(log)[1] for log in logs) <= (times + SMALL_READS) * size
