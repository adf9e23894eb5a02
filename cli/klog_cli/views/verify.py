"""The output of `klog verify`, as text, JSON or CSV."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

from klog.base.errors import ExitCode, counted
from klog.data_dir.disk.output_gate import check_output
from klog.data_dir.log_dir import LogDir
from klog.data_dir.selection import PartitionChoice, open_path
from klog.jobs.runner import Runner
from klog.jobs.verify import verify_in_tasks, verify_partitions
from klog.partition.verify.findings import KINDS, Finding, FindingKind, Severity
from klog.partition.verify.segment_pass import SurveyOptions
from klog.partition.verify.state_checks import root
from klog.partition.verify.verify import Chosen, PartitionResult, VerifyTotals, partitions_to_verify, segments_of_files

from klog_cli import output
from klog_cli.views.finding_lines import coloured, finding_line
from klog_cli.views.prometheus import Metric, emit_metrics

FINDING_COLUMNS = (
    *("id", "severity", "topic", "partition", "file", "position", "offset", "message", "broker", "fix"),
    *("topic_id", "cluster_id"),
)
"""The columns of CSV, as in a row of JSON lines."""


class FoundFindings:
    """The findings so far, counted."""

    def __init__(self, form: str) -> None:
        self._form = form
        self._heading: str | None = None
        self.totals = VerifyTotals()
        self.rows: list[dict[str, object]] = []
        self.counts = dict.fromkeys((Severity.DAMAGE, Severity.WARNING, Severity.NOTE), 0)
        self.ids = dict.fromkeys(KINDS, 0)
        self.kinds: dict[str, Finding] = {}
        self.could_not = False

    def take(
        self,
        findings: Sequence[Finding],
        heading: str,
        topic_id: str | None,
        cluster_id: str | None,
        counts: Sequence[int] | None = None,
    ) -> None:
        """Take the findings of a partition or a log dir, and its ids; text and jsonl are printed at once.

        *counts*: the number of faults that each finding represents, if more than one.
        """
        for at, finding in enumerate(findings):
            self.counts[finding.severity] += 1
            self.ids[finding.id] = self.ids.get(finding.id, 0) + 1
            self.could_not |= finding.id == "unreadable"
            if not (finding.id in self.kinds and self.kinds[finding.id].fix):
                self.kinds[finding.id] = finding if finding.fix else self.kinds.get(finding.id, finding)
            row = {**finding.json(), "topic_id": topic_id, "cluster_id": cluster_id}
            row |= {} if counts is None else {"count": counts[at]}
            if self._form in ("json", "csv"):
                self.rows.append(row)
            elif self._form == "jsonl":
                output.emit_jsonl([row])
            elif self._form == "text":
                if heading != self._heading:
                    output.lines([heading])
                    self._heading = heading
                output.text(f"  {coloured(finding_line(finding))}\n")

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
) -> int:
    """Check all of *paths* and return the exit code.  Raises UsageError for a path that is none of Kafka's.

    *runner*: None for this machine.  *to*: the file for metrics; None for stdout.
    """
    if to is not None:
        check_output(to, paths)
    opened = [open_path(path) for path in paths]
    found = FoundFindings(form)
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
    finish(found, form, to)
    return found.exit_code


def finish(found: FoundFindings, form: str, to: str | None = None) -> None:
    """Print the lines after the findings."""
    if form == "json":
        members = dict(zip(VerifyTotals._fields, found.totals, strict=True))
        output.emit_json({**members, "findings": found.rows})
    elif form == "prometheus":
        emit_metrics(_metrics(found), to)
    elif form == "csv":
        output.emit_csv_rows(found.rows, FINDING_COLUMNS)
    elif form == "text":
        for line in _explained(found):
            output.lines([line])
        output.text(f"{_verdict(found)}\n")


def _metrics(found: FoundFindings) -> Iterator[Metric]:
    counts = [({"id": one, "severity": KINDS[one].severity.value}, count) for one, count in found.ids.items()]
    yield Metric("klog_findings", "Findings of klog verify, by their id.", counts)
    yield Metric("klog_verify_timestamp_seconds", "When klog verify ended, since the epoch.", [({}, int(time.time()))])
    yield Metric("klog_verify_bytes", "Bytes of logs that klog verify has checked.", [({}, found.totals.bytes)])


def _explained(found: FoundFindings) -> Iterator[str]:
    """Yield, for each kind of problem that was found, its meaning and the remedy."""
    kinds = [finding for finding in found.kinds.values() if finding.severity is not Severity.NOTE]
    for finding in kinds:
        kind: FindingKind = finding.kind
        yield ""
        yield f"{kind.id}: {kind.meaning}"
        yield f"  a broker at its next start: {finding.broker}"
        if finding.fix:
            yield f"  {finding.fix}"
    if kinds:
        yield ""


def _verdict(found: FoundFindings) -> str:
    totals = found.totals
    numbers = zip((totals.partitions, totals.segments, totals.batches, totals.records), _NOUNS, strict=True)
    partitions, segments, batches, records = (counted(number, *noun) for number, noun in numbers)
    seen = f"{partitions}, {segments}, {output.human_size(totals.bytes)}, {batches}, {records}"
    counts = ", ".join(
        f"{count} {severity.value}" if severity is Severity.DAMAGE else counted(count, severity.value)
        for severity, count in found.counts.items()
        if count
    )
    problems = found.counts[Severity.DAMAGE] + found.counts[Severity.WARNING]
    if not problems:
        return f"clean: {seen}" + (f"; {counts}" if counts else "")
    return f"{counts} in {seen}"


_NOUNS = (("partition", "s"), ("segment", "s"), ("batch", "es"), ("record", "s"))
