"""Checks whole partitions: findings, and how much was read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from klog.base.errors import KlogError
from klog.base.progress import Silence, Sink
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.jobs.runner import CHUNK, FEWEST, Job, Processes, Runner, TaskResult, collect, may_fork, pickled_result
from klog.jobs.slices import pack_tasks
from klog.partition.verify.findings import KINDS, Finding, LogDirFacts
from klog.partition.verify.segment_pass import SurveyOptions
from klog.partition.verify.verify import (
    Chosen,
    Observe,
    PartitionResult,
    VerifyTotals,
    log_dir_facts,
    verify_partition,
)

Wanted = Sequence[tuple[Partition, LogDirFacts]]
"""The partitions to check, each with the facts about its log dir."""
Take = Callable[[PartitionResult], object]

_SENT_FINDINGS: Final = 4096
_SAMPLE: Final = 32
_SMALL_BYTES: Final = 8 << 20


class VerifyTask(NamedTuple):
    """A partition, its *number* among all that are checked, and the log dir around it, None if it is alone."""

    number: int
    path: str
    log_dir: str | None


class VerifyOptions(NamedTuple):
    """How partitions are checked: see `klog.partition.verify.verify.verify_partition`."""

    request: SurveyOptions = SurveyOptions()
    chosen: Chosen | None = None


def verify_partitions(
    wanted: Wanted,
    request: SurveyOptions,
    sink: Sink,
    take: Take,
    chosen: Chosen | None,
    observe: Observe | None = None,
) -> None:
    """Check one partition after the other and hand each result to *take*; many small ones in several processes.

    A summary then crosses from one process to another, so it must be plain data.  The threads of large segments share
    one process, which also reports progress as it is made.
    """
    if request.jobs == 1 or len(wanted) < FEWEST or not may_fork() or not _are_small(wanted):
        for partition, around in wanted:
            take(verify_partition(partition, around, request, sink, chosen, observe))
        return

    def job(numbers: range, request: SurveyOptions) -> Iterator[TaskResult]:
        for number in numbers:
            found = verify_partition(*wanted[number], request, Silence(), chosen, observe)
            yield pickled_result("checked", found[1:], number)

    def took(result: TaskResult) -> None:
        findings, totals, summary = result.value
        sink.expect(totals.bytes)
        sink.advance(totals.bytes)
        take(PartitionResult(wanted[result.number][0], findings, totals, summary))

    units = [range(first, min(first + CHUNK, len(wanted))) for first in range(0, len(wanted), CHUNK)]
    alone = Job(job, units, request._replace(jobs=1), [0] * len(units))
    Processes(request.jobs).run(alone, Silence(), took)


def _are_small(wanted: Wanted) -> bool:
    """Whether the partitions, judged by a few of them, have little in each segment."""
    segments = size = 0
    for partition, _ in islice(wanted, 0, None, max(1, len(wanted) // _SAMPLE)):
        for files in partition.segments:
            try:
                size += os.stat(os.path.join(partition.path, files.log)).st_size
            except OSError:
                continue  # the pass says why
            segments += 1
    return size <= segments * _SMALL_BYTES


def verify_in_tasks(
    runner: Runner, wanted: Wanted, request: SurveyOptions, sink: Sink, take: Take, chosen: Chosen | None = None
) -> None:
    """Do as `verify_partitions` does, by tasks of several partitions, which may run on other machines.

    Tasks find everything by its path: it must lead to the same files there.
    """
    sizes = [partition.size for partition, _ in wanted]
    packs = pack_tasks(sizes, least=runner.workers)
    units = [[VerifyTask(i, wanted[i][0].path, wanted[i][1].path) for i in pack] for pack in packs]
    loads = [sum(sizes[i] for i in pack) for pack in packs]
    results = collect(runner, Job(verify, units, VerifyOptions(request, chosen), loads), sink)
    for checked in collect_results(results, [partition for partition, _ in wanted]):
        take(checked)


def collect_results(results: Iterable[TaskResult], partitions: Sequence[Partition]) -> Iterator[PartitionResult]:
    """Yield the result of each of *partitions* that was checked, in their order, from the results of all units."""
    found: dict[int, list[Finding]] = {}
    totals: dict[int, VerifyTotals] = {}
    for result in results:
        if result.kind == "findings":
            found.setdefault(result.number, []).extend(result.value)
        else:
            totals[result.number] = result.value
    for number in sorted(totals):
        yield PartitionResult(partitions[number], found.get(number, []), totals[number])


def verify(unit: Sequence[VerifyTask], options: VerifyOptions) -> Iterator[TaskResult]:
    """Check each partition of *unit*: results are its findings, and in the end its totals.

    Raises nothing for what is on the disk: that is a finding.
    """
    log_dirs: dict[str, tuple[LogDir, LogDirFacts]] = {}
    for task in unit:
        checked = _checked(task, options, log_dirs)
        for first in range(0, len(checked.findings), _SENT_FINDINGS):
            yield pickled_result("findings", checked.findings[first : first + _SENT_FINDINGS], task.number)
        yield pickled_result("totals", checked.totals, task.number)


def _checked(
    task: VerifyTask, options: VerifyOptions, log_dirs: dict[str, tuple[LogDir, LogDirFacts]]
) -> PartitionResult:
    partition = Partition(task.path)
    try:
        around = None
        if task.log_dir is not None:
            if task.log_dir not in log_dirs:
                log_dir = LogDir(task.log_dir)
                log_dirs[task.log_dir] = log_dir, log_dir_facts(log_dir)
            log_dir, around = log_dirs[task.log_dir]
            partition = Partition(task.path, log_dir.checkpoints)
        return verify_partition(partition, around, options.request, chosen=options.chosen)
    except KlogError as error:
        kind = KINDS["unreadable"]
        topic, number, name = partition.topic, partition.number, partition.directory
        finding = Finding(kind, topic, number, name, None, None, str(error), kind.broker, kind.fix)
        return PartitionResult(partition, [finding], VerifyTotals(1))
