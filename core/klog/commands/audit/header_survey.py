"""The pass over the headers of all partitions."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, groupby
from typing import Final, NamedTuple, TypeVar

from klog.base.progress import Sink
from klog.commands.audit.audited_partitions import AuditLog, AuditPartition, audit_logs
from klog.commands.audit.digest_table import DigestTable
from klog.commands.audit.headers import HeaderOptions, LogReport, ProducerRun, log_report, read_headers
from klog.commands.audit.twins import PartitionNames
from klog.jobs.runner import Job, Runner, TaskResult, Threads, collect
from klog.jobs.slices import pack_tasks

U = TypeVar("U")
O = TypeVar("O")  # noqa: E741
_UNIT_BYTES: Final = 64 << 20
_FIRST_BYTES: Final = 2 << 30
"""The number of entries is unknown before the first wave."""


class AuditWorkers(NamedTuple):
    """The *runner* of an audit's jobs, which reports to *sink*, and the *memory* in bytes for the table of digests.

    *note*: receives a message when the table spills.
    """

    runner: Runner
    memory: int
    sink: Sink
    note: Callable[[str], object] = len

    def run(
        self, job: Callable[[U, O], Iterator[TaskResult]], units: Sequence[U], options: O, sizes: Sequence[int]
    ) -> list[TaskResult]:
        """Do *job* for each of *units*; a single one is done here: that takes less than to start a task."""
        return collect(self.runner if len(units) > 1 else Threads(1), Job(job, units, options, sizes), self.sink)

    def headers(self, logs: Sequence[AuditLog], options: HeaderOptions) -> tuple[list[LogReport], DigestTable]:
        """Pass over the headers of *logs*; return a report of each, and the table of their entries."""
        packs = pack_tasks([log.size for log in logs], _UNIT_BYTES, 4 * self.runner.workers)
        units = [[logs[i] for i in pack] for pack in packs]
        sizes = [sum(log.size for log in unit) for unit in units]
        table, reports = DigestTable(self.memory), list[LogReport]()

        def take(result: TaskResult) -> None:
            if result.kind == "entries":
                table.add(result.content)
            else:
                reports.append(log_report(result))

        try:
            self.runner.run(Job(read_headers, units, options, sizes), self.sink, take, _FIRST_BYTES)
        except BaseException:
            table.close()
            raise
        if table.spilled_bytes:
            self.note(f"{table.spilled_bytes} bytes of digests went to a file without a name")
        return sorted(reports, key=lambda report: report.number), table


class HeaderSurvey:
    """The headers of all partitions.  Close it after use."""

    def __init__(self, partitions: Sequence[AuditPartition], workers: AuditWorkers, options: HeaderOptions) -> None:
        self.partitions = partitions
        self.logs = audit_logs(partitions)
        self.workers = workers
        self.reports, self.table = workers.headers(self.logs, options)
        self._firsts: dict[int, dict[int, ProducerRun]] = {}

    def __enter__(self) -> HeaderSurvey:
        return self

    def __exit__(self, *_: object) -> None:
        self.table.close()

    @cached_property
    def by_partition(self) -> Mapping[int, list[LogReport]]:
        """The reports of each partition's logs, ascending."""
        numbered = groupby(self.reports, key=lambda report: self.logs[report.number].partition)
        return {partition: list(reports) for partition, reports in numbered}

    @cached_property
    def names(self) -> PartitionNames:
        """The input of the search for twins."""
        first_number: list[int] = []
        for partition in range(len(self.partitions)):
            counts = [report.facts.data_batches for report in self.by_partition.get(partition, [])]
            first_number += list(accumulate(counts, initial=0))[: len(counts)]
        return PartitionNames(
            [one.topic for one in self.partitions],
            [one.name for one in self.partitions],
            [log.partition for log in self.logs],
            first_number,
        )

    @cached_property
    def batches(self) -> Counter[str]:
        """Data batches by topic."""
        counts: Counter[str] = Counter()
        for report in self.reports:
            counts[self.partitions[self.logs[report.number].partition].topic] += report.facts.data_batches
        return counts

    def first_batch(self, partition: int, producer_id: int) -> ProducerRun | None:
        """Return the run with which a producer begins in a partition, None if it has none."""
        if partition not in self._firsts:
            firsts: dict[int, ProducerRun] = {}
            for report in self.by_partition.get(partition, []):
                for one in report.runs:
                    firsts.setdefault(one.producer_id, one)
            self._firsts[partition] = firsts
        return self._firsts[partition].get(producer_id)

    def file(self, log: int) -> str:
        """Return a log's path relative to its log dir."""
        directory, name = os.path.split(self.logs[log].path)
        return f"{os.path.basename(directory)}/{name}"
