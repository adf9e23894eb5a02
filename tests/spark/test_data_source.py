"""The data source within Spark: how it is found, what it gives for splits, filters, columns and damage."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from klog.data_dir.log_dir import LogDir
from klog.jobs.slices import LogSlice, slice_partition
from klog.jobs.spark_rows import COLUMNS, RowQuery, read
from klog.spark.data_source import FilteringReader, KafkaLog, KafkaLogReader, columns_of, spark_schema
from klog.spark.read_tasks import Task
from klog.spark.source_options import read_options
from pyspark.errors import AnalysisException
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, In, LessThan

from tests.conftest import FIXTURES, writable_copy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

MODERN = FIXTURES / "modern"
Places = Counter[tuple[str | None, int | None, int | None]]


def places(rows: DataFrame) -> Places:
    """Count the rows of each place."""
    return Counter(
        (row.topic, row.partition, row.offset) for row in rows.select("topic", "partition", "offset").collect()
    )


def expected(data: Path) -> Places:
    """Count the records of each place without Spark, splits or tasks."""
    found: Places = Counter()
    for partition in LogDir(str(data)).partitions:
        if not (partition.topic or "").startswith("__"):
            for batch in read(slice_partition(partition, 2**40), RowQuery(("topic", "partition", "offset"))):
                found.update(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    return found


@pytest.fixture(scope="module")
def modern() -> Places:
    found = expected(MODERN)
    assert len(found) > 500
    assert set(found.values()) == {1}
    return found


def test_the_source_is_found_by_its_name(spark: SparkSession, modern: Places) -> None:
    """A reader of a dead broker in a notebook should not have to know what to import."""
    assert places(spark.read.format("kafka-log").load(str(MODERN))) == modern


def test_the_source_is_a_view_in_sql(spark: SparkSession, modern: Places) -> None:
    spark.sql(f"CREATE TEMPORARY VIEW logs USING `kafka-log` OPTIONS (path '{MODERN}', includeHeaders 'true')")
    try:
        rows = spark.sql("SELECT topic, count(*), count(headers), max(offset) FROM logs GROUP BY topic").collect()
    finally:
        spark.catalog.dropTempView("logs")
    assert {row[0]: row[1] for row in rows} == Counter(topic for topic, _, _ in modern)
    assert sum(row[2] for row in rows) > 0


def test_columns_and_types_are_those_of_sparks_own_source(spark: SparkSession) -> None:
    """As Spark prints those of its own: what is nullable there is nullable here."""
    rows = spark.read.format("kafka-log").option("includeHeaders", "true").load(str(MODERN))
    assert rows.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
        "headers:array<struct<key:string,value:binary>>>"
    )
    assert all(field.nullable for field in rows.schema)


def test_every_column_can_be_asked_for_alone_and_in_any_order(spark: SparkSession) -> None:
    columns = tuple(reversed(COLUMNS))
    rows = spark.read.format("kafka-log").option("columns", ",".join(columns)).load(str(MODERN))
    (row,) = rows.where("topic = 'gzip' and offset = 7").collect()
    assert tuple(row.__fields__) == columns
    assert row.file == str(MODERN / "gzip-0" / f"{0:020}.log")
    assert row.damage is None


def test_a_schema_of_the_users_chooses_columns(spark: SparkSession, modern: Places) -> None:
    """Spark cannot tell a source which columns a query uses; whoever names them does not pay for the rest."""
    reader = spark.read.format("kafka-log")
    assert places(reader.schema("offset bigint, topic string, partition int").load(str(MODERN))) == modern
    for wrong, said in (("offset string", "offset is bigint, not string"), ("ofset bigint", "did you mean offset")):
        with pytest.raises(Exception, match=said):
            reader.schema(wrong).load(str(MODERN)).collect()


def test_several_paths_globs_and_replicas(spark: SparkSession, modern: Places, tmp_path: Path) -> None:
    """Many disks of many brokers: each partition once, or every copy where that is asked for."""
    for name in ("broker-1", "broker-2"):
        writable_copy(MODERN, tmp_path / name)
    reader = spark.read.format("kafka-log").option("columns", "topic,partition,offset")
    both = [str(tmp_path / "broker-1"), str(tmp_path / "broker-2")]
    assert places(reader.load(both)) == modern
    assert places(reader.load(str(tmp_path / "broker-*"))) == modern
    assert places(reader.load(",".join(both))) == modern
    assert set(places(reader.option("replicas", "all").load(both)).values()) == {2}


@pytest.mark.parametrize("split_bytes", ["4k", "10000", "1m"])
def test_every_split_gives_every_record_once(spark: SparkSession, modern: Places, split_bytes: str) -> None:
    """Records at a seam are the ones that are lost or come twice."""
    options = read_options({"path": str(MODERN), "splitBytes": split_bytes, "columns": "topic,partition,offset"})
    if split_bytes == "4k":
        assert len(KafkaLogReader(options, options.columns).partitions()) > 10
    assert places(spark.read.format("kafka-log").option("splitBytes", split_bytes).load(str(MODERN))) == modern


def test_an_unknown_option_is_told_before_anything_is_read(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="no option subscrib; did you mean subscribe"):
        spark.read.format("kafka-log").option("subscrib", "gzip").load(str(MODERN))


def test_a_topic_that_is_not_there_is_told(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="subscribe: no topic gzipp here; did you mean gzip"):
        spark.read.format("kafka-log").option("subscribe", "gzipp").load(str(MODERN)).collect()


def test_nothing_to_read_is_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    """A new broker has no partitions, and Spark asks for the rows of no task."""
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    assert spark.read.format("kafka-log").load(str(tmp_path)).collect() == []


# filters


def parts_of(reader: KafkaLogReader) -> list[LogSlice]:
    """Return what a reader plans to read."""
    return [part for task in reader.partitions() if isinstance(task, Task) for part in task.parts]


CONDITIONS = (
    "topic = 'gzip'",
    "topic in ('gzip', 'zstd', 'none-such') and partition = 0",
    "offset between 3 and 7",
    "offset > 3 and offset <= 9 and topic <> 'gzip'",
    "offset in (1, 5, 300000)",
    "topic <=> 'dense' and offset < 2",
    "partition = 99",
    "topic = null",
    "timestamp >= (select_time) and topic = 'gzip'",
    "timestamp < (select_time)",
    "timestamp = (select_time)",
    "offset > 9223372036854775806",
)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_filter_gives_the_same_rows_pushed_down_or_not(spark: SparkSession, condition: str) -> None:
    """Pushing down is for speed, and may change nothing else."""
    plain = spark.read.format("kafka-log").load(str(MODERN))
    if "select_time" in condition:
        time = plain.where("topic = 'gzip' and offset = 100").select("timestamp").collect()[0][0]
        condition = condition.replace("(select_time)", f"timestamp'{time.isoformat(sep=' ')}'")
    pushing = spark.read.format("kafka-log").option("pushdown", "true").load(str(MODERN))
    assert places(pushing.where(condition)) == places(plain.where(condition))


def test_filters_bound_what_is_planned() -> None:
    """Else they are only named so."""
    reader = FilteringReader(read_options({"path": str(MODERN), "pushdown": "true"}), ("offset",))
    topics, below = In(("topic",), ["gzip", "idempotent"]), LessThan(("offset",), 20)  # type: ignore[arg-type]  # a list
    assert list(reader.pushFilters([topics, EqualTo(("partition",), 0), below])) == [below]
    first = f"{0:020}.log"
    assert {Path(part.path).relative_to(MODERN) for part in parts_of(reader)} == {
        Path("gzip-0", first),
        Path("idempotent-0", first),
    }
    reader.pushFilters([GreaterThanOrEqual(("offset",), 10**9)])
    assert parts_of(reader) == []


def test_the_reader_takes_no_filters_unless_it_is_told_to() -> None:
    """A reader that takes filters, if they are not switched on in Spark's settings, fails every query."""
    columns = spark_schema(("offset",))
    assert columns_of(columns) == ("offset",)
    assert type(KafkaLog({"path": str(MODERN)}).reader(columns)) is KafkaLogReader
    assert type(KafkaLog({"path": str(MODERN), "pushdown": "true"}).reader(columns)) is FilteringReader


def test_a_session_without_pushdown_reads_all_the_same(spark: SparkSession, modern: Places) -> None:
    """It is off in Spark by default."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        assert places(spark.read.format("kafka-log").load(str(MODERN)).where("topic is not null")) == modern
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


# damage


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A copy with a flipped byte in the middle of one log, and another log that is cut in its last batch."""
    data = writable_copy(MODERN, tmp_path / "broken")
    log = data / "gzip-0" / f"{0:020}.log"
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 0xFF
    log.write_bytes(content)
    log = data / "zstd-0" / f"{0:020}.log"
    log.write_bytes(log.read_bytes()[:-5])
    return data


def test_damage_ends_a_query_that_did_not_say_otherwise(spark: SparkSession, broken: Path) -> None:
    """A table that is silently short is worse than none."""
    with pytest.raises(Exception, match=r"gzip-0.*CRC-32C|zstd-0.*torn tail"):
        spark.read.format("kafka-log").load(str(broken)).collect()


def test_around_damage_every_record_is_read(spark: SparkSession, broken: Path, modern: Places) -> None:
    skipped = places(spark.read.format("kafka-log").option("failOnDataLoss", "false").load(str(broken)))
    lost = modern - skipped
    assert skipped - modern == Counter()
    assert {topic for topic, _, _ in lost} == {"gzip", "zstd"}
    rows = spark.read.format("kafka-log").option("damage", "column").load(str(broken))
    assert places(rows.where("damage is null")) == skipped
    damaged = {row.topic: row.damage for row in rows.where("damage is not null").collect()}
    assert damaged.keys() == {"gzip", "zstd"}
    assert "torn tail" in damaged["zstd"]


def test_what_vanishes_after_planning_is_damage_too(spark: SparkSession, broken: Path, modern: Places) -> None:
    """Retention does not wait for a query."""
    rows = (
        spark.read.format("kafka-log").option("subscribe", "snappy,dense").option("damage", "column").load(str(broken))
    )
    assert {row.topic for row in rows.select("topic").distinct().collect()} == {"snappy", "dense"}
    (broken / "snappy-1" / f"{0:020}.log").unlink()
    found = rows.select("topic", "damage").collect()
    assert [row.topic for row in found if row.damage is not None] == ["snappy"]
    assert len(found) - 1 == sum(topic == "dense" for topic, _, _ in modern)


def test_names_that_are_no_text_end_no_query(spark: SparkSession, broken: Path) -> None:
    """A topic's name is text; what else lies in a log dir, or above it, may be called anything."""
    odd = broken.parent / "odd-\udcff" / "data\udc80"
    odd.parent.mkdir()
    broken.rename(odd)
    (odd / "zstd-0").rename(odd / "orders\udcfe-0")
    (odd / "gzip-0" / "left\udcfd.log").write_bytes(b"x")
    (odd / "stray\udcfc").write_bytes(b"x")
    reader = spark.read.format("kafka-log").option("columns", "topic,file,damage,value")
    rows = reader.option("damage", "column").load(f"{broken.parent}/odd-*/data*").collect()
    assert len(rows) > 500
    assert {row.topic for row in rows if row.damage} == {"gzip", "orders?"}
    assert all(f"{broken.parent}/odd-?/data?/" in row.file for row in rows)
    with pytest.raises(Exception, match=r"odd-.*(CRC-32C|torn tail)"):
        reader.option("damage", "fail").load(f"{broken.parent}/odd-*/data*").collect()


def test_paths_are_addresses_as_well(spark: SparkSession, modern: Places) -> None:
    """Spark's other sources take `file:` URIs, and jobs have them in their settings."""
    for path in (f"file://{MODERN}/", f"file:{MODERN}"):
        assert places(spark.read.format("kafka-log").load(path)) == modern
