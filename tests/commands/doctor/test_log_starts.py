"""`klog doctor` if the log start of the checkpoint lies above the leader epochs: records would not be served."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Ran
from tests.oracles.plain.encode import empty_batch, marker
from tests.support.rolled_back import NOW_MS, data, metadata, partition

Klog = Callable[..., Ran]
TEN = [data(offset, offset // 4) for offset in range(0, 10, 2)]
"""Five batches of two records each, in the leader epochs 0 (from 0 on), 1 (4) and 2 (8)."""


def disk(
    folder: Path,
    log_start: int,
    epochs: Iterable[tuple[int, int]],
    batches: Iterable[bytes] = TEN,
    *,
    clean: bool = True,
) -> Path:
    """Write a log dir with one partition, whose checkpoint has *log_start*."""
    metadata(folder, leader_epoch=2, next_producer_id=1000)
    if not clean:
        (folder / ".kafka_cleanshutdown").unlink()
    (folder / "log-start-offset-checkpoint").write_text(f"0\n1\norders 0 {log_start}\n")
    return partition(folder, batches, epochs)


def ask(klog: Klog, log_dir: Path) -> tuple[dict[str, Any], dict[str, Any], int]:
    """Return the row of the partition, the complete answer, and the exit code."""
    done = klog("doctor", "--output", "json", str(log_dir))
    found = json.loads(done.stdout)
    (row,) = found["partitions"]
    return row, found, done.exit_code


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    ("log_start", "epochs", "lost"),
    [
        (6, [(0, 2), (1, 4), (2, 8)], 4),  # records up to 2 were deleted, and a bit of the number has flipped
        (7, [(0, 1), (1, 4), (2, 8)], 6),  # within a batch
        (9, [(1, 5), (2, 8)], 4),
        (10, [(0, 3), (1, 4), (2, 8)], 7),
    ],
)
def test_a_log_start_above_the_leader_epochs(
    log_start: int, epochs: list[tuple[int, int]], lost: int, clean: bool, klog: Klog, tmp_path: Path
) -> None:
    disk(tmp_path / "data", log_start, epochs, clean=clean)
    row, found, code = ask(klog, tmp_path / "data")
    assert (row["reason"], row["lost_records"], row["log_start"], code) == ("log-start-raised", lost, log_start, 4)
    assert f"begin at {epochs[0][1]}" in row["message"]
    (step,) = found["next"]
    assert f"`orders 0 {log_start}` of {tmp_path / 'data' / 'log-start-offset-checkpoint'}" in step["manual"]


def test_the_step_restores_the_records(klog: Klog, tmp_path: Path) -> None:
    disk(tmp_path / "data", 6, [(0, 2), (1, 4), (2, 8)])
    (tmp_path / "data" / "log-start-offset-checkpoint").write_text("0\n1\norders 0 2\n")
    row, _, code = ask(klog, tmp_path / "data")
    assert (row["reason"], row["lost_records"], row["log_start"], code) == (None, 0, 2, 0)


@pytest.mark.parametrize(
    ("log_start", "epochs"),
    [
        (6, [(1, 6), (2, 8)]),  # DeleteRecords up to 6
        (7, [(1, 7), (2, 8)]),
        (10, [(2, 10)]),  # all records were deleted
        (0, [(0, 0), (1, 4), (2, 8)]),
        (6, [(0, 0), (1, 4), (2, 8)]),  # epochs that were rebuilt from the log
        (6, [(2, 8)]),  # epochs were not known before: the log is older than they are
        (6, []),
    ],
)
def test_records_that_were_deleted_are_no_loss(
    log_start: int, epochs: list[tuple[int, int]], klog: Klog, tmp_path: Path
) -> None:
    disk(tmp_path / "data", log_start, epochs)
    row, _, code = ask(klog, tmp_path / "data")
    assert (row["reason"], row["lost_records"], code) == (None, 0, 0)


def test_markers_and_empty_batches_are_no_records(klog: Klog, tmp_path: Path) -> None:
    """Nothing that a consumer received lies below the log start."""
    end = marker(0, commit=True, timestamp=NOW_MS, producer_id=5, producer_epoch=0, coordinator_epoch=0)
    disk(tmp_path / "data", 4, [(0, 1)], [end, empty_batch(1, 3), data(4)])
    row, _, code = ask(klog, tmp_path / "data")
    assert (row["lost_records"], code) == (0, 0)


def test_the_loss_by_recovery_is_added(klog: Klog, tmp_path: Path) -> None:
    """Recovery cuts two batches behind a damaged one, and the log start hides two records."""
    damaged = bytearray(TEN[2])
    damaged[-1] ^= 1
    disk(tmp_path / "data", 4, [(0, 2), (1, 4), (2, 8)], [*TEN[:2], bytes(damaged), *TEN[3:]], clean=False)
    row, _, code = ask(klog, tmp_path / "data")
    assert (row["reason"], row["lost_records"], code) == ("recovery-cuts", 6, 4)


def test_its_step_comes_before_those_that_destroy_nothing(klog: Klog, tmp_path: Path) -> None:
    disk(tmp_path / "data", 6, [(0, 2), (1, 4), (2, 8)])
    (tmp_path / "data" / "aside-0").mkdir()
    (tmp_path / "data" / "aside-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAQACAAAAAAAAAAA")
    found = json.loads(klog("doctor", "--output", "json", str(tmp_path / "data")).stdout)
    assert ["log-start-offset-checkpoint" in step["manual"] for step in found["next"]] == [True, False]
