"""`stats` on Spark: slices of partitions, put together at the driver."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from klog.data_dir.partition import Partition
from klog.jobs.slices import SPLIT_BYTES, LogSlice, pack_tasks, slices
from klog.jobs.stats import Stats, StatsOptions, results
from klog.jobs.stats import stats as job
from klog.log.reader import MAX_BATCH_BYTES
from klog.progress import Silence, Sink
from klog.spark.run import parallelism, run

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
    parts: list[LogSlice | str] = []
    sizes: list[int] = []
    for partition in {one.path: one for one in partitions}.values():
        # Dividing a partition reads from each of its logs; for small ones this is left to the tasks.
        if partition.size <= split_bytes:
            parts.append(partition.path)
            sizes.append(partition.size)
        else:
            cut = slices(partition, split_bytes)
            parts += cut
            sizes += [part.bytes for part in cut]
    packs = pack_tasks(sizes, least=parallelism(spark))
    units = [[parts[i] for i in numbers] for numbers in packs]
    loads = [sum(sizes[i] for i in numbers) for numbers in packs]
    options = StatsOptions(os.urandom(16), max_batch_bytes)
    return results(run(spark, job, units, options, loads, sink, "klog stats"), partitions)
