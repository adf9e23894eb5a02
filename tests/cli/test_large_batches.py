"""A batch with very many records: text shows so many of them and names the rest, JSON lines have all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from klog.base.errors import ExitCode
from klog.log import records

from tests.conftest import Ran
from tests.oracles.plain.encode import Record, batch

Klog = Callable[..., Ran]
MOST = 20_000
COMMANDS = ["search", "records --head -n 99999"]


@pytest.fixture(autouse=True)
def _low_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MOST_ROWS", MOST)


def log(folder: Path, counts: Sequence[int]) -> Path:
    """Write a partition with batches of so many records."""
    path = folder / "orders-0"
    path.mkdir()
    content, offset = b"", 0
    for count in counts:
        content += batch([Record(offset + i, 1_750_000_000_000, b"k", b"word") for i in range(count)])
        offset += count
    (path / f"{0:020}.log").write_bytes(content)
    return path


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("before", "behind"), [(0, 0), (3_000, 0), (3_000, 5_000)])
def test_text_has_the_first_ones_and_names_the_rest(
    before: int, behind: int, command: str, klog: Klog, tmp_path: Path
) -> None:
    name, *options = command.split()
    path = log(tmp_path, [count for count in (before, 50_000, behind) if count])
    ran = klog(name, path, *options)
    assert ran.exit_code == ExitCode.PROBLEMS_LEFT
    assert (ran.stdout + ran.stderr).count(b"more than 20,000 records in one batch") == 1
    assert 0.7 * MOST <= ran.stdout.count(b"word") - before - behind <= MOST
    everything = klog(name, path, *options, "--output", "jsonl")
    assert (everything.exit_code, everything.stdout.count(b"\n")) == (ExitCode.CLEAN, before + 50_000 + behind)


@pytest.mark.parametrize("command", COMMANDS)
def test_batches_of_the_usual_size_are_shown_whole(command: str, klog: Klog, tmp_path: Path) -> None:
    """The bound is that of a batch: any number of smaller ones may follow each other."""
    name, *options = command.split()
    ran = klog(name, log(tmp_path, [6_000] * 8), *options)
    assert (ran.exit_code, ran.stdout.count(b"word")) == (ExitCode.CLEAN, 48_000)
