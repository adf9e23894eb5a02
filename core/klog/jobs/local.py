"""search, stats and export on this machine, without Spark: the same jobs, on threads.

The kernel releases the interpreter's lock while it reads a window, so threads use all cores, and no process has to be
started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from klog.base.progress import Sink
from klog.data_dir.partition import Partition
from klog.jobs.export import ExportOptions, plan_tasks, write_all
from klog.jobs.export import export as export_job
from klog.jobs.output import Facts
from klog.jobs.results import TaskResult
from klog.jobs.search import LineLimit, SearchQuery
from klog.jobs.search import search as search_job
from klog.jobs.stats import Stats, StatsOptions, collect_stats, share_out
from klog.jobs.stats import stats as stats_job
from klog.jobs.units import run
from klog.partition.transactions.isolation import Isolation


def search(
    partitions: Iterable[Partition],
    query: SearchQuery,
    isolation: Isolation,
    sink: Sink,
    workers: int,
    take: Callable[[TaskResult], object],
) -> None:
    """Hand the records that *query* asks for to *take*, as answers `lines`, by topic, partition, offset; and `damage`.

    Nothing more is read when the limit is reached.  Raises KlogError.
    """
    limit = LineLimit(query.wanted.limit)

    def cut(answer: TaskResult) -> bool:
        take(limit.cut(answer))
        return limit.left == 0

    made = plan_tasks(partitions, query.wanted, isolation, piece_bytes=0)
    run(search_job, [[one] for one in made], query, [one.bytes for one in made], sink, workers, cut)


def stats(partitions: Sequence[Partition], max_batch_bytes: int, sink: Sink, workers: int) -> list[Stats]:
    """Return what the records of each of *partitions* are like."""
    units, sizes = share_out(partitions, workers)
    answers: list[TaskResult] = []
    run(stats_job, units, StatsOptions.of(partitions, max_batch_bytes), sizes, sink, workers, _collected(answers))
    return collect_stats(answers, partitions)


def _collected(answers: list[TaskResult]) -> Callable[[TaskResult], bool]:
    def take(answer: TaskResult) -> bool:
        answers.append(answer)
        return False

    return take


def export(
    partitions: Iterable[Partition],
    to: str,
    options: ExportOptions,
    isolation: Isolation,
    sink: Sink,
    workers: int,
) -> Facts:
    """Write the records of *partitions* as files below *to* and return the manifest; as `klog.spark.export.export`."""
    return write_all(
        "export",
        export_job,
        partitions,
        to,
        options,
        isolation,
        lambda job, units, options, sizes: run(job, units, options, sizes, sink, workers, _collected([])),
    )
