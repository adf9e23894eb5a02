"""The commands on Spark: a session around what the library and the other commands do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from klog.progress import Sink
from klog.spark.session import session
from klog.verify.segment import SurveyOptions
from klog.verify.verify import Chosen, PartitionResult

from klog_cli.views.verify import Wanted
from klog_cli.views.verify import verify as show


class Where(NamedTuple):
    """Where Spark computes, with which settings, and how klog gets there."""

    master: str | None
    conf: dict[str, str]
    ship: str


def verify(
    paths: Sequence[str], topics: Sequence[str], numbers: Sequence[int], request: SurveyOptions, form: str, where: Where
) -> int:
    """Check all of *paths* on Spark and return the exit code."""
    from klog.spark.verify import verify as run

    def way(wanted: Wanted, request: SurveyOptions, sink: Sink, chosen: Chosen | None) -> Iterable[PartitionResult]:
        with session(where.master, where.conf, where.ship, brief=True) as ours:
            return list(run(ours.spark, wanted, request, sink, chosen))

    return show(paths, topics, numbers, request, None, form, way)
