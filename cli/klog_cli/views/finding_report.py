"""The text of `klog verify`: the verdict, the findings of each partition, and each kind's meaning and remedy."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from klog.base.errors import counted
from klog.partition.verify.findings import Finding, Severity, quoted
from klog.partition.verify.log_checks import BIT_REPAIR
from klog.partition.verify.verify import VerifyTotals

from klog_cli import output, style
from klog_cli.views.bytes import see_bytes
from klog_cli.views.finding_lines import (
    WORST_FIRST,
    FindingGroup,
    explain_command,
    file_of,
    finding_lines,
    fix_lines,
    label_width,
    marked,
)

Places = Mapping[str, Sequence[FindingGroup]]
"""The findings of each partition or log dir, by its path."""
_MOST_PATHS = 4
"""The most partitions that a command names; for more it names their log dir."""


def finding_report(places: Places, counts: Mapping[Severity, int], totals: VerifyTotals) -> Iterator[str]:
    """Yield the lines, with the verdict first.  *counts*: of the findings by severity."""
    yield verdict(counts, totals)
    if not places:
        return
    width = label_width(group for groups in places.values() for group in groups)
    for path, groups in places.items():
        yield ""
        yield style.strong(path)
        yield from (f"  {line}" for line in finding_lines(groups, width))
    shown = sum(map(len, places.values()))
    if shown < sum(counts.values()):
        yield ""
        yield style.faint(f"--all lists each of the {sum(counts.values())} findings")
    kinds = _by_kind(places)
    for found in kinds:
        yield ""
        yield from _kind_lines(found)
    ids = [found[0][1].id for found in kinds]
    ids += [group.first.id for groups in places.values() for group in groups]
    yield from explain_command(dict.fromkeys(ids))


def verdict(counts: Mapping[Severity, int], totals: VerifyTotals) -> str:
    """Return the first line: clean or not, and the amount that was checked."""
    checked = ", ".join(
        (
            counted(totals.partitions, "partition"),
            counted(totals.segments, "segment"),
            output.human_size(totals.bytes),
            counted(totals.batches, "batch", "es"),
            counted(totals.records, "record"),
        )
    )
    found = ", ".join(_counted(severity, counts[severity]) for severity in WORST_FIRST if counts[severity])
    if counts[Severity.DAMAGE]:
        return f"{style.bad('damaged')}: {found} in {checked}"
    if counts[Severity.WARNING]:
        return f"{style.warning('not clean')}: {found} in {checked}"
    return f"{style.good('clean')}: {checked}" + (f"; {found}" if found else "")


def _counted(severity: Severity, count: int) -> str:
    if severity is Severity.DAMAGE:
        return marked(severity, f"{counted(count, 'case')} of damage")
    return marked(severity, counted(count, severity.value))


def _by_kind(places: Places) -> list[list[tuple[str, Finding]]]:
    """Return the findings that are more than notes, with their paths: a list for each kind, the worst first."""
    kinds: dict[str, list[tuple[str, Finding]]] = {}
    for path, groups in places.items():
        for group in groups:
            if group.first.severity is not Severity.NOTE:
                kinds.setdefault(group.first.id, []).append((path, group.first))
    return sorted(kinds.values(), key=lambda found: WORST_FIRST.index(found[0][1].severity))


def _kind_lines(found: Sequence[tuple[str, Finding]]) -> Iterator[str]:
    """Yield the meaning of a kind of findings, a broker's reaction, and the commands that repair it and show it."""
    first = next((finding for _, finding in found if finding.fix), found[0][1])
    yield f"{style.strong(first.id)}: {first.kind.meaning}"
    yield f"  a broker at its next start: {first.broker}"
    for fix in _fixes(found):
        yield from (f"  {'  ' * style.is_command(line)}{line}" for line in fix_lines(fix))
    path, example = found[0]
    if example.position is not None:
        yield f"    {see_bytes(file_of(path, example), position=example.position)}"


def _fixes(found: Sequence[tuple[str, Finding]]) -> list[str]:
    """Return the remedies; those that differ only in the partition are one."""
    paths: dict[str, list[str]] = {}
    for path, finding in found:
        if finding.fix:
            bits = " --repair-bits" if finding.message.endswith(BIT_REPAIR) else ""
            paths.setdefault(finding.fix.replace(quoted(path), "\0") + bits, []).append(path)
    return [fix.replace("\0", _named(dict.fromkeys(mine))) for fix, mine in paths.items()]


def _named(paths: Mapping[str, None]) -> str:
    if len(paths) > _MOST_PATHS:
        paths = dict.fromkeys(os.path.dirname(path) or os.curdir for path in paths)
    return " ".join(map(quoted, paths))
