"""`klog spark stats`: what is counted is told in the contract's words."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from klog.base.progress import Silence
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.jobs.slices import SPLIT_BYTES, slice_partition
from klog.jobs.stats import Stats, StatsMerger, StatsOptions, count_records
from klog.jobs.stats import stats as job
from klog.log.reader import MAX_BATCH_BYTES
from klog.spark.run import SparkRunner
from pyspark.sql import SparkSession

from tests.conftest import FIXTURES, Ran
from tests.partition.verify.partitions import Damageable, flipped

pytestmark = pytest.mark.spark
Klog = Callable[..., Ran]
NAMES = [
    "topic", "partition", "records", "markers", "bytes", "keys", "null_keys", "null_values", "codecs",
    "first_timestamp", "last_timestamp", "first_offset", "last_offset", "top_keys", "largest_records", "damages",
    "path", "topic_id", "cluster_id",
]  # fmt: skip


def stats(spark: SparkSession, partitions: Sequence[Partition], split_bytes: int = SPLIT_BYTES) -> list[Stats]:
    return count_records(partitions, MAX_BATCH_BYTES, SparkRunner(spark), Silence(), split_bytes)


def test_slices_are_counted_as_the_whole_is(spark: SparkSession) -> None:
    """All but the number of different keys is exact, and that hangs on a secret of each run."""
    partitions = LogDir(str(FIXTURES / "modern")).partitions
    whole = [part for partition in partitions for part in slice_partition(partition)]
    merger = StatsMerger(partitions)
    for result in job(whole, StatsOptions(bytes(16))):
        merger.take(result)
    alone = [one._replace(keys=0, top_keys=()) for one in merger.merged()]
    found = stats(spark, partitions, split_bytes=16 << 10)
    assert [one._replace(keys=0, top_keys=()) for one in found] == alone


def test_a_partition_that_is_named_twice_is_counted_once(spark: SparkSession) -> None:
    """A log dir and a partition in it, say: two rows, of the same records."""
    partitions = LogDir(str(FIXTURES / "modern")).partitions[-1:]
    assert [one.records for one in stats(spark, (*partitions, *partitions), split_bytes=4 << 10)] == [274, 274]
    assert [one.records for one in stats(spark, (*partitions, *partitions))] == [274, 274]


def test_one_object_a_partition(spark: SparkSession, klog: Klog) -> None:
    lines = klog("spark", "stats", "--output", "jsonl", FIXTURES / "modern").stdout.splitlines()
    found = [json.loads(line) for line in lines]
    assert [list(one) for one in found] == [NAMES] * 23
    assert (
        json.loads(klog("spark", "stats", "--output", "json", FIXTURES / "modern").stdout)[3]["topic"]
        == found[3]["topic"]
    )
    zstd = found[-1]
    assert (zstd["topic"], zstd["partition"], zstd["records"], zstd["codecs"]) == ("zstd", 0, 274, {"zstd": 274})
    assert zstd["top_keys"][:2] == [{"key": "", "records": 13}, {"key": "ключ-🔑", "records": 9}]
    assert list(zstd["largest_records"][0]) == ["bytes", "offset", "position", "file"]
    binary = next(one for one in found if one["topic"] == "__transaction_state")
    assert set(binary["top_keys"][0]) == {"key", "records"} or set(binary["top_keys"][0]) == {"key_base64", "records"}


def test_as_text_a_line_a_partition(spark: SparkSession, klog: Klog) -> None:
    done = klog("spark", "stats", "--topic", "zstd", "--topic", "empty", FIXTURES / "modern")
    lines = done.stdout.decode().splitlines()
    assert (done.exit_code, done.stderr) == (0, b"")
    assert lines[0].split()[:6] == ["topic", "partition", "records", "bytes", "keys", "null"]
    assert [line.split()[:3] for line in lines[1:]] == [["empty", "0", "0"], ["zstd", "0", "274"]]


def test_damage_is_told_on_stderr_and_by_the_exit_code(spark: SparkSession, klog: Klog, tmp_path: Path) -> None:
    damageable = Damageable(tmp_path, "idempotent-0")
    damageable.change("idempotent-0/00000000000000000375.log", flipped(100))
    done = klog("spark", "stats", "--output", "jsonl", tmp_path)
    assert done.exit_code == 4
    assert b"00000000000000000375.log @ 0 (offset " in done.stderr
    assert done.stderr.count(b"\n") == 1
    assert json.loads(done.stdout)["damages"] == 1


def test_mistakes_are_said(klog: Klog) -> None:
    log = FIXTURES / "modern" / "zstd-0" / f"{0:020}.log"
    for arguments, said in (
        ((), b"nothing to count"),
        ((log,), b"name its partition"),
        (("--output", "xml", log), b"xml"),
    ):
        done = klog("spark", "stats", *arguments)
        assert (done.exit_code, said in done.stderr) == (16, True)
