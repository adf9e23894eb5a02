"""The promise of the data source: change one word, and a query on a live broker runs on its disk.

A real broker is filled and read through Spark's own Kafka source.  Then it is stopped, and the same queries are asked
with `kafka-log` for `kafka`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.brokers import clients, jars, kafka
from tests.brokers.clients import START_MS, records

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession
    from pyspark.sql.types import StructType

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPICS = (*CODECS, "append-time", "tx", "tx-open", "trimmed", "empty")
EVERYTHING = {"subscribePattern": ".*", "includeHeaders": "true"}
SOME = {"none": {"0": 5}, "gzip": {"0": -2}, "tx": {"0": 33}}
UNTIL = {"none": {"0": 9}, "gzip": {"0": -1}, "tx": {"0": 55}}
LATE = START_MS + 400
QUERIES: dict[str, dict[str, str]] = {
    "everything": EVERYTHING,
    "committed": EVERYTHING | {"kafka.isolation.level": "read_committed"},
    "offsets": {
        "subscribe": ", ".join(SOME),
        "startingOffsets": json.dumps(SOME),
        "endingOffsets": json.dumps(UNTIL),
    },
    "inside transactions": {
        "assign": json.dumps({"tx": [0]}),
        "startingOffsets": json.dumps({"tx": {"0": 25}}),
        "endingOffsets": json.dumps({"tx": {"0": 90}}),
        "kafka.isolation.level": "read_committed",
    },
    "times": {
        "subscribe": "none,zstd,tx",
        "startingTimestamp": str(START_MS + 50),
        "endingTimestamp": str(LATE),
    },
    "times of each": {
        "subscribe": "lz4,snappy",
        "startingOffsetsByTimestamp": json.dumps({"lz4": {"0": START_MS + 95}, "snappy": {"0": START_MS}}),
        "endingOffsetsByTimestamp": json.dumps({"lz4": {"0": LATE}, "snappy": {"0": START_MS * 2}}),
    },
    "partitions": {"subscribe": "spread"},
    "some partitions": {
        "assign": json.dumps({"spread": [0, 2, 3], "none": [0]}),
        "startingOffsets": json.dumps({"spread": {"0": 4, "2": -2, "3": -2}, "none": {"0": -2}}),
        "endingOffsets": json.dumps({"spread": {"0": 17, "2": -1, "3": -1}, "none": {"0": 3}}),
    },
    "times of partitions": {
        "subscribe": "spread",
        "startingTimestamp": str(START_MS + 70),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "nothing so late": {
        "subscribe": "none,append-time",
        "startingTimestamp": str(START_MS + 10_000_000),
        "startingOffsetsByTimestampStrategy": "latest",
    },
}


@dataclass(frozen=True)
class Answers:
    """A stopped broker's log dir, and what Spark's source answered before: query → schema and rows."""

    data: Path
    bootstrap: str
    live: dict[str, tuple[StructType, list[Row]]]


def ask(spark: SparkSession, source: str, bootstrap: str, data: Path, query: dict[str, str]) -> tuple[Any, list[Row]]:
    """Ask one query of one of the two sources: nothing but the word is different."""
    options = {"kafka.bootstrap.servers": bootstrap, "path": str(data)} | query
    rows = spark.read.format(source).options(**options).load()
    return rows.schema, sorted(rows.collect(), key=lambda row: (row.topic, row.partition, row.offset))


def delete_before(bootstrap: str, topic: str, offset: int) -> None:
    """Move a log's start, as an application does that has processed the lower records."""
    from confluent_kafka import TopicPartition

    admin = clients.admin(bootstrap)  # without a name it would be deleted before the answer arrives
    for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result(clients.WAIT_S)


@contextlib.contextmanager
def filled(bootstrap: str) -> Iterator[None]:
    """Produce the subject of the queries; until the end of the context one transaction is open."""
    settings: dict[str, dict[str, str]] = {topic: {} for topic in TOPICS}
    settings["append-time"] = {"message.timestamp.type": "LogAppendTime", "compression.type": "gzip"}
    settings["tx"] = {"internal.segment.bytes": "60000"}
    clients.create(bootstrap, settings)
    clients.create(bootstrap, {"spread": {}}, partitions=4)
    for codec in CODECS:
        clients.with_librdkafka(bootstrap, codec, codec, records(codec, 60))
    for topic in ("append-time", "trimmed"):
        clients.with_librdkafka(bootstrap, topic, "none", records(topic, 30))
    clients.with_librdkafka(bootstrap, "tx", "zstd", records("tx", 120), transaction="tx")
    clients.with_librdkafka(bootstrap, "tx", "none", records("beside", 30))
    clients.with_librdkafka(bootstrap, "tx-open", "none", records("before", 20))
    for number in range(3):  # the fourth stays empty
        clients.with_librdkafka(bootstrap, "spread", "lz4", records(f"spread{number}", 30), partition=number)
    delete_before(bootstrap, "trimmed", 13)
    with clients.open_transaction(bootstrap, "tx-open", records("undecided", 15)):
        clients.with_librdkafka(bootstrap, "tx-open", "lz4", records("after", 20))
        yield


@pytest.fixture(scope="module")
def answers(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    for jar in jars.install_spark_source().iterdir():
        spark.sql(f"ADD JAR '{jar}'")
    folder = tmp_path_factory.mktemp("drop-in")
    with kafka.Cluster(kafka.NEWEST, folder) as cluster, filled(cluster.bootstrap):
        bootstrap, data = cluster.bootstrap, cluster.data
        live = {name: ask(spark, "kafka", bootstrap, data, query) for name, query in QUERIES.items()}
        cluster.stop()
    return Answers(data, bootstrap, live)


@pytest.mark.parametrize("name", QUERIES)
def test_the_disk_answers_as_the_broker_did(spark: SparkSession, answers: Answers, name: str) -> None:
    """Row for row and type for type: whoever changes the word must not find out afterwards that the data is another."""
    schema, rows = ask(spark, "kafka-log", answers.bootstrap, answers.data, QUERIES[name])
    assert schema == answers.live[name][0]
    assert rows == answers.live[name][1]


def test_the_queries_tell_apart_what_they_should(answers: Answers) -> None:
    """Two empty answers are equal too."""
    found = {name: len(rows) for name, (_, rows) in answers.live.items()}
    assert found["everything"] > found["committed"] > 400
    assert 10 < found["offsets"] < 100
    assert found["inside transactions"] > 20
    assert found["times"] > 50
    assert found["times of each"] > 50
    assert 0 < found["nothing so late"] <= 30
    spread = answers.live["partitions"][1]
    assert {row.partition for row in spread} == {0, 1, 2}
    assert len(spread) == found["partitions"] == 90
    assert found["some partitions"] == 13 + 30 + 3
    assert 0 < found["times of partitions"] < 90
    every = answers.live["everything"][1]
    assert {row.timestampType for row in every} == {0, 1}
    assert {row.headers is None for row in every} == {True, False}
    assert min(row.offset for row in every if row.topic == "trimmed") == 13
    assert {(row.key is None, row.value is None) for row in every} == {
        (a, b) for a in (True, False) for b in (True, False)
    }
