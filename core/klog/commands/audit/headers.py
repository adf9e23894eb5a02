"""The pass over the headers of all partitions: a job over logs, and the survey that its answers make.

The answers are entries for the table of digests, and facts of each log.  The kernel walks from header to header; a
stretch at which it stops, or with impossible headers, is read once more batch by batch with checksums, and behind
damage only intact batches count.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, groupby
from typing import Final, NamedTuple, TypeVar

from klog.base.errors import KlogError
from klog.base.progress import Sink
from klog.base.read_only import ReadOnlyFile
from klog.commands.audit.audited_partitions import AuditLog, AuditPartition, audit_logs
from klog.commands.audit.digest_table import DigestTable
from klog.commands.audit.twins import PartitionNames
from klog.formats.damage import Damage, DamageKind
from klog.formats.java_integers import LONG_MAX
from klog.jobs.runner import Job, Runner, TaskResult, Threads, collect, json_result
from klog.jobs.slices import pack_tasks
from klog.kernel import DONE, ENTRY_FULL, HeaderPass, Window
from klog.log.reader import MAX_BATCH_BYTES
from klog.log.records import intact_runs
from klog.log.segment import Segment

FOR_EVER: Final = -1
_MOST_DAMAGES: Final = 10
_kept = threading.local()


class TopicLimits(NamedTuple):
    """The limits in a topic's settings retention.ms (−1 for ever) and max.message.bytes, as in Kafka."""

    retention_ms: int = FOR_EVER
    max_message_bytes: int = LONG_MAX


class HeaderOptions(NamedTuple):
    """*secret*: 16 bytes for the digests.  *latest_ms*: greater timestamps are in the future.

    *limits*: by the places of partitions; those that are not there have none.
    """

    secret: bytes
    latest_ms: int = LONG_MAX
    limits: Mapping[int, TopicLimits] = {}  # never changed
    max_batch_bytes: int = MAX_BATCH_BYTES


class Sighting(NamedTuple):
    """Batches of a kind: how many, the place of the first, and the most remarkable value."""

    batches: int = 0
    position: int = 0
    offset: int = 0
    value: int = 0


class ProducerRun(NamedTuple):
    """A producer's batches in one epoch: sequences of its first batch (with its place) and of its last."""

    producer_id: int
    epoch: int
    first_sequence: int
    first_offset: int
    first_position: int
    last_sequence: int


class SequenceBreak(NamedTuple):
    """A batch that does not begin behind the last sequence of its producer and epoch."""

    position: int
    offset: int
    producer_id: int
    epoch: int
    expected: int
    found: int


class HeaderFacts(NamedTuple):
    """The facts in the headers of a log.  They count data batches, unless they are called control batches; −1: there is
    none.

    *single*: batches of one record.  *codecs*: batches by codec.  *earliest*: base timestamp, ms.  *legacy*: v0 and v1.
    *future*, *past*, *oversized*: see `klog.commands.audit.header_findings`.
    """

    data_batches: int
    control_batches: int
    records: int
    bytes: int
    single: int
    earliest: int
    first_offset: int
    last_offset: int
    legacy: int
    legacy_bytes: int
    legacy_latest: int
    has_append_time: bool
    codecs: tuple[int, ...]
    future: Sighting
    past: Sighting
    oversized: Sighting


class LogReport(NamedTuple):
    """The result for a log.  *runs*: its producers, by their first batches; *has_more_runs*: not all were followed.

    *damage*: places that are not intact, the first of them as text; *tail*: an end that is not finished; *unreadable*:
    the reason why it could not be read.
    """

    number: int
    facts: HeaderFacts
    runs: tuple[ProducerRun, ...]
    breaks: int
    first_break: SequenceBreak | None
    has_more_runs: bool
    damages: int
    damage: tuple[str, ...]
    tail: str | None
    unreadable: str | None


def read_headers(unit: Sequence[AuditLog], options: HeaderOptions) -> Iterator[TaskResult]:
    """Pass over the logs of *unit*: the answers are `entries`, 24 bytes a data batch, and a `log` for each of them.

    Neither content nor unreadable files raise an error: the report has them.
    """
    made: tuple[bytes, HeaderPass] | None = getattr(_kept, "headers", None)
    if made is None or made[0] != options.secret:
        made = _kept.headers = options.secret, HeaderPass(options.secret)
    for log in unit:
        yield from _read_log(log, made[1], options)


def _read_log(log: AuditLog, headers: HeaderPass, options: HeaderOptions) -> Iterator[TaskResult]:
    limits = options.limits.get(log.partition, TopicLimits())
    headers.begin(log.number, log.skip_from, log.skip_to, log.log_start, options.latest_ms, *limits)
    damages: list[Damage] = []
    tail = unreadable = None
    try:
        with ReadOnlyFile(log.path) as source:
            for found in _walk(source, headers, options.max_batch_bytes):
                if not isinstance(found, Damage):
                    yield TaskResult("entries", found, log.number)
                elif found.kind is DamageKind.UNREADABLE:
                    unreadable = str(found)
                elif log.is_last and found.is_unfinished and (found.size is None or found.end >= source.size):
                    tail = str(found)
                else:
                    damages.append(found)
    except KlogError as error:
        if os.path.lexists(log.path):  # otherwise the broker that runs here has deleted it
            unreadable = str(error)
    yield TaskResult("entries", headers.entries(), log.number)
    yield json_result("log", _report(log, headers, damages, tail, unreadable), log.number)


def _report(
    log: AuditLog, headers: HeaderPass, damages: Sequence[Damage], tail: str | None, unreadable: str | None
) -> tuple[object, ...]:
    breaks, first = headers.gaps_found()
    shown = [str(one) for one in damages[:_MOST_DAMAGES]]
    runs = headers.runs_found()
    facts = headers.facts_found()
    return (log.number, facts, runs, breaks, first, headers.has_more_runs, len(damages), shown, tail, unreadable)


def log_report(result: TaskResult) -> LogReport:
    """Return the report that `read_headers` sent."""
    number, facts, runs, breaks, first, has_more_runs, damages, damage, tail, unreadable = result.facts
    counts, sightings = facts[:-3], (Sighting(*one) for one in facts[-3:])
    made = HeaderFacts(*counts, *sightings)
    of_producers = tuple(ProducerRun(*run) for run in runs)
    broken = SequenceBreak(*first) if first else None
    return LogReport(
        number, made, of_producers, breaks, broken, has_more_runs, damages, tuple(damage), tail, unreadable
    )


def _walk(source: ReadOnlyFile, headers: HeaderPass, max_batch_bytes: int) -> Iterator[bytes | Damage]:
    """Pass over an open log; yield entries when there are many, and each Damage."""
    status, position = ENTRY_FULL, 0
    while status == ENTRY_FULL:
        start, before = position, headers.bytes_read
        status, position = headers.read(source.fileno(), start, source.size, source.piece_bytes or source.size)
        source.passed(start, position, headers.bytes_read - before)
        if status == ENTRY_FULL:
            yield headers.entries()
    if status != DONE:
        yield from _walk_carefully(source, headers, position, max_batch_bytes)


def _walk_carefully(
    source: ReadOnlyFile, headers: HeaderPass, position: int, max_batch_bytes: int
) -> Iterator[bytes | Damage]:
    """Do the same from byte *position* on with checksums: intact batches only, also those behind damage."""
    segment = Segment(source.path)
    reader = segment.reader(source, position, max_batch_bytes=max_batch_bytes)
    window = Window(1, 256, 1)
    while piece := reader.next(window):
        for run in intact_runs(window, source.path, segment.span):
            if run.damage:
                yield run.damage
                continue
            at = run.first
            while (at := headers.take(run.window, at, run.end)) < run.end:
                yield headers.entries()
        if piece.damage:
            yield piece.damage
    headers.finish()


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
            self.note(f"{table.spilled_bytes} bytes of digests are in an unnamed file")
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
