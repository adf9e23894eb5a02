"""`stats` on Spark: the driver merges the results of slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from klog.base.progress import Silence, Sink
from klog.data_dir.partition import Partition
from klog.jobs.slices import SPLIT_BYTES
from klog.jobs.stats import Stats, StatsOptions, collect_stats, share_out
from klog.jobs.stats import stats as job
from klog.log.reader import MAX_BATCH_BYTES
from klog.spark.run import parallelism, results

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SILENCE = Silence()


def stats(
    spark: SparkSession,
    partitions: Sequence[Partition],
    max_batch_bytes: int = MAX_BATCH_BYTES,
    sink: Sink = _SILENCE,
    split_bytes: int = SPLIT_BYTES,
) -> list[Stats]:
    """Return statistics of the records of each of *partitions*; a large one is divided into slices of *split_bytes*.

    Paths must lead to the same files where Spark's tasks run.
    """
    units, sizes = share_out(partitions, parallelism(spark), split_bytes)
    options = StatsOptions.of(partitions, max_batch_bytes)
    return collect_stats(results(spark, job, units, options, sizes, sink, "klog stats"), partitions)
