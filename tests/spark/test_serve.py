"""Spark's own Kafka source reads from `klog serve` what `kafka-log` reads from the same directory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.brokers import jars
from tests.commands.serve.serving import Serving
from tests.conftest import FIXTURES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

MODERN, LEGACY = FIXTURES / "modern", FIXTURES / "legacy"
MIDDLE_MS = 1_750_000_000_500
QUERIES: dict[str, tuple[Path, int, dict[str, str]]] = {
    "everything": (MODERN, 2900, {"subscribePattern": ".*", "includeHeaders": "true"}),
    "committed": (MODERN, 2600, {"subscribePattern": ".*", "kafka.isolation.level": "read_committed"}),
    "partitions elsewhere": (MODERN, 200, {"subscribe": "plain,empty"}),
    "from offsets": (
        MODERN,
        90,
        {
            "subscribe": "zstd",
            "startingOffsets": json.dumps({"zstd": {"0": 40}}),
            "endingOffsets": json.dumps({"zstd": {"0": 130}}),
        },
    ),
    "from a time": (MODERN, 200, {"subscribe": "gzip,idempotent", "startingTimestamp": str(MIDDLE_MS)}),
    "old formats": (LEGACY, 3960, {"subscribePattern": ".*"}),
}


@pytest.fixture(scope="module")
def disks(spark: SparkSession) -> Iterator[dict[Path, str]]:
    for jar in jars.install_spark_source().iterdir():
        spark.sql(f"ADD JAR '{jar}'")
    with Serving(MODERN, "--open-transactions", "hide") as modern, Serving(LEGACY) as legacy:
        yield {MODERN: modern.bootstrap, LEGACY: legacy.bootstrap}


@pytest.mark.parametrize("name", QUERIES)
def test_spark_is_handed_what_is_on_the_disk(spark: SparkSession, disks: dict[Path, str], name: str) -> None:
    """Row for row and type for type, whichever way."""
    folder, at_least, query = QUERIES[name]
    options = {"kafka.bootstrap.servers": disks[folder], "path": str(folder)} | query
    schemas, answers = [], []
    for source in ("kafka", "kafka-log"):
        rows = spark.read.format(source).options(**options).load()
        schemas.append(rows.schema)
        answers.append(sorted(rows.collect(), key=_place))
    assert schemas[0] == schemas[1]
    assert answers[0] == answers[1]
    assert len(answers[0]) >= at_least


def _place(row: Any) -> tuple[str, int, int]:
    return row.topic, row.partition, row.offset
