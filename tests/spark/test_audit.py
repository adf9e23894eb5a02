"""`klog spark audit` finds what `klog audit misrouted` finds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from klog.commands.audit import headers as survey
from pyspark.sql import SparkSession

from tests.commands.audit.auditing import disks
from tests.commands.audit.clusters import Cluster
from tests.conftest import Ran

pytestmark = pytest.mark.spark
Klog = Callable[..., Ran]


def same(klog: Klog, *arguments: object) -> Ran:
    """Run both; return their results, which are the same."""
    words = list(map(str, arguments))
    alone = klog("audit", "misrouted", *words)
    assert klog("spark", "audit", *words) == alone
    return alone


@pytest.mark.corpora
def test_rows_and_exit_code_are_those_of_the_command(
    spark: SparkSession, klog: Klog, image: Callable[[str], Path]
) -> None:
    """Two disks, replicas, every kind of row."""
    done = same(klog, *disks(image, "hand"), "--deep", "--output", "json")
    assert done.exit_code == 4


def test_waves_and_a_small_table_change_nothing(
    spark: SparkSession, klog: Klog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver has the entries of one wave, and the table goes to a file."""
    made = Cluster(1)
    for _ in range(900):
        made.add("a-0")
        made.add("b-0")
    made.put("b-0", made.partitions["a-0"][500])
    root = made.write(tmp_path / "data", segments=2)
    monkeypatch.setattr(survey, "_FIRST_BYTES", 60_000)
    assert same(klog, root, "--memory", "1KiB", "--quiet", "--output", "jsonl").stdout.count(b"\n") == 1


def test_a_path_that_is_no_log_dir_is_8(spark: SparkSession, klog: Klog, tmp_path: Path) -> None:
    assert klog("spark", "audit", str(tmp_path)).exit_code == 8
