"""The pass over the headers of all partitions, and who makes it: threads of this machine, or Spark."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, groupby
from threading import Lock
from typing import Final, Protocol, TypeVar

from klog.base.progress import Sink
from klog.commands.audit.digest_table import DigestTable
from klog.commands.audit.headers import HeaderOptions, LogReport, ProducerRun, log_report, read_headers
from klog.commands.audit.partitions import AuditLog, AuditPartition, audit_logs
from klog.commands.audit.twins import PartitionNames
from klog.jobs.results import TaskResult
from klog.jobs.slices import pack_tasks
from klog.jobs.units import run

U = TypeVar("U")
O = TypeVar("O")  # noqa: E741
_UNIT_BYTES: Final = 64 << 20


class RepeatedEntries(Protocol):
    """The entries of batches that share their digest with another; see DigestTable."""

    thinned: Counter[tuple[int, int]]

    def repeated(self) -> Iterator[bytes]:
        """Yield them by digest, log and position; may be called again."""

    def close(self) -> None:
        """Give back what is on the disk."""


class AuditEngine(Protocol):
    """Does the jobs of an audit; the results do not depend on which worker does them."""

    def headers(self, logs: Sequence[AuditLog], options: HeaderOptions) -> tuple[list[LogReport], RepeatedEntries]:
        """Pass over the headers of *logs*; return a report of each, in any order, and the entries that are repeated."""

    def run(
        self, job: Callable[[U, O], Iterator[TaskResult]], units: Sequence[U], options: O, sizes: Sequence[int]
    ) -> list[TaskResult]:
        """Do *job* for each of *units*; return all answers, in the order of the units."""


class LocalAudit:
    """This machine: *workers* threads, *memory* bytes for the table of digests.  *note*: hears of spilling."""

    def __init__(self, workers: int, memory: int, sink: Sink, note: Callable[[str], object] = len) -> None:
        self._workers, self._memory, self._sink, self._note = workers, memory, sink, note

    def headers(self, logs: Sequence[AuditLog], options: HeaderOptions) -> tuple[list[LogReport], DigestTable]:
        """Pass over the headers on threads; entries go into a table."""
        table, reports, adding = DigestTable(self._memory), list[LogReport](), Lock()

        def job(unit: Sequence[AuditLog], options: HeaderOptions) -> Iterator[TaskResult]:
            for answer in read_headers(unit, options):
                if answer.kind == "entries":  # in any order: no thread waits for another one's unit
                    with adding:
                        table.add(answer.content)
                else:
                    yield answer

        def take(answer: TaskResult) -> bool:
            reports.append(log_report(answer))
            return False

        try:
            units, sizes = units_of(logs, _UNIT_BYTES, 4 * self._workers)
            run(job, units, options, sizes, self._sink, self._workers, take)
        except BaseException:
            table.close()
            raise
        if table.spilled_bytes:
            self._note(f"{table.spilled_bytes} bytes of digests went to a file without a name")
        return reports, table

    def run(
        self, job: Callable[[U, O], Iterator[TaskResult]], units: Sequence[U], options: O, sizes: Sequence[int]
    ) -> list[TaskResult]:
        """Do *job* on threads."""
        answers: list[TaskResult] = []

        def take(answer: TaskResult) -> bool:
            answers.append(answer)
            return False

        run(job, units, options, sizes, self._sink, self._workers, take)
        return answers


def units_of(logs: Sequence[AuditLog], unit_bytes: int, least: int) -> tuple[list[list[AuditLog]], list[int]]:
    """Share out logs among units of work of about *unit_bytes*, at *least* so many; return them with their bytes."""
    packs = pack_tasks([log.size for log in logs], unit_bytes, least)
    return [[logs[i] for i in pack] for pack in packs], [sum(logs[i].size for i in pack) for pack in packs]


class HeaderSurvey:
    """What the headers of all partitions say.  To be closed."""

    def __init__(self, partitions: Sequence[AuditPartition], engine: AuditEngine, options: HeaderOptions) -> None:
        self.partitions = partitions
        self.logs = audit_logs(partitions)
        self.engine = engine
        found, self.table = engine.headers(self.logs, options)
        self.reports = sorted(found, key=lambda report: report.number)
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
        """What the search for twins has to know."""
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
