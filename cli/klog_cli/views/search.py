"""The output of `klog search`: matching lines, and damage."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from klog.base.errors import ExitCode
from klog.data_dir.partition import Partition
from klog.jobs.runner import Runner, TaskResult
from klog.jobs.search import SearchQuery, search_partitions
from klog.partition.transactions.isolation import Isolation

from klog_cli import output


def search(
    partitions: Sequence[Partition],
    query: SearchQuery,
    isolation: Isolation,
    runner: AbstractContextManager[Runner],
) -> int:
    """Print the records that match *query* and return the exit code."""
    damages = 0
    with output.Results() as results, runner as running:

        def take(result: TaskResult) -> None:
            nonlocal damages
            if result.kind == "lines":
                results.write(result.content)
            else:
                results.report(output.printable(result.facts["message"]))
                damages += 1

        search_partitions(partitions, query, isolation, running, results, take)
    return ExitCode.PROBLEMS_LEFT if damages else 0
