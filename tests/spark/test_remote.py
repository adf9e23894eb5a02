"""Spark over two tiers: the data source with `remote`, and `klog spark … --remote`, in the processes of the tasks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.base.errors import UsageError
from klog.spark.source_options import read_options
from pyspark.sql import SparkSession

from tests.conftest import Ran
from tests.support.tiers import unpack

pytestmark = pytest.mark.spark
Klog = Callable[..., Ran]


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return unpack(tmp_path_factory.mktemp("tiered"))


def test_the_source_reads_both_tiers(spark: SparkSession, disk: tuple[Path, Path]) -> None:
    """Each record once; `fine` has 100 of its 110 in remote storage, `short` was cut at offset 61."""
    data, tier = disk
    source = spark.read.format("kafka-log").option("remote", str(tier)).option("splitBytes", "4096")
    rows = source.load(str(data)).select("topic", "offset").collect()
    found = {topic: sorted(row.offset for row in rows if row.topic == topic) for topic in ("fine", "short")}
    assert found == {"fine": [*range(110)], "short": [*range(61, 110)]}
    local = spark.read.format("kafka-log").option("subscribe", "fine").load(str(data)).count()
    assert local == 10
    late = source.option("subscribe", "fine").option("startingOffsets", '{"fine":{"0":95}}').load(str(data))
    assert sorted(row.offset for row in late.select("offset").collect()) == [*range(95, 110)]


def test_commands_on_spark_read_both_tiers(
    spark: SparkSession, klog: Klog, disk: tuple[Path, Path], tmp_path: Path
) -> None:
    """They say what the same commands say without Spark."""
    data, tier = disk
    counted = [
        [(row["topic"], row["records"]) for row in map(json.loads, ran.stdout.splitlines())]
        for ran in (klog(*words, data, "--remote", tier, "-o", "jsonl") for words in (["stats"], ["spark", "stats"]))
    ]
    assert counted[0] == counted[1]
    wanted = ("--remote", tier, "-t", "fine", "--from-offset", "98", "-o", "jsonl")
    here, there = klog("search", data, *wanted), klog("spark", "search", data, *wanted)
    assert (there.exit_code, there.stdout) == (here.exit_code, here.stdout)
    to = tmp_path / "out"
    assert klog("spark", "export", data, "--remote", tier, "-t", "fine", "--to", to, "-o", "jsonl").exit_code == 0
    lines = [json.loads(line) for file in to.glob("**/*.jsonl") for line in file.read_text().splitlines()]
    assert sorted(line["offset"] for line in lines) == [*range(110)]


def test_the_last_values_are_those_of_both_tiers(
    spark: SparkSession, klog: Klog, disk: tuple[Path, Path], tmp_path: Path
) -> None:
    """No broker compacts a tiered topic: a compacted log of both tiers is made in two steps, as the message says."""
    data, tier = disk
    chosen = data, "--remote", tier, "-t", "fine"
    assert klog("spark", "compact", *chosen, "-o", "jsonl", "--to", tmp_path / "out").exit_code == 0
    lines = [line for file in (tmp_path / "out").glob("**/*.jsonl") for line in file.read_text().splitlines()]
    last = {}
    for row in map(json.loads, klog("dump", *chosen, "-o", "jsonl").stdout.splitlines()):
        last[row["key"]] = row["offset"]
    assert sorted(json.loads(line)["offset"] for line in lines) == sorted(last.values())
    assert min(last.values()) < 100, "some are in remote storage alone"
    refused = klog("spark", "compact", *chosen, "-o", "log", "--to", tmp_path / "log")
    assert (refused.exit_code, (tmp_path / "log").exists()) == (16, False)
    assert b"klog remote fetch --to DIR" in refused.stderr
    klog("remote", "fetch", *chosen, "--to", tmp_path / "back")
    done = klog(
        *("spark", "compact", tmp_path / "back", "--policy", "compact", "-o", "log", "--to", tmp_path / "log", "--all")
    )
    assert done.exit_code == 0


def test_verify_on_spark_checks_remote_storage(spark: SparkSession, klog: Klog, disk: tuple[Path, Path]) -> None:
    data, tier = disk
    here = json.loads(klog("verify", data, "--remote", tier, "-o", "json").stdout)
    there = json.loads(klog("spark", "verify", data, "--remote", tier, "-o", "json").stdout)
    assert there["findings"] == here["findings"]
    assert there["remote"] == here["remote"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"remoteLayout": "local"}, "need the option remote"),
        ({"remote": "t", "remoteLayout": "other"}, "none of"),
        ({"remote": "t", "remoteKeys": "key1"}, "KEYID=FILE"),
    ],
)
def test_options_without_a_meaning(given: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_options({"path": "/x", **given})


def test_a_stream_follows_the_local_log() -> None:
    with pytest.raises(UsageError, match="a stream follows the local log"):
        read_options({"path": "/x", "remote": "/t"}, streaming=True)
    options = read_options({"path": "/x", "remote": "s3://b/p", "remoteKeys": "key1=a.pem"})
    assert options.tier is not None
    assert (options.tier.uri, options.tier.key_files) == ("s3://b/p", (("key1", f"{Path.cwd()}/a.pem"),))
