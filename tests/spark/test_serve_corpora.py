"""The full corpora through Spark's own Kafka source: from a broker on a copy, and from `klog serve` on the disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.brokers import jars
from tests.commands.serve.corpus import LEGACY, MODERN, Corpus
from tests.commands.serve.serving import Serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

pytestmark = [pytest.mark.corpora, pytest.mark.kafka, pytest.mark.spark]

ISOLATIONS = ("read_uncommitted", "read_committed")


@dataclass(frozen=True)
class Answer:
    """A type, and the rows in their order."""

    schema: StructType
    rows: list[Any]


def read(spark: SparkSession, source: str, isolation: str, **options: str) -> Answer:
    every = {"subscribePattern": "[^_].*", "includeHeaders": "true", "kafka.isolation.level": isolation}
    rows = spark.read.format(source).options(**every, **options).load()
    return Answer(rows.schema, sorted(rows.collect(), key=lambda row: (row.topic, row.partition, row.offset)))


@pytest.fixture(scope="module", params=[MODERN, LEGACY], ids=lambda corpus: corpus.name)
def heard(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Corpus, dict[str, Answer]]:
    """Return the broker's answers."""
    corpus: Corpus = request.param
    for jar in jars.install_spark_source().iterdir():
        spark.sql(f"ADD JAR '{jar}'")
    with corpus.broker(tmp_path_factory.mktemp(corpus.name)) as cluster:
        at = {"kafka.bootstrap.servers": cluster.bootstrap}
        return corpus, {isolation: read(spark, "kafka", isolation, **at) for isolation in ISOLATIONS}


@pytest.fixture(scope="module")
def disk(heard: tuple[Corpus, dict[str, Answer]]) -> Iterator[Serving]:
    corpus, _ = heard
    with Serving(corpus.folder, *corpus.options) as serving:
        yield serving


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("source", ["kafka", "kafka-log"])
def test_spark_is_handed_what_the_broker_handed_it(
    spark: SparkSession, heard: tuple[Corpus, dict[str, Answer]], disk: Serving, source: str, isolation: str
) -> None:
    """Row for row and type for type: through the endpoint, and from the files."""
    corpus, answers = heard
    where = {"kafka": ("kafka.bootstrap.servers", disk.bootstrap), "kafka-log": ("path", str(corpus.folder))}
    found, expected = read(spark, source, isolation, **dict([where[source]])), answers[isolation]
    assert found.schema == expected.schema
    strange = [pair for pair in zip(found.rows, expected.rows, strict=False) if pair[0] != pair[1]]
    assert (len(found.rows), strange[:2]) == (len(expected.rows), [])
    assert len(found.rows) == corpus.counts[ISOLATIONS.index(isolation)]
