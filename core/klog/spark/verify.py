"""`verify` on Spark: whole partitions, several of them a task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from klog.data_dir.partition import Partition
from klog.jobs.slices import pack
from klog.jobs.verify import Options, Part, results
from klog.jobs.verify import verify as job
from klog.progress import Silence, Sink
from klog.spark.run import parallelism, run
from klog.verify.facts import LogDirFacts
from klog.verify.segment import Request
from klog.verify.verify import Checked, Chosen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_USUAL, _SILENCE = Request(), Silence()


def verify(
    spark: SparkSession,
    partitions: Sequence[tuple[Partition, LogDirFacts]],
    request: Request = _USUAL,
    sink: Sink = _SILENCE,
    chosen: Chosen | None = None,
) -> Iterator[Checked]:
    """Check *partitions*, each with its log dir's facts, and yield what came of each, in their order.

    All of it is looked at where Spark's tasks run: paths have to lead there to what they lead to here.
    """
    sizes = [partition.size for partition, _ in partitions]
    packs = pack(sizes, least=parallelism(spark))
    units = [[Part(i, partitions[i][0].path, partitions[i][1].path) for i in numbers] for numbers in packs]
    loads = [sum(sizes[i] for i in numbers) for numbers in packs]
    batches = run(spark, job, units, Options(request, chosen), loads, sink, "klog verify")
    return results(batches, [partition for partition, _ in partitions])
