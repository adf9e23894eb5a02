"""`search` on Spark: tasks find records, the driver puts them in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from klog.base.progress import Silence, Sink
from klog.data_dir.partition import Partition
from klog.jobs.export import ExportTask, plan_tasks
from klog.jobs.results import TaskResult
from klog.jobs.search import LineLimit, SearchQuery, merge_results
from klog.jobs.search import search as job
from klog.jobs.slices import TASK_BYTES, pack_tasks
from klog.partition.transactions.isolation import Isolation
from klog.spark.run import parallelism, results

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SILENCE = Silence()
_MOST_TASKS_A_CORE = 16


def search(
    spark: SparkSession,
    partitions: Iterable[Partition],
    query: SearchQuery,
    isolation: Isolation = "read_uncommitted",
    sink: Sink = _SILENCE,
) -> Iterator[TaskResult]:
    """Yield the records that match *query*, as results `lines`, by topic, partition and offset; and `damage`.

    Tasks run in waves, so that the driver keeps the results of one wave only, and nothing more is read once the limit
    is reached.  Raises KlogError.
    """
    limit = LineLimit(query.wanted.limit)
    cores = parallelism(spark)
    for wave in _waves(plan_tasks(partitions, query.wanted, isolation, piece_bytes=0), cores, limit.left is None):
        packs = pack_tasks([piece.bytes for piece in wave], least=cores)
        units = [[wave[i] for i in numbers] for numbers in packs]
        sizes = [sum(piece.bytes for piece in unit) for unit in units]
        yield from merge_results(results(spark, job, units, query, sizes, sink, "klog search"), limit)
        if limit.left == 0:
            return


def _waves(every: Sequence[ExportTask], cores: int, at_once: bool) -> Iterator[list[ExportTask]]:
    """Yield the pieces in parts that become larger; *at_once*: the first is large, for all of them will be read."""
    wave, size = list[ExportTask](), 0
    most = cores * TASK_BYTES
    largest = _MOST_TASKS_A_CORE * most
    most = largest if at_once else most
    for piece in every:
        wave.append(piece)
        size += piece.bytes
        if size >= most:
            yield wave
            wave, size, most = [], 0, min(2 * most, largest)
    if wave:
        yield wave
