"""Keys and values by the schemas of a registry on Spark: the jobs, and Spark as the reader of typed columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.conftest import Ran
from tests.schemas.corpus import Image, data, truth

pytestmark = [pytest.mark.spark, pytest.mark.corpora]
Klog = Callable[..., Ran]


def test_searches_find_what_one_machine_finds(spark: SparkSession, klog: Klog, image: Image) -> None:
    """Workers get the schemas, and their errors come back."""
    topics = truth("confluent")["topics"]
    how = [word for kind in ("evolved", "rough", "proto") for word in ("-t", topics[kind])]
    words = ("-o", "jsonl", data(image, "confluent"), *how, "--schemas", "auto")
    for more in ((), ("--where", "value.id>3"), ("--json-form", "canonical")):
        found = klog("spark", "search", *words, *more)
        right = klog("search", *words, *more)
        assert (found.exit_code, found.stdout) == (right.exit_code, right.stdout)
        assert set(found.stderr.splitlines()) == set(right.stderr.splitlines()) != set()


def test_exports_have_what_one_machine_exports(spark: SparkSession, klog: Klog, image: Image, tmp_path: Path) -> None:
    """Parquet with the same columns and rows, and JSON lines."""
    topics = truth("confluent")["topics"]
    how = [word for kind in ("all", "mixed", "rough") for word in ("-t", topics[kind])]
    for form in ("parquet", "jsonl"):
        words = (data(image, "confluent"), *how, "--schemas", "auto", "--output", form)
        done = klog("spark", "export", *words, "--to", tmp_path / f"spark-{form}")
        right = klog("export", *words, "--to", tmp_path / f"one-{form}")
        assert done.exit_code == right.exit_code == 4
        assert b"cannot be decoded: truncated" in done.stderr
        assert set(done.stderr.splitlines()) == set(right.stderr.splitlines())
        for path in sorted((tmp_path / f"one-{form}").rglob(f"*.{form}")):
            (other,) = (tmp_path / f"spark-{form}" / path.parent.relative_to(tmp_path / f"one-{form}")).iterdir()
            assert other.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("kind", ["evolved", "mixed", "tree", "prims", "proto2"])
def test_spark_reads_typed_columns(spark: SparkSession, klog: Klog, image: Image, tmp_path: Path, kind: str) -> None:
    """Four versions are one table; a topic of several types has a struct of them."""
    topic = truth("confluent")["topics"][kind]
    klog("export", data(image, "confluent"), "-t", topic, "--to", tmp_path / "out", "--schemas", "auto")
    frame = spark.read.parquet(str(tmp_path / "out"))
    right = [one for one in truth("confluent")["records"] if one["topic"] == topic]
    assert frame.count() == len(right)
    collected = frame.select("offset", "value_schema_id", "value_error").collect()
    ids = sorted((row["offset"], row["value_schema_id"]) for row in collected)
    assert ids == sorted((one["offset"], one["value"]["id"]) for one in right)
    if kind == "evolved":
        assert frame.select("value.*").columns == ["id", "title", "added", "flags"]
        assert frame.where("value.id = 7").count() == sum(one["value"]["plain"]["id"] == 7 for one in right)
