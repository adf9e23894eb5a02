"""`audit` on Spark: tasks pass over headers and read candidates again; the driver finds digests that occur twice.

Entries come in waves: the driver has those of one wave in memory, and as much of the table of digests as it may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from klog.audit.digest_table import DigestTable
from klog.audit.headers import HeaderOptions, LogReport, log_report, read_headers
from klog.audit.partitions import AuditLog
from klog.audit.survey import units_of
from klog.jobs.results import TaskResult
from klog.progress import Silence, Sink
from klog.spark.run import parallelism, results

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

U = TypeVar("U")
O = TypeVar("O")  # noqa: E741
_WAVE_BYTES: Final = 4 << 30
_NAME: Final = "klog audit"


class SparkAudit:
    """An engine for `klog.audit`: see AuditEngine.  *memory*: bytes for the table of digests, in the driver."""

    def __init__(self, spark: SparkSession, memory: int, sink: Sink | None = None) -> None:
        self._spark, self._memory, self._sink = spark, memory, sink or Silence()

    def headers(self, logs: Sequence[AuditLog], options: HeaderOptions) -> tuple[list[LogReport], DigestTable]:
        """Pass over the headers in tasks.  Paths must lead to the same files there."""
        table, reports = DigestTable(self._memory), list[LogReport]()
        units, sizes = units_of(logs, parallelism(self._spark))
        try:
            for wave in _waves(sizes):
                some, loads = [units[i] for i in wave], [sizes[i] for i in wave]
                for answer in results(self._spark, read_headers, some, options, loads, self._sink, _NAME):
                    if answer.kind == "entries":
                        table.add(answer.content)
                    else:
                        reports.append(log_report(answer))
        except BaseException:
            table.close()
            raise
        return reports, table

    def run(
        self, job: Callable[[U, O], Iterator[TaskResult]], units: Sequence[U], options: O, sizes: Sequence[int]
    ) -> list[TaskResult]:
        """Do *job* in a task for each of *units*."""
        return list(results(self._spark, job, units, options, sizes, self._sink, _NAME)) if units else []


def _waves(sizes: Sequence[int]) -> Iterator[list[int]]:
    """Yield the numbers of units that go together."""
    wave: list[int] = []
    load = 0
    for number, size in enumerate(sizes):
        wave.append(number)
        load += size
        if load >= _WAVE_BYTES:
            yield wave
            wave, load = [], 0
    if wave:
        yield wave
