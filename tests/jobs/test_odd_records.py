"""Batches whose checksum holds and whose numbers no broker writes: all commands that read records have the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import run_klog
from tests.oracles.plain import compress
from tests.oracles.plain.encode import BatchHeader, raw_batch, record
from tests.oracles.plain.shapes import MS

HIGHEST = 2**63 - 1
ONE = BatchHeader(count=1, base_timestamp=MS, max_timestamp=MS)
TWO = replace(ONE, count=2, last_offset_delta=1)
ODD = {
    "last offset below the first": (replace(ONE, last_offset_delta=-1), (0,)),
    "a delta below zero": (TWO, (-1, 0)),
    "an offset below zero": (replace(ONE, base_offset=-5), (0,)),
    "the highest offset": (replace(ONE, base_offset=HIGHEST), (0,)),
    "offsets that wrap": (replace(TWO, base_offset=HIGHEST - 2, last_offset_delta=10), (0, 10)),
    "offsets that descend": (replace(ONE, count=3, last_offset_delta=2), (2, 1, 0)),
    "the highest time": (replace(ONE, base_timestamp=HIGHEST, max_timestamp=HIGHEST), (0,)),
    "the lowest time": (replace(ONE, base_timestamp=-HIGHEST - 1, max_timestamp=-HIGHEST - 1), (0,)),
    "nothing odd": (TWO, (0, 1)),
}
SECOND = raw_batch(replace(ONE, base_offset=100), record(key=b"k", value=b"last"))


def partition(folder: Path, name: str, codec: str) -> tuple[Path, int]:
    header, deltas = ODD[name]
    content = b"".join(record(offset_delta=delta, key=b"k", value=b"v") for delta in deltas)
    odd = raw_batch(replace(header, codec=compress.CODECS.index(codec)), compress.compress(codec, content))
    directory = folder / "data" / "t-0"
    directory.mkdir(parents=True)
    (directory / f"{0:020}.log").write_bytes(odd + SECOND)
    return directory, len(deltas) + 1


def offsets(lines: bytes) -> list[int]:
    return [json.loads(line)["offset"] for line in lines.splitlines()]


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("name", ODD)
def test_all_readers_have_the_same_records(tmp_path: Path, name: str, codec: str) -> None:
    """`search`, `stats` and `export` left out in silence what `dump` showed."""
    directory, count = partition(tmp_path, name, codec)
    dumped = offsets(run_klog("dump", "--output", "jsonl", directory).stdout)
    assert len(dumped) == count
    assert offsets(run_klog("search", "-o", "jsonl", directory).stdout) == dumped
    assert json.loads(run_klog("stats", directory, "--output", "json").stdout)[0]["records"] == count
    run_klog("export", directory, "--output", "jsonl", "--to", tmp_path / "out")
    (file,) = (tmp_path / "out").rglob("*.jsonl")
    assert offsets(file.read_bytes()) == dumped
    committed = run_klog("dump", "--output", "jsonl", "--isolation", "read_committed", directory)
    assert offsets(run_klog("search", "-o", "jsonl", "--isolation", "read_committed", directory).stdout) == offsets(
        committed.stdout
    )


def test_what_lies_below_a_log_start_stays_hidden(tmp_path: Path) -> None:
    """An offset below zero counts as deleted only where records were deleted."""
    directory, _ = partition(tmp_path, "an offset below zero", "none")
    (directory.parent / "log-start-offset-checkpoint").write_text("0\n1\nt 0 7\n")
    assert offsets(run_klog("search", "-o", "jsonl", directory).stdout) == [100]


def test_a_range_that_is_asked_for_has_its_end(tmp_path: Path) -> None:
    directory, _ = partition(tmp_path, "the highest offset", "none")
    assert offsets(run_klog("search", "-o", "jsonl", "--from-offset", "0", directory).stdout) == [HIGHEST, 100]
    assert offsets(run_klog("search", "-o", "jsonl", "--to-offset", str(HIGHEST - 1), directory).stdout) == [100]
    assert offsets(run_klog("search", "-o", "jsonl", "--to-offset", "100", directory).stdout) == []
