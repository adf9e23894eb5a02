"""Collects the results of other commands about log dirs, and writes the page of `klog report`."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from klog import __version__
from klog.base.errors import ExitCode, KlogError, UsageError
from klog.commands.groups.group_details import GroupQuery, describe_groups
from klog.commands.report.page_sections import MOST_ROWS
from klog.commands.report.partition_strip_svg import PartitionStrip, strip_of
from klog.commands.report.redaction import Redaction
from klog.commands.report.report_page import Report, VerdictLine, page
from klog.commands.report.tables import Row
from klog.commands.space.disk_usage import DiskUsage, SpaceSettings
from klog.commands.space.totals import add_up
from klog.commands.timeline.log_events import LogEvents
from klog.commands.timeline.timeline import Timeline, pass_events
from klog.commands.timeline.timeline_event import EventFilter, TimelineEvent
from klog.commands.transactions.transaction_details import TransactionDetail, TransactionQuery, describe_transactions
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.data_dir.selection import KafkaFile, PartitionQuery, Selection, open_path
from klog.formats.properties import MetaProperties
from klog.jobs.verify import verify_partitions
from klog.partition.verify.findings import Finding, PartitionFacts, Severity, quoted
from klog.partition.verify.segment_pass import SurveyOptions
from klog.partition.verify.state_checks import root
from klog.partition.verify.verify import PartitionResult, VerifyTotals, partitions_to_verify, segments_of_files

from klog_cli import output
from klog_cli.views import report_verdict
from klog_cli.views.groups import group_json
from klog_cli.views.report_bytes import damaged_bytes
from klog_cli.views.space.space import in_words, log_dir_rows, topic_rows
from klog_cli.views.space.text import WORDS
from klog_cli.views.timeline import event_json
from klog_cli.views.transactions import transaction_json

if TYPE_CHECKING:
    from klog.tier.tier import Tier

_MOST_COMMANDS = 5
_MOST_TRANSACTIONS = 100_000
_UNENDED = ("hanging", "open")
_MOST_BYTES = 16 << 20
"""The size limit for the JSON of groups, and for that of transactions."""
_MOST_LETTERS = 1000
_BY_ORDER = attrgetter("order")
_ORDER = (Severity.DAMAGE, Severity.WARNING, Severity.NOTE)


class _Summary(NamedTuple):
    """The small results of the pass over a partition: its picture, its latest events, whether it has transactions.

    *latest*: its largest timestamp, ms.
    """

    strip: PartitionStrip
    events: list[TimelineEvent]
    has_transactions: bool
    latest: int


class _Pass(LogEvents):
    """The pass over a partition, as the page shows it: its latest events, and its picture."""

    def __init__(self, partition: Partition, log_dir: str, coordinated: Mapping[int, int]) -> None:
        super().__init__(partition, log_dir, self._keep, coordinated)
        self._where = log_dir
        self._latest: list[TimelineEvent] = []

    def _keep(self, event: TimelineEvent) -> None:
        self._latest.append(event)
        if len(self._latest) >= 2 * MOST_ROWS:
            self._latest.sort(key=_BY_ORDER)
            del self._latest[:-MOST_ROWS]

    def summary(self, facts: PartitionFacts) -> _Summary:
        """Return the small results."""
        for event in pass_events(facts, self._where, self):
            self._keep(event)
        could_not = any(segment.unreadable is not None for segment in facts.segments)
        latest = max((segment.survey.max_timestamp for segment in facts.segments), default=-1)
        return _Summary(strip_of(facts), self._latest, self.has_transactions or could_not, latest)


class _Verified:
    """The results of a check of all partitions; *timeline* receives their events.

    *rows*: the findings, the worst first, with the node and the log dir of each.  *places*: the damage, with the path
    of its partition or log dir.  *latest*: the largest timestamp of each partition that has some in the future, by
    topic and number, or by the path of another directory.
    """

    def __init__(self, timeline: Timeline, selections: Iterable[Selection], now_ms: int) -> None:
        self.findings: list[Finding] = []
        self.latest: dict[object, int] = {}
        self.places: list[tuple[str, Finding]] = []
        self._rows: list[tuple[Finding, str, int | None]] = []
        self.now_ms = now_ms
        self.strips: list[PartitionStrip] = []
        self.totals = VerifyTotals()
        self.without_transactions: set[str] = set()
        self._timeline = timeline
        self._log_dirs = {os.path.realpath(one.log_dir.path): one.log_dir.path for one in selections}
        self._known: dict[str, str] = {}

    def _observe(self, partition: Partition) -> _Pass:
        return _Pass(partition, self._around(partition), self._timeline.coordinated)

    def _around(self, partition: Partition) -> str:
        """Return the log dir of a partition, in the words of the command line."""
        around = partition.log_dir
        if around not in self._known:
            self._known[around] = self._log_dirs.get(os.path.realpath(around), around)
        return self._known[around]

    def run(
        self, opened: Sequence[LogDir | Partition | KafkaFile], request: SurveyOptions, sink: output.Results
    ) -> None:
        """Check all of *opened*."""
        for one in opened:
            if isinstance(one, LogDir):
                self._add(root(one), one.path, one.path, one.node_id)
        wanted = partitions_to_verify(opened)
        chosen = segments_of_files(opened)
        verify_partitions(wanted, request, sink, self._take, chosen, self._observe)

    def _add(self, findings: Iterable[Finding], path: str, log_dir: str, node: int | None) -> None:
        found = list(findings)
        self.places += ((path, one) for one in found if one.severity is Severity.DAMAGE)
        self.findings += found
        self._rows += ((one, log_dir, node) for one in found)

    @property
    def rows(self) -> list[Row]:
        """The findings as rows."""
        worst = sorted(self._rows, key=lambda one: _ORDER.index(one[0].severity))
        return [
            {**one.json(), "meaning": one.kind.meaning, "node": node, "log_dir": log_dir}
            for one, log_dir, node in worst
        ]

    def _take(self, result: PartitionResult) -> None:
        partition = result.partition
        meta = partition.checkpoints.meta
        node = meta.node_id if isinstance(meta, MetaProperties) else None
        log_dir = self._around(partition)
        self._add(result.findings, partition.path, log_dir, node)
        self.totals = self.totals.plus(result.totals)
        counts = [sum(one.severity is severity for one in result.findings) for severity in _ORDER[:2]]
        if isinstance(result.summary, _Summary):
            is_ahead = report_verdict.is_ahead(result.summary.latest, self.now_ms)
            if is_ahead:
                self._note_time(partition, result.summary.latest)
            notes = ("timestamps in the future",) if is_ahead else ()
            problems = counts[0], counts[1]
            self.strips.append(
                result.summary.strip._replace(log_dir=log_dir, problems=problems, node=node, notes=notes)
            )
            for event in result.summary.events:
                self._timeline.add(event)
            if not result.summary.has_transactions:
                self.without_transactions.add(partition.path)
        if partition.unreadable is not None:
            self._timeline.problems.append(f"{partition.path}: {partition.unreadable}")

    def _note_time(self, partition: Partition, latest: int) -> None:
        name = partition.name or partition.path
        self.latest[name] = max(latest, self.latest.get(name, latest))

    @property
    def counts(self) -> dict[str, int]:
        """Findings by severity."""
        return {one.value: sum(finding.severity is one for finding in self.findings) for one in _ORDER}

    @property
    def exit_code(self) -> int:
        """The exit code of `klog verify`."""
        left = any(finding.severity is not Severity.NOTE for finding in self.findings)
        could_not = any(finding.id == "unreadable" for finding in self.findings)
        return (ExitCode.PROBLEMS_LEFT if left else 0) + (ExitCode.OPERATIONAL_ERROR if could_not else 0)


def report(
    paths: Sequence[str],
    target: str,
    request: SurveyOptions,
    title: str | None,
    now_ms: int,
    redact: bool,
    tier: Tier | None = None,
) -> int:
    """Write the page and return the exit code.  *tier*: remote storage, which is checked as well.

    Raises UsageError, OSError.
    """
    opened = [open_path(path) for path in paths]
    log_dirs = list(dict.fromkeys(one.path for one in opened))
    collected, selections = _Collected(), PartitionQuery(paths).selections()
    with output.Results(target) as results, Timeline(selections, EventFilter(), Disk()) as timeline:
        if output.is_terminal(results.descriptor):
            raise UsageError(f"--to {target}: a page is no text for a terminal; name a file")
        verified = _Verified(timeline, selections, now_ms)
        timeline.read_state()
        verified.run(opened, request, results)
        shown = collected.read(paths, now_ms, timeline, verified.without_transactions)
        brokers = report_verdict.brokers_of([one for one in opened if isinstance(one, LogDir)])
        copies = report_verdict.compare_copies(brokers, request.jobs)
        made = Report(
            title or f"klog report: {', '.join(log_dirs)}",
            __version__,
            now_ms,
            log_dirs,
            _verdict(paths, verified, collected, copies.lines, brokers, results),
            verified.counts,
            verified.totals._asdict(),
            _next_commands(verified.findings),
            verified.rows,
            [_with_copies(strip, copies.unequal) for strip in verified.strips],
            _space(paths, now_ms),
            {reason.value: meaning for reason, meaning in WORDS.items()},
            *shown,
            {} if collected.counts is None else collected.counts.states,
            collected.problems,
            [] if redact else damaged_bytes(verified.places),
        )
        code = verified.exit_code
        if tier is not None:
            from klog_cli.views.report_remote import with_remote

            made, code = with_remote(made, code, tier, request, results)
        for part in page(_redacted(made, title) if redact else made):
            results.write(part)
    return code


def _verdict(
    paths: Sequence[str],
    verified: _Verified,
    collected: _Collected,
    copies: Sequence[VerdictLine],
    brokers: report_verdict.Brokers,
    sink: output.Results,
) -> list[VerdictLine]:
    """Return the result of each check."""
    words = " ".join(map(quoted, paths))
    latest = max(verified.latest.values(), default=0)
    return [
        report_verdict.data_line(verified.findings, verified.totals, words),
        *report_verdict.start_lines(brokers, sink, verified.without_transactions),
        report_verdict.transaction_line(collected.counts, words),
        *copies,
        report_verdict.time_line(len(verified.latest), latest, verified.now_ms, words),
    ]


def _with_copies(strip: PartitionStrip, unequal: Mapping[tuple[str, int], str]) -> PartitionStrip:
    """Add the verdict about the copies of a partition, if they are not equal."""
    if strip.topic is None or strip.partition is None or (strip.topic, strip.partition) not in unequal:
        return strip
    return strip._replace(notes=(*strip.notes, f"copies: {unequal[strip.topic, strip.partition]}"))


def _space(paths: Sequence[str], now_ms: int) -> Row:
    """Return the rows of `klog space` for log dirs, topics and reasons."""
    usage = DiskUsage(PartitionQuery(paths), SpaceSettings({}, None, {}), now_ms)
    totals = add_up(usage)
    return {
        "now": now_ms,
        "log_dirs": log_dir_rows(totals, "bytes"),
        "topics": topic_rows(usage, totals, "bytes"),
        "reasons": in_words(totals.all),
        "problems": usage.problems,
    }


class _Collected:
    """The results of the other commands.  *problems*: the missing parts, and why; the rest is right.

    *counts*: of transactions; None if they could not be read.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.counts: report_verdict.TransactionCounts | None = None

    def read(
        self, paths: Sequence[str], now_ms: int, timeline: Timeline, without: Container[str]
    ) -> tuple[list[Row], list[Row], list[Row]]:
        """Return the latest events, the groups and the transactions; *without*: the logs that have none of these."""
        return (
            self._events(timeline),
            self._had("groups", partial(self._groups, paths)),
            self._had("transactions", partial(self._transactions, paths, now_ms, without)),
        )

    def _had(self, command: str, read: Callable[[], Iterable[Row]]) -> list[Row]:
        """Return the rows of *read*, up to the bytes that they may take of the page; omitted rows are a problem."""
        found: list[Row] = []
        room, left_out = _MOST_BYTES, 0
        try:
            for row in map(_clipped_row, read()):
                room -= len(json.dumps(row))
                if room >= 0:
                    found.append(row)
                else:
                    left_out += 1
        except KlogError as error:
            self.problems.append(str(error))
            return []
        if left_out:
            self.problems.append(f"{left_out} rows of 'klog {command}' are left out: the page would be too large")
        return found

    def _events(self, timeline: Timeline) -> list[Row]:
        self.problems += timeline.problems
        return [_clipped_row(event_json(event)) for event in deque(timeline.events(), maxlen=MOST_ROWS)]

    def _groups(self, paths: Sequence[str]) -> Iterable[Row]:
        return map(group_json, describe_groups(paths, GroupQuery(), self.problems.append) or [])

    def _transactions(self, paths: Sequence[str], now_ms: int, without: Container[str]) -> Iterable[Row]:
        """Return the hanging and open transactions, then as many of the others as a page has room for."""
        counts = report_verdict.TransactionCounts()
        rows: dict[str, list[TransactionDetail]] = {state: [] for state in (*_UNENDED, "")}
        for one in describe_transactions(paths, TransactionQuery(now_ms), without=without):
            counts.take(one)
            kept = rows[one.state if one.state in _UNENDED else ""]
            if len(kept) < _MOST_TRANSACTIONS:
                kept.append(one)
        self.counts = counts
        return map(transaction_json, chain.from_iterable(rows.values()))


def _clipped_row(row: Row) -> Row:
    return {name: _clipped(value) for name, value in row.items()}


def _clipped(value: object) -> object:
    """Return *value* with the beginnings of texts that are longer than names, ids and messages are."""
    if isinstance(value, str) and len(value) > _MOST_LETTERS:
        return f"{value[:_MOST_LETTERS]}… ({len(value)} letters)"
    if isinstance(value, (list, tuple)):
        return [_clipped(one) for one in value]
    return _clipped_row(value) if isinstance(value, dict) else value


def _next_commands(findings: Sequence[Finding]) -> list[tuple[str, str]]:
    """Return the repairs: each command, with the first problem that it repairs, the worst problems first."""
    fixes: dict[str, str] = {}
    for finding in sorted(findings, key=lambda one: _ORDER.index(one.severity)):
        if finding.fix and finding.severity is not Severity.NOTE:
            fixes.setdefault(finding.fix, f"{finding.id} in {finding.file}: {finding.kind.meaning}")
    return list(fixes.items())[:_MOST_COMMANDS]


def _redacted(made: Report, title: str | None) -> Report:
    """Return a report to give away: no string of the disk but ids and numbers."""
    words = Redaction()

    def redacted(every: Sequence[Row]) -> list[Row]:
        return [words.row(row) for row in every]

    return made._replace(
        title=title or "klog report",
        log_dirs=[words.name("log-dir", path) for path in made.log_dirs],
        verdict=[line._replace(detail="", command=None) for line in made.verdict],
        next_commands=[],
        problems=[],
        findings=redacted(made.findings),
        strips=[_redacted_strip(strip, words) for strip in made.strips],
        space=words.row(made.space),
        events=redacted(made.events),
        groups=redacted(made.groups),
        transactions=redacted(made.transactions),
    )


def _redacted_strip(strip: PartitionStrip, words: Redaction) -> PartitionStrip:
    topic = None if strip.topic is None else words.name("topic", strip.topic)
    directory = words.name("directory", strip.directory) if topic is None else f"{topic}-{strip.partition}"
    return strip._replace(topic=topic, directory=directory, log_dir=words.name("log-dir", strip.log_dir))
