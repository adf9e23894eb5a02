"""`klog remote verify`: the verdict, the findings of each segment, and each kind's meaning and a broker's reaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict

from klog.base.errors import ExitCode, counted
from klog.commands.remote.remote_findings import RemoteFinding
from klog.commands.remote.sources import RemoteQuery
from klog.commands.remote.verify import RemoteTotals, verify_remote
from klog.partition.verify.findings import Severity
from klog.partition.verify.segment_pass import SurveyOptions

from klog_cli import output, style
from klog_cli.views.finding_lines import WORST_FIRST, explain_command, marked
from klog_cli.views.nothing_found import nothing_found

COLUMNS = (
    *("id", "severity", "topic", "partition", "tier", "segment_id", "file", "position", "offset", "message"),
    *("broker", "fix"),
)


def verify(query: RemoteQuery, options: SurveyOptions | None, form: str, everything: bool) -> int:
    """Print the findings and return the exit code.  *options*: None for names and sizes alone.

    Raises UsageError, KlogError.
    """
    with output.Results() as results:
        found, totals = verify_remote(query, options, results)
        results.found(len(found))
    if form == "json":
        output.emit_json({**asdict(totals), "findings": list(map(finding_row, found))})
    elif form == "jsonl":
        output.emit_jsonl(map(finding_row, found))
    elif form == "csv":
        output.emit_csv_rows(map(finding_row, found), COLUMNS)
    elif found or not _is_nothing(query, totals):
        output.lines(report(found, totals, everything=everything))
    if not found and _is_nothing(query, totals):
        return nothing_found("no partition in remote storage")
    problems = any(one.severity is not Severity.NOTE for one in found)
    unread = any(one.id == "unreadable" for one in found)
    return (ExitCode.PROBLEMS_LEFT if problems else 0) + (ExitCode.OPERATIONAL_ERROR if unread else 0)


def _is_nothing(query: RemoteQuery, totals: RemoteTotals) -> bool:
    """Whether no partition is one of those that were named."""
    return not totals.partitions and query.narrows


def finding_row(one: RemoteFinding) -> dict[str, object]:
    """Return a finding as a row of JSON."""
    names = ("topic", "partition", "tier", "segment_id", "file", "position", "offset", "message", "broker")
    head: dict[str, object] = {"id": one.id, "severity": one.severity.value}
    return head | {name: getattr(one, name) for name in names} | {"fix": None}


def report(found: list[RemoteFinding], totals: RemoteTotals, *, everything: bool = False) -> Iterator[str]:
    """Yield the lines for people; *everything*: each finding."""
    yield _verdict(found, totals)
    groups: dict[str, dict[str, list[RemoteFinding]]] = {}
    for number, one in enumerate(found):
        key = f"{one.id} {number}" if everything else one.id
        groups.setdefault(one.heading, {}).setdefault(key, []).append(one)
    width = max((len(_label(same)) for kinds in groups.values() for same in kinds.values()), default=0)
    for heading, kinds in groups.items():
        yield ""
        yield style.strong(heading)
        for same in sorted(kinds.values(), key=lambda same: WORST_FIRST.index(same[0].severity)):
            yield f"  {_line(same, width)}"
    kinds_found = {one.id: one for one in found if one.severity is not Severity.NOTE}
    for one in sorted(kinds_found.values(), key=lambda one: WORST_FIRST.index(one.severity)):
        yield ""
        yield f"{style.strong(one.id)}: {one.kind.meaning}"
        yield f"  a broker {'at its next start: ' if one.is_of_log_dir else ''}{one.broker}"
    yield from explain_command(dict.fromkeys([*kinds_found, *(one.id for one in found)]))


def _label(same: list[RemoteFinding]) -> str:
    return same[0].id if len(same) == 1 else f"{same[0].id} ×{len(same)}"


def _line(same: list[RemoteFinding], width: int) -> str:
    one = same[0]
    severity = marked(one.severity, f"{one.severity.value:<7}")
    place = one.file + ("" if one.position is None else f" @ {one.position}")
    place += "" if one.offset is None or one.position is None else f" (offset {one.offset})"
    example = "e.g. " if len(same) > 1 else ""
    return f"{severity}  {_label(same):<{width}}  {example}{f'{place}: ' if place else ''}{one.message}"


def _verdict(found: list[RemoteFinding], totals: RemoteTotals) -> str:
    counts: Mapping[Severity, int] = {
        severity: sum(one.severity is severity for one in found) for severity in WORST_FIRST
    }
    objects = f"{counted(totals.objects, 'object')} ({output.human_size(totals.bytes)})"
    parts = [counted(totals.partitions, "partition"), counted(totals.segments, "segment"), objects]
    parts += [counted(totals.batches, "batch", "es")] if totals.batches else []
    checked = ", ".join(parts)
    words = {Severity.DAMAGE: ("case of damage", "cases of damage"), Severity.WARNING: ("warning", "warnings")}
    words[Severity.NOTE] = ("note", "notes")
    shown = ", ".join(f"{count} {words[one][count != 1]}" for one, count in counts.items() if count)
    if counts[Severity.DAMAGE]:
        return f"{style.bad('damaged')}: {shown} in {checked}"
    if counts[Severity.WARNING]:
        return f"{style.warning('not clean')}: {shown} in {checked}"
    return f"{style.good('clean')}: {checked}" + (f"; {shown}" if shown else "")
