"""The output of `klog verify`, as text, JSON or CSV."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

from klog.base.errors import ExitCode
from klog.data_dir.disk.refused_outputs import check_output
from klog.data_dir.log_dir import LogDir
from klog.data_dir.selection import PartitionChoice, open_path
from klog.jobs.runner import Runner
from klog.jobs.verify import verify_in_tasks, verify_partitions
from klog.partition.verify.findings import KINDS, Finding, Severity
from klog.partition.verify.segment_pass import SurveyOptions
from klog.partition.verify.state_checks import root
from klog.partition.verify.verify import Chosen, PartitionResult, VerifyTotals, partitions_to_verify, segments_of_files

from klog_cli import output
from klog_cli.views.finding_lines import WORST_FIRST, FindingGroup, grouped
from klog_cli.views.finding_report import finding_report
from klog_cli.views.prometheus import Metric, emit_metrics

FINDING_COLUMNS = (
    *("id", "severity", "topic", "partition", "file", "position", "offset", "message", "broker", "fix"),
    *("topic_id", "cluster_id"),
)
"""The columns of CSV, as in a row of JSON lines."""


class FoundFindings:
    """The findings so far, counted; text needs only the first of each kind in each place, unless *everything*."""

    def __init__(self, form: str, *, everything: bool = False) -> None:
        self._form, self._everything = form, everything
        self.totals = VerifyTotals()
        self.rows: list[dict[str, object]] = []
        self.places: dict[str, list[FindingGroup]] = {}
        self.counts = dict.fromkeys(WORST_FIRST, 0)
        self.ids = dict.fromkeys(KINDS, 0)
        self.severities = {kind.id: kind.severity for kind in KINDS.values()}
        self.could_not = False

    def take(
        self,
        findings: Sequence[Finding],
        heading: str,
        topic_id: str | None,
        cluster_id: str | None,
        counts: Sequence[int] | None = None,
    ) -> None:
        """Take the findings of a partition or a log dir, whose path is *heading*, and its ids; print jsonl at once.

        *counts*: the number of faults that each finding represents, if more than one.
        """
        for at, finding in enumerate(findings):
            self.counts[finding.severity] += 1
            self.ids[finding.id] = self.ids.get(finding.id, 0) + 1
            self.could_not |= finding.id == "unreadable"
            row = {**finding.json(), "topic_id": topic_id, "cluster_id": cluster_id}
            row |= {} if counts is None else {"count": counts[at]}
            if self._form in ("json", "csv"):
                self.rows.append(row)
            elif self._form == "jsonl":
                output.emit_jsonl([row])
        if self._form == "text" and findings:
            self.places.setdefault(heading, []).extend(grouped(findings, singly=self._everything))

    def take_remote(self, severity: Severity, finding_id: str, row: Mapping[str, object]) -> None:
        """Take a finding in remote storage; its text is printed by itself."""
        self.counts[severity] += 1
        self.ids[finding_id] = self.ids.get(finding_id, 0) + 1
        self.severities.setdefault(finding_id, severity)
        self.could_not |= finding_id == "unreadable"
        if self._form in ("json", "csv"):
            self.rows.append(dict(row))
        elif self._form == "jsonl":
            output.emit_jsonl([row])

    @property
    def exit_code(self) -> int:
        """The exit code for the findings so far."""
        problems = self.counts[Severity.DAMAGE] + self.counts[Severity.WARNING]
        return (ExitCode.PROBLEMS_LEFT if problems else 0) + (ExitCode.OPERATIONAL_ERROR if self.could_not else 0)


def verify(
    paths: Sequence[str],
    topics: Sequence[str],
    numbers: Sequence[PartitionChoice],
    request: SurveyOptions,
    chosen: Chosen | None,
    form: str,
    runner: AbstractContextManager[Runner] | None = None,
    to: str | None = None,
    everything: bool = False,
    then: Callable[[FoundFindings], None] | None = None,
) -> int:
    """Check all of *paths* and return the exit code.  Raises UsageError for a path that is none of Kafka's.

    *runner*: None for this machine.  *to*: the file for metrics; None for stdout.  *everything*: each finding in text.
    *then*: adds findings, and prints all of them.
    """
    if to is not None:
        check_output(to, paths)
    opened = [open_path(path) for path in paths]
    found = FoundFindings(form, everything=everything)
    wanted = partitions_to_verify(opened, topics, numbers)

    def take(checked: PartitionResult) -> None:
        of = checked.partition
        found.take(checked.findings, of.path, of.topic_id, of.checkpoints.cluster_id)
        found.totals = found.totals.plus(checked.totals)
        results.found(len(checked.findings))

    with output.Results() as results:
        results.measure(lambda: sum(partition.size for partition, _ in wanted))
        for thing in opened:
            if isinstance(thing, LogDir):
                found.take(list(root(thing)), thing.path, None, thing.cluster_id)
        chosen = segments_of_files(opened) or chosen
        if runner is None:
            verify_partitions(wanted, request, results, take, chosen)
        else:
            with runner as running:
                verify_in_tasks(running, wanted, request, results, take, chosen)
    if then is None:
        finish(found, form, to)
    else:
        then(found)
    return found.exit_code


def finish(
    found: FoundFindings,
    form: str,
    to: str | None = None,
    more: Mapping[str, object] | None = None,
    columns: Sequence[str] = (),
) -> None:
    """Print the lines after the findings; *more*: members of the document, *columns*: of CSV, behind the usual ones."""
    if form == "json":
        members = dict(zip(VerifyTotals._fields, found.totals, strict=True))
        output.emit_json({**members, **(more or {}), "findings": found.rows})
    elif form == "prometheus":
        emit_metrics(_metrics(found), to)
    elif form == "csv":
        output.emit_csv_rows(found.rows, (*FINDING_COLUMNS, *columns))
    elif form == "text":
        output.lines(finding_report(found.places, found.counts, found.totals))


def _metrics(found: FoundFindings) -> Iterator[Metric]:
    counts = [({"id": one, "severity": found.severities[one].value}, count) for one, count in found.ids.items()]
    yield Metric("klog_findings", "Findings of klog verify, by their id.", counts)
    yield Metric("klog_verify_timestamp_seconds", "When klog verify ended, since the epoch.", [({}, int(time.time()))])
    yield Metric("klog_verify_bytes", "Bytes of logs that klog verify has checked.", [({}, found.totals.bytes)])
