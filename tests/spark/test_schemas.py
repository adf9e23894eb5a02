"""Keys and values by the schemas of a registry on Spark: the jobs, and Spark as the reader of typed columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.conftest import Ran
from tests.schemas.corpus import Image, data, truth

pytestmark = [pytest.mark.spark, pytest.mark.corpora]
Klog = Callable[..., Ran]


def test_searches_find_what_one_machine_finds(spark: SparkSession, klog: Klog, image: Image) -> None:
    """Workers get the schemas, and their errors come back."""
    topics = truth("confluent")["topics"]
    how = [word for kind in ("evolved", "rough", "proto") for word in ("-t", topics[kind])]
    words = ("-o", "jsonl", data(image, "confluent"), *how, "--schemas", "auto")
    for more in ((), ("--where", "value.id>3"), ("--json-form", "canonical"), ("--reader-schema", "latest")):
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


# the data source


def test_the_source_has_typed_columns_of_the_latest_schema(spark: SparkSession, image: Image) -> None:
    """No Parquet in between: fields are columns of SQL."""
    topic = truth("confluent")["topics"]["evolved"]
    records = [one for one in truth("confluent")["records"] if one["topic"] == topic]
    frame = load(spark, data(image, "confluent"), subscribe=topic, schemas="auto")
    assert frame.select("value.*").columns == ["id", "title", "added", "flags"]
    assert frame.columns == [
        "key", "value", "value_raw", "value_schema_id", "value_error", "topic", "partition", "offset", "timestamp",
        "timestampType",
    ]  # fmt: skip
    rows = frame.orderBy("offset").select("value.id", "value_schema_id").collect()
    assert [(row["id"], row["value_schema_id"]) for row in rows] == [
        (one["value"]["plain"]["id"], one["value"]["id"]) for one in records
    ]
    older = load(spark, data(image, "confluent"), subscribe=topic, schemas="auto", readerSchema=f"{topic}-value:3")
    assert older.where("value_error = 'incompatible'").count() == 12
    assert older.select("value.*").columns == ["id", "label", "added"]


@pytest.mark.parametrize("kind", ["all", "mixed", "proto", "guid", "rough"])
def test_the_source_reads_every_kind_of_topic(spark: SparkSession, image: Image, kind: str) -> None:
    """Types that Spark lacks have others: a string for a symbol, microseconds, a number for a time of day."""
    topic = truth("confluent")["topics"][kind]
    frame = load(spark, data(image, "confluent"), subscribe=topic, schemas="auto")
    # Spark makes dates of Python when it collects, which end with the year 9999
    rows = frame.selectExpr("partition", "offset", "to_json(value) as json", "value_error", "value_raw")
    found = {(row["partition"], row["offset"]): row for row in rows.collect()}
    right = [one for one in truth("confluent")["records"] if one["topic"] == topic]
    assert len(found) == len(right)
    for one in right:
        row, value = found[one["partition"], one["offset"]], one["value"]
        assert row["value_error"] in (value["error"], "out-of-range")
        is_whole = value["framed"] and row["value_error"] is None
        assert (row["value_raw"] is None) == (is_whole or bool(value.get("null")))
        assert (row["json"] is None) == ("plain" not in value or value["plain"] is None)
        if kind == "all" and "plain" in value:
            assert json.loads(row["json"]).get("small") == value["plain"]["small"]


def test_each_value_as_json_for_all_topics(spark: SparkSession, image: Image) -> None:
    """Functions of Spark for JSON take it from there."""
    for form in ("plain", "canonical"):
        frame = load(spark, data(image, "karapace"), schemas="auto", readerSchema="each", jsonForm=form)
        rows = frame.select("topic", "partition", "offset", "value", "key", "value_error").collect()
        found = {(row["topic"], row["partition"], row["offset"]): row for row in rows}
        judged = 0
        for one in truth("karapace")["records"]:
            row = found[one["topic"], one["partition"], one["offset"]]
            for side in ("key", "value"):
                right = one[side]
                if "plain" in right:
                    judged += 1
                    wanted = right.get("canonical", right["plain"]) if form == "canonical" else right["plain"]
                    assert json.loads(row[side]) == wanted
                else:
                    assert row[side] is None
        assert judged > 200


def test_requests_of_the_source_that_cannot_be_met(spark: SparkSession, image: Image) -> None:
    """A table has one set of columns."""
    path = data(image, "confluent")
    topics = truth("confluent")["topics"]
    several = f"{topics['all']},{topics['mixed']}"
    with pytest.raises(Exception, match="a table has the columns of one topic, and these are 2"):
        load(spark, path, subscribe=several, schemas="auto")
    with pytest.raises(Exception, match="jsonForm: columns have types"):
        load(spark, path, subscribe=topics["all"], schemas="auto", jsonForm="canonical")
    with pytest.raises(Exception, match="no such schema"):
        load(spark, path, subscribe=topics["all"], schemas="auto", readerSchema="4711")


def test_a_stream_has_typed_columns(spark: SparkSession, image: Image, tmp_path: Path) -> None:
    """The columns are those that the topic had when the stream began."""
    topic = truth("confluent")["topics"]["evolved"]
    stream = spark.readStream.format("kafka-log").option("subscribe", topic).option("schemas", "auto")
    frame = stream.option("startingOffsets", "earliest").load(str(data(image, "confluent")))
    query = (
        frame.selectExpr("value.id as id").writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True).start(str(tmp_path / "out"))
    )  # fmt: skip
    assert query.awaitTermination(120)
    wanted = sorted(one["value"]["plain"]["id"] for one in truth("confluent")["records"] if one["topic"] == topic)
    assert sorted(row["id"] for row in spark.read.parquet(str(tmp_path / "out")).collect()) == wanted


def load(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    return spark.read.format("kafka-log").options(**options).load(str(path))
