"""The part of `klog report --remote` about remote storage: a line of the verdict, and findings."""

from __future__ import annotations

from klog.base.errors import ExitCode, KlogError, counted
from klog.commands.remote.remote_findings import RemoteFinding
from klog.commands.remote.sources import RemoteQuery
from klog.commands.remote.verify import verify_remote
from klog.commands.report.report_page import Report, VerdictLine, VerdictState
from klog.commands.report.tables import Row
from klog.partition.verify.findings import Severity, quoted
from klog.partition.verify.segment_pass import SurveyOptions
from klog.tier.tier import Tier

from klog_cli import output
from klog_cli.views.remote.verify import finding_row

_ORDER = (Severity.DAMAGE, Severity.WARNING, Severity.NOTE)


def with_remote(
    made: Report, code: int, tier: Tier, request: SurveyOptions, sink: output.Results
) -> tuple[Report, int]:
    """Check remote storage; return the report with what was found, and the exit code."""
    paths = made.log_dirs
    command = f"klog remote verify {' '.join(map(quoted, paths))} --remote {quoted(tier.uri)}"
    try:
        every, totals = verify_remote(RemoteQuery(tuple(paths), tier), request, sink)
    except KlogError as error:
        line = VerdictLine("remote verify", "Remote storage", VerdictState.UNASKED, "not known", str(error), command)
        return made._replace(verdict=(*made.verdict, line)), code | ExitCode.OPERATIONAL_ERROR
    found = [one for one in every if not one.is_of_log_dir]
    found.sort(key=lambda one: _ORDER.index(one.severity))
    state, said = _state(found)
    read = f"{counted(totals.segments, 'segment')}, {counted(totals.objects, 'object')}"
    read += f", {output.human_size(totals.bytes)}"
    line = VerdictLine("remote verify", "Remote storage", state, f"{said}; {read}", command=command)
    where: Row = {"node": None, "log_dir": tier.uri}
    rows: list[Row] = [{**finding_row(one), "meaning": one.kind.meaning, **where} for one in found]
    counts = {kind: count + sum(one.severity.value == kind for one in found) for kind, count in made.counts.items()}
    made = made._replace(verdict=(*made.verdict, line), counts=counts, findings=(*made.findings, *rows))
    return made, code | (ExitCode.CLEAN if state is VerdictState.CLEAN else ExitCode.PROBLEMS_LEFT)


def _state(found: list[RemoteFinding]) -> tuple[VerdictState, str]:
    damage, warnings = (sum(one.severity is kind for one in found) for kind in _ORDER[:2])
    also = f"{counted(warnings, 'warning')}"
    if damage:
        said = f"damaged in {counted(damage, 'place')}"
        return VerdictState.DAMAGE, f"{said}, {also}" if warnings else said
    return (VerdictState.WARNING, f"not damaged, {also}") if warnings else (VerdictState.CLEAN, "clean")
