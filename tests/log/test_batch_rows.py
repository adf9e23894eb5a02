"""The batches of a log as numbered rows: every row is found again, and few are kept."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest
from klog.formats.batch import BatchFacts
from klog.formats.damage import Damage
from klog.log.batch_rows import BatchRows

from tests.conftest import FIXTURES, run_klog

LOGS = sorted({*FIXTURES.glob("modern/*/*.log"), *FIXTURES.glob("crash/*/*/*.log"), *FIXTURES.glob("legacy/*/*/*.log")})
NAME = "00000000000000000000.log"


def surveyed(path: Path) -> BatchRows:
    rows = BatchRows(str(path))
    rows.survey(lambda: False)
    assert rows.is_complete
    return rows


def same_as_dump(path: Path) -> int:
    """Compare the rows with those of `klog dump --batches`; return how many there are."""
    rows = surveyed(path)
    dumped = [json.loads(line) for line in run_klog("dump", "--batches", "-o", "jsonl", path).stdout.splitlines()]
    assert len(rows) == len(dumped)
    for number, one in enumerate(dumped):
        row = rows[number]
        if isinstance(row, Damage):
            assert (row.place.position, row.kind.value.lower()) == (one["position"], one["damage"].lower())
        else:
            assert (row.position, row.size, row.crc_holds) == (one["position"], one["size"], one["crc_holds"])
    return len(rows)


def test_rows_are_those_of_dump() -> None:
    assert sum(map(same_as_dump, LOGS)) > 1000


@pytest.mark.parametrize("at", [8, 11, 16, 40, 200])
def test_rows_behind_damage_are_those_of_dump(tmp_path: Path, at: int) -> None:
    data = bytearray((FIXTURES / "modern/idempotent-0" / NAME).read_bytes())
    rows = surveyed(FIXTURES / "modern/idempotent-0" / NAME)
    third = rows[2]
    assert isinstance(third, BatchFacts)
    data[third.position + at] ^= 0xFF
    (tmp_path / NAME).write_bytes(bytes(data[:-5]))
    same_as_dump(tmp_path / NAME)


def small_batches(folder: Path, count: int) -> Path:
    """Make a log of one record a batch."""
    lines = folder / "rows.jsonl"
    lines.write_text("".join(f'{{"topic":"t","partition":0,"key":"{n}","value":null}}\n' for n in range(count)))
    done = run_klog("write", lines, "--to", folder / "data", "--batch-size", "1")
    assert done.exit_code == 0, done.stderr
    return folder / "data/t-0" / NAME


def test_many_batches_take_little_memory_and_any_order(tmp_path: Path) -> None:
    path = small_batches(tmp_path, 20_000)
    tracemalloc.start()
    try:
        rows = surveyed(path)
        assert tracemalloc.get_traced_memory()[0] < 1 << 20
    finally:
        tracemalloc.stop()
    assert len(rows) == 20_000
    for number in (19_999, 0, 255, 256, 257, 10_000, 511, 512, 19_999):
        row = rows[number]
        assert isinstance(row, BatchFacts)
        assert row.base_offset == number
        assert rows.row_of_offset(number) == number
    assert rows.row_of_offset(20_000) is None
    with pytest.raises(IndexError):
        rows[20_000]


def test_a_log_that_became_shorter_has_no_such_row(tmp_path: Path) -> None:
    path = small_batches(tmp_path, 1000)
    rows = surveyed(path)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(IndexError):
        rows[999]


def test_a_survey_ends_when_it_is_cancelled(tmp_path: Path) -> None:
    rows = BatchRows(str(FIXTURES / "modern/idempotent-0" / NAME))
    rows.survey(lambda: True)
    assert not rows.is_complete
    assert len(rows) == 0
