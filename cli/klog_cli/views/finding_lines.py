"""Findings as lines for people: those of one kind in one place are a line, with their number and the first one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from klog.partition.verify.findings import Finding, Severity
from klog.partition.verify.log_checks import BIT_REPAIR

from klog_cli import style

WORST_FIRST: Final = (Severity.DAMAGE, Severity.WARNING, Severity.NOTE)
_MARKS: Final[dict[Severity, Callable[[str], str]]] = {Severity.DAMAGE: style.bad, Severity.WARNING: style.warning}


class FindingGroup(NamedTuple):
    """Findings of one kind in one place: the first of them, and their number."""

    first: Finding
    number: int

    @property
    def label(self) -> str:
        """The id, with the number of findings if there are several."""
        return self.first.id if self.number == 1 else f"{self.first.id} ×{self.number}"


def grouped(findings: Iterable[Finding], *, singly: bool = False) -> list[FindingGroup]:
    """Return *findings* of one place in groups, the worst first; *singly*: each in a group of its own."""
    groups: dict[str | int, FindingGroup] = {}
    for at, finding in enumerate(findings):
        key = at if singly else finding.id
        known = groups.get(key)
        groups[key] = FindingGroup(finding, 1) if known is None else known._replace(number=known.number + 1)
    return sorted(groups.values(), key=lambda group: WORST_FIRST.index(group.first.severity))


def label_width(groups: Iterable[FindingGroup]) -> int:
    """Return the width of the column of ids that all of *groups* fit into."""
    return max((len(group.label) for group in groups), default=0)


def finding_lines(groups: Sequence[FindingGroup], width: int | None = None) -> Iterator[str]:
    """Yield a line for each of *groups*: severity, id, place, message; *width*: see `label_width`."""
    for group in groups:
        finding = group.first
        severity = marked(finding.severity, f"{finding.severity.value:<7}")
        label = f"{group.label:<{label_width(groups) if width is None else width}}"
        example = "e.g. " if group.number > 1 else ""
        yield f"{severity}  {label}  {example}{place(finding)}: {finding.message.removesuffix(BIT_REPAIR)}"


def marked(severity: Severity, text: str) -> str:
    """Return *text* in the colour of *severity*."""
    return _MARKS[severity](text) if severity in _MARKS else text


def place(finding: Finding) -> str:
    """Return the file, the position in it and the offset."""
    name = finding.file.rpartition("/")[2]
    position = "" if finding.position is None else f" @ {finding.position}"
    return name + position + ("" if finding.offset is None else f" (offset {finding.offset})")


def file_of(path: str, finding: Finding) -> str:
    """Return the path of the file that *finding* is about; *path*: that of its partition, or of its log dir."""
    folder = os.path.dirname(path) if os.path.dirname(finding.file) else path
    return os.path.join(folder, finding.file)


def fix_lines(fix: str) -> list[str]:
    """Return the lines of a remedy: the warning, if it has one, and the command below it."""
    if fix.startswith("klog "):
        return [style.command(fix)]
    before, colon, command = fix.partition(": klog ")
    return [f"{before}:", style.command(f"klog {command}")] if colon else [fix]


def explain_command(ids: Iterable[str]) -> list[str]:
    """Return the command that explains *ids*, below an empty line; nothing if there are none."""
    words = ["klog explain", *ids]
    return ["", style.command(" ".join(words))] if len(words) > 1 else []
