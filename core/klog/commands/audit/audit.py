"""`klog audit`: one pass over the headers of all partitions, and its results."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from klog.cluster.metadata.topic_config import TopicConfig, topic_configs
from klog.commands.audit.audit_coverage import Coverage, cluster_topics, coverage_of
from klog.commands.audit.audited_partitions import AuditPartition, AuditQuery, audit_partitions
from klog.commands.audit.deep import RecordSearch
from klog.commands.audit.header_findings import (
    CHECKS,
    FUTURE_MS,
    HeaderFinding,
    PartitionHeaders,
    misrouted_findings,
    repeated_findings,
)
from klog.commands.audit.header_survey import AuditWorkers, HeaderSurvey
from klog.commands.audit.headers import HeaderOptions, LogReport, TopicLimits
from klog.commands.audit.misrouted import MisroutedBatch, TwinSearch, in_order
from klog.commands.audit.repeats import repeated_batches
from klog.commands.audit.twin_verdict import POSSIBLE, is_at_least
from klog.commands.audit.twins import LegalTwins
from klog.data_dir.log_dir import LogDir
from klog.log.reader import MAX_BATCH_BYTES
from klog.partition.verify.findings import LogDirFacts, PartitionFacts

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
