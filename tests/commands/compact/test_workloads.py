"""The random log dirs are reproducible, and rich enough to hold a cleaner against another."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands.compact.oracle import CleanerOracle
from tests.commands.compact.traits import decided, held
from tests.commands.compact.workloads import SAMPLE, make_workload
from tests.oracles.broker_load import differences

WANTED = {
    *(f"v2 {codec}" for codec in ("none", "gzip", "snappy", "lz4", "zstd")),
    *(f"v{magic} {codec}" for magic in (0, 1) for codec in ("none", "gzip", "snappy", "lz4")),
    "v2 LogAppendTime",
    "v1 LogAppendTime",
    "tombstone",
    "tombstone of old",
    "null key",
    "empty key",
    "large key",
    "empty value",
    "headers",
    "holes",
    "far apart",
    "idempotent",
    "transactional",
    "marker",
    "marker with delete horizon",
    "delete horizon",
    "empty batch",
    "empty segment",
    "open transaction",
    "active producers",
    "producer known by its marker alone",
    "log start inside a segment",
    "first dirty inside a segment",
    "high watermarks behind the log end",
    "cleaner's checkpoint missing",
    "cleaner's checkpoint inside",
    "cleaner's checkpoint beyond",
    "cleaner's checkpoint below",
    "cleaned before",
    "settings changed",
    "cleanup.policy=compact,delete",
    "delete.retention.ms=0",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.buffer.load.factor",
    "urgent",
    "map full",
    "several rounds",
    "invalid",
    "2 topics",
    "3 topics",
}


@pytest.fixture(scope="module")
def oracle() -> Iterator[CleanerOracle]:
    with CleanerOracle() as one:
        yield one


def times(folder: Path) -> dict[str, int]:
    """Return the modification times of logs, which old tombstones and lags depend on."""
    return {str(log.relative_to(folder)): log.stat().st_mtime_ns for log in folder.glob("*/*.log")}


@pytest.mark.kafka
@pytest.mark.parametrize("number", SAMPLE[:3])
def test_a_number_means_one_workload(number: int, oracle: CleanerOracle, tmp_path: Path) -> None:
    """A difference that was found must be there tomorrow, after cleaning as well."""
    first, second = (make_workload(oracle, number, tmp_path / name) for name in ("first", "second"))
    assert differences(first.log_dir, second.log_dir) == []
    assert times(first.log_dir) == times(second.log_dir)
    assert first.clean(oracle, first.log_dir) == second.clean(oracle, second.log_dir)
    assert differences(first.log_dir, second.log_dir) == []
    assert times(first.log_dir) == times(second.log_dir)


@pytest.mark.kafka
def test_the_sample_holds_all_that_a_cleaner_may_meet(oracle: CleanerOracle, tmp_path: Path) -> None:
    """Equal results on logs without markers, small maps or old formats would prove nothing about these."""
    found: set[str] = set()
    for number in SAMPLE:
        workload = make_workload(oracle, number, tmp_path / str(number))
        copy = shutil.copytree(workload.log_dir, tmp_path / f"{number}-cleaned")
        candidates = workload.select(oracle, workload.log_dir)
        found |= held(workload) | decided(candidates, workload.clean(oracle, copy))
    assert WANTED - found == set()
