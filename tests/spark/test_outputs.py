"""Files and finds through Spark: the same as without, also when workers die in the middle."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from klog.base.errors import SparkError
from klog.base.progress import Silence
from klog.cluster.metadata.topic_config import TopicConfig
from klog.commands.compact import job as compact_job
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.data_dir.selection import Selection
from klog.jobs.export import MANIFEST, ExportOptions, export_latest_values, export_records
from klog.jobs.output_files import Format
from klog.jobs.runner import TaskResult
from klog.jobs.search import SearchQuery, search_partitions
from klog.log.records import RecordFilter
from klog.spark.run import SparkRunner
from pyspark.sql import SparkSession

from tests.commands.compact.compacting import NOW_MS, ORIGINAL, SETTINGS, SEVERAL_ROUNDS
from tests.commands.compact.test_job import copied, tree
from tests.conftest import FIXTURES, writable_copy
from tests.jobs.pieces import Export, dumped, folder_of, lines, partitions, parts_of, pieces_of, rows

pytestmark = pytest.mark.spark
MODERN = FIXTURES / "modern"


def export(spark: SparkSession, found: Sequence[Partition], to: str, form: Format = "parquet") -> dict[str, Any]:
    return export_records(found, to, ExportOptions("", form), "read_uncommitted", SparkRunner(spark), Silence())


def test_exported_tables_are_read_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Row for row the same as a dump; topic and partition are columns again."""
    manifest = export(spark, partitions(MODERN), str(tmp_path / "out"))
    frame = spark.read.parquet(str(tmp_path / "out"))
    assert {"topic", "partition"} <= set(frame.columns)
    found = {(row.topic, row.partition, row.offset) for row in frame.select("topic", "partition", "offset").collect()}
    expected = {
        (one.topic, one.number, line["offset"])
        for one in partitions(MODERN)
        for line in dumped(one)
        if "damage" not in line
    }
    assert found == expected
    assert frame.count() == manifest["records"] == len(expected)


def test_exported_lines_are_those_of_a_dump(spark: SparkSession, tmp_path: Path) -> None:
    export(spark, partitions(MODERN), str(tmp_path / "out"), "jsonl")
    for one in partitions(MODERN):
        assert lines(folder_of(tmp_path / "out", one)) == dumped(one)


def test_the_table_of_latest_values_is_that_of_the_plain_job(spark: SparkSession, tmp_path: Path) -> None:
    found = partitions(MODERN, ORIGINAL)
    export_latest_values(found, str(tmp_path / "out"), ExportOptions(""), SparkRunner(spark), Silence())
    Export(tmp_path / "plain", pieces_of(parts_of(found, isolation="read_committed")), table=True).run()
    for one in found:
        assert rows(folder_of(tmp_path / "out", one)) == rows(folder_of(tmp_path / "plain", one))


def test_a_compacted_log_dir_is_what_compact_to_makes(spark: SparkSession, tmp_path: Path) -> None:
    data = writable_copy(ORIGINAL, tmp_path / "data")
    log_dir = LogDir(str(data))
    options = compact_job.CompactJobOptions("", NOW_MS, False, SEVERAL_ROUNDS)
    targets, topics = [Selection(log_dir, log_dir.partitions)], [TopicConfig(log_dir, SETTINGS)]
    out, runner = str(tmp_path / "out"), SparkRunner(spark)
    results, outcomes = compact_job.compact_partitions(targets, topics, out, options, runner, Silence())
    assert tree(tmp_path / "out") == copied(tmp_path / "expected", data)
    assert {"compacted"} <= {one["result"] for one in results}
    assert len(outcomes) == len(results)


@pytest.mark.parametrize("limit", [None, 3, 10_000])
def test_finds_come_in_the_order_of_the_logs(spark: SparkSession, limit: int | None) -> None:
    wanted = {f"key-{number}" for number in range(5)}
    query = SearchQuery(RecordFilter(limit=limit, pattern=re.compile(b"number")))
    found: list[dict[str, Any]] = []
    read = 0

    def take(answer: TaskResult) -> None:
        nonlocal read
        if answer.kind == "read":
            read += answer.facts["records"]
            return
        assert answer.kind == "lines"
        found.extend(json.loads(line) for line in answer.content.splitlines())

    search_partitions(partitions(MODERN), query, "read_uncommitted", SparkRunner(spark), Silence(), take)
    expected = [line for one in partitions(MODERN) for line in dumped(one) if "number" in (line.get("value") or "")]
    assert all(line.pop("file").startswith(f"{line['topic']}-{line['partition']}/") for line in found)
    assert found == expected[:limit]
    assert read >= len(found)
    assert wanted & {line["key"] for line in found} or limit == 3


def test_a_run_after_a_failed_one_does_the_rest(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that dies leaves its files, hidden; the same call finishes it, and there is one file set."""
    found = partitions(MODERN)
    to = tmp_path / "out"
    to.mkdir()
    export(spark, found, str(tmp_path / "expected"))
    with monkeypatch.context() as patch:
        patch.setattr("klog.jobs.output_commit.JobOutput.results", _fails)
        with pytest.raises(SparkError):
            export(spark, found, str(to))
    assert os.listdir(to) == [".klog-unfinished"]
    manifest = export(spark, found, str(to))
    assert manifest == json.loads((tmp_path / "expected" / MANIFEST).read_bytes())


def _fails(*_: object) -> None:
    raise SparkError("the driver was killed here")
