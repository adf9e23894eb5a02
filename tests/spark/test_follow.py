"""A stream reads the records of a real broker, is stopped and started again, and has every record once."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.brokers import clients, kafka
from tests.brokers.clients import records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

TOPICS = ("plain", "packed", "tx")
SMALL = {"internal.segment.bytes": "60000"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[kafka.Cluster]:
    with kafka.Cluster(kafka.NEWEST, tmp_path / "broker", port=kafka.PORT + 20) as cluster:
        clients.create(cluster.bootstrap, dict.fromkeys(TOPICS, SMALL))
        yield cluster


@contextmanager
def writing(bootstrap: str) -> Iterator[None]:
    """Append to all topics, in batches of ten, until the end of the context."""
    enough = threading.Event()
    failed: list[BaseException] = []

    def write() -> None:
        number = 0
        try:
            while not enough.is_set() or number < 3:
                number += 1
                clients.with_librdkafka(bootstrap, "plain", "none", records(f"plain {number}", 40))
                clients.with_librdkafka(bootstrap, "packed", "lz4", records(f"packed {number}", 40))
                clients.with_librdkafka(bootstrap, "tx", "zstd", records(f"tx {number}", 30), transaction="tx")
                enough.wait(0.5)  # a micro-batch takes as long, and all has to be read in the end
        except BaseException as error:  # reported at the test's end
            failed.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        enough.set()
        writer.join(120)
    assert not failed
    assert not writer.is_alive()


def follow(spark: SparkSession, data: Path, folder: Path, **trigger: object) -> StreamingQuery:
    rows = (
        spark.readStream.format("kafka-log")
        .option("startingOffsets", "earliest")
        .option("isolation", "read_committed")
        .option("maxOffsetsPerTrigger", "500")
        .load(str(data))
        .select("topic", "partition", "offset", "key", "value")
    )
    sink = rows.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    return sink.trigger(**(trigger or {"processingTime": "100 milliseconds"})).start(str(folder / "rows"))  # type: ignore[arg-type]


def batches_done(query: StreamingQuery) -> int:
    progress = query.lastProgress
    return progress.batchId if progress is not None else -1


def until(query: StreamingQuery, batches: int, seconds: float = 60) -> None:
    """Wait until a query has done more than so many micro-batches since it was made."""
    end = time.monotonic() + seconds
    while batches_done(query) < batches:
        assert query.isActive, query.exception()
        assert time.monotonic() < end, f"{batches_done(query)} micro-batches in {seconds} s"
        time.sleep(0.1)


def test_every_record_comes_exactly_once_across_a_restart(
    spark: SparkSession, cluster: kafka.Cluster, tmp_path: Path
) -> None:
    """While segments roll and transactions abort: a reader that loses or repeats at a seam is worth nothing."""
    folder = tmp_path / "followed"
    with writing(cluster.bootstrap):
        first = follow(spark, cluster.data, folder)
        until(first, 2)
        first.stop()
        seen = spark.read.parquet(str(folder / "rows")).count()
        second = follow(spark, cluster.data, folder)
        until(second, batches_done(first) + 2)
        second.stop()
    last = follow(spark, cluster.data, folder, availableNow=True)
    assert last.awaitTermination(120)
    found = Counter((row.topic, row.offset) for row in spark.read.parquet(str(folder / "rows")).collect())
    handed = {
        (topic, record.offset)
        for topic in TOPICS
        for record in clients.consume(cluster.bootstrap, topic, "read_committed")
    }
    assert 0 < seen < len(handed)
    assert {place for place, times in found.items() if times > 1} == set()
    assert found.keys() == handed
    assert len(list((cluster.data / "plain-0").glob("*.log"))) > 1
