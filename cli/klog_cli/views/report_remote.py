"""The part of `klog report --remote` about remote storage: a line of the verdict, and findings."""

from __future__ import annotations

from typing import NamedTuple

from klog.base.errors import ExitCode, KlogError, counted
from klog.commands.remote.remote_findings import RemoteFinding
from klog.commands.remote.sources import RemoteQuery
from klog.commands.remote.verify import verify_remote
from klog.commands.report.report_page import VerdictLine, VerdictState
from klog.commands.report.tables import Row
from klog.partition.verify.findings import Severity, quoted
from klog.partition.verify.segment_pass import SurveyOptions

from klog_cli import output
from klog_cli.views.remote.verify import finding_row

_ORDER = (Severity.DAMAGE, Severity.WARNING, Severity.NOTE)


class RemotePart(NamedTuple):
    """*rows*: the findings, as those of `klog verify`, the worst first; *code*: the exit code."""

    line: VerdictLine
    rows: list[Row]
    code: int

    def count(self, severity: str) -> int:
        """Return the number of findings of a severity."""
        return sum(row["severity"] == severity for row in self.rows)


def remote_part(query: RemoteQuery, request: SurveyOptions, sink: output.Results) -> RemotePart:
    """Check remote storage."""
    assert query.tier is not None
    command = f"klog remote verify {' '.join(map(quoted, query.paths))} --remote {quoted(query.tier.uri)}"
    try:
        found, totals = verify_remote(query, request, sink)
    except KlogError as error:
        line = VerdictLine("remote verify", "Remote storage", VerdictState.UNASKED, "not known", str(error), command)
        return RemotePart(line, [], ExitCode.OPERATIONAL_ERROR)
    found.sort(key=lambda one: _ORDER.index(one.severity))
    state, said = _state(found)
    read = f"{counted(totals.segments, 'segment')}, {counted(totals.objects, 'object')}"
    read += f", {output.human_size(totals.bytes)}"
    line = VerdictLine("remote verify", "Remote storage", state, f"{said}; {read}", command=command)
    where: Row = {"node": None, "log_dir": query.tier.uri}
    rows: list[Row] = [{**finding_row(one), "meaning": one.kind.meaning, **where} for one in found]
    return RemotePart(line, rows, ExitCode.CLEAN if state is VerdictState.CLEAN else ExitCode.PROBLEMS_LEFT)


def _state(found: list[RemoteFinding]) -> tuple[VerdictState, str]:
    damage, warnings = (sum(one.severity is kind for one in found) for kind in _ORDER[:2])
    also = f"{counted(warnings, 'warning')}"
    if damage:
        said = f"damaged in {counted(damage, 'place')}"
        return VerdictState.DAMAGE, f"{said}, {also}" if warnings else said
    return (VerdictState.WARNING, f"not damaged, {also}") if warnings else (VerdictState.CLEAN, "clean")
