"""The commands on Spark: a session around the library and the other commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from klog.base.progress import Sink
from klog.commands.audit.audit import AuditOptions, audit_misrouted
from klog.commands.audit.partitions import AuditQuery
from klog.data_dir.partition import Partition
from klog.jobs.export import ExportOptions
from klog.jobs.output import Facts
from klog.jobs.results import TaskResult
from klog.jobs.search import SearchQuery
from klog.jobs.stats import Stats
from klog.partition.transactions.isolation import Isolation
from klog.partition.verify.segment import SurveyOptions
from klog.partition.verify.verify import Chosen, PartitionResult
from klog.partition.verify.workers import Wanted
from klog.spark.session import Session, session

from klog_cli.output import Results
from klog_cli.views.audit import show as show_misrouted
from klog_cli.views.verify import verify as show


class SparkEngine(NamedTuple):
    """The cluster on which Spark computes, its settings, and the way klog is shipped to it."""

    master: str | None
    conf: dict[str, str]
    ship: str

    def search(
        self,
        partitions: Sequence[Partition],
        query: SearchQuery,
        isolation: Isolation,
        sink: Sink,
        take: Callable[[TaskResult], object],
    ) -> None:
        """Search on Spark; see `klog_cli.engines.Engine`."""
        from klog.spark.search import search

        with self.session() as ours:
            for answer in search(ours.spark, partitions, query, isolation, sink):
                take(answer)

    def stats(self, partitions: Sequence[Partition], max_batch_bytes: int, sink: Sink) -> list[Stats]:
        """Count on Spark."""
        from klog.spark.stats import stats

        with self.session() as ours:
            return stats(ours.spark, partitions, max_batch_bytes, sink)

    def export(
        self, partitions: Sequence[Partition], to: str, options: ExportOptions, isolation: Isolation, sink: Sink
    ) -> Facts:
        """Write on Spark."""
        from klog.spark.export import export

        with self.session() as ours:
            return export(ours.spark, partitions, to, options, isolation, sink)

    def session(self) -> AbstractContextManager[Session]:
        """Return a session, to be used in a block."""
        return session(self.master, self.conf, self.ship, brief=True)


def verify(
    paths: Sequence[str],
    topics: Sequence[str],
    numbers: Sequence[int],
    request: SurveyOptions,
    form: str,
    where: SparkEngine,
) -> int:
    """Check all of *paths* on Spark and return the exit code."""
    from klog.spark.verify import verify as run

    def way(wanted: Wanted, request: SurveyOptions, sink: Sink, chosen: Chosen | None) -> Iterable[PartitionResult]:
        with where.session() as ours:
            return list(run(ours.spark, wanted, request, sink, chosen))

    return show(paths, topics, numbers, request, None, form, way)


def audit(query: AuditQuery, request: AuditOptions, form: str, memory: int, where: SparkEngine) -> int:
    """Find misrouted batches on Spark and return the exit code."""
    from klog.spark.audit import SparkAudit

    with where.session() as ours, Results() as results:
        report = audit_misrouted(query, request, SparkAudit(ours.spark, memory, results))
    return show_misrouted(report, form)
