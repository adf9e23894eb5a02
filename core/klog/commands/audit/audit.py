"""`klog audit`: one pass over the headers of all partitions, its results, and the part of the cluster that it has seen.

With `--deep` it also searches for misrouted batches whose twin is missing, by their records and sequences.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from klog.base.errors import KlogError, UnsupportedError
from klog.cluster.keyed_topics import newest_metadata, topics_by
from klog.cluster.metadata.topic_config import TopicConfig, topic_configs
from klog.commands.audit.audited_partitions import INTERNAL, AuditLog, AuditPartition, AuditQuery, audit_partitions
from klog.commands.audit.batches import BatchContent
from klog.commands.audit.header_findings import (
    CHECKS,
    FUTURE_MS,
    HeaderFinding,
    PartitionHeaders,
    misrouted_findings,
    repeated_batches,
    repeated_findings,
)
from klog.commands.audit.headers import AuditWorkers, HeaderOptions, HeaderSurvey, LogReport, TopicLimits
from klog.commands.audit.misrouted import MisroutedBatch, TopicKey, TwinSearch, in_order, row_of
from klog.commands.audit.twin_verdict import (
    POSSIBLE,
    SIGNS_WITHOUT_TWIN,
    Evidence,
    TopicProfile,
    begins_at_zero,
    is_at_least,
    run_signs,
    signs_at,
)
from klog.commands.audit.twins import LegalTwins, TwinPlace
from klog.data_dir.log_dir import LogDir
from klog.formats.codec import Decompressor
from klog.formats.damage import Damage
from klog.jobs.runner import TaskResult, json_result
from klog.jobs.slices import pack_tasks
from klog.kernel import Window
from klog.log.reader import MAX_BATCH_BYTES
from klog.log.segment import Segment
from klog.partition.verify.findings import LogDirFacts, PartitionFacts

_UNIT_BYTES: Final = 64 << 20


class RecordTask(NamedTuple):
    """A log whose records are read.

    *partition*, *partitions*: its number and the number of its topic's partitions, 0 if keys are no evidence.  *usual*:
    schema ids of the topic, int32s, ascending.  *late*: base offsets of batches that are a producer's first, with a
    late sequence.
    """

    log: AuditLog
    partition: int
    partitions: int
    usual: bytes
    late: frozenset[int]


def read_records(unit: Sequence[RecordTask], max_batch_bytes: int = MAX_BATCH_BYTES) -> Iterator[TaskResult]:
    """Read the records of logs: an answer `odd` for each, with the positions of batches that may be out of place.

    Neither content nor unreadable files raise an error.
    """
    codecs, window = Decompressor(max_batch_bytes).functions, Window(records=64)
    for task in unit:
        found: list[int] = []
        try:
            for run in Segment(task.log.path).runs(max_batch_bytes=max_batch_bytes, window=window):
                if isinstance(run, Damage) or run.damage:
                    continue
                for i, signs in run_signs(run, codecs, task.partition, task.partitions, task.usual):
                    header = run.window.batch(i)
                    is_elsewhere, is_odd = signs.keys > 0 == signs.here, signs.schema >= 0
                    is_late = header.base_offset in task.late
                    is_skipped = task.log.skip_from <= header.base_offset < task.log.skip_to
                    if is_elsewhere + is_odd + is_late >= SIGNS_WITHOUT_TWIN and not is_skipped:
                        found.append(header.position)
        except KlogError:
            pass  # the pass over headers has reported it
        yield json_result("odd", found, task.log.number)


class RecordSearch:
    """The search among the batches of a survey, of which *twins* has those with a twin."""

    def __init__(self, survey: HeaderSurvey, twins: TwinSearch, max_batch_bytes: int = MAX_BATCH_BYTES) -> None:
        self._survey, self._twins, self._max_batch_bytes = survey, twins, max_batch_bytes

    def rows(self, known: Sequence[MisroutedBatch]) -> list[MisroutedBatch]:
        """Return the rows of batches that none of the *known* rows is about, nor has as a twin."""
        profiles = self._twins.profile({self._twins.topic_key(i) for i in range(len(self._survey.partitions))})
        tasks = [self._task(log, profiles) for log in self._survey.logs]
        places = []
        packs = pack_tasks([task.log.size for task in tasks], _UNIT_BYTES)
        units = [[tasks[i] for i in pack] for pack in packs]
        sizes = [sum(task.log.size for task in unit) for unit in units]
        for answer in self._survey.workers.run(read_records, units, self._max_batch_bytes, sizes):
            log = self._survey.logs[answer.number]
            places += [TwinPlace(log.partition, 0, log.number, position, 0, 0) for position in answer.facts]
        contents = self._twins.read(places)
        taken = {place for row in known for place in (row.place, *row.twins)}
        rows = [self._row(place, contents[place], profiles) for place in places if place in contents]
        return [row for row in rows if row is not None and row.place not in taken]

    def _task(self, log: AuditLog, profiles: dict[TopicKey, TopicProfile]) -> RecordTask:
        partition = self._survey.partitions[log.partition]
        profile = profiles[self._twins.topic_key(log.partition)]
        late: set[int] = set()
        if begins_at_zero(partition) and not self._twins.is_compacted(log.partition):
            runs = self._survey.reports[log.number].runs
            late = {
                run.first_offset for run in runs if self._is_first(log.partition, run.producer_id, run.first_offset)
            }
        usual = array("i", profile.usual_schemas).tobytes()
        return RecordTask(log, partition.number, profile.partitions if profile.keys_tell else 0, usual, frozenset(late))

    def _is_first(self, partition: int, producer_id: int, offset: int) -> bool:
        first = self._survey.first_batch(partition, producer_id)
        return first is not None and first.first_offset == offset and first.first_sequence > 0

    def _row(
        self, place: TwinPlace, content: BatchContent, profiles: dict[TopicKey, TopicProfile]
    ) -> MisroutedBatch | None:
        own = self._twins.topic_key(place.partition)
        elsewhere = [profile for key, profile in profiles.items() if key != own]
        late = self._twins.begins_late(place.partition, content)
        signs = signs_at(Evidence(content, late, profiles[own], elsewhere))
        if len(signs) < SIGNS_WITHOUT_TWIN or not self._twins.is_reported(place):
            return None
        return row_of(self._survey, place.partition, place.log, content, POSSIBLE)._replace(reasons=signs)


class Coverage(NamedTuple):
    """*known*: partitions of the cluster as its metadata log has them, None without one; *read*: those that were read.

    *missing*: names of those that are known, or must be there by their numbers, and were not read.  *earliest*:
    timestamp (ms) of the first batch that is still there, None without batches.
    """

    known: int | None
    read: int
    missing: tuple[str, ...]
    earliest: int | None

    @property
    def is_whole(self) -> bool:
        """Whether nothing is known to be missing."""
        return self.known is not None and not self.missing


class TopicCounts(NamedTuple):
    """The known topics around an audit.

    *counts*: partitions of each topic, by name and id.  *known*: by topic the numbers in the metadata log, None without
    one.
    """

    counts: Mapping[tuple[str, str | None], int]
    known: Mapping[str, frozenset[int]] | None


def cluster_topics(partitions: Sequence[AuditPartition], log_dirs: Sequence[LogDir]) -> TopicCounts:
    """Return the partition counts in *log_dirs* for the topics of *partitions*.  Raises UnreadableError."""
    state = newest_metadata(log_dirs)
    try:
        topics = topics_by([copy for one in partitions for copy in one.copies], log_dirs, None, state)
    except UnsupportedError:
        topics = []  # too many partitions for evidence by keys
    counts = {(one.name, one.topic_id): one.partition_count for one in topics}
    if state is None:
        return TopicCounts(counts, None)
    return TopicCounts(
        counts, {name: frozenset(state.partitions.get(id_, ())) for name, id_ in state.topic_ids.items()}
    )


def coverage_of(survey: HeaderSurvey, topics: TopicCounts, query: AuditQuery) -> Coverage:
    """Return how much of the cluster a survey has seen."""
    read = {(one.topic, one.number) for one in survey.partitions}
    known = topics.known
    if known is not None:
        every = {
            (name, number) for name, numbers in known.items() for number in numbers if _is_meant(name, number, query)
        }
    else:
        counts = {(one.topic, topics.counts.get((one.topic, one.topic_id), 0)) for one in survey.partitions}
        every = {(name, number) for name, count in counts for number in range(count) if _is_meant(name, number, query)}
    missing = tuple(f"{name}-{number}" for name, number in sorted(every - read))
    earliest = [report.facts.earliest for report in survey.reports if report.facts.earliest >= 0]
    return Coverage(len(every) if known is not None else None, len(read), missing, min(earliest, default=None))


def _is_meant(name: str, number: int, query: AuditQuery) -> bool:
    if not query.internal and name.startswith(INTERNAL):
        return False
    by_name = not query.topics or any(fnmatchcase(name, glob) for glob in query.topics)
    return by_name and (not query.numbers or number in query.numbers)


MEMORY_BYTES: Final = 256 << 20
"""The part of the table of digests that is kept in memory."""
_SECRET_BYTES = 16


class AuditOptions(NamedTuple):
    """*deep*: read records, for batches without a twin.  *least*: the weakest confidence that is shown."""

    deep: bool = False
    least: str = POSSIBLE
    max_batch_bytes: int = MAX_BATCH_BYTES


class AuditTotals(NamedTuple):
    """How much was looked at: partitions and data batches, each once, and the bytes of these."""

    partitions: int
    batches: int
    bytes: int


class MisroutedReport(NamedTuple):
    """The results of an audit for misrouted batches; *damage*, *tails* and *unreadable* are sentences."""

    totals: AuditTotals
    coverage: Coverage
    rows: tuple[MisroutedBatch, ...]
    legal_twins: tuple[LegalTwins, ...]
    damages: int
    damage: tuple[str, ...]
    tails: tuple[str, ...]
    unreadable: tuple[str, ...]


def audit_misrouted(query: AuditQuery, options: AuditOptions, workers: AuditWorkers) -> MisroutedReport:
    """Find misrouted batches.  Raises UsageError, UnreadableError; KlogError if there is no room to spill."""
    partitions, log_dirs = audit_partitions(query)
    topics = cluster_topics(partitions, log_dirs)
    compacted = compacted_partitions(partitions, log_dirs)
    headers = HeaderOptions(os.urandom(_SECRET_BYTES), max_batch_bytes=options.max_batch_bytes)
    with HeaderSurvey(partitions, workers, headers) as survey:
        search = TwinSearch(survey, topics.counts, compacted, options.max_batch_bytes)
        rows = search.rows()
        if options.deep and options.least == POSSIBLE:
            rows = sorted([*rows, *RecordSearch(survey, search, options.max_batch_bytes).rows(rows)], key=in_order)
        rows = [row for row in rows if is_at_least(row.confidence, options.least)]
        coverage = coverage_of(survey, topics, query)
        return MisroutedReport(
            totals_of(survey), coverage, tuple(rows), tuple(search.legal), *what_is_wrong(survey.reports)
        )


def totals_of(survey: HeaderSurvey) -> AuditTotals:
    """Return how much a survey has seen."""
    facts = [report.facts for report in survey.reports]
    return AuditTotals(len(survey.partitions), sum(f.data_batches for f in facts), sum(f.bytes for f in facts))


def what_is_wrong(
    reports: Sequence[LogReport],
) -> tuple[int, tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the number of damaged places, and sentences about these, unfinished ends, and unreadable parts."""
    return (
        sum(report.damages for report in reports),
        tuple(line for report in reports for line in report.damage),
        tuple(report.tail for report in reports if report.tail is not None),
        tuple(report.unreadable for report in reports if report.unreadable is not None),
    )


def compacted_partitions(partitions: Sequence[AuditPartition], log_dirs: Sequence[LogDir]) -> list[bool]:
    """Return for each of *partitions* whether it is known to be compacted, or to have been."""
    settings_of = settings_around(log_dirs)
    return [
        any(PartitionFacts(copy, LogDirFacts(settings=settings_of(copy.log_dir))).is_compacted for copy in one.copies)
        for one in partitions
    ]


def settings_around(log_dirs: Sequence[LogDir]) -> Callable[[str], TopicConfig]:
    """Return the function from a log dir's path to the settings of its topics."""
    found = dict(zip((one.path for one in log_dirs), topic_configs(log_dirs, {}), strict=True))
    none = TopicConfig()
    return lambda path: found.get(path, none)


class HeaderReport(NamedTuple):
    """The findings in batch headers: by partition, in the order of `HEADER_KINDS`."""

    partitions: tuple[tuple[AuditPartition, tuple[HeaderFinding, ...]], ...]
    logs: int
    records: int
    totals: AuditTotals
    damages: int
    damage: tuple[str, ...]
    tails: tuple[str, ...]
    unreadable: tuple[str, ...]


def audit_headers(
    query: AuditQuery, checks: Sequence[str], now_ms: int, options: AuditOptions, workers: AuditWorkers
) -> HeaderReport:
    """Make the *checks* (ids of `HEADER_KINDS`) of all partitions in one pass.  Raises as `audit_misrouted`."""
    partitions, log_dirs = audit_partitions(query)
    topics = cluster_topics(partitions, log_dirs)
    compacted = compacted_partitions(partitions, log_dirs)
    limits = dict(enumerate(_limits(partitions, log_dirs)))
    secret = os.urandom(_SECRET_BYTES)
    headers = HeaderOptions(secret, now_ms + FUTURE_MS, limits, options.max_batch_bytes)
    with HeaderSurvey(partitions, workers, headers) as survey:
        search = TwinSearch(survey, topics.counts, compacted, options.max_batch_bytes)
        rows: dict[int, list[MisroutedBatch]] = {}
        by_file = {survey.file(log.number): log.partition for log in survey.logs}
        for row in search.rows() if "misrouted" in checks else ():
            rows.setdefault(by_file[row.file], []).append(row)
        repeats = repeated_batches(survey, search) if "duplicate-batch" in checks else {}
        found = []
        for at, partition in enumerate(partitions):
            of = PartitionHeaders(at, partition, survey.by_partition.get(at, []), limits[at], compacted[at], survey)
            if partition.is_judged and of.reports:
                every = [*misrouted_findings(of, rows.get(at, ())), *repeated_findings(of, repeats.get(at))]
                every += [one for id_, check in CHECKS.items() if id_ in checks for one in check(of)]
                found.append((partition, tuple(every)))
        records = sum(report.facts.records for report in survey.reports)
        wrong = what_is_wrong(survey.reports)
        return HeaderReport(tuple(found), len(survey.logs), records, totals_of(survey), *wrong)


def _limits(partitions: Sequence[AuditPartition], log_dirs: Sequence[LogDir]) -> Iterator[TopicLimits]:
    """Yield the limits in the settings of each of *partitions*."""
    settings_of = settings_around(log_dirs)
    for one in partitions:
        value = settings_of(one.directory.log_dir).value
        yield TopicLimits(*(value(one.topic, name).number for name in ("retention.ms", "max.message.bytes")))
