"""`compact` on Spark: compacted partitions in a new log dir."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from klog.base.progress import Silence, Sink
from klog.cluster.metadata.topic_config import TopicConfig
from klog.commands.compact import job as job
from klog.commands.compact.job import CompactJobOptions
from klog.commands.compact.run import PartitionOutcome
from klog.data_dir.disk.disk import Disk
from klog.data_dir.selection import Selection
from klog.jobs.output import Facts, lock_target
from klog.jobs.slices import pack_tasks
from klog.spark.run import parallelism, results

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SILENCE = Silence()


def compact(
    spark: SparkSession,
    targets: Sequence[Selection],
    topics: Sequence[TopicConfig],
    to: str,
    options: CompactJobOptions,
    sink: Sink = _SILENCE,
) -> tuple[list[Facts], list[PartitionOutcome]]:
    """Write the partitions of *targets*, compacted, into *to*, as `klog compact --to` does; *topics*: their settings.

    Returns the result of each, and the results of `klog.commands.compact` for those that failed.  After a failure the
    same call continues with what is missing.  Raises UsageError if *to* has other content, LockedError if another run
    writes there, KlogError, OSError.
    """
    pieces = job.plan_tasks(targets, topics)
    with lock_target(to, Disk()):
        output = job.begin(to, pieces, options, Disk())
        left = [piece for piece in pieces if piece.number not in output.done]
        packs = pack_tasks([piece.size for piece in left], least=parallelism(spark))
        units = [[left[i] for i in numbers] for numbers in packs]
        sizes = [sum(piece.size for piece in unit) for unit in units]
        results(spark, job.compact, units, options._replace(run=output.run), sizes, sink, "klog compact")
        facts = job.finish(output, pieces, [target.log_dir for target in targets], Disk())
    return facts, job.collect_failures(facts, pieces)
