"""Equal names that are not copies, on Spark: jobs and the source refuse them, until the ids choose."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.base.errors import UsageError
from klog.data_dir.partition_identity import IdentityError
from klog.spark.read_tasks import chosen
from klog.spark.source_options import read_options
from pyspark.sql import SparkSession

from tests.cli.test_identity_options import NOTE, exported, values
from tests.conftest import Ran
from tests.support.identities import CLUSTER, OTHER_CLUSTER, OTHER_TOPIC, TOPIC, partition, refusal, two_clusters

pytestmark = pytest.mark.spark
Klog = Callable[..., Ran]


def test_search(spark: SparkSession, klog: Klog, tmp_path: Path) -> None:
    paths = two_clusters(tmp_path)
    done = klog("spark", "search", "-o", "jsonl", *paths)
    assert (done.exit_code, done.stdout, done.stderr) == (8, b"", refusal(paths))
    done = klog("spark", "search", "-o", "jsonl", *paths, "--cluster", OTHER_CLUSTER)
    assert (done.exit_code, values(done), done.stderr) == (0, {"other"}, NOTE)


@pytest.mark.parametrize("command", ["export", "compact"])
def test_files(spark: SparkSession, klog: Klog, tmp_path: Path, command: str) -> None:
    paths, out = two_clusters(tmp_path), tmp_path / "out"
    asked = ("spark", command, *paths, "--output", "jsonl", "--to", out)
    done = klog(*asked)
    assert (done.exit_code, done.stdout, done.stderr) == (8, b"", refusal(paths))
    assert not out.exists()
    assert klog(*asked, "--topic-id", TOPIC).exit_code == 0
    assert exported(out) == {"b1"}


def test_compacted_partitions(spark: SparkSession, klog: Klog, tmp_path: Path) -> None:
    """The omitted directory leaves no trace: the copy is the chosen cluster's, with its meta.properties."""
    paths, out = two_clusters(tmp_path), tmp_path / "out"
    asked = ("spark", "compact", *paths, "--output", "log", "--policy", "compact", "--to", out)
    done = klog(*asked)
    assert (done.exit_code, done.stdout, done.stderr) == (8, b"", refusal(paths))
    assert not out.exists()
    done = klog(*asked, "--cluster", OTHER_CLUSTER)
    assert (done.exit_code, NOTE in done.stderr) == (0, True)
    assert OTHER_TOPIC in (out / "orders-3" / "partition.metadata").read_text()
    assert OTHER_CLUSTER in (out / "meta.properties").read_text()


def test_old_directories(spark: SparkSession, klog: Klog, tmp_path: Path) -> None:
    paths = [partition(tmp_path / name, None, None) for name in ("b1", "b2")]
    done = klog("spark", "search", "-o", "jsonl", *paths)
    assert (done.exit_code, b"--by-name takes" in done.stderr) == (8, True)
    assert values(klog("spark", "search", "-o", "jsonl", *paths, "--by-name")) == {"b1"}


@pytest.mark.parametrize("form", ["jsonl", "log"])
def test_old_directories_as_files(spark: SparkSession, klog: Klog, tmp_path: Path, form: str) -> None:
    """Equal names make one table, but of two copies of a log there is no compacted one."""
    paths, out = [partition(tmp_path / name, None, None) for name in ("b1", "b2")], tmp_path / "out"
    asked = ("spark", "compact", *paths, "--output", form, "--to", out)
    done = klog(*asked)
    assert (done.exit_code, done.stdout, b"orders-3 exists 2 times" in done.stderr) == (8, b"", True)
    done = klog(*asked, "--by-name")
    if form == "log":
        assert (done.exit_code, b"two copies of one partition" in done.stderr) == (16, True)
    else:
        assert (done.exit_code, exported(out)) == (0, {"b1"})


def test_rows_of_stats_and_verify_have_ids(spark: SparkSession, klog: Klog, tmp_path: Path) -> None:
    paths = two_clusters(tmp_path)
    rows = [json.loads(line) for line in klog("spark", "stats", *paths, "--output", "jsonl").stdout.splitlines()]
    ids = [(TOPIC, CLUSTER), (OTHER_TOPIC, OTHER_CLUSTER)]
    assert [(row["topic_id"], row["cluster_id"]) for row in rows] == ids
    for path in paths:
        log = path / "orders-3" / f"{0:020}.log"
        log.write_bytes(log.read_bytes()[:-1] + b"x")
    for command in (("spark", "verify"), ("verify",)):
        found = [json.loads(line) for line in klog(*command, *paths, "--output", "jsonl").stdout.splitlines()]
        assert {(one["topic_id"], one["cluster_id"]) for one in found if one["severity"] == "damage"} == set(ids)


def test_the_source(spark: SparkSession, tmp_path: Path) -> None:
    paths = [str(path) for path in two_clusters(tmp_path)]

    def found(**options: str) -> list[str]:
        reader = spark.read.format("kafka-log").options(**options)
        return sorted(bytes(row.value).decode() for row in reader.load(paths).collect())

    with pytest.raises(Exception, match=f"orders-3 is two things: topic {TOPIC} of cluster {CLUSTER}"):
        found()
    assert found(cluster=OTHER_CLUSTER) == ["other"] * 3
    assert found(topicId=TOPIC) == ["b1"] * 3
    assert found(replicas="all") == ["b1"] * 3 + ["other"] * 3


def test_options_of_the_source(tmp_path: Path) -> None:
    """Ids are separated by commas, as other lists of the source are."""
    path = ",".join(map(str, two_clusters(tmp_path)))
    with pytest.raises(IdentityError, match=r"; cluster or topicId chooses"):
        chosen(read_options({"path": path, "cluster": f"{CLUSTER}, {OTHER_CLUSTER}"}))
    with pytest.raises(UsageError, match="cluster: no id is given"):
        read_options({"path": path, "cluster": ""})
    with pytest.warns(UserWarning, match=r"1 of 2 partition directories are of other ids: left out"):
        assert [one.topic_id for one in chosen(read_options({"path": path, "cluster": CLUSTER}))] == [TOPIC]


def test_old_directories_in_the_source(tmp_path: Path) -> None:
    path = ",".join(str(partition(tmp_path / name, None, None)) for name in ("b1", "b2"))
    with pytest.raises(IdentityError, match=r"; byName takes equal names"):
        chosen(read_options({"path": path}))
    assert len(chosen(read_options({"path": path, "byName": "true"}))) == 1
    assert len(chosen(read_options({"path": path, "replicas": "all"}))) == 2
