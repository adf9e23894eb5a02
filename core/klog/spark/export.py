"""`export` on Spark, and the table of latest values: records as files, written by the tasks themselves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from klog.base.progress import Silence, Sink
from klog.data_dir.partition import Partition
from klog.jobs.export import ExportOptions, Run, write_all
from klog.jobs.export import export as export_job
from klog.jobs.latest_values import write_latest_values
from klog.jobs.output import Facts
from klog.partition.transactions.isolation import Isolation
from klog.spark.run import results

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_USUAL, _SILENCE = ExportOptions(""), Silence()


def export(
    spark: SparkSession,
    partitions: Iterable[Partition],
    to: str,
    options: ExportOptions = _USUAL,
    isolation: Isolation = "read_uncommitted",
    sink: Sink = _SILENCE,
) -> Facts:
    """Write the records of *partitions* as files below *to*; return the manifest, which is also written there.

    Each record is written once, even if tasks fail, are killed or run twice.  After a failure the same call continues
    with what is missing.  *to* and the partitions' paths must lead to the same places wherever tasks run.

    Raises UsageError if *to* has other content, LockedError if another run writes there, KlogError, OSError.
    """
    return write_all("export", export_job, partitions, to, options, isolation, _runner(spark, sink, "klog export"))


def latest(
    spark: SparkSession,
    partitions: Iterable[Partition],
    to: str,
    options: ExportOptions = _USUAL,
    sink: Sink = _SILENCE,
) -> Facts:
    """Write the last value of each key of *partitions* as files below *to*: the table of a read_committed consumer.

    Everything else is as with `export`.
    """
    return write_all(
        "latest", write_latest_values, partitions, to, options, "read_committed", _runner(spark, sink, "klog latest")
    )


def _runner(spark: SparkSession, sink: Sink, title: str) -> Run:
    return lambda job, units, options, sizes: results(spark, job, units, options, sizes, sink, title)
