"""`verify` on Spark: whole partitions, several for each task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from klog.base.progress import Silence, Sink
from klog.data_dir.partition import Partition
from klog.jobs.slices import pack_tasks
from klog.jobs.verify import VerifyOptions, VerifyTask, collect_results
from klog.jobs.verify import verify as job
from klog.partition.verify.facts import LogDirFacts
from klog.partition.verify.segment import SurveyOptions
from klog.partition.verify.verify import Chosen, PartitionResult
from klog.spark.run import parallelism, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_USUAL, _SILENCE = SurveyOptions(), Silence()


def verify(
    spark: SparkSession,
    partitions: Sequence[tuple[Partition, LogDirFacts]],
    request: SurveyOptions = _USUAL,
    sink: Sink = _SILENCE,
    chosen: Chosen | None = None,
) -> Iterator[PartitionResult]:
    """Check *partitions*, each with its log dir's facts, and yield the result of each, in their order.

    The files are read where Spark's tasks run: paths must lead to the same files there.
    """
    sizes = [partition.size for partition, _ in partitions]
    packs = pack_tasks(sizes, least=parallelism(spark))
    units = [[VerifyTask(i, partitions[i][0].path, partitions[i][1].path) for i in numbers] for numbers in packs]
    loads = [sum(sizes[i] for i in numbers) for numbers in packs]
    batches = run(spark, job, units, VerifyOptions(request, chosen), loads, sink, "klog verify")
    return collect_results(batches, [partition for partition, _ in partitions])
