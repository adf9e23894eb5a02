"""`audit` on Spark: tasks pass over headers and read candidates again; the driver finds digests that occur twice.

Entries come in waves: the driver has those of one wave in memory, and as much of the table of digests as it may.  How
many there will be is not known before the first wave, so that is a small one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from klog.base.progress import Silence, Sink
from klog.commands.audit.digest_table import DigestTable
from klog.commands.audit.headers import HeaderOptions, LogReport, log_report, read_headers
from klog.commands.audit.partitions import AuditLog
from klog.commands.audit.survey import units_of
from klog.jobs.results import TaskResult
from klog.spark.run import parallelism, results

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

U = TypeVar("U")
O = TypeVar("O")  # noqa: E741
_UNIT_BYTES: Final = 1 << 30
"""Of a task: where batches are large, the headers of so many bytes take no longer than a task takes to start."""
_WAVE_BYTES: Final = 2 << 30
"""Of the logs in the first wave."""
_WAVE_ENTRIES: Final = 256 << 20
"""So many bytes of entries come in a later wave, if there are no more of them than in those before."""
_NAME: Final = "klog audit"


class SparkAudit:
    """Runs an audit on Spark: see AuditEngine.  *memory*: bytes for the table of digests, in the driver."""

    def __init__(self, spark: SparkSession, memory: int, sink: Sink | None = None) -> None:
        self._spark, self._memory, self._sink = spark, memory, sink or Silence()

    def headers(self, logs: Sequence[AuditLog], options: HeaderOptions) -> tuple[list[LogReport], DigestTable]:
        """Pass over the headers in tasks.  Paths must lead to the same files there."""
        table, reports = DigestTable(self._memory), list[LogReport]()
        units, sizes = units_of(logs, _UNIT_BYTES, parallelism(self._spark))
        done, load, most = 0, 0, _WAVE_BYTES
        try:
            while done < len(units):
                first, before, wave = done, load, 0
                while done < len(units) and (done == first or wave + sizes[done] <= most):
                    wave, done = wave + sizes[done], done + 1
                some = units[first:done], options, sizes[first:done]
                for answer in results(self._spark, read_headers, *some, self._sink, _NAME):
                    if answer.kind == "entries":
                        table.add(answer.content)
                        load += len(answer.content)
                    else:
                        reports.append(log_report(answer))
                most = max(_WAVE_BYTES, _WAVE_ENTRIES * wave // max(load - before, 1))
        except BaseException:
            table.close()
            raise
        return reports, table

    def run(
        self, job: Callable[[U, O], Iterator[TaskResult]], units: Sequence[U], options: O, sizes: Sequence[int]
    ) -> list[TaskResult]:
        """Do *job* in a task for each of *units*; a single one is done here: that takes less than to start a task."""
        if len(units) < 2:
            return [answer for unit in units for answer in job(unit, options)]
        return list(results(self._spark, job, units, options, sizes, self._sink, _NAME))
