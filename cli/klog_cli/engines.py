"""The engine of search, stats and export: this machine's cores, or Spark; a command is declared once for both."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, get_type_hints

from klog_cli import options

if TYPE_CHECKING:
    from klog.base.progress import Sink
    from klog.data_dir.partition import Partition
    from klog.jobs.export import ExportOptions
    from klog.jobs.output import Facts
    from klog.jobs.results import TaskResult
    from klog.jobs.search import SearchQuery
    from klog.jobs.stats import Stats
    from klog.partition.transactions.isolation import Isolation


class Engine(Protocol):
    """Runs jobs; *sink* receives the progress.  Results do not depend on the engine."""

    def search(
        self,
        partitions: Sequence[Partition],
        query: SearchQuery,
        isolation: Isolation,
        sink: Sink,
        take: Callable[[TaskResult], object],
    ) -> None:
        """Pass the matches to *take*, ordered by topic, partition and offset."""

    def stats(self, partitions: Sequence[Partition], max_batch_bytes: int, sink: Sink) -> list[Stats]:
        """Count the records of each partition."""

    def export(
        self, partitions: Sequence[Partition], to: str, options: ExportOptions, isolation: Isolation, sink: Sink
    ) -> Facts:
        """Write the records as files below *to* and return the manifest."""


class LocalEngine(NamedTuple):
    """This machine: *workers* threads."""

    workers: int

    def search(
        self,
        partitions: Sequence[Partition],
        query: SearchQuery,
        isolation: Isolation,
        sink: Sink,
        take: Callable[[TaskResult], object],
    ) -> None:
        """Search on threads."""
        from klog.jobs.local import search

        search(partitions, query, isolation, sink, self.workers, take)

    def stats(self, partitions: Sequence[Partition], max_batch_bytes: int, sink: Sink) -> list[Stats]:
        """Count on threads."""
        from klog.jobs.local import stats

        return stats(partitions, max_batch_bytes, sink, self.workers)

    def export(
        self, partitions: Sequence[Partition], to: str, options: ExportOptions, isolation: Isolation, sink: Sink
    ) -> Facts:
        """Write on threads."""
        from klog.jobs.local import export

        return export(partitions, to, options, isolation, sink, self.workers)


Command = Callable[..., int]


def local(command: Command) -> Command:
    """Return *command*, whose first parameter is an Engine, as one for this machine, with `--jobs`."""

    def run(jobs: int | None = None, **given: Any) -> int:
        return command(LocalEngine(jobs or os.cpu_count() or 1), **given)

    return _declared(run, command, {"jobs": (options.Jobs, None)})


def on_spark(command: Command) -> Command:
    """Return *command*, whose first parameter is an Engine, as one on Spark, with Spark's options."""

    def run(master: str | None, conf: list[str] | None, ship: str, **given: Any) -> int:
        from klog_cli.views.spark.jobs import SparkEngine

        return command(SparkEngine(master, options.spark_settings(conf), ship), **given)

    more = {"master": (options.Master, None), "conf": (options.SparkConf, None), "ship": (options.Ship, "archive")}
    return _declared(run, command, more)


def _declared(run: Command, command: Command, more: Mapping[str, tuple[Any, object]]) -> Command:
    """Give *run* the name, the help and the options of *command*; its engine gives way to *more*, before `quiet`."""
    hints = get_type_hints(command, include_extras=True)
    parameters = list(inspect.signature(command).parameters.values())[1:]
    kind = inspect.Parameter.KEYWORD_ONLY
    declared = [one.replace(annotation=hints[one.name], kind=kind) for one in parameters]
    added = [inspect.Parameter(name, kind, default=default, annotation=hint) for name, (hint, default) in more.items()]
    declared[-1:-1] = added
    run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
    run.__signature__ = inspect.Signature(declared, return_annotation=int)  # type: ignore[attr-defined]  # Typer reads it
    run.__annotations__ = {one.name: one.annotation for one in declared}
    return run
