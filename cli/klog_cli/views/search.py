"""The output of `klog search`: matching lines, and damage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from klog.base.errors import ExitCode
from klog.data_dir.partition import Partition
from klog.jobs.results import TaskResult
from klog.jobs.search import SearchQuery
from klog.partition.transactions.isolation import Isolation

from klog_cli import output

if TYPE_CHECKING:
    from klog_cli.engines import Engine


def search(partitions: Sequence[Partition], query: SearchQuery, isolation: Isolation, engine: Engine) -> int:
    """Print the records that match *query* and return the exit code."""
    damages = 0
    with output.Results() as results:

        def take(answer: TaskResult) -> None:
            nonlocal damages
            if answer.kind == "lines":
                results.write(answer.content)
            else:
                results.report(output.printable(answer.facts["message"]))
                damages += 1

        engine.search(partitions, query, isolation, results, take)
    return ExitCode.PROBLEMS_LEFT if damages else 0
